"""Loaders of other libraries as stage graphs: the same batches, and stages in their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.data.pipeline.loaders import rewrite
from holdfast.data.pipeline.tracing import trace_graph
from holdfast.errors import InputError


def read(position: int) -> np.ndarray:
    return np.full(4, position)


def double(value: Any) -> Any:
    return value * 2


def places(traced: Any) -> list[tuple[Any, ...]]:
    return [(s.name, s.group, s.executor, s.parallelism, s.sequential) for s in traced.stages]


def jitter(value: Any, generator: np.random.Generator) -> Any:
    return value + generator.normal(size=4)


def small(value: Any) -> bool:
    return bool(value[0] < 20)


@pytest.mark.filterwarnings("ignore")
def test_grain() -> None:
    grain = pytest.importorskip("grain")

    def build(random: bool) -> Any:
        dataset = grain.MapDataset.source(range(30)).shuffle(seed=3).map(read)
        dataset = dataset.seed(1).random_map(jitter) if random else dataset
        reading = dataset.to_iter_dataset(grain.ReadOptions(num_threads=5, prefetch_buffer_size=8))
        return reading.filter(small).batch(4).map(double)

    graph, _ = rewrite(build(False))
    batches = [batch.tolist() for batch in build(False)]
    assert [batch.tolist() for batch in graph] == batches
    traced = trace_graph(build(True), seconds=0.1)
    assert places(traced) == [
        ("source", "read", "thread", 5, False),
        ("read", "read", "thread", 5, False),
        ("jitter", "read", "thread", 5, False),
        ("small", "main", "main", 1, True),
        ("batch", "main", "main", 1, True),
        ("double", "main", "main", 1, True),
        ("engine", "engine", "main", 1, True),
        ("consumer", "main", "main", 1, True),
    ]
    assert traced.stage["jitter"].random
    assert not traced.stage["read"].random
    workers = grain.MultiprocessingOptions(num_workers=1)
    with pytest.raises(InputError) as caught:
        rewrite(build(False).mp_prefetch(workers))
    assert caught.value.code == "unsupported"


def test_anything_else_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        rewrite([1, 2])
    assert caught.value.code == "unsupported"
