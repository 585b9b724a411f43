"""Whether a disk has room for what is about to be written."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.errors import LimitError

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
