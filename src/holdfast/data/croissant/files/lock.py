"""The lock file: what a description's files were when they were first downloaded.

It stands beside the description (``croissant.lock.json`` for ``croissant.json``) and belongs under version
control with it: who downloads again gets the same bytes, or an error that names what changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.data.croissant.fetching.file_requests import Fetched
from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole

_FORMAT = 1
_REMEDY = "if the change is intended, accept it with --update-lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedFile:
    """One file as it was.

    Attributes:
        resource: the id of the FileObject or FileSet that wanted it.
        final_url: where the URL led to, without a query.
        sha256: computed, where the description states none; hex.
        time: when it was fetched, as ISO 8601 in UTC; None where not known.
    """

    url: str
    sha256: str
    size: int
    resource: str = ""
    final_url: str | None = None
    etag: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """What was locked.

    Attributes:
        description: the SHA-256 of the description's bytes; hex.
        files: by URL.
    """

    description: str
    files: Mapping[str, LockedFile] = field(default_factory=dict)

    @property
    def checksums(self) -> dict[str, str]:
        """URL -> SHA-256, as `Fetcher` takes them."""
        return {url: file.sha256 for url, file in self.files.items()}

    def check_description(self, path: Path) -> None:
        """Compare the description.

        Raises:
            InputError: if it is another than the one that was locked.
        """
        found = description_sha256(path)
        if found != self.description:
            raise InputError(
                "the description changed since the lock file was written",
                code="changed",
                path=path,
                found=f"sha256 {found}",
                expected=f"sha256 {self.description}",
                remedy=_REMEDY,
            )

    def with_more(self, files: Iterable[Fetched]) -> Lock:
        """The same with files that were fetched since."""
        more = {
            file.url: LockedFile(
                url=file.url,
                sha256=file.sha256,
                size=file.size,
                resource=file.request.resource,
                final_url=file.final_url,
                etag=file.etag,
                time=file.time,
            )
            for file in files
        }
        # A file that is locked already keeps its entry: what it was fetched from may be gone.
        return Lock(self.description, {**more, **self.files})


def description_sha256(path: Path) -> str:
    """SHA-256 of the bytes of a description; hex."""
    return hashlib.sha256(read_whole(path, "a description")).hexdigest()


def lock_path(description: Path) -> Path:
    """Where the lock file of a description stands."""
    return description.with_name(f"{description.stem}.lock.json")


def read_lock(path: Path) -> Lock | None:
    """A lock file; None if there is none.

    Raises:
        InputError: if it is none that this version reads.
    """
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(read_whole(path, "a lock"))
        if content["format"] != _FORMAT:
            raise InputError(
                "unsupported version of the lock file",
                code="unsupported",
                path=path,
                found=f"format {content['format']}",
                expected=f"format {_FORMAT}",
                remedy="upgrade holdfast, or rewrite the lock file with --update-lock",
            )
        files = [LockedFile(**entry) for entry in content["files"]]
        return Lock(
            str(content["description"]["sha256"]),
            {file.url: file for file in files},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "damaged lock file",
            code="damaged",
            path=path,
            found=f"{type(error).__name__}: {error}",
            remedy="restore it, or rewrite it with --update-lock",
        ) from error


def write_lock(lock: Lock, path: Path, description: Path) -> None:
    """Write a lock file, the same bytes for the same lock.

    Raises:
        HoldfastError: if it cannot be written.
    """
    content = {
        "format": _FORMAT,
        "description": {"file": description.name, "sha256": lock.description},
        "files": [asdict(lock.files[url]) for url in sorted(lock.files)],
    }
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
