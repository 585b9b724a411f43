"""The data of this room: a stage and what it costs, the trace of a pipeline, the machine, a plan.

Every cost is **per batch at the root** (what the consumer gets from one ``next()``): a stage that runs V
times per batch (its visit ratio) has V times the cost of one run. After Kuchnik et al., "Plumber:
diagnosing and removing performance bottlenecks in machine learning data pipelines", MLSys 2022 (arXiv
2111.04131).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

FloatArray = npt.NDArray[np.float64]

# What limits a stage: cores, the interpreter lock, waiting for answers, bytes per second, the consumer.
Kind = Literal["cpu", "gil", "latency", "bandwidth", "consumer"]

# Share of its CPU time with the lock held from which a stage is limited by the lock; it is sampled.
LOCKED = 0.7

# Where a stage runs: in the consumer's thread, in threads of its process, or in worker processes.
Executor = Literal["main", "thread", "process"]


def unsupported(problem: str, thing: Any, **more: Any) -> InputError:
    """The error of a loader, a source or a function of a kind that cannot be used here."""
    return InputError(problem, **{"code": "unsupported", "found": type(thing).__name__, **more})


@dataclass(frozen=True)
class Stage:
    """One step of a pipeline and its cost per batch at the root, in seconds and bytes.

    Args:
        name: unique in the pipeline: ``"source"``, ``"transform 1: Normalize"``, ``"collate"``.
        group: stages of one group run one after another in the same worker and share its
            parallelism.
        parallelism: theta, workers of the group, at least 1.
        visits: V, elements per batch.
        cpu_s: thread CPU seconds per batch, never wall time.
        gil_s: the part of `cpu_s` during which the interpreter lock is held.
        blocked_s: seconds per batch asleep (I/O, locks, timers): neither on a core nor in the run
            queue.
        out_bytes: bytes handed to the next stage per batch; what a process would have to pickle.
        bandwidth_bytes_s: bytes per second that all workers of the stage share; infinite where no
            limit was seen.
        stream_bytes_s: bytes per second of one worker, where its waiting grows with the bytes;
            else infinite.
        sequential: cannot run in parallel with itself (a generator, a file that is read from
            front to back).
        random: draws from a global random generator; None: not examined.
        worker_bytes: memory of one more worker process of the group, without the batches in
            flight.
    """

    name: str
    group: str
    executor: Executor
    parallelism: int
    visits: float
    cpu_s: float
    gil_s: float = 0.0
    blocked_s: float = 0.0
    out_bytes: float = 0.0
    bandwidth_bytes_s: float = math.inf
    stream_bytes_s: float = math.inf
    sequential: bool = False
    random: bool | None = None
    worker_bytes: float = 0.0

    @property
    def service_s(self) -> float:
        """Seconds per batch that the stage occupies a worker that never waits for a core."""
        return self.cpu_s + self.blocked_s

    @property
    def bandwidth_rate(self) -> float:
        """Batches per second that the shared bandwidth lets through."""
        return self.bandwidth_bytes_s / self.out_bytes if self.out_bytes > 0 else math.inf

    @property
    def latency_s(self) -> float:
        """Seconds asleep per element."""
        return self.blocked_s / self.visits if self.visits else 0.0

    @property
    def rate_limit(self) -> float:
        """Batches per second if this stage alone were to limit: R theta, with waiting and bandwidth."""
        limit = self.parallelism / self.service_s if self.service_s > 0 else math.inf
        if self.executor != "process" and self.gil_s > 0:  # threads of one process share one lock
            limit = min(limit, 1.0 / (self.gil_s + self.blocked_s / self.parallelism))
        return min(limit, self.bandwidth_rate)

    @property
    def kind(self) -> Kind:
        """What its time goes into."""
        if self.blocked_s > self.cpu_s:
            limited = min(self.bandwidth_bytes_s, self.stream_bytes_s) < math.inf
            return "bandwidth" if limited else "latency"
        return "gil" if self.gil_s > LOCKED * self.cpu_s else "cpu"


@dataclass(frozen=True)
class Resources:
    """What the machine lets this process use: quotas of its control group, not what is built in.

    Args:
        cores: CPU seconds per second.
        memory_bytes: free memory within the limits.
    """

    cores: float
    memory_bytes: float


@dataclass(frozen=True)
class Sharing:
    """What a batch costs with so many worker processes at once, in seconds.

    Args:
        slowdown: CPU time of the stages over that with one worker: caches, memory and cores are
            shared.
        send_s: CPU time of a worker to hand the batch over.
        receive_s: CPU time of the consumer's thread to take it.
        wait_s: time that this thread waits meanwhile for answers of the worker.
        start_s: an epoch of one batch: all workers start, and end; 0 where they outlive it.
    """

    workers: float
    slowdown: float
    send_s: float
    receive_s: float
    wait_s: float
    start_s: float = 0.0


def over_epochs(rate: float, start_s: float, epoch_batches: int | None) -> float:
    """Batches per second over whole epochs, of which each starts workers.

    Args:
        rate: within an epoch.
        start_s: seconds of an epoch of one batch; 0: no workers start.
        epoch_batches: batches of an epoch; None: unknown, and taken as many.
    """
    if start_s and epoch_batches and rate:
        rate = epoch_batches / (start_s + (epoch_batches - 1) / rate)
    return rate


@dataclass(frozen=True)
class Trace:
    """What a pipeline did while it was traced: stages from the source to the consumer.

    Args:
        seconds: wall time traced, without the warm-up.
        rate: batches per second that the consumer received, over whole epochs: each starts its workers.
        rate_error: standard error of `rate` as a share of it, from blocks of batches.
        starved: share of `seconds` in which the consumer waited for a batch.
        settings: the settings in force: ``num_workers``, ``prefetch_factor``, ...
        batch_bytes: size of a batch in memory.
        epoch_batches: batches of an epoch; None: unknown.
        costs: CPU and blocked seconds of batches in the stages of one worker process, shape
            [batches, 2].
        queued: share of their computing time that stages waited for a core.
        sharing: what workers cost one another and the consumer, by their number.
        stream: each worker decides what it reads.
    """

    stages: tuple[Stage, ...]
    seconds: float
    batches: int
    rate: float
    rate_error: float
    starved: float
    resources: Resources
    settings: Mapping[str, int] = field(default_factory=dict)
    batch_bytes: float = 0.0
    epoch_batches: int | None = None
    costs: FloatArray = field(default_factory=lambda: np.empty((0, 2)))
    queued: float = 0.0
    sharing: tuple[Sharing, ...] = ()
    stream: bool = False

    @property
    def stage(self) -> Mapping[str, Stage]:
        """The stages by name."""
        return {stage.name: stage for stage in self.stages}


@dataclass(frozen=True)
class Plan:
    """Workers of a stage graph and the rate that the model predicts for them.

    Args:
        rate: batches per second.
        parallelism: theta per group.
        executors: executor per group.
    """

    rate: float
    parallelism: Mapping[str, int]
    executors: Mapping[str, Executor]
