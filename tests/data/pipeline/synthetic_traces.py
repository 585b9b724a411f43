"""Stages and traces with given costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.data.pipeline.measuring import Run
from holdfast.data.pipeline.stages import Resources, Stage, Trace

NAMES = ("source", "transform 1: first", "transform 2: second", "collate")
SAMPLES = 4  # of a batch


def stage(name: str, cpu: float, blocked: float = 0.0, **more: object) -> Stage:
    settings = {
        "group": name,
        "executor": "thread",
        "parallelism": 1,
        "visits": 1.0,
    }
    return Stage(name=name, cpu_s=cpu, blocked_s=blocked, **{**settings, **more})  # type: ignore[arg-type]


def loader_trace(
    cpu: float = 0.01,
    blocked: float = 0.0,
    workers: int = 1,
    consumer: float = 0.0,
    cores: float = 4.0,
    spread: float = 0.0,
    batches: int = 100,
) -> Trace:
    """A trace without noise, or with exponential noise of a share `spread`."""
    noise = 1 - spread + spread * np.random.default_rng(0).exponential(size=(batches, 1))
    process = {"group": "workers", "executor": "process", "parallelism": workers}
    main = {"group": "main", "executor": "main", "sequential": True}
    rate = min(workers / (cpu + blocked), cores / cpu, 1 / consumer if consumer else math.inf)
    return Trace(
        stages=(
            stage("source", cpu / 2, blocked, **process),
            stage("collate", cpu / 2, **process),
            stage("send", 0.0, **process),
            stage("receive", 0.0, **main),
            stage("consumer", 0.0, consumer, **main),
        ),
        seconds=batches / rate,
        batches=batches,
        rate=rate,
        rate_error=0.0,
        starved=1.0,
        resources=Resources(cores, 1e12),
        settings={"num_workers": workers, "prefetch_factor": 2},
        costs=np.array([[cpu, blocked]]) * noise,
    )


def records(
    kind: str, position: str, batches: int = 20, blocked: float = 0.016
) -> list[dict[str, Any]]:
    """What a worker records of a loader whose slow stage takes 16 ms per batch, and any other 0.1 ms.

    Every stage waited for a core three times as long as the slow one took: the machine is loaded.
    """
    result = []
    for batch in range(batches):
        sizes = [4000 * (1 + (batch + n) % 4) for n in range(SAMPLES)]
        calls, stages, held = {}, {}, {}
        for name in NAMES:
            slow = name == position
            cpu = 0.016 if slow and kind in ("cpu", "gil") else 0.0001
            waits = [0.0] * SAMPLES
            if slow and kind == "latency":
                waits = [blocked / SAMPLES] * SAMPLES
            if slow and kind == "bandwidth":
                waits = [blocked * size / 40_000 for size in sizes]
            bytes_ = sizes
            if name == "collate":
                waits, bytes_ = [sum(waits)], [sum(sizes) + 4000 * (batch % 4)]
                if slow and kind == "bandwidth":
                    waits = [blocked * bytes_[0] / 40_000]
            seconds = (cpu, 0.05, sum(waits), 0.0)
            stages[name] = [len(waits), *(int(1e9 * value) for value in seconds), 0]
            calls[name] = {
                "random": False,
                "calls": [(wait, size, size) for wait, size in zip(waits, bytes_, strict=True)],
            }
            held[name] = [10, 0] if kind == "gil" else [0, 10]
        result.append(
            {
                "batch": batch + 2,
                "samples": SAMPLES,
                "detailed": batch % 2 == 0,
                "plain": [0, 0],
                "private_bytes": 1 << 20,
                "process_cpu": sum(times[1] for times in stages.values()),
                "stages": stages,
                "details": calls if batch % 2 == 0 else {},
                "held": held if batch % 2 == 0 else {},
                "serving_queued": 0.0,
            }
        )
    return result


def consumed(consumer_s: float, batches: int = 20) -> Run:
    """What the consumer saw that takes so long for a batch."""
    moments = np.arange(batches + 1) * max(0.017, consumer_s)
    return Run(moments, 0.017 * batches, 0.0, 0.0, 0.0, consumer_s * batches, 40_000.0)
