"""The cost of a string by vectors and matrices, cycles and duplicates included: what a machine means."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from holdfast.automata import Fst

Pair = tuple[int, int]


def string_costs(machine: Fst, longest: int) -> dict[tuple[Pair, ...], float]:
    """Strings of (ilabel, olabel) pairs up to a length -> -log of the sum (or least cost) of their paths.

    Epsilon is a label like any other. Strings without a path are left out.
    """
    tropical = machine.semiring.is_idempotent
    found: dict[tuple[Pair, ...], float] = {}
    if not machine.num_states:
        return found
    weights = {
        "probability": lambda w: -np.log(np.maximum(w, 1e-300)) + np.where(w == 0, np.inf, 0),
        "boolean": lambda w: np.where(w == 0, np.inf, 0.0),
    }.get(machine.semiring.name, lambda w: w)
    cost = weights(machine.weight.astype(np.float64))
    final = weights(machine.final.astype(np.float64))
    pairs = sorted(set(zip(machine.ilabel.tolist(), machine.olabel.tolist(), strict=True)))
    arcs = {
        pair: np.flatnonzero((machine.ilabel == pair[0]) & (machine.olabel == pair[1]))
        for pair in pairs
    }
    target = {pair: machine.nextstate[arcs[pair]] for pair in pairs}
    start = np.full(machine.num_states, np.inf)
    start[machine.start] = 0.0
    layer: dict[tuple[Pair, ...], npt.NDArray[np.float64]] = {(): start}
    for _ in range(longest + 1):
        for string, vector in layer.items():
            total = _sum(vector + final, tropical)
            if total < np.inf:
                found[string] = total
        following = {}
        for (string, vector), pair in product(layer.items(), pairs):
            reached = np.full(machine.num_states, -np.inf)
            one = -(vector[machine.source[arcs[pair]]] + cost[arcs[pair]])
            (np.maximum if tropical else np.logaddexp).at(reached, target[pair], one)
            reached = -reached
            if reached.min() < np.inf:
                following[(*string, pair)] = reached
        layer = following
    return found


def furthest(first: dict[tuple[Pair, ...], float], second: dict[tuple[Pair, ...], float]) -> float:
    """The largest difference of the costs of two machines; infinite if their strings differ."""
    if first.keys() != second.keys():
        return float("inf")
    return max((abs(cost - second[string]) for string, cost in first.items()), default=0.0)


def _sum(costs: npt.NDArray[np.float64], tropical: bool) -> float:
    least = float(costs.min(initial=np.inf))
    if tropical or least == np.inf:
        return least
    return least - float(np.log(np.exp(least - costs).sum()))
