"""Manifests: files whose lines name the files of a FileSet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.data.croissant.fetching.access import is_remote
from holdfast.data.croissant.files.local_files import LocalFolder
from holdfast.errors import InputError


def lines_of(
    text: bytes, base: str | Path, folder: LocalFolder, where: str
) -> Iterator[tuple[str, str | Path]]:
    """(path, location) of each line that is not empty.

    A line is a URL, or a path relative to the manifest's folder. If it begins with the manifest's own
    folder (``crawl-data/...`` in ``https://host/crawl-data/.../paths.gz``), it is relative to the server's
    root, as in the manifests of Common Crawl.

    Args:
        text: text of the manifest.
        base: its URL or path.
        folder: the folder that local paths must stay in.
        where: the manifest, for messages.

    Raises:
        InputError: if it is not UTF-8 text, or a line leads out of the folder.
    """
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise InputError(
            "the manifest is not UTF-8 text",
            code="unreadable",
            path=where,
            place=f"line {number:,}",
            found=repr(text[error.start : error.start + 8]),
            expected="a URL or path in UTF-8 on each line",
            remedy="if it is compressed, say so: encodingFormat, or the transform unArchive",
        ) from error
    if isinstance(base, str):
        root, near, first = _places(base)
    elif base.is_relative_to(folder.root):
        near = base.parent.relative_to(folder.root).as_posix() + "/"
    else:
        near = ""  # a mapped manifest names files of the description's folder
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        if is_remote(line):
            yield unquote(urlsplit(line).path).lstrip("/") or line, line
        elif isinstance(base, str):
            path = line.lstrip("/")
            from_root = path != line or path.partition("/")[0] == first
            yield path, (root if from_root else near) + path
        else:
            path = line.removeprefix("./")
            yield path, folder.below(near.removeprefix("./") + path, f"line {number:,} of {where}")


def _places(url: str) -> tuple[str, str, str]:
    """The root of a URL's server, the folder of the URL, and the first part of that folder's path."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}/"
    folder = parts.path.lstrip("/").rpartition("/")[0]
    return root, f"{root}{folder}/" if folder else root, folder.partition("/")[0]
