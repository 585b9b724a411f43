"""Reading n-gram models in the ARPA format, of any order."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn, cast

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lm.tokenizers.reading import unread_code

ZERO = -99.0
"""What tools write for log10(0); everything at or below it is read as probability 0."""
_GZIP = b"\x1f\x8b"
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d+)$")
_SECTION = re.compile(rb"\\(\d+)-grams:$")


@dataclass(frozen=True, eq=False)
class Grams:
    """The n-grams of one order, in the order of the file."""

    words: npt.NDArray[np.int32]
    """[N, n] ids of the words, by place in the section of 1-grams."""
    log10_probability: npt.NDArray[np.float64]
    """[N] of the last word after those in front of it; -inf for probability 0."""
    log10_backoff: npt.NDArray[np.float64]
    """[N] weight of the shorter context for words not listed after this n-gram; 0 if the file has none."""
    lines: npt.NDArray[np.int64]
    """[N] where in the file it stands, from 1."""


@dataclass(frozen=True, eq=False)
class Arpa:
    """An n-gram model as its file tells it."""

    path: Path
    vocabulary: tuple[bytes, ...]
    """[V] the words; an id is a place in it."""
    orders: tuple[Grams, ...]
    """1-grams first; the last order is not empty."""


@dataclass
class _Section:
    """The n-grams of one order while they are read."""

    order: int
    words: array[int] = field(default_factory=lambda: array("i"))
    probabilities: array[float] = field(default_factory=lambda: array("d"))
    backoffs: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("q"))

    def grams(self) -> Grams:
        """What was read, as arrays."""
        return Grams(
            np.array(self.words, np.int32).reshape(-1, self.order),
            np.array(self.probabilities, np.float64),
            np.array(self.backoffs, np.float64),
            np.array(self.lines, np.int64),
        )


def read_arpa(path: str | Path) -> Arpa:
    r"""Read an ARPA file, gzipped or not.

    Fields are separated by any number of spaces and tabs; lines may end in CRLF; blank lines and what
    stands in front of ``\data\`` are skipped. A back-off weight that is missing is 1. Words are bytes.

    Raises:
        InputError: if the file cannot be read, a line is not an n-gram, a word is not among the 1-grams, a
            1-gram stands twice, the counts are not those of the header, or the end is missing.
    """
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[bytes, int] = {}
        self.counts: dict[int, int] = {}
        self.sections: dict[int, _Section] = {}

    def read(self) -> Arpa:
        state, section = "before", None
        number = 0
        for number, line in self._lines():
            if not line:
                continue
            if line.startswith(b"\\"):
                state, section = self._heading(number, line, state)
                if state == "end":
                    break
            elif state == "header":
                self._count(number, line)
            elif section is not None:
                self._gram(number, line, section)
        if state != "end":
            raise InputError(
                "the n-grams do not end" if self.sections else "this is not an ARPA file",
                code="damaged",
                path=self.path,
                place=f"line {number}",
                found="the end of the file",
                expected="\\end\\"
                if self.sections
                else "\\data\\, the sections of n-grams, \\end\\",
                remedy="the file was cut off: write or copy it again" if self.sections else None,
            )
        return self._whole(number)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with self.path.open("rb") as raw:
                zipped = raw.read(2) == _GZIP
            opener = gzip.open if zipped else open
            with cast(IO[bytes], opener(self.path, "rb")) as source:
                for number, line in enumerate(source, 1):
                    yield number, line.strip()
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                "this file cannot be read",
                code=unread_code(error),
                path=self.path,
                found=str(error),
                expected="an ARPA file, as text or gzipped",
            ) from error

    def _heading(self, number: int, line: bytes, state: str) -> tuple[str, _Section | None]:
        if state == "before":
            return ("header", None) if line == b"\\data\\" else (state, None)
        if line == b"\\end\\":
            return "end", None
        known = _SECTION.match(line)
        order = int(known[1]) if known else 0
        due = max(self.sections, default=0) + 1
        while self.counts.get(due) == 0 and due != order:  # an empty order may have no section
            due += 1
        if order != due or order not in self.counts:
            self._bad(number, "unexpected heading", line, f"\\{due}-grams: or \\end\\")
        self.sections[order] = section = _Section(order)
        return "grams", section

    def _count(self, number: int, line: bytes) -> None:
        told = _COUNT.match(line)
        due = len(self.counts) + 1
        if told is None or int(told[1]) != due:
            self._bad(number, "bad count of n-grams", line, f"ngram {due}=COUNT")
        self.counts[due] = int(told[2])

    def _gram(self, number: int, line: bytes, section: _Section) -> None:
        order, parts = section.order, line.split()
        if len(parts) not in (order + 1, order + 2):
            words = "word" if order == 1 else "words"
            self._bad(
                number,
                f"not a {order}-gram",
                line,
                f"log10 probability, {order} {words}, and a back-off weight or none",
            )
        probability = self._number(number, parts[0], "log10 probability")
        if probability > 0:
            self._bad(number, "a probability above 1", parts[0], "a log10 probability of at most 0")
        backoff = 0.0
        if len(parts) == order + 2:
            backoff = self._number(number, parts[-1], "log10 back-off weight")
            if backoff and order == max(self.counts):
                self._bad(
                    number,
                    "a back-off weight where nothing backs off",
                    parts[-1],
                    "none in the highest order",
                )
        if order == 1:
            if parts[1] in self.ids:
                self._bad(number, "duplicate word", parts[1], "every word once")
            self.ids[parts[1]] = len(self.ids)
        try:
            section.words.extend([self.ids[word] for word in parts[1 : order + 1]])
        except KeyError as error:
            self._bad(
                number,
                "a word that is not among the 1-grams",
                error.args[0],
                "words of the 1-grams",
            )
        section.probabilities.append(probability)
        section.backoffs.append(backoff)
        section.lines.append(number)

    def _number(self, line: int, text: bytes, what: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or value == math.inf:
            self._bad(line, f"bad {what}", text, "a number")
        return value if value > ZERO else -math.inf

    def _whole(self, number: int) -> Arpa:
        for order, count in self.counts.items():
            found = len(self.sections[order].lines) if order in self.sections else 0
            if found != count:
                raise InputError(
                    f"the number of {order}-grams is not that of the header",
                    code="damaged",
                    path=self.path,
                    place=f"line {number}",
                    found=f"{found:,} {order}-grams",
                    expected=f"{count:,}",
                    remedy="the file was cut or edited: write it again, or correct the header",
                )
        orders = [self.sections[order].grams() for order in sorted(self.sections)]
        if not orders or not self.ids:
            raise InputError(
                "the model has no words", code="damaged", path=self.path, expected="1-grams"
            )
        return Arpa(self.path, tuple(self.ids), tuple(orders))

    def _bad(self, number: int, problem: str, found: bytes, expected: str) -> NoReturn:
        raise InputError(
            problem,
            code="damaged",
            path=self.path,
            place=f"line {number}",
            found=found.decode(errors="backslashreplace"),
            expected=expected,
            remedy="correct the line, or write the model again",
        )
