"""What changed in files and sets of files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from holdfast.data.croissant.document.model import FileObject, FileSet
from holdfast.data.croissant.evolving.changes import DOUBT, GONE, LIVE, MORE, SAME, Change, short
from holdfast.data.croissant.evolving.matching import Matches, Names, Pairing, containers
from holdfast.data.croissant.evolving.versions import Bump
from holdfast.data.croissant.files.hashing import checksum_of, parse_size

_changed = partial(Change, group="resources")


def compare_resources(matches: Matches, *, live: bool) -> Iterator[Change]:
    """Files, then sets of files.

    Args:
        matches: which is which.
        live: whether the newer description is of a live dataset: there, files that state no checksum may
            change, and files may be added, without a new version of the data.
    """
    yield from _come_and_gone(matches.files, "file", live=live)
    for old, new in matches.files.both:
        yield from _file(old, new, matches.names, live=live)
    yield from _come_and_gone(matches.file_sets, "set of files", live=live)
    for before, after in matches.file_sets.both:
        yield from _file_set(before, after, matches.names)


def _come_and_gone(parts: Pairing[Any], what: str, *, live: bool) -> Iterator[Change]:
    kind = what.split()[0]
    for part in parts.removed:
        yield _changed(
            kind=f"{kind}-removed",
            bump="major",
            subject=part.id,
            message=f"{what} {part.id} was removed",
            reason=GONE,
            old=part.id,
            old_at=part.at,
        )
    for part in parts.added:
        yield _changed(
            kind=f"{kind}-added",
            bump="none" if live else "minor",
            subject=part.id,
            message=f"{what} {part.id} was added",
            reason=LIVE if live else MORE,
            new=part.id,
            new_at=part.at,
        )
    for old, new in parts.both:
        if old.id != new.id:
            yield _changed(
                kind=f"{kind}-renamed",
                bump="patch",
                subject=new.id,
                message=f"{what} {old.id} is now called {new.id}",
                reason=SAME,
                old=old.id,
                new=new.id,
                old_at=old.where("@id"),
                new_at=new.where("@id"),
            )


def _file(old: FileObject, new: FileObject, names: Names, *, live: bool) -> Iterator[Change]:
    yield from _words(old, new, "file")
    before, after = checksum_of(old.sha256, old.md5), checksum_of(new.sha256, new.md5)
    comparable = before and after and before.algorithm == after.algorithm
    same_bytes = bool(comparable and before == after)
    repacked = set(old.encoding_formats) != set(new.encoding_formats)
    change = partial(_changed, subject=new.id)
    if before != after:
        yield _checksum(old, new, before, after, repacked=repacked, comparable=bool(comparable))
    sizes = old.content_size, new.content_size
    if sizes[0] != sizes[1] and parse_size(sizes[0]) != parse_size(sizes[1]):
        yield _size(
            old, new, same_bytes=same_bytes, explained=bool(comparable), live=live and not after
        )
    if old.content_url != new.content_url:
        yield change(
            kind="file-moved",
            bump="patch",
            certain=same_bytes,
            message=f"file {new.id} moved from {old.content_url} to {new.content_url}",
            reason=SAME if same_bytes else DOUBT,
            old=old.content_url,
            new=new.content_url,
            old_at=old.where("sc:contentUrl"),
            new_at=new.where("sc:contentUrl"),
        )
    if (left := containers(old, names)) != (right := containers(new, {})):
        yield change(
            kind="file-container-changed",
            bump="patch" if same_bytes else "major",
            certain=same_bytes,
            message=f"file {new.id}: it was contained in {short(left)}, now in {short(right)}",
            reason=SAME if same_bytes else DOUBT,
            old=left,
            new=right,
            old_at=old.where("cr:containedIn"),
            new_at=new.where("cr:containedIn"),
        )
    yield from _format(old, new, "file", certain=same_bytes)
    if set(old.same_as) != set(new.same_as):
        yield _lists(old, new, "file", "sameAs", "sc:sameAs", old.same_as, new.same_as)


def _size(
    old: FileObject, new: FileObject, *, same_bytes: bool, explained: bool, live: bool
) -> Change:
    """A changed size: the bytes changed, unless a size is inexact or the checksum shows otherwise."""
    before, after = parse_size(old.content_size), parse_size(new.content_size)
    other_bytes = before is not None and after is not None and before.exact and after.exact
    bump: Bump = "major" if other_bytes else "patch"
    if same_bytes:
        bump, reason = "patch", SAME
    elif explained:
        bump, reason = "none", "the checksum, which changed too, counts"
    elif live:
        bump, reason = "none", LIVE
    else:
        reason = DOUBT if before and after else SAME
    return _changed(
        kind="file-size-changed",
        bump=bump,
        certain=reason != DOUBT,
        subject=new.id,
        message=f"file {new.id}: its size went from {old.content_size or 'unstated'} "
        f"to {new.content_size or 'unstated'}",
        reason=reason,
        old=old.content_size,
        new=new.content_size,
        old_at=old.where("sc:contentSize"),
        new_at=new.where("sc:contentSize"),
    )


def _checksum(
    old: FileObject, new: FileObject, before: Any, after: Any, *, repacked: bool, comparable: bool
) -> Change:
    terms = [
        next((term for term in ("sc:sha256", "cr:md5", "sc:md5") if term in part.written), "")
        for part in (old, new)
    ]
    bump: Bump
    if not comparable:
        kind, certain, bump = "file-checksum-stated", before is None or after is None, "patch"
        verb = (
            "added"
            if before is None
            else "removed"
            if after is None
            else "made with another algorithm"
        )
        message, reason = f"file {new.id}: its checksum was {verb}", SAME
    elif repacked:
        kind, certain, bump = "file-checksum-changed", False, "patch"
        message = f"file {new.id}: other bytes in another format"
        reason = "the same data may be serialised differently; if records differ, it is MAJOR"
    else:
        kind, certain, bump = "file-checksum-changed", False, "major"
        message = f"file {new.id}: its checksum went from {before.hex[:12]}… to {after.hex[:12]}…"
        reason = DOUBT
    return _changed(
        kind=kind,
        bump=bump,
        certain=certain,
        subject=new.id,
        message=message,
        reason=reason,
        old=before and before.hex,
        new=after and after.hex,
        old_at=old.where(terms[0]),
        new_at=new.where(terms[1]),
    )


def _file_set(old: FileSet, new: FileSet, names: Names) -> Iterator[Change]:
    yield from _words(old, new, "set of files")
    yield from _format(old, new, "set of files", certain=False)
    parts = [
        ("includes", "cr:includes", old.includes, new.includes),
        ("excludes", "cr:excludes", old.excludes, new.excludes),
        ("containedIn", "cr:containedIn", containers(old, names), containers(new, {})),
    ]
    for label, term, left, right in parts:
        gone, come = set(left) - set(right), set(right) - set(left)
        if not gone and not come:
            continue
        if label == "excludes":
            less = bool(come)
        elif label == "includes":  # without patterns, a set takes every file
            less = not left or bool(gone and right)
        else:  # without a container, it lies beside the description
            less = not left or bool(gone)
        yield _changed(
            kind=f"set-{label.lower()}-changed",
            bump="major" if less else "minor",
            certain=False,
            subject=new.id,
            message=f"set of files {new.id}: {label} went from {short(sorted(left))} "
            f"to {short(sorted(right))}",
            reason="files may drop out of the set" if less else "files may join the set",
            old=sorted(left),
            new=sorted(right),
            old_at=old.where(term),
            new_at=new.where(term),
        )


def _words(old: FileObject | FileSet, new: FileObject | FileSet, what: str) -> Iterator[Change]:
    """Names and descriptions; a name that is the id says nothing."""
    for term, left, right in (
        ("sc:name", *_names(old, new)),
        ("sc:description", old.description, new.description),
    ):
        if left != right:
            label = term.removeprefix("sc:")
            yield _changed(
                kind=f"{what.split()[0]}-{label}-changed",
                bump="patch",
                subject=new.id,
                message=f"{what} {new.id}: its {label} changed",
                reason=SAME,
                old=left,
                new=right,
                old_at=old.where(term),
                new_at=new.where(term),
            )


def _names(old: FileObject | FileSet, new: FileObject | FileSet) -> tuple[str | None, str | None]:
    """What they are called besides their ids."""
    if old.name == new.name:
        return old.name, new.name
    return None if old.name == old.id else old.name, None if new.name == new.id else new.name


def _format(
    old: FileObject | FileSet, new: FileObject | FileSet, what: str, *, certain: bool
) -> Iterator[Change]:
    if set(old.encoding_formats) != set(new.encoding_formats):
        yield _lists(
            old,
            new,
            what,
            "encodingFormat",
            "sc:encodingFormat",
            old.encoding_formats,
            new.encoding_formats,
            certain=certain,
        )


def _lists(
    old: FileObject | FileSet,
    new: FileObject | FileSet,
    what: str,
    label: str,
    term: str,
    left: tuple[str, ...],
    right: tuple[str, ...],
    *,
    certain: bool = True,
) -> Change:
    return _changed(
        kind=f"{what.split()[0]}-{label.lower()}-changed",
        bump="patch",
        certain=certain,
        subject=new.id,
        message=f"{what} {new.id}: {label} went from {short(sorted(left))} to {short(sorted(right))}",
        reason=SAME,
        old=sorted(left),
        new=sorted(right),
        old_at=old.where(term),
        new_at=new.where(term),
    )
