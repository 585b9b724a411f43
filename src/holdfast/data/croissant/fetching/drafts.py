"""A file on its way into the cache: its first bytes, and of which version they are."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.data.croissant.files.hashing import Algorithm, Checksum
from holdfast.errors import HoldfastError, LimitError
from holdfast.files import write_whole
from holdfast.remote import CHUNK, Buffer, Version


class Stopped(Exception):
    """The download was ended; what is here stays, to be resumed."""


class Draft:
    """The first bytes of a file, hashed as they are appended, beside a JSON that states what they are.

    The JSON never claims bytes that are not on the disk: a killed process, or a machine that lost its
    power, leaves a draft that can be resumed.
    """

    def __init__(self, path: Path, url: str, algorithms: set[Algorithm]) -> None:
        self.path, self._url, self._algorithms = path, url, algorithms
        self._state = path.with_suffix(".json")
        self.file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self.version, self.have = Version(), 0
        self._hashes = self._new_hashes()

    def resume(self) -> None:
        """Take up what an earlier download of this URL left."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            state: dict[str, Any] = json.loads(self._state.read_bytes())
            if state["url"] == self._url and self.path.stat().st_size >= state["have"]:
                self.version = Version(**state["version"])
                while self.have < state["have"]:
                    self._add(self.file.read(min(CHUNK, state["have"] - self.have)))

    def begin(self, version: Version) -> None:
        """Forget what is there, and start on another version."""
        if self.file.closed:
            raise Stopped
        self.version, self.have, self._hashes = version, 0, self._new_hashes()
        self._state.unlink(missing_ok=True)
        self.file.seek(0)
        self.file.truncate()

    def append(self, data: Buffer) -> None:
        """Write the next bytes.

        Raises:
            Stopped: if the draft was closed.
            HoldfastError: if the disk does not take them.
        """
        if self.file.closed:
            raise Stopped
        view = memoryview(data)
        try:
            while view:
                view = view[self.file.write(view) :]
        except OSError as error:
            raise HoldfastError(
                f"{self.path}: cannot write to the cache\n  found: {error.strerror}\n"
                "  remedy: make room, or name another folder as the cache (HOLDFAST_CACHE)"
            ) from error
        self._add(data)

    def save(self) -> None:
        """Bring the JSON up to date."""
        os.fdatasync(self.file.fileno())  # first the bytes, then the claim that they are there
        state = {"url": self._url, "version": asdict(self.version), "have": self.have}
        write_whole(self._state, json.dumps(state).encode())

    def checksums(self) -> dict[Algorithm, Checksum]:
        """Checksums of the bytes received so far."""
        return {name: Checksum(name, made.hexdigest()) for name, made in self._hashes.items()}

    def discard(self) -> None:
        """Remove the draft and its JSON."""
        self.file.close()
        self.path.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)

    def move(self, path: Path) -> None:
        """Give the draft its name, once it is on the disk."""
        path.parent.mkdir(parents=True, exist_ok=True)
        os.fsync(self.file.fileno())
        self.file.close()
        self.path.replace(path)
        self._state.unlink(missing_ok=True)

    def _add(self, data: Buffer) -> None:
        for made in self._hashes.values():
            made.update(data)
        self.have += len(data)

    def _new_hashes(self) -> dict[Algorithm, Any]:
        return {name: hashlib.new(name, usedforsecurity=False) for name in self._algorithms}


RESERVE = 64 << 20
"""Bytes that are left free for everybody else."""


def require_room(folder: Path, size: int, name: str) -> None:
    """Check that `size` bytes can be written into a folder.

    Raises:
        LimitError: there is less room, or next to none would be left.
    """
    free = shutil.disk_usage(folder).free
    if size + RESERVE > free:
        raise LimitError(
            f"{folder}: not enough room on the disk for {name}",
            needed=f"{size:,} bytes and {RESERVE:,} to spare",
            allowed=f"{free:,} bytes free",
            remedy="make room, or name another folder as the cache (--cache, HOLDFAST_CACHE)",
        )
