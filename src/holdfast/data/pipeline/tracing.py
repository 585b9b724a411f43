"""Tracing a loader: run it for some seconds, collect what its workers recorded, account it per batch."""

from __future__ import annotations

import json
import math
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.accounting import (
    Run,
    account,
    batch_costs,
    competitors,
    read_records,
    shared_bandwidth,
    total_cpu_s,
)
from holdfast.data.pipeline.calibration import concurrency, run_side_by_side
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.recording import read_position, size_of
from holdfast.data.pipeline.stages import FloatArray, Trace
from holdfast.errors import HoldfastError, InputError

OTHER_COST = 0.15
WARM_UP_S = 20.0
"""Longest warm-up: starting many workers takes seconds."""
BLOCKS = 10
"""Blocks of batches from whose rates the error of the rate is estimated."""

Consumer = Callable[[Any], object]


class Handover(NamedTuple):
    """CPU seconds per batch in the worker that sends it and in the thread that receives it."""

    send_s: float
    receive_s: float


class WorkerDiedError(HoldfastError):
    """A worker process ended without an exception: killed by the system, or crashed in compiled code."""

    code = "worker-died"

    def __init__(self, worker: str, stage: str, sample: str, cause: str) -> None:
        self.place = f"worker {worker}, stage {stage!r}, sample {sample}"
        self.stage, self.sample = stage, sample
        super().__init__(
            f"{self.place}: the worker process ended\n  found: {cause}\n"
            "  remedy: load this sample alone; a kill without a message is usually the memory limit"
        )


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
        calibration_s: seconds of each of two runs of the stages outside of the loader, in one process and
            in several, that say what they cost one another; 0: none.

    Raises:
        InputError: not a loader, no batches, or a stage that raised, with stage and sample.
        WorkerDiedError: a worker process that ended, with stage and sample.
    """
    from holdfast.data.pipeline.graph_trace import trace_loader

    graph = trace_loader(loader, seconds, consumer)
    if graph is not None:
        return graph
    if not dataloader.is_loader(loader):
        raise InputError(
            "this loader cannot be traced",
            code="unsupported",
            found=type(loader).__name__,
            expected="a torch DataLoader, a Pipeline, a torchdata loader or a Grain dataset",
        )
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
    costs, dilation, send = batch_costs(records, bool(loader.num_workers)), 1.0, 0.0
    receive = run.receive_cpu_s / run.batches
    if loader.num_workers:
        send = next(part.cpu_s for part in stages if part.name == "send")
    if calibration_s > 0 and not dataloader.is_iterable(loader):
        count = concurrency(stages, loader.num_workers)
        alone = run_side_by_side(loader, 1, calibration_s)
        together = run_side_by_side(loader, count, calibration_s)
        dilation = max(1.0, total_cpu_s(together) / max(total_cpu_s(alone), 1e-9))
        slept = sum(part.blocked_s for part in stages[:-1])
        stages = [shared_bandwidth(part, alone, together, count) for part in stages]
        if not loader.num_workers:
            # What a worker process would take, which computes in one thread.
            handed = replayed(loader, calibration_s / 2)
            send, receive = handed.send_s, handed.receive_s
            ratio = total_cpu_s(alone) / max(float(costs[:, 0].mean()), 1e-9)
            # Few batches fit into the calibration: it decides only where threads of torch helped here.
            costs = costs * [ratio if abs(ratio - 1) > OTHER_COST else 1.0, 1.0] + [send, 0.0]
            memory = max(record["private_bytes"] for record in alone)
            stages = [replace(part, worker_bytes=float(memory)) for part in stages]
        elif slept > 0:
            costs = costs * [1.0, sum(part.blocked_s for part in stages[:-1]) / slept]
    return Trace(
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
        dilation=dilation,
        others=competitors(records, run.batches / run.seconds, resources().cores),
        costs=costs,
        send_s=send,
        receive_s=receive,
    )


def replayed(loader: Any, seconds: float) -> Handover:
    """What it costs to hand a batch of this loader from a worker to the consumer.

    One worker collates and sends the same samples again and again.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        run = measure(dataloader.constant(loader), seconds, None, Path(name), timing=True)
        stages = account(read_records(Path(name)), run, 1)
    cost = {part.name: part.cpu_s for part in stages}
    return Handover(cost["send"], cost["receive"])


def measure(
    loader: Any,
    seconds: float,
    consumer: Consumer | None = None,
    folder: Path | None = None,
    timing: bool = False,
    digest: Callable[[Any], str] | None = None,
    digests: int = 0,
) -> Run:
    """Run a loader for some seconds after the warm-up.

    Args:
        loader: a torch `DataLoader`.
        seconds: wall time after the warm-up, which is a batch of every worker.
        consumer: called with every batch.
        folder: where workers record; None: a temporary one.
        timing: whether stages are timed.
        digest: fingerprint of a batch.
        digests: of so many first batches.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
            return measure(loader, seconds, consumer, Path(name), timing, digest, digests)
    warm_up = max(1, loader.num_workers, digests)
    moments: list[float] = []
    prints: list[str] = []
    waited = receiving = consuming = consumer_cpu = 0.0
    size = 0
    with (
        dataloader.random_state_restored(loader),
        dataloader.recorded(loader, folder, timing, endless=True) as traced,
        warnings.catch_warnings(),
    ):
        # Workers that wait need no cores: their number is the model's to choose.
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        batches = handler = None
        began = time.perf_counter()
        arrived = 0
        try:
            while True:
                if batches is None:
                    batches, before = iter(traced), arrived
                    handler = handler or _silenced()
                start, start_cpu = time.perf_counter(), time.thread_time()
                try:
                    batch = next(batches)
                except StopIteration:
                    if arrived == before:
                        break  # no batch in a whole epoch
                    batches = handler = None
                    continue
                now, cpu = time.perf_counter(), time.thread_time()
                arrived += 1
                if digest is not None and len(prints) < digests:
                    prints.append(digest(batch))
                if consumer is not None:
                    consumer(batch)
                done, done_cpu = time.perf_counter(), time.thread_time()
                if arrived == warm_up:  # the clock starts behind the first batch of every worker
                    moments.append(done)
                elif arrived > warm_up:
                    moments.append(done)
                    waited += now - start
                    receiving += cpu - start_cpu
                    consuming += done - now
                    consumer_cpu += done_cpu - cpu
                size = size or size_of(batch)
                del batch
                # Without a batch of every worker, give up at last.
                until = moments[0] if moments else began + WARM_UP_S
                if done >= until + seconds and (moments or seconds > 0):
                    break
        except Exception as error:
            raise _explained(error, folder) from error
        finally:
            # At once: the traceback of an error would keep the workers, and a dead one raise again.
            getattr(batches, "_shutdown_workers", lambda: None)()
            if handler is not None:
                signal.signal(signal.SIGCHLD, handler)
    return Run(np.array(moments), waited, receiving, consumer_cpu, consuming, size, tuple(prints))


def rate_error(moments: FloatArray) -> float:
    """Standard error of the rate, from blocks of batches; infinite with fewer than 4."""
    batches = len(moments) - 1
    blocks = min(BLOCKS, batches // 2)
    if blocks < 2:
        return math.inf
    edges = moments[np.linspace(0, batches, blocks + 1).astype(int)]
    counts = np.diff(np.linspace(0, batches, blocks + 1).astype(int))
    per_batch = np.diff(edges) / counts
    relative = float(per_batch.std(ddof=1) / per_batch.mean()) / math.sqrt(blocks)
    return relative * batches / float(moments[-1] - moments[0])


def _silenced() -> Any:
    """Leave dead workers to the next batch; the handler that was set.

    On the signal itself torch raises wherever the program is, be it in a destructor.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _explained(error: Exception, folder: Path) -> Exception:
    """The error of a worker with the stage and the sample at which it happened."""
    for path in sorted(folder.glob("worker-*.error")):
        about = json.loads(path.read_text())
        return InputError(
            "a stage of the pipeline raised an error",
            code="stage-failed",
            place=f"stage {about['stage']!r}, sample {about['sample']}",
            found=about["error"],
            remedy="load this sample alone, and fix it or leave it out",
        )
    # A worker that is gone shows as a signal, a closed pipe, or a connection that was reset; its files
    # close a little before it ends.
    until = time.monotonic() + (isinstance(error, (OSError, EOFError)) and 1.0)
    while True:
        for path in sorted(folder.glob("worker-*.pid")):
            if _ended(path.read_text()):
                stage, sample = read_position(path.with_suffix(".position"))
                number = path.stem.removeprefix("worker-")
                return WorkerDiedError(number, stage, sample, str(error).partition("\n")[0])
        if time.monotonic() >= until:
            return error
        time.sleep(0.01)


def _ended(process: str) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return state.rpartition(") ")[2][:1] in ("Z", "X")
