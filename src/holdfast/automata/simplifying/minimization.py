"""`minimize`: the deterministic machine with the fewest states.

Source: M. Mohri, "Minimization algorithms for sequential transducers", Theoretical Computer Science 234,
2000: weights are pushed, then the labels and the weight of an arc are one symbol of an automaton, which is
minimized.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import I32, I64, Fst
from holdfast.automata.path_sums.distances import F64, least_costs, without_zero_arcs
from holdfast.automata.simplifying import partition_kernels as kernels
from holdfast.automata.simplifying.alphabets import alphabet_of
from holdfast.automata.simplifying.costs import costs_of, weights_of
from holdfast.automata.structure import connect
from holdfast.errors import InputError

DELTA = 1e-4
"""Above the rounding of float32 costs along a path."""


def minimize(f: Fst, *, delta: float = DELTA) -> Fst:
    """An equivalent deterministic machine with as few states as there can be.

    States that continue with the same labels and, up to a common factor, the same weights become one: the
    first of them. What an arc must make up for when it enters that one instead is added to its weight, so
    the weights of a machine that is minimal already stay as they are. Epsilon is a label like any other.

    For a transducer, states with the same outputs at the same places: the fewest of all if output comes as
    early as it can, as `determinize` leaves it.

    Args:
        f: a machine without two arcs of one state with the same input label, or with the same pair of
            labels (from `determinize(encode_labels=True)`).
        delta: pushed weights that differ by no more are equal (costs; -log in the probability semiring).
            The cost of a string of n labels differs by at most (n + 1) * delta.

    Returns:
        A connected machine; states keep the order of the first of each block.

    Raises:
        InputError: if the machine is not deterministic, or a cycle has a negative cost.
    """
    f = connect(without_zero_arcs(f))
    if not f.num_states:
        return f
    source = f.source
    # Whatever sum is taken for pushing, it must only be the same for states that continue alike, and grow
    # with the weights. A deterministic machine has one path for each string, so its least path will do in
    # every semiring, and is free of the rounding of logarithms.
    potential = np.zeros(f.num_states) if _is_unweighted(f) else least_costs(f, reverse=True)
    costs = costs_of(f)
    # As pushed towards the start: V(source)^-1 w V(nextstate), V(state)^-1 final.
    pushed = costs.arc
    if potential.any():
        pushed = pushed + potential[f.nextstate] - potential[source]
    symbols = _symbols(f, pushed, delta)
    kind, kinds = _clustered(costs.final - potential, delta)
    kept = symbols.arc
    block = kernels.refine(
        source[kept], symbols.symbol, f.nextstate[kept], symbols.number, kind, kinds
    )
    return _quotient(f, block, potential, costs.arc)


def _is_unweighted(f: Fst) -> bool:
    one, zero = f.semiring.one, f.semiring.zero
    return bool((f.weight == one).all() and ((f.final == one) | (f.final == zero)).all())


class _Symbols(NamedTuple):
    """What the refinement sees as symbols."""

    arc: I64
    """[K] the arcs whose labels stand for their groups."""
    symbol: I32
    """[K]"""
    number: int


def _symbols(f: Fst, pushed: F64, delta: float) -> _Symbols:
    """Each arc's input label, output label and pushed weight as one symbol."""
    weight, weights = _clustered(pushed, delta)
    value = weight.astype(np.int64)
    pair: npt.NDArray[np.integer] = f.ilabel
    if not f.is_acceptor:
        outputs, output = np.unique(f.olabel, return_inverse=True)
        pair = f.ilabel * np.int64(len(outputs)) + output
    alphabet = alphabet_of(pair, f.source, f.nextstate, value)
    _check_deterministic(f, alphabet.place, len(alphabet.labels))
    classes = np.flatnonzero(alphabet.representatives)
    group = alphabet.group[alphabet.place[classes]].astype(np.int64)
    if weights > 1:
        symbol = np.unique(group * weights + weight[classes], return_inverse=True)[1]
        return _Symbols(classes, symbol.astype(np.int32), int(symbol.max(initial=-1)) + 1)
    return _Symbols(classes, group.astype(np.int32), len(alphabet.offsets) - 1)


def _check_deterministic(f: Fst, place: I32, labels: int) -> None:
    state = kernels.repeated_label(f.offsets, place, labels)
    if state >= 0:
        raise InputError(
            "only a deterministic machine can be minimized",
            code="not-deterministic",
            place=f"state {state} of the connected machine",
            found="two arcs with the same labels",
            remedy="determinize it first, with --encode-labels (in Python encode_labels=True) for a "
            "transducer with several outputs for one input",
        )


def _clustered(values: F64, delta: float) -> tuple[I32, int]:
    """Numbers of values, the same for those that lie within delta; and how many there are."""
    # Nothing is to be sorted where all lie close together. (Infinity less infinity is NaN: not close.)
    if not len(values) or values.max() <= values.min() + delta < np.inf:
        return np.zeros(len(values), np.int32), min(1, len(values))
    number, count = kernels.clusters(values, np.argsort(values), delta)
    return number, int(count)


def _quotient(f: Fst, block: I32, potential: F64, cost: F64) -> Fst:
    """The machine of the first states of all blocks."""
    first = np.full(int(block.max()) + 1, f.num_states, np.int64)
    np.minimum.at(first, block, np.arange(f.num_states))
    first[block[f.start]] = f.start  # so that no weight is left over before the start
    if len(first) == f.num_states:
        return f
    representative = first[block]  # [V]
    states = np.sort(first)
    number = np.zeros(f.num_states, np.int32)
    number[states] = np.arange(len(states))
    keep = np.zeros(f.num_states, np.bool_)
    keep[states] = True
    arc = np.flatnonzero(keep[f.source])
    target = f.nextstate[arc]
    entered = representative[target]
    weight = f.weight[arc]
    changed = np.flatnonzero(potential[target] != potential[entered])
    made_up = cost[arc[changed]] + potential[target[changed]] - potential[entered[changed]]
    weight[changed] = weights_of(made_up, f.semiring)
    offsets = np.zeros(len(states) + 1, np.int64)
    np.cumsum(np.diff(f.offsets)[states], out=offsets[1:])
    return f.with_trusted(
        offsets=offsets,
        ilabel=f.ilabel[arc],
        olabel=f.olabel[arc],
        nextstate=number[entered],
        weight=weight,
        final=f.final[states],
        start=int(number[f.start]),
    )
