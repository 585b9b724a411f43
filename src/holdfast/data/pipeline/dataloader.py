"""PyTorch's `DataLoader`: stages wrapped inside its workers, and the same loader with other settings.

Nothing of the user's loader changes. Its workers are private copies of the process, so that the dataset is
wrapped in place there, by ``worker_init_fn``; without workers it is wrapped for as long as the trace takes.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.data.pipeline.cached_samples import CACHE, CHAINS, cached
from holdfast.data.pipeline.recording import SOURCE, Recorder
from holdfast.errors import InputError

COLLATE = "collate"
# Batches that are put into a random order at a time.
MIXED = 10_000
# The least that each setting can be; threads load batches in this process instead of workers.
SETTINGS = {"num_workers": 0, "prefetch_factor": 1, "threads": 0, **dict.fromkeys(CACHE, 1)}

Undo = list[Callable[[], None]]


def is_loader(thing: Any) -> bool:
    """Whether it is a torch `DataLoader`."""
    from torch.utils.data import DataLoader

    return isinstance(thing, DataLoader)


def settings_of(loader: Any) -> dict[str, int]:
    """The settings that tuning may change, those of a cache excepted."""
    threads = {"threads": loader.threads} if isinstance(loader, InThreads) else {}
    workers = {"num_workers": loader.num_workers, "prefetch_factor": loader.prefetch_factor or 2}
    return workers | threads


def with_settings(loader: Any, settings: Mapping[str, int]) -> Any:
    """The same loader with other settings: same dataset, sampler, generator and collate function.

    Raises:
        InputError: a setting that a loader does not have, or a value out of range.
    """
    for key, value in settings.items():
        least = SETTINGS.get(key)
        if least is None or not isinstance(value, int) or value < least:
            raise InputError(
                "invalid setting of a DataLoader",
                code="unknown-key" if least is None else "out-of-range",
                place=key,
                found=repr(value),
                expected=", ".join(f"{name} of {low} or more" for name, low in SETTINGS.items()),
            )
    chosen = {**settings_of(loader), **settings}
    workers, threads = chosen["num_workers"], chosen.get("threads", 0)
    if threads and (workers or is_stream(loader.dataset)):
        found = f"{workers} workers" if workers else "a stream"
        raise InputError(
            "threads load samples by index, in place of workers", code="conflict", found=found
        )
    dataset = loader.dataset
    if "cache_bytes" in settings:
        dataset = cached(dataset, chosen["cache_bytes"], chosen.get("cache_steps"))
    kind = type(loader)
    plain = kind.__bases__[1] if issubclass(kind, InThreads) else kind
    kind = type(plain.__name__, (InThreads, plain), {}) if threads else plain
    other: Any = object.__new__(kind)
    # Past the loader's own refusal to change after it was made: this is a copy.
    other.__dict__.update(loader.__dict__)
    other.__dict__.update(
        dataset=dataset,
        num_workers=workers,
        threads=threads,
        prefetch_factor=chosen["prefetch_factor"] if workers else None,
        persistent_workers=loader.persistent_workers and workers > 0,
        timeout=loader.timeout if workers else 0,
        _iterator=None,
    )
    return other


class InThreads:
    """Mixed into the class of a `DataLoader`: batches are loaded by threads of this process, in order."""

    threads = 0

    def _get_iterator(self) -> Iterator[Any]:
        from torch.utils.data._utils.pin_memory import pin_memory
        from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

        one = _SingleProcessDataLoaderIter(self)  # type: ignore[arg-type]  # sampler, seed, fetcher
        waiting: deque[Future[Any]] = deque()

        def load(indices: Any) -> Any:
            batch = one._dataset_fetcher.fetch(indices)
            return pin_memory(batch, one._pin_memory_device) if one._pin_memory else batch

        with ThreadPoolExecutor(self.threads, "holdfast loader") as pool:
            try:
                for indices in iter(one._next_index, pool):  # to the end of the sampler
                    waiting.append(pool.submit(load, indices))
                    if len(waiting) > 2 * self.threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def picked(loader: Any, places: Sequence[int]) -> Any:
    """A copy of the loader that gives only the batches at these positions of an epoch, in their order."""
    if is_stream(loader.dataset):  # no order to choose from
        return copy.copy(loader)
    return _ordered(loader, places=tuple(places))


@contextlib.contextmanager
def any_number_of_workers() -> Iterator[None]:
    """Without torch's warning: workers that wait need no cores; their number is the model's to choose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        yield


def generators(loader: Any) -> list[Any]:
    """The random generators that the loader draws from: restored, its next epoch is the same."""
    import torch

    parts = (loader, loader.sampler, loader.batch_sampler)
    drawn = [getattr(part, "generator", None) for part in parts]
    return list({id(g): g for g in drawn if isinstance(g, torch.Generator)}.values())


@contextlib.contextmanager
def recorded(loader: Any, folder: Path, timing: bool) -> Iterator[Any]:
    """A copy of the loader whose stages are recorded in `folder`, without end where it has a length.

    Args:
        loader: the user's; it is not changed.
        folder: for what the workers record.
        timing: False: only where each worker is, for messages.
    """
    traced = copy.copy(loader)
    if not is_stream(loader.dataset):
        # Samplers of the user's often sort by length; a trace must see short and long batches alike.
        sampler = loader.batch_sampler
        sampler = sampler.sampler if isinstance(sampler, _Order) else sampler
        mixed = sampler is not None and type(sampler).__module__ != "torch.utils.data.sampler"
        traced = _ordered(loader, endless=True, mixed=mixed)
    with wrapped(traced, partial(Recorder, folder, timing=timing)) as result:
        yield result


@contextlib.contextmanager
def wrapped(loader: Any, make: Callable[[int], Any]) -> Iterator[Any]:
    """A copy of the loader whose stages are wrapped, as by a `Recorder`.

    Args:
        loader: the user's; it is not changed.
        make: from the number of a worker what wraps its stages.
    """
    from torch.utils.data import Subset

    other = copy.copy(loader)
    other.__dict__.update(_iterator=None, collate_fn=_Collate(loader.collate_fn))
    if not _patchable(loader.dataset):  # such as a list
        other.__dict__["dataset"] = Subset(loader.dataset, range(len(loader.dataset)))
    if loader.num_workers:
        other.worker_init_fn = _Install(loader.worker_init_fn, make)
        yield other
        return
    undo: Undo = []
    recorder = make(0)
    try:
        _install(other.dataset, recorder, undo)
        _Collate.recorder = recorder
        yield other
    finally:
        for action in reversed(undo):
            action()
        _Collate.recorder = None
        recorder.close()


@dataclass
class _Install:
    """Runs in a worker, after the user's own `worker_init_fn`."""

    first: Callable[[int], None] | None
    make: Callable[[int], Any]

    def __call__(self, worker: int) -> None:
        from torch.utils.data import get_worker_info

        if self.first is not None:
            self.first(worker)
        recorder = self.make(worker)
        info = get_worker_info()
        if info is not None:
            _install(info.dataset, recorder, [])
        _Collate.recorder = recorder


class _Collate:
    """The user's collate function; it ends a batch."""

    recorder: Recorder | None = None

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, samples: Any) -> Any:
        recorder = _Collate.recorder
        if recorder is None:
            return self.function(samples)
        count = len(samples) if isinstance(samples, list) else 1
        batch = recorder.wrap(COLLATE, self.function)(samples)
        recorder.end_batch(count)
        return batch


@dataclass
class _Order:
    """Batches of indices: epoch after epoch, in another order, or only some of an epoch."""

    sampler: Iterable[Any]
    endless: bool = False
    mixed: bool = False
    places: Sequence[int] | None = None

    def __iter__(self) -> Iterator[Any]:
        empty = False
        while not empty:
            empty = True
            for indices in _mixed(self.sampler) if self.mixed else self._some():
                empty = not self.endless
                yield indices

    def _some(self) -> Iterator[Any]:
        if self.places is None:
            return iter(self.sampler)
        wanted = set(self.places)
        batches = itertools.islice(enumerate(self.sampler), max(wanted, default=-1) + 1)
        return (indices for place, indices in batches if place in wanted)

    def __len__(self) -> int:
        return len(self.sampler) if self.places is None else len(self.places)  # type: ignore[arg-type]


def _mixed(batches: Iterable[Any]) -> Iterator[Any]:
    """The same batches in a fixed random order: of any part, the mean costs what it costs of all."""
    remaining, generator = iter(batches), random.Random(0)
    while block := list(itertools.islice(remaining, MIXED)):
        generator.shuffle(block)
        yield from block


def epoch_batches(loader: Any) -> int | None:
    """Batches of an epoch; None where the sampler does not know."""
    try:
        return None if is_stream(loader.dataset) else len(loader)
    except TypeError:
        return None


def _ordered(loader: Any, **options: Any) -> Any:
    """A copy of the loader that takes its indices, or batches of them, through an `_Order`."""
    other = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    other.__dict__[name] = _Order(getattr(loader, name), **options)
    return other


# --- Streams --------------------------------------------------------------------------------------


def watched(loader: Any, hashes: Callable[[Any], Any]) -> Any:
    """A copy of a loader over a stream that notes whether workers ask how many of them there are.

    Args:
        loader: the user's; it is not changed.
        hashes: in place of its collate function.
    """
    other = copy.copy(loader)
    first = _Watch(loader.worker_init_fn)
    other.__dict__.update(_iterator=None, collate_fn=hashes, worker_init_fn=first, pin_memory=False)
    return other


@dataclass
class _Watch:
    """Runs in a worker, around the user's own `worker_init_fn`."""

    first: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        from torch.utils.data import get_worker_info

        info: Any = get_worker_info()

        class Info(type(info)):  # type: ignore[misc]
            __slots__ = ()

            def __getattribute__(self, name: str) -> Any:
                Watched.divided |= name == "num_workers"
                return super().__getattribute__(name)

        object.__setattr__(info, "__class__", Info)
        if self.first is not None:
            self.first(worker)


class Watched:
    """Of this worker process: whether anything asked for the number of workers."""

    divided = False


# --- Wrappers of stages ---------------------------------------------------------------------------


def _install(dataset: Any, recorder: Recorder, undo: Undo) -> None:
    """Wrap the dataset's reading and each step of its transforms.

    Args:
        dataset: changed in place.
        recorder: of this process.
        undo: what takes the wrappers off again is added.
    """
    kind = type(dataset)
    body: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if hasattr(kind, "__getitem__"):
        body["__getitem__"] = _reading(kind.__getitem__, recorder)
    if hasattr(kind, "__getitems__"):
        body["__getitems__"] = _reading(kind.__getitems__, recorder)
    if hasattr(kind, "__iter__") and is_stream(dataset):
        body["__iter__"] = _iterating(kind.__iter__, recorder)
    dataset.__class__ = type(kind.__name__, (kind,), body)
    undo.append(lambda: setattr(dataset, "__class__", kind))
    seen: set[int] = set()
    for owner in inner_datasets(dataset):
        for name in CHAINS:
            step = getattr(owner, "__dict__", {}).get(name)
            if callable(step) and id(step) not in seen:
                seen.add(id(step))
                _wrap_chain(owner, name, step, recorder, undo)


def inner_datasets(dataset: Any) -> list[Any]:
    """The dataset and those that it is made of (Subset, ConcatDataset)."""
    below = getattr(dataset, "__dict__", {})
    more = below.get("datasets")
    parts = [below["dataset"]] if "dataset" in below else []
    parts += more if isinstance(more, (list, tuple)) else []
    return [dataset, *(inner for part in parts for inner in inner_datasets(part))]


def _wrap_chain(owner: Any, name: str, step: Any, recorder: Recorder, undo: Undo) -> None:
    """Name and wrap the steps of a Compose, or the one transform."""
    label = name.removesuffix("s")
    transforms = getattr(step, "transforms", None)
    steps = transforms if isinstance(transforms, (list, tuple)) else ()
    if not steps or not all(map(callable, steps)):
        setattr(owner, name, _Step(step, f"{label}: {name_of(step)}", recorder))
        undo.append(lambda: setattr(owner, name, step))
        return
    wrapped = [
        _Step(part, f"{label} {number}: {name_of(part)}", recorder)
        for number, part in enumerate(steps, 1)
    ]
    step.transforms = type(steps)(wrapped)
    undo.append(lambda: setattr(step, "transforms", steps))


class _Step:
    """One transform; everything but calling it is the transform's own."""

    def __new__(cls, function: Any, name: str, recorder: Recorder) -> Any:
        # A call goes straight to the recorder: samples may take microseconds.
        run = staticmethod(recorder.wrap(name, function))
        return super().__new__(type(cls.__name__, (cls,), {"__call__": run}))

    def __init__(self, function: Any, name: str, recorder: Recorder) -> None:
        self.__dict__["function"] = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["function"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.function, name, value)


def _reading(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    run, begin, stack = recorder.wrap(SOURCE, method), recorder.begin, recorder.stack

    def read(self: Any, index: Any) -> Any:
        if stack and SOURCE in stack:  # a dataset that reads through itself
            return method(self, index)
        begin(index)
        return run(self, index)

    return read


def _iterating(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def iterate(self: Any) -> Iterator[Any]:
        following = recorder.wrap(SOURCE, iter(method(self)).__next__)
        for position in itertools.count():
            recorder.begin(position)
            try:
                sample = following()
            except StopIteration:
                return
            yield sample

    return iterate


def name_of(step: Any) -> str:
    """The name of a function, or of the type of an object that is called."""
    inner = getattr(step, "func", step)  # functools.partial
    return getattr(inner, "__name__", type(inner).__name__).strip("<>")


def _patchable(dataset: Any) -> bool:
    kind = type(dataset)
    if hasattr(dataset, "as_subclass"):  # the rows of a tensor are of its class
        return False
    try:
        dataset.__class__ = type(kind.__name__, (kind,), {})
        dataset.__class__ = kind
    except TypeError:
        return False
    return True


def is_stream(dataset: Any) -> bool:
    """Whether the workers decide what each of them reads."""
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)
