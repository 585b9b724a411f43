"""Where the members of a tar file lie; nothing of what they hold is read."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.data.records.sources.columns import is_unicode
from holdfast.errors import InputError

_BLOCK = 512


class Member(NamedTuple):
    """One regular file in a tar."""

    name: str
    """As it stands there, without a leading ``./``."""
    start: int
    """Offset of its first byte."""
    size: int


def members(path: Path, ignored: list[tuple[str, str]]) -> Iterator[Member]:
    """The regular files of a tar, in order.

    Args:
        path: an uncompressed tar.
        ignored: receives the names of members that are not regular files, with the reason.

    Raises:
        InputError: if it is compressed, not a tar, truncated, damaged, or names a file outside itself.
    """
    _refuse_compressed(path)
    try:
        with tarfile.open(path, "r:", errorlevel=2) as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # else it keeps every header
                name = member.name
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    ignored.append((f"{path.name}: {name!a}", "no plain file"))
                elif not is_unicode(name):
                    ignored.append((f"{path.name}: {name!a}", "its name is not UTF-8"))
                else:
                    yield Member(_inside(name, path), member.offset_data, member.size)
            _check_end(path, tar.offset)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise InputError(
            "this tar is damaged or cut short",
            code="damaged",
            path=path,
            found=str(error),
            expected="a whole, uncompressed tar",
            remedy="fetch or make it again",
        ) from error


def _inside(name: str, path: Path) -> str:
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    if name.startswith("/") or ".." in name.split("/"):
        raise InputError(
            "this tar names a file outside itself",
            code="outside-folder",
            path=path,
            found=repr(name),
            expected="names below the folder in which it is unpacked",
            remedy="do not trust this tar; make it again with relative names",
        )
    return name


def _refuse_compressed(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(6)
    for magic, name, tool in (
        (b"\x1f\x8b", "gzip", "gunzip --keep"),
        (b"BZh", "bzip2", "bunzip2 --keep"),
        (b"\xfd7zXZ\0", "xz", "unxz --keep"),
        (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    ):
        if start.startswith(magic):
            raise InputError(
                f"this tar is compressed with {name}, so that its images cannot be reached one by one",
                code="unsupported",
                path=path,
                expected="an uncompressed tar (images hardly shrink anyway)",
                remedy=f"{tool} {path.name}",
            )
    if not start:
        raise InputError("this tar is empty", code="empty-input", path=path, found="0 bytes")


def _check_end(path: Path, offset: int) -> None:
    """Check for the closing blocks of zeros: `tarfile` stops silently at an invalid header."""
    with path.open("rb") as file:
        file.seek(offset)
        block = file.read(_BLOCK)
    if block == bytes(_BLOCK):
        return
    if block and not block.strip(b"\0"):
        return  # an end of less than a block
    if not block:
        raise InputError(
            "this tar has no end: it may have been cut short between two files",
            code="damaged",
            path=path,
            place=f"byte {offset:,}",
            found="the end of the file",
            expected="two blocks of 512 zeros",
            remedy="fetch or make it again; if it is known to be whole, add its end: "
            f"truncate -s {offset + 2 * _BLOCK} {path.name}",
        )
    raise InputError(
        "this tar is damaged or cut short: there is no header where one should be",
        code="damaged",
        path=path,
        place=f"byte {offset:,}",
        expected="a header of 512 bytes whose checksum matches",
        remedy="fetch or make it again",
    )
