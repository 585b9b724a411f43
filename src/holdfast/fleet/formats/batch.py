"""What every format reader yields, and what ingest tells it; rows that cannot be.

An impossible row is one reject, the same for every format, and changes no figure: a node whose clock was
never set, a wrapped counter or a damaged field would else become negative GPU-hours or move the end of the
log.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats.columns import Column, flat, limits, replaced, whole, with_cluster
from holdfast.fleet.formats.source import Rejects
from holdfast.fleet.schema import REJECTS

EARLIEST_S = 631_152_000  # 1990-01-01: before the oldest log of a batch system
LATEST_S = 4_102_444_800  # 2100-01-01
DAY_S = 86_400
# Local times in the hour that a change of clocks repeats are ambiguous by up to an hour.
CLOCK_SLACK_S = 3_600
SUSPENDED_S = 30 * DAY_S  # Elapsed leaves suspension out; nobody suspends a job for longer
LONGEST_S = 10 * 365 * DAY_S
MOST_NODES = 1_000_000
MOST_PER_NODE = {"gpus": 1_000, "cpus": 100_000}
# A machine whose own clock was never set must not reject every row: it is at least this late.
RELEASED_S = 1_798_761_600  # 2027-01-01

SEVERAL = "node is a list or a part of one: name one node per row"

FloatArray = npt.NDArray[np.float64]

_TIMES = ("time_s", "submit_s", "eligible_s", "start_s", "end_s")
_PAST = ("time_s", "submit_s", "start_s")  # what a log cannot have seen yet
_COUNTS = ("node_count", "gpus", "cpus", "restarts", "runtime_s", "time_limit_s")
_CHECKED = {*_TIMES, *_COUNTS, "job_id_raw", "nodes"}


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know beyond the file itself."""

    # Zone of times that are written without one (sacct prints local time)
    timezone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    cluster: str = ""  # Cluster name for formats that do not carry one
    # TOML map from the columns of a CSV or Parquet file to the schema
    column_map: Path | None = None
    last_job_s: float = 0  # The last time of an attempt that is known; 0: none is


@dataclass(frozen=True)
class Batch:
    """A piece of a source, read: rows in the schemas of `holdfast.fleet.schema`."""

    # Name in `schema.TABLES` (or "steps") -> rows. The column `key` may be left out; ingest fills
    # it
    tables: Mapping[str, pa.Table]
    offset: int = 0  # Bytes of the decompressed source consumed so far
    steps: int = 0  # sacct step records in this piece (they are not jobs)
    # What the reader noticed about the source, for `store.json` (columns, version, time zone ...)
    facts: Mapping[str, object] = field(default_factory=dict)
    # Table -> 1-based line of each of its rows in the source, where the reader knows it
    lines: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """One input format: how to recognise it and how to read it."""

    name: str  # As the user writes it after ``--format``
    describes: str  # One line for the help text and for errors
    # (first 64 KiB of the decompressed source, path) -> is it this format?
    sniff: Callable[[bytes, Path], bool]
    # (path, options) -> batches, in order, as the file has them
    read: Callable[[Path, ReadOptions], Iterator[Batch]]

    def batches(self, path: Path, options: ReadOptions) -> Iterator[Batch]:
        """What `read` gives, with impossible rows among the rejects (`clean`)."""
        for batch in self.read(path, options):
            columns = batch.facts.get("columns")
            if isinstance(columns, list):
                _require_times(path, columns)
            tables = dict(batch.tables)
            if "attempts" in tables:
                tables["attempts"] = _without_plans(tables["attempts"])
            tables = clean(tables, batch.lines, path)
            tables = {name: with_cluster(table, options.cluster) for name, table in tables.items()}
            facts = dict(batch.facts)
            if "attempts" in tables:
                nodes = tables["attempts"]["nodes"]
                facts["unreadable_node_lists"] = nodes.null_count
                if nodes.null_count:  # as if there were none
                    known = pc.coalesce(whole(nodes), pa.scalar([], nodes.type))
                    tables["attempts"] = replaced(tables["attempts"], "nodes", known)
            yield replace(batch, tables=tables, facts=facts)


def _without_plans(attempts: pa.Table) -> pa.Table:
    """The attempts; one that is pending has no start and no end, whatever its scheduler expects."""
    waits = pc.fill_null(pc.equal(flat(attempts["state"]).cast(pa.string()), "PENDING"), False)
    if pc.any(waits).as_py():
        for name in ("start_s", "end_s", "runtime_s"):
            attempts = replaced(attempts, name, pc.if_else(waits, None, flat(attempts[name])))
    return attempts


def _require_times(path: Path, columns: list[str]) -> None:
    """Refuse a log of `sacct` whose attempts have no times: it would show no failure at all."""
    missing = [name for name in ("Start", "End") if name not in columns]
    if missing:
        raise InputError(
            f"missing column: {' and '.join(missing)}; without it no failure rate is known",
            code="missing-column",
            path=path,
            place="header",
            found=", ".join(columns[:12]),
            expected="at least JobID, State, Submit, Start, End, NodeList",
            remedy="export again with `sacct -a -D -P --format=ALL`",
        )


# --- Impossible rows -----------------------------------------------------------------------------


def faults(table: pa.Table) -> pa.Array:
    """Why each row of a table of the store cannot be, shape ``[n]``; null: it can.

    Checks the columns of `schema.TABLES` that the table has: one node per row, times from 1990 to 2100 and
    not in the future, an end after its start, a start after its submission, counts and durations that fit
    the column and each other.
    """
    # As doubles no sum overflows; whole numbers of a log that can be are exact. Null is not a number,
    # and of what is not a number no comparison is true.
    rows = {}
    for name in [name for name in table.column_names if name in _CHECKED]:
        column = flat(table[name])
        if pa.types.is_list(column.type):
            column = pc.list_value_length(column)
        elif pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), np.inf, column)
        rows[name] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    reasons = pa.nulls(len(table), pa.string())
    if "node" in table.column_names:
        lists = pc.match_substring_regex(flat(table["node"]), r"[\[\],]")
        reasons = pc.if_else(pc.fill_null(lists, False), SEVERAL, reasons)
    for fails, reason in _impossible(rows, table.schema):
        if fails.any():
            reasons = pc.if_else(pc.and_(fails, pc.is_null(reasons)), reason, reasons)
    return reasons


def latest_s() -> float:
    """The last moment that a log can have seen."""
    return max(time.time(), RELEASED_S) + DAY_S


def _impossible(
    rows: Mapping[str, FloatArray], schema: pa.Schema
) -> Iterator[tuple[npt.NDArray[np.bool_], str]]:
    """Which rows fail a check, and the reason; the first counts."""
    now = latest_s()
    unknown = np.full(len(next(iter(rows.values()), [])), np.nan)
    of = defaultdict(lambda: unknown, rows)
    for name in [name for name in _TIMES if name in rows]:
        early_or_late = (of[name] < EARLIEST_S) | (of[name] >= LATEST_S)
        yield early_or_late, f"{name} is before 1990 or after 2100"
        # The end of an outage may be planned; that of an attempt is seen.
        if name in _PAST or (name == "end_s" and "submit_s" in rows):
            yield of[name] > now, f"{name} lies in the future"
    spent_s = of["end_s"] - of["start_s"]
    nodes = of["node_count"]
    yield spent_s < 0, "it ends before it starts"
    yield of["start_s"] + CLOCK_SLACK_S < of["submit_s"], "it starts before it was submitted"
    for name in [name for name in _COUNTS if name in rows]:
        most = MOST_NODES + 1 if name == "node_count" else limits(schema.field(name).type)[1]
        yield of[name] < 0, f"{name} is negative or no number"
        yield of[name] >= most, f"{name} is too large"
    yield of["job_id_raw"] >= 2**63 - 1, "job_id_raw is too large"
    if {"start_s", "end_s", "runtime_s"} <= rows.keys():
        yield of["runtime_s"] > LONGEST_S, "runtime_s is too large"
        between = "it ran for {} than from its start to its end"
        surplus = of["runtime_s"] - spent_s
        yield surplus > CLOCK_SLACK_S, between.format("longer")
        never = (of["runtime_s"] == 0) & (spent_s > CLOCK_SLACK_S)  # nobody suspends it at once
        yield (surplus < -SUSPENDED_S) | never, between.format("far less")
        last_seen = of["start_s"] + of["runtime_s"]
        running = np.isnan(of["end_s"]) & (last_seen > now)
        yield running, "it has run for longer than since its start"
    unlike = ~np.isnan(of["start_s"]) & (of["nodes"] > 0) & (abs(of["nodes"] - nodes) > 0)
    yield unlike, "node_count is not that of the node list"
    if "node_count" in rows:
        for name, most in MOST_PER_NODE.items():
            many = of[name] > most * np.fmax(nodes, 1)
            yield many, f"{name} is too large for so many nodes"


def clean(
    tables: Mapping[str, pa.Table], lines: Mapping[str, Column], source: Path
) -> dict[str, pa.Table]:
    """The tables of a batch without impossible rows, which go to its rejects.

    Args:
        tables: as a format reads them.
        lines: table -> 1-based line of each row in the source, where the format knows it.
        source: what was read.
    """
    result = dict(tables)
    for name in [name for name in tables if name != "rejects"]:
        reasons = faults(tables[name])
        if reasons.null_count == len(reasons):
            continue
        bad = pc.is_valid(reasons)
        result[name] = tables[name].filter(pc.invert(bad))
        line = lines.get(name, pa.nulls(len(reasons), pa.int64()))
        rows = tables[name].filter(bad).to_pylist()
        raw = [{k: v for k, v in row.items() if v not in (None, "", [])} for row in rows]
        rejects = Rejects(str(source))
        rejects.add_all(reasons.filter(bad), flat(line).filter(bad), map(json.dumps, raw))
        before = result.get("rejects", REJECTS.empty_table())
        result["rejects"] = pa.concat_tables([before, rejects.table()]).sort_by("line")
    return result
