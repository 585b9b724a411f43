"""A pipeline as a graph of stages, each in separate threads or processes.

pipeline = (
    Pipeline(paths, shuffle=True, seed=7)
    .map(read, threads=8)
    .map(decode, threads=2)
    .cache("cache", budget=20e9)
    .map(crop, threads=2, random=True)  # crop(image, generator)
    .batch(64, collate)
)
for batch in pipeline:
    ...
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.pipeline import dataloader, running
from holdfast.data.pipeline.cache_plan import SHARE, CachePlan, plan_cache, probe
from holdfast.data.pipeline.cache_store import Store
from holdfast.data.pipeline.encoding import digest, encode
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.running import Failure, Run, Sample, SampleFailures, Step, Workers
from holdfast.data.pipeline.stages import Executor, unsupported
from holdfast.errors import InputError

# Samples of a cache on disk that are computed again when it is opened.
_COMPARED = 8


class Pipeline:
    """Stages from a source to batches; each method returns a new pipeline with one more stage.

    Samples come in the order of the source, whatever the executors. In every epoch (one iteration) a
    random stage draws from a generator per sample, seeded by (seed, epoch, stage, position): the same
    batches with any number of threads or processes.

    Args:
        source: a sequence (with a length and ``[i]``), or an iterable; only a sequence can be shuffled,
            cached or read by several threads.
        threads: threads that read the source.
        shuffle: a new order of the sequence in each epoch.
        seed: of the order and of random stages.
        on_error: ``"raise"`` a `SampleFailures` after the last batch (or 100 failures), or ``"skip"`` them.
    """

    def __init__(
        self,
        source: Iterable[Any],
        *,
        threads: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        on_error: str = "raise",
    ) -> None:
        self.indexed: bool = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        if not self.indexed and (shuffle or threads != 1):
            raise _needs_sequence("to be shuffled or read by several threads", source)
        self.source, self.shuffle, self.seed = source, shuffle, seed
        self.on_error = on_error
        # Number of the next epoch; set it to resume.
        self.epoch = 0
        # Failures of the last epoch.
        self.failures: tuple[Failure, ...] = ()
        read: Callable[[Any], Any] = getattr(source, "__getitem__") if self.indexed else _same  # noqa: B009
        reading = Step("source", "source", read, concurrency=_at_least_one(threads))
        self.steps: tuple[Step, ...] = (reading,)
        self._cache: tuple[int, Path | None, float, str | None] | None = None
        self._store: Store | None = None
        self._workers: dict[str, Workers] = {}

    # --- Stages ----------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        threads: int = 0,
        processes: int = 0,
        random: bool | None = None,
    ) -> Pipeline:
        """Apply a function to each sample.

        Args:
            function: of a sample; of a sample and a NumPy generator if `random`.
            name: of the stage; by default the function's.
            threads: threads of the stage (default 1).
            processes: worker processes instead of threads; the function must be importable.
            random: True gives the function a seeded generator; False declares that it is not random.

        Raises:
            InputError: `conflict` with both threads and processes, `unsupported` if the function cannot be
                sent to a process.
        """
        if threads and processes:
            raise InputError("a stage has threads or processes", code="conflict", place=name)
        executor: Executor = "process" if processes else "thread"
        step = Step("", "map", function, executor, processes or threads or 1, random)
        return self._add(step, name or dataloader.name_of(function))

    def filter(self, function: Callable[..., Any], **options: Any) -> Pipeline:
        """Keep the samples for which a function is true; options as of `map`."""
        other = self.map(function, **options)
        last = dataclasses.replace(other.steps[-1], kind="filter")
        return other._with(steps=(*self.steps, last))

    def batch(
        self,
        size: int,
        collate: Callable[[list[Any]], Any] | None = None,
        *,
        threads: int = 1,
        drop_last: bool = False,
    ) -> Pipeline:
        """Group samples, and apply a function to each list of them."""
        size = _at_least_one(size)
        step = Step("", "batch", collate or _same, "thread", threads, None, size, drop_last)
        return self._add(step, "batch")

    def _add(self, step: Step, name: str) -> Pipeline:
        if step.executor == "process" and not _is_picklable(step.function):
            raise InputError(
                "this function cannot be sent to another process",
                code="unsupported",
                found=repr(step.function),
                remedy="define it at the top of a module, or use threads",
            )
        workers = _at_least_one(step.concurrency)
        step = dataclasses.replace(step, name=_unique(name, self.steps), concurrency=workers)
        return self._with(steps=(*self.steps, step))

    def cache(
        self, folder: str | Path | None = None, *, budget: float, version: str | None = None
    ) -> Pipeline:
        """Compute samples up to here only once.

        Args:
            folder: on disk; None: in memory.
            budget: bytes; samples beyond it are computed in every epoch.
            version: of source and stages, for changes that a comparison of some samples may miss.

        Raises:
            InputError: `conflict` after a batch, a random stage or another cache; `unknown-length` if the
                source is not a sequence.
        """
        if not self.indexed:
            raise _needs_sequence("for its samples to be cached", self.source, "unknown-length")
        if self._cache:
            raise InputError("a pipeline has one cache", code="conflict", place="cache")
        for step in self.steps:
            if step.random or step.kind == "batch":
                raise InputError(
                    "no cache is possible here",
                    code="conflict",
                    place="cache",
                    found=f"{'random stage' if step.random else 'batches'} before it: {step.name}",
                    remedy=f"place the cache before {step.name}",
                )
        where = None if folder is None else Path(folder)
        return self._with(_cache=(len(self.steps) - 1, where, budget, version))

    def with_settings(self, settings: Mapping[str, int]) -> Pipeline:
        """The same pipeline with other workers, by the name of the stage, and executors.

        Args:
            settings: ``"NAME"``: workers; ``"NAME executor"``: 1 for processes, 0 for threads.
        """
        names = [step.name for step in self.steps]
        for key in settings:
            if key.removesuffix(running.EXECUTOR) not in names:
                expected = ", ".join(names)
                raise InputError("no such stage", code="unknown-name", place=key, expected=expected)
        source, *others = self.steps
        workers = _at_least_one(settings.get(source.name, source.concurrency))
        graph = self._with(
            steps=(dataclasses.replace(source, concurrency=workers if self.indexed else 1),)
        )
        for step in others:
            workers = settings.get(step.name, step.concurrency)
            executor = running.executor_of(step.name, step.executor, settings)
            step = dataclasses.replace(step, concurrency=workers, executor=executor)
            graph = graph._add(step, step.name)
        return graph

    # --- Running ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        run = self.run(epoch)
        try:
            yield from run
        finally:
            self.failures = tuple(run.failures)
        if self.failures and self.on_error == "raise":
            raise SampleFailures(self.failures)

    def run(self, epoch: int, in_processes: bool = True) -> Run:
        """An epoch, not yet started; without processes, all stages run in this one."""
        for step in self.steps:
            if in_processes and step.executor == "process" and step.name not in self._workers:
                self._workers[step.name] = Workers(step, step.concurrency)
        return Run(
            self.steps,
            self._order(epoch),
            (self.seed, epoch),
            workers=self._workers if in_processes else {},
            store=self._open_cache(),
            cached=self._cache[0] if self._cache else -1,
            most_failures=running.MOST_FAILURES if self.on_error == "raise" else math.inf,
        )

    def free_executors(self) -> dict[str, tuple[Executor, ...]]:
        """Stages that could run in threads or in processes.

        Functions of the script itself stay in threads: processes would import it, and it may have no guard.
        """
        return {
            step.name: ("thread", "process")
            for step in self.steps
            if step.kind in ("map", "filter")
            and _is_picklable(step.function)
            and getattr(step.function, "__module__", "") != "__main__"
        }

    def private(self) -> Pipeline:
        """A copy whose epochs do not count here; cache and workers are the same."""
        other = copy.copy(self)
        other.on_error = "skip"
        return other

    @property
    def samples(self) -> int | None:
        """Samples of the source in an epoch; None if unknown."""
        return len(self.source) if hasattr(self.source, "__len__") else None  # type: ignore[arg-type]

    def __len__(self) -> int:
        count = self.samples
        if count is None or any(step.kind == "filter" for step in self.steps):
            raise TypeError("the length of this pipeline is unknown")
        for step in self.steps:
            if step.kind == "batch":
                count = count // step.size if step.drop_last else -(-count // step.size)
        return count

    def _order(self, epoch: int) -> Iterator[Sample]:
        if not self.indexed:
            return (Sample(place, element) for place, element in enumerate(self.source))
        order: Sequence[int] = range(self.samples or 0)
        if self.shuffle:
            order = np.random.default_rng((self.seed, epoch)).permutation(len(order)).tolist()
        return (Sample(place, place) for place in order)

    # --- Cache -----------------------------------------------------------------------------------

    @property
    def cache_store(self) -> Store | None:
        """The open cache: what it holds, and how many entries were torn or stale."""
        return self._store

    def plan_cache(
        self, *, memory_bytes: float | None = None, disk_bytes: float = 0.0
    ) -> CachePlan:
        """Where a cache would go, from a probe of some samples.

        Args:
            memory_bytes: budget in memory; by default half of what is free within the limits.
            disk_bytes: budget on disk.
        """
        if memory_bytes is None:
            memory_bytes = SHARE * resources().memory_bytes
        total = self.samples if self.indexed else None
        before = list(itertools.takewhile(lambda step: step.kind != "batch", self.steps))
        outputs = probe(before, total, self.seed)
        return plan_cache(outputs, total, memory_bytes=memory_bytes, disk_bytes=disk_bytes)

    def _open_cache(self) -> Store | None:
        if self._cache is None or self._store is not None:
            return self._store
        place, folder, budget, version = self._cache
        steps = self.steps[: place + 1]
        names = [(step.name, step.kind) for step in steps]
        key = digest((digest(self.source), names, version, self.samples)) if folder else ""
        self._store = store = Store(folder, key, budget)
        # Of stages only the names are in the key: what they give is compared.
        if any(self._changed(steps, position, store) for position in store.some(_COMPARED)):
            store.clear()
        return store

    def _changed(self, steps: Sequence[Step], position: int, store: Store) -> bool:
        """Whether the stages give another sample than the cache, or none."""
        run = Run(steps, iter([Sample(position, position)]), (self.seed, 0))
        hit = store.get(position)
        return hit is not None and [encode(hit[0])] != [encode(value) for value in run.serial()]

    # --- Construction ----------------------------------------------------------------------------

    def _with(self, **changes: Any) -> Pipeline:
        other = copy.copy(self)
        other.__dict__.update(changes, _workers={}, _store=None, failures=())
        return other


def _same(value: Any) -> Any:
    return value


def _unique(name: str, steps: Sequence[Step]) -> str:
    taken = {step.name for step in steps}
    names = itertools.chain([name], (f"{name} {i}" for i in itertools.count(2)))
    return next(free for free in names if free not in taken)


def _at_least_one(count: int) -> int:
    if not isinstance(count, int) or count < 1:
        raise InputError(
            "a count is too small", code="out-of-range", found=str(count), expected="1 or more"
        )
    return count


def _is_picklable(function: Callable[..., Any]) -> bool:
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _needs_sequence(purpose: str, source: Any, code: str = "unsupported") -> InputError:
    problem = f"the source must be a sequence {purpose}"
    expected = "an object with __len__ and __getitem__"
    return unsupported(problem, source, code=code, place="source", expected=expected)
