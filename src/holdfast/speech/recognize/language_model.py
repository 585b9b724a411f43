"""N-gram language models in ARPA format, as an automaton whose nodes are n-grams.

The score of a word walks from the longest history that the model has to shorter ones until the word follows
(Katz back-off, as the ARPA format defines it), so it costs at most one look-up per order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.errors import InputError
from holdfast.opening import open_source
from holdfast.speech.recognize import _tries as tries

_SECTION = re.compile(rb"^[ \t]*\\(\d+)-grams:[ \t\r]*$", re.MULTILINE)
_END = re.compile(rb"^[ \t]*\\end\\", re.MULTILINE)
_COUNT = re.compile(rb"^[ \t]*ngram[ \t]+(\d+)[ \t]*=[ \t]*(\d+)", re.MULTILINE)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BINARY = b"mmap lm http://kheafield.com/code"

Words = NDArray[np.int64]


@dataclass(frozen=True)
class LanguageModel:
    """An n-gram model: P(word | the words before it)."""

    words: tuple[str, ...]
    """By id; those of markers (`<s>`, `</s>`, `<unk>`) included."""
    order: int
    """Longest n-grams."""
    ngrams: tries.Ngrams
    start: int
    """Node of the history `<s>`."""

    @classmethod
    def read(cls, path: Path | str) -> LanguageModel:
        """Read an ARPA file, plain or compressed.

        Raises:
            InputError: if it is not one, is cut off, its counts or numbers are wrong, an n-gram occurs
                twice or its history is missing, or `<s>` or `</s>` is missing.
        """
        path = Path(path)
        with open_source(path) as source:
            data = source.read()
        if data.startswith(_BINARY):
            raise InputError(
                "a binary file of KenLM",
                code="unsupported",
                path=path,
                expected="the ARPA file that it was built from",
            )
        sections = _sections(data, path)
        vocabulary = sections[0].words
        words = tuple(vocabulary.to_pylist())
        by_word = {word: k for k, word in enumerate(words)}
        for marker in ("<s>", "</s>"):
            if marker not in by_word:
                raise InputError(
                    "a marker is missing",
                    code="missing-key",
                    path=path,
                    place="\\1-grams:",
                    expected=marker,
                    remedy="train with sentence boundaries, as lmplz and SRILM do by default",
                )
        nodes = 1 + sum(part.count for part in sections)
        trie = empty_trie(nodes, len(words))
        suffix = np.zeros(nodes, np.int64)
        node = 1
        for part in sections:
            ids = pc.index_in(part.words, value_set=vocabulary).fill_null(-1).to_numpy()
            ids = ids.astype(np.int64).reshape(-1, part.order)
            unlisted = (ids < 0).any(1)
            # An n-gram that occurs twice, or whose history is missing.
            wrong = tries.add_ngrams(trie, suffix, ids, node)
            wrong = int(np.argmax(unlisted)) if unlisted.any() else wrong
            if wrong >= 0:
                row = wrong % part.count
                found = " ".join(part.words.slice(row * part.order, part.order).to_pylist())
                expected = "an n-gram once, with its history, of words that are in the 1-grams"
                raise _damaged(path, f"\\{part.order}-grams:, entry {row + 1}", found, expected)
            node += part.count
        ngrams = tries.Ngrams(
            trie,
            np.concatenate([[0.0], *(part.log_prob for part in sections)]) * math.log(10),
            np.concatenate([[0.0], *(part.backoff for part in sections)]) * math.log(10),
            suffix,
            np.arange(nodes) >= nodes - sections[-1].count,
            by_word.get("<unk>", by_word.get("<UNK>", tries.NONE)),
            by_word["</s>"],
        )
        start = tries.ROOT if len(sections) == 1 else 1 + by_word["<s>"]
        return cls(words, len(sections), ngrams, start)

    def score(self, words: Sequence[str]) -> list[float]:
        """Ln P of each word of a sentence, and of its end.

        Args:
            words: of one sentence, without markers; those that the model does not have are `<unk>`.
        """
        ids = {word: k for k, word in enumerate(self.words)}
        history, scores = self.start, []
        for word in [*words, "</s>"]:
            ln_p, history = tries.ngram_score(self.ngrams, history, ids.get(word, tries.NONE))
            scores.append(ln_p)
        return scores


def empty_trie(steps: int, symbols: int) -> tries.Trie:
    """A trie with room for a number of steps."""
    slots = 1 << max(2 * steps, 2).bit_length()
    return tries.Trie(np.full(slots, tries.NONE, np.int64), np.zeros(slots, np.int64), symbols)


@dataclass(frozen=True)
class _Section:
    """The n-grams of one order."""

    order: int
    words: Any
    """Arrow strings [count * order]."""
    log_prob: NDArray[np.float64]
    """[count] log10."""
    backoff: NDArray[np.float64]

    @property
    def count(self) -> int:
        return self.log_prob.size


def _sections(data: bytes, path: Path) -> list[_Section]:
    marks = list(_SECTION.finditer(data))
    if b"\\data\\" not in data or not marks:
        raise InputError(
            "not a language model",
            code="unknown-format",
            path=path,
            found=repr(data[:60]),
            expected="an ARPA file: \\data\\, \\1-grams:, ..., \\end\\",
        )
    end = _END.search(data, marks[-1].end())
    orders = [int(mark[1]) for mark in marks]
    counts = {int(k): int(n) for k, n in _COUNT.findall(data[: marks[0].start()])}
    if end is None or orders != sorted(counts) or orders != list(range(1, len(orders) + 1)):
        found = f"sections {orders}" + ("" if end else ", no \\end\\")
        raise _damaged(path, "\\data\\", found, f"sections {sorted(counts)}, then \\end\\")
    stops = [*(mark.start() for mark in marks[1:]), end.start()]
    return [
        _section(data[mark.end() : stop], order, counts[order], path)
        for mark, stop, order in zip(marks, stops, orders, strict=True)
    ]


def _section(data: bytes, order: int, count: int, path: Path) -> _Section:
    """Read ``log10 P, word, ..., word[, log10 back-off]`` in each line."""
    place = f"\\{order}-grams:"
    try:
        lines = pa.array(data.decode().strip().split("\n"))
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", code="invalid-encoding", path=path, place=place) from error
    words = r"\s+".join([r"\S+"] * order)
    line = rf"^\s*(?P<p>{_NUMBER}|-inf)\s+(?P<words>{words})(?:\s+(?P<b>{_NUMBER}))?\s*$"
    p, spelled, b = pc.extract_regex(lines, line).flatten()  # null where a line is none of these
    # Old tools write -99 for a probability of zero; as KenLM does, it is taken as it is.
    numbers = [pc.cast(each, pa.float64()) for each in (p, pc.if_else(pc.equal(b, ""), "0", b))]
    log_prob, backoff = (each.to_numpy(zero_copy_only=False) for each in numbers)
    wrong = ~(log_prob <= 1e-6)  # NaN among them
    if len(lines) != count or wrong.any():
        row = int(np.argmax(wrong))
        found = f"{len(lines)} lines; {str(lines[row])[:80]!r}"
        expected = f"{count} lines: log10 of a probability, {order} words and perhaps a back-off"
        raise _damaged(path, f"{place}, entry {row + 1}", found, expected)
    split = pc.list_flatten(pc.ascii_split_whitespace(spelled))
    return _Section(order, split, log_prob, backoff)


def _damaged(path: Path, place: str, found: str, expected: str) -> InputError:
    return InputError(
        "the language model is damaged",
        code="damaged",
        path=path,
        place=place,
        found=found,
        expected=expected,
        remedy="copy the file again, or make it again",
    )
