"""The source files of a folder: which can be used."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.data.curation.languages import Language, language_of
from holdfast.errors import InputError
from holdfast.progress import track

LARGEST = 1_000_000
"""Bytes; what is larger is generated or minified."""
_BOM = b"\xef\xbb\xbf"
_CPP = re.compile(rb"^[^\S\n]*+(namespace|class|template)\b|\w::\w", re.MULTILINE)


@dataclass(frozen=True)
class SourceFile:
    """A file that can be read and has a grammar.

    Args:
        path: below the folder.
        language: by its suffix.
        size: in bytes.
        digest: SHA-256 of its content.
    """

    path: str
    language: Language
    size: int
    digest: str


@dataclass(frozen=True)
class SourceFolder:
    """A folder of source files; hidden folders in it are not entered.

    Args:
        folder: where they are.
        files: those that can be used, in the order of their paths.
        rejected: path -> why it cannot be used.
    """

    folder: Path
    files: Sequence[SourceFile]
    rejected: dict[str, str]

    @classmethod
    def scan(cls, folder: Path) -> SourceFolder:
        """Read every file once.

        Raises:
            InputError: no such folder, nothing in it that can be used.
        """
        if not folder.is_dir():
            raise InputError("no such folder", code="not-found", path=folder)
        files, rejected = [], {}
        paths = sorted(_paths(folder))
        with track("Reading", len(paths), "files") as bar:
            for path in paths:
                checked = _checked(folder, path)
                bar.advance(1)
                if isinstance(checked, SourceFile):
                    files.append(checked)
                else:
                    rejected[_printable(path)] = checked
        if not files:
            raise InputError(
                "no source files",
                code="no-data",
                path=folder,
                found=f"{len(rejected)} other files",
                expected="files of Python, JavaScript, C, Java, Go or Rust",
            )
        return cls(folder, files, rejected)

    def read(self, file: SourceFile) -> bytes:
        """The content of a file, without a byte order mark."""
        return (self.folder / file.path).read_bytes().removeprefix(_BOM)


def _paths(folder: Path) -> Iterator[str]:
    closed: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if Path(parent, name).is_symlink()]  # not followed
        for name in [*names, *links]:
            yield os.path.relpath(Path(parent, name), folder)
    yield from (os.path.relpath(error.filename, folder) for error in closed)


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _checked(folder: Path, path: str) -> SourceFile | str:
    """The file, or why it cannot be used."""
    place = folder / path
    if _printable(path) != path or not path.isprintable():
        return "name that cannot be printed"
    if place.is_symlink():
        return "symbolic link"
    if not place.is_file():
        return "not a regular file"
    language = language_of(place.suffix)
    if language is None:
        return "no grammar for this suffix"
    try:
        size = place.stat().st_size
        if size > LARGEST:
            return f"larger than {LARGEST:,} bytes"
        content = place.read_bytes()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if b"\0" in content:
        return "NUL bytes"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte {error.start})"
    if not text.strip("\ufeff \t\r\n\f\v"):
        return "empty"
    if place.suffix == ".h" and _CPP.search(content):  # errors all over for the grammar of C
        return "no grammar for C++"
    return SourceFile(path, language, size, hashlib.sha256(content).hexdigest())
