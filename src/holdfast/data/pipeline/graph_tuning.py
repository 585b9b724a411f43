"""Tuning a stage graph: workers and executors by the model; kept if faster with the same data."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from holdfast.data.pipeline.graph import Pipeline, is_picklable
from holdfast.data.pipeline.graph_model import EXECUTOR, executor_of, graph_plan, plan_settings
from holdfast.data.pipeline.graph_trace import run_loader, trace_graph
from holdfast.data.pipeline.prediction import predict
from holdfast.data.pipeline.stages import Executor
from holdfast.data.pipeline.tracing import Consumer
from holdfast.data.pipeline.tuning import (
    COMPARED,
    GAIN,
    TRIED,
    Trial,
    Tuning,
    digest,
    outcome,
    require_precise,
)

WORTH = 1.1
"""Processes must be predicted to be so many times as fast as threads: samples are copied to them."""


def with_graph_settings(pipeline: Pipeline, settings: Mapping[str, int]) -> Pipeline:
    """The pipeline with other workers and executors."""
    workers = {name: count for name, count in settings.items() if not name.endswith(EXECUTOR)}
    executors = {
        step.name: executor_of(step.name, step.executor, settings) for step in pipeline.steps
    }
    return pipeline.with_concurrency(workers, executors)


def tune_graph(
    pipeline: Pipeline,
    consumer: Consumer | None,
    seconds: float,
    trials: int,
    output: Path | None,
) -> Tuning:
    """As `tune`, of a stage graph."""
    began = time.perf_counter()
    traced = trace_graph(pipeline, seconds * 0.4, consumer)
    require_precise(traced)
    original = _digests(pipeline)
    # Functions of the script itself stay in threads: processes would import it, and it may have no guard.
    free: dict[str, tuple[Executor, ...]] = {
        step.name: ("thread", "process")
        for step in pipeline.steps
        if step.kind in ("map", "filter")
        and is_picklable(step.function)
        and getattr(step.function, "__module__", "") != "__main__"
    }
    threads, processes = (plan_settings(traced, graph_plan(traced, e)) for e in (None, free))
    worth = predict(traced, processes)[0] > WORTH * predict(traced, threads)[0]
    candidates = [processes, threads] if worth else [threads]
    attempts: list[Trial] = []
    for settings in candidates[:trials]:
        rate, ends = predict(traced, settings)
        known = settings in [attempt.settings for attempt in attempts]
        late = attempts and time.perf_counter() - began > seconds - TRIED * seconds
        if settings == dict(traced.settings) or rate < traced.rate * (1 + GAIN) or known or late:
            continue
        tuned = with_graph_settings(pipeline, settings)
        trial = Trial(settings, rate, ends, None, "different")
        if _digests(tuned) == original:
            run, _ = run_loader(tuned, TRIED * seconds, consumer)
            trial = replace(trial, measured=run.batches / run.seconds, data="identical")
        attempts.append(trial)
        if trial.measured is not None and ends[0] <= trial.measured:
            break
    return outcome(traced, attempts, output, time.perf_counter() - began)


def _digests(pipeline: Pipeline) -> list[str]:
    """Hashes of the first batches of the next epoch, which stays the next."""
    run = pipeline.run(pipeline.epoch)
    return [digest(batch) for batch in itertools.islice(iter(run), COMPARED)]
