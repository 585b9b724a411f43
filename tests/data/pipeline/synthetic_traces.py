"""Stages and traces with given costs."""

from __future__ import annotations

import math

import numpy as np

from holdfast.data.pipeline.stages import Resources, Stage, Trace


def stage(name: str, cpu: float, blocked: float = 0.0, **more: object) -> Stage:
    settings = {
        "group": name,
        "executor": "thread",
        "parallelism": 1,
        "elements": 100,
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
            stage("send", cpu / 2, **process),
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
