"""Traces of torch.profiler, one per rank -> own times.

In a collective a rank waits for the slowest one, and only the slowest does not wait. A rank's own time
in a step is therefore the step less its *exposed* collectives: the time in which a collective runs and
nothing else does. It counts what kernels do and also what no kernel shows: a slow host, a slow loader.

Collectives are kernels whose name begins with ``nccl`` (also RCCL's), and on the CPU the
``gloo:``, ``mpi:`` and ``ucc:`` ranges. Other work is every other kernel and copy on the device, or,
where the trace has none, every operator on the CPU. Steps are the ``ProfilerStep#N`` ranges of
``profiler.step()``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import progress
from holdfast.errors import InputError
from holdfast.runs.straggling.matrix import Floats, LongSteps, StepMatrix, fill
from holdfast.runs.straggling.trace_events import TraceFile

STEP = re.compile(r"ProfilerStep#(\d+)")
RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
CPU = frozenset({"cpu_op", "Operator"})
"""Categories; those in capitals were written before PyTorch 1.12."""
SHADOW = "gpu_user_annotation"
"""Ranges again, on the GPU: from their kernels, without those of the backward thread."""
COLLECTIVE_RANGE = re.compile(r"(gloo|mpi|ucc):")
COLLECTIVE_KERNEL = re.compile(r"nccl", re.IGNORECASE)
MESSAGE = re.compile(r"send|recv", re.IGNORECASE)
"""Kernels and ranges for one other rank: in a pipeline they hold what that rank computes."""
LAUNCH = re.compile(r"c10d::|record_param_comms|c10d_functional|_c10d")
"""Operators that only start a collective."""
US = 1e-6


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in ascending order, and how much they cover up to any time."""

    begin: Floats
    """[n] microseconds"""
    end: Floats
    """[n]"""

    def covered(self, until: Floats) -> Floats:
        """The length covered before each time, in the unit of the intervals."""
        if not self.begin.size:
            return np.zeros(until.size)
        before = np.concatenate([[0.0], np.cumsum(self.end - self.begin)])
        index = np.searchsorted(self.begin, until, side="right")
        inside = np.minimum(until, self.end[index - 1]) - self.begin[index - 1]
        return np.where(index > 0, before[np.maximum(index - 1, 0)] + inside, 0.0)


@dataclass(frozen=True)
class RankTrace:
    """What one trace says."""

    path: Path
    rank: int
    node: str
    steps: tuple[int, ...]
    """[n]"""
    begin: Floats
    """[n] microseconds, on the clock of the node"""
    end: Floats
    """[n]"""
    exposed: Intervals
    """A collective runs and nothing else does."""
    marked: bool
    """It has steps; else it counts as one."""
    collectives: int
    messages: bool
    """Some of them are for one other rank."""


def matrix_of_traces(paths: Sequence[Path]) -> StepMatrix:
    """The own times of the ranks whose traces these are.

    Raises:
        InputError: if a trace cannot be read, the ranks are not told apart, a rank has two traces, or
            no two ranks share a step.
    """
    total = sum(path.stat().st_size for path in paths)
    with progress.track("reading traces", total) as bar:
        traces = []
        for path in paths:
            traces.append(read_trace(path))
            bar.advance(path.stat().st_size)
    traces.sort(key=lambda trace: trace.rank)
    _check_ranks(traces)
    source = str(paths[0]) if len(paths) == 1 else f"{len(paths)} traces in {paths[0].parent}"
    rows = LongSteps(
        np.concatenate([np.full(len(t.steps), t.rank, dtype=np.int64) for t in traces]),
        np.concatenate([np.array(t.steps, dtype=np.int64) for t in traces]),
        np.concatenate([_own_us(t) * US for t in traces]).astype(np.float32),
    )
    if not any(trace.messages for trace in traces):
        waited = np.concatenate([_exposed_us(t) * US for t in traces]).astype(np.float32)
        rows = replace(rows, waited_s=waited)
    waits = any(trace.collectives for trace in traces)
    found, _, _ = fill(rows, "own" if waits else "unknown", source)
    kept = [trace for trace in traces if trace.rank in set(found.ranks.tolist())]
    return replace(
        found,
        labels=tuple({"node": trace.node} if trace.node else {} for trace in kept),
        remarks=tuple(_remarks(traces)),
    )


def read_trace(path: Path) -> RankTrace:
    """Steps and exposed collectives of one trace."""
    file = TraceFile(path)
    spans = _Spans()
    for event in file.events():
        spans.add(event)
    collectives = _merged(spans.collectives)
    busy = _merged(spans.device if spans.on_device else spans.cpu)
    marked = bool(spans.steps)
    if not marked:
        if not np.isfinite(spans.first):
            raise InputError(
                "the trace has no events",
                code="no-data",
                path=path,
                expected="events with a duration",
            )
        spans.steps[0] = (spans.first, spans.last)
    numbers = sorted(spans.steps)
    times = np.array([spans.steps[number] for number in numbers], dtype=np.float64)
    return RankTrace(
        path,
        _rank(path, file.header),
        str(file.header.get("host_name") or ""),
        tuple(numbers),
        times[:, 0],
        times[:, 1],
        _without(collectives, busy),
        marked,
        len(spans.collectives) // 2,
        spans.messages,
    )


class _Spans:
    """The intervals of a trace as they come by: begin, end, begin, end, in microseconds."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[float, float]] = {}
        self.collectives = array("d")
        self.device = array("d")
        self.cpu = array("d")
        self.messages = False
        self.first, self.last = float("inf"), float("-inf")
        self._kinds: dict[tuple[str, str], array[float] | None] = {}

    @property
    def on_device(self) -> bool:
        return len(self.device) > 0

    def add(self, event: dict[str, Any]) -> None:
        if event.get("ph") != "X":
            return
        key = str(event.get("cat")), str(event.get("name"))
        begin, length = event.get("ts"), event.get("dur", 0)
        if not isinstance(begin, (int, float)) or not isinstance(length, (int, float)):
            return
        if not length >= 0 or key[0] == "Trace":
            return
        end = begin + length
        if begin < self.first:
            self.first = begin
        if end > self.last:
            self.last = end
        try:
            kind = self._kinds[key]
        except KeyError:
            step = STEP.match(key[1])
            kind = self._kinds[key] = None if step else self._kind(*key)
            if kind is self.collectives and MESSAGE.search(key[1]):
                self.messages = True
            if step and key[0] != SHADOW:
                self.steps[int(step[1])] = (begin, end)
        if kind is not None:
            kind.append(begin)
            kind.append(end)

    def _kind(self, category: str, name: str) -> array[float] | None:
        """Where events of a category and name go; names repeat, so this is asked once for each."""
        if category in DEVICE:
            return self.collectives if COLLECTIVE_KERNEL.search(name) else self.device
        if category == SHADOW:
            return None
        if COLLECTIVE_RANGE.match(name):
            return self.collectives
        return self.cpu if category in CPU and not LAUNCH.search(name) else None


def _merged(flat: array[float]) -> Intervals:
    """The union of intervals."""
    pairs = np.frombuffer(flat, dtype=np.float64).reshape(-1, 2) if flat else np.zeros((0, 2))
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    if not len(pairs):
        return Intervals(pairs[:, 0], pairs[:, 1])
    reach = np.maximum.accumulate(pairs[:, 1])
    opens = np.concatenate([[True], pairs[1:, 0] > reach[:-1]])
    first = np.flatnonzero(opens)
    last = np.concatenate([first[1:] - 1, [len(pairs) - 1]])
    return Intervals(pairs[first, 0], reach[last])


def _without(some: Intervals, others: Intervals) -> Intervals:
    """The parts of `some` that no interval of `others` covers."""
    edges = np.unique(np.concatenate([some.begin, some.end, others.begin, others.end]))
    if edges.size < 2:
        return some
    middle = (edges[:-1] + edges[1:]) / 2
    chosen = _contains(some, middle) & ~_contains(others, middle)
    change = np.diff(chosen.astype(np.int8), prepend=0, append=0)
    return Intervals(edges[np.flatnonzero(change == 1)], edges[np.flatnonzero(change == -1)])


def _contains(intervals: Intervals, times: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not intervals.begin.size:
        return np.zeros(times.size, dtype=bool)
    index = np.searchsorted(intervals.begin, times, side="right") - 1
    return (index >= 0) & (times < intervals.end[np.maximum(index, 0)])


def _exposed_us(trace: RankTrace) -> Floats:
    """Per step: waiting in collectives."""
    return trace.exposed.covered(trace.end) - trace.exposed.covered(trace.begin)


def _own_us(trace: RankTrace) -> Floats:
    return np.maximum(trace.end - trace.begin - _exposed_us(trace), 0.0)


def _rank(path: Path, header: dict[str, Any]) -> int:
    """The rank that the trace names, or else its file name (``rank_3``, ``rank3``)."""
    told = header.get("distributedInfo")
    if isinstance(told, dict) and isinstance(told.get("rank"), int):
        return int(told["rank"])
    named = RANK_IN_NAME.search(path.name)
    if named:
        return int(named[1])
    raise InputError(
        "the trace does not say which rank it is of",
        code="invalid-value",
        path=path,
        expected='"distributedInfo": {"rank": ...} in the trace, or rank_3 in the name of the file',
        remedy="profile after init_process_group, or rename the file",
    )


def _check_ranks(traces: Sequence[RankTrace]) -> None:
    for one, other in pairwise(traces):
        if one.rank == other.rank:
            raise InputError(
                f"two traces of rank {one.rank}",
                code="duplicate",
                path=other.path,
                found=f"the other one is {one.path.name}",
                expected="one trace per rank, of one profiled window",
                remedy="name the files of one window",
            )
    if len(traces) < 2:
        raise InputError(
            "one trace cannot be compared",
            code="no-data",
            path=traces[0].path,
            expected="the traces of two ranks or more",
        )


def _remarks(traces: Sequence[RankTrace]) -> list[str]:
    remarks = []
    if not all(trace.marked for trace in traces):
        remarks.append(
            "traces without steps count as one step: call profiler.step() to tell steps apart"
        )
    ranks = [trace.rank for trace in traces]
    if missing := max(ranks) + 1 - len(ranks):
        remarks.append(f"of {max(ranks) + 1:,} ranks or more, {missing:,} have no trace here")
    return remarks
