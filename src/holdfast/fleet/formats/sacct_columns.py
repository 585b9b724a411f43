"""The string columns of `sacct` turned into attempts, and into the steps that precede their job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.columns import Column, by_distinct, flat, table_of
from holdfast.fleet.formats.fields import (
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
from holdfast.fleet.formats.sacct_fields import JOB_ID, SUBMIT_LINE, TIMES
from holdfast.fleet.schema import ATTEMPTS, STEPS

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Converted:
    """The records of a piece of a log, by kind."""

    attempts: pa.Table
    """In the schema ATTEMPTS; `key` is null."""
    steps: pa.Table
    """In the schema STEPS: only those that began before the job row that they stand under."""
    step_count: int
    attempt_rows: npt.NDArray[np.int64]
    """Row of `raw` of each attempt."""
    unreadable_node_lists: int
    """Rows whose NodeList is cut off or no host list; their `nodes` is empty."""


def misfits(raw: pa.Table) -> Mask:
    """Rows in which some column holds what it cannot hold: pieces of a broken record, most likely.

    Args:
        raw: strings, by canonical column name.
    """
    good = pc.match_substring_regex(flat(raw["JobID"]), JOB_ID)
    good = pc.and_(good, pc.is_valid(parse_state(_coded(raw["State"]))))
    utc = ZoneInfo("UTC")  # which zone does not matter to whether it is a time
    for name in TIMES:
        if name in raw.column_names:
            good = pc.and_(good, _is_time_or_blank(flat(raw[name]), utc))
    if "SubmitLine" in raw.column_names:
        submitted = pc.match_substring_regex(flat(raw["SubmitLine"]), SUBMIT_LINE)
        if 2 * (pc.sum(submitted).as_py() or 0) >= len(raw):  # else a site's own command submits
            good = pc.and_(good, submitted)
    return np.asarray(pc.invert(good).to_numpy(zero_copy_only=False))


def _is_time_or_blank(values: pa.Array, zone: ZoneInfo) -> pa.Array:
    good = pc.is_valid(parse_time(values, zone))
    if pc.all(good, min_count=0).as_py():
        return good
    odd = np.flatnonzero(~good.to_numpy(zero_copy_only=False))
    rest = values.take(pa.array(odd))
    # A time before 1971 is read as null: it is one all the same.
    fine = pc.or_(is_blank(rest), pc.match_substring_regex(rest, r"^(-?\d{1,9}|19(69|70)-.*)$"))
    answer = good.to_numpy(zero_copy_only=False).copy()
    answer[odd] = fine.to_numpy(zero_copy_only=False)
    return pa.array(answer)


def _coded(column: Column) -> pa.Array:
    """One dictionary array (distinct strings and their places) of a column."""
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries() if pa.types.is_dictionary(array.type) else array
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else flat(array)
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def convert(raw: pa.Table, options: ReadOptions) -> Converted:
    """Attempts and early steps of records in the order in which `sacct` printed them.

    Args:
        raw: strings, by canonical column name, steps below their job; every row fits (`misfits`).
        options: time zone and cluster name for logs without them.
    """
    job_id = flat(raw["JobID"])
    is_step = pc.match_substring(job_id, ".").to_numpy(zero_copy_only=False)
    times = _times(raw, options.timezone)
    state = parse_state(_coded(raw["State"]))
    oom, sigterm = _signs(raw, state)
    owner = np.cumsum(~is_step) - 1  # [row] -> which job row it is or stands under
    steps = np.flatnonzero(is_step)
    jobs = np.flatnonzero(~is_step)
    steps_owned = steps[_owned(raw, steps, jobs, owner)] if len(steps) else steps
    for flags in (oom, sigterm):
        hit = jobs[owner[steps_owned[flags[steps_owned]]]]
        flags[hit] = True
    columns = _job_columns(raw, options)
    unreadable = columns["nodes"].null_count if "nodes" in columns else 0
    if unreadable:
        columns["nodes"] = pc.fill_null(columns["nodes"], [])
    columns |= {f"{name.lower()}_s": values for name, values in times.items()}
    columns |= {"state": state, "out_of_memory": pa.array(oom), "sigterm": pa.array(sigterm)}
    early = _early_steps(columns, steps_owned, jobs, owner)
    attempts = table_of(ATTEMPTS, columns, len(raw))
    if len(steps):
        attempts = attempts.take(pa.array(jobs))
    return Converted(attempts, early, len(steps), jobs, unreadable)


def _times(raw: pa.Table, zone: ZoneInfo) -> dict[str, pa.Array]:
    names = [name for name in TIMES if name in raw.column_names]
    times = {name: parse_time(flat(raw[name]), zone) for name in names}
    if zone.key != "UTC" and "ElapsedRaw" in raw.column_names and {"Start", "End"} <= set(names):
        late = {name: parse_time(flat(raw[name]), zone, ambiguous="latest") for name in names}
        elapsed = parse_integer(raw["ElapsedRaw"])
        # In the hour that occurs twice, the elapsed time says which of the two is meant.
        fits = pc.equal(pc.subtract(late["End"], times["Start"]), elapsed)
        times["End"] = pc.if_else(pc.fill_null(fits, False), late["End"], times["End"])
        fits = pc.equal(pc.subtract(times["End"], late["Start"]), elapsed)
        times["Start"] = pc.if_else(pc.fill_null(fits, False), late["Start"], times["Start"])
    return times


def _signs(raw: pa.Table, state: pa.Array) -> tuple[Mask, Mask]:
    """For every row: did memory run out, and did SIGTERM reach it?"""
    oom = _true(pc.equal(state, "OUT_OF_MEMORY"))
    sigterm = np.zeros(len(oom), bool)
    for name in ("ExitCode", "DerivedExitCode"):
        if name not in raw.column_names:
            continue
        code, signal = parse_exit_code(_coded(raw[name]))
        oom |= _true(pc.and_(pc.equal(code, 0), pc.equal(signal, 125)))
        sigterm |= _true(pc.equal(signal, 15))
        if name == "ExitCode":
            sigterm |= _true(pc.and_(pc.equal(code, 15), pc.equal(signal, 0)))
    return oom, sigterm


def _true(condition: pa.Array) -> Mask:
    """The condition as numpy booleans one may write to; null is false."""
    return np.array(pc.fill_null(condition, False).to_numpy(zero_copy_only=False), dtype=bool)


def _owned(
    raw: pa.Table, steps: npt.NDArray[Any], jobs: npt.NDArray[Any], owner: npt.NDArray[Any]
) -> Mask:
    """Which steps stand under the row of their own job."""
    inside = owner[steps] >= 0
    if not len(jobs):
        return np.asarray(inside)
    ids = flat(raw["JobID"])
    base = pc.replace_substring_regex(ids.take(pa.array(steps)), r"\..*$", "")
    above = ids.take(pa.array(jobs[np.maximum(owner[steps], 0)]))
    return np.asarray(inside & _true(pc.equal(base, above)))


def _job_columns(raw: pa.Table, options: ReadOptions) -> dict[str, Column]:
    """What a row says that needs no other row, by the store's names."""
    have = set(raw.column_names)
    columns: dict[str, Column] = {
        target: flat(raw[source])
        for target, source in (
            ("name", "JobName"),
            ("user", "User"),
            ("account", "Account"),
            ("partition", "Partition"),
            ("qos", "QOS"),
            ("work_dir", "WorkDir"),
            ("reason", "Reason"),
        )
        if source in have
    }
    count = len(raw)
    job_id = flat(raw["JobID"])
    columns["job_id"] = job_id
    columns["job_id_raw"] = _raw_id(flat(raw["JobIDRaw"]) if "JobIDRaw" in have else None, job_id)
    columns["attempt"] = pa.array(np.ones(count, np.int32))
    named = pa.array([options.cluster] * count if options.cluster else [""] * count, pa.string())
    columns["cluster"] = flat(raw["Cluster"]) if "Cluster" in have else named
    for target, source in (("db_index", "DBIndex"), ("priority", "Priority")):
        if source in have:
            columns[target] = parse_integer(raw[source])
    if "Restarts" in have:
        columns["restarts"] = _small(raw["Restarts"])
    if "ExitCode" in have:
        columns["exit_code"], columns["exit_signal"] = parse_exit_code(_coded(raw["ExitCode"]))
    if "FailedNode" in have:
        columns["failed_node"] = _unless_blank(raw["FailedNode"])
    if "SubmitLine" in have:
        columns["excluded_nodes"] = excluded_hosts(raw["SubmitLine"])
    columns["runtime_s"] = _runtime(raw)
    columns["time_limit_s"] = _time_limit(raw)
    if "NodeList" in have:
        columns["nodes"] = parse_hosts(_coded(raw["NodeList"]))
    columns["node_count"] = _first(raw, ("NNodes", "AllocNodes"))
    if "NodeList" in have:
        lengths = pc.list_value_length(columns["nodes"]).cast(pa.int32())
        columns["node_count"] = pc.coalesce(columns["node_count"], lengths)
    columns["cpus"] = _cpus(raw)
    columns["gpus"] = _gpus(raw, columns["node_count"])
    return columns


def _raw_id(raw: pa.Array | None, job_id: pa.Array) -> pa.Array:
    """The controller's number of a job or of a step's job.

    Where JobIDRaw is missing it follows from the JobID of a plain job and of a component of a
    heterogeneous one (``123+1`` is 124), but not of an array task: that stays null.
    """
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

    def number(text: str) -> int | None:
        digits = text.removesuffix("K").removesuffix("M").removesuffix("G")
        scale = {"K": 1000, "M": 1000**2, "G": 1000**3}.get(text[-1:], 1)
        decimal = digits.replace(".", "", 1).isdecimal()
        return int(min(float(digits) * scale, 2**62)) if decimal else None

    return by_distinct(_coded(column), number, pa.int32())


def _first(raw: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """The first of the named columns that is there and not null, as int32."""
    found = [_small(raw[name]) for name in names if name in raw.column_names]
    return pc.coalesce(*found) if found else pa.nulls(len(raw), pa.int32())


def _cpus(raw: pa.Table) -> pa.Array:
    allocated = _first(raw, ("AllocCPUS", "NCPUS"))
    asked = _first(raw, ("ReqCPUS",))
    none = pc.equal(allocated, 0)
    return pc.coalesce(pc.if_else(none, asked, allocated), allocated, asked)


def _gpus(raw: pa.Table, node_count: pa.Array) -> pa.Array:
    """GPUs allocated; requested ones where nothing is allocated yet."""

    def column(name: str) -> pa.Array:
        if name not in raw.column_names:
            return pa.nulls(len(raw), pa.int32())
        return parse_gpus(_coded(raw[name]))

    # A site that does not track gres/gpu as a TRES still prints AllocGRES (before Slurm 20.11).
    allocated = pc.max_element_wise(column("AllocTRES"), column("AllocGRES"))
    found = pc.coalesce(allocated, column("ReqTRES"))
    if "ReqGRES" not in raw.column_names:
        return found
    asked = column("ReqGRES")
    a_node = _true(pc.starts_with(flat(raw["ReqGRES"]), "PER_NODE:"))
    per_node = by_distinct(
        flat(raw["ReqGRES"]),
        lambda text: _per_node(text),
        pa.int32(),
    )
    each = pc.multiply(per_node.cast(pa.int64()), pc.fill_null(node_count, 1))
    return pc.coalesce(found, pc.if_else(pa.array(a_node), each, asked))


def _per_node(text: str) -> int | None:
    from holdfast.fleet.formats.fields import gpus_of

    return gpus_of(text.removeprefix("PER_NODE:"))


def _unless_blank(column: Column) -> pa.Array:
    array = flat(column)
    return pc.if_else(is_blank(array), pa.scalar(None, pa.string()), array)


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
    return pc.if_else(never, pa.scalar(None, pa.int64()), runtime)


def _time_limit(raw: pa.Table) -> pa.Array:
    if "Timelimit" in raw.column_names:
        return by_distinct(_coded(raw["Timelimit"]), duration_s, pa.int64())
    if "TimelimitRaw" in raw.column_names:  # minutes
        minutes = _small(raw["TimelimitRaw"]).cast(pa.int64())
        return pc.multiply(minutes, 60)
    return pa.nulls(len(raw), pa.int64())


def _early_steps(
    columns: dict[str, Column],
    steps: npt.NDArray[Any],
    jobs: npt.NDArray[Any],
    owner: npt.NDArray[Any],
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
    at, above = pa.array(steps[chosen]), pa.array(parents[chosen])
    of_job = ("cluster", "job_id", "job_id_raw", "db_index", "submit_s")
    picked = {
        name: flat(columns[name]).take(above if name in of_job else at)
        for name in STEPS.names
        if name in columns
    }
    return table_of(STEPS, picked, int(chosen.sum()))
