"""Loaders of other libraries, rewritten as stage graphs: the same functions, and where each of them runs.

A rewritten loader is traced like any graph (its stages in one thread, for their costs); its rate is
measured on the loader itself. It can also replace the loader. Classes are known by their names, so that
neither library is imported; tested with torchdata 0.11 and Grain 0.2.18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.stages import Executor, unsupported

TRACEABLE = "a torch DataLoader, a Pipeline, a torchdata loader, a Grain or a Ray dataset"
# Settings of libraries whose loaders run where no stage can be wrapped.
ADVICE = {
    "tensorflow": "set num_parallel_calls and prefetch to tf.data.AUTOTUNE, and cache() before the first "
    "random map; the TensorFlow Profiler names the slowest one",
}


class Place(NamedTuple):
    """Where a stage runs in its loader; the fields are those of `Stage`."""

    group: str
    executor: Executor
    parallelism: int
    sequential: bool


Add = Callable[[Pipeline], Pipeline]
# How to add a stage to a graph, and where it runs; from the root on, before the source is known.
Nodes = list[tuple[Add, Place]]

MAIN = Place("main", "main", 1, True)


class Again:
    """A source that begins anew with each iteration."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


def restarted(node: Any) -> Again:
    """A node of torchdata, which is its own iterator, from its beginning."""
    return Again(lambda: (node.reset(), iter(node))[1])


def rewrite(loader: Any) -> tuple[Pipeline, dict[str, Place]]:
    """A torchdata `Loader` or node, or a Grain dataset, as a graph, and where each stage runs.

    Raises:
        InputError: `unsupported` for anything else.
    """
    library = type(loader).__module__.split(".")[0]
    if library not in ("torchdata", "grain"):
        raise unsupported(
            "this loader cannot be traced", loader, expected=TRACEABLE, remedy=ADVICE.get(library)
        )
    source, place, nodes = _torchdata(loader) if library == "torchdata" else _grain(loader)
    graph, places = Pipeline(source), {"source": place}
    for add, where in reversed(nodes):
        graph = add(graph)
        places[graph.steps[-1].name] = where
    return graph, places


def _torchdata(loader: Any) -> tuple[Any, Place, Nodes]:
    """Nodes from the root to the source; what has no threads of its own runs where it is read."""
    node = loader.root if type(loader).__name__ == "Loader" else loader
    reader, number = MAIN, 0
    nodes: Nodes = []
    while (kind := type(node).__name__) in ("ParallelMapper", "Batcher", "Prefetcher"):
        place = reader
        if kind == "Prefetcher" or getattr(node, "num_workers", 0):
            number += 1
            name = "prefetcher" if kind == "Prefetcher" else "reader"
            reader = Place(f"{name} {number}", "thread", 1, True)
        if kind == "ParallelMapper":
            if node.num_workers:
                executor: Executor = "process" if node.method == "process" else "thread"
                place = Place(f"mapper {number}", executor, node.num_workers, False)
            function = getattr(node.map_fn, "map_fn", node.map_fn)
            nodes.append((partial(Pipeline.map, function=function), place))
            # The batches that `prebatch` makes are undone again.
            node = node.source.source if node.prebatch else node.source
            continue
        if kind == "Batcher":
            add = partial(Pipeline.batch, size=node.batch_size, drop_last=node.drop_last)
            nodes.append((add, place))
        node = node.source
    return restarted(node), reader, nodes


def _grain(dataset: Any) -> tuple[Any, Place, Nodes]:
    """Datasets from the root to the source; a `MapDataset` is read by the threads of `to_iter_dataset`."""
    place = MAIN
    nodes: Nodes = []
    while True:
        kind, parents = type(dataset).__name__, getattr(dataset, "_parents", ())
        if "Process" in kind or "Interleave" in kind:  # what `mp_prefetch` becomes
            remedy = "trace the dataset without mp_prefetch"
            raise unsupported("Grain's worker processes cannot be traced", dataset, remedy=remedy)
        if len(parents) != 1:
            break
        match kind.replace("IterDataset", "MapDataset"):
            case "MapMapDataset":
                nodes.append((partial(Pipeline.map, function=dataset._map_fn), place))
            case "RandomMapMapDataset":
                add = partial(Pipeline.map, function=dataset._map_fn, random=True)
                nodes.append((add, place))
            case "FilterMapDataset":
                nodes.append((partial(Pipeline.filter, function=dataset._filter_fn), place))
            case "BatchMapDataset":
                size, last = dataset._batch_size, dataset._drop_remainder
                add = partial(Pipeline.batch, size=size, collate=dataset._batch_fn, drop_last=last)
                nodes.append((add, place))
            case "PrefetchMapDataset":
                place = Place("read", "thread", max(1, dataset._read_options.num_threads), False)
            case name if not name.startswith(("_WithSeed", "WithOptions")):
                break  # shuffles, slices, mixtures: what they read is the source
        dataset = parents[0]
    return dataset, place, nodes
