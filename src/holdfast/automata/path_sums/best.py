"""The best paths of a machine: the n best as a machine, all of them in order, or all almost as good.

Best is what costs least. Weights of every semiring are read as costs: a probability's is its negated
logarithm, and in the log semiring too a path counts by its own cost, not with others of the same labels.
Source: M. Mohri, M. Riley, "An efficient algorithm for the n-best-strings problem", 2002; P. E. Hart,
N. J. Nilsson, B. Raphael, "A formal basis for the heuristic determination of minimum cost paths", 1968;
D. Eppstein, "Finding the k shortest paths", 1998, for the view of a path as its deviations from the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from holdfast.automata.arguments import invalid
from holdfast.automata.composition.memory import no_memory
from holdfast.automata.fst import I64, Fst
from holdfast.automata.path_sums import _kernels as kernels
from holdfast.automata.path_sums import string_kernels as strings
from holdfast.automata.path_sums.best_first import BestFirst, steps_to_go
from holdfast.automata.path_sums.distances import costs_of, least_costs
from holdfast.automata.path_sums.path import Path, chains, paths_of
from holdfast.automata.structure import connect, with_arcs

FIRST_ASKED = 16
MOST_ASKED = 4096
PATHS_A_STRING = 4
"""So many paths are listed for each string that is wanted, to learn what the strings cost at most."""
ROUNDING = 1e-9
"""So much, relative to what is added up, does not decide about a path."""


def shortest_path(f: Fst, n: int = 1, unique: bool = False) -> Fst:
    """The n best paths, as a machine: the union of n chains from one start, the best first.

    Args:
        f: any machine without a cycle of negative cost.
        n: how many paths; all if there are fewer.
        unique: paths with distinct input strings, each the best of its string.

    Returns:
        A machine that accepts these paths with their labels and weights, and nothing else. The arcs of
        its start are in the order of the paths.

    Raises:
        InputError: if n is less than 1, or a cycle has a negative cost.
        LimitError: if the paths do not fit into memory.
    """
    if n < 1:
        raise invalid("number of paths", n, "1 or more")
    try:
        bounds, arcs = _best_strings(f, n) if unique else BestFirst(f, n).more(n)
        return chains(f, bounds, arcs)
    except MemoryError as error:
        raise no_memory("the list of paths", error) from error


def paths(f: Fst, limit: int | None = None) -> Iterator[Path]:
    """The paths of a machine, the cheapest first; without end if the machine has cycles.

    Paths of equal cost come in an order that does not change, but follows no rule.

    Args:
        f: any machine without a cycle of negative cost.
        limit: end after so many paths.

    Raises:
        InputError: if a cycle has a negative cost, or the limit is negative.
    """
    if limit is not None and limit < 0:
        raise invalid("number of paths", limit, "0 or more")
    return _listed(f, limit)


def _listed(f: Fst, limit: int | None) -> Iterator[Path]:
    search = BestFirst(f, limit or 0)
    left = limit
    size = FIRST_ASKED
    while left is None or left > 0:
        wanted = size if left is None else min(size, left)
        bounds, arcs = search.more(wanted)
        if len(bounds) > 1:
            yield from paths_of(f, bounds, arcs)
        if len(bounds) <= wanted:
            return
        left = None if left is None else left - wanted
        size = min(2 * size, MOST_ASKED)


def _best_strings(f: Fst, n: int) -> tuple[I64, I64]:
    """Bounds [n + 1] and arcs of the best paths of the n best input strings."""
    weight, final = costs_of(f)
    ahead = least_costs(f, reverse=True)
    if not f.num_states or ahead[f.start] == np.inf:
        return np.zeros(1, np.int64), np.zeros(0, np.int64)
    steps = steps_to_go(f, weight, final, ahead)
    bound = _bound(f, n) - ahead[f.start]
    bounds, arcs = strings.best_strings(
        f.offsets, f.nextstate, weight, final, f.ilabel, ahead, steps, f.start, n, bound
    )
    return bounds, arcs


def _bound(f: Fst, n: int) -> float:
    """A cost that none of the n best strings exceeds: the best paths have as many; inf if few have."""
    remaining = PATHS_A_STRING * n
    search, in_costs = BestFirst(f, remaining), f.as_semiring("log64")
    seen: set[tuple[int, ...]] = set()
    while remaining > 0:
        wanted = min(remaining, n)
        bounds, arcs = search.more(wanted)
        for path in paths_of(in_costs, bounds, arcs) if len(bounds) > 1 else []:
            seen.add(path.ilabels)
            if len(seen) == n:
                return path.weight + ROUNDING * (1 + abs(path.weight))
        if len(bounds) <= wanted:
            break
        remaining -= wanted
    return math.inf


EQUAL = 2.0**-45
"""Relative rounding error of a sum: sums closer than this are equal."""


def prune(f: Fst, threshold: float, max_states: int | None = None) -> Fst:
    """The machine without the states, arcs and final weights that lie on no path within the threshold.

    The cost of the best path through an arc is the least cost to it, its own and the least cost from it;
    costs are those of single paths in every semiring (probabilities: their negated logarithms).

    Args:
        f: any machine without a cycle of negative cost.
        threshold: how much more than the best path a path may cost; inf keeps all that lies on a path.
        max_states: keep at most so many states, those on the best paths; of states whose best paths cost
            the same the first. So few that no path is left give the empty machine.

    Raises:
        InputError: if the threshold is negative or not a number, `max_states` is less than 1, or a cycle
            has a negative cost.
    """
    if not threshold >= 0:
        raise invalid("threshold", threshold, "a cost of 0 or more")
    if max_states is not None and max_states < 1:
        raise invalid("number of states", max_states, "1 or more")
    if not f.num_states:
        return f
    weight, ends = costs_of(f)
    to, onward = least_costs(f), least_costs(f, reverse=True)
    limit = onward[f.start] + threshold
    kept_arc, kept_final = kernels.within(
        f.offsets, f.nextstate, weight, ends, to, onward, limit, EQUAL
    )
    if max_states is not None and max_states < f.num_states:
        worse = np.argsort(to + onward, kind="stable")[max_states:]
        kept_state = np.ones(f.num_states, bool)
        kept_state[worse] = False
        kept_arc &= kept_state[f.source] & kept_state[f.nextstate]
        kept_final &= kept_state
    final = np.where(kept_final, f.final, f.semiring.zero).astype(f.semiring.dtype)
    return connect(with_arcs(f, kept_arc).with_trusted(final=final))
