"""What counts as the same data: batches, draws, samples of streams, threads and caches."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from slow_stages import Compose
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

from holdfast.data import pipeline as room
from holdfast.data.pipeline import comparing
from holdfast.data.pipeline.cache_plan import plan_sample_cache
from holdfast.data.pipeline.cached_samples import Memory, cached
from holdfast.data.pipeline.comparing import Samples, compare_streams, positions, stream_samples
from holdfast.data.pipeline.encoding import digest
from holdfast.data.pipeline.tuning import Start
from holdfast.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Numbers(Dataset[Any]):
    """Tensors by index, after some steps."""

    def __init__(self, *steps: Callable[[Any], Any], count: int = 96) -> None:
        self.transform, self.count = Compose(list(steps)), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.transform(torch.tensor([float(index), 1.0]))


def double(sample: Any) -> Any:
    return 2 * sample


def jitter(sample: Any) -> Any:
    return sample + torch.rand(2)


class Bank(Numbers):
    """Each sample comes with the one that its process read 40 samples before."""

    before: deque[Any] | None = None

    def __getitem__(self, index: int) -> Any:
        self.before = self.before if self.before is not None else deque(maxlen=40)
        sample = super().__getitem__(index)
        full = len(self.before) == 40
        pair = torch.stack([sample, self.before[0] if full else sample])
        self.before.append(sample)
        return pair


class Late(Numbers):
    """The last samples are those of the worker."""

    def __getitem__(self, index: int) -> Any:
        worker = get_worker_info()
        late = worker is not None and index >= 92
        return super().__getitem__(index) + (1 + worker.id if worker and late else 0)


class Marked(Numbers):
    """Random, and other samples in workers than in the process itself."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index + (get_worker_info() is not None))


class Unsafe(Numbers):
    """Threads take the index from one another."""

    def __getitem__(self, index: int) -> Any:
        self.index = index
        threading.Event().wait(0.001)
        return super().__getitem__(self.index)


class Drawing(Numbers):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + torch.rand(2)


def start_of(dataset: Any, draws: Any = "any", **options: Any) -> Start:
    """What is compared, after a trace in which random draws were seen."""
    loader = DataLoader(dataset, batch_size=4, **options)
    torch.manual_seed(0)
    traced = replace(room.trace(loader, 0.05, calibration_s=0), rate=1000.0)
    return Start(loader, traced, 0.2, draws, lambda: loader)


def data_of(start: Start, **settings: int) -> str:
    return start.data_of(room.apply(start.loader, settings), settings)


# --- Batches -------------------------------------------------------------------------------------


def test_batches_are_compared_early_in_the_middle_and_late() -> None:
    assert positions(1000, 10) == [*range(10), *range(500, 504), *range(996, 1000)]
    assert positions(1000, 5000)[:101] == [*range(100), 500]
    assert positions(6, 1) == [0, 1, 2, 3, 4, 5]
    assert positions(None, 2) == [0, 1, 2, 3]
    assert positions(2, 50) == [0, 1]
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
    torch.manual_seed(1)
    every = comparing.batch_hashes(loader, range(24))
    torch.manual_seed(1)
    assert comparing.batch_hashes(loader, [0, 7, 23]) == [every[0], every[7], every[23]]


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("dataset", "data"),
    [
        (Numbers(double), "identical"),
        (Numbers(double, jitter), "other random draws"),
        (Bank(double), "different"),
        (Late(), "different"),
        (Marked(jitter), "different"),
        (Drawing(), "other random draws"),
    ],
)
def test_workers_give_the_same_data_or_not(dataset: Any, data: str, workers: int) -> None:
    shuffled = start_of(dataset, shuffle=True, generator=torch.Generator().manual_seed(3))
    assert data_of(shuffled, num_workers=workers) == data


@pytest.mark.parametrize(
    ("dataset", "data"),
    [
        (Numbers(double), "identical"),
        (Numbers(double, jitter), "other random draws"),
        (Unsafe(double), "different"),
        (Unsafe(double, jitter), "different"),
        (Drawing(), "cannot tell"),  # seeded draws would let threads take turns
    ],
)
def test_threads_give_the_same_data_or_not(dataset: Any, data: str) -> None:
    start = start_of(dataset)
    assert data_of(start, threads=4) == data
    assert start.compared == 24


def test_threads_give_what_the_loader_gives() -> None:
    dataset = Numbers(double, count=30)
    for options in ({"batch_size": 4}, {"batch_size": None}, {"batch_size": 7, "drop_last": True}):
        loader: Any = DataLoader(dataset, shuffle=True, **options)
        torch.manual_seed(4)
        before = [digest(batch) for batch in loader]
        threaded = room.apply(loader, {"threads": 3})
        torch.manual_seed(4)
        assert [digest(batch) for batch in threaded] == before
        assert isinstance(threaded, DataLoader)
        assert len(threaded) == len(loader)
        # and back
        again = room.apply(threaded, {"threads": 0})
        assert type(again) is DataLoader
        assert next(iter(threaded)) is not None  # a reader that leaves early


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"threads": 2, "num_workers": 2}, "conflict"),
        ({"threads": -1}, "out-of-range"),
        ({"cache_bytes": 100, "cache_steps": 3}, "unsupported"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], code: str) -> None:
    with pytest.raises(InputError) as error:
        room.apply(DataLoader(Numbers(double)), settings)
    assert error.value.code == code


# --- Caches --------------------------------------------------------------------------------------


class Private(Numbers):
    generator = np.random.default_rng(0)

    def __init__(self) -> None:
        super().__init__(double)
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) * self.generator.normal()


class Epochs(Numbers):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Objects(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {index}


@pytest.mark.parametrize(
    ("dataset", "steps"),
    [
        (Numbers(double), 0),
        (Numbers(double, double, jitter), 2),
        (Subset(Numbers(double, jitter, double), range(96)), 1),
        (Numbers(), 0),
        (Numbers(jitter, double), None),
        (Drawing(double), None),
        (Bank(double), None),
        (Private(), None),
        (Epochs(double), None),
        (Objects(), None),
    ],
)
def test_a_cache_lies_before_all_that_changes(dataset: Any, steps: int | None) -> None:
    settings = plan_sample_cache(dataset, 64, 1e9)
    assert settings.get("cache_steps", 0 if settings else None) == steps
    if settings:
        size = settings["cache_bytes"]
        assert size > 96 * 8
        assert plan_sample_cache(dataset, 64, size - 1) == {}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("threads", [0, 2])
def test_cached_samples_are_read_once(workers: int, threads: int) -> None:
    if workers and threads:
        return
    counted = torch.zeros(1, dtype=torch.int64).share_memory_()

    def slow(sample: Any) -> Any:
        counted.add_(1)
        return 2 * sample

    dataset = Numbers(slow, jitter)
    loader = DataLoader(dataset, batch_size=4)
    settings = {"num_workers": workers, "threads": threads, "cache_bytes": 100_000}
    quick = room.apply(loader, {**settings, "cache_steps": 1})
    epochs = [torch.cat(list(quick)) for _ in range(3)]
    assert int(counted) == 96
    whole = [torch.floor(epoch[:, 0] / 2) for epoch in epochs]
    assert all(torch.equal(samples, torch.arange(96.0)) for samples in whole)
    assert not torch.equal(epochs[1], epochs[2])  # the draws are new
    assert dataset.transform.transforms == [slow, jitter]
    frozen = room.apply(loader, settings)
    first, second = (torch.cat(list(frozen)) for _ in range(2))
    assert torch.equal(first, second)
    assert int(counted) == 2 * 96


def test_what_does_not_fit_is_computed() -> None:
    loader = DataLoader(Numbers(double), batch_size=4)
    few = room.apply(loader, {"cache_bytes": 300})
    for _ in range(2):
        assert torch.equal(torch.cat(list(few)), torch.cat(list(loader)))
    memory = Memory(3, 1000)
    for number in (-1, 3, "a", np.int64(1)):
        memory.put(number, number)
    assert [memory.get(number) for number in (-1, 3, "a", 1)] == [None, None, None, (1,)]
    with pytest.raises(InputError):
        cached(iter([]), 10)


def test_a_cache_changes_nothing_or_is_found_out() -> None:
    start = start_of(Numbers(double, jitter))
    assert data_of(start, cache_bytes=10_000, cache_steps=1) == "identical"
    assert data_of(start, cache_bytes=10_000, cache_steps=1, num_workers=2) == "other random draws"
    assert data_of(start_of(Numbers(double)), cache_bytes=10_000) == "identical"
    # a cache behind a step that draws
    assert data_of(start, cache_bytes=10_000) == "different"


# --- Streams -------------------------------------------------------------------------------------


class Stream(IterableDataset[Any]):
    """Numbers; `share` says which of them a worker reads."""

    def __init__(self, count: int, share: str) -> None:
        self.count, self.share = count, share

    def __iter__(self) -> Iterator[Any]:
        worker, numbers = get_worker_info(), range(self.count)
        if worker is not None:
            # Files of 16 numbers, for what reads whole files.
            files = [numbers[place : place + 16] for place in range(0, self.count, 16)]
            numbers = {
                "every": lambda: numbers[worker.id :: worker.num_workers],
                "part": lambda: np.array_split(np.array(numbers), worker.num_workers)[worker.id],
                "files": lambda: itertools.chain(*files[worker.id :: worker.num_workers]),
                "four": lambda: numbers[worker.id :: 4],
                "all": lambda: numbers,
                "noise": lambda: numbers,
            }[self.share]()
        for number in numbers:
            noise = torch.rand(1) if self.share == "noise" else torch.zeros(1)
            yield torch.tensor([float(number)]) + noise


@pytest.mark.parametrize(
    ("count", "share", "data"),
    [
        (96, "every", "other order"),
        (97, "part", "other order"),
        (96, "files", "other order"),
        (96, "four", "different"),  # two of four workers read a half
        (96, "noise", "cannot tell"),
        (10_000, "every", "other order"),
        (10_000, "files", "other order"),
        (10_000, "four", "cannot tell"),  # it never asked how many workers there are
        (10_000, "all", "different"),
        (10_000, "noise", "cannot tell"),
    ],
)
def test_streams_divide_themselves_or_not(
    count: int, share: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(Stream(count, share), batch_size=4)
    traced = room.trace(loader, 0.05, calibration_s=0)
    ticks = itertools.count()  # as many batches each time, whatever the load
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(comparing, "time", clock)
    start = Start(loader, traced, 16.0, "keep", lambda: loader)
    assert start.most_workers >= 2
    assert data_of(start, num_workers=2) == data
    assert data_of(start, prefetch_factor=4) == "identical"


def test_streams_are_compared_as_far_as_they_were_read() -> None:
    def of(hashes: str, **more: Any) -> Samples:
        return Samples(list(hashes), divided=True, batch=2, **more)

    assert compare_streams(of("abcdefgh"), of("abefcdgh"), 2) == "other order"
    # the second worker reads from the middle on
    assert compare_streams(of("abcdefgh"), of("abstcduv"), 2) == "other order"
    # nothing of the beginning came
    assert compare_streams(of("abcdefgh"), of("stuvwxyz"), 2) == "cannot tell"
    assert compare_streams(of("abcdefgh"), of("abab"), 2) == "different"
    assert compare_streams(of("ab"), of("ab"), 2) == "cannot tell"
    # a stream that repeats itself
    assert compare_streams(of("abab" * 4), of("aabb" * 4), 2) == "other order"
    whole = {"ended": True}
    assert compare_streams(of("abcd", **whole), of("dcba", **whole), 8) == "other order"
    assert compare_streams(of("abcd", **whole), of("dcb", **whole), 8) == "different"
    assert compare_streams(of("", **whole), of("", **whole), 8) == "cannot tell"


def test_every_sample_of_a_stream_is_seen() -> None:
    for options in ({"batch_size": 8}, {"batch_size": None}, {"batch_size": 8, "num_workers": 2}):
        samples = stream_samples(DataLoader(Stream(40, "every"), **options), 60.0)
        assert len(set(samples.hashes)) == 40
        assert samples.ended
        assert samples.divided == ("num_workers" in options)
