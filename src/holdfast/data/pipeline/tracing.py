"""Tracing a loader: run it for some seconds, collect what its workers recorded, account it per batch."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.accounting import (
    OUTSIDE,
    RECEIVE,
    SEND,
    Record,
    account,
    cpu_ratio,
    new_trace,
    queued_share,
    read_records,
    shared_bandwidth,
)
from holdfast.data.pipeline.measuring import Consumer, Run, measure
from holdfast.data.pipeline.stages import Sharing, Stage, Trace

OTHER_COST = 0.15
"""Share from which two measurements of the same CPU time differ by more than chance."""
WARM_UP = 20
"""Batches until sending one costs what it will cost: queues and shared memory are set up."""
MOST = 8
"""Workers of a calibration."""


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
        loader: a torch `DataLoader`, a `Pipeline`, a torchdata loader or node, a Grain dataset.
        seconds: wall time after the warm-up (one batch of every worker).
        consumer: called with every batch, such as a training step; None: batches are dropped.
        calibration_s: seconds of each short run with one worker process and with several, which says what
            they cost one another and what handing a batch over costs; 0: none.

    Raises:
        InputError: not a loader, no batches, or a stage that raised, with stage and sample.
        WorkerDiedError: a worker process that ended, with stage and sample.
    """
    from holdfast.data.pipeline.graph_trace import trace_graph

    if not dataloader.is_loader(loader):
        return trace_graph(loader, seconds, consumer)
    workers = loader.num_workers
    run, records = _recorded(loader, seconds, consumer)
    stages = account(records, run, workers)
    traced = replace(
        new_trace(run, records, stages, dataloader.settings_of(loader)),
        epoch_batches=dataloader.epoch_batches(loader),
        queued=queued_share(records),
        sharing=(_sharing(workers, 1.0, stages),) if workers else (),
    )
    if not workers:
        # Few batches may be traced, of which few long ones take most of the time; that of all is known.
        share = run.receive_cpu_s / run.batches / max(float(traced.costs[:, 0].mean()), 1e-9)
        scale = share if abs(share - 1) > OTHER_COST else 1.0
        traced = replace(traced, costs=traced.costs * [scale, 1.0])
    if calibration_s <= 0 or dataloader.is_iterable(loader):
        return traced
    return _calibrated(traced, records, loader, calibration_s)


def _recorded(
    loader: Any, seconds: float, consumer: Consumer | None = None, warm_up: int = 1
) -> tuple[Run, list[Record]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        run = measure(loader, seconds, consumer, Path(name), timing=True, warm_up=warm_up)
        return run, read_records(Path(name), loader.num_workers)


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
        _sharing(count, max(1.0, cpu_ratio(lines, alone)), account(lines, run, count))
        for count, (run, lines) in runs.items()
    )
    most = max(runs)
    stages = [shared_bandwidth(part, alone, runs[most][1], most) for part in traced.stages]
    if loader.num_workers:
        slept = sum(part.blocked_s for part in traced.stages if part.name not in OUTSIDE)
        share = sum(part.blocked_s for part in stages if part.name not in OUTSIDE)
        scale = [1.0, share / slept if slept > 0 else 1.0]
    else:
        # A worker computes in one thread. Few batches fit into the calibration: it decides only where
        # threads of torch helped here.
        ratio = cpu_ratio(alone, records)
        scale = [ratio if abs(ratio - 1) > OTHER_COST else 1.0, 1.0]
        stages = [replace(part, worker_bytes=memory) for part in stages]
    return replace(traced, stages=tuple(stages), sharing=sharing, costs=traced.costs * scale)


def _sharing(workers: int, slowdown: float, stages: Sequence[Stage]) -> Sharing:
    by_name = {part.name: part for part in stages}
    receive = by_name[RECEIVE]
    return Sharing(workers, slowdown, by_name[SEND].cpu_s, receive.cpu_s, receive.blocked_s)


def _numbers_of_workers(traced: Trace) -> list[int]:
    """One; all cores, and twice as many; more where workers mostly wait."""
    cores, workers = max(2, math.ceil(traced.resources.cores)), traced.settings["num_workers"]
    cpu, blocked = traced.costs.mean(axis=0)
    several = (cores, 2 * cores) if cpu >= blocked else (max(cores, 4, 2 * workers),)
    return sorted({1, *(min(MOST, count) for count in several)})
