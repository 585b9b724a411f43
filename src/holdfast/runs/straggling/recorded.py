"""The events of a recorded run -> own times.

A step's own time is ``seconds - inner_s - sync_s``: what is left when nested checkpoints, evaluations
and pauses, and the waiting for other ranks are taken out. Waiting for data since the step before is
added: it is the rank's own, and the others wait for it too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.runs.goodput.spans import NO_STEP, STEP, IntArray, Spans, spans_of
from holdfast.runs.recording.events import SPANS, Process, RecordedRun
from holdfast.runs.straggling.matrix import Base, Floats, Ints, LongSteps, StepMatrix, fill

_SLACK_S = 1e-6
"""Ends of nested spans may differ from those around them by what a clock resolves."""


def matrix_of_run(run: RecordedRun) -> StepMatrix:
    """The own times of all ranks of a recorded run.

    Raises:
        InputError: if it has no steps, or fewer than two ranks share one.
    """
    spans = spans_of(run, 0.0)
    steps = spans.of_kind(STEP)
    steps = steps[spans.step[steps] != NO_STEP]
    if not steps.size:
        raise InputError(
            "the run has no steps",
            code="no-data",
            path=run.folder,
            remedy="wrap each step of the training in `with recorder.step(n)`",
        )
    chosen = run.events.take(pa.array(spans.row[steps]))
    inner = pc.fill_null(chosen["inner_s"], 0.0).to_numpy()
    sync, together = (chosen[name].to_numpy() for name in ("sync_s", "collective_s"))
    seconds = (spans.end_s - spans.begin_s)[steps]
    data = _data_wait(spans, steps)
    known = np.isfinite(sync)
    base: Base = "own" if known.any() else "data_wait" if data.any() else "unknown"
    within = seconds - inner
    own = {"own": within - sync + data, "data_wait": data, "unknown": within}[base]
    usable = np.isfinite(own) & (own >= -_SLACK_S) & ((base != "own") | (sync >= 0))
    of, numbers = spans.process[steps], spans.step[steps].astype(np.int64)
    rank = np.array([process.rank for process in run.processes], dtype=np.int64)[of]
    attempt = np.array([p.attempt for p in run.processes], dtype=np.int64)[of]
    rows = LongSteps(
        rank[usable],
        numbers[usable],
        np.maximum(own[usable], 0.0).astype(np.float32),
        attempt[usable],
        data[usable].astype(np.float32),
        together[usable].astype(np.float32) if np.isfinite(together[usable]).all() else None,
    )
    found, again = fill(rows, base, str(run.folder))
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
        reported_share=_reported_share(seconds, sync, together) if base == "own" else None,
    )


def _reported_share(seconds: Floats, sync: Floats, together: Floats) -> float | None:
    """What the program itself says of waiting, as a share of a step; None: it was measured."""
    said = np.isfinite(sync) & ~np.isfinite(together) & (seconds > 0)
    return float(np.median(sync[said] / seconds[said])) if said.any() else None


def _data_wait(spans: Spans, steps: IntArray) -> Floats:
    """Per step: waiting for data since the step before, inside the step or ahead of it.

    Waiting inside an evaluation, a checkpoint or a pause is not the step's.
    """
    waits = spans.of_kind(SPANS.index("data_wait"))
    others = ~np.isin(spans.kind, [STEP, SPANS.index("data_wait")]) & (spans.row >= 0)
    around = np.flatnonzero(others)
    # Spans stand in the order of their ends: the first one around, or the first step, after a wait is
    # the only one that can hold it.
    if around.size:
        held_by = around[np.minimum(np.searchsorted(around, waits), around.size - 1)]
        inside = (held_by > waits) & (spans.process[held_by] == spans.process[waits])
        waits = waits[~(inside & (spans.begin_s[held_by] <= spans.begin_s[waits] + _SLACK_S))]
    step = np.searchsorted(steps, waits)
    waits, step = waits[step < steps.size], step[step < steps.size]
    own = spans.process[steps[step]] == spans.process[waits]
    lengths = (spans.end_s - spans.begin_s)[waits[own]]
    sums = np.bincount(step[own], weights=lengths, minlength=steps.size)
    return sums.astype(np.float64)


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
