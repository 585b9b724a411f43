"""Files that came, but are not those that were meant."""

from __future__ import annotations

from pathlib import Path

from holdfast.data.croissant.fetching.urls import bare
from holdfast.data.croissant.fetching.wanted import Wanted
from holdfast.data.croissant.files.hashing import Checksum, WrongChecksum
from holdfast.errors import InputError

_LOGIN = (
    "open the URL in a browser: log in or accept the terms there, then write the login into ~/.netrc, or "
    "give the file that you got by --map ID=PATH"
)


def _meant(wanted: Wanted) -> str | None:
    return f"file {wanted.resource or wanted.called!r}"


def a_page(wanted: Wanted, content_type: str) -> InputError:
    """The server sent HTML."""
    return InputError(
        "the server sent a web page, such as one to log in, instead of the file",
        path=bare(wanted.url),
        place=_meant(wanted),
        found=content_type or "HTML",
        expected=", ".join(wanted.formats) or "data",
        remedy=_LOGIN,
    )


def another_size(wanted: Wanted, size: int) -> InputError:
    """The file has not the size that was stated for certain."""
    return InputError(
        "the file has another size than its listing says",
        path=bare(wanted.url),
        place=_meant(wanted),
        found=f"{size:,} bytes",
        expected=f"{wanted.size:,} bytes",
        remedy="it was changed in the meantime, or cut off: try again",
    )


def another_file(
    wanted: Wanted, found: Checksum, size: int, expected: Checksum, kept: Path, *, locked: bool
) -> WrongChecksum:
    """The bytes do not add up to what they must."""
    if locked:
        problem = "the file was changed since it was locked"
        remedy = f"what came is in {kept}; if the change is right, lock it anew with --update-lock"
    else:
        problem = "the file is not the one that is described: its checksum differs"
        remedy = (
            f"what came is in {kept}; if the publisher changed the file, the description needs its new "
            "checksum; a copy of the right one can be given by --map ID=PATH"
        )
    return WrongChecksum(
        problem,
        path=bare(wanted.url),
        place=_meant(wanted),
        found=f"{found}, {size:,} bytes",
        expected=str(expected),
        remedy=remedy,
    )
