"""A file that is wanted, and the file that was got."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.fetching.access import file_name
from holdfast.data.croissant.files.hashing import Checksum, checksum_of, parse_size
from holdfast.remote import bare

if TYPE_CHECKING:
    from holdfast.data.croissant.document.model import FileObject
    from holdfast.data.croissant.fetching.cache import CachedResponse

_MORE = 4
_ALWAYS = 64 << 20
_PAGES = ("text/html", "application/xhtml+xml")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRequest:
    """A file at a URL, and how it is known to be the right one.

    Attributes:
        url: with a scheme that `is_remote` knows.
        name: how messages call it; the last part of the URL where empty.
        sha256: as a description writes it: hex, base64, or an MD5 in disguise; what is none is ignored.
        md5: as a description writes it.
        size: exact bytes, checked where there is no checksum.
        about: bytes more or less, for progress; far more of them are refused (`limit`).
        most: bytes that are refused if there are more of them; None for `limit` to decide.
        formats: its encodingFormats: they tell whether a web page can be meant.
        resource: the id of the FileObject or FileSet that wants it.
    """

    url: str
    name: str = ""
    sha256: str | None = None
    md5: str | None = None
    size: int | None = None
    about: int | None = None
    most: int | None = None
    formats: tuple[str, ...] = ()
    resource: str = ""

    @classmethod
    def of(cls, file: FileObject) -> FileRequest:
        """What a FileObject with a URL asks for."""
        size = parse_size(file.content_size)
        return cls(
            url=file.content_url or "",
            name=file.name or file.id,
            sha256=file.sha256,
            md5=file.md5,
            about=size.bytes if size else None,
            formats=file.encoding_formats,
            resource=file.id,
        )

    @property
    def checksum(self) -> Checksum | None:
        """The strongest that is stated."""
        return checksum_of(self.sha256, self.md5)

    @property
    def limit(self) -> int | None:
        """Bytes beyond which a download is stopped; None where the description states no size.

        Stated sizes are rounded, or of another version of the file: four times as much is still believed.
        """
        stated = self.about if self.size is None else self.size
        if self.most is not None or stated is None:
            return self.most
        return max(_MORE * stated, _ALWAYS)

    @property
    def called(self) -> str:
        """Its name for people."""
        return self.name or file_name(self.url)

    @property
    def may_be_page(self) -> bool:
        """Whether HTML can be what is meant."""
        named = file_name(self.url).lower().endswith((".html", ".htm", ".xhtml"))
        return any(kind in _PAGES for kind in self.formats) or (named and not self.formats)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A file that is in the cache.

    Attributes:
        final_url: where the URL led to when it was fetched, without a query; None where not known.
        sha256: of its bytes.
        received: bytes that came over the network for it, this time.
        cached: whether it was in the cache already.
    """

    request: FileRequest
    path: Path
    size: int
    sha256: str
    final_url: str | None = None
    etag: str | None = None
    time: str | None = None
    received: int = 0
    cached: bool = False

    @classmethod
    def of(
        cls, request: FileRequest, path: Path, response: CachedResponse | None, **more: Any
    ) -> Fetched:
        """A file of the cache; `given` is what its URL gave last, if that was this file."""
        if response:
            more |= {"final_url": response.final_url, "etag": response.etag, "time": response.time}
        return cls(request=request, path=path, size=path.stat().st_size, sha256=path.name, **more)

    @property
    def url(self) -> str:
        """The URL that was asked for, without name and password."""
        return bare(self.request.url)


def key_of(url: str, checksum: Checksum | None) -> str:
    """What names a file while it is on its way: its checksum or, failing that, its URL."""
    if checksum:
        return f"{checksum.algorithm}-{checksum.hex}"
    return f"url-{hashlib.sha256(url.encode()).hexdigest()[:32]}"
