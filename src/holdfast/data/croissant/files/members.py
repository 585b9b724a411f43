"""One file of a resource, wherever its bytes stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Member:
    """A file that a FileObject or FileSet consists of; naming it fetches nothing.

    Attributes:
        resource: the id of the FileObject or FileSet that lists it.
        fullpath: its path from the root of its archive, of its repository or of the description's folder,
            with ``/``; of a remote file that is in nothing, the last part of its URL.
        location: the local file or the URL that holds the bytes: the file itself, or the outermost archive.
        inside: its path in the archive, or None where `location` is the file itself. An archive in an
            archive is a path in each: the names from the outermost to the innermost.
        size: its bytes, unpacked; None where unknown.
        owner: the id of the FileObject whose URL `location` is (its checksum proves the bytes); "" for a
            local file that only a FileSet's pattern found.
    """

    resource: str
    fullpath: str
    location: Path | str
    inside: tuple[str, ...] | None = None
    size: int | None = None
    owner: str = ""

    @property
    def filename(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.fullpath).name
