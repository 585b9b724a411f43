"""Tracing a stage graph: the cost of each stage from running it alone, the rate from running the graph.

Threads of one process wait for one another's lock, and that wait looks like sleep. So the costs are taken
in one thread, in which nothing competes; what SPDL itself computes is the CPU time of the process in the
run of the graph that no stage explains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.data.pipeline.accounting import account, new_trace, read_records
from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.loaders import Again, Place, rewrite
from holdfast.data.pipeline.measuring import FEWEST, Consumer, epochs, measure
from holdfast.data.pipeline.recording import Recorder
from holdfast.data.pipeline.stages import Trace
from holdfast.errors import InputError

ENGINE = "engine"


def trace_graph(loader: Any, seconds: float = 10.0, consumer: Consumer | None = None) -> Trace:
    """Run a stage graph and account CPU time, waiting and bytes to each of its stages.

    Its own epochs are untouched: what it delivers afterwards is what it would have delivered.

    Args:
        loader: a `Pipeline`, a torchdata loader or node, a Grain dataset; its source must be one that can
            be read again.
        seconds: wall time of the two runs together.
        consumer: called with every batch.

    Raises:
        InputError: `no-data` with fewer than 3 batches; `unsupported` for another loader, or if tracing
            would use up the source.
    """
    if isinstance(loader, Pipeline):
        pipeline, places = loader, _places(loader)
        loader = pipeline.private()
    else:
        pipeline, places = rewrite(loader)
        if hasattr(loader, "reset"):  # a node of torchdata is its own iterator
            node = loader
            loader = Again(lambda: (node.reset(), iter(node))[1])
    if iter(pipeline.source) is pipeline.source:
        raise InputError(
            "tracing would use up the source",
            code="unsupported",
            found=type(pipeline.source).__name__,
            expected="a source that can be iterated again",
        )
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as folder:
        _run_stages(pipeline.private(), seconds / 2, Path(folder))
        records = read_records(Path(folder))
    run = measure(loader, seconds / 2, consumer)
    *stages, sink = account(records, run, workers=0)
    random = {step.name for step in pipeline.steps if step.random}
    stages = [
        replace(part, **places[part.name]._asdict(), random=part.name in random or part.random)
        for part in stages
    ]
    explained = sum(part.cpu_s for part in stages if part.executor != "process") + sink.cpu_s
    engine = max(0.0, run.cpu_s / run.batches - explained)
    # What moves samples between the stages is Python, and mostly one thread.
    moving = replace(
        sink, name=ENGINE, group=ENGINE, cpu_s=engine, gil_s=engine, blocked_s=0.0, out_bytes=0.0
    )
    settings = {place.group: place.parallelism for place in places.values()}
    return new_trace(run, records, (*stages, moving, sink), settings)


def _places(pipeline: Pipeline) -> dict[str, Place]:
    """Each stage in workers of its own."""
    return {
        step.name: Place(
            step.name,
            step.executor,
            step.concurrency,
            step.kind == "source" and not pipeline.indexed,
        )
        for step in pipeline.steps
    }


def _run_stages(pipeline: Pipeline, seconds: float, folder: Path) -> None:
    """All stages in this thread, recorded; processes of their own are not used."""
    recorder = Recorder(folder, 0)
    taken = 0

    def epoch() -> Iterator[Any]:
        nonlocal taken
        run = pipeline.run(pipeline.epoch, in_processes=False)
        pipeline.epoch += 1
        run.call = lambda name, function, *sample: recorder.wrap(name, function)(*sample)
        before = 0
        for element in run.serial():
            taken, before = taken + run.taken - before, run.taken
            yield element
        taken += run.taken - before  # what the end of the epoch left over counts for the next batch

    until = time.perf_counter() + seconds
    try:
        with closing(epochs(Again(epoch))) as elements:
            for _ in elements:
                recorder.end_batch(taken)
                taken = 0
                if recorder.traced >= FEWEST and time.perf_counter() >= until:
                    break
    finally:
        recorder.close()
