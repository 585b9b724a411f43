"""Which large files of this machine were compared with their checksums, and have not changed since.

    FOLDER/proved/abcd....json   of the file at one path: its checksum, and how it looked then

A file is read whole for its checksum. Of a large one that is remembered, so that whoever asks for one of
its columns does not pay for all of it every time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.data.croissant.files.hashing import Checksum
from holdfast.errors import HoldfastError
from holdfast.files import write_whole

LARGE = 4 << 20
"""Bytes from which on it is worth it."""
SETTLED_S = 2.0
"""A file that changed later than so long ago may change again without another time showing it."""


class Proofs:
    """The proofs that one cache keeps.

    Args:
        folder: of the cache; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "proved"

    def hold(self, path: Path, status: os.stat_result, checksum: Checksum) -> bool:
        """Whether a file had a checksum when it last looked as it does now."""
        if status.st_size < LARGE:
            return False
        with suppress(OSError, ValueError):
            return bool(json.loads(self._place(path).read_bytes()) == _said(path, status, checksum))
        return False

    def note(self, path: Path, status: os.stat_result, checksum: Checksum) -> None:
        """Remember the checksum of a file that looks so; nothing where the cache cannot be written."""
        changed = max(status.st_mtime, status.st_ctime)
        if status.st_size < LARGE or time.time() - changed < SETTLED_S:
            return
        with suppress(OSError, HoldfastError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._place(path), json.dumps(_said(path, status, checksum)).encode())

    def _place(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _said(path: Path, status: os.stat_result, checksum: Checksum) -> dict[str, Any]:
    return {
        "path": os.fsencode(path).decode(errors="backslashreplace"),
        "checksum": str(checksum),
        "size": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
        "inode": [status.st_dev, status.st_ino],
    }
