"""The file of one process -> its start, its events as a table, and the lines that could not be used.

Blocks of whole lines go to Arrow's reader, which either takes a block completely or not at all; only in
one that it does not take is each line looked at by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from holdfast.lines import LONGEST_LINE_BYTES, Block, Reject, Rejects, blocks
from holdfast.runs.recording.events import EVENTS, SPANS, Process
from holdfast.runs.recording.lines import (
    AMOUNTS,
    KINDS,
    MAY_BE_NOT_FINITE,
    NOT_FINITE,
    TEXTS,
    WHOLE,
    decode_later,
    process_of,
)

_AS_TEXT = "{} as text"  # a field of ours for what is text where a number is expected
_KINDS = pa.array(KINDS)
_SPAN_CODES = np.array([KINDS.index(kind) for kind in SPANS])
_START_CODE = KINDS.index("start")

RAW = pa.schema(
    [("event", pa.string())]
    + [(name, pa.float64()) for name in ("t", *AMOUNTS, *MAY_BE_NOT_FINITE)]
    + [(_AS_TEXT.format(name), pa.string()) for name in MAY_BE_NOT_FINITE]
    + [(name, pa.int64()) for name in WHOLE]
    + [(name, pa.string()) for name in TEXTS]
)
"""Fields of lines, before they become `EVENTS`."""


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
    told: list[dict[str, Any]] = field(default_factory=list)  # events ready and end
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
    raw = _at_once(block.data)
    if raw is None:
        raw = _line_by_line(block, found)
    if raw.num_rows:
        _note(raw, found)
        found.parts.append(_made(raw))


def _at_once(block: bytes) -> pa.Table | None:
    """All lines of a block; None if there is anything about any of them."""
    if not block.isascii() or not block.endswith(b"\n"):
        return None
    lines = block.count(b"\n")
    for name in MAY_BE_NOT_FINITE:  # a quote inside a text is escaped, so this is the field itself
        block = block.replace(f'"{name}":"'.encode(), f'"{_AS_TEXT.format(name)}":"'.encode())
    try:
        raw = pj.read_json(
            pa.BufferReader(block),
            parse_options=pj.ParseOptions(
                explicit_schema=RAW, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowException, ValueError):
        return None
    raw = raw.select(RAW.names).combine_chunks()
    return raw if raw.num_rows == lines and _usable(raw) else None


def _usable(raw: pa.Table) -> bool:
    """Whether every line is an event of the format; the same rules as `decode`'s."""
    kinds = pc.index_in(raw["event"], value_set=_KINDS)
    if kinds.null_count or raw["t"].null_count:
        return False
    codes = kinds.to_numpy()
    if (codes == _START_CODE).any():
        return False
    spans = np.isin(codes, _SPAN_CODES)
    if (spans & raw["seconds"].is_null().to_numpy()).any():
        return False
    for name in ("t", *AMOUNTS, *MAY_BE_NOT_FINITE):  # Arrow takes a bare NaN for JSON
        if raw[name].null_count < raw.num_rows and not pc.all(pc.is_finite(raw[name])).as_py():
            return False
    for name in ("t", *AMOUNTS):
        if (pc.min(raw[name]).as_py() or 0.0) < 0:
            return False
    for name in MAY_BE_NOT_FINITE:
        texts = raw[_AS_TEXT.format(name)]
        if pc.index_in(texts, value_set=pa.array(NOT_FINITE)).null_count > texts.null_count:
            return False
    return True


def _line_by_line(block: Block, found: _Found) -> pa.Table:
    """The lines of a block that can be used; the others are set aside."""
    rows = []
    lines = block.data.split(b"\n")
    for number, line in enumerate(lines, block.first_line):
        if not line.strip():
            continue
        try:
            rows.append(decode_later(line))
        except ValueError as error:
            if line is lines[-1]:
                found.remark(f"its last line is cut after {len(line):,} bytes, as a kill leaves it")
            else:
                found.rejects.add(number, str(error), line)
    return pa.Table.from_pylist(rows, schema=RAW)


# --- What the lines say --------------------------------------------------------------------------


def _note(raw: pa.Table, found: _Found) -> None:
    """Keep what the lines say of the process itself."""
    found.last_t = max(found.last_t, pc.max(raw["t"]).as_py())
    found.beside += raw.num_rows - raw["thread"].null_count
    told = raw.filter(pc.is_in(raw["event"], value_set=pa.array(["ready", "end"])))
    found.told += told.select(["event", "t", "resumed_from", "how", "detail", "lost"]).to_pylist()
    if found.first_step_t is None:
        steps = raw.filter(pc.equal(raw["event"], "step")).slice(0, 1).to_pylist()
        if steps:
            found.first_step_t = max(0.0, steps[0]["t"] - steps[0]["seconds"])


def _followed(process: Process, found: _Found) -> Process:
    """The process with what its later events say of it."""
    ready = [event for event in found.told if event["event"] == "ready"]
    ends = [event for event in found.told if event["event"] == "end"]
    lost = max((event["lost"] or 0 for event in ends), default=0)
    if lost:
        found.remark(f"{lost:,} events could not be written when they happened")
    if found.beside:
        found.remark(f"{found.beside:,} spans of other threads ran beside the training: left out")
    # A program that catches the signal may go on for a while; it was still told to end.
    end = next((event for event in ends if event["how"] == "signal"), ends[-1] if ends else {})
    how = end.get("how")
    return replace(
        process,
        ready_t=ready[0]["t"] if ready else found.first_step_t,
        resumed_from=ready[0]["resumed_from"] if ready else None,
        last_t=found.last_t,
        end=cast(Any, how) if how in ("clean", "exception", "signal") else "none",
        end_detail=end.get("detail") or "",
    )


def _made(raw: pa.Table) -> pa.Table:
    """`RAW` as `EVENTS`: the spans of the process's own thread, and all other events."""
    if raw["thread"].null_count < raw.num_rows:
        raw = raw.filter(raw["thread"].is_null())
    kinds = pc.cast(pc.index_in(raw["event"], value_set=_KINDS), pa.int8()).combine_chunks()
    columns = {name: raw[name] for name in raw.column_names}
    columns["event"] = pa.DictionaryArray.from_arrays(_array(kinds), _KINDS)
    columns["inner_s"] = pc.fill_null(raw["inner_s"], 0.0)
    columns["what"] = pc.coalesce(raw["what"], raw["reason"])
    for name in MAY_BE_NOT_FINITE:
        texts = raw[_AS_TEXT.format(name)]
        if texts.null_count < raw.num_rows:
            numbers = pc.take(
                pa.array(NOT_FINITE.values()), pc.index_in(texts, value_set=pa.array(NOT_FINITE))
            )
            columns[name] = pc.coalesce(raw[name], numbers)
    return pa.table(
        [_column(columns.get(each.name), each.type, raw.num_rows) for each in EVENTS],
        schema=EVENTS,
    )


def _column(values: Any, kind: pa.DataType, rows: int) -> Any:
    """A column; one without any value shares its memory with all others of its type."""
    if values is None or values.null_count == rows:
        return _nulls(kind, 1 << rows.bit_length()).slice(0, rows)
    return values


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
