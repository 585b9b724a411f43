"""Loaders of other libraries, rewritten as stage graphs: the same functions, and where each of them runs.

A rewritten loader is traced like any graph (its stages in one thread, for their costs); its rate is
measured on the loader itself. It can also replace the loader. Classes are known by their names, so that
neither library is imported; tested with torchdata 0.11 and Grain 0.2.18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.stages import Executor
from holdfast.errors import InputError


class Place(NamedTuple):
    """Where a stage runs in its loader."""

    group: str
    executor: Executor
    parallelism: int
    sequential: bool


@dataclass
class Rewritten:
    """A loader as a graph."""

    pipeline: Pipeline
    places: dict[str, Place] = field(default_factory=dict)
    """By the name of the stage."""


class _Node(NamedTuple):
    """A stage, from the root on, before the source is known."""

    kind: Literal["map", "random", "batch", "filter"]
    function: Callable[..., Any] | None
    place: Place
    size: int = 0
    drop_last: bool = False


class Again:
    """A source that begins anew with each iteration."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


def rewrite(loader: Any) -> Rewritten | None:
    """A torchdata `Loader` or node, or a Grain dataset, as a graph; None for anything else."""
    library = type(loader).__module__.split(".")[0]
    if library == "torchdata":
        return _from_torchdata(loader)
    return _from_grain(loader) if library == "grain" else None


def _build(source: Any, place: Place, nodes: list[_Node]) -> Rewritten:
    result = Rewritten(Pipeline(source), {"source": place})
    for node in reversed(nodes):
        if node.kind == "batch":
            graph = result.pipeline.batch(node.size, node.function, drop_last=node.drop_last)
        elif node.function is None:
            continue
        elif node.kind == "filter":
            graph = result.pipeline.filter(node.function)
        else:
            graph = result.pipeline.map(
                node.function, random=True if node.kind == "random" else None
            )
        result.places[graph.steps[-1].name] = node.place
        result.pipeline = graph
    return result


def _from_torchdata(loader: Any) -> Rewritten:
    """Nodes from the root to the source; what has no threads of its own runs where it is read."""
    node = loader.root if type(loader).__name__ == "Loader" else loader
    reader = Place("main", "main", 1, True)
    nodes: list[_Node] = []
    number = 0
    while True:
        kind = type(node).__name__
        if kind == "ParallelMapper":
            function = getattr(node.map_fn, "map_fn", node.map_fn)  # inside of `prebatch`
            if node.num_workers:
                number += 1
                executor: Executor = "process" if node.method == "process" else "thread"
                place = Place(f"mapper {number}", executor, node.num_workers, False)
                nodes.append(_Node("map", function, place))
                reader = Place(f"reader {number}", "thread", 1, True)
            else:
                nodes.append(_Node("map", function, reader))
            # The batches that `prebatch` makes are undone again.
            node = node.source.source if node.prebatch else node.source
        elif kind == "Batcher":
            nodes.append(_Node("batch", None, reader, node.batch_size, node.drop_last))
            node = node.source
        elif kind == "Prefetcher":
            number += 1
            reader = Place(f"prefetcher {number}", "thread", 1, True)
            node = node.source
        else:
            break
    inner = node

    def begin() -> Iterator[Any]:
        inner.reset()
        return iter(inner)

    return _build(Again(begin), reader, nodes)


def _from_grain(dataset: Any) -> Rewritten:
    """Datasets from the root to the source; a `MapDataset` is read by the threads of `to_iter_dataset`."""
    place = Place("main", "main", 1, True)
    nodes: list[_Node] = []
    while True:
        kind, parents = type(dataset).__name__, getattr(dataset, "_parents", ())
        if "Process" in kind or "Interleave" in kind:  # what `mp_prefetch` becomes
            raise InputError(
                "Grain's worker processes cannot be traced",
                code="unsupported",
                found=kind,
                remedy="trace the dataset without mp_prefetch",
            )
        if len(parents) != 1:
            break
        if kind in ("MapMapDataset", "MapIterDataset"):
            nodes.append(_Node("map", dataset._map_fn, place))
        elif kind in ("RandomMapMapDataset", "RandomMapIterDataset"):
            nodes.append(_Node("random", dataset._map_fn, place))
        elif kind in ("FilterMapDataset", "FilterIterDataset"):
            nodes.append(_Node("filter", dataset._filter_fn, place))
        elif kind in ("BatchMapDataset", "BatchIterDataset"):
            size, last = dataset._batch_size, dataset._drop_remainder
            nodes.append(_Node("batch", dataset._batch_fn, place, size, last))
        elif kind == "PrefetchIterDataset":
            place = Place("read", "thread", max(1, dataset._read_options.num_threads), False)
        elif not kind.startswith(
            ("_WithSeed", "WithOptions")
        ):  # shuffles, slices, mixtures: what they read is the source
            break
        dataset = parents[0]
    return _build(dataset, place, nodes)
