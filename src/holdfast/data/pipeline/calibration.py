"""The stages of a loader run outside of it, in one process and in several at once.

CPU seconds grow when all cores work (shared caches, memory, sibling threads), and waiting grows where
workers share a bandwidth. One worker alone and several together show both, without the loader.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.data.pipeline.accounting import Record, read_records
from holdfast.data.pipeline.dataloader import (
    install,
    random_state_restored,
    read_batch,
    sampled_indices,
)
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.recording import Recorder
from holdfast.data.pipeline.stages import Stage

MOST = 8
"""Processes that run side by side."""
BATCHES = 256
"""Batches of indices that the processes share."""


def concurrency(stages: Sequence[Stage], workers: int) -> int:
    """How many processes show what workers share: all cores, and more where they mostly wait."""
    cores = max(2, math.ceil(resources().cores))
    waiting = sum(part.blocked_s for part in stages if part.name != "consumer")
    computing = sum(part.cpu_s for part in stages if part.name != "consumer")
    return min(MOST, max(cores, workers) if computing >= waiting else max(cores, 4, 2 * workers))


def run_side_by_side(loader: Any, count: int, seconds: float) -> list[Record]:
    """What `count` processes record that run the stages of a loader for some seconds at the same time."""
    import torch.multiprocessing as multiprocessing

    context = loader.multiprocessing_context or multiprocessing
    with random_state_restored(loader):
        batches = list(itertools.islice(sampled_indices(loader), BATCHES))
    with tempfile.TemporaryDirectory(prefix="holdfast-pipeline-") as name:
        start = context.Barrier(count)
        processes = [
            context.Process(
                target=_work,
                args=(
                    loader.dataset,
                    loader.collate_fn,
                    batches[number % len(batches) :] + batches[: number % len(batches)],
                    loader.batch_sampler is not None,
                    Path(name),
                    number,
                    seconds,
                    start,
                ),
                daemon=True,
            )
            for number in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return read_records(Path(name))


def _work(
    dataset: Any,
    collate: Any,
    batches: list[Any],
    batched: bool,
    folder: Path,
    number: int,
    seconds: float,
    start: Any,
) -> None:
    import torch

    torch.set_num_threads(1)
    recorder = Recorder(folder, number, examining=False)
    dataset = install(dataset, recorder, [])
    try:
        start.wait(60)
        until = time.perf_counter() + seconds
        recorder.restart()
        # Two batches at least: the first is left out.
        for done, batch in enumerate(itertools.cycle(batches)):
            if done >= 2 and time.perf_counter() >= until:
                break
            recorder.run("collate", collate, read_batch(dataset, batch, batched))
            recorder.end_batch(len(batch) if batched else 1)
    except BaseException:
        start.abort()
        raise
