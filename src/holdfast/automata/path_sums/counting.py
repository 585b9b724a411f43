"""`count_paths`: how many paths a machine has, exactly; and the tables that number them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import structure_kernels as walks
from holdfast.automata.arguments import invalid
from holdfast.automata.composition.memory import refuse_memory
from holdfast.automata.fst import I32, I64, Fst
from holdfast.automata.path_sums import _kernels as sums
from holdfast.automata.path_sums import enumeration_kernels as kernels
from holdfast.automata.path_sums.distances import NAMED_STATES, useful_states
from holdfast.automata.semirings import LOG
from holdfast.automata.structure import Bools
from holdfast.errors import InputError

TABLE_BYTES = 1 << 28
"""Larger tables are not made for a count alone: it is then added up in Python's integers."""
KEPT_TABLE_BYTES = 1 << 30
"""Larger tables are not made at all."""


class Useful(NamedTuple):
    """What lies on paths from the start to a final state, under the machine's numbers of states."""

    offsets: I64
    """[V + 1]"""
    nextstate: I32
    """[E']"""
    is_final: Bools
    """[V]"""
    arc: I64
    """[E'] positions in the `Fst`."""


def count_paths(f: Fst, max_length: int | None = None) -> int:
    """The number of paths from the start to a final state, whatever their labels.

    Two paths differ if they differ in an arc; arcs of weight zero carry none.

    Args:
        f: any machine, or with `max_length` not given, one with finitely many paths.
        max_length: count only paths of at most so many arcs.

    Raises:
        InputError: if there are infinitely many, naming states of a cycle; or `max_length` is negative.
    """
    graph = useful_part(f)
    if not graph.is_final.any():
        return 0
    length = bounded_length(f, graph, max_length)
    if length is not None:
        return _count_bounded(graph, f.start, length)
    order = walks.topological_order(graph.offsets, graph.nextstate)
    limbs = _limbs(-_log_counts(graph, order)[f.start] / math.log(2))
    if f.num_states * limbs * 8 > TABLE_BYTES:
        return _count_in_python(graph, order, f.start)
    counts = np.zeros((f.num_states, limbs), np.int64)
    kernels.count_onward(graph.offsets, graph.nextstate, graph.is_final, order, counts, counts)
    return number_of(counts[f.start])


def useful_part(f: Fst) -> Useful:
    """The states and arcs that lie on paths."""
    useful = useful_states(f)
    is_final = useful & (f.final != f.semiring.zero)
    keep = useful[f.source] & useful[f.nextstate] & (f.weight != f.semiring.zero)
    arc = np.flatnonzero(keep)
    if len(arc) == f.num_arcs:
        return Useful(f.offsets, f.nextstate, is_final, arc)
    offsets = np.concatenate(([0], np.cumsum(keep)))[f.offsets]
    return Useful(offsets, f.nextstate[arc], is_final, arc)


def bounded_length(f: Fst, graph: Useful, max_length: int | None) -> int | None:
    """The bound on the length of paths, if it excludes any.

    Raises:
        InputError: if there is no bound and no end of paths, or the bound is negative.
    """
    if max_length is not None and max_length < 0:
        raise invalid("max_length", max_length, "0 arcs or more")
    if len(walks.topological_order(graph.offsets, graph.nextstate)) == f.num_states:
        return None if max_length is None or max_length >= f.num_states - 1 else max_length
    if max_length is None:
        raise InputError(
            "the machine has infinitely many paths",
            code="infinite",
            found=f"a cycle among the states {{{_a_component(graph)}}}",
            expected="no cycle on the way from the start to a final state",
            remedy="bound the number of arcs with max_length",
        )
    return max_length


def count_table(f: Fst, graph: Useful, length: int | None) -> I64:
    """Layers of counts i64[L, V, K]: one of all paths, or `length` + 1 of paths of 0, 1, ... arcs at most.

    Raises:
        LimitError: if the table would take more than `KEPT_TABLE_BYTES`.
    """
    if length is None:
        order = walks.topological_order(graph.offsets, graph.nextstate)
        limbs = _limbs(-_log_counts(graph, order)[f.start] / math.log(2))
        layers = 1
    else:
        order = np.arange(f.num_states, dtype=np.int32)
        limbs = _limbs(_bits_bounded(graph, length))
        layers = length + 1
    needed = layers * f.num_states * limbs * 8
    if needed > KEPT_TABLE_BYTES:
        raise refuse_memory(
            "the table of exact numbers of paths",
            needed,
            KEPT_TABLE_BYTES,
            f"{layers} layers, {f.num_states} states, {limbs * 8} bytes",
            "bound the length of paths with max_length, or draw by weight",
        )
    counts = np.zeros((layers, f.num_states, limbs), np.int64)
    if length is None:
        kernels.count_onward(
            graph.offsets, graph.nextstate, graph.is_final, order, counts[0], counts[0]
        )
        return counts
    counts[0, :, 0] = graph.is_final
    for layer in range(1, layers):
        kernels.count_onward(
            graph.offsets, graph.nextstate, graph.is_final, order, counts[layer], counts[layer - 1]
        )
    return counts


def number_of(limbs: I64) -> int:
    """The number that a row of limbs stands for."""
    return sum(limb << (kernels.LIMB_BITS * k) for k, limb in enumerate(limbs.tolist()))


def _limbs(bits: float) -> int:
    """How many limbs hold a number of so many bits, which may be rounded."""
    return int(bits * (1 + 1e-9) + 2) // kernels.LIMB_BITS + 1


def _log_counts(graph: Useful, order: I32) -> npt.NDArray[np.float64]:
    """[V] the negated logarithm of how many paths lead on from each state."""
    low = np.where(graph.is_final, 0.0, np.inf)
    total = graph.is_final.astype(np.float64)
    free = np.zeros(len(graph.nextstate))
    sums.sum_backward(LOG, graph.offsets, graph.nextstate, free, order, low, total)
    return low


def _bits_bounded(graph: Useful, length: int) -> float:
    """The bits of the largest number of paths of at most `length` arcs from any state."""
    low = np.where(graph.is_final, 0.0, np.inf)
    final, free = low, np.zeros(len(graph.nextstate))
    for _ in range(length):
        next_low = np.empty_like(low)
        kernels.sum_layer(graph.offsets, graph.nextstate, free, final, low, next_low)
        low = next_low
    return max(-float(low.min()) / math.log(2), 0.0)


def _count_bounded(graph: Useful, start: int, length: int) -> int:
    limbs = _limbs(_bits_bounded(graph, length))
    order = np.arange(len(graph.is_final), dtype=np.int32)
    counts = np.zeros((len(order), limbs), np.int64)
    counts[:, 0] = graph.is_final
    for _ in range(length):
        below, counts = counts, np.zeros_like(counts)
        kernels.count_onward(graph.offsets, graph.nextstate, graph.is_final, order, counts, below)
    return number_of(counts[start])


def _count_in_python(graph: Useful, order: I32, start: int) -> int:
    """The count from the start in integers of any size, each given up when it is not needed any more."""
    offsets, targets = graph.offsets.tolist(), graph.nextstate.tolist()
    readers = np.bincount(graph.nextstate, minlength=len(order)).tolist()
    counts: dict[int, int] = {}
    is_final = graph.is_final.tolist()
    for state in reversed(order.tolist()):
        count = int(is_final[state])
        for target in targets[offsets[state] : offsets[state + 1]]:
            count += counts[target]
            readers[target] -= 1
            if not readers[target]:
                del counts[target]
        counts[state] = count
    return counts[start]


def _a_component(graph: Useful) -> str:
    """The states of the first component with a cycle."""
    component, number = walks.strong_components(graph.offsets, graph.nextstate)
    source = np.repeat(np.arange(len(component)), np.diff(graph.offsets))
    on_cycle = np.bincount(component, minlength=number) > 1
    on_cycle[component[source[source == graph.nextstate]]] = True
    members = np.flatnonzero(component == np.flatnonzero(on_cycle)[0])
    named = ", ".join(map(str, members[:NAMED_STATES].tolist()))
    return named if len(members) <= NAMED_STATES else f"{named}, ... ({len(members)} states)"
