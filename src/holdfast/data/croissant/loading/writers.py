"""Arrow batches into a file: Parquet, Arrow IPC, JSON Lines or CSV; bounded memory, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.data.croissant.loading.json_lines import json_line
from holdfast.errors import InputError
from holdfast.files import atomic_file

if TYPE_CHECKING:
    import pyarrow as pa

Write = "Callable[[pa.RecordBatch], Any]"
FORMATS = {
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
    "jsonl": "application/jsonl",
    "csv": "text/csv",
}
"""Suffix of a file -> its encoding format."""
_OTHER_COLUMNS = "write the other columns: load --columns A,B --out FILE (in Python columns=[...])"


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> int:
    """Write batches into the file that `path`'s suffix asks for; the number of rows.

    The file appears when it is whole.

    Raises:
        InputError: for a suffix that is none of `FORMATS`, a column that the format cannot hold, or a
            path that cannot be written to.
    """
    import pyarrow as pa

    form = check(schema, path)
    rows = 0
    try:
        with atomic_file(path) as sink, _WRITERS[form](sink, schema) as write:
            for batch in batches:
                write(batch)
                rows += batch.num_rows
    except OSError as error:  # of a file that is read, it is an InputError by now
        raise InputError(
            "the file cannot be written",
            code="unwritable",
            path=path,
            found=error.strerror or str(error),
            remedy="choose a folder that is there, may be written to and has room",
        ) from error
    except pa.ArrowNotImplementedError as error:  # a type that Arrow knows and the format does not
        raise InputError(
            f"{form} cannot store the values of a column",
            code="unsupported",
            path=path,
            found=str(error),
            remedy=f"write another format, or {_OTHER_COLUMNS}",
        ) from error
    return rows


def check(schema: pa.Schema, path: Path) -> str:
    """The format that a file's suffix asks for, if it can hold the columns.

    Text formats hold no bytes, and CSV no nested values.

    Raises:
        InputError: as `write_batches`.
    """
    import pyarrow as pa

    form = path.suffix[1:]
    if form not in FORMATS:
        raise InputError(
            "unsupported output format",
            code="unsupported",
            path=path,
            found=path.suffix or "no suffix",
            expected=", ".join(f".{name}" for name in FORMATS),
        )
    for field in schema:
        bytes_inside = _any(field.type, pa.types.is_binary)
        nested = pa.types.is_nested(field.type)
        if (form in ("csv", "jsonl") and bytes_inside) or (form == "csv" and nested):
            raise InputError(
                f"{form} cannot store the values of a column",
                code="unsupported",
                path=path,
                place=f"column {field.name}",
                found=str(field.type),
                expected="numbers, text and dates"
                + ("" if form == "csv" else ", lists and objects"),
                remedy=f"write .parquet or .arrow, or {_OTHER_COLUMNS}",
            )
    return form


def _any(kind: pa.DataType, asked: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one inside it, answers yes."""
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return asked(kind) or any(_any(part, asked) for part in inner)


@contextmanager
def _parquet(sink: IO[bytes], schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _arrow(sink: IO[bytes], schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    import pyarrow as pa

    with pa.ipc.new_file(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _csv(sink: IO[bytes], schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    import pyarrow.csv

    with pyarrow.csv.CSVWriter(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _jsonl(sink: IO[bytes], schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    def write(batch: pa.RecordBatch) -> None:
        for record in batch.to_pylist():
            sink.write(json_line(record).encode() + b"\n")

    yield write


_WRITERS: dict[str, Callable[[IO[bytes], Any], AbstractContextManager[Callable[[Any], Any]]]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
    "csv": _csv,
}
