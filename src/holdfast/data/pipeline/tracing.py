"""Tracing: run a pipeline for some seconds, collect what its stages recorded, account it per batch.

A `DataLoader` is recorded inside its workers. Threads of a stage graph wait for one another's lock, and
that wait looks like sleep: its costs are taken in one thread, in which nothing competes, and the rate from
running the graph. What SPDL itself computes is the CPU time of the process in that run that no stage
explains.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.data.pipeline import accounting, dataloader
from holdfast.data.pipeline.accounting import OUTSIDE, RECEIVE, SEND, Record, account
from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.loaders import Place, rewrite
from holdfast.data.pipeline.measuring import FEWEST, Consumer, Run, epochs, measure
from holdfast.data.pipeline.recording import Recorder
from holdfast.data.pipeline.stages import Sharing, Stage, Trace, unsupported

# Share from which two measurements of the same CPU time differ by more than chance.
OTHER_COST = 0.15
# Batches until sending one costs what it will cost: queues and shared memory are set up.
WARM_UP = 20
# Workers of a calibration.
MOST = 8
ENGINE = "engine"


def trace(
    loader: Any,
    seconds: float = 10.0,
    consumer: Consumer | None = None,
    calibration_s: float = 1.0,
) -> Trace:
    """Run a loader and account CPU time, waiting and bytes to each of its stages.

    The loader is copied; its samples, their order and its random state stay what they were. Epochs follow
    one another until the time is over.

    Args:
        loader: a torch `DataLoader`, a `Pipeline` or a Grain dataset.
        seconds: wall time after the warm-up (one batch of every worker).
        consumer: called with every batch, such as a training step; None: batches are dropped.
        calibration_s: seconds of each short run with one worker process and with several, which says what
            they cost one another and what handing a batch over costs; 0: none.

    Raises:
        InputError: not a loader, no batches, or a stage that raised, with stage and sample.
        WorkerDiedError: a worker process that ended, with stage and sample.
    """
    if not dataloader.is_loader(loader):
        return trace_graph(loader, seconds, consumer)
    workers = loader.num_workers
    run, records = _recorded(loader, seconds, consumer)
    stages = account(records, run, workers)
    traced = accounting.new_trace(
        run,
        records,
        stages,
        settings=dataloader.settings_of(loader),
        epoch_batches=dataloader.epoch_batches(loader),
        stream=dataloader.is_stream(loader.dataset),
        sharing=(_sharing(workers, 1.0, stages, run),) if workers else (),
    )
    if not workers:
        # Few batches may be traced, of which few long ones take most of the time; that of all is known.
        share = run.receive_cpu_s / run.batches / max(float(traced.costs[:, 0].mean()), 1e-9)
        scale = share if abs(share - 1) > OTHER_COST else 1.0
        traced = replace(traced, costs=traced.costs * [scale, 1.0])
    if calibration_s > 0 and not traced.stream:
        traced = _calibrated(traced, records, loader, calibration_s)
    return replace(traced, stages=tuple(accounting.with_callees(traced.stages, records)))


def built(make: Callable[[], Any]) -> tuple[Any, Consumer | None]:
    """The loader that a function returns, and the consumer of its batches if it returns both."""
    loader = make()
    if isinstance(loader, tuple) and len(loader) == 2 and callable(loader[1]):
        return loader
    return loader, None


def _recorded(
    loader: Any, seconds: float, consumer: Consumer | None = None, warm_up: int = 1
) -> tuple[Run, list[Record]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        run = measure(loader, seconds, consumer, Path(name), timing=True, warm_up=warm_up)
        return run, accounting.read_records(Path(name), loader.num_workers)


def _calibrated(traced: Trace, records: Sequence[Record], loader: Any, seconds: float) -> Trace:
    """The trace with what worker processes cost one another, from short runs with some numbers of them."""
    warm_up = min(WARM_UP, int(traced.rate * seconds / 4))
    runs: dict[int, tuple[Run, list[Record]]] = {}
    memory = 0.0
    for count in _numbers_of_workers(traced):
        if count > 1 and count * memory > traced.resources.memory_bytes:
            break
        changed = dataloader.with_settings(loader, {"num_workers": count})
        run, lines = _recorded(changed, seconds, None, max(warm_up, 2 * count))
        if run.batches and lines:
            runs[count] = run, lines
            memory = max(float(line["private_bytes"]) for line in lines)
    if 1 not in runs:
        return traced
    alone = runs[1][1]
    # Never less than alone, whatever the noise.
    sharing = tuple(
        _sharing(
            count, max(1.0, accounting.cpu_ratio(lines, alone)), account(lines, run, count), run
        )
        for count, (run, lines) in runs.items()
    )
    most = max(runs)
    stages = [
        accounting.shared_bandwidth(part, alone, runs[most][1], most) for part in traced.stages
    ]
    if loader.num_workers:
        slept = sum(part.blocked_s for part in traced.stages if part.name not in OUTSIDE)
        share = sum(part.blocked_s for part in stages if part.name not in OUTSIDE)
        scale = [1.0, share / slept if slept > 0 else 1.0]
    else:
        # A worker computes in one thread. Few batches fit into the calibration: it decides only where
        # threads of torch helped here.
        ratio = accounting.cpu_ratio(alone, records)
        scale = [ratio if abs(ratio - 1) > OTHER_COST else 1.0, 1.0]
        stages = [replace(part, worker_bytes=memory) for part in stages]
    return replace(traced, stages=tuple(stages), sharing=sharing, costs=traced.costs * scale)


def _sharing(workers: int, slowdown: float, stages: Sequence[Stage], run: Run) -> Sharing:
    send, receive = (part for part in stages if part.name in (SEND, RECEIVE))
    return Sharing(workers, slowdown, send.cpu_s, receive.cpu_s, receive.blocked_s, run.start_s)


def _numbers_of_workers(traced: Trace) -> list[int]:
    """One; all cores, and twice as many; more where workers mostly wait."""
    cores, workers = max(2, math.ceil(traced.resources.cores)), traced.settings["num_workers"]
    cpu, blocked = traced.costs.mean(axis=0)
    several = (cores, 2 * cores) if cpu >= blocked else (max(cores, 4, 2 * workers),)
    return sorted({1, *(min(MOST, count) for count in several)})


# --- Stage graphs ---------------------------------------------------------------------------------


def trace_graph(loader: Any, seconds: float = 10.0, consumer: Consumer | None = None) -> Trace:
    """Run a stage graph and account CPU time, waiting and bytes to each of its stages.

    Its own epochs are untouched: what it delivers afterwards is what it would have delivered.

    Args:
        loader: a `Pipeline` or a Grain dataset; its source must be one that can be read again.
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
    if iter(pipeline.source) is pipeline.source:
        again = "a source that can be iterated again"
        raise unsupported("tracing would use up the source", pipeline.source, expected=again)
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as folder:
        _run_stages(pipeline.private(), seconds / 2, Path(folder))
        records = accounting.read_records(Path(folder))
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
    moving = Stage(ENGINE, ENGINE, "main", 1, 1.0, engine, engine, sequential=True)
    settings = {place.group: place.parallelism for place in places.values()}
    return accounting.new_trace(run, records, (*stages, moving, sink), settings=settings)


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
        with closing(epochs(epoch)) as elements:
            for _ in elements:
                recorder.end_batch(taken)
                taken = 0
                if recorder.traced >= FEWEST and time.perf_counter() >= until:
                    break
    finally:
        recorder.close()
