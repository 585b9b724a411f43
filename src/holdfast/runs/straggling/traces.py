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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast import progress
from holdfast.errors import InputError
from holdfast.runs.straggling.matrix import Floats, LongSteps, StepMatrix, fill
from holdfast.runs.straggling.trace_events import Event, read_events

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
    found, _ = fill(rows, "own" if waits else "unknown", source)
    kept = [trace for trace in traces if trace.rank in set(found.ranks.tolist())]
    return replace(
        found,
        labels=tuple({"node": trace.node} if trace.node else {} for trace in kept),
        remarks=tuple(_remarks(traces)),
    )


def read_trace(path: Path) -> RankTrace:
    """Steps and exposed collectives of one trace."""
    trace = read_events(path)
    timed = [each for each in trace.traceEvents if _has_length(each)]
    if not timed:
        raise InputError(
            "the trace has no events",
            code="no-data",
            path=path,
            expected="events with a duration",
        )
    keys = [(str(each.cat), str(each.name)) for each in timed]
    kinds = {key: _kind(*key) for key in dict.fromkeys(keys)}  # names repeat
    kind = np.array([kinds[key] for key in keys])
    begin = np.array([each.ts for each in timed], dtype=np.float64)
    spans = np.stack([begin, begin + [each.dur for each in timed]], axis=1)  # [n, 2]
    steps: dict[int, Floats] = {}
    for place in np.flatnonzero(kind == "step").tolist():
        steps.setdefault(int(keys[place][1].partition("#")[2]), spans[place])
    marked = bool(steps)
    steps = steps or {0: np.array([spans.min(), spans.max()])}
    times = np.array([steps[number] for number in sorted(steps)])
    work = "device" if (kind == "device").any() else "cpu"
    return RankTrace(
        path,
        _rank(path, trace.distributedInfo),
        str(trace.host_name or ""),
        tuple(sorted(steps)),
        times[:, 0],
        times[:, 1],
        _alone(spans[kind == "collective"], spans[kind == work]),
        marked,
        int((kind == "collective").sum()),
        any(kinds[key] == "collective" and MESSAGE.search(key[1]) for key in kinds),
    )


def _has_length(event: Event) -> bool:
    numbers = isinstance(event.ts, (int, float)) and isinstance(event.dur, (int, float))
    return event.ph == "X" and numbers and event.dur >= 0 and event.cat != "Trace"


def _kind(category: str, name: str) -> Literal["step", "collective", "device", "cpu", ""]:
    """What events of a category and name are; empty: nothing that counts."""
    if category in DEVICE:
        return "collective" if COLLECTIVE_KERNEL.search(name) else "device"
    if category == SHADOW:
        return ""
    if STEP.match(name):
        return "step"
    if COLLECTIVE_RANGE.match(name):
        return "collective"
    return "cpu" if category in CPU and not LAUNCH.search(name) else ""


def _alone(some: Floats, others: Floats) -> Intervals:
    """When some interval of the first [n, 2] is open and none of the second is."""
    edges = np.concatenate([some.ravel(), others.ravel()])
    change = np.zeros((2, edges.size), dtype=np.int64)
    change[0, : some.size : 2], change[0, 1 : some.size : 2] = 1, -1
    change[1, some.size :: 2], change[1, some.size + 1 :: 2] = 1, -1
    order = np.argsort(edges, kind="stable")
    edges, open_ = edges[order], np.cumsum(change[:, order], axis=1)
    alone = (open_[0, :-1] > 0) & (open_[1, :-1] == 0) & (np.diff(edges) > 0)
    return Intervals(edges[:-1][alone], edges[1:][alone])


def _exposed_us(trace: RankTrace) -> Floats:
    """Per step: waiting in collectives."""
    return trace.exposed.covered(trace.end) - trace.exposed.covered(trace.begin)


def _own_us(trace: RankTrace) -> Floats:
    return np.maximum(trace.end - trace.begin - _exposed_us(trace), 0.0)


def _rank(path: Path, told: Any) -> int:
    """The rank that the trace names, or else its file name (``rank_3``, ``rank3``)."""
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
