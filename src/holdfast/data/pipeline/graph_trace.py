"""Tracing a stage graph: the cost of each stage from running it alone, the rate from running the graph.

Threads of one process wait for one another's lock, and that wait looks like sleep. So the costs are taken
in one thread, in which nothing competes; what SPDL itself computes is the CPU time of the process in the
run of the graph that no stage explains.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.pipeline.accounting import Run, account, batch_costs, read_records
from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.loaders import Again, Place, rewrite
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.recording import Recorder, size_of
from holdfast.data.pipeline.stages import Stage, Trace
from holdfast.data.pipeline.tracing import Consumer, rate_error
from holdfast.errors import InputError

ENGINE = "engine"
_LEAST = 3
"""Batches, the first of which is a warm-up."""


def trace_graph(
    pipeline: Pipeline, seconds: float = 10.0, consumer: Consumer | None = None
) -> Trace:
    """Run a stage graph and account CPU time, waiting and bytes to each of its stages.

    The pipeline's own epochs are untouched: what it delivers afterwards is what it would have delivered.

    Args:
        pipeline: the graph; its source must be one that can be read again.
        seconds: wall time of the two runs together.
        consumer: called with every batch.

    Raises:
        InputError: `no-data` with fewer than 3 batches, `unsupported` if tracing would use up the source.
    """
    places = {
        step.name: Place(
            step.name,
            step.executor,
            step.concurrency,
            step.kind == "source" and not pipeline.indexed,
        )
        for step in pipeline.steps
    }
    return _trace(pipeline, places, _private(pipeline), seconds, consumer)


def trace_loader(
    loader: Any, seconds: float = 10.0, consumer: Consumer | None = None
) -> Trace | None:
    """As `trace_graph`; also of torchdata's loaders and nodes and Grain's datasets. None for others."""
    if isinstance(loader, Pipeline):
        return trace_graph(loader, seconds, consumer)
    rewritten = rewrite(loader)
    if rewritten is None:
        return None
    # A node of torchdata is its own iterator.
    again = Again(lambda: _reset(loader)) if hasattr(loader, "reset") else loader
    return _trace(rewritten.pipeline, rewritten.places, again, seconds, consumer)


def _trace(
    pipeline: Pipeline,
    places: Mapping[str, Place],
    loader: Iterable[Any],
    seconds: float,
    consumer: Consumer | None,
) -> Trace:
    """Costs from the graph's stages, the rate from the loader."""
    if iter(pipeline.source) is pipeline.source:
        raise InputError(
            "tracing would use up the source",
            code="unsupported",
            found=type(pipeline.source).__name__,
            expected="a source that can be iterated again",
        )
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as folder:
        _run_stages(_private(pipeline), seconds / 2, Path(folder))
        records = read_records(Path(folder))
    run, process_s = run_loader(loader, seconds / 2, consumer)
    if run.batches < 2 or len(records) < 2:
        raise InputError(
            "the pipeline gave too few batches to trace", code="no-data", found=f"{run.batches}"
        )
    *stages, sink = account(records, run, workers=0)
    stages = [_placed(pipeline, stage, places[stage.name]) for stage in stages]
    explained = sum(part.cpu_s for part in stages if part.executor != "process") + sink.cpu_s
    engine = max(0.0, process_s / run.batches - explained)
    # What moves samples between the stages is Python, and mostly one thread.
    moving = replace(
        sink, name=ENGINE, group=ENGINE, cpu_s=engine, gil_s=engine, blocked_s=0.0, out_bytes=0.0
    )
    return Trace(
        stages=(*stages, moving, sink),
        seconds=run.seconds,
        batches=run.batches,
        rate=run.batches / run.seconds,
        rate_error=rate_error(run.moments),
        starved=min(1.0, run.waited_s / run.seconds),
        resources=resources(),
        settings={place.group: place.parallelism for place in places.values()},
        batch_bytes=run.batch_bytes,
        costs=batch_costs(records),
    )


def _placed(pipeline: Pipeline, stage: Stage, place: Place) -> Stage:
    step = next(part for part in pipeline.steps if part.name == stage.name)
    return replace(
        stage,
        group=place.group,
        executor=place.executor,
        parallelism=place.parallelism,
        sequential=place.sequential,
        random=True if step.random else stage.random,
    )


def _private(pipeline: Pipeline) -> Pipeline:
    """A copy whose epochs do not count; cache and workers are the same."""
    other = copy.copy(pipeline)
    other.on_error = "skip"
    return other


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Elements of epoch after epoch, until one is empty."""
    while True:
        empty = True
        for element in loader:
            empty = False
            yield element
        if empty:
            return


def _run_stages(pipeline: Pipeline, seconds: float, folder: Path) -> None:
    """All stages in this thread, recorded; processes of their own are not used."""
    recorder = Recorder(folder, 0)
    taken = 0

    def epoch() -> Iterator[Any]:
        nonlocal taken
        run = pipeline.run(pipeline.epoch, in_processes=False)
        pipeline.epoch += 1
        run.call = recorder.run
        before = 0
        for element in run.serial():
            taken, before = taken + run.taken - before, run.taken
            yield element
        taken += run.taken - before  # what the end of the epoch left over counts for the next batch

    until = time.perf_counter() + seconds
    try:
        for _ in _endless(Again(epoch)):
            recorder.end_batch(taken)
            taken = 0
            if recorder.traced >= _LEAST and time.perf_counter() >= until:
                break
    finally:
        recorder.close()


def run_loader(
    loader: Iterable[Any], seconds: float, consumer: Consumer | None
) -> tuple[Run, float]:
    """The loader as it is; what the consumer saw, and CPU seconds of this process."""
    moments: list[float] = []
    waited = consuming = consumer_cpu = started_cpu = 0.0
    size = 0
    before = time.perf_counter()
    for batch in _endless(loader):
        arrived, cpu = time.perf_counter(), time.thread_time()
        if consumer is not None:
            consumer(batch)
        size = size or size_of(batch)
        now = time.perf_counter()
        if moments:
            waited += arrived - before
            consuming += now - arrived
            consumer_cpu += time.thread_time() - cpu
        else:  # the first batch is a warm-up
            started_cpu = time.process_time()
        moments.append(now)
        before = now
        if len(moments) >= _LEAST and now - moments[0] >= seconds:
            break
    run = Run(np.array(moments), waited, 0.0, consumer_cpu, consuming, size)
    return run, time.process_time() - started_cpu


def _reset(node: Any) -> Iterator[Any]:
    node.reset()
    return iter(node)
