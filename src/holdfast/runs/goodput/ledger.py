"""Every second of every process of a run, entered in one of the parts: the books behind the breakdown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.runs.goodput.spans import (
    CHECKPOINT,
    STEP,
    BoolArray,
    FloatArray,
    IntArray,
    Spans,
    spans_of,
)
from holdfast.runs.goodput.windows import RunWindow, run_window
from holdfast.runs.recording.events import SPANS, RecordedRun

PARTS = (
    "productive",
    "replayed",
    "data_wait",
    "checkpoint",
    "init",
    "evaluation",
    "idle",
    "down",
    "queue",
)
"""Where wall time goes, in the order of the JSON contract."""

BINS = 240
"""Of the time line."""

_PRODUCTIVE, _REPLAYED, _INIT, _IDLE, _DOWN, _QUEUE = (
    PARTS.index(name) for name in ("productive", "replayed", "init", "idle", "down", "queue")
)
_PART_OF_KIND = np.array([PARTS.index(name) if name in PARTS else -1 for name in SPANS])
ROUNDING_S = 1e-6
"""An idle time below zero by less is a rounding error."""


@dataclass(frozen=True)
class Ledger:
    """Where the time of every process went. Times are run time, see `windows`."""

    run: RecordedRun
    window: RunWindow
    spans: Spans
    own_s: FloatArray
    """[spans] seconds that a span has for itself, inside its attempt and after the initialisation."""
    replayed: BoolArray
    """[spans] a step whose number had been completed before."""
    by_process: FloatArray
    """[processes, parts] seconds; a row sums to the length of the process's attempt."""
    by_attempt: FloatArray
    """[attempts, parts] seconds, the mean over the ranks; with down and queue before the attempt."""
    binned: FloatArray
    """[attempts, parts, bins] seconds, the mean over the ranks; sums over bins to `by_attempt`."""
    bin_s: float
    """Width of a bin of run time."""
    ready_s: FloatArray
    """[processes] run time at which the initialisation was over, or the process ended."""
    last_s: FloatArray
    """[processes] run time of the last sign of life."""

    def steps(self) -> IntArray:
        """Indices of the completed steps."""
        return self.spans.of_kind(STEP)

    def checkpoints(self) -> IntArray:
        """Indices of the completed checkpoints."""
        return self.spans.of_kind(CHECKPOINT)

    def published(self) -> list[tuple[int, int, float]]:
        """When checkpoints became complete, as first told: (process, step, run time)."""
        told = self.run.events.take(pa.array(self.spans.published))
        found: dict[tuple[int, int], tuple[int, float]] = {}
        of = self.attempt_of()
        columns = (told[name].to_pylist() for name in ("process", "step", "t"))
        for process, step, t in zip(*columns, strict=True):
            if step is None:
                continue
            at = float(self.spans.opened_s[process]) + t
            key = (int(of[process]), step)
            if key not in found or at < found[key][1]:
                found[key] = (process, at)
        return [(process, step, at) for (_, step), (process, at) in sorted(found.items())]

    def attempt_of(self) -> IntArray:
        """[processes] which attempt of the window a process belongs to."""
        return _attempt_of(self.window, len(self.run.processes))


def keep_books(run: RecordedRun) -> Ledger:
    """Divide the wall time of a run.

    Args:
        run: the run.
    """
    window = run_window(run)
    spans = spans_of(run, window.shift_s)
    attempt = _attempt_of(window, len(run.processes))
    low, high = (
        np.array([getattr(window.attempts[each], name) for each in attempt])
        for name in ("begin_s", "end_s")
    )
    lived = spans.opened_s + [max(each.last_t, 0.0) for each in run.processes]
    last = np.clip(lived, low, high)
    ready = np.clip(_ready(run, spans), low, last)
    replayed = _replayed(spans, attempt)
    wall = window.wall_s
    bin_s = wall / BINS if wall > 0 else 1.0
    ranks = np.array([len(each.processes) for each in window.attempts])
    by_process = np.zeros((len(run.processes), len(PARTS)))
    binned = np.zeros((len(window.attempts), len(PARTS), BINS))
    own = np.zeros(spans.begin_s.size)
    part = np.where(replayed, _REPLAYED, _PART_OF_KIND[spans.kind])
    part[(spans.kind == STEP) & ~replayed] = _PRODUCTIVE

    from holdfast.runs.goodput._kernels import divide

    divide(
        spans.begin_s,
        spans.end_s,
        part,
        spans.first,
        ready,
        last,
        attempt,
        1.0 / ranks[attempt],
        bin_s,
        by_process,
        binned,
        own,
    )
    by_process[:, _INIT] = ready - low
    _rest_is_idle(by_process, high - low)
    by_attempt = _means(by_process, attempt, ranks)
    _bin_the_rest(binned, window, bin_s, attempt, low, ready, ranks)
    for place, each in enumerate(window.attempts):
        by_attempt[place, _DOWN], by_attempt[place, _QUEUE] = each.down_s, each.queue_s
    return Ledger(
        run, window, spans, own, replayed, by_process, by_attempt, binned, bin_s, ready, last
    )


def _attempt_of(window: RunWindow, processes: int) -> IntArray:
    of = np.zeros(processes, dtype=np.int64)
    for place, each in enumerate(window.attempts):
        of[list(each.processes)] = place
    return of


def _ready(run: RecordedRun, spans: Spans) -> FloatArray:
    """When each process began to train: it said so, or made its first step; inf: it never did."""
    first_step = np.full(len(run.processes), np.inf)
    steps = spans.of_kind(STEP)
    np.minimum.at(first_step, spans.process[steps], spans.begin_s[steps])
    said = np.array([np.inf if p.ready_t is None else p.ready_t for p in run.processes])
    return np.where(np.isfinite(said), spans.opened_s + said, first_step)


def _replayed(spans: Spans, attempt: IntArray) -> BoolArray:
    """Mask of the spans that are steps completed before, by any rank of an earlier attempt."""
    from holdfast.runs.goodput._kernels import find_replays

    steps = spans.of_kind(STEP)
    done = np.full(int(attempt.max()) + 2, -1, dtype=np.int64)  # one attempt later
    np.maximum.at(done, attempt[spans.process[steps]] + 1, spans.step[steps])
    before = np.maximum.accumulate(done)[attempt]
    marks = np.zeros(steps.size, dtype=np.bool_)
    find_replays(spans.process[steps], spans.step[steps], before, marks)
    replayed = np.zeros(spans.process.size, dtype=np.bool_)
    replayed[steps] = marks
    return replayed


def _rest_is_idle(by_process: FloatArray, length: FloatArray) -> None:
    """What no span and no initialisation claims; below zero only by rounding."""
    idle = length - by_process.sum(axis=1)
    tolerance = ROUNDING_S + 1e-9 * length
    assert np.all(idle >= -tolerance), "the spans of a process exceed its life"
    by_process[:, _IDLE] = np.maximum(idle, 0.0)


def _means(by_process: FloatArray, attempt: IntArray, ranks: IntArray) -> FloatArray:
    sums = np.zeros((ranks.size, len(PARTS)))
    np.add.at(sums, attempt, by_process)
    return np.asarray(sums / ranks[:, None], dtype=np.float64)


def _bin_the_rest(
    binned: FloatArray,
    window: RunWindow,
    bin_s: float,
    attempt: IntArray,
    low: FloatArray,
    ready: FloatArray,
    ranks: IntArray,
) -> None:
    """Enter initialisation, idle time and the gaps between attempts in the bins."""
    edges = bin_s * np.arange(binned.shape[2] + 1)
    edges[-1] = np.inf  # the last bin takes what rounding leaves
    for p, place in enumerate(attempt):
        binned[place, _INIT] += _overlap(edges, low[p], ready[p]) / ranks[place]
    for place, each in enumerate(window.attempts):
        alive = _overlap(edges, each.begin_s, each.end_s)
        binned[place, _IDLE] = np.maximum(alive - binned[place].sum(axis=0), 0.0)
        queued_from = each.begin_s - each.queue_s
        binned[place, _QUEUE] = _overlap(edges, queued_from, each.begin_s)
        binned[place, _DOWN] = _overlap(edges, queued_from - each.down_s, queued_from)


def _overlap(edges: FloatArray, begin: float, end: float) -> FloatArray:
    """Seconds of an interval in each bin."""
    return np.asarray(np.diff(np.clip(edges, begin, max(begin, end))), dtype=np.float64)
