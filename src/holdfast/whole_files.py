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
            code="not-found" if isinstance(error, FileNotFoundError) else "unreadable",
            path=path,
            found=error.strerror,
            expected=f"a file with {what}",
        ) from error


def write_whole(path: str | Path, *parts: bytes | memoryview) -> None:
    """Write a file through a temporary one beside it; devices and pipes are written directly.

    When it returns, the file is on the disk under its name, and a crash leaves the old or the new one.

    Raises:
        HoldfastError: if it cannot be written.
    """
    target = Path(path).resolve()  # a link stays, and what it points to is replaced
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as device:
                device.writelines(parts)
            return
        try:
            with draft.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise HoldfastError(
            f"{path}: the file cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on the disk: names that were made, replaced or removed in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
