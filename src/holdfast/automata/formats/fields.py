"""The fields of a binary file, one after another; where it ends or goes astray, the byte is named."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import InputError

Kind = Literal["int32", "int64", "uint64"]
_FORMATS = {"int32": "<i", "int64": "<q", "uint64": "<Q"}
_LONGEST = 1 << 20
"""Maximum bytes of a symbol or name; a longer one means a damaged file or another format."""


@dataclass
class Fields:
    """A reading position in the bytes of a file."""

    data: bytes
    name: str
    """What messages call the file."""
    at: int = 0
    """The next byte."""

    def number(self, kind: Kind, what: str) -> int:
        """The next number."""
        layout = _FORMATS[kind]
        begin = self.at
        self.skip(struct.calcsize(layout), what)
        number: int = struct.unpack_from(layout, self.data, begin)[0]
        return number

    def text(self, what: str) -> str:
        """The next string, which follows its length."""
        begin = self.at
        size = self.number("int32", f"the length of {what}")
        if not 0 <= size <= _LONGEST:
            raise self.error(
                f"invalid length of {what}",
                begin,
                found=f"{size:,} bytes",
                expected=f"0 to {_LONGEST:,}",
                remedy="the file is damaged, or not in OpenFST's format: make it again",
            )
        self.skip(size, what)
        try:
            return self.data[self.at - size : self.at].decode()
        except UnicodeDecodeError as error:
            raise self.error(
                f"{what} is not UTF-8",
                begin,
                found=repr(self.data[self.at - size : self.at]),
                expected="text in UTF-8",
                remedy="write the symbols in UTF-8",
            ) from error

    def skip(self, size: int, what: str) -> None:
        """Pass over bytes that must be there."""
        left = len(self.data) - self.at
        if left < size:
            raise self.error(
                "the file is truncated",
                found=f"{left:,} bytes left of {len(self.data):,}",
                expected=f"{size:,} bytes: {what}",
                remedy="copy or make the file again",
            )
        self.at += size

    def error(
        self, problem: str, at: int | None = None, code: str = "damaged", **facts: str
    ) -> InputError:
        """An error at a byte, by default the next one."""
        place = f"byte {self.at if at is None else at:,}"
        return InputError(problem, code=code, path=self.name, place=place, **facts)


def packed(kind: Kind, number: int) -> bytes:
    """A number as `Fields.number` reads it."""
    return struct.pack(_FORMATS[kind], number)


def packed_text(text: str) -> bytes:
    """A string as `Fields.text` reads it."""
    data = text.encode()
    return packed("int32", len(data)) + data
