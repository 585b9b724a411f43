"""Sources written for tests."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.data.records.sources import Source

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000") + b"picture"
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def tar(path: Path, members: Iterable[tuple[str, bytes]], end: bool = True) -> Path:
    """A tar with these files, in this order."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        used = made.offset
    path.write_bytes(file.getvalue() if end else file.getvalue()[:used])
    return path


def files(root: Path, contents: Mapping[str, bytes]) -> Path:
    """A folder with these files."""
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def check_consistent(source: Source) -> None:
    """Ids, sizes and types are what reading gives, in any ranges."""
    count = len(source)
    whole = list(source.read(0, count))
    listed = list(source.ids_and_sizes())
    assert [(one.id, len(one.data)) for one in whole] == listed
    assert len({id_ for id_, _ in listed}) == count
    for one in whole:
        assert list(one.columns) == source.schema.names
    rows = [dict(one.columns) for one in whole]
    pa.Table.from_pylist(rows, schema=source.schema).validate(full=True)
    rng = random.Random(0)
    for _ in range(6):
        start, stop = sorted(rng.randint(0, count) for _ in range(2))
        assert list(source.read(start, stop)) == whole[start:stop]
    with pytest.raises(IndexError):
        next(source.read(0, count + 1))
