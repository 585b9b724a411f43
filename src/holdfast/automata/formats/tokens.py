"""Lines of columns between spaces and tabs, cut apart at once: what the text formats are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError

I64 = npt.NDArray[np.int64]
GZIP = b"\x1f\x8b"
PART = 1 << 22
"""Characters of a text that are read at a time."""

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Lines:
    """The L lines of a text that are not blank, cut into T tokens."""

    tokens: Any
    """[T] an Arrow array of strings."""
    first: I64
    """[L] the first token of each line."""
    columns: I64
    """[L] how many tokens it has."""
    number: I64
    """[L] the line's number in the text, from 1."""
    path: str | None
    """The file, for messages."""

    def __len__(self) -> int:
        return len(self.first)

    def column(self, lines: I64, at: int) -> Any:
        """[len(lines)] the tokens of these lines in column `at`, from 0."""
        return self.tokens.take(pa.array(self.first[lines] + at))

    def integers(
        self, lines: I64, at: int, what: str, low: int = 0, remedy: str | None = None
    ) -> I64:
        """The whole numbers of a column.

        Raises:
            InputError: with the line, if one is not a whole number from `low` to 2^31 - 2.
        """
        tokens = self.column(lines, at)
        numbers = _cast(tokens, pa.int64(), int, -(2**62))
        wrong = (numbers < low) | (numbers >= 2**31 - 1)
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise self.error(
                lines[bad],
                f"column {at + 1} should hold a {what}",
                found=repr(tokens[bad].as_py()),
                expected=f"a whole number from {low} to {2**31 - 2}",
                remedy=remedy,
            )
        return numbers

    def weights(self, lines: I64, at: int) -> npt.NDArray[np.float64]:
        """The weights of a column.

        Raises:
            InputError: with the line, if one is not a number, or is NaN or -Infinity.
        """
        return self._numbers(lines, at, 1, "a number, or Infinity")

    def costs(self, lines: I64, at: int) -> npt.NDArray[np.float64]:
        """The scores of a column with their sign changed.

        Raises:
            InputError: with the line, if one is not a number, or is NaN or Infinity.
        """
        return self._numbers(lines, at, -1, "a log probability: a number, or -Infinity")

    def _numbers(self, lines: I64, at: int, sign: int, expected: str) -> npt.NDArray[np.float64]:
        tokens = self.column(lines, at)
        numbers: npt.NDArray[np.float64] = sign * _cast(tokens, pa.float64(), float, np.nan)
        wrong = np.isnan(numbers) | np.isneginf(numbers)
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise self.error(
                lines[bad],
                "invalid weight",
                found=repr(tokens[bad].as_py()),
                expected=expected,
            )
        return numbers

    def error(
        self,
        line: int | np.int64,
        problem: str,
        code: str = "invalid-syntax",
        **facts: str | None,
    ) -> InputError:
        """An error in a line, which is counted as `first` counts them."""
        place = f"line {int(self.number[line])}"
        return InputError(problem, code=code, path=self.path, place=place, **facts)


def parts(text: str, path: str | None = None, size: int = PART) -> Iterator[Lines]:
    """The lines of a text, some `size` characters at a time: tokens take many times the room of text.

    Parts without lines are left out.
    """
    begin = before = 0
    while begin < len(text):
        end = text.find("\n", begin + size) + 1 or len(text)
        part = text[begin:end]
        lines = cut(part, path, before)
        if len(lines):
            yield lines
        before += part.count("\n")
        begin = end


def cut(text: str, path: str | None = None, before: int = 0) -> Lines:
    """The lines of a text, cut at spaces and tabs; Windows line ends are accepted.

    Args:
        text: the lines.
        path: the file, for messages.
        before: how many lines of the file stand before these.
    """
    data = np.frombuffer(text.replace("\r\n", " \n").encode(), np.uint8)
    ends_line = data == ord("\n")
    within = np.zeros(len(data) + 2, bool)
    within[1:-1] = ~((data == ord(" ")) | (data == ord("\t")) | ends_line)
    edges = np.flatnonzero(within[1:] != within[:-1])
    begin, end = edges[::2], edges[1::2]  # [T]
    # The tokens without what separates them are the values of an Arrow array.
    offsets = np.concatenate(([0], np.cumsum(end - begin)))
    tokens = pa.LargeStringArray.from_buffers(
        len(begin), pa.py_buffer(offsets), pa.py_buffer(data[within[1:-1]])
    )
    borders = np.searchsorted(begin, np.flatnonzero(ends_line))
    borders = np.concatenate(([0], borders, [len(begin)]))
    columns = np.diff(borders)
    number = np.flatnonzero(columns)
    return Lines(tokens, borders[number], columns[number], number + 1 + before, path)


def as_text(data: bytes, name: str, what: str) -> str:
    """The bytes of a file as UTF-8.

    Raises:
        InputError: naming the byte that no text has.
    """
    try:
        text = data.decode("utf-8-sig")  # as Windows writes it
        at = text.find("\0")
        if at < 0:
            return text
        at = len(text[:at].encode())
    except UnicodeDecodeError as error:
        at = error.start
    raise InputError(
        f"this is neither a binary {what} of OpenFST nor text",
        code="unknown-format",
        path=name,
        place=f"byte {at:,}",
        found=f"{data[at : at + 4].hex(' ')}, in a file that begins with {data[:4].hex(' ')}",
        expected=f"the first bytes of a binary {what}, or lines of UTF-8",
        remedy="unpack it first: gunzip, or zcat FILE | holdfast fst ..."
        if data[:2] == GZIP
        else "convert it with the tool that wrote it (fstconvert, fstprint, iconv)",
    )


def labels_of(lines: Lines, chosen: I64, at: int, labels: dict[str, int], table: str) -> I64:
    """The labels of the symbols in a column.

    Raises:
        InputError: naming the line whose symbol the table has not.
    """
    coded = lines.column(chosen, at).dictionary_encode()
    known = [labels.get(symbol, -1) for symbol in coded.dictionary.to_pylist()]
    found: I64 = np.array(known, np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
    if (found < 0).any():
        bad = int(np.argmax(found < 0))
        raise lines.error(
            chosen[bad],
            "unknown symbol",
            found=repr(coded[bad].as_py()),
            expected=f"one of the {len(labels)} symbols of table {table!r}",
            remedy="add it to the symbol table, or read the text without symbols if these are numbers",
        )
    return found


def _cast(
    tokens: Any, kind: Any, slowly: Callable[[str], _Number], otherwise: _Number
) -> npt.NDArray[Any]:
    """Tokens as numbers; `otherwise` where one is none."""
    try:
        return np.asarray(pc.cast(tokens, kind))
    except pa.ArrowInvalid:
        return np.array([_number(token, slowly, otherwise) for token in tokens.to_pylist()])


def _number(token: str, slowly: Callable[[str], _Number], otherwise: _Number) -> _Number:
    try:
        # Python would take 1_000, which no other reader does.
        return otherwise if "_" in token else slowly(token)
    except ValueError:
        return otherwise
