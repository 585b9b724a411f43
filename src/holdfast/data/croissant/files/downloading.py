"""Bring the files of a description, or those behind some records, onto this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Section, Table, Value, measured
from holdfast.data.croissant.archives.opening import says_archive
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import FileObject, FileSet, Metadata
from holdfast.data.croissant.document.reading import DescriptionSource, located, read_document
from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access, file_name, is_remote
from holdfast.data.croissant.files.lock import (
    Lock,
    description_sha256,
    lock_path,
    read_lock,
    write_lock,
)
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.errors import InputError
from holdfast.numbers import size
from holdfast.plain import plain


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadedFile:
    """One file that is on this machine now.

    Attributes:
        url: where it came from; of a local file, its path.
        path: the file; one of the cache has no suffix.
        received: bytes that came over the network for it, this time.
        cached: whether it was here already.
    """

    resource: str
    url: str
    path: Path
    size: int
    sha256: str | None
    received: int
    cached: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Downloaded(Answer):
    """What a download did.

    Attributes:
        lock: the lock file that was written, if one was.
    """

    files: tuple[DownloadedFile, ...]
    seconds: float
    lock: Path | None = None

    @property
    def bytes_fetched(self) -> int:
        """Bytes that came over the network, listings and directories of archives not counted."""
        return sum(file.received for file in self.files)

    @property
    def bytes_cached(self) -> int:
        """Bytes of the files that were here already."""
        return sum(file.size for file in self.files if file.cached)

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "files": plain(self.files),
            "bytes_fetched": self.bytes_fetched,
            "bytes_cached": self.bytes_cached,
            "seconds": self.seconds,
            "lock": None if self.lock is None else str(self.lock),
        }

    def written(self) -> Mapping[str, Path]:
        """The lock file."""
        return {} if self.lock is None else {"lock": self.lock}

    def values(self) -> Sequence[Value]:
        """Files and bytes."""
        return measured(
            self, files="", bytes_fetched="bytes, lower", bytes_cached="bytes", seconds="s, lower"
        )

    def sections(self) -> Sequence[Section]:
        """A row per file."""
        rows = [
            {
                "file": one.resource,
                "size": size(one.size),
                "fetched": "–" if one.cached else size(one.received),
                "path": str(one.path),
            }
            for one in self.files
        ]
        right = ColumnFormat(right=True)
        columns = {"file": ColumnFormat(), "size": right, "fetched": right, "path": ColumnFormat()}
        sentence = f"{size(self.bytes_fetched)} fetched, {size(self.bytes_cached)} already cached."
        return [
            Section(
                "files",
                "Which files?",
                sentence,
                tables=[Table(pa.Table.from_pylist(rows), columns)],
            )
        ]


def download(
    path: DescriptionSource,
    *,
    resources: Sequence[str] | None = None,
    record_sets: Sequence[str] | None = None,
    filters: Mapping[str, Any] | str | None = None,
    mapping: Mapping[str, str | Path] | None = None,
    cache: str | Path | None = None,
    lock: bool | None = None,
    update_lock: bool = False,
    parallel: int = 8,
    offline: bool = False,
    timeout: float = TIMEOUT_S,
    public_only: bool = False,
) -> Downloaded:
    """Fetch files into the cache: in parallel, resumable, proved by their checksums.

    Where a lock file stands beside the description, everything must be as it says.

    Args:
        path: the description, as `open_description` takes it.
        resources: ids of FileObjects and FileSets; None for all.
        record_sets: only the files behind these; all columns.
        filters: as `Dataset.records` takes them: only the files in which such records can be. Without
            `record_sets` the description must have just one.
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL.
        cache: its folder; None for the user's.
        lock: write a lock file, or add to the one that is there.
        update_lock: accept what has changed since it was written, and write it anew.
        parallel: files at a time.
        offline: fetch nothing: only say what is in the cache.
        timeout: seconds to wait for a connection, and for more bytes of a response.
        public_only: refuse servers whose address is not public, also after redirects.

    Raises:
        InputError: a file that is missing, refused, or not what it should be; something that is not as it
            was locked.
    """
    begun = time.perf_counter()
    if resources is not None and (record_sets is not None or filters is not None):
        raise InputError(
            "files are chosen by their resources or by the records that they hold, not by both",
            code="conflict",
            remedy="leave out resources, or record_sets and filters",
        )
    access = Access(cache, offline, timeout, public_only)
    document = read_document(path, access)
    write = lock or update_lock
    description = document.path if isinstance(document.path, Path) else None
    if description is None and write:
        raise InputError(
            "a lock file is written beside a description, and this one has no place on this machine",
            code="unsupported",
            path=document.path,
            remedy="save the description into a file, and name that",
        )
    locked = None
    if description is not None and not update_lock:
        locked = read_lock(lock_path(description))
        if locked:
            locked.check_description(description)
    target = description if write else None
    metadata = located(build(document), document.base)
    if record_sets is None and filters is None:
        with Resources(metadata, document.base, mapping=mapping, access=access) as files:
            chosen = list(resources) if resources is not None else _to_list(metadata)
            members = (member for identity in chosen for member in files.members(identity))
            files_of = _fetched(files, members, locked, parallel)
            return _ended(begun, files, files_of, locked, target)
    from holdfast.data.croissant.loading.dataset import Dataset

    with Dataset(document, mapping=mapping, **asdict(access)) as dataset:
        members = (
            member
            for name in (record_sets if record_sets is not None else [None])
            for member in dataset.records(name, filters=filters).members()
        )
        files_of = _fetched(dataset.resources, members, locked, parallel)
        return _ended(begun, dataset.resources, files_of, locked, target)


def _to_list(metadata: Metadata) -> list[str]:
    """The resources that together name every file outside of archives."""
    parts: list[FileObject | FileSet] = [*metadata.file_objects, *metadata.file_sets]
    by_id = {part.id: part for part in parts}

    def stands_alone(part: FileObject | FileSet) -> bool:
        if isinstance(part, FileObject) and part.is_repository:
            return False
        if isinstance(part, FileObject) and is_remote(part.content_url or ""):
            return True
        holders = [by_id.get(container.target) for container in part.contained_in]
        return not any(holder is not None and _is_archive(holder) for holder in holders)

    return [part.id for part in parts if stands_alone(part)]


def _is_archive(part: FileObject | FileSet) -> bool:
    """Whether it, or what it is contained in, is fetched as a whole, with all that is in it."""
    name = file_name(part.content_url or "") if isinstance(part, FileObject) else ""
    return says_archive(part.encoding_formats, name)


def _fetched(
    files: Resources, members: Iterable[Member], locked: Lock | None, parallel: int
) -> list[DownloadedFile]:
    """Fetch whole files, archives too: parts of them would not stay.

    `members` are listed in here: what lists them may be fetched, too.
    """
    files.fetcher.parallel = parallel
    files.fetcher.locked = locked.checksums if locked else {}
    whole = list({replace(member, inside=None, size=None): None for member in members})
    files.fetch(whole)
    by_url = {file.request.url: file for file in files.fetcher.history}
    downloads: dict[Path | str, DownloadedFile] = {}
    for member in whole:
        at = member.location
        file = by_url[at] if isinstance(at, str) else None
        downloads[at] = DownloadedFile(
            resource=member.owner or member.resource,
            url=file.url if file else str(at),
            path=file.path if file else Path(at),
            size=file.size if file else Path(at).stat().st_size,
            sha256=file.sha256 if file else None,
            received=file.received if file else 0,
            cached=file.cached if file else True,
        )
    return list(downloads.values())


def _ended(
    begun: float,
    files: Resources,
    downloads: list[DownloadedFile],
    locked: Lock | None,
    description: Path | None,
) -> Downloaded:
    """The result, once the lock beside the description is written, if there is to be one."""
    target = lock_path(description) if description else None
    if description and target:
        base = locked or Lock(description_sha256(description))
        owners = {file.url: file.resource for file in downloads}
        history = [
            replace(file, request=replace(file.request, resource=owners.get(file.url, "")))
            for file in files.fetcher.history
        ]
        write_lock(base.with_more(history), target, description)
    return Downloaded(files=tuple(downloads), seconds=time.perf_counter() - begun, lock=target)
