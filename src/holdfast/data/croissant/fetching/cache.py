"""Fetched files, kept by what they hold, where no half or wrong one is ever served.

    FOLDER/files/ab/abcd...      a whole file; its name is its SHA-256; read-only
    FOLDER/md5/ab/abcd...        the SHA-256 of the file with that MD5
    FOLDER/urls/abcd....json     what a URL gave last: its SHA-256, size, ETag, time
    FOLDER/parts/KEY.part, .json files that are on their way
    FOLDER/parts/KEY.lock        held by the process that fetches it, and free again when that ends
    FOLDER/quarantine/           files that were not what they should be, each with a .json that says why

Several processes may use one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.data.croissant.fetching.drafts import Draft
from holdfast.data.croissant.files.hashing import Algorithm, Checksum
from holdfast.errors import StoreError
from holdfast.files import Lock, LockHeldError, sync, write_whole
from holdfast.remote import Version, bare

_noting = threading.Lock()  # two files may be fetched from one URL at once


def default_folder() -> Path:
    """``$HOLDFAST_CACHE/croissant``, else the user's cache folder for this."""
    named = os.environ.get("HOLDFAST_CACHE")
    if named:
        return Path(named).expanduser() / "croissant"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "holdfast" / "croissant"


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """What a URL gave when it was last fetched.

    Attributes:
        final_url: where it was redirected to, without a query, which may hold a signature.
        time: when, as ISO 8601 in UTC.
    """

    url: str
    final_url: str
    sha256: str
    size: int
    etag: str | None
    modified: str | None
    time: str

    @property
    def version(self) -> Version:
        """For asking whether it changed since."""
        return Version(self.size, self.etag, self.modified)


class Cache:
    """The files of one folder.

    Args:
        folder: made when something is written; None for `default_folder`.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute() if folder else default_folder()

    def find(self, checksum: Checksum) -> Path | None:
        """The whole file with a checksum, if it is here."""
        sha256: str | None = checksum.hex
        if checksum.algorithm == "md5":
            sha256 = None
            with suppress(OSError, ValueError):
                sha256 = self._index(checksum.hex).read_text("ascii").strip()
        path = self._file(sha256) if sha256 else None
        return path if path and path.is_file() else None

    def response(self, url: str) -> tuple[CachedResponse, Path] | None:
        """What a URL gave last, and the file, if it is still here."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            response = CachedResponse(**json.loads(self._record(url).read_bytes()))
            if response.url == bare(url):
                path = self.find(Checksum("sha256", response.sha256))
                return (response, path) if path else None
        return None

    def claim(self, key: str) -> Lock | None:
        """The right to fetch a file; None while another process, or thread, has it."""
        with suppress(LockHeldError):
            return Lock(self._made("parts") / f"{key}.lock", remove=True)
        return None

    def draft(self, key: str, url: str, algorithm: Algorithm) -> Draft:
        """The draft of a file, with what is left of an earlier one; to be used by who has the claim."""
        return Draft(self._made("parts") / f"{key}.part", bare(url), {"sha256", algorithm})

    def keep(self, draft: Draft) -> Path:
        """Make a finished, verified draft a file of the cache."""
        sums = draft.checksums()
        path = self._file(sums["sha256"].hex)
        os.fchmod(draft.file.fileno(), 0o444)
        draft.move(path)
        sync(path.parent)
        if "md5" in sums:
            index = self._index(sums["md5"].hex)
            index.parent.mkdir(parents=True, exist_ok=True)
            write_whole(index, sums["sha256"].hex.encode())
        return path

    def note(self, response: CachedResponse) -> None:
        """Remember what a URL gave."""
        self._made("urls")
        with _noting:
            write_whole(self._record(response.url), json.dumps(asdict(response), indent=2).encode())

    def quarantine(self, draft: Draft, name: str, why: Mapping[str, str]) -> Path:
        """Put a draft where nothing looks for files."""
        path = self._made("quarantine") / name
        draft.move(path)
        write_whole(path.with_name(f"{name}.json"), json.dumps(why, indent=2).encode())
        return path

    def _file(self, sha256: str) -> Path:
        return self.folder / "files" / sha256[:2] / sha256

    def _index(self, md5: str) -> Path:
        return self.folder / "md5" / md5[:2] / md5

    def _record(self, url: str) -> Path:
        return self.folder / "urls" / f"{hashlib.sha256(bare(url).encode()).hexdigest()[:32]}.json"

    def _made(self, name: str) -> Path:
        folder = self.folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: cannot use the cache\n  found: {error.strerror}\n"
                "  remedy: name a writable folder (--cache, HOLDFAST_CACHE)"
            ) from error
        return folder
