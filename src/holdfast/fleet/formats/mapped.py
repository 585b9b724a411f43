"""Any CSV, TSV or Parquet file, with a TOML map from its columns to the schema.

    table = "attempts"                 # or "health", "node_outages"
    delimiter = ";"                    # CSV only; left out: detected

    [columns]                          # field of holdfast.fleet.schema = "their column"
    job_id = "Job"
    state = "Status"
    start_s = "Started at"
    nodes = "Hosts"

    [values.state]                     # "their value" = "ours"; others stay as they are
    "Failed (node)" = "NODE_FAIL"

    [time]                             # left out: ISO 8601 or seconds to nanoseconds since 1970
    format = "%d.%m.%Y %H:%M"          # as in strptime
    zone = "Europe/Berlin"             # left out: --timezone

Nodes may be a host list (``node[1-4,7]``) or a Parquet list; durations seconds or ``1-02:03:04``; GPUs a
number or a TRES text. What can be derived is: runtime_s, node_count, job_id_raw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config import read_config, unknown_key
from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.clean import faults
from holdfast.fleet.formats.columns import Column, by_distinct, flat, table_of, text_key
from holdfast.fleet.formats.delimited import header_at, place_rejects, read_delimited
from holdfast.fleet.formats.fields import (
    is_blank,
    parse_duration,
    parse_gpus,
    parse_integer,
    state_of,
)
from holdfast.fleet.formats.health import event_times, health_table, texts
from holdfast.fleet.formats.hosts import parse_hosts
from holdfast.fleet.formats.source import Rejects, decompressed_size, nothing_new
from holdfast.fleet.schema import ATTEMPTS, HEALTH, NODE_OUTAGES

_TABLES: Mapping[str, tuple[pa.Schema, tuple[str, ...]]] = {
    "attempts": (ATTEMPTS, ("job_id", "state", "submit_s")),
    "health": (HEALTH, ("time_s", "node", "check")),
    "node_outages": (NODE_OUTAGES, ("node", "start_s")),
}
_TIMES = {"submit_s", "eligible_s", "start_s", "end_s", "time_s"}
_DURATIONS = {"runtime_s", "time_limit_s"}
_NOT_OVER = pa.array(["RUNNING", "PENDING", "SUSPENDED"])
_TRUE = pa.array(["true", "1", "yes", "t", "y"])


@dataclass(frozen=True)
class ColumnMap:
    """A parsed map."""

    path: Path
    table: str
    columns: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]
    time_format: str | None
    zone: ZoneInfo | None
    delimiter: str | None


@dataclass(frozen=True)
class _Time:
    format: str | None = None
    zone: str | None = None


@dataclass(frozen=True)
class _File:
    """The keys of the file."""

    table: Literal["attempts", "health", "node_outages"] = "attempts"
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    time: _Time = dataclasses.field(default_factory=_Time)
    delimiter: str | None = None


def load_map(path: Path) -> ColumnMap:
    """Read a column map.

    Raises:
        InputError: naming the key, if the file is not such a map.
    """
    given = read_config(path, _File, "the column map")

    def wrong(place: str, found: object, expected: str) -> InputError:
        return InputError(
            "invalid column map",
            code="invalid-value",
            path=path,
            place=place,
            found=repr(found),
            expected=expected,
        )

    name, columns, time = given.table, given.columns, given.time
    schema, required = _TABLES[name]
    known = [field for field in schema.names if field != "key"]
    for column in columns:
        if column not in known:
            raise unknown_key(column, known, "columns", path)
    for needed in required:
        if needed not in columns and not (needed == "submit_s" and "start_s" in columns):
            raise wrong(f"columns.{needed}", "nothing", f"the name of their column for {needed}")
    for column in given.values:
        if column not in columns:
            raise wrong(f"values.{column}", column, "a field that [columns] maps")
    if given.delimiter == "":
        raise wrong("delimiter", given.delimiter, "a text")
    try:
        zone = ZoneInfo(time.zone) if time.zone is not None else None
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise wrong("time.zone", time.zone, "a zone such as Europe/Berlin") from error
    times = "start_s" in columns and ("end_s" in columns or "runtime_s" in columns)
    if name == "attempts" and not times:
        raise InputError(
            "the column map names no start and no end of the attempts: no rate can be known",
            code="missing-column",
            path=path,
            place="columns",
            found=", ".join(columns),
            expected="start_s, and end_s or runtime_s",
            remedy="name the columns that hold them",
        )
    return ColumnMap(path, name, columns, given.values, time.format, zone, given.delimiter)


def _read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    if options.column_map is None:
        raise InputError(
            "a mapped file needs a column map",
            code="missing-key",
            path=path,
            expected="--map FILE.toml",
            remedy="write a map from its columns to holdfast's fields",
        )
    if nothing_new(path, offset):
        return
    rules = load_map(options.column_map)
    if _is_parquet(path):
        yield from _read_parquet(path, rules, options)
    else:
        yield from _read_text(path, rules, options)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _read_parquet(path: Path, rules: ColumnMap, options: ReadOptions) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InputError(
            "the Parquet file cannot be read",
            code="damaged",
            path=path,
            found=str(error),
            expected="whole Parquet",
        ) from error
    with file:
        _check_columns(path, rules, file.schema_arrow.names)
        rejects = Rejects(str(path))
        records = 0
        wanted = sorted(set(rules.columns.values()))
        for piece in file.iter_batches(batch_size=1 << 18, columns=wanted):
            table, reasons = _convert(pa.table(piece), rules, options)
            for index in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
                raw = str(piece.slice(index, 1).to_pylist()[0])
                rejects.add(records + index + 1, reasons[index].as_py(), raw)
            records += piece.num_rows
            yield Batch({rules.table: table})
    yield Batch({"rejects": rejects.table()}, decompressed_size(path))


def _read_text(path: Path, rules: ColumnMap, options: ReadOptions) -> Iterator[Batch]:
    header = header_at(path, rules.delimiter or options.delimiter)
    _check_columns(path, rules, list(header.names))
    rejects = Rejects(str(path))
    bad: dict[int, str] = {}
    records = 0
    for piece in read_delimited(path, header, quoted=True):
        named = piece.rename_columns(
            [name if header.names.index(name) == i else "" for i, name in enumerate(header.names)]
        )
        table, reasons = _convert(named, rules, options)
        for index in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
            bad[records + index] = reasons[index].as_py()
        records += piece.num_rows
        yield Batch({rules.table: table})
    place_rejects(path, header, bad, records, rejects, quoted=True)
    yield Batch({"rejects": rejects.table()}, decompressed_size(path))


def _check_columns(path: Path, rules: ColumnMap, there: list[str]) -> None:
    missing = {field: name for field, name in rules.columns.items() if name not in there}
    if missing:
        raise InputError(
            "the column map names columns that the file does not have",
            code="missing-column",
            path=path,
            place=", ".join(f"columns.{field}" for field in missing),
            found=", ".join(there),
            expected=", ".join(missing.values()),
            remedy=f"correct {rules.path}",
        )


# --- Columns -------------------------------------------------------------------------------------


def _convert(piece: pa.Table, rules: ColumnMap, options: ReadOptions) -> tuple[pa.Table, pa.Array]:
    """The usable rows, and for each record why it is not among them (null: it is)."""
    zone = rules.zone or options.timezone
    theirs: dict[str, Column] = {}
    for field, name in rules.columns.items():
        column = flat(piece.column(name))
        if field in rules.values:
            column = by_distinct(texts(column), _translator(rules.values[field]), pa.string())
        theirs[field] = _times(column, rules, zone) if field in _TIMES else column
    if rules.table == "health":
        return health_table({"time": theirs.pop("time_s"), **theirs}, zone)
    schema, required = _TABLES[rules.table]
    ours = {
        field: _field(field, schema.field(field).type, column) for field, column in theirs.items()
    }
    reasons = _reasons(ours, theirs, required)
    if rules.table == "attempts":
        _derive(ours)
        ours.setdefault("cluster", pa.array([options.cluster] * piece.num_rows, pa.string()))
    else:
        ours.setdefault("state", pa.array(["FAILURE"] * piece.num_rows, pa.string()))
    table = table_of(schema, ours, piece.num_rows)
    reasons = pc.coalesce(reasons, faults(table))
    return table.filter(pc.is_null(reasons)), reasons


def _translator(values: Mapping[str, str]) -> Callable[[str], str]:
    return lambda text: values.get(text, text)


def _times(column: pa.Array, rules: ColumnMap, zone: ZoneInfo) -> pa.Array:
    if rules.time_format is not None and pa.types.is_string(column.type):
        column = pc.strptime(column, format=rules.time_format, unit="us", error_is_null=True)
    return event_times(column, zone)


def _field(name: str, kind: pa.DataType, column: Column) -> pa.Array:
    array = flat(column)
    if name in _TIMES:
        return pc.floor(array).cast(pa.int64())
    if pa.types.is_list(kind):
        return array.cast(kind) if pa.types.is_nested(array.type) else parse_hosts(texts(array))
    if name == "state":
        return by_distinct(
            pc.utf8_upper(pc.utf8_trim_whitespace(texts(array))), _state, pa.string()
        )
    if pa.types.is_boolean(kind):
        return pc.is_in(pc.utf8_lower(texts(array)), value_set=_TRUE)
    if pa.types.is_string(kind):
        return texts(array)
    if pa.types.is_floating(array.type):
        known = pc.if_else(pc.is_finite(array), pc.round(array), None)
        bounded = pc.max_element_wise(known, -1e15, skip_nulls=False)
        array = pc.min_element_wise(bounded, 1e15, skip_nulls=False).cast(pa.int64())
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64(), safe=False)  # `table_of` and `clean` see what does not fit
    numbers = parse_integer(texts(array))
    if name in _DURATIONS:
        numbers = pc.coalesce(numbers, parse_duration(texts(array)))
    elif name == "gpus":
        numbers = pc.coalesce(numbers, parse_gpus(texts(array)).cast(pa.int64()))
    return numbers


def _state(text: str) -> str | None:
    return state_of(text) or (
        text if text in ("FAILURE", "DOWN", "DRAIN", "FAIL", "MAINT") else None
    )


def _reasons(
    ours: Mapping[str, pa.Array], theirs: Mapping[str, Column], required: tuple[str, ...]
) -> pa.Array:
    reasons = pa.nulls(len(next(iter(ours.values()))), pa.string())
    for field in required:
        if field in ours and field != "state":
            absent = pc.is_null(ours[field])
            if pa.types.is_string(ours[field].type):
                absent = is_blank(ours[field])
            reasons = pc.coalesce(reasons, pc.if_else(absent, f"no {field} that can be read", None))
    if "state" in ours:
        unknown = pc.is_null(ours["state"])
        said = pc.binary_join_element_wise(
            "unknown state ", pc.fill_null(texts(theirs["state"]), "?"), ""
        )
        reasons = pc.coalesce(reasons, pc.if_else(unknown, said, pa.scalar(None, pa.string())))
    return reasons


def _derive(ours: dict[str, pa.Array]) -> None:
    if "submit_s" not in ours:
        ours["submit_s"] = ours["start_s"]
    ours.setdefault("eligible_s", ours["submit_s"])
    if "runtime_s" not in ours and {"start_s", "end_s"} <= ours.keys():
        ours["runtime_s"] = pc.subtract(ours["end_s"], ours["start_s"])
    if "end_s" not in ours:  # an attempt that is over ended when it had run
        over = pc.invert(pc.is_in(ours["state"], value_set=_NOT_OVER))
        end = pc.add(ours["start_s"], ours["runtime_s"].cast(pa.int64()))
        ours["end_s"] = pc.if_else(over, end, pa.scalar(None, pa.int64()))
    if "node_count" not in ours and "nodes" in ours:
        ours["node_count"] = pc.list_value_length(ours["nodes"])
    if "job_id_raw" not in ours:
        ours["job_id_raw"] = by_distinct(ours["job_id"], _raw_id, pa.int64())


def _raw_id(job: str) -> int:
    return int(job) if job.isdecimal() and len(job) < 19 else text_key(job)


def _sniff(head: bytes, path: Path) -> bool:
    return False  # nothing in the file tells: it is chosen with --map


MAPPED = Format("mapped", "any CSV, TSV or Parquet file, with --map FILE.toml", _sniff, _read)
FORMATS = (MAPPED,)
