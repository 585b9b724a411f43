"""A folder for what is unpacked, that lasts as long as the program that unpacks."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.data.croissant.fetching.drafts import require_room
from holdfast.errors import StoreError
from holdfast.files import Lock, LockHeldError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_ROOM_EVERY = 64 << 20
"""Bytes of a file between looks at how much room the disk has."""


class Scratch:
    """Unpacked files, gone with `close`, with this object, or when a later one finds that its process died.

    Args:
        parent: the folder that holds such folders; made when the first file is.
    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._end: weakref.finalize[..., object] | None = None
        self._count = 0

    def folder(self) -> Path:
        """The folder, made when it is first asked for.

        Raises:
            StoreError: if it cannot be made.
        """
        if self._folder is None:
            try:
                self._parent.mkdir(parents=True, exist_ok=True)
                self._sweep()
                # A folder gets its name when it is locked: one with that name and no lock is abandoned.
                draft = Path(tempfile.mkdtemp(prefix=".new-", dir=self._parent))
                lock = Lock(draft)
                self._folder = draft.rename(self._parent / draft.name.removeprefix(".new-"))
            except OSError as error:
                raise StoreError(
                    f"{self._parent}: cannot unpack into this folder\n  found: {error.strerror}\n"
                    "  remedy: name a cache folder that can be written"
                ) from error
            self._end = weakref.finalize(self, _remove, self._folder, lock, os.getpid())
        return self._folder

    def keep(self, name: str, parts: Iterable[bytes], check: hashlib._Hash | None = None) -> Path:
        """Write a new file whose name ends as `name` does; it is removed if the bytes cannot be read fully.

        Args:
            name: suggested name; unsafe characters are replaced.
            parts: its bytes.
            check: hash that is updated with the bytes.

        Raises:
            StoreError: if it cannot be written.
            LimitError: if the disk becomes full.
        """
        self._count += 1
        mark = f"{os.getpid()}-{self._count:06d}"  # forks write into the same folder
        path = self.folder() / f"{mark}-{_UNSAFE.sub('_', name)[-100:]}"
        written = 0
        try:  # nobody knows the name until it is whole
            with path.open("wb") as file:
                for part in parts:
                    if check is not None:
                        check.update(part)
                    if (written + len(part)) // _ROOM_EVERY > written // _ROOM_EVERY:
                        require_room(path.parent, _ROOM_EVERY, name)
                    written += file.write(part)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StoreError(
                f"{path}: cannot unpack {name!r}\n  found: {error.strerror}\n"
                "  remedy: name a cache folder on a disk with free space"
            ) from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def require_room(self, size: int, name: str) -> None:
        """Check that so many bytes can be unpacked here; raises `LimitError`."""
        require_room(self.folder(), size, name)

    def _sweep(self) -> None:
        """Remove what processes left that were killed."""
        for folder in self._parent.iterdir():
            if folder.name.startswith("."):
                continue
            with suppress(OSError, LockHeldError), Lock(folder) as lock:
                if lock.excludes:
                    shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        if self._end is not None:
            self._end()
        self._folder = self._end = None


def _remove(folder: Path, lock: Lock, maker: int) -> None:
    if os.getpid() == maker:  # a process that was forked only lets go
        shutil.rmtree(folder, ignore_errors=True)
    lock.close()
