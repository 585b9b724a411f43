"""Seconds of each operator of a real run: wall time between dispatch and return."""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.profile.ops.formulas import BOOKKEEPING, known
from holdfast.profile.ops.recording import Recorder
from holdfast.profile.ops.running import Workload, settings


@dataclass(frozen=True)
class Timing:
    """How long a forward pass takes, and how much of that its operators explain.

    Attributes:
        wall_s: Without measuring operators: the median.
        measured_wall_s: While operators are measured: the median.
        attributed: Share of the wall time inside operators, of the fastest runs: measuring itself is in
            neither.
        overhead: What measuring adds: the least CPU time of a measured run / that of a plain run - 1.
        load: Load average before.
    """

    runs: int
    wall_s: float
    measured_wall_s: float
    attributed: float
    overhead: float
    threads: int
    load: float

    @property
    def residual_s(self) -> float:
        """Seconds outside operators: Python code of the model."""
        return self.wall_s * (1 - self.attributed)

    def to_dict(self) -> dict[str, Any]:
        """The part of the JSON."""
        return {**asdict(self), "residual_s": self.residual_s}


class _Clock(TorchDispatchMode):
    """Notes when each operator starts and ends; nothing else, to disturb as little as possible."""

    supports_higher_order_operators = True

    def __init__(self, composite: Callable[[Any], bool]) -> None:
        super().__init__()
        # Nanoseconds of each operator.
        self.spans: list[int] = []
        self._composite = composite

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run and time one operator; what `Recorder` takes apart or passes over is treated alike."""
        if self._composite(func):
            with self:
                parts = func.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        start = time.perf_counter_ns()
        out = func(*args, **(kwargs or {}))
        if func.namespace not in BOOKKEEPING:
            self.spans.append(time.perf_counter_ns() - start)
        return out


def measure(work: Workload, recorder: Recorder, attention: str, runs: int = 5) -> Timing:
    """Time every operator of a recorded workload, which already ran once; sets `OpCall.seconds`.

    Args:
        work: on the CPU.
        recorder: of the run before, by which spans belong to operators.
        attention: see `running.settings`.
        runs: plain and measured runs, in turn.
    """
    load = round(os.getloadavg()[0], 2)
    composite = cache(lambda func: func.namespace not in BOOKKEEPING and not known(func))
    plain, measured = list[_Seconds](), list[_Seconds]()
    spans = list[list[int]]()
    for _ in range(runs):
        plain.append(_run(work, attention, nullcontext()))
        clock = _Clock(composite)
        measured.append(_run(work, attention, clock))
        spans.append(clock.spans)
    usable = [each for each in spans if len(each) == len(recorder.owners)]
    if not usable:
        work.notes.append("Operators differ from run to run: their times are not assigned to them.")
    for call in recorder.ops if usable else ():
        call.seconds = 0.0
    for owner, durations in zip(recorder.owners, zip(*usable, strict=True), strict=False):
        recorder.ops[owner].seconds += statistics.median(durations) / 1e9  # type: ignore[operator]
    # Other work on the machine can only add time, to a plain run as to a measured one.
    wall, cpu = map(min, zip(*plain, strict=True))
    inside = min(sum(each) for each in spans) / 1e9
    shares = [sum(each) / 1e9 / run for each, (run, _) in zip(spans, measured, strict=True)]
    return Timing(
        runs,
        statistics.median(each for each, _ in plain),
        statistics.median(each for each, _ in measured),
        # Slower operators than the fastest plain run: other work, so the measured runs must do.
        inside / wall if inside < wall else max(shares),
        min(each for _, each in measured) / cpu - 1,
        torch.get_num_threads(),
        load,
    )


# Wall and CPU time of a run.
_Seconds = tuple[float, float]


def _run(work: Workload, attention: str, clock: AbstractContextManager[Any]) -> _Seconds:
    args, kwargs = copy.deepcopy((work.args, work.kwargs))  # caches grow
    with settings(attention):
        start, cpu = time.perf_counter(), time.process_time()
        with clock:
            work.module(*args, **kwargs)
        return time.perf_counter() - start, time.process_time() - cpu
