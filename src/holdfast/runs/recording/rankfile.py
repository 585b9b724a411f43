"""The file of one process -> its start, its events as a table, and the lines that could not be used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from holdfast.lines import LONGEST_LINE_BYTES, Block, Reject, Rejects, blocks
from holdfast.runs.recording.events import Process
from holdfast.runs.recording.lines import KINDS, Event, decode, process_of

EVENTS = pa.schema(
    [
        pa.field("process", pa.int32()),  # index into `RecordedRun.processes`
        pa.field("event", pa.dictionary(pa.int8(), pa.string())),  # kind, see the module
        pa.field("t", pa.float64()),  # seconds since the process's recorder opened, monotonic
        pa.field("seconds", pa.float64()),  # length of a span, else null
        pa.field("inner_s", pa.float64()),  # of it inside nested spans; 0 without
        pa.field("step", pa.int64()),
        pa.field("tokens", pa.float64()),
        pa.field("samples", pa.float64()),
        pa.field("sync_s", pa.float64()),  # null: not measured
        pa.field("collective_s", pa.float64()),  # of it in collectives; null: not told apart
        pa.field("loss", pa.float64()),
        pa.field("grad_norm", pa.float64()),
        pa.field("weight_norm", pa.float64()),  # of a replicated model
        pa.field("background_s", pa.float64()),
        pa.field("bytes", pa.int64()),
        pa.field("what", pa.string()),  # of `begin`; the reason of a `pause`
    ]
)
"""Columns of `RecordedRun.events`, ordered by process and, within one, as they were written."""
_CODES = {kind: code for code, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class RankFile:
    """What a file holds."""

    path: Path
    process: Process | None
    """None: nobody can say what the file belongs to, and all of it is set aside."""
    events: pa.Table
    """In `EVENTS`, ``process`` all null."""
    rejects: tuple[Reject, ...] = ()
    remarks: tuple[str, ...] = ()


def read_file(path: Path) -> RankFile:
    """Start, events and unusable lines of one file, in memory that its events need.

    Raises:
        OSError: it cannot be read.
    """
    rejects, remarks, rows = Rejects(path), list[str](), list[Event]()
    process: Process | None = None
    with path.open("rb") as file:
        first = file.readline(LONGEST_LINE_BYTES)
        try:
            process = process_of(first, path)
        except ValueError as error:
            remarks += _without_start(first, str(error), rejects)
        else:
            for block in blocks(file, line=2):
                rows += _rows(block, rejects, remarks)
    if process is not None:
        process = _followed(process, rows)
        remarks += _beside(rows)
    if rejects.count > len(rejects.rows):
        remarks.append(f"{rejects.count - len(rejects.rows):,} further lines are set aside")
    events = _table([row for row in rows if row.thread is None])
    told = tuple(f"{path.name}: {remark}" for remark in remarks)
    return RankFile(path, process, events, tuple(rejects.rows), told)


def _without_start(first: bytes, reason: str, rejects: Rejects) -> list[str]:
    """Why a file has no start: remarks, or a reject."""
    head = b'{"event":"start"'
    if not first:
        return ["empty; its process ended before it could write a line"]
    if not first.endswith(b"\n") and (first.startswith(head) or head.startswith(first)):
        return ["its process ended while it wrote the first line"]
    rejects.add(1, f"the whole file is set aside: {reason}", first)
    return []


def _rows(block: Block, rejects: Rejects, remarks: list[str]) -> list[Event]:
    """The events of a block."""
    rows = []
    lines = block.data.split(b"\n")
    for number, line in enumerate(lines, block.first_line):
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except ValueError as error:
            if line is lines[-1]:
                remarks.append(
                    f"its last line is cut after {len(line):,} bytes, as a kill leaves it"
                )
            else:
                rejects.add(number, str(error), line)
    return rows


def _followed(process: Process, rows: list[Event]) -> Process:
    """The process with what its later events say of it."""
    ready = [row for row in rows if row.event == "ready"]
    ends = [row for row in rows if row.event == "end"]
    first = next(
        (max(0.0, row.t - (row.seconds or 0.0)) for row in rows if row.event == "step"), None
    )
    # A program that catches the signal may go on for a while; it was still told to end.
    end = next((each for each in ends if each.how == "signal"), ends[-1] if ends else None)
    how = None if end is None else end.how
    return replace(
        process,
        ready_t=ready[0].t if ready else first,
        resumed_from=ready[0].resumed_from if ready else None,
        last_t=max((row.t for row in rows), default=0.0),
        end=cast(Any, how) if how in ("clean", "exception", "signal") else "none",
        end_detail="" if end is None else end.detail or "",
    )


def _beside(rows: list[Event]) -> list[str]:
    """What the events do not tell: those that were lost, and those of other threads."""
    lost = max((row.lost or 0 for row in rows), default=0)
    remarks = [f"{lost:,} events could not be written when they happened"] if lost else []
    if beside := sum(row.thread is not None for row in rows):
        remarks.append(f"{beside:,} spans of other threads ran beside the training: left out")
    return remarks


def _table(rows: list[Event]) -> pa.Table:
    """`EVENTS` of some lines: the spans of the process's own thread, and all other events."""
    codes = pa.array([_CODES[row.event] for row in rows], pa.int8())
    made: dict[str, list[Any] | pa.Array] = {
        "process": [None] * len(rows),
        "event": pa.DictionaryArray.from_arrays(codes, pa.array(KINDS)),
        "inner_s": [row.inner_s or 0.0 for row in rows],
        "what": [row.reason if row.what is None else row.what for row in rows],
    }
    columns = []
    for each in EVENTS:
        values = made[each.name] if each.name in made else [*map(attrgetter(each.name), rows)]
        if isinstance(values, list) and not any(value is not None for value in values):
            # Columns without any value share their memory with all others of their type.
            values = _nulls(each.type, 1 << len(rows).bit_length()).slice(0, len(rows))
        columns.append(values if isinstance(values, pa.Array) else pa.array(values, each.type))
    return pa.table(columns, schema=EVENTS)


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)
