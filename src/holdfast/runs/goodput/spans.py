"""The spans of a run in columns, on the axis of `windows`, open ones closed by the last sign of life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.runs.recording.events import SPANS, RecordedRun

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]

STEP = SPANS.index("step")
CHECKPOINT = SPANS.index("checkpoint")
PAUSE = SPANS.index("pause")
NO_STEP = -1
KINDS = (*SPANS, "begin", "ready", "start", "alive", "published", "end")
BEGIN, PUBLISHED = KINDS.index("begin"), KINDS.index("published")
UNMOVED = [KINDS.index(name) for name in ("alive", "published", "end")]
"""Events that come although the training stands still."""


@dataclass(frozen=True)
class Spans:
    """Spans, n of them, by process and then by end, an inner one before the outer."""

    process: IntArray
    """[n] index into `RecordedRun.processes`."""
    kind: IntArray
    """[n] index into `SPANS`."""
    begin_s: FloatArray
    """[n] run time."""
    end_s: FloatArray
    """[n] run time."""
    step: IntArray
    """[n] step number; `NO_STEP`: none."""
    row: IntArray
    """[n] row of `RecordedRun.events`; -1 for a span that a kill left open."""
    first: IntArray
    """[processes + 1] where the spans of each process begin."""
    progress_s: FloatArray
    """[processes] run time of the last event that shows the training move."""
    opened_s: FloatArray
    """[processes] run time of t = 0."""
    published: IntArray
    """Rows of `RecordedRun.events` that tell of a complete checkpoint."""

    def of_kind(self, kind: int) -> IntArray:
        """Indices of the closed spans of one kind."""
        return np.flatnonzero((self.kind == kind) & (self.row >= 0))


def spans_of(run: RecordedRun, shift_s: float) -> Spans:
    """The spans of a run.

    Args:
        run: the run.
        shift_s: from the run's own time to the axis wanted.
    """
    count = len(run.processes)
    opened = np.array(run.start_s) + [max(process.lived_s, 0.0) for process in run.processes]
    opened = opened + shift_s
    last = opened + [max(process.last_t, 0.0) for process in run.processes]
    process, kind = run.events["process"].to_numpy(), _kinds(run.events)
    t = run.events["t"].to_numpy()
    step = run.events["step"].fill_null(NO_STEP).to_numpy()
    rows = np.flatnonzero((kind >= 0) & (kind < len(SPANS)))
    of = process[rows]
    end = opened[of] + t[rows]
    begin = end - run.events["seconds"].fill_null(0.0).to_numpy()[rows]
    columns: list[npt.NDArray[Any]] = [of, kind[rows], begin, end, step[rows], rows]
    if np.any((np.diff(end) < 0) & (np.diff(of) == 0)):
        order = np.lexsort((end, of))
        columns = [column[order] for column in columns]
    left_open = _left_open(run.events, process, kind)
    if left_open:
        columns = _with_open(columns, left_open, opened, last, process, t)
    moving = (kind >= 0) & ~np.isin(kind, UNMOVED)
    moving[_failed_steps(process, kind, t, run.events)] = False
    progress = opened.copy()
    np.maximum.at(progress, process[moving], opened[process[moving]] + t[moving])
    of = columns[0]
    return Spans(
        process=of,
        kind=columns[1],
        begin_s=columns[2],
        end_s=columns[3],
        step=columns[4],
        row=columns[5],
        first=np.searchsorted(of, np.arange(count + 1)).astype(np.int64),
        progress_s=progress,
        opened_s=opened,
        published=np.flatnonzero(kind == PUBLISHED),
    )


def _kinds(events: pa.Table) -> IntArray:
    """The kind of every event as an index into `KINDS`; -1: none of them."""
    column = events["event"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    known = {name: place for place, name in enumerate(KINDS)}
    place = np.array([known.get(name, -1) for name in column.dictionary.to_pylist()] + [-1])
    codes = column.indices.fill_null(len(place) - 1) if column.null_count else column.indices
    return np.asarray(place[codes.to_numpy(zero_copy_only=False)], dtype=np.int8)


def _failed_steps(process: IntArray, kind: IntArray, t: FloatArray, events: pa.Table) -> IntArray:
    """Rows of the pauses that nobody began: steps that an exception left, maybe after a long wait."""
    rows = np.flatnonzero(kind == PAUSE)
    if not rows.size:
        return rows
    begins = np.flatnonzero(kind == BEGIN)
    began = set(zip(process[begins].tolist(), _ticks(t[begins]), strict=True))
    begin = t[rows] - events["seconds"].take(pa.array(rows)).to_numpy()
    meant = [
        any((of, tick + off) in began for off in (-1, 0, 1))
        for of, tick in zip(process[rows].tolist(), _ticks(begin), strict=True)
    ]
    failed: IntArray = rows[~np.array(meant)]
    return failed


def _ticks(t: FloatArray) -> list[int]:
    """Times in tenths of a millisecond: those of one moment differ by one at most."""
    return list(np.rint(10_000 * t).astype(np.int64).tolist())


def _left_open(events: pa.Table, process: IntArray, kind: IntArray) -> list[tuple[int, int, int]]:
    """Spans that began and never ended: (process, kind, row of the `begin`); of a process the later first.

    A `begin` that a later span of its kind or a later step follows was over: its own line is lost.
    """
    begins = np.flatnonzero(kind == BEGIN)
    if not begins.size:
        return []
    what = events["what"].take(pa.array(begins)).to_pylist()
    closed: dict[int, IntArray] = {}
    found = []
    for row, name in zip(begins.tolist(), what, strict=True):
        if name not in SPANS:
            continue
        over = False
        for each in (SPANS.index(name), STEP):
            if each not in closed:
                closed[each] = np.full(int(process.max()) + 1, -1, dtype=np.int64)
                rows = np.flatnonzero(kind == each)
                np.maximum.at(closed[each], process[rows], rows)
            over = over or bool(closed[each][process[row]] > row)
        if not over:
            found.append((int(process[row]), SPANS.index(name), row))
    return sorted(found, key=lambda each: (each[0], -each[2]))


def _with_open(
    columns: list[npt.NDArray[Any]],
    left_open: list[tuple[int, int, int]],
    opened: FloatArray,
    last: FloatArray,
    process: IntArray,
    t: FloatArray,
) -> list[npt.NDArray[Any]]:
    """The columns with the open spans after the closed ones of their process."""
    of = np.array([each[0] for each in left_open], dtype=np.int64)
    begin = opened[of] + t[[each[2] for each in left_open]]
    added: list[npt.NDArray[Any]] = [
        of,
        np.array([each[1] for each in left_open], dtype=np.int64),
        begin,
        np.maximum(last[of], begin),
        np.full(of.size, NO_STEP),
        np.full(of.size, -1),
    ]
    at = np.searchsorted(columns[0], of, side="right")
    return [np.insert(column, at, new) for column, new in zip(columns, added, strict=True)]
