"""The files of a dataset: those of its folder, and those in the archives there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from holdfast.data.croissant.describing.description import Note
from holdfast.data.croissant.describing.places import Kind, Place
from holdfast.data.croissant.document.charsets import checked_charset
from holdfast.data.croissant.document.model import FileObject, FileSet, Metadata, Source
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.files.local_files import LocalFolder, is_description
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.scanning.encodings import text_kind
from holdfast.data.croissant.scanning.opening import compression, unpacked
from holdfast.errors import InputError

_LEFT_OUT = frozenset({"thumbs.db", "desktop.ini", "__macosx", "__pycache__", "cvs"})
_TEXTS = frozenset({"text/csv", "text/tab-separated-values", "text/plain"})
_REMEDY = "name a folder with data, a file of data, or an archive"


class Files(AbstractContextManager["Files"]):
    """The files of a dataset, and their bytes as its description will give them.

    Attributes:
        folder: the description's.
        loose: files of the folder, sorted.
        packed: files in its archives, sorted; not those in archives inside archives.
        seen: paths of the folder's files that are not hidden, described or not.
        notes: about what was left out.
    """

    def __init__(self, target: str | Path, encoding: str | None = None) -> None:
        """Look at a folder, or at one file or archive as if it were alone in its folder.

        Args:
            target: the folder, file or archive.
            encoding: of CSV, TSV and text files that are not UTF-8.

        Raises:
            InputError: if nothing is there, or nothing in it is data; an unknown encoding.
        """
        if encoding is not None:
            checked_charset(encoding)
        path = Path(target)
        if not path.exists():
            raise InputError(
                "folder or file not found", code="not-found", path=path, expected=_REMEDY
            )
        self.folder = path if path.is_dir() else path.parent
        self.notes: list[Note] = []
        self.loose: list[Place] = []
        self.packed: list[Place] = []
        self._members: dict[Place, Member] = {}
        self.seen = sorted(self._walk()) if path.is_dir() else [path.name]
        for name in self.seen:
            self._take(name)
        if not self.loose:
            raise InputError("no data files found", code="no-data", path=path, expected=_REMEDY)
        self._resources = Resources(self._archives(), self.folder, access=Access(offline=True))
        for place in self.loose:
            if place.kind is Kind.ARCHIVE:
                self.packed += self._in(place)
        if encoding is not None:
            self.loose = [self._declared(place, encoding) for place in self.loose]
            # In one pass over each archive.
            self.paths([place for place in self.packed if place.media_type in _TEXTS])
            self.packed = [self._declared(place, encoding) for place in self.packed]

    def _declared(self, place: Place, encoding: str) -> Place:
        """A text that is not UTF-8, with its encoding.

        ASCII counts as text in the encoding where it is that too, so that one encoding does for all files
        of a table.
        """
        if place.media_type not in _TEXTS:
            return place
        try:
            path, member = self.paths([place])[0], self.member(place)
            with unpacked(path, compression(path, member)) as file:
                kind = text_kind(file, member)
        except (InputError, OSError):
            return place  # noted where it is read
        if kind != "other" and (kind != "ascii" or "a".encode(encoding) != b"a"):
            return place
        self._resources.declare(place.path, encoding)
        return replace(place, charset=encoding)

    @property
    def places(self) -> list[Place]:
        """All files, loose ones first."""
        return [*self.loose, *self.packed]

    def member(self, place: Place) -> Member:
        """What the planner calls a file."""
        if place.archive:
            return self._members[place]
        return Member(resource=place.path, fullpath=place.path, location=self.folder / place.path)

    def paths(self, places: list[Place]) -> list[Path]:
        """Local files with the bytes of each.

        Raises:
            InputError: an archive that is damaged or hostile.
        """
        return self._resources.paths([self.member(place) for place in places])

    def read(self, places: list[Place]) -> Iterator[bytes]:
        """The bytes of each.

        Raises:
            InputError: as `paths`.
        """
        return self._resources.read([self.member(place) for place in places])

    @property
    def resources(self) -> Resources:
        """What unpacks the archives."""
        return self._resources

    def _walk(self) -> Iterator[str]:
        """Paths of the folder's files, without hidden ones and those of version control."""

        def fail(error: OSError) -> None:
            where = Path(error.filename).relative_to(self.folder).as_posix()
            self.notes.append(
                Note(where, "skipped", f"the folder cannot be read: {error.strerror}")
            )

        for parent, folders, names in os.walk(self.folder, onerror=fail):
            folders[:] = [name for name in folders if _is_data(name)]
            place = PurePosixPath(Path(parent).relative_to(self.folder).as_posix())
            for name in names:
                if _is_data(name):
                    yield str(place / name)

    def _take(self, name: str) -> None:
        """Put a file among those that are described, or note why it is not."""
        path = self.folder / name
        try:
            name.encode()
            LocalFolder(self.folder, named=True).check(path)
            if not path.is_file():
                self.notes.append(Note(name, "skipped", "not a regular file: not described"))
            elif is_description(path):
                self.notes.append(Note(name, "skipped", "a Croissant description: not described"))
            else:
                self.loose.append(Place("", name, path.stat().st_size))
        except UnicodeEncodeError:
            shown = name.encode(errors="surrogateescape").decode(errors="replace")
            self.notes.append(Note(shown, "skipped", "its name is not UTF-8: JSON cannot hold it"))
        except InputError as error:
            self.notes.append(Note(name, "skipped", f"{error.problem}: not described"))
        except OSError:
            self.loose.append(Place("", name))  # it is there; its content cannot be told

    def _archives(self) -> Metadata:
        """The archives as a description, by which what is in them can be listed."""
        archives = [place for place in self.loose if place.kind is Kind.ARCHIVE]
        return Metadata(
            at="",
            version="1.1",
            file_objects=tuple(
                FileObject(
                    at="",
                    id=place.path,
                    content_url=f"./{place.path}",
                    encoding_formats=(place.encoding,),
                )
                for place in archives
            ),
            file_sets=tuple(
                FileSet(
                    at="",
                    id=f"in {place.path}",
                    contained_in=(Source(at="", target=place.path),),
                    includes=("*",),
                )
                for place in archives
            ),
        )

    def _in(self, archive: Place) -> list[Place]:
        """The files in an archive, sorted; none of one that cannot be read."""
        try:
            members = self._resources.members(f"in {archive.path}")
        except (InputError, OSError) as error:
            problem = error.problem if isinstance(error, InputError) else error.strerror
            self.notes.append(
                Note(archive.path, "skipped", f"{problem}: what is in it is not described")
            )
            return []
        found = []
        for member in members:
            if all(map(_is_data, member.fullpath.split("/"))):
                place = Place(archive.path, member.fullpath, member.size or 0)
                self._members[place] = member
                found.append(place)
        return sorted(found)

    def __exit__(self, *_: object) -> None:
        """Remove what was unpacked."""
        self._resources.close()


def _is_data(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in _LEFT_OUT
