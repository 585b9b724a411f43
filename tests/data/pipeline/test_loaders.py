"""Loaders of other libraries as stage graphs: the same batches, and stages in their places."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast.data.pipeline import explain, trace
from holdfast.data.pipeline.loaders import rewrite
from holdfast.data.pipeline.tracing import trace_graph
from holdfast.errors import InputError


def read(position: int) -> np.ndarray:
    return np.full(4, position)


def double(value: Any) -> Any:
    return value * 2


def places(traced: Any) -> list[tuple[Any, ...]]:
    return [(s.name, s.group, s.executor, s.parallelism, s.sequential) for s in traced.stages]


def test_torchdata_nodes() -> None:
    nodes = pytest.importorskip("torchdata.nodes")

    def build() -> Any:
        node = nodes.IterableWrapper(range(30))
        node = nodes.ParallelMapper(node, read, num_workers=3)
        node = nodes.Batcher(node, batch_size=4, drop_last=False)
        node = nodes.ParallelMapper(node, np.stack, num_workers=2, prebatch=2)
        return nodes.Prefetcher(nodes.Mapper(node, double), prefetch_factor=2)

    graph, _ = rewrite(build())
    loader = nodes.Loader(build())
    expected = [batch.tolist() for batch in loader]
    assert len(expected) == 8
    assert [batch.tolist() for batch in graph] == expected
    for thing in (loader, build()):
        traced = trace_graph(thing, seconds=0.1)
        assert places(traced) == [
            ("source", "reader 3", "thread", 1, True),
            ("read", "mapper 3", "thread", 3, False),
            ("batch", "reader 2", "thread", 1, True),
            ("stack", "mapper 2", "thread", 2, False),
            ("double", "prefetcher 1", "thread", 1, True),
            ("engine", "engine", "main", 1, True),
            ("consumer", "main", "main", 1, True),
        ]
        assert 2 <= traced.stage["read"].visits <= 4  # the last batch is smaller
    assert [batch.tolist() for batch in loader] == expected


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


class RayDataset:
    """Ten batches; operators with statistics as Ray 2.60 gives them."""

    def __init__(self, operators: list[Any]) -> None:
        self.operators = operators
        compute = SimpleNamespace(size=3)
        source = SimpleNamespace(name="Read", input_dependencies=[])
        self._logical_plan = SimpleNamespace(
            dag=SimpleNamespace(name="Map(wait)", input_dependencies=[source], compute=compute)
        )

    def iter_batches(self, batch_size: int) -> Iterator[Any]:
        return iter(np.zeros((10, batch_size)))

    def get_stats_summary(self) -> Any:
        read, wait = (SimpleNamespace(operators_stats=[one], parents=[]) for one in self.operators)
        return SimpleNamespace(operators_stats=wait.operators_stats, parents=[read])


RayDataset.__module__ = "ray.data.dataset"


def ray_operator(name: str, tasks: int, wall: float, cpu: float, first: float, last: float) -> Any:
    return SimpleNamespace(
        operator_name=name,
        wall_time=SimpleNamespace(sum=wall, count=tasks),
        cpu_time=SimpleNamespace(sum=cpu),
        output_size_bytes=SimpleNamespace(sum=1000.0),
        earliest_start_time=first,
        latest_end_time=last,
    )


def test_a_ray_dataset_by_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators: 20 tasks of 0.1 s of computing, 5 of 2 s that mostly wait."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cluster_resources=lambda: {"CPU": 4.0}))
    operators = [
        ray_operator("Read", 20, 2.0, 2.0, 100.0, 103.0),
        ray_operator("Map(wait)", 5, 10.0, 1.0, 101.0, 105.0),
    ]
    traced = trace(RayDataset(operators))
    assert (traced.batches, traced.seconds, traced.rate) == (10, 5.0, 2.0)
    read, wait = traced.stages[:2]
    assert (read.parallelism, read.cpu_s, read.blocked_s, read.visits) == (4, 0.2, 0.0, 2.0)
    assert (wait.parallelism, wait.cpu_s, wait.blocked_s, wait.latency_s) == (3, 0.1, 0.9, 1.8)
    answer = explain(traced).to_dict()
    assert (answer["bottleneck"], answer["kind"]) == ("Map(wait)", "latency")
    assert answer["settings"] == {"Read": 4, "Map(wait)": 3}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_stage_of_a_real_ray_dataset() -> None:
    ray = pytest.importorskip("ray")

    def slept(batch: Any) -> Any:
        time.sleep(0.05)
        return batch

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        dataset = ray.data.range(2000, override_num_blocks=20)
        dataset = dataset.map_batches(slept, batch_size=50, num_cpus=0.5)
        answer = explain(trace(dataset)).to_dict()
    finally:
        ray.shutdown()
    assert "slept" in answer["bottleneck"]
    assert answer["kind"] == "latency"
