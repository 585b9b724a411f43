"""The files of a description: FileObjects with their checksums, FileSets with their patterns."""

from __future__ import annotations

import glob
import os
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.data.croissant.describing.description import Json, Note, reference_to
from holdfast.data.croissant.describing.naming import Ids, slug
from holdfast.data.croissant.describing.places import Place
from holdfast.data.croissant.describing.walking import Files
from holdfast.data.croissant.files.hashing import file_checksum
from holdfast.data.croissant.files.patterns import Patterns
from holdfast.progress import track

_HASHED_TOGETHER = 8


class Distribution:
    """Gathers what a description says about files.

    Args:
        files: the dataset's.
        ids: hands out ids.

    Attributes:
        notes: about files that cannot be read.
    """

    def __init__(self, files: Files, ids: Ids) -> None:
        self._files, self._ids = files, ids
        self._loose = {place.path: place for place in files.loose}
        self._objects: dict[Place, Json] = {}
        self._sets: list[Json] = []
        self._named: dict[tuple[Place, ...], str] = {}
        self.notes: list[Note] = []

    def file(self, place: Place, encoding: str | None = None) -> str:
        """The id of a file's FileObject, which is made if there is none yet.

        Args:
            place: the file.
            encoding: its media type, where its content says more than its name.
        """
        if place not in self._objects:
            container = self.file(self._loose[place.archive]) if place.archive else None
            parts = [*([container] if container else []), *map(slug, place.path.split("/"))]
            resource: Json = {
                "@type": "cr:FileObject",
                "@id": self._ids.take("/".join(parts)),
                "name": place.name,
                "description": f"The file {place.path}"
                + (f" in {place.archive}." if container else "."),
                "contentUrl": place.path if container else _url(place.path),
                "contentSize": f"{place.size} B",
                "encodingFormat": place.encoding,
            }
            if container:
                resource["containedIn"] = reference_to(container)
            self._objects[place] = resource
        if encoding:
            self._objects[place]["encodingFormat"] = encoding
        return str(self._objects[place]["@id"])

    def files(self, places: Sequence[Place], name: str, encoding: str | None = None) -> Json:
        """What a field's source says to name files: a FileObject, or a FileSet that is made for them."""
        if len(places) == 1:
            return {"fileObject": reference_to(self.file(places[0], encoding))}
        if known := self._named.get(tuple(places)):
            return {"fileSet": reference_to(known)}
        identity = self._ids.take(f"{slug(name)}-files")
        containers = sorted({place.archive for place in places} - {""})
        universe: dict[str, list[str]] = defaultdict(list)
        universe[""] = self._files.seen
        for place in self._files.packed:
            universe[place.archive].append(place.path)
        encodings = [encoding] if encoding else sorted({place.encoding for place in places})
        resource: Json = {
            "@type": "cr:FileSet",
            "@id": identity,
            "name": identity,
            "description": f"The {len(places):,} files of {name}.",
        }
        if containers:
            holders = [reference_to(self.file(self._loose[archive])) for archive in containers]
            resource["containedIn"] = holders[0] if len(holders) == 1 else holders
        resource["encodingFormat"] = _one_or_all(encodings)
        resource["includes"] = _one_or_all(choose(places, universe))
        self._sets.append(resource)
        self._named[tuple(places)] = identity
        return {"fileSet": reference_to(identity)}

    def hash_files(self) -> None:
        """Give every FileObject of the folder its checksum; one that cannot be read is noted."""
        loose = [place for place in self._objects if not place.archive]
        with (
            track("hashing", sum(place.size for place in loose)) as bar,
            ThreadPoolExecutor(min(_HASHED_TOGETHER, os.cpu_count() or 1)) as pool,
        ):
            for place, digest in zip(loose, pool.map(self._hash, loose), strict=True):
                bar.advance(place.size)
                if digest:
                    self._objects[place]["sha256"] = digest
                else:
                    del self._objects[place]["contentSize"]
                    self.notes.append(
                        Note(place.path, "unknown", "the file cannot be read: no checksum")
                    )

    def _hash(self, place: Place) -> str:
        try:
            return file_checksum(self._files.folder / place.path).hex
        except OSError:
            return ""

    def to_list(self) -> list[Json]:
        """All files and sets of files: loose ones by path, then those in archives, then sets."""
        return [self._objects[place] for place in sorted(self._objects)] + self._sets


def _url(path: str) -> str:
    """A path that no reader takes for something else: for a URL, or for a home folder."""
    first = path.split("/")[0]
    return f"./{path}" if path.startswith(("~", "\\")) or ":" in first else path


def _one_or_all(values: Iterable[str]) -> Any:
    listed = list(values)
    return listed[0] if len(listed) == 1 else listed


def choose(places: Sequence[Place], universe: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Patterns for files: the endings below their common folder, or else in each folder, or else the names.

    Args:
        places: the files, of one or several containers.
        universe: container ("" for the folder) -> paths of all files in it.
    """
    wanted: dict[str, set[str]] = defaultdict(set)
    for place in places:
        wanted[place.archive].add(place.path)
    common = posixpath.commonpath([posixpath.dirname(place.path) for place in places])
    below = {f"{_folder(common)}*{glob.escape(place.ending)}" for place in places}
    each = {
        f"{_folder(posixpath.dirname(place.path))}*{glob.escape(place.ending)}" for place in places
    }
    for includes in (tuple(sorted(below)), tuple(sorted(each))):
        pattern = Patterns(includes)
        if all(set(pattern.choose(universe[name])) == wanted[name] for name in wanted):
            return includes
    return tuple(sorted({glob.escape(place.path) for place in places}))


def _folder(path: str) -> str:
    return f"{glob.escape(path)}/" if path else ""
