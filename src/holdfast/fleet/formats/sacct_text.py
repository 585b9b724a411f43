"""`sacct --parsable2`: any columns in any order, steps or not, as real job names leave it.

The text is read in blocks. In a block, Arrow's CSV reader makes columns of the lines that have the
header's number of delimiters; all others, and those whose columns do not hold what they must, go to
`sacct_repair`. Blocks are converted on two threads: Arrow and NumPy work outside the interpreter lock.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import Column, by_distinct, flat, recoded, table_of
from holdfast.fleet.formats.fields import (
    BLANKS,
    are_local,
    duration_s,
    is_blank,
    parse_duration,
    parse_exit_code,
    parse_gpus,
    parse_integer,
    parse_state,
    parse_time,
)
from holdfast.fleet.formats.hosts import excluded_hosts, parse_hosts
from holdfast.fleet.formats.sacct_repair import (
    JOB_ID,
    NEEDED,
    TIMES,
    Header,
    Layout,
    Record,
    find_header,
    header_of,
    looks_headerless,
    repair,
)
from holdfast.fleet.formats.source import LINE_END, Block, Rejects, blocks, valid_utf8
from holdfast.fleet.schema import ATTEMPTS, STEPS

BLOCK_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20  # of a block, that the processor's cache holds while it is parsed
_WORKERS = 2
_LOOK_BACK_LINES = 1000
_UNIT = b"\x1f"  # stands for a delimiter of several characters

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Kinds = dict[str, pa.DataType]

# What Arrow makes of a column as it parses it, if it can; JobID and others are strings
_KINDS: Kinds = {
    **dict.fromkeys(NEEDED - {"JobID"}, pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys(("JobIDRaw", "DBIndex", "Priority", "ElapsedRaw"), pa.int64()),
    **dict.fromkeys(TIMES, pa.timestamp("s")),
}


# --- Blocks --------------------------------------------------------------------------------------


def _blocks(path: Path, header: Header) -> Iterator[Block]:
    """The source cut where a record surely begins."""
    return blocks(path, header.size, BLOCK_BYTES, cut=partial(_boundary, header=header))


def _boundary(data: bytes, header: Header) -> int:
    """The last place between two whole records; the rows of a job and their steps stay together.

    Where no such place is in the last thousand lines: where a line ends, or everything.
    """
    layout = header.layout
    job_id = layout.columns.index("JobID")
    end = data.rfind(b"\n") + 1
    below = b""  # JobID of the job's row below, if it is whole
    for _ in range(_LOOK_BACK_LINES):
        start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
        if start == 0:
            break
        line = data[start:end]
        found = b""
        if _is_record(line, header):
            found = line.split(layout.delimiter.encode(), job_id + 1)[job_id]
        if found and below and found.partition(b".")[0] != below:
            return end
        below = b"" if b"." in found else found
        end = start
    return data.rfind(b"\n") + 1 or len(data)


def _is_record(line: bytes, header: Header) -> bool:
    """Whether a line is a whole record by itself, or the header printed again."""
    bare = line.rstrip(b"\r\n")
    pieces = bare.decode(errors="replace").split(header.layout.delimiter)
    return bare == header.line or header.layout.holds(pieces)


# --- One block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The records of a block as columns of strings."""

    table: pa.Table
    lines: Indices  # Line of each row in the source, 1-based
    rejects: list[tuple[int, str, str]]
    invalid_utf8: int


def _rows(
    block: Block, header: Header, wanted: frozenset[str], kinds: Kinds | None = None
) -> _Rows:
    """The records of a block, repaired where need be.

    A line with the header's number of delimiters whose columns hold what they must is a record; the others
    go to `repair`, with the lines around them.

    Args:
        block: whole lines.
        header: what its columns are.
        wanted: the columns to read.
        kinds: those that are not plain strings; one that holds something else is taken out.
    """
    layout = header.layout
    data, invalid = _clean(block.data)
    if header.line in data:  # printed again (`sacct >> log`)
        data = re.sub(rb"(?m)^%b$" % re.escape(header.line), b"", data)
    table, others = _parsed(data, layout, wanted, {} if kinds is None else kinds)
    # [row of the table] -> line
    strange = np.zeros(len(table) + len(others), bool)
    strange[others] = True
    lines = np.flatnonzero(~strange)  # [row of the table] -> line
    strange[lines[misfits(table)]] = True
    if not strange.any():
        return _Rows(table, block.first_line + lines, [], invalid)
    ends = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) == LINE_END), len(data))
    starts = np.append(0, ends[:-1] + 1)[: len(strange)]  # [line] -> its place in the data
    inside = _stretches(strange & (ends[: len(strange)] > starts))
    usable = ~inside[lines] & _true(pc.not_equal(table["JobID"], ""))  # without empty lines
    repaired = []
    rejects = []
    for low, high in _runs(inside):
        records, refused = repair(data[starts[low] : ends[high - 1]].decode().split("\n"), layout)
        repaired += [(low + line, fields) for line, fields in records]
        rejects += [(block.first_line + low + line, why, raw) for line, why, raw in refused]
    try:
        table, lines = _merge(table, lines, usable, repaired, layout)
    except pa.ArrowInvalid:  # times in two forms, say
        return _rows(block, header, wanted)
    return _Rows(table, block.first_line + lines, rejects, invalid)


def _parsed(
    data: bytes, layout: Layout, wanted: frozenset[str], kinds: Kinds
) -> tuple[pa.Table, list[int]]:
    """The lines of the header's width as columns, and the places of the others."""
    others = []

    def set_aside(row: csv.InvalidRow) -> str:
        others.append(row.number - 1)
        return "skip"

    delimiter = layout.delimiter
    if len(delimiter.encode()) > 1:
        data = data.replace(_UNIT, b" ").replace(delimiter.encode(), _UNIT)
        delimiter = _UNIT.decode()
    # A column may be printed twice (`sacct --format=ALL,End`): the first one counts.
    places = {name: str(layout.columns.index(name)) for name in layout.columns if name in wanted}
    size = _PIECE_BYTES
    while True:
        others.clear()
        types = {place: kinds.get(name, pa.string()) for name, place in places.items()}
        try:
            table = csv.read_csv(
                pa.py_buffer(data),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=size,
                    column_names=[str(place) for place in range(len(layout.columns))],
                ),
                csv.ParseOptions(
                    delimiter=delimiter,
                    quote_char=False,
                    ignore_empty_lines=False,
                    invalid_row_handler=set_aside,
                ),
                csv.ConvertOptions(
                    check_utf8=False,
                    column_types=types,
                    null_values=BLANKS,
                    include_columns=list(types),
                ),
            )
            return table.rename_columns(list(places)).combine_chunks(), others
        except pa.ArrowInvalid as error:
            column = re.match(r"In CSV column #(\d+)", str(error))
            if column and types[column[1]] != pa.string():
                kinds.pop(layout.columns[int(column[1])], None)
            elif size <= len(data):  # a line is longer than that
                size = len(data) + 1
            else:
                raise


def _clean(data: bytes) -> tuple[bytes, int]:
    """Valid UTF-8 with plain line ends, and the number of bytes that were replaced."""
    data, invalid = valid_utf8(data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    return data.replace(b"\0", b" "), invalid


def _runs(mask: Mask) -> list[tuple[int, int]]:
    """The half-open ranges in which the mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]


def _stretches(odd: Mask) -> Mask:
    """Lines to look at together: odd ones, the line above, two below, and what lies between.

    The line above may be the first of a record that continues below, and a line between two odd ones
    may be a part of a name that imitates a record perfectly.
    """
    near = odd.copy()
    near[:-1] |= odd[1:]
    for step in (1, 2):
        near[step:] |= odd[:-step]
    return near


def _merge(
    table: pa.Table, lines: Indices, usable: Mask, repaired: list[Record], layout: Layout
) -> tuple[pa.Table, Indices]:
    """The usable rows of the table with the repaired records in their places, and the lines."""
    columns = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        place = layout.columns.index(name)
        texts = pa.array([fields[place] for _, fields in repaired], pa.string())
        if not (pa.types.is_string(kind) or pa.types.is_dictionary(kind)):
            texts = pc.if_else(is_blank(texts), None, texts)
        columns.append(texts.cast(kind))
    added = pa.Table.from_arrays(columns, schema=table.schema)
    both = pa.concat_tables([table, added]).combine_chunks()
    lines = np.concatenate([lines, np.array([line for line, _ in repaired], np.int64)])
    chosen = np.flatnonzero(np.concatenate([usable, np.ones(len(repaired), bool)]))
    chosen = chosen[np.argsort(lines[chosen], kind="stable")]
    return both.take(pa.array(chosen)), lines[chosen]


# --- Columns -------------------------------------------------------------------------------------


def misfits(raw: pa.Table) -> Mask:
    """Rows in which some column holds what it cannot hold: pieces of a broken record, most likely.

    Args:
        raw: strings, by canonical column name.
    """
    ids = flat(raw["JobID"])
    good = pc.ascii_is_decimal(ids)
    if not pc.all(good, min_count=0).as_py():
        others = pc.match_substring_regex(ids.filter(pc.invert(good)), JOB_ID)
        good = pc.replace_with_mask(good, pc.invert(good), others)
    good = pc.and_(good, pc.is_valid(parse_state(raw["State"])))
    utc = ZoneInfo("UTC")  # which zone does not matter to whether it is a time
    for name in TIMES:
        if name in raw.column_names and not pa.types.is_timestamp(raw[name].type):
            good = pc.and_(good, _is_time_or_blank(flat(raw[name]), utc))
    return np.asarray(pc.invert(good).to_numpy(zero_copy_only=False))


def _is_time_or_blank(values: pa.Array, zone: ZoneInfo) -> pa.Array:
    good = pc.is_valid(parse_time(values, zone))
    if pc.all(good, min_count=0).as_py():
        return good
    # A time before 1971 is read as null: it is one all the same.
    early = pc.match_substring_regex(values, r"^(-?\d{1,9}|19(69|70)-.*)$")
    return pc.or_(good, pc.or_(is_blank(values), early))


def _batch(block: Block, header: Header, options: ReadOptions, source: str, kinds: Kinds) -> Batch:
    rows = _rows(block, header, NEEDED, kinds)
    batch = converted(rows.table, rows.lines, options)
    rejects = Rejects(source, rows.rejects)
    facts = {
        "columns": [name for name in header.layout.columns if name],
        "invalid_utf8": rows.invalid_utf8,
    }
    tables = {**batch.tables, "rejects": rejects.table()}
    return replace(batch, tables=tables, offset=block.end, facts={**batch.facts, **facts})


def converted(raw: pa.Table, lines: Indices, options: ReadOptions) -> Batch:
    """Attempts, and steps that began before the job row that they stand under.

    Args:
        raw: strings, by canonical column name; steps stand below their job.
        lines: place of each row in the source, shape ``[n]``.
        options: the time zone, and the cluster of rows that name none.
    """
    is_step = pc.match_substring(raw["JobID"], ".").to_numpy(zero_copy_only=False)
    times = _times(raw, options.timezone)
    state = parse_state(raw["State"])
    codes = {
        name: parse_exit_code(raw[name])
        for name in ("ExitCode", "DerivedExitCode")
        if name in raw.column_names
    }
    oom, sigterm = _signs(state, codes)
    owner = np.cumsum(~is_step) - 1  # [row] -> which job row it is or stands under
    steps = np.flatnonzero(is_step)
    jobs = np.flatnonzero(~is_step)
    steps_owned = steps[_owned(raw, steps, jobs, owner)] if len(steps) else steps
    for flags in (oom, sigterm):
        hit = jobs[owner[steps_owned[flags[steps_owned]]]]
        flags[hit] = True
    columns = _job_columns(raw, options)
    columns |= {f"{name.lower()}_s": values for name, values in times.items()}
    columns |= dict(zip(("exit_code", "exit_signal"), codes.get("ExitCode", ()), strict=False))
    columns |= {"state": state, "out_of_memory": oom, "sigterm": sigterm}
    early = _early_steps(columns, steps_owned, jobs, owner)
    attempts = table_of(ATTEMPTS, columns, codes=True)
    if len(steps):
        attempts = attempts.take(pa.array(jobs))
    facts = {"local_times": sum(are_local(raw[name]) for name in times)}
    if "AllocGRES" in raw.column_names:
        # Whether its counts are of a node or of the job has changed with Slurm: none is taken over.
        elsewhere = pc.greater(pc.fill_null(parse_gpus(raw["AllocGRES"]), 0), 0)
        none = pc.equal(pc.fill_null(flat(columns["gpus"]), 0), 0)
        facts["gpus_in_gres"] = pc.sum(pc.and_(elsewhere, none).take(pa.array(jobs))).as_py() or 0
    places = {"attempts": pa.array(lines[jobs], pa.int64())}
    return Batch({"attempts": attempts, "steps": early}, 0, len(steps), facts, places)


def _times(raw: pa.Table, zone: ZoneInfo) -> dict[str, pa.Array]:
    names = [name for name in TIMES if name in raw.column_names]
    times = {name: parse_time(flat(raw[name]), zone) for name in names}
    if zone.key != "UTC" and {"Start", "End"} <= set(names):
        late = {name: parse_time(flat(raw[name]), zone, ambiguous="latest") for name in names}
        elapsed = _runtime(raw)
        # In the hour that occurs twice, the elapsed time says which of the two is meant, and no end is
        # before its start.
        fits = pc.equal(pc.subtract(late["End"], times["Start"]), elapsed)
        fits = pc.coalesce(fits, pc.less(times["End"], times["Start"]))
        times["End"] = pc.if_else(pc.fill_null(fits, False), late["End"], times["End"])
        fits = pc.equal(pc.subtract(times["End"], late["Start"]), elapsed)
        times["Start"] = pc.if_else(pc.fill_null(fits, False), late["Start"], times["Start"])
    return times


def _signs(state: pa.Array, codes: Mapping[str, tuple[pa.Array, pa.Array]]) -> tuple[Mask, Mask]:
    """For every row: did memory run out, and did SIGTERM reach it?"""
    oom = _true(by_distinct(state, lambda text: text == "OUT_OF_MEMORY", pa.bool_()))
    sigterm = np.zeros(len(oom), bool)
    for name, (code, signal) in codes.items():
        oom |= _true(pc.and_(pc.equal(code, 0), pc.equal(signal, 125)))
        sigterm |= _true(pc.equal(signal, 15))
        if name == "ExitCode":
            sigterm |= _true(pc.and_(pc.equal(code, 15), pc.equal(signal, 0)))
    return oom, sigterm


def _true(condition: pa.Array) -> Mask:
    """The condition as numpy booleans one may write to; null is false."""
    return np.array(pc.fill_null(condition, False).to_numpy(zero_copy_only=False), dtype=bool)


def _owned(raw: pa.Table, steps: Indices, jobs: Indices, owner: Indices) -> Mask:
    """Which steps stand under the row of their own job."""
    inside = owner[steps] >= 0
    if not len(jobs):
        return np.asarray(inside)
    ids = flat(raw["JobID"])
    base = pc.replace_substring_regex(ids.take(pa.array(steps)), r"\..*$", "")
    above = ids.take(pa.array(jobs[np.maximum(owner[steps], 0)]))
    return np.asarray(inside & _true(pc.equal(base, above)))


_TEXTS = {
    "name": "JobName",
    "user": "User",
    "account": "Account",
    "partition": "Partition",
    "qos": "QOS",
    "work_dir": "WorkDir",
    "reason": "Reason",
    "cluster": "Cluster",
}
# Field -> its column, and how that is read
_CONVERTED: dict[str, tuple[str, Callable[[Column], pa.Array]]] = {
    "db_index": ("DBIndex", parse_integer),
    "priority": ("Priority", parse_integer),
    "restarts": ("Restarts", lambda column: _small(column)),
    "failed_node": ("FailedNode", lambda column: recoded(column, _unless_blank)),
    "excluded_nodes": ("SubmitLine", excluded_hosts),
    "nodes": ("NodeList", parse_hosts),
}


def _job_columns(raw: pa.Table, options: ReadOptions) -> dict[str, Column]:
    """What a row says that needs no other row, by the store's names."""
    have = set(raw.column_names)
    count = len(raw)
    columns = {"cluster": pa.repeat(options.cluster, count)}
    columns |= {target: raw[source] for target, source in _TEXTS.items() if source in have}
    columns |= {
        target: convert(raw[source])
        for target, (source, convert) in _CONVERTED.items()
        if source in have
    }
    job_id = columns["job_id"] = flat(raw["JobID"])
    columns["job_id_raw"] = _raw_id(flat(raw["JobIDRaw"]) if "JobIDRaw" in have else None, job_id)
    columns["attempt"] = pa.array(np.ones(count, np.int32))
    columns["runtime_s"] = _runtime(raw)
    columns["time_limit_s"] = _time_limit(raw)
    counts = [_first(raw, ("NNodes", "AllocNodes"))]
    if "NodeList" in have:
        counts.append(pc.list_value_length(columns["nodes"]).cast(pa.int32()))
    if "AllocTRES" in have:
        counts.append(by_distinct(raw["AllocTRES"], _tres_nodes, pa.int32()))
    columns["node_count"] = pc.coalesce(*counts)
    columns["cpus"] = _cpus(raw)
    columns["gpus"] = _gpus(raw)
    return columns


def _raw_id(raw: pa.Array | None, job_id: pa.Array) -> pa.Array:
    """The controller's number of a job or of a step's job.

    Where JobIDRaw is missing it follows from the JobID of a plain job and of a component of a
    heterogeneous one (``123+1`` is 124), but not of an array task: that stays null.
    """
    if raw is not None and pa.types.is_integer(raw.type):
        return raw
    if raw is not None:
        return parse_integer(pc.replace_substring_regex(raw, r"[.+].*$", ""))
    base = pc.replace_substring_regex(job_id, r"\..*$", "")
    try:
        return base.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    parts = pc.extract_regex(base, r"^(?P<number>\d+)(?:\+(?P<component>\d+))?$")
    number = parse_integer(pc.struct_field(parts, "number"))
    component = parse_integer(pc.struct_field(parts, "component"))
    return pc.add(number, pc.fill_null(component, 0))


def _small(column: Column) -> pa.Array:
    """A column of small whole numbers with few distinct values, as int32."""
    return by_distinct(column, lambda text: int(text) if text.isdecimal() else None, pa.int32())


def _first(raw: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """The first of the named columns that is there and not null, as int32."""
    found = [_small(raw[name]) for name in names if name in raw.column_names]
    return pc.coalesce(*found) if found else pa.nulls(len(raw), pa.int32())


def _cpus(raw: pa.Table) -> pa.Array:
    allocated = _first(raw, ("AllocCPUS", "NCPUS"))
    asked = _first(raw, ("ReqCPUS",))
    none = pc.equal(allocated, 0)
    return pc.coalesce(pc.if_else(none, asked, allocated), allocated, asked)


def _gpus(raw: pa.Table) -> pa.Array:
    """GPUs allocated; requested ones where nothing is allocated yet."""
    have = [name for name in ("AllocTRES", "ReqTRES") if name in raw.column_names]
    return pc.coalesce(pa.nulls(len(raw), pa.int32()), *(parse_gpus(raw[name]) for name in have))


def _tres_nodes(text: str) -> int | None:
    """The nodes of a TRES text: 8 of ``cpu=512,gres/gpu=64,node=8``."""
    found = re.search(r"(?:^|,)node=(\d{1,9})", text)
    return int(found[1]) if found else None


def _unless_blank(text: str) -> str | None:
    return None if text in BLANKS else text


def _runtime(raw: pa.Table) -> pa.Array:
    have = raw.column_names
    if "ElapsedRaw" in have:
        runtime = parse_integer(raw["ElapsedRaw"])
    elif "Elapsed" in have:
        runtime = parse_duration(raw["Elapsed"])
    else:
        return pa.nulls(len(raw), pa.int64())  # the commit takes end - start
    if "Start" not in have:
        return runtime
    never = is_blank(raw["Start"])
    return pc.if_else(never, None, runtime)


def _time_limit(raw: pa.Table) -> pa.Array:
    if "Timelimit" in raw.column_names:
        return by_distinct(raw["Timelimit"], duration_s, pa.int64())
    if "TimelimitRaw" in raw.column_names:  # minutes
        minutes = _small(raw["TimelimitRaw"]).cast(pa.int64())
        return pc.multiply(minutes, 60)
    return pa.nulls(len(raw), pa.int64())


def _early_steps(
    columns: dict[str, Column],
    steps: Indices,
    jobs: Indices,
    owner: Indices,
) -> pa.Table:
    """Steps that began before the job row above them."""
    if not len(steps) or "start_s" not in columns:
        return STEPS.empty_table()
    parents = jobs[owner[steps]]
    start = flat(columns["start_s"])
    before = pc.less(start.take(pa.array(steps)), start.take(pa.array(parents)))
    chosen = _true(before)
    if not chosen.any():
        return STEPS.empty_table()
    at = pa.array(steps[chosen])
    above = pa.array(parents[chosen])
    of_job = ("cluster", "job_id", "job_id_raw", "db_index", "submit_s")
    picked = {
        name: flat(columns[name]).take(above if name in of_job else at)
        for name in STEPS.names
        if name in columns
    }
    return table_of(STEPS, picked)


# --- The format ----------------------------------------------------------------------------------


def read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    """Batches of about 16 MiB of text, in order.

    Raises:
        InputError: if the file cannot be read, or has no header or not the columns JobID and State.
    """
    header = header_of(path)
    kinds = dict(_KINDS)
    waiting = deque()
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="sacct") as workers:
        try:
            for block in _blocks(path, header):
                waiting.append(workers.submit(_batch, block, header, options, str(path), kinds))
                if len(waiting) > _WORKERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def sniff(head: bytes, _: Path) -> bool:
    """Whether the source begins with a header of `sacct`, or with records without one."""
    return find_header(head) is not None or looks_headerless(head)


FORMAT = Format(
    name="sacct",
    describes="output of `sacct --parsable2`, any columns (JobID and State at least), any delimiter",
    sniff=sniff,
    read=read,
)
