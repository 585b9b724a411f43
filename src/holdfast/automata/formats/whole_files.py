"""Files read at once, and written so that a reader finds the old one or the new one, never half of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.errors import HoldfastError, InputError


def read_whole(path: str | Path, what: str) -> bytes:
    """The bytes of a file that should hold `what`.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            "the file cannot be read",
            path=path,
            found=error.strerror,
            expected=f"a file with {what}",
        ) from error


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file through a temporary one beside it; devices and pipes are written directly.

    Raises:
        HoldfastError: if it cannot be written.
    """
    target = Path(path).resolve()  # a link stays, and what it points to is replaced
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise HoldfastError(
            f"{path}: the file cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error
