"""Values out of bytes that a source holds: texts, classes, JSON, and pieces of files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from holdfast.errors import InputError


class PositionedFile:
    """A file of which pieces are read by their place; several threads may do so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def __enter__(self) -> PositionedFile:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                "a file of the source cannot be opened",
                code="source-changed",
                path=self.path,
                found=error.strerror,
                remedy="leave the source as it is while it is read, then start again",
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    def read(self, start: int, size: int) -> bytes:
        """Exactly `size` bytes from `start`.

        Raises:
            InputError: if the file ends before.
        """
        data = os.pread(self._descriptor, size, start)
        while 0 < len(data) < size:  # one call reads 2 GiB at most
            more = os.pread(self._descriptor, size - len(data), start + len(data))
            if not more:
                break
            data += more
        if len(data) != size:
            raise InputError(
                "this file is cut short",
                code="damaged",
                path=self.path,
                place=f"byte {start + len(data):,}",
                found=f"{len(data):,} bytes",
                expected=f"{size:,} bytes",
                remedy="fetch or make it again, and leave it as it is while it is read",
            )
        return data


def text_of(data: bytes, path: Path, place: str) -> str:
    """UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            "this text is not UTF-8",
            code="invalid-value",
            path=path,
            place=place,
            found=f"{data[:40]!r} ({error.reason})",
        ) from error


def class_of(data: bytes, path: Path, place: str) -> int | str:
    """A label: a whole number, or the name of a class."""
    text = text_of(data, path, place).strip()
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return int(text)
    if not text:
        raise InputError(
            "this label is empty",
            code="invalid-value",
            path=path,
            place=place,
            expected="a whole number or a name",
        )
    return text


def json_object_of(data: bytes | str, path: Path, place: str) -> dict[str, object]:
    """A JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(
            "this is not JSON",
            code="invalid-value",
            path=path,
            place=place,
            found=f"{data[:60]!r} ({error})",
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            "this JSON has no names for its values",
            code="invalid-value",
            path=path,
            place=place,
            found=f"a {type(value).__name__}",
            expected='an object, such as {"caption": "a swan"}',
        )
    return value
