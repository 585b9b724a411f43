"""`random_paths`: paths drawn at random, each as likely as another or as its weight says."""

from __future__ import annotations

from typing import Literal

import numpy as np

from holdfast.automata.arguments import invalid
from holdfast.automata.composition.memory import refuse_memory
from holdfast.automata.fst import I64, Fst
from holdfast.automata.path_sums import enumeration_kernels as kernels
from holdfast.automata.path_sums.counting import (
    KEPT_TABLE_BYTES,
    Useful,
    bounded_length,
    count_table,
    number_of,
    useful_part,
)
from holdfast.automata.path_sums.distances import F64, useful_sums
from holdfast.automata.path_sums.path import Path, paths_of
from holdfast.automata.semirings import LOG
from holdfast.errors import InputError

BLOCK = 1 << 16
"""Random numbers drawn at a time."""


def random_paths(
    f: Fst,
    n: int,
    *,
    weighting: Literal["uniform", "weight"] = "uniform",
    seed: int = 0,
    max_length: int | None = None,
) -> list[Path]:
    """Independent random paths from the start to a final state.

    Args:
        f: the machine.
        n: how many.
        weighting: "uniform": every path is equally likely, exactly, since whole numbers of paths decide.
            "weight": a path's chance is its probability among all; costs, also those of the tropical
            semiring, are negated logarithms of probabilities.
        seed: of the generator; the same seed draws the same paths.
        max_length: draw only among the paths of at most so many arcs.

    Raises:
        InputError: if there is no path, if there are infinitely many (uniform, no `max_length`), if
            their probabilities sum to infinity (weight, no `max_length`), or an argument is none.
        LimitError: if the tables that paths are drawn with take too much memory.
    """
    if n < 0:
        raise invalid("number of paths", n, "0 or more")
    if seed < 0:
        raise invalid("seed", seed, "0 or more")
    if weighting not in ("uniform", "weight"):
        raise invalid("weighting", repr(weighting), "uniform or weight", code="unknown-name")
    graph = useful_part(f)
    generator = np.random.default_rng(seed)
    if weighting == "uniform":
        bounds, arcs = _uniform(f, graph, n, generator, max_length)
    else:
        bounds, arcs = _by_weight(f, graph, n, generator, max_length)
    return paths_of(f, bounds, graph.arc[arcs]) if n else []


def _uniform(
    f: Fst, graph: Useful, n: int, generator: np.random.Generator, max_length: int | None
) -> tuple[I64, I64]:
    """Bounds [n + 1] and arcs of paths whose ranks are drawn uniformly."""
    _check_some(graph.is_final.any(), max_length)
    counts = count_table(f, graph, bounded_length(f, graph, max_length))
    _check_some(counts[-1, f.start].any(), max_length)
    ranks = _random_ranks(number_of(counts[-1, f.start]), counts.shape[2], n, generator)
    bounds, arcs = kernels.by_rank(
        graph.offsets, graph.nextstate, graph.is_final, f.start, counts, ranks
    )
    return bounds, arcs


def _random_ranks(below: int, limbs: int, n: int, generator: np.random.Generator) -> I64:
    """Whole numbers i64[n, K], each value below the bound equally likely: random bits, kept if they fit."""
    bits = (below - 1).bit_length()
    sizes = [
        1 << min(max(bits - kernels.LIMB_BITS * k, 0), kernels.LIMB_BITS) for k in range(limbs)
    ]
    bound = [(below >> (kernels.LIMB_BITS * k)) & kernels.LIMB for k in range(limbs)]
    ranks = np.empty((n, limbs), np.int64)
    todo = np.arange(n)
    while len(todo):
        drawn = generator.integers(0, sizes, (len(todo), limbs), np.int64)
        less, equal = np.zeros(len(todo), bool), np.ones(len(todo), bool)
        for k in range(limbs - 1, -1, -1):
            less |= equal & (drawn[:, k] < bound[k])
            equal &= drawn[:, k] == bound[k]
        ranks[todo[less]] = drawn[less]
        todo = todo[~less]
    return ranks


def _by_weight(
    f: Fst, graph: Useful, n: int, generator: np.random.Generator, max_length: int | None
) -> tuple[I64, I64]:
    """Bounds [n + 1] and arcs of walks whose steps are as likely as the paths that they lead to."""
    costs = f.as_semiring("log64")
    weight = costs.weight[graph.arc].astype(np.float64)
    final = np.where(graph.is_final, costs.final, np.inf)
    _check_some(graph.is_final.any(), max_length)
    bounds, arcs = np.zeros(n + 1, np.int64), np.empty(BLOCK, np.int64)
    if max_length is None:
        onward = useful_sums(
            f, LOG, costs.weight.astype(np.float64), costs.final.astype(np.float64), reverse=True
        )
        chances = kernels.step_chances(graph.offsets, graph.nextstate, weight, final, onward)
        progress = np.array([0, 0, f.start])
    else:
        layers = _layers(graph, weight, final, max_length)
        _check_some(layers[-1, f.start] < np.inf, max_length)
        progress = np.array([0, 0, f.start, max_length])
    while progress[0] < n:
        uniforms = generator.random(BLOCK)
        if progress[1] + BLOCK > len(arcs):
            arcs = np.concatenate((arcs, np.empty(len(arcs) + BLOCK, np.int64)))
        if max_length is None:
            kernels.walk(
                graph.offsets, graph.nextstate, chances, f.start, uniforms, bounds, arcs, progress
            )
        else:
            kernels.walk_bounded(
                graph.offsets, graph.nextstate, weight, final, layers, f.start,
                uniforms, bounds, arcs, progress,
            )  # fmt: skip
    return bounds, arcs[: bounds[-1]]


def _layers(graph: Useful, weight: F64, final: F64, max_length: int) -> F64:
    """[max_length + 1, V] the sums to the finals over paths of at most so many arcs, as costs."""
    if max_length < 0:
        raise invalid("max_length", max_length, "0 arcs or more")
    needed = (max_length + 1) * len(final) * 8
    if needed > KEPT_TABLE_BYTES:
        raise refuse_memory(
            "the table of sums by length",
            needed,
            KEPT_TABLE_BYTES,
            f"{max_length + 1} lengths",
            "lower max_length, or leave it out",
        )
    layers = np.empty((max_length + 1, len(final)))
    layers[0] = final
    for layer in range(1, max_length + 1):
        kernels.sum_layer(
            graph.offsets, graph.nextstate, weight, final, layers[layer - 1], layers[layer]
        )
    return layers


def _check_some(some: bool | np.bool_, max_length: int | None) -> None:
    if not some:
        raise InputError(
            "no path to draw",
            code="no-match",
            found="no path from the start to a final state"
            + ("" if max_length is None else f" of at most {max_length} arcs"),
        )
