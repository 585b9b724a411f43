"""Grain's datasets, rewritten as stage graphs: the same functions, and where each of them runs.

A rewritten dataset is traced like any graph (its stages in one thread, for their costs); its rate is
measured on the dataset itself. Classes are known by their names, so that Grain is not imported; tested with
Grain 0.2.18.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.stages import Executor, unsupported

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


def rewrite(loader: Any) -> tuple[Pipeline, dict[str, Place]]:
    """A Grain dataset as a graph, and where each stage runs.

    Its datasets are followed from the root to the source; a `MapDataset` is read by the threads of
    `to_iter_dataset`.

    Raises:
        InputError: `unsupported` for anything else.
    """
    library = type(loader).__module__.split(".")[0]
    if library != "grain":
        remedy = ADVICE.get(library)
        expected = "a torch DataLoader, a Pipeline, or a Grain dataset"
        raise unsupported("this loader cannot be traced", loader, expected=expected, remedy=remedy)
    dataset, place = loader, Place("main", "main", 1, True)
    # How to add each stage to a graph, and where it runs; from the root on, before the source is known.
    nodes: list[tuple[Callable[[Pipeline], Pipeline], Place]] = []
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
    graph, places = Pipeline(dataset), {"source": place}
    for add, where in reversed(nodes):
        graph = add(graph)
        places[graph.steps[-1].name] = where
    return graph, places
