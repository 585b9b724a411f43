"""Whether a loader with other settings gives the same data: batches early, in the middle and late.

A setting is compared by hashes of whole batches. Where these differ because stages draw from global
generators, whose state depends on the worker, both loaders are run again with every draw seeded by the
sample: then the content must be equal. Batches of a stream come in another order from other workers: its
samples are compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.encoding import digest
from holdfast.data.pipeline.randomness import random_state_restored

# Batches that are compared at least, and from the middle and the end of an epoch.
COMPARED = 4
# And at most from the start on.
MOST = 100

Data = Literal[
    "identical", "other random draws", "other order", "different", "cannot tell", "not tried"
]


def positions(epoch: int | None, count: int) -> list[int]:
    """Batches to compare: the first ones in a row, then some in the middle and the last of the epoch.

    Args:
        epoch: batches of an epoch; None: unknown.
        count: how many in a row.
    """
    start = range(min(max(count, COMPARED), MOST))
    if epoch is None:
        return list(start)
    places = (*start, *(epoch // 2 + n for n in range(COMPARED)), *range(epoch - COMPARED, epoch))
    return sorted({place for place in places if 0 <= place < epoch})


def batch_hashes(
    loader: Any, places: Sequence[int], seeded: Sequence[str] | None = None
) -> list[str]:
    """Hashes of an epoch's batches at these positions.

    Args:
        loader: of which nothing changes, or a private graph.
        places: in ascending order.
        seeded: names of stages whose draws are seeded by the sample; None: none is.
    """
    if not dataloader.is_loader(loader):
        with closing(iter(loader)) as batches:
            return [digest(batch) for batch in itertools.islice(batches, len(places))]
    chosen = dataloader.picked(loader, places)
    with contextlib.ExitStack() as stack:
        stack.enter_context(random_state_restored(*dataloader.generators(loader)))
        stack.enter_context(dataloader.any_number_of_workers())
        if seeded is not None:
            chosen = stack.enter_context(dataloader.wrapped(chosen, partial(_Seeds, seeded)))
        batches = stack.enter_context(closing(_once(chosen)))
        return [digest(batch) for batch in itertools.islice(batches, len(places))]


def _once(loader: Any) -> Generator[Any]:
    """The batches of one epoch; its workers end with it."""
    batches = iter(loader)
    try:
        yield from batches
    finally:
        getattr(batches, "_shutdown_workers", lambda: None)()


class _Seeds:
    """Wraps stages so that each draw depends on the sample and the stage; in threads, one at a time."""

    def __init__(self, names: Sequence[str], worker: int) -> None:
        # Without the number of a transform: those before it may be cached, as one.
        self.names = {_label(name) for name in names}
        self.stack: list[str] = []

    def begin(self, sample: Any) -> None:
        """The sample that this thread works on from now."""
        _thread.sample = repr(sample)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The stage, seeded if it is one of those."""
        if _label(name) not in self.names:
            return function

        def stage(*arguments: Any, **named: Any) -> Any:
            import torch

            key = hashlib.sha256(
                f"{_label(name)} {getattr(_thread, 'sample', '')}".encode()
            ).digest()
            with _drawing:
                seed = int.from_bytes(key[:4], "little")
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
                torch.manual_seed(seed)
                return function(*arguments, **named)

        return stage

    def end_batch(self, samples: int) -> None:
        """Nothing is counted."""

    def close(self) -> None:
        """Nothing is open."""


def _label(name: str) -> str:
    return name.rpartition(": ")[2]


_thread, _drawing = threading.local(), threading.RLock()


# --- Streams --------------------------------------------------------------------------------------


@dataclass
class Samples:
    """Hashes of the samples that a stream gave, in the order in which they came.

    Args:
        ended: the epoch was read to its end.
        divided: workers asked how many of them there are.
        batch: samples of a batch.
    """

    hashes: list[str] = field(default_factory=list)
    ended: bool = False
    divided: bool = False
    batch: int = 1


def stream_samples(loader: Any, seconds: float) -> Samples:
    """The samples of a stream, for so many seconds or to the end of an epoch.

    Args:
        loader: of which nothing changes.
        seconds: wall time.
    """
    samples, until = Samples(), time.monotonic() + seconds
    hashed = dataloader.watched(loader, _hashes)
    with (
        random_state_restored(*dataloader.generators(loader)),
        dataloader.any_number_of_workers(),
        closing(_once(hashed)) as batches,
    ):
        for hashes, divided in batches:
            samples.hashes += hashes
            samples.divided |= divided
            samples.batch = max(samples.batch, len(hashes))
            if time.monotonic() > until:
                return samples
    samples.ended = True
    return samples


def _hashes(samples: Any) -> tuple[list[str], bool]:
    """What replaces the collate function."""
    several = samples if isinstance(samples, list) else [samples]
    return [digest(sample) for sample in several], dataloader.Watched.divided


def compare_streams(start: Samples, other: Samples, workers: int) -> Data:
    """Whether workers of a stream divide it: each sample comes once, whichever worker reads it.

    An epoch that was read to its end is compared whole. Else of as many samples none may come more often
    than from the stream as it is, and those that it begins with must have come: whether workers take
    turns, or each reads files of its own, the first one begins where the stream does.

    Args:
        start: of the stream as it is.
        other: with other workers.
        workers: how many.
    """
    if not start.hashes:
        return "cannot tell"
    if start.ended and other.ended:
        same = Counter(start.hashes) == Counter(other.hashes)
        return "other order" if same else "different"
    count = min(len(start.hashes), len(other.hashes))
    before, after = Counter(start.hashes[:count]), Counter(other.hashes[:count])
    if any(times > before.get(sample, 1) for sample, times in after.items()):
        return "different"
    rounds = count // (max(1, workers) * other.batch)
    begins = Counter(start.hashes[: rounds * other.batch])
    if rounds and other.divided and begins <= after:
        return "other order"
    return "cannot tell"


def repeats(loader: Any, hashes: Iterable[str]) -> bool:
    """Whether samples of a stream are the same when it is read again, whatever the random state was."""
    first = list(itertools.islice(hashes, 2 * COMPARED))
    with random_state_restored():
        scatter()
        again = stream_samples(loader, 0.0)
    count = min(len(first), len(again.hashes))
    return count > 0 and first[:count] == again.hashes[:count]


def scatter() -> None:
    """Give the global generators states that nobody knows."""
    import torch

    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002
