"""First looks into files of tables: schemas, the structure of JSON, the start of raw bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import duckdb

from holdfast.data.croissant.describing.arrow_shapes import byte_columns
from holdfast.data.croissant.describing.querying import one_row
from holdfast.data.croissant.scanning.opening import unpacked
from holdfast.data.croissant.scanning.sql_text import texts
from holdfast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = "application/x-parquet"
ARROW = "application/vnd.apache.arrow.file"
_SAMPLED = 64  # rows in which a value of raw bytes is looked for
_HEAD = 1 << 22  # bytes in which a line of JSON should end
_BLANK = b"\xef\xbb\xbf \t\r\n"


def read_schema(encoding: str, path: Path) -> pa.Schema:
    """The schema of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if encoding == PARQUET:
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as file:
        try:
            return pa.ipc.open_file(file).schema
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file).schema


def first_bytes(encoding: str, path: Path, schema: pa.Schema) -> dict[tuple[str, ...], bytes]:
    """The start of a value of each column or member of raw bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = byte_columns(schema)
    if not wanted:
        return {}
    names = sorted({column for column, *_ in wanted})
    if encoding == PARQUET:
        batches = pq.ParquetFile(path).iter_batches(_SAMPLED, columns=names)
        first = next(batches, None)
    else:
        with pa.memory_map(str(path)) as file:
            try:
                reader = pa.ipc.open_file(file)
                first = reader.get_batch(0) if reader.num_record_batches else None
            except pa.ArrowInvalid:
                file.seek(0)
                first = next(iter(pa.ipc.open_stream(file)), None)
            first = first and first.slice(0, _SAMPLED)
    if first is None:
        return {}
    found = {}
    for column, *inner in wanted:
        for value in first.column(column):
            value = value.as_py()
            for key in inner:
                value = value and value.get(key)
            if value:
                found[column, *inner] = bytes(value[:16])
                break
    return found


def json_structure(encoding: str, paths: Sequence[Path]) -> Any:
    """The structure that all values of JSON files have together; lines and arrays are lists of values."""
    whole = [path for path in paths if encoding == "application/json" and _first_sign(path) != b"["]
    if whole and len(whole) < len(paths):
        raise InputError("some of these files hold an array, others an object")
    form = (
        "newline_delimited"
        if encoding == "application/jsonlines"
        else "unstructured"
        if whole
        else "array"
    )
    most = max(16_777_216, *(path.stat().st_size + 1 for path in paths))
    query = (
        f"SELECT json_group_structure(json) FROM read_json_objects({texts(map(str, paths))}, "
        f"format = '{form}', maximum_object_size = {min(most, 2**32 - 1)})"
    )
    # A database that met values nested thousands deep answers no more: others need theirs.
    with duckdb.connect() as probe:
        try:
            (found,) = one_row(probe, query)
        except (duckdb.FatalException, duckdb.InternalException):
            raise InputError("its values are nested too deep") from None
    structure = json.loads(found) if found else None
    return structure if whole else [structure]


def holds_lines(path: Path) -> bool:
    """Whether a JSON file holds several values, one on each line."""
    with opened(path) as file:
        first, _, rest = file.read(_HEAD).lstrip(_BLANK).partition(b"\n")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(rest.strip())


def _first_sign(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(_HEAD).lstrip(_BLANK)[:1]


def opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    """A file's bytes, unpacked where gzip packed them."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return unpacked(path, "gzip" if packed else "none")
