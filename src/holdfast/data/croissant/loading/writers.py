"""Arrow batches into a file: Parquet, Arrow IPC, JSON Lines or CSV; bounded memory, all or nothing."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from holdfast.errors import InputError
from holdfast.files import atomic_file
from holdfast.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = ("parquet", "arrow", "jsonl", "csv")
"""Suffixes of files that can be written."""
_OTHER_COLUMNS = (
    "write the other columns: load --columns A,B --output FILE (in Python columns=[...])"
)


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
        with atomic_file(path) as sink, _writer(form, sink, schema) as writer:
            for batch in batches:
                if form == "jsonl":
                    writer.writelines(_lines(batch))
                else:
                    writer.write_batch(batch)
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


def _lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    return (json_line(record).encode() + b"\n" for record in batch.to_pylist())


def _writer(form: str, sink: IO[bytes], schema: pa.Schema) -> AbstractContextManager[Any]:
    """What writes batches by its `write_batch`; of JSON Lines, the file itself."""
    import pyarrow.csv
    import pyarrow.parquet

    if form == "parquet":
        return pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd")
    if form == "arrow":
        return pyarrow.ipc.new_file(sink, schema)
    return pyarrow.csv.CSVWriter(sink, schema) if form == "csv" else nullcontext(sink)


def json_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON (RFC 8259), without the end of the line.

    Dates and times are written as ISO 8601 says, durations in seconds, bytes in base64; NaN is null, and an
    infinity the text ``"Infinity"``, as JSON has no number for it. What Unicode takes for the end of a line
    is escaped: many programs end a line there.
    """
    try:
        line = _ENCODER.encode(record)
    except ValueError:  # NaN or an infinity somewhere: rare, so looked for only now
        line = _ENCODER.encode(_finite(record))
    return line if line.isascii() else _LINE_END.sub(lambda end: f"\\u{ord(end[0]):04x}", line)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


def _other(value: Any) -> Any:
    """What the encoder does not know: dates, decimals, bytes and the like."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value) if isinstance(value, UUID) else plain(value)


_LINE_END = re.compile("[\x85\u2028\u2029]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_other)
