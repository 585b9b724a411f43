"""The file of one process -> its start, its events as a table, and the lines that could not be used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from holdfast.lines import LONGEST_LINE_BYTES, Block, Reject, Rejects, blocks
from holdfast.runs.recording.events import EVENTS, Process
from holdfast.runs.recording.lines import KINDS, Event, decode, process_of

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


@dataclass
class _Found:
    """What is gathered while a file is read."""

    rejects: Rejects
    parts: list[pa.Table] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)  # events ready and end
    first_step_t: float | None = None
    last_t: float = 0.0
    beside: int = 0  # spans of other threads
    remarks: list[str] = field(default_factory=list)

    def remark(self, text: str) -> None:
        self.remarks.append(f"{self.rejects.path.name}: {text}")


def read_file(path: Path) -> RankFile:
    """Start, events and unusable lines of one file, in memory that its events need.

    Raises:
        OSError: it cannot be read.
    """
    found = _Found(Rejects(path))
    process: Process | None = None
    with path.open("rb") as file:
        first = file.readline(LONGEST_LINE_BYTES)
        try:
            process = process_of(first, path)
        except ValueError as error:
            _without_start(found, first, str(error))
        else:
            for block in blocks(file, line=2):
                _take(block, found)
    if process is not None:
        process = _followed(process, found)
    rejects = found.rejects
    if rejects.count > len(rejects.kept):
        found.remark(f"{rejects.count - len(rejects.kept):,} further lines are set aside")
    events = pa.concat_tables(found.parts or [EVENTS.empty_table()])
    return RankFile(path, process, events, tuple(rejects.kept), tuple(found.remarks))


def _without_start(found: _Found, first: bytes, reason: str) -> None:
    head = b'{"event":"start"'
    if not first:
        found.remark("empty; its process ended before it could write a line")
    elif not first.endswith(b"\n") and (first.startswith(head) or head.startswith(first)):
        found.remark("its process ended while it wrote the first line")
    else:
        found.rejects.add(1, f"the whole file is set aside: {reason}", first)


# --- Blocks --------------------------------------------------------------------------------------


def _take(block: Block, found: _Found) -> None:
    rows = []
    lines = block.data.split(b"\n")
    for number, line in enumerate(lines, block.first_line):
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except ValueError as error:
            if line is lines[-1]:
                found.remark(f"its last line is cut after {len(line):,} bytes, as a kill leaves it")
            else:
                found.rejects.add(number, str(error), line)
    if rows:
        _note(rows, found)
        found.parts.append(_table([row for row in rows if row.thread is None]))


# --- What the lines say --------------------------------------------------------------------------


def _note(rows: list[Event], found: _Found) -> None:
    """Keep what the lines say of the process itself."""
    found.last_t = max(found.last_t, *(row.t for row in rows))
    found.beside += sum(row.thread is not None for row in rows)
    found.told += [row for row in rows if row.event in ("ready", "end")]
    if found.first_step_t is None:
        begins = (max(0.0, row.t - (row.seconds or 0.0)) for row in rows if row.event == "step")
        found.first_step_t = next(begins, None)


def _followed(process: Process, found: _Found) -> Process:
    """The process with what its later events say of it."""
    ready = [event for event in found.told if event.event == "ready"]
    ends = [event for event in found.told if event.event == "end"]
    lost = max((event.lost or 0 for event in ends), default=0)
    if lost:
        found.remark(f"{lost:,} events could not be written when they happened")
    if found.beside:
        found.remark(f"{found.beside:,} spans of other threads ran beside the training: left out")
    # A program that catches the signal may go on for a while; it was still told to end.
    end = next((each for each in ends if each.how == "signal"), ends[-1] if ends else None)
    how = None if end is None else end.how
    return replace(
        process,
        ready_t=ready[0].t if ready else found.first_step_t,
        resumed_from=ready[0].resumed_from if ready else None,
        last_t=found.last_t,
        end=cast(Any, how) if how in ("clean", "exception", "signal") else "none",
        end_detail="" if end is None else end.detail or "",
    )


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
