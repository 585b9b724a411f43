"""Files that came, but are not those that were meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.files.hashing import Checksum, WrongChecksum
from holdfast.errors import InputError
from holdfast.remote import bare

_LOGIN = (
    "open the URL in a browser: log in or accept the terms there, then write the login into ~/.netrc, or "
    "use a downloaded copy with --map ID=PATH"
)


def _refused(request: FileRequest, problem: str, **details: Any) -> InputError:
    """The error of what came from a URL."""
    meant = f"file {request.resource or request.called!r}"
    return InputError(problem, path=bare(request.url), place=meant, **details)


def a_page(request: FileRequest, content_type: str) -> InputError:
    """The server sent HTML."""
    return _refused(
        request,
        "the server sent a web page, such as a login page, instead of the file",
        code="not-data",
        found=content_type or "HTML",
        expected=", ".join(request.formats) or "data",
        remedy=_LOGIN,
    )


def too_large(request: FileRequest, size: int, most: int, where: str) -> InputError:
    """The server sends, or announces, far more than is described."""
    return _refused(
        request,
        "the file is far larger than it should be: the download was stopped",
        code="too-large",
        found=f"{size:,} bytes ({where})",
        expected=f"at most {most:,} bytes",
        remedy="if the file is right, state its size as contentSize; or give a copy by --map ID=PATH",
    )


def another_size(request: FileRequest, size: int) -> InputError:
    """The file has not the size that was stated for certain."""
    return _refused(
        request,
        "the size of the file differs from its listing",
        code="conflict",
        found=f"{size:,} bytes",
        expected=f"{request.size:,} bytes",
        remedy="it changed in the meantime, or was truncated: try again",
    )


def another_file(
    request: FileRequest,
    found: Checksum,
    size: int,
    expected: Checksum,
    draft: Path,
    *,
    locked: bool,
) -> WrongChecksum:
    """The bytes do not add up to what they must."""
    if locked:
        problem = "the file changed since the lock file was written"
        remedy = (
            f"the download is in {draft}; if the change is intended, accept it with --update-lock"
        )
    else:
        problem = "not the file that is described: the checksum differs"
        remedy = (
            f"the download is in {draft}; if the publisher changed the file, the description needs its new "
            "checksum; a copy of the right one can be given by --map ID=PATH"
        )
    return WrongChecksum(
        problem,
        code="checksum",
        path=bare(request.url),
        place=f"file {request.resource or request.called!r}",
        found=f"{found}, {size:,} bytes",
        expected=str(expected),
        remedy=remedy,
    )
