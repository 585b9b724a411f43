"""The files in one container, before a pattern chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from holdfast.data.croissant.archives.archive import Archive
from holdfast.data.croissant.archives.pool import where_of
from holdfast.data.croissant.files.members import Member


@dataclass(frozen=True)
class Contents:
    """The files in one container.

    Attributes:
        names: their paths.
        member: makes the member of one, given the id of the resource that lists it and the path.
        where: the container, for messages.
        files: whether these are whole files, of which a pattern may also mean the last part alone.
    """

    names: Mapping[str, Any]
    member: Callable[[str, str], Member]
    where: str
    files: bool = False


def whole_files(members: Mapping[str, Member], where: str) -> Contents:
    """Whole files, each listed already, by their paths."""
    return Contents(
        members, lambda asking, name: replace(members[name], resource=asking), where, files=True
    )


def members_of_archive(holder: Member, archive: Archive) -> Contents:
    """The files in an archive.

    Args:
        holder: the archive itself.
        archive: the same, open.
    """
    chain = holder.inside or ()

    def member(asking: str, name: str) -> Member:
        size = archive.sizes[name]
        return Member(asking, name, holder.location, (*chain, name), size, holder.owner)

    return Contents(archive.sizes, member, where_of(holder.location, chain))


def spellings(url: str) -> list[str]:
    """A relative path as it may have been meant: as written, unquoted, without ``./`` and ``/``."""
    texts = [url, unquote(url)]
    texts += [text.removeprefix("./").lstrip("/") for text in texts]
    return list(dict.fromkeys(texts))
