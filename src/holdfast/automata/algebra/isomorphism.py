"""`isomorphic`: whether two machines differ in the numbers of states and the order of arcs alone.

The starts are paired, and arcs with the same labels and weight are followed, as long as there is no
choice; that settles most machines in time linear in their size. For the others states are coloured until
equal colours mean equal surroundings (colour refinement, Weisfeiler and Leman 1968), and where that leaves
a choice each is tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.algebra import _kernels as kernels
from holdfast.automata.algebra.assembling import beside, check_semirings
from holdfast.automata.fst import I32, I64, Fst
from holdfast.errors import LimitError

DELTA = 1 / 1024
F64 = npt.NDArray[np.float64]
U64 = npt.NDArray[np.uint64]


class _Graph(NamedTuple):
    """Two machines side by side: states below `half` are those of the first."""

    half: int
    source: I32
    """[E]"""
    nextstate: I32
    """[E]"""
    labels: I64
    """[E] both labels of an arc as one."""
    cost: F64
    """[E]"""
    final: F64
    """[V]"""


def isomorphic(a: Fst, b: Fst, delta: float = DELTA, *, max_tries: int = 1000) -> bool:
    """Whether the states of A can be renumbered, and arcs reordered, so that A becomes B.

    Args:
        a: A.
        b: B.
        delta: how much weights may differ.
        max_tries: how many choices between states that look alike may be tried.

    Raises:
        InputError: if the semirings differ.
        LimitError: if `max_tries` choices did not decide; machines of many arcs with equal labels and
            symmetries that weights break only a little.
    """
    check_semirings(a, b)
    if (a.num_states, a.num_arcs) != (b.num_states, b.num_arcs):
        return False
    if a.num_states == 0:
        return True
    plain = {"isymbols": None, "osymbols": None}
    both = beside(a.with_(**plain), b.with_(**plain))
    order = np.lexsort((both.weight, both.olabel, both.ilabel, both.source))
    partner = np.full(both.num_states, -1, np.int64)
    other = b.start + a.num_states
    found = kernels.pair_states(
        both.offsets,
        both.ilabel[order],
        both.olabel[order],
        both.nextstate[order],
        both.weight[order].astype(np.float64),
        both.final.astype(np.float64),
        a.start,
        other,
        delta,
        partner,
    )
    if found == kernels.DIFFERENT:
        return False
    if found == kernels.SAME and (partner >= 0).all():
        return True
    graph = _Graph(
        a.num_states,
        both.source,
        both.nextstate,
        both.ilabel.astype(np.int64) << 32 | both.olabel,
        both.weight.astype(np.float64),
        both.final.astype(np.float64),
    )
    colour = _classes(graph.final, delta)
    colour[[a.start, other]] = colour.max() + 1
    arc = _mixed(graph.labels.astype(np.uint64), _classes(graph.cost, delta).astype(np.uint64))
    tries = [max_tries]
    return _renumbered(graph, colour, arc, delta, tries)


def _renumbered(graph: _Graph, colour: I64, arc: U64, delta: float, tries: list[int]) -> bool:
    """Whether some renumbering that keeps colours makes the machines equal."""
    colour = _refined(graph, colour, arc)
    first, second = colour[: graph.half], colour[graph.half :]
    counts = np.bincount(first, minlength=len(colour))
    if not np.array_equal(counts, np.bincount(second, minlength=len(colour))):
        return False
    choices = np.flatnonzero(counts > 1)
    if not len(choices):
        partner = np.empty(graph.half, np.int64)
        partner[np.argsort(first)] = np.argsort(second)
        return _agree(graph, partner, delta)
    choice = choices[np.argmin(counts[choices])]
    state = np.flatnonzero(first == choice)[0]
    for other in np.flatnonzero(second == choice) + graph.half:
        tries[0] -= 1
        if tries[0] < 0:
            raise LimitError(
                "too many states look alike to say whether the machines are isomorphic",
                needed="more choices",
                allowed="max_tries",
                remedy="raise max_tries, or compare with equivalent()",
            )
        alone = colour.copy()
        alone[[state, other]] = colour.max() + 1
        if _renumbered(graph, alone, arc, delta, tries):
            return True
    return False


def _refined(graph: _Graph, colour: I64, arc: U64) -> I64:
    """[V] colours, refined until states of one have arcs alike, from and to the same colours."""
    count = len(np.unique(colour))
    while True:
        old = colour.astype(np.uint64)
        around = np.zeros((2, len(colour)), np.uint64)
        # Sums wrap around: they are hashes of multisets.
        np.add.at(around[0], graph.source, _mixed(arc, old[graph.nextstate]))
        np.add.at(around[1], graph.nextstate, _mixed(arc, old[graph.source]))
        mixed = _mixed(_mixed(old, around[0]), around[1])
        colour = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
        if (now := int(colour.max()) + 1) <= count:
            return colour
        count = now


def _classes(values: F64, delta: float) -> I64:
    """[N] the same number for values that may be equal: those linked by steps of at most delta."""
    order = np.argsort(values)
    with np.errstate(invalid="ignore"):  # inf - inf
        steps = np.diff(values[order]) > delta
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(steps)))[: len(values)]
    return numbers


def _mixed(x: U64, y: U64) -> U64:
    """A hash of two words."""
    mixed = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(29))) + y
    mixed = mixed * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(32))


def _agree(graph: _Graph, partner: I64, delta: float) -> bool:
    """Whether the arcs are equal, up to delta, when state s of A is state partner[s] of B."""
    of_a = graph.source < graph.half
    columns: list[list[npt.NDArray[Any]]] = []
    for mine, number in ((of_a, partner), (~of_a, np.arange(graph.half))):
        base = 0 if mine is of_a else graph.half
        source = number[graph.source[mine] - base]
        target = number[graph.nextstate[mine] - base]
        cost = graph.cost[mine]
        order = np.lexsort((cost, graph.labels[mine], target, source))
        columns.append([part[order] for part in (source, target, graph.labels[mine], cost)])
    final = graph.final[graph.half :][partner]
    left, right = columns
    return (
        all(np.array_equal(x, y) for x, y in zip(left[:3], right[:3], strict=True))
        and _close(left[3], right[3], delta)
        and _close(graph.final[: graph.half], final, delta)
    )


def _close(x: F64, y: F64, delta: float) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(((x == y) | (np.abs(x - y) <= delta)).all())
