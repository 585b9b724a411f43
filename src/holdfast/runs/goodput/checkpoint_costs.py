"""Cost of a run's checkpoints: their interval, and how long they blocked the training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.runs.goodput.ledger import Ledger
from holdfast.runs.goodput.spans import CHECKPOINT, STEP, FloatArray, IntArray


@dataclass(frozen=True)
class CheckpointCosts:
    """The checkpoints of a run, as seen by the rank of each attempt that they blocked longest."""

    count: int
    """Finished checkpoints that blocked the training; those without a step in between count as one."""
    interval_s: float | None
    """Median step time between checkpoints, or from the start of an attempt to its first."""
    write_s: float | None
    """Mean time for which one blocked the training."""
    background_s: float | None
    """Mean time in the background until one was complete; None: not recorded."""
    published: int
    """Steps with a complete checkpoint."""
    last_published_step: int | None


def checkpoint_costs(ledger: Ledger) -> CheckpointCosts:
    """Measure the checkpoints of a run."""
    writes: list[float] = []
    intervals: list[float] = []
    finished = ledger.checkpoints()
    of, count = ledger.spans.process[finished], len(ledger.run.processes)
    blocked = np.bincount(of, weights=ledger.own_s[finished], minlength=count)
    wrote = np.bincount(of, minlength=count)
    for window in ledger.window.attempts:
        # Of equals the first: processes stand by rank.
        slowest = max(window.processes, key=lambda index: (blocked[index], wrote[index]))
        if wrote[slowest]:
            costs, gaps = _of_process(ledger, slowest)
            writes += costs.tolist()
            intervals += gaps.tolist()
    steps, background = _published(ledger)
    if not writes and len(steps):
        intervals = _told_only(ledger, steps)
    return CheckpointCosts(
        count=len(writes),
        interval_s=float(np.median(intervals)) if intervals else None,
        write_s=float(np.mean(writes)) if writes else 0.0 if len(steps) else None,
        background_s=background,
        published=len(steps),
        last_published_step=int(steps[-1]) if len(steps) else None,
    )


def _of_process(ledger: Ledger, index: int) -> tuple[FloatArray, FloatArray]:
    """Cost of each checkpoint of a process, and the step time before each that had any."""
    spans = ledger.spans
    mine = np.arange(spans.first[index], spans.first[index + 1])
    mine = mine[spans.row[mine] >= 0]
    steps = mine[spans.kind[mine] == STEP]
    writes = mine[spans.kind[mine] == CHECKPOINT]
    before = np.searchsorted(spans.end_s[steps], spans.end_s[writes], side="right")
    trained = np.concatenate([[0.0], np.cumsum(ledger.own_s[steps])])[before]
    _, group = np.unique(before, return_inverse=True)
    costs: FloatArray = np.bincount(group, weights=ledger.own_s[writes]).astype(np.float64)
    gaps = np.diff(np.unique(np.concatenate([[0.0], trained])))
    return costs, gaps


def _published(ledger: Ledger) -> tuple[IntArray, float | None]:
    """Steps of complete checkpoints, rising, and the mean time that they took in the background."""
    told = ledger.run.events.take(pa.array(ledger.spans.published))
    background = told["background_s"].drop_null().to_numpy()
    steps = np.unique(told["step"].drop_null().to_numpy())
    return steps, float(background.mean()) if background.size else None


def _told_only(ledger: Ledger, saved: IntArray) -> list[float]:
    """Step time between checkpoints of which only the completion was recorded."""
    steps = ledger.steps()
    number, own = ledger.spans.step[steps], ledger.own_s[steps]
    distinct = np.unique(number)
    usual = float(np.median(own)) if own.size else 0.0
    counts = np.diff(np.concatenate([[distinct[0] - 1] if distinct.size else [0], saved]))
    return [usual * int(count) for count in counts if count > 0]
