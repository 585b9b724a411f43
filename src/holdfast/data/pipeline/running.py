"""Running a stage graph on SPDL: threads or processes per stage, in order, with failures set aside.

SPDL (https://github.com/facebookresearch/spdl) moves samples from stage to stage. Here is what a stage does
with one: call the function, and set a sample aside that raised, so that the others continue.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context
from typing import Any, Literal

import numpy as np

from holdfast.data.pipeline.cache_store import Store
from holdfast.data.pipeline.stages import Executor
from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.numbers import counted

# Elements that wait for the consumer.
PREFETCH = 2
# With so many, an epoch ends: it is the stage that is wrong, not a sample.
MOST_FAILURES = 100
# After the name of a stage, the setting of its executor: 1 for processes, 0 for threads.
EXECUTOR = " executor"


@dataclass(frozen=True)
class Step:
    """A stage of a graph.

    Args:
        name: unique in the graph.
        random: True: the function takes a seeded generator as its second argument.
        size: samples of a batch.
    """

    name: str
    kind: Literal["source", "map", "filter", "batch"]
    function: Callable[..., Any]
    executor: Executor = "thread"
    concurrency: int = 1
    random: bool | None = None
    size: int = 0
    drop_last: bool = False


def executor_of(name: str, present: Executor, settings: Mapping[str, int]) -> Executor:
    """The executor of a stage, or group, under these settings."""
    chosen = settings.get(name + EXECUTOR)
    return present if chosen is None else "process" if chosen else "thread"


@dataclass(frozen=True)
class Failure:
    """A sample that a stage could not process.

    Args:
        sample: its position in the source; of a batch, that of its first sample.
        error: type and message of the exception, or that the worker died.
    """

    sample: int
    stage: str
    error: str


class SampleFailures(HoldfastError):
    """Samples failed; the others were delivered, unless there were so many that the epoch was ended.

    Args:
        failures: one per sample.
    """

    code = "failed-samples"
    exit_code = 1

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        lines = [f"sample {f.sample}, stage {f.stage}: {f.error}" for f in self.failures[:5]]
        if len(failures) > 5:
            lines.append(f"and {len(failures) - 5} more")
        ended = len(failures) >= MOST_FAILURES
        others = "the epoch was ended" if ended else "the others were delivered"
        remedy = "remedy: fix the samples, or skip them with on_error='skip'"
        summary = f"{counted(len(failures), 'sample')} failed; {others}"
        super().__init__("\n  ".join([summary, *lines, remedy]))


_MOST_DEATHS = 8  # in a row, of the processes of a stage


@dataclass(slots=True)
class Sample:
    """A sample, or the value of a batch, on its way.

    Args:
        cached: it came out of the cache: the stages below the cache pass it on.
    """

    position: int
    value: Any
    cached: bool = False


class Workers:
    """Processes of a stage. A worker that dies takes only its own sample with it."""

    def __init__(self, step: Step, count: int) -> None:
        self._step, self._count = step, count
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        # Processes that died since one last answered.
        self._died = 0

    def _new(self, count: int) -> ProcessPoolExecutor:
        # Not forked: this process has threads. The stage travels once, not with each sample.
        return ProcessPoolExecutor(count, get_context("forkserver"), _install, (self._step,))

    def call(self, value: Any, seed: tuple[int, ...]) -> Any:
        """What the stage does with a sample, computed in a worker."""
        with self._lock:
            pool = self._pool = self._pool or self._new(self._count)
        try:
            result = pool.submit(_call_installed, value, seed).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    self._pool, self._died = None, self._died + 1
        else:
            self._died = 0
            return result
        if self._died > _MOST_DEATHS:  # all of them: there is something wrong with the stage
            raise ChildProcessError("the worker processes of this stage die")
        # Any of the calls in flight may have killed it: this one is tried again, alone.
        with self._new(1) as alone:
            try:
                return alone.submit(_call_installed, value, seed).result()
            except BrokenProcessPool:
                raise ChildProcessError("the worker process died") from None


_installed: list[Step] = []


def _install(step: Step) -> None:
    _installed[:] = [step]


def _call_installed(value: Any, seed: tuple[int, ...]) -> Any:
    return call_stage(value, _installed[0], seed)


def call_stage(value: Any, step: Step, seed: tuple[int, ...]) -> Any:
    """What a stage does with one sample, whatever the executor.

    A random stage draws from a generator of the sample's own: the executor and the order do not change it.
    """
    if step.random:
        return step.function(value, np.random.default_rng(seed))
    return step.function(value)


@dataclass
class Run:
    """One epoch of a graph.

    Args:
        steps: the source first.
        order: what the source stage gets, in the order of the epoch.
        seed: seed of random stages; includes the epoch.
        workers: processes by the name of the stage.
        store: the cache, if any.
        cached: index of the step whose output is cached.
        most_failures: with so many, nothing more is taken from the source.
        call: how stages are called: (name of the stage, function, arguments).
        taken: elements taken from the source.
    """

    steps: Sequence[Step]
    order: Iterator[Sample]
    seed: tuple[int, ...]
    workers: Mapping[str, Workers] = field(default_factory=dict)
    store: Store | None = None
    cached: int = -1
    most_failures: float = math.inf
    call: Callable[..., Any] = lambda _, function, *arguments: function(*arguments)
    failures: list[Failure] = field(default_factory=list)
    taken: int = 0

    def __iter__(self) -> Iterator[Any]:
        _refuse_in_bootstrap()
        try:
            from spdl.pipeline import PipelineBuilder
        except ImportError:
            raise MissingExtraError("spdl", "pipeline") from None

        builder = PipelineBuilder().add_source(self._source())
        with contextlib.ExitStack() as stack:
            for place, step in enumerate(self.steps):
                threads = ThreadPoolExecutor(step.concurrency, f"holdfast {step.name}")
                stack.callback(threads.shutdown, wait=False, cancel_futures=True)
                if step.kind == "batch":
                    builder.aggregate(step.size, drop_last=step.drop_last)
                builder.pipe(
                    self._operation(place, step),
                    concurrency=step.concurrency,
                    executor=threads,
                    name=step.name,
                    output_order="input",
                )
            engine = builder.add_sink(PREFETCH).build(num_threads=1)
            stack.enter_context(engine.auto_stop())
            for sample in engine:
                yield sample.value

    def serial(self) -> Iterator[Any]:
        """The same elements, one after another in this thread: for probes, and to compare with."""
        _refuse_in_bootstrap()
        samples = self._source()
        for place, step in enumerate(self.steps):
            below = _batches(samples, step) if step.kind == "batch" else samples
            samples = filter(functools.partial(self._process, place, step), below)
        return (sample.value for sample in samples)

    def _source(self) -> Iterator[Sample]:
        """The elements of the epoch; a source that raises ends it, and the rest is delivered."""
        position = -1
        try:
            for sample in self.order:
                if len(self.failures) >= self.most_failures:
                    return
                position = sample.position
                self.taken += 1
                yield sample
        except Exception as error:
            self._fail(position + 1, self.steps[0].name, error)

    def _fail(self, position: int, stage: str, error: Exception) -> None:
        reason = traceback.format_exception_only(error)[-1].strip()
        self.failures.append(Failure(position, stage, reason))

    def _operation(self, place: int, step: Step) -> Callable[[Any], Sample | None]:
        def process(element: Sample | list[Sample]) -> Sample | None:
            sample = element if isinstance(element, Sample) else _batch(element)
            return sample if self._process(place, step, sample) else None  # SPDL drops None

        return process

    def _process(self, place: int, step: Step, sample: Sample) -> bool:
        """Advance a sample in place; False if it goes no further."""
        try:
            if self.store is not None and place == 0:
                hit = self.call(step.name, self.store.get, sample.position)
                if hit is not None:
                    sample.value, sample.cached = hit[0], True
            if sample.cached and place <= self.cached:
                return True
            seed = (*self.seed, place, sample.position)
            if workers := self.workers.get(step.name):
                value = workers.call(sample.value, seed)
            else:
                value = self.call(step.name, call_stage, sample.value, step, seed)
            if step.kind == "filter" and not value:
                return False
            if step.kind != "filter":
                sample.value = value
            if self.store is not None and place == self.cached:
                self.store.put(sample.position, sample.value)
        except Exception as error:
            self._fail(sample.position, step.name, error)
            return False
        return True


def _refuse_in_bootstrap() -> None:
    # A worker process imports the user's script; without a guard that would start workers of its own.
    if getattr(current_process(), "_inheriting", False):
        raise HoldfastError(
            "a worker process must not run the pipeline that started it\n"
            '  remedy: put what the script does under `if __name__ == "__main__":`'
        )


def _batches(samples: Iterator[Sample], step: Step) -> Iterator[Sample]:
    while batch := list(itertools.islice(samples, step.size)):
        if len(batch) == step.size or not step.drop_last:
            yield _batch(batch)


def _batch(samples: list[Sample]) -> Sample:
    return Sample(samples[0].position, [sample.value for sample in samples])
