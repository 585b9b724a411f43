"""Images, sounds, films and texts that stand in files of their own."""

from __future__ import annotations

import codecs
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.data.croissant.describing.groups import Group, media_groups
from holdfast.data.croissant.describing.kinds import MEDIA, Kind
from holdfast.data.croissant.describing.places import Note, Place
from holdfast.data.croissant.describing.splits import split_in
from holdfast.data.croissant.describing.walking import Files
from holdfast.errors import InputError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Media:
    """Files whose content is a value.

    Attributes:
        group: the files, and what their folders tell.
        content: the name of the field that holds the content.
        data_type: of that field.
        lines: each line of a text is a record, not each text.
    """

    group: Group
    content: str
    data_type: str
    lines: bool = False

    @property
    def names_differ(self) -> bool:
        """Whether a file's name alone tells which it is."""
        places = self.group.places
        return len({place.name for place in places}) == len(places)


def find_media(files: Files, *, alone: bool) -> tuple[list[Media], list[Note]]:
    """The media of a dataset.

    Args:
        files: the dataset's.
        alone: there are no tables: then even a single file is data, not a picture about the data.

    Returns:
        The media, and a note about each group of files that is none.
    """
    places = [place for place in files.places if place.kind in (*MEDIA, Kind.TEXT)]
    found, notes = [], []
    for group in media_groups(places):
        first, count = group.places[0], len(group.places)
        if group.kind in MEDIA:
            if count == 1 and (not alone or len(places) > 1) and not first.archive:
                notes.append(
                    Note(
                        str(first), "skipped", "one file among others: taken for one about the data"
                    )
                )
            else:
                kind = group.kind.value
                found.append(Media(group, kind, MEDIA[group.kind]))
        elif (bad := _not_utf8(files, group.places)) is not None:
            notes.append(
                Note(str(bad), "unknown", f"no UTF-8: {count:,} texts are described as files")
            )
        else:
            lines = count == 1 or all(split_in(place.name) for place in group.places)
            found.append(Media(group, "line" if lines else "text", "sc:Text", lines))
    return found, notes


def relative_paths(media: Media) -> tuple[str, list[str]]:
    """The folder that all files are in, with a ``/`` behind it, and their paths from there."""
    paths = [place.path for place in media.group.places]
    common = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    start = f"{common}/" if common else ""
    return start, [path[len(start) :] for path in paths]


def _not_utf8(files: Files, places: Sequence[Place]) -> Place | None:
    """The first text that cannot be decoded; None if all can."""
    for place in places:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for chunk in _chunks(files, place):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except (UnicodeDecodeError, OSError, InputError):
            return place
    return None


def _chunks(files: Files, place: Place) -> Iterator[bytes]:
    if place.archive:
        yield from files.read([place])
        return
    with (files.folder / place.path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
