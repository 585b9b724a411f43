"""Tracing a loader: run it for some seconds, collect what its workers recorded, account it per batch."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.accounting import (
    account,
    batch_costs,
    queued_share,
    read_records,
    shared_bandwidth,
    total_cpu_s,
)
from holdfast.data.pipeline.calibration import concurrency, run_side_by_side
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.measuring import Consumer, measure, rate_error
from holdfast.data.pipeline.stages import Trace
from holdfast.errors import InputError

OTHER_COST = 0.15
WARM_UP = 20
"""Batches until sending one costs what it will cost: queues and shared memory are set up."""


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
        calibration_s: seconds of each run of the stages outside of the loader, in one process and in
            several, that says what they cost one another; 0: none.

    Raises:
        InputError: not a loader, no batches, or a stage that raised, with stage and sample.
        WorkerDiedError: a worker process that ended, with stage and sample.
    """
    from holdfast.data.pipeline.graph_trace import trace_graph

    if not dataloader.is_loader(loader):
        return trace_graph(loader, seconds, consumer)
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        run = measure(loader, seconds, consumer, Path(name), timing=True)
        records = read_records(Path(name))
    if run.batches == 0 or not records:
        raise InputError(
            "the loader gave too few batches to trace",
            code="no-data",
            expected="at least two batches per worker",
            remedy="trace longer, or use smaller batches",
        )
    stages = account(records, run, loader.num_workers)
    cost = {part.name: part.cpu_s for part in stages}
    send = cost.get("send", 0.0)
    traced = Trace(
        stages=tuple(stages),
        seconds=run.seconds,
        batches=run.batches,
        rate=run.batches / run.seconds,
        rate_error=rate_error(run.moments),
        starved=min(1.0, run.waited_s / run.seconds),
        resources=resources(),
        settings=dataloader.settings_of(loader),
        batch_bytes=run.batch_bytes,
        epoch_batches=dataloader.epoch_batches(loader),
        queued=queued_share(records),
        costs=np.add(batch_costs(records), (send, 0.0)),
        send_s=send,
        receive_s=cost.get("receive", 0.0),
    )
    if calibration_s <= 0 or dataloader.is_iterable(loader):
        return traced
    return _calibrated(traced, loader, calibration_s)


def _calibrated(traced: Trace, loader: Any, seconds: float) -> Trace:
    """The trace with what processes that run the stages at the same time cost one another."""
    stages, costs = list(traced.stages), traced.costs
    count = concurrency(stages, loader.num_workers)
    runs = {number: run_side_by_side(loader, number, seconds) for number in (1, count)}
    alone = runs[1]
    cpu_s = {number: total_cpu_s(records) for number, records in runs.items()}
    # Never less than alone, whatever the noise.
    contention = ((float(count), max(1.0, cpu_s[count] / max(cpu_s[1], 1e-9))),)
    stages = [shared_bandwidth(part, alone, runs[count], count) for part in stages]
    if loader.num_workers:
        slept = sum(part.blocked_s for part in traced.stages[:-1])
        share = sum(part.blocked_s for part in stages[:-1]) / slept if slept > 0 else 1.0
        return replace(
            traced, stages=tuple(stages), contention=contention, costs=costs * [1.0, share]
        )
    # What a worker process would take, which computes in one thread, and hands its batches over.
    send, receive = handover(loader, seconds / 2)
    ratio = cpu_s[1] / max(float(np.mean(costs[:, 0])), 1e-9)
    # Few batches fit into the calibration: it decides only where threads of torch helped here.
    own_threads = abs(ratio - 1) > OTHER_COST
    memory = float(max(record["private_bytes"] for record in alone))
    return replace(
        traced,
        stages=tuple(replace(part, worker_bytes=memory) for part in stages),
        contention=contention,
        costs=costs * [ratio if own_threads else 1.0, 1.0] + [send, 0.0],
        send_s=send,
        receive_s=receive,
    )


def handover(loader: Any, seconds: float) -> tuple[float, float]:
    """CPU seconds per batch in the worker that sends it and in the thread that receives it.

    One worker collates and sends the same samples again and again.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        constant = dataloader.constant(loader)
        run = measure(constant, seconds, None, Path(name), timing=True, warm_up=WARM_UP)
        cost = {part.name: part.cpu_s for part in account(read_records(Path(name)), run, 1)}
    return cost["send"], cost["receive"]
