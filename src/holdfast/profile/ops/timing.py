"""Seconds of each operator of a real run: wall time between dispatch and return, or GPU events."""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.profile.ops.formulas import known
from holdfast.profile.ops.recording import Recorder
from holdfast.profile.ops.running import Workload, settings


@dataclass(frozen=True)
class Timing:
    """How long a forward pass takes, and how much of that its operators explain."""

    runs: int
    wall_s: float
    """Without measuring operators: the median."""
    measured_wall_s: float
    """While operators are measured: the median."""
    attributed: float
    """Share of the wall time of the measured runs that is inside operators: the median."""
    overhead: float
    """Fastest measured run / fastest plain run - 1."""
    threads: int
    load: float
    """Load average before."""

    @property
    def residual_s(self) -> float:
        """Seconds outside operators: Python code of the model and dispatch."""
        return self.measured_wall_s * (1 - self.attributed)


class _Clock(TorchDispatchMode):
    """Notes when each operator starts and ends; nothing else, to disturb as little as possible."""

    def __init__(self, composite: dict[Any, bool]) -> None:
        super().__init__()
        self.spans: list[tuple[int, int]] = []
        self._composite = composite

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run and time one operator; what `Recorder` takes apart or passes over is treated alike."""
        made_of_others = self._composite.get(func)
        if made_of_others is None:
            made_of_others = self._composite[func] = func.namespace != "prim" and not known(func)
        if made_of_others:
            with self:
                parts = func.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        start = time.perf_counter_ns()
        out = func(*args, **(kwargs or {}))
        if func.namespace != "prim":
            self.spans.append((start, time.perf_counter_ns()))
        return out


class _GpuClock(_Clock):
    """The same with events of the GPU, whose kernels run after their operator has returned."""

    def __init__(self, composite: dict[Any, bool]) -> None:
        super().__init__(composite)
        self.events: list[tuple[Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        count = len(self.spans)
        before.record()
        out = super().__torch_dispatch__(func, types, args, kwargs)
        after.record()
        if len(self.spans) > count:
            self.events.append((before, after))
        return out


def measure(
    work: Workload, recorder: Recorder, device: str, attention: str, runs: int = 5
) -> tuple[Timing, list[list[tuple[int, int]]]]:
    """Time every operator of a recorded workload, which already ran once; sets `OpCall.seconds`.

    Args:
        work: on its device.
        recorder: of the run before, by which spans belong to operators.
        device: cpu or cuda.
        attention: see `running.settings`.
        runs: plain and measured runs, in turn.

    Returns:
        The timing, and for each measured run the (start, end) of every dispatched operator, ns.
    """
    load = os.getloadavg()[0]
    composite: dict[Any, bool] = {}
    plain: list[float] = []
    measured: list[float] = []
    spans: list[list[tuple[int, int]]] = []
    for _ in range(runs):
        plain.append(_run(work, device, attention, None))
        clock = (_GpuClock if device == "cuda" else _Clock)(composite)
        measured.append(_run(work, device, attention, clock))
        spans.append(_elapsed(clock))
    _assign(work, recorder, spans)
    inside = [sum(end - start for start, end in each) / 1e9 for each in spans]
    shares = [part / wall for part, wall in zip(inside, measured, strict=True)]
    timing = Timing(
        runs,
        statistics.median(plain),
        statistics.median(measured),
        min(1.0, statistics.median(shares)),
        min(measured) / min(plain) - 1,
        torch.get_num_threads(),
        round(load, 2),
    )
    return timing, spans


def _run(work: Workload, device: str, attention: str, clock: _Clock | None) -> float:
    args, kwargs = copy.deepcopy((work.args, work.kwargs))  # caches grow
    with settings(attention):
        start = time.perf_counter()
        if clock is None:
            work.module(*args, **kwargs)
        else:
            with clock:
                work.module(*args, **kwargs)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def _elapsed(clock: _Clock) -> list[tuple[int, int]]:
    if not isinstance(clock, _GpuClock):
        return clock.spans
    at, made = 0, []
    for before, after in clock.events:
        end = at + round(before.elapsed_time(after) * 1e6)
        made.append((at, end))
        at = end
    return made


def _assign(work: Workload, recorder: Recorder, spans: list[list[tuple[int, int]]]) -> None:
    usable = [each for each in spans if len(each) == len(recorder.owners)]
    if not usable:
        work.notes.append(
            "The operators differ from run to run, so their times could not be assigned to modules."
        )
        return
    for call in recorder.ops:
        call.seconds = 0.0
    for place, owner in enumerate(recorder.owners):
        durations = [each[place][1] - each[place][0] for each in usable]
        call = recorder.ops[owner]
        call.seconds = (call.seconds or 0.0) + statistics.median(durations) / 1e9


def peak_memory(work: Workload, attention: str) -> int:
    """Largest number of bytes that one run on the CPU allocates at once, beside weights and inputs."""
    from torch.profiler import ProfilerActivity, profile

    args, kwargs = copy.deepcopy((work.args, work.kwargs))
    with settings(attention), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        work.module(*args, **kwargs)
    total = peak = 0
    for event in run.profiler.kineto_results.events():
        if event.name() == "[memory]":
            total += event.nbytes()
            peak = max(peak, total)
    return peak


def trace_events(recorder: Recorder, spans: list[tuple[int, int]]) -> dict[str, Any]:
    """One run as a Chrome trace: open it in Perfetto or chrome://tracing."""
    begin = spans[0][0] if spans else 0
    events = []
    for (start, end), owner in zip(spans, recorder.owners, strict=False):
        call = recorder.ops[owner]
        events.append(
            {
                "name": call.op,
                "cat": call.op_class,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": (start - begin) / 1e3,
                "dur": (end - start) / 1e3,
                "args": {"module": call.module, "flops": call.flops, "bytes": call.bytes},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
