"""Delimited text and Parquet with named columns, as `formats.toml` or a user's own map describes them.

A map (``--map FILE.toml``, format ``mapped``)::

    table = "attempts"                 # or "health", "node_outages", "qos"
    delimiter = ";"                    # text only; left out: detected

    [columns]                          # field of holdfast.fleet.schema = "their column", or a list of names
    job_id = "Job"
    state = "Status"
    start_s = "Started at"
    nodes = "Hosts"

    [values.state]                     # "their value" = "ours"; others stay as they are
    "Failed (node)" = "NODE_FAIL"

    [time]                             # left out: ISO 8601 or seconds to nanoseconds since 1970
    format = "%d.%m.%Y %H:%M"          # as in strptime; of a list ("iso": as above) the first that fits;
                                       # of month and day first, that of a date with a day over 12
    zone = "Europe/Berlin"             # left out: --timezone
    origin = 2023-01-01T00:00:00Z      # numbers are seconds since then: the start of a trace

Nodes may be a host list (``node[1-4,7]``) or a Parquet list; durations seconds or ``1-02:03:04``; GPUs a
number or a TRES text. What can be derived is: runtime_s, node_count, job_id_raw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config import invalid_value, parse_config, read_config, unknown_key
from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import Column, by_distinct, flat, table_of, text_key
from holdfast.fleet.formats.delimited import Header, header_at, header_of, read_delimited
from holdfast.fleet.formats.fields import (
    EPOCH_TIME,
    are_local,
    event_times,
    is_blank,
    matching,
    parse_duration,
    parse_gpus,
    parse_integer,
    results,
    severities,
    state_of,
    strange_results,
    texts,
    xids,
)
from holdfast.fleet.formats.hosts import parse_hosts
from holdfast.fleet.formats.json_lines import Unwrap, first_objects, read_json_lines
from holdfast.fleet.formats.source import Records, Rejects
from holdfast.fleet.schema import TABLES

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "attempts": ("job_id", "state", "submit_s"),
    "health": ("time_s", "node", "check"),
    "node_outages": ("node", "start_s"),
    "qos": ("qos",),
}
_REASONS = {
    "time_s": "no time that can be read",
    "node": "no node",
    "check": "no check",
    "qos": "no name",
    "start_s": "no start time that can be read",
    "end_s": "no end time that can be read",
}
_TIMES = {"submit_s", "eligible_s", "start_s", "end_s", "time_s"}
_DURATIONS = {"runtime_s", "time_limit_s", "grace_s"}
_COUNTS = ("gpus", "node_count", "runtime_s")
_NOT_OVER = pa.array(["RUNNING", "PENDING", "SUSPENDED"])
_OUTAGE_STATES = ("FAILURE", "DOWN", "DRAIN", "FAIL", "MAINT")
_FLAGS = r"[*~#$%@+^!\-]+$"  # what Slurm appends to a node's state: "*" = does not respond ...
_FLAGS_OF_CHECKS = {"ok", "passed", "healthy", "success"}
_OF_FLAGS = {"1": "true", "1.0": "true", "0": "false", "0.0": "false"}
_TRUE = pa.array(["true", "1", "yes", "t", "y"])
_ORDERS = ("%d/%m", "%m/%d")
_DATE = r"^\s*(?P<date>(?P<first>\d\d?)/(?P<second>\d\d?)/\d+)"


@dataclass(frozen=True)
class _Time:
    format: str | tuple[str, ...] = "iso"
    zone: str | None = None
    origin: datetime | None = None  # Numbers are seconds since then


@dataclass(frozen=True)
class _Recognized:
    """What the header of such a file has."""

    fields: tuple[str, ...]  # All of these
    any: tuple[str, ...] = ()  # And one of these
    without: tuple[str, ...] = ()  # And no column of these names
    exact: bool = False  # Case matters (to tell the format, not to read the file)


@dataclass(frozen=True)
class Layout:
    """The keys of a map, or of a format in `formats.toml`."""

    table: Literal["attempts", "health", "node_outages", "qos"] = "attempts"
    # Field -> its column, or the names that the column may have, the best first
    columns: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    # Field -> what stands for a missing column or an empty text
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    time: _Time = dataclasses.field(default_factory=_Time)
    delimiter: str | None = None
    quoted: bool = True  # Fields may stand in double quotes
    free_text: str | None = None  # The column that may hold the delimiter
    # The field without which a record is none of ours, and no reject
    skip_without: str | None = None
    any_state: bool = False  # The file's own states of nodes are kept, whatever they are
    recognized: _Recognized | None = None
    describes: str = ""

    def names(self, field: str) -> tuple[str, ...]:
        """The columns that may hold a field."""
        names = self.columns.get(field, ())
        return (names,) if isinstance(names, str) else tuple(names)

    def present(self, field: str, there: tuple[str, ...], *, exact: bool = False) -> list[str]:
        """Those of them that are there; a shipped format does not mind their case, unless `exact`."""
        if exact or self.recognized is None:
            return [name for name in self.names(field) if name in there]
        lowered = {name.lower(): name for name in reversed(there)}
        return [lowered[name.lower()] for name in self.names(field) if name.lower() in lowered]

    def fits(self, there: tuple[str, ...], *, exact: bool = False) -> bool:
        """Whether these are the columns of a file of the format."""
        assert self.recognized is not None
        lowered = {name.lower() for name in there}
        has = partial(self.present, there=there, exact=exact)
        wanted = self.recognized
        return (
            all(map(has, wanted.fields))
            and (not wanted.any or any(map(has, wanted.any)))
            and not any(name.lower() in lowered for name in wanted.without)
        )


def load_map(path: Path) -> Layout:
    """Read a column map.

    Raises:
        InputError: naming the key, if the file is not such a map.
    """
    given = read_config(path, Layout, "the column map")

    wrong = partial(invalid_value, "invalid column map", path)
    columns = given.columns
    known = [field for field in TABLES[given.table].names if field != "key"]
    for field in (*columns, *given.defaults):
        if field not in known:
            raise unknown_key(field, known, "columns", path)
    for needed in _REQUIRED[given.table]:
        if needed not in columns and not (needed == "submit_s" and "start_s" in columns):
            raise wrong(f"columns.{needed}", "nothing", f"the name of their column for {needed}")
    for field in given.values:
        if field not in columns:
            raise wrong(f"values.{field}", repr(field), "a field that [columns] maps")
    if given.delimiter == "":
        raise wrong("delimiter", repr(given.delimiter), "a text")
    try:
        _zone(given, ReadOptions())
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise wrong("time.zone", repr(given.time.zone), "a zone such as Europe/Berlin") from error
    times = "start_s" in columns and ("end_s" in columns or "runtime_s" in columns)
    if given.table == "attempts" and not times:
        raise InputError(
            "the column map names no start and no end of the attempts: no rate can be known",
            code="missing-column",
            path=path,
            place="columns",
            found=", ".join(columns),
            expected="start_s, and end_s or runtime_s",
            remedy="name the columns that hold them",
        )
    return given


def _zone(layout: Layout, options: ReadOptions) -> ZoneInfo:
    return options.timezone if layout.time.zone is None else ZoneInfo(layout.time.zone)


# --- Files ---------------------------------------------------------------------------------------


def _read_mapped(path: Path, options: ReadOptions) -> Iterator[Batch]:
    if options.column_map is None:
        raise InputError(
            "a mapped file needs a column map",
            code="missing-key",
            path=path,
            expected="--map FILE.toml",
            remedy="write a map from its columns to holdfast's fields",
        )
    layout = load_map(options.column_map)
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        yield from _batches(layout, path, options, Rejects(str(path)), _parquet(path, layout))
        return
    header = header_at(path, layout.delimiter)
    _check_columns(path, layout, header.names)
    yield from _read_text(path, layout, options, header)


def _read_shipped(layout: Layout, path: Path, options: ReadOptions) -> Iterator[Batch]:
    header = header_at(path)
    if not layout.fits(header.names):
        raise InputError(
            f"this is not a file of {layout.describes}",
            code="unknown-format",
            path=path,
            place="line 1",
            found=", ".join(header.names),
            expected="columns " + ", ".join(layout.names(field)[0] for field in layout.columns),
            remedy="name the columns so, or describe them with --map",
        )
    yield from _read_text(path, layout, options, header)


def _read_text(path: Path, layout: Layout, options: ReadOptions, header: Header) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    records = read_delimited(
        path, header, rejects, quoted=layout.quoted, free_text=layout.free_text
    )
    yield from _batches(layout, path, options, rejects, records)


def read_json(
    layout: Layout, path: Path, options: ReadOptions, unwrap: Unwrap | None = None
) -> Iterator[Batch]:
    """Read JSON lines whose keys are the columns of a layout; `unwrap` as for `read_json_lines`."""
    rejects = Rejects(str(path))
    records = read_json_lines(path, rejects, unwrap)
    yield from _batches(layout, path, options, rejects, records)


def _parquet(path: Path, layout: Layout) -> Iterator[Records]:
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
        there = tuple(file.schema_arrow.names)
        _check_columns(path, layout, there)
        wanted = {name for field in layout.columns for name in layout.present(field, there)}
        first = 1
        for piece in file.iter_batches(batch_size=1 << 18, columns=sorted(wanted)):
            yield Records(pa.table(piece), pa.array(range(first, first + len(piece)), pa.int64()))
            first += len(piece)


def _check_columns(path: Path, layout: Layout, there: tuple[str, ...]) -> None:
    missing = [field for field in layout.columns if not layout.present(field, there)]
    if missing:
        raise InputError(
            "the column map names columns that the file does not have",
            code="missing-column",
            path=path,
            place=", ".join(f"columns.{field}" for field in missing),
            found=", ".join(there),
            expected=", ".join(" or ".join(layout.names(field)) for field in missing),
            remedy="correct the file given with --map",
        )


def _batches(
    layout: Layout,
    path: Path,
    options: ReadOptions,
    rejects: Rejects,
    records: Iterable[Records],
) -> Iterator[Batch]:
    """The usable rows of records; the others are rejects with their lines."""
    for piece in records:
        layout = _ordered(layout, piece.columns, path)
        local = layout.time.zone is None and _are_local(piece.columns, layout)
        table, reasons, ours_at_all, noted = _convert(piece.columns, layout, options)
        bad = pc.is_valid(reasons)
        if pc.any(bad).as_py():
            rejects.add_all(reasons.filter(bad), piece.lines.filter(bad), piece.raw(bad))
        good = pc.and_(pc.invert(bad), ours_at_all)
        yield Batch(
            {layout.table: table.filter(good), "rejects": rejects.table()},
            piece.end,
            facts={"local_times": int(local), **noted},
            lines={layout.table: piece.lines.filter(good)},
        )


def _ordered(layout: Layout, piece: pa.Table, path: Path) -> Layout:
    """The layout with one order of month and day in dates such as 01/03/2025, if it allows for both.

    Raises:
        InputError: if no date has a day over 12, and the name of no column says the order.
    """
    if len({order for order in _ORDERS for form in layout.time.format if order in form}) < 2:
        return layout
    there = tuple(piece.column_names)
    names = [name for field in sorted(_TIMES) for name in layout.present(field, there)]
    columns = [texts(piece.column(there.index(name))) for name in names]
    dates = pc.extract_regex(pa.chunked_array(columns, pa.string()), _DATE).drop_null()
    if not len(dates):
        return layout
    day_first, month_first = (
        pc.max(flat(pc.struct_field(dates, part)).cast(pa.int32())).as_py() > 12
        for part in ("first", "second")
    )
    month_first |= any("mm/dd" in name.lower() for name in names)
    if not (day_first or month_first):
        raise InputError(
            "the dates may have the month or the day first",
            code="ambiguous",
            path=path,
            place=f"columns {', '.join(names)}",
            found=f"{dates[0]['date'].as_py()}, and no day over 12",
            expected="ISO 8601, for example 2025-03-01T00:00:00Z",
            remedy='write the dates so, or say how they are written with --map ([time] format = "...")',
        )
    wrong = _ORDERS[not month_first]
    formats = tuple(form for form in layout.time.format if wrong not in form)
    return dataclasses.replace(layout, time=dataclasses.replace(layout.time, format=formats))


def _are_local(piece: pa.Table, layout: Layout) -> bool:
    """Whether the times of the records leave their zone to the user."""
    if layout.time.origin is not None:
        return layout.time.origin.tzinfo is None
    names = [name for field in _TIMES for name in layout.present(field, tuple(piece.column_names))]
    return layout.time.format != "iso" or any(are_local(texts(piece[name])) for name in names)


# --- Columns -------------------------------------------------------------------------------------


def _convert(
    piece: pa.Table, layout: Layout, options: ReadOptions
) -> tuple[pa.Table, pa.Array, pa.Array, dict[str, int]]:
    """The records in the store's columns, why each cannot be used (null: it can), which count; notes."""
    zone = _zone(layout, options)
    there = tuple(piece.column_names)
    nothing = pa.nulls(len(piece), pa.string())
    theirs = {}
    ours = {}
    schema = TABLES[layout.table]
    needed = _REQUIRED[layout.table] if layout.table == "health" else ()
    for field in dict.fromkeys([*layout.columns, *needed]):
        # Of a name that occurs twice, the first column counts.
        names = layout.present(field, there)
        found = [flat(piece.column(there.index(name))) for name in names]
        if field == "result":  # of a flag 1 is fine, of an exit code 0
            numbers = partial(_translated, _OF_FLAGS)
            found = [
                by_distinct(texts(each), numbers, pa.string())
                if name.lower() in _FLAGS_OF_CHECKS
                else each
                for name, each in zip(names, found, strict=True)
            ]
        if field in layout.values:
            translate = partial(_translated, layout.values[field])
            found = [by_distinct(texts(each), translate, pa.string()) for each in found]
        if not found and field not in needed:
            continue
        if layout.table != "health":
            found = found[:1]  # of a health event, the first of several that says something
        found = found or [nothing]
        theirs[field] = found[0] if len(found) == 1 else pc.coalesce(*map(texts, found))
        if field in _TIMES:
            ours[field] = pc.coalesce(*(_times(each, layout, zone) for each in found))
    for field, column in theirs.items():
        ours[field] = _field(field, schema.field(field).type, ours.get(field, column), layout)
    for field, text in layout.defaults.items():
        there_is = ours.get(field, nothing)
        ours[field] = pc.if_else(pc.equal(pc.fill_null(there_is, ""), ""), text, there_is)
    reasons = _reasons(ours, theirs, layout.table)
    noted = {}
    if layout.table == "attempts":
        _derive(ours)
        ours.setdefault("cluster", options.cluster)
    elif layout.table == "node_outages":
        ours.setdefault("state", "FAILURE")
    elif layout.table == "health":
        ours["severity"] = severities(theirs.get("severity", nothing))
        ours["result"] = results(theirs.get("result", nothing))
        noted = strange_results(theirs.get("result", nothing))
        ours["message"] = pc.fill_null(texts(theirs.get("message", nothing)), "")
        ours["xid"] = xids(theirs.get("xid", nothing), ours["check"], ours["message"])
    ours_at_all = pa.repeat(True, len(piece))
    if layout.skip_without is not None:
        ours_at_all = pc.not_equal(ours[layout.skip_without], "")
        reasons = pc.if_else(ours_at_all, reasons, None)
    return table_of(schema, ours), reasons, ours_at_all, noted


def _translated(values: Mapping[str, str], text: str) -> str:
    return values.get(text, text)


def _times(column: pa.Array, layout: Layout, zone: ZoneInfo) -> pa.Array:
    """Seconds since 1970, by the first of the layout's formats that fits."""
    if (origin := layout.time.origin) is not None:
        begin = origin if origin.tzinfo else origin.replace(tzinfo=zone)
        seconds = matching(texts(column), EPOCH_TIME).cast(pa.float64())
        return pc.add(seconds, begin.timestamp())
    if not pa.types.is_string(column.type):
        return event_times(column, zone)
    formats = layout.time.format
    found = pa.nulls(len(column), pa.float64())
    for form in (formats,) if isinstance(formats, str) else formats:
        read = pc.if_else(pc.is_null(found), column, None)
        if form != "iso":
            read = pc.strptime(read, format=form, unit="us", error_is_null=True)
        found = pc.coalesce(found, event_times(read, zone))
        if found.null_count == 0:
            break
    return found


def _field(name: str, kind: pa.DataType, array: pa.Array, layout: Layout) -> pa.Array:
    if name in _TIMES:
        return array if name == "time_s" else pc.floor(array).cast(pa.int64())
    said = texts(array)
    if pa.types.is_list(kind):
        if pa.types.is_nested(array.type):
            return pc.coalesce(array.cast(kind), pa.scalar([], kind))
        if name == "preempts":
            return by_distinct(said, _names, kind)
        return parse_hosts(said)
    if pa.types.is_boolean(kind):
        return pc.is_in(pc.utf8_lower(said), value_set=_TRUE)
    if pa.types.is_string(kind):
        array = pc.utf8_trim_whitespace(said)
        if name == "cause":
            return pc.if_else(is_blank(array), None, array)
        if name == "job_id":
            return _ids(array)
        if name != "state":
            return array
        if layout.any_state:
            return pc.replace_substring_regex(array, _FLAGS, "")
        return by_distinct(pc.utf8_upper(array), _state, pa.string())
    if pa.types.is_floating(array.type):
        known = pc.if_else(pc.is_finite(array), pc.round(array), None)
        bounded = pc.max_element_wise(known, -1e15, skip_nulls=False)
        array = pc.min_element_wise(bounded, 1e15, skip_nulls=False).cast(pa.int64())
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64(), safe=False)  # `table_of` and `clean` see what does not fit
    numbers = parse_integer(said)
    if name in _DURATIONS:
        numbers = pc.coalesce(numbers, parse_duration(said))
    elif name == "gpus":
        resources = matching(said, r"^\s*(gpu\s*$|[A-Za-z][\w/.-]*[=:])")  # TRES or GRES
        numbers = pc.coalesce(numbers, parse_gpus(resources).cast(pa.int64()))
    return numbers


def _ids(jobs: pa.Array) -> pa.Array:
    """Ids that pandas read as numbers with gaps lose their ``.0``; one ``.1`` among them is of a step."""
    filled = jobs.filter(pc.invert(is_blank(jobs)))
    are_numbers = pc.all(pc.match_substring_regex(filled, r"^\d+\.0$")).as_py()
    return pc.replace_substring_regex(jobs, r"\.0$", "") if are_numbers else jobs


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _state(text: str) -> str | None:
    return state_of(text) or (text if text in _OUTAGE_STATES else None)


def _reasons(ours: Mapping[str, pa.Array], theirs: Mapping[str, Column], table: str) -> pa.Array:
    reasons = pa.nulls(len(next(iter(ours.values()))), pa.string())
    for field in [field for field in _REQUIRED[table] if field in ours and field != "state"]:
        absent = pc.is_null(ours[field])
        if pa.types.is_string(ours[field].type):
            absent = is_blank(ours[field])
        reason = _REASONS.get(field, f"no {field} that can be read")
        reasons = pc.coalesce(reasons, pc.if_else(absent, reason, None))
    for field in [field for field in ("node", "check") if field in ours]:
        # A quote that was never closed swallows the lines after it.
        swallowed = pc.fill_null(pc.match_substring(ours[field], "\n"), False)
        reason = f"a line break in {field} (an open quote?)"
        reasons = pc.if_else(swallowed, reason, reasons)
    if table == "node_outages" and "end_s" in ours:  # else the outage would not be over
        blank = is_blank(pc.utf8_trim_whitespace(texts(theirs["end_s"])))
        unread = pc.and_(pc.is_null(ours["end_s"]), pc.invert(blank))
        reasons = pc.coalesce(reasons, pc.if_else(unread, _REASONS["end_s"], None))
    for field in [
        field for field in _COUNTS if field in theirs
    ]:  # else the row would count nothing
        unread = pc.and_(pc.is_null(ours[field]), pc.invert(is_blank(texts(theirs[field]))))
        reasons = pc.coalesce(reasons, pc.if_else(unread, f"no {field} that can be read", None))
    if "state" in ours and "state" in theirs:
        unknown = pc.is_null(ours["state"])
        said = pc.binary_join_element_wise(
            "unknown state ", pc.fill_null(texts(theirs["state"]), "?"), ""
        )
        reasons = pc.coalesce(reasons, pc.if_else(unknown, said, None))
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
        ours["end_s"] = pc.if_else(over, end, None)
    if "node_count" not in ours and "nodes" in ours:
        ours["node_count"] = pc.list_value_length(ours["nodes"])
    if "job_id_raw" not in ours:
        ours["job_id_raw"] = by_distinct(ours["job_id"], _raw_id, pa.int64())


def _raw_id(job: str) -> int:
    return int(job) if job.isdecimal() and len(job) < 19 else text_key(job)


# --- Formats -------------------------------------------------------------------------------------


def _sniff_shipped(layout: Layout, head: bytes, path: Path) -> bool:
    header = header_of(head)
    wanted = layout.recognized
    return (
        header is not None and wanted is not None and layout.fits(header.names, exact=wanted.exact)
    )


def _sniff_json(layout: Layout, head: bytes, path: Path) -> bool:
    objects = first_objects(head)
    return 2 * sum(layout.fits(tuple(each)) for each in objects) > len(objects)


_SHIPPED = parse_config(Path(__file__).with_name("formats.toml"), "formats.toml")


def shipped(name: str) -> Layout:
    """A format of `formats.toml`."""
    return read_config(_SHIPPED[name], Layout, f"the format {name}")


def _shipped(name: str) -> Format:
    layout = shipped(name)
    sniff = partial(_sniff_shipped, layout)
    read = partial(_read_shipped, layout)
    return Format(name, layout.describes, sniff, read)


SLURM_EVENTS, SLURM_QOS, HEALTH_CSV, NODE_LOG = map(
    _shipped, ("slurm-events", "slurm-qos", "health-csv", "node-log")
)
HEALTH_JSON = Format(
    "health-jsonl",
    "health events as JSON lines (time, node, check ...)",
    partial(_sniff_json, shipped("health-csv")),
    partial(read_json, shipped("health-csv")),
)
MAPPED = Format(
    "mapped",
    "any CSV, TSV or Parquet file, with --map FILE.toml",
    lambda head, path: False,  # nothing in the file tells: it is chosen with --map
    _read_mapped,
)
