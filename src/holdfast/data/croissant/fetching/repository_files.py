"""One file of a repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository, at one revision.

    Attributes:
        path: from the repository's root, with ``/``.
        size: its bytes; None where not known.
        location: its URL, or the file in a clone.
        sha256: as the repository states it (Git LFS does); hex.
    """

    path: str
    size: int | None
    location: str | Path
    sha256: str | None = None
