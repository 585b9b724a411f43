"""The spans of a run in columns, on the axis of `windows`, open ones closed by the last sign of life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
FAILED_STEP = r"^step -?\d+ failed: "
"""How the recorder calls the pause in the place of a step that an exception left."""


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
    opened = np.array(run.start_s) + [max(process.lived_s, 0.0) for process in run.processes]
    opened = opened + shift_s
    last = opened + [max(process.last_t, 0.0) for process in run.processes]
    events = run.events
    process, kind, t = events["process"].to_numpy(), _kinds(events), events["t"].to_numpy()
    rows = np.flatnonzero((kind >= 0) & (kind < len(SPANS)))
    begun, what = _left_open(events, process, kind)
    of, left = process[rows], process[begun]
    end = opened[of] + t[rows]
    begin = end - events["seconds"].fill_null(0.0).to_numpy()[rows]
    begin_left = opened[left] + t[begun]
    step = events["step"].fill_null(NO_STEP).to_numpy()[rows]
    of, end = np.append(of, left), np.append(end, np.maximum(last[left], begin_left))
    order = np.lexsort((end, of))  # stable: what is open ends after all else
    moving = (kind >= 0) & ~np.isin(kind, UNMOVED) & ~_failed_steps(events, kind)
    progress = opened.copy()
    np.maximum.at(progress, process[moving], opened[process[moving]] + t[moving])
    return Spans(
        process=of[order],
        kind=np.append(kind[rows], what)[order],
        begin_s=np.append(begin, begin_left)[order],
        end_s=end[order],
        step=np.append(step, np.full(left.size, NO_STEP))[order],
        row=np.append(rows, np.full(left.size, -1))[order],
        first=np.searchsorted(of[order], np.arange(opened.size + 1)).astype(np.int64),
        progress_s=progress,
        opened_s=opened,
        published=np.flatnonzero(kind == PUBLISHED),
    )


def _kinds(events: pa.Table) -> IntArray:
    """The kind of every event as an index into `KINDS`; -1: none of them."""
    kinds = pc.index_in(events["event"].cast(pa.string()), pa.array(KINDS))
    return np.asarray(kinds.fill_null(-1).to_numpy())


def _failed_steps(events: pa.Table, kind: IntArray) -> BoolArray:
    """Which events are the pauses that stand for steps that an exception left, maybe after a long wait."""
    said = pc.match_substring_regex(events["what"], FAILED_STEP).fill_null(False)
    return np.asarray(said.to_numpy() & (kind == PAUSE))


def _left_open(events: pa.Table, process: IntArray, kind: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the `begin` of spans that never ended, and their kinds; of a process the later first.

    A `begin` that a later span of its kind or a later step follows was over: its own line is lost.
    """
    spans = np.flatnonzero((kind >= 0) & (kind < len(SPANS)))
    last = np.full((len(SPANS), int(process.max(initial=0)) + 1), -1)  # [kinds, processes]
    np.maximum.at(last, (kind[spans], process[spans]), spans)
    begins = np.flatnonzero(kind == BEGIN)
    told = pc.index_in(events["what"].take(pa.array(begins)), pa.array(SPANS))
    what = told.fill_null(-1).to_numpy()
    of = process[begins]
    is_open = (what >= 0) & (np.maximum(last[what, of], last[STEP, of]) < begins)
    return begins[is_open][::-1], what[is_open][::-1]
