"""Descriptions of files made by hand, and the files in a folder before and after."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.raises import RaisesExc

from holdfast.data.croissant.document.model import (
    FileObject,
    FileSet,
    Metadata,
    Source,
    Transform,
)
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.files.resources import Resources
from holdfast.errors import InputError


def container(target: str, **transform: Any) -> Source:
    steps = (Transform(at="/c/transform", **transform),) if transform else ()
    return Source(at="/c", target=target, transforms=steps)


def file(
    identity: str,
    url: str | None,
    encoding: str | Sequence[str] = "text/csv",
    *,
    inside: Sequence[str | Source] = (),
    sha256: str | None = None,
    md5: str | None = None,
) -> FileObject:
    return FileObject(
        at="/distribution/0",
        written={"sc:contentUrl": "/distribution/0/contentUrl"},
        id=identity,
        content_url=url,
        encoding_formats=(encoding,) if isinstance(encoding, str) else tuple(encoding),
        contained_in=_containers(inside),
        sha256=sha256,
        md5=md5,
    )


def files(
    identity: str,
    *includes: str,
    inside: Sequence[str | Source] = (),
    excludes: Sequence[str] = (),
    encoding: str = "text/plain",
) -> FileSet:
    return FileSet(
        at="/distribution/1",
        id=identity,
        encoding_formats=(encoding,),
        contained_in=_containers(inside),
        includes=includes,
        excludes=tuple(excludes),
    )


def _containers(inside: Sequence[str | Source]) -> tuple[Source, ...]:
    return tuple(each if isinstance(each, Source) else container(each) for each in inside)


def resources(folder: Path, *parts: FileObject | FileSet, **options: Any) -> Resources:
    """Those resources, with a cache beside the folder unless told otherwise."""
    options.setdefault("cache", folder.parent / "cache")
    version = options.pop("version", "1.1")
    metadata = Metadata(
        at="",
        version=version,
        file_objects=tuple(part for part in parts if isinstance(part, FileObject)),
        file_sets=tuple(part for part in parts if isinstance(part, FileSet)),
    )
    reach = {name: options.pop(name) for name in ("cache", "offline") if name in options}
    return Resources(metadata, folder, access=Access(**reach), **options)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree(folder: Path) -> dict[str, str]:
    """What stands in a folder: path -> checksum, link or folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = sha256(path.read_bytes()) if path.is_file() else "folder"
    return found


def refused(*codes: str) -> RaisesExc[InputError]:
    """Expects an error of one of these kinds."""
    return pytest.raises(InputError, check=lambda error: error.code in codes)
