"""Running a loader for some seconds: the rate, and what the consumer waited."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import queues
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.randomness import random_state_restored
from holdfast.data.pipeline.recording import open_queue, queued_ns, read_position, size_of
from holdfast.data.pipeline.stages import FloatArray
from holdfast.errors import HoldfastError, InputError

# Longest warm-up: starting many workers takes seconds.
WARM_UP_S = 20.0
# Blocks of batches from whose rates the error of the rate is estimated.
BLOCKS = 10
# Batches of a stage graph, the first of which is a warm-up.
FEWEST = 3
# Of an error: process ids of the workers that had ended when it was raised.
ENDED = "holdfast_ended_workers"

Consumer = Callable[[Any], object]


@dataclass(frozen=True)
class Run:
    """What the consumer saw of one run of a loader.

    Args:
        moments: seconds at which batches were done after the warm-up, shape [batches + 1]; the
            first is the start.
        receive_cpu_s: CPU of the consumer's thread inside of ``next()``.
        receive_wait_s: time in which that thread, with a batch before it, waited for the worker
            to hand over its memory.
        cpu_s: CPU of this process.
        start_s: seconds of an epoch of one batch, for which workers start and end; 0 where they do not.
    """

    moments: FloatArray
    waited_s: float
    receive_cpu_s: float
    receive_wait_s: float
    consumer_cpu_s: float
    consumer_s: float
    batch_bytes: float
    cpu_s: float = 0.0
    start_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time after the warm-up."""
        return float(self.moments[-1] - self.moments[0]) if len(self.moments) else 0.0

    @property
    def batches(self) -> int:
        """Batches after the warm-up."""
        return max(0, len(self.moments) - 1)

    @property
    def rate(self) -> float:
        """Batches per second within an epoch."""
        return self.batches / self.seconds if self.batches else 0.0


class WorkerDiedError(HoldfastError):
    """A worker process ended without an exception: killed by the system, or crashed in compiled code."""

    code = "worker-died"

    def __init__(self, worker: str, pid: int, stage: str, sample: str, cause: str) -> None:
        self.place = f"worker {worker} (pid {pid}), stage {stage!r}, sample {sample}"
        self.worker, self.pid, self.stage, self.sample = int(worker), pid, stage, sample
        super().__init__(
            f"{self.place}: the worker process ended\n  found: {cause}\n"
            "  remedy: load this sample alone; a kill without a message is usually the memory limit"
        )


def measure(
    loader: Any,
    seconds: float,
    consumer: Consumer | None = None,
    folder: Path | None = None,
    timing: bool = False,
    warm_up: int = 1,
) -> Run:
    """Run a loader for some seconds after the warm-up, or for the whole epochs that fit into them.

    Batches of one epoch may differ much, such as documents; whole epochs are always the same work.

    Args:
        loader: a torch `DataLoader`, or anything that can be iterated again.
        seconds: wall time after the warm-up, which is a batch of every worker.
        consumer: called with every batch.
        folder: where workers record; None: a temporary one.
        timing: whether stages are timed.
        warm_up: batches before the clocks start, if these are more.
    """
    if not dataloader.is_loader(loader):
        return _consume(loader, seconds, consumer, warm_up, FEWEST)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
            return measure(loader, seconds, consumer, Path(name), timing, warm_up)
    with (
        random_state_restored(*dataloader.generators(loader)),
        dataloader.recorded(loader, folder, timing) as traced,
        dataloader.any_number_of_workers(),
    ):
        epoch = dataloader.epoch_batches(loader)
        try:
            run = _consume(traced, seconds, consumer, max(warm_up, loader.num_workers), 0, epoch)
            if not epoch or not loader.num_workers or loader.persistent_workers:
                return run
            began = time.perf_counter()
            list(dataloader.picked(loader, [0]))
            return replace(run, start_s=time.perf_counter() - began)
        except Exception as error:
            raise _explained(error, folder) from error


def _consume(
    loader: Iterable[Any],
    seconds: float,
    consumer: Consumer | None,
    warm_up: int,
    least: int,
    epoch: int | None = None,
) -> Run:
    """Take at least so many batches, epoch after epoch of so many; other arguments as of `measure`."""
    moments: list[float] = []
    rows: list[tuple[float, ...]] = []
    size = arrived = started_cpu = 0
    began = start = time.perf_counter()
    start_cpu = time.thread_time()
    with contextlib.closing(epochs(lambda: iter(loader))) as batches, _opening() as opened:
        for batch in batches:
            now, cpu = time.perf_counter(), time.thread_time()
            arrived += 1
            done, done_cpu = now, cpu
            if consumer is not None:
                consumer(batch)
                done, done_cpu = time.perf_counter(), time.thread_time()
            size = size or size_of(batch)
            del batch
            if arrived == warm_up:
                started_cpu = time.process_time()
            elif arrived > warm_up:
                rows.append((now - start, cpu - start_cpu, opened[0], done_cpu - cpu, done - now))
            if arrived >= warm_up:
                moments.append(done)
            # Without a batch of every worker, give up at last.
            until = seconds + (moments[0] if moments else began + WARM_UP_S)
            if epoch and (count := len(moments) - 1) > 0 and count % epoch == 0:
                # Not another one if it would be cut.
                until -= (done - moments[0]) * epoch / count
            if done >= until and len(moments) >= least and (moments or seconds > 0):
                break
            opened[0] = 0.0
            start, start_cpu = done, done_cpu  # to free the memory of a batch takes time too
        cpu_s = time.process_time() - started_cpu
    waited, receiving, opening, consumer_cpu, consuming = np.reshape(rows, (-1, 5)).sum(axis=0)
    return Run(np.array(moments), waited, receiving, opening, consumer_cpu, consuming, size, cpu_s)


@contextlib.contextmanager
def _opening() -> Iterator[list[float]]:
    """Seconds that this thread waits while it unpickles what another process sent.

    A tensor is sent as the number of a file that its memory is: the receiver opens a connection to a thread
    of the sender, and waits for its answers. That thread needs the interpreter lock of the sender.
    """
    waited, thread, queue = [0.0], threading.get_ident(), open_queue()
    loads = queues._ForkingPickler.loads  # type: ignore[attr-defined]

    def asleep() -> float:
        return time.perf_counter() - time.thread_time() - queued_ns(queue) / 1e9

    def timed(*arguments: Any) -> Any:
        before = asleep()
        try:
            return loads(*arguments)
        finally:
            if threading.get_ident() == thread:
                waited[0] += asleep() - before

    queues._ForkingPickler.loads = staticmethod(timed)  # type: ignore[attr-defined]
    try:
        yield waited
    finally:
        queues._ForkingPickler.loads = staticmethod(loads)  # type: ignore[attr-defined]
        if queue is not None:
            os.close(queue)


def epochs(begin: Callable[[], Iterator[Any]]) -> Generator[Any]:
    """Elements of epoch after epoch, until one is empty."""
    while True:
        elements, empty = begin(), True
        # On the signal itself torch raises wherever the program is, be it in a destructor: dead workers are
        # left to the next batch.
        main = threading.current_thread() is threading.main_thread()
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if main else None
        try:
            for element in elements:
                empty = False
                yield element
                del element
        except Exception as error:
            error.__dict__[ENDED] = _ended_workers(elements, error)
            raise
        finally:
            # At once: the traceback of an error would keep the workers, and a dead one raise again.
            getattr(elements, "_shutdown_workers", lambda: None)()
            if handler is not None:
                signal.signal(signal.SIGCHLD, handler)
        if empty:
            return


def _ended_workers(elements: Any, error: Exception) -> list[int]:
    """Process ids of the workers that ended, the likeliest culprit first; read before all are shut down.

    A worker that is gone shows as a message, a closed pipe, or a connection that was reset; its files
    close a little before it ends. One that read its part of a stream to the end left with exit code 0.
    """
    workers = getattr(elements, "_workers", [])
    # Batches are due of those that torch has not marked as gone.
    due = [*getattr(elements, "_workers_status", []), *(True for _ in workers)]
    until = time.monotonic() + (isinstance(error, (OSError, EOFError)) and 5.0)
    # Or torch names their process ids, and has marked them.
    named = {int(word) for word in re.findall(r"\d+", str(error))}
    while True:
        ended = [
            (worker.pid not in named, not worker.exitcode, not is_due, worker.pid)
            for worker, is_due in zip(workers, due, strict=False)
            if worker.exitcode is not None
        ]
        if not all(left and idle for _, left, idle, _ in ended) or time.monotonic() >= until:
            return [pid for *_, pid in sorted(ended)]
        time.sleep(0.01)


def rate_error(moments: FloatArray) -> float:
    """Standard error of the rate, as a share of it, from blocks of batches; infinite with fewer than 4."""
    batches = len(moments) - 1
    blocks = min(BLOCKS, batches // 2)
    if blocks < 2:
        return math.inf
    places = np.linspace(0, batches, blocks + 1).astype(int)
    per_batch = np.diff(moments[places]) / np.diff(places)
    return float(per_batch.std(ddof=1) / per_batch.mean()) / math.sqrt(blocks)


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
    for pid in getattr(error, ENDED, ()):
        for path in folder.glob(f"worker-*-{pid}.position"):
            number = path.stem.split("-")[1]
            return WorkerDiedError(number, pid, *read_position(path), str(error).partition("\n")[0])
    return error
