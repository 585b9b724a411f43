"""What tells one model's files from another's of the same name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

ENDS = 1 << 20
"""Bytes read at either end of a file: weights are too long to be read whole for this."""


def fingerprint(files: Iterable[Path]) -> str:
    """A digest of the names and sizes of files, and of what stands at their ends."""
    digest = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()
