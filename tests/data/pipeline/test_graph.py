"""Stage graphs: the same samples in the same order, whatever runs them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.running import Failure, SampleFailures
from holdfast.data.pipeline.tracing import trace_graph
from holdfast.errors import InputError

pytest.importorskip("spdl.pipeline")


# Worker processes import the functions of their stage.
FUNCTIONS = """
import os
import numpy as np

def read(position: int) -> np.ndarray:
    return np.arange(position, position + 6, dtype=np.float32)

def crop(sample: np.ndarray, generator) -> np.ndarray:
    start = int(generator.integers(0, 3))
    return sample[start : start + 4] + generator.normal(size=4).astype(np.float32)

def odd(sample: np.ndarray) -> bool:
    return bool(int(sample[0]) % 2)

def fail_at_7(position: int) -> int:
    if position == 7:
        raise ValueError("bad sample")
    return position

def die_at_5(position: int) -> int:
    if position == 5:
        os._exit(3)
    return position
"""


@pytest.fixture(scope="module", autouse=True)
def stages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "stage_functions.py").write_text(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("stage_functions")
    sys.modules.pop("stage_functions", None)


def contents(batches: Any) -> list[Any]:
    return [(batch.shape, batch.tobytes()) for batch in batches]


def graph(
    stages: Any, read_workers: dict[str, int], crop_workers: dict[str, int], **options: Any
) -> Pipeline:
    return (
        Pipeline(range(50), shuffle=True, seed=7, **options)
        .map(stages.read, **read_workers)
        .filter(stages.odd, threads=2)
        .map(stages.crop, random=True, **crop_workers)
        .batch(4, np.stack)
    )


@pytest.mark.parametrize(
    ("read_workers", "crop_workers"),
    [
        ({"threads": 1}, {"threads": 1}),
        ({"threads": 4}, {"threads": 3}),
        ({"threads": 2}, {"processes": 2}),
    ],
)
def test_order_and_augmentation_do_not_depend_on_workers(
    stages: Any, read_workers: dict[str, int], crop_workers: dict[str, int]
) -> None:
    reference = graph(stages, {}, {})
    expected = [contents(reference.run(epoch).serial()) for epoch in (0, 1)]
    pipeline = graph(stages, read_workers, crop_workers)
    assert [contents(pipeline), contents(pipeline)] == expected
    assert expected[0] != expected[1]


def test_random_stage_against_its_definition(stages: Any) -> None:
    pipeline = Pipeline(range(5), seed=3).map(stages.read).map(stages.crop, random=True)
    expected = [stages.crop(stages.read(i), np.random.default_rng((3, 0, 2, i))) for i in range(5)]
    assert all(map(np.array_equal, pipeline, expected))


@pytest.mark.parametrize("workers", [{"threads": 3}, {"processes": 2}])
def test_failed_samples_are_named_and_the_others_delivered(
    stages: Any, workers: dict[str, int]
) -> None:
    pipeline = Pipeline(range(20)).map(stages.fail_at_7, **workers)
    received = []
    with pytest.raises(SampleFailures) as caught:
        received.extend(pipeline)
    assert received == [i for i in range(20) if i != 7]
    assert caught.value.failures == (Failure(7, "fail_at_7", "ValueError: bad sample"),)
    skipping = Pipeline(range(20), on_error="skip").map(stages.fail_at_7)
    assert len(list(skipping)) == 19
    assert skipping.failures[0].sample == 7


def test_a_worker_that_dies_takes_only_its_sample(stages: Any) -> None:
    pipeline = Pipeline(range(12), on_error="skip").map(stages.die_at_5, processes=2)
    assert list(pipeline) == [i for i in range(12) if i != 5]
    assert [(f.sample, f.stage) for f in pipeline.failures] == [(5, "die_at_5")]


def test_a_source_that_raises_is_named_and_drained() -> None:
    def source() -> Any:
        yield from range(3)
        raise OSError("connection lost")

    pipeline = Pipeline(source(), on_error="skip").map(abs, threads=2)
    assert list(pipeline) == [0, 1, 2]
    assert [(f.sample, f.stage) for f in pipeline.failures] == [(3, "source")]


def test_the_consumer_may_leave_early_and_begin_anew() -> None:
    pipeline = Pipeline(range(1000)).map(abs, threads=2).batch(10)
    for batch in pipeline:
        assert batch == list(range(10))
        break
    assert sum(len(batch) for batch in pipeline) == 1000


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_and_length(count: int, drop_last: bool) -> None:
    pipeline = Pipeline(range(count)).batch(4, drop_last=drop_last).batch(2)
    flat = [i for pair in pipeline for batch in pair for i in batch]
    assert flat == list(range(count - count % 4 if drop_last else count))
    assert len(list(pipeline)) == len(pipeline)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: Pipeline(iter([1]), shuffle=True), "unsupported"),
        (lambda: Pipeline(iter([1])).cache(budget=1e6), "unknown-length"),
        (lambda: Pipeline([1]).map(abs, threads=1, processes=1), "conflict"),
        (lambda: Pipeline([1]).map(lambda x: x, processes=1), "unsupported"),
        (lambda: Pipeline([1]).map(abs, random=True).cache(budget=1e6), "conflict"),
        (lambda: Pipeline([1]).batch(2).cache(budget=1e6), "conflict"),
        (lambda: Pipeline([1]).cache(budget=1).cache(budget=1), "conflict"),
        (lambda: Pipeline([1]).batch(0), "out-of-range"),
        (lambda: Pipeline([1]).with_settings({"x": 2}), "unknown-name"),
    ],
)
def test_refused_graphs(build: Any, code: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.code == code


def test_a_stage_that_fails_everywhere_ends_the_epoch() -> None:
    taken = []

    def source(position: int) -> int:
        taken.append(position)
        raise KeyError(position)

    with pytest.raises(SampleFailures) as caught:
        list(Pipeline(range(10_000)).map(source))
    assert 100 <= len(caught.value.failures) == len(taken) < 200


def test_trace_of_a_graph(stages: Any) -> None:
    """Counts and places are exact, whatever the clock says."""
    pipeline = (
        Pipeline(range(80), shuffle=True, threads=2)
        .map(stages.read, threads=3)
        .filter(stages.odd)
        .map(stages.crop, random=True, threads=2)
        .batch(4, np.stack)
    )
    expected = contents(pipeline.run(0).serial())
    trace = trace_graph(pipeline, seconds=0.1)
    assert contents(pipeline) == expected  # tracing does not count as an epoch
    *costs, engine, consumer = trace.stages
    assert [(s.name, s.group, s.executor, s.parallelism, s.random) for s in costs] == [
        ("source", "source", "thread", 2, False),
        ("read", "read", "thread", 3, False),
        ("odd", "odd", "thread", 1, False),
        ("crop", "crop", "thread", 2, True),
        ("batch", "batch", "thread", 1, False),
    ]
    visits = {stage.name: stage.visits for stage in costs}
    assert visits["crop"] == 4
    assert visits["batch"] == 1
    assert visits["source"] == visits["read"] == visits["odd"] >= 4  # every second one is filtered
    assert trace.stage["read"].out_bytes == 24 * visits["read"]
    assert trace.batch_bytes == 4 * 4 * 4
    assert (engine.name, consumer.name) == ("engine", "consumer")
    assert trace.settings == {"source": 2, "read": 3, "odd": 1, "crop": 2, "batch": 1}
    assert trace.batches >= 2


def test_a_source_that_tracing_would_use_up_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        trace_graph(Pipeline(iter([1, 2, 3])))
    assert caught.value.code == "unsupported"
