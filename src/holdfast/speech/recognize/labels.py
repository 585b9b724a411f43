"""What the columns of a CTC model's output mean.

`Labels`: of any model, by the files of its toolkit, with the blank and the word delimiter. `Alphabet`: of
the models that are trained here, characters of any script or non-overlapping pairs of them (bigrams).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.opening import open_source

BLANKS = (
    ("<blank>", "<blk>", "<b>", "<ctc_blank>", "<eps>", "[blank]", "[BLANK]", ""),
    ("<pad>", "[PAD]"),
)
"""Names of the blank: those that mean nothing else, then wav2vec2's padding, which is its blank."""
DELIMITERS = (" ", "|", "<space>", "[SPACE]", "▁")
"""Names of the label between words; in pieces of words, ``▁`` marks where a word begins."""
SILENT = ("<s>", "</s>", "<sos>", "<eos>", "<sos/eos>", "[CLS]", "[SEP]", "<pad>", "[PAD]")
"""Labels of other uses of a vocabulary, which are never output."""
UNKNOWN = ("<unk>", "[UNK]", "<UNK>")
UNKNOWN_TEXT = "⁇"

_DISAMBIGUATION = re.compile(r"#\d+")


@dataclass(frozen=True)
class Labels:
    """The columns of a CTC model's output."""

    names: tuple[str, ...]
    """As the file has them."""
    blank: int
    """Column of the blank."""
    texts: tuple[str, ...]
    """What each column writes: a space ends a word; empty for the blank and for columns never output."""
    joined: str
    """What stands between words in a text: a space; nothing where every label is a word of its own."""

    @property
    def silent(self) -> list[int]:
        """Columns that are never output, the blank not among them."""
        return [k for k, text in enumerate(self.texts) if not text and k != self.blank]

    def words(self, columns: Iterable[int]) -> list[str]:
        """The words that columns write, one after the other."""
        text = "".join(self.texts[column] for column in columns)
        return [word for word in text.split(" ") if word]

    @classmethod
    def of(
        cls,
        source: Labels | str | Path | Sequence[str] | Mapping[str, int],
        columns: int,
        blank: int | str | None = None,
        delimiter: str | None = None,
    ) -> Labels:
        """Labels for a model with a number of outputs.

        Args:
            source: a file (a JSON list, wav2vec2's ``vocab.json``, k2's ``tokens.txt``, or one label per
                line), the labels, or label -> column. Where they are one fewer than the columns and none
                is a blank, the blank is the last column, as in NeMo.
            columns: number of the model's outputs.
            blank: name or column of the blank; None: by its usual names.
            delimiter: the label between words; None: by its usual names.

        Raises:
            InputError: if the file is not one of these, or the labels do not fit the model.
        """
        path = None
        if isinstance(source, Labels):
            if len(source.names) == columns:
                return source
            source = source.names
        if isinstance(source, (str, Path)):
            path = Path(source)
            source = read_names(path)
        places: list[int] = []
        if isinstance(source, Mapping):
            source, places = sorted(source, key=source.__getitem__), sorted(source.values())
        names = tuple(source)
        if (
            len(names) == columns - 1
            and (blank is None or blank == len(names))
            and not _usual_blank(names)
        ):
            blank, names = len(names), (*names, "<blank>")
        if len(names) != columns or places != list(range(len(places))):
            raise InputError(
                "the labels do not fit the outputs",
                code="conflict",
                path=path,
                found=f"{len(names)} labels for {columns} outputs",
                expected="one label per output, columns from 0 on; the blank may be missing if it is last",
                remedy="give the labels of this model, and arrays of [frames, labels]",
            )
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise InputError(
                "a label occurs twice", code="duplicate", path=path, found=repr(repeated[0])
            )
        place = _blank(names, blank, path)
        if delimiter is not None and delimiter not in names:
            raise _unknown("delimiter", delimiter, names, path)
        space = [name for name in ([delimiter] if delimiter else DELIMITERS) if name in names][:1]
        # Pieces of words: "▁" is in front of those that begin a word, or "##" of those that continue one.
        continued = any(name[2:] and name.startswith("##") for name in names)
        words = bool(space) or continued or any(" " in name or "▁" in name for name in names)
        texts = [_text(name, space, words, continued) for name in names]
        texts[place] = ""
        if not any(texts):
            raise InputError("no label has a text", code="no-data", path=path, found=_shown(names))
        return cls(names, place, tuple(texts), " " if words else "")


def _text(name: str, space: list[str], words: bool, continued: bool) -> str:
    """What a label writes; where nothing marks words, each label is one."""
    if name in space:
        return " "
    if name in SILENT:
        return ""
    if name in UNKNOWN:
        return UNKNOWN_TEXT
    if continued:
        return name.removeprefix("##") if name.startswith("##") else " " + name
    return name.replace("▁", " ") if words else name + " "


def _usual_blank(names: Sequence[str]) -> list[str]:
    return [name for known in BLANKS for name in known if name in names]


def _blank(names: tuple[str, ...], given: int | str | None, path: Path | None) -> int:
    """Column of the blank: by its label, its number (from the end, if negative), or its usual names."""
    if given is None:
        given = next(iter(_usual_blank(names)), "")
    columns = range(-len(names), len(names))
    places = {key: k % len(names) for k in columns for key in (k, str(k))}
    places |= {name: k for k, name in enumerate(names)}
    if given in places:
        return places[given]
    raise _unknown("blank", given, names, path)


def _unknown(what: str, found: int | str, names: Sequence[str], path: Path | None) -> InputError:
    return InputError(
        f"no label is the {what}",
        code="unknown-name",
        path=path,
        place=what,
        found=repr(found) if found else "none of its usual names",
        expected=f"one of {_shown(names)}",
        remedy=f"name the {what} of this model",
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f", ... ({len(names)})" if len(names) > 8 else "")


def read_text(path: Path) -> str:
    """A text file, plain or compressed.

    Raises:
        InputError: what `open_source` refuses; ``invalid-encoding`` with the place.
    """
    with open_source(path) as source:
        data = source.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        raise InputError("not UTF-8", code="invalid-encoding", path=path, place=place) from error


def read_names(path: Path) -> list[str] | dict[str, int]:
    """The labels of a file: a JSON list, a JSON dictionary or k2's lines of labels and columns, or lines.

    Raises:
        InputError: if it cannot be read, or is none of these.
    """
    text = read_text(path)
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(text, type=list[str] | dict[str, int])
        except msgspec.DecodeError as error:
            # A list of labels whose first is a bracket is lines, not JSON.
            if "\n" not in text.strip() or text.lstrip()[:2].strip() in ('["', '{"'):
                raise InputError(
                    "not a vocabulary",
                    code="unknown-format",
                    path=path,
                    found=str(error),
                    expected='["a", "b"] or {"a": 0, "b": 1}',
                ) from error
    lines = [line.rstrip("\r") for line in text.split("\n")]
    lines = [line for line in lines if line]  # a label of one space is a line
    numbered = [re.fullmatch(r"(.*)[ \t](\d+)", line) for line in lines]
    if len(lines) < 2 or not all(numbered):
        return lines
    # A line that is only an id names the space; #0, #1, ... are no outputs.
    pairs = [(match[1] or " ", int(match[2])) for match in numbered if match]
    return {name: column for name, column in pairs if not _DISAMBIGUATION.fullmatch(name)}


# --- Alphabets of trained models ------------------------------------------------------------------

BLANK = 0
"""Index of the CTC blank, before the labels."""


def clean_text(text: str) -> str:
    """Text in Unicode's normal form C, with single spaces between words."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True)
class Alphabet:
    """What the network can write."""

    labels: tuple[str, ...]
    """The text of output 1, 2, ...; output 0 is the blank, whose text is empty."""

    @classmethod
    def of_texts(cls, texts: Iterable[str], bigrams: bool, characters: str = "") -> Alphabet:
        """The alphabet of a training set.

        Args:
            texts: as `clean_text` gives them.
            bigrams: add the pairs into which words of the texts split (Deep Speech 2, 3.6).
            characters: the characters; empty: those of the texts.
        """
        texts = list(texts)
        found = set(unicodedata.normalize("NFC", characters)) or set("".join(texts))
        pairs: set[str] = set()
        if bigrams:
            pairs = {piece for text in texts for piece in _pieces(text) if len(piece) == 2}
        return cls((*sorted(found), *sorted(p for p in pairs if set(p) <= found)))

    @property
    def size(self) -> int:
        """Number of outputs, the blank among them."""
        return len(self.labels) + 1

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels, 1)}

    def unknown(self, text: str) -> Counter[str]:
        """Characters of a text that are not in the alphabet, with their counts."""
        return Counter(each for each in text if each not in self._index)

    def encode(self, text: str) -> list[int]:
        """Outputs of a text: the pair where the alphabet has it, else its characters."""
        pieces = _pieces(text) if len(self.labels[-1]) == 2 else list(text)
        known = [[piece] if piece in self._index else list(piece) for piece in pieces]
        return [self._index[piece] for group in known for piece in group]

    @property
    def outputs(self) -> Labels:
        """The labels as a decoder takes them; words are what stands between spaces."""
        return Labels(("<blank>", *self.labels), BLANK, ("", *self.labels), " ")


def frames_needed(target: Sequence[int]) -> int:
    """Frames that CTC needs for a target: one per label, and a blank between equal neighbors."""
    return len(target) + sum(a == b for a, b in pairwise(target))


def _pieces(text: str) -> list[str]:
    """Words as non-overlapping pairs; the last character of an odd word and spaces are alone."""
    pieces = []
    for place, word in enumerate(text.split(" ")):
        pieces += [" "] if place else []
        pieces += [word[k : k + 2] for k in range(0, len(word), 2)]
    return pieces
