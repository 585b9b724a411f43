"""The files behind a description: where they are, listed without fetching, read in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.files.members import Member


class Resources:
    """What a description's FileObjects and FileSets stand for.

    Args:
        metadata: the description.
        folder: relative paths start here, and FileSets without a container look here: the folder that
            holds the description.
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL; a folder
            stands for a repository.
        cache: where fetched files are kept, by checksum; None for the user's cache folder.
        offline: refuse to fetch; files in the cache are used.

    Raises:
        InputError: a mapping names no FileObject, or a path that does not exist.
    """

    def __init__(
        self,
        metadata: Metadata,
        folder: str | Path,
        *,
        mapping: Mapping[str, str | Path] | None = None,
        cache: str | Path | None = None,
        offline: bool = False,
    ) -> None:
        raise NotImplementedError

    def members(self, resource: str) -> list[Member]:
        """The files of a FileObject (always one) or FileSet (sorted by path), fetching only what lists them.

        A remote zip is listed by its directory (ranges); a remote tar has none and is fetched; a manifest
        is fetched and each of its lines names a file.

        Raises:
            InputError: a missing file, an id that is no resource, an archive that is none or is hostile.
        """
        raise NotImplementedError

    def fetch(self, members: Iterable[Member]) -> None:
        """Bring the files behind members onto this machine, in parallel; what is here already is kept."""
        raise NotImplementedError

    def path(self, member: Member) -> Path:
        """A local file with the member's bytes alone: itself, or unpacked once into the cache."""
        raise NotImplementedError

    def read(self, members: Sequence[Member]) -> Iterator[bytes]:
        """The bytes of each, in order; neighbours in one archive are read in one pass."""
        raise NotImplementedError
