"""The events of a recorded run -> own times.

A step's own time is ``seconds - inner_s - sync_s``: what is left when nested checkpoints, evaluations
and pauses, and the waiting for other ranks are taken out. Waiting for data since the step before is
added: it is the rank's own, and the others wait for it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.runs.recording.events import Process, RecordedRun
from holdfast.runs.straggling.matrix import Base, Floats, Ints, LongSteps, StepMatrix, fill

_SLACK_S = 1e-6
"""Ends of nested spans may differ from those around them by what a clock resolves."""


@dataclass(frozen=True)
class _Columns:
    """Spans of one kind, or several, ordered as written."""

    process: Ints
    row: Ints
    """Position in `RecordedRun.events`."""
    end: Floats
    seconds: Floats

    @property
    def begin(self) -> Floats:
        return self.end - self.seconds


def matrix_of_run(run: RecordedRun) -> StepMatrix:
    """The own times of all ranks of a recorded run.

    Raises:
        InputError: if it has no steps, or fewer than two ranks share one.
    """
    steps, inner, sync, together, numbers = _steps(run)
    if not steps.row.size:
        raise InputError(
            "the run has no steps",
            code="no-data",
            path=run.folder,
            remedy="wrap each step of the training in `with recorder.step(n)`",
        )
    data = _data_wait(run, steps)
    known = np.isfinite(sync)
    base: Base = "own" if known.any() else "data_wait" if data.any() else "unknown"
    within = steps.seconds - inner
    own = {"own": within - sync + data, "data_wait": data, "unknown": within}[base]
    usable = np.isfinite(own) & (own >= -_SLACK_S) & ((base != "own") | (sync >= 0))
    rank = np.array([process.rank for process in run.processes], dtype=np.int64)[steps.process]
    attempt = np.array([p.attempt for p in run.processes], dtype=np.int64)[steps.process]
    rows = LongSteps(
        rank[usable],
        numbers[usable],
        np.maximum(own[usable], 0.0).astype(np.float32),
        attempt[usable],
        data[usable].astype(np.float32),
        together[usable].astype(np.float32) if np.isfinite(together[usable]).all() else None,
    )
    found, again, _ = fill(rows, base, str(run.folder))
    last = _last_processes(run, found.ranks)
    remarks = list(run.remarks)
    if base == "own" and (without := int((~known).sum())):
        remarks.append(f"{without:,} steps of single ranks say nothing about waiting: left out")
    if impossible := int((known & ~usable).sum()):
        remarks.append(
            f"{impossible:,} steps of single ranks waited longer than they lasted: left out"
        )
    if again.size:
        remarks.append(
            f"{again.size:,} steps were done twice by a rank in one attempt: the first counts"
        )
    return replace(
        found,
        gpus=np.array([process.gpus for process in last], dtype=np.float64),
        labels=tuple({"node": process.node, **process.labels} for process in last),
        usual_s=float(np.median(within + data)) if base == "data_wait" else None,
        rejects=run.rejects,
        rejected=len(run.rejects),
        remarks=(*remarks, *_moved(run)),
        told_share=_told_share(steps.seconds, sync, together) if base == "own" else None,
    )


def _told_share(seconds: Floats, sync: Floats, together: Floats) -> float | None:
    """What the program itself says of waiting, as a share of a step; None: it was measured."""
    said = np.isfinite(sync) & ~np.isfinite(together) & (seconds > 0)
    return float(np.median(sync[said] / seconds[said])) if said.any() else None


def _steps(run: RecordedRun) -> tuple[_Columns, Floats, Floats, Floats, Ints]:
    """The step spans with their inner and waiting time, that in collectives, and their numbers."""
    row = _rows(run, ("step",))
    chosen = run.events.select(["inner_s", "sync_s", "collective_s", "step"]).take(pa.array(row))
    numbers = pc.fill_null(chosen["step"], -1).to_numpy().astype(np.int64)
    spans = _spans(run, row)
    inner = pc.fill_null(chosen["inner_s"], 0.0).to_numpy()
    sync, together = chosen["sync_s"].to_numpy(), chosen["collective_s"].to_numpy()
    good = (numbers >= 0) & np.isfinite(spans.seconds)
    return _take(spans, good), inner[good], sync[good], together[good], numbers[good]


def _data_wait(run: RecordedRun, steps: _Columns) -> Floats:
    """Per step: waiting for data since the step before, inside the step or ahead of it.

    Waiting inside an evaluation, a checkpoint or a pause is not the step's.
    """
    waits = _spans(run, _rows(run, ("data_wait",)))
    if not waits.row.size:
        return np.zeros(steps.row.size)
    around = _spans(run, _rows(run, ("evaluation", "checkpoint", "pause")))
    # A span is written at its end: the first one around, or the first step, after a wait in the file
    # is the only one that can hold it.
    holder = np.searchsorted(around.row, waits.row)
    inside = np.zeros(waits.row.size, dtype=bool)
    has = holder < around.row.size
    held_by = holder[has]
    inside[has] = (around.process[held_by] == waits.process[has]) & (
        around.begin[held_by] <= waits.begin[has] + _SLACK_S
    )
    step = np.searchsorted(steps.row, waits.row)
    counts = ~inside & (step < steps.row.size) & np.isfinite(waits.seconds)
    step = np.minimum(step, steps.row.size - 1)
    counts &= steps.process[step] == waits.process
    sums = np.bincount(step[counts], weights=waits.seconds[counts], minlength=steps.row.size)
    return sums.astype(np.float64)


def _rows(run: RecordedRun, kinds: tuple[str, ...]) -> Ints:
    """Positions of the events of these kinds."""
    marked = pc.is_in(run.events["event"].cast(pa.string()), value_set=pa.array(kinds))
    return np.flatnonzero(marked.to_numpy()).astype(np.int64)


def _spans(run: RecordedRun, row: Ints) -> _Columns:
    chosen = run.events.select(["process", "t", "seconds"]).take(pa.array(row))
    return _Columns(
        chosen["process"].to_numpy().astype(np.int64),
        row,
        chosen["t"].to_numpy(),
        chosen["seconds"].to_numpy(),
    )


def _take(spans: _Columns, good: npt.NDArray[np.bool_]) -> _Columns:
    return _Columns(spans.process[good], spans.row[good], spans.end[good], spans.seconds[good])


def _last_processes(run: RecordedRun, ranks: Ints) -> list[Process]:
    """The process of each rank in the last attempt in which it ran."""
    last = {process.rank: process for process in run.processes}  # ordered by attempt
    return [last[rank] for rank in ranks.tolist()]


def _moved(run: RecordedRun) -> list[str]:
    nodes: dict[int, set[str]] = {}
    for process in run.processes:
        nodes.setdefault(process.rank, set()).add(process.node)
    moved = sum(len(names) > 1 for names in nodes.values())
    if not moved:
        return []
    return [f"{moved:,} ranks ran on several nodes, attempt by attempt; the last one is named"]
