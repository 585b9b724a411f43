"""`prune`: only what lies on a path almost as good as the best one is kept."""

from __future__ import annotations

import numpy as np

from holdfast.automata.arguments import invalid
from holdfast.automata.fst import Fst
from holdfast.automata.path_sums import _kernels as kernels
from holdfast.automata.path_sums.distances import costs_of, least_costs
from holdfast.automata.structure.connecting import connect, with_arcs

ROUNDING = 2.0**-45
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
        f.offsets, f.nextstate, weight, ends, to, onward, limit, ROUNDING
    )
    if max_states is not None and max_states < f.num_states:
        worse = np.argsort(to + onward, kind="stable")[max_states:]
        kept_state = np.ones(f.num_states, bool)
        kept_state[worse] = False
        kept_arc &= kept_state[f.source] & kept_state[f.nextstate]
        kept_final &= kept_state
    final = np.where(kept_final, f.final, f.semiring.zero).astype(f.semiring.dtype)
    return connect(with_arcs(f, kept_arc).with_trusted(final=final))
