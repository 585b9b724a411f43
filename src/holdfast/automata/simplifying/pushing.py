"""`push`: weights move along paths, towards the start or towards the final states.

Source: M. Mohri, M. Riley, "A weight pushing algorithm for large vocabulary speech recognition",
Eurospeech 2001.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from holdfast.automata.algebra.assembling import with_epsilons, with_state
from holdfast.automata.arguments import invalid
from holdfast.automata.fst import Fst
from holdfast.automata.path_sums.distances import F64, state_distances, without_zero_arcs
from holdfast.automata.semirings import SEMIRINGS, converted
from holdfast.automata.simplifying.costs import costs_of, weights_of
from holdfast.automata.structure import connect


def push(
    f: Fst,
    to: Literal["initial", "final"] = "initial",
    *,
    remove_total: bool = False,
) -> Fst:
    """The same machine with its weights as early, or as late, as they can be; every path keeps its weight.

    Towards the start: the weights of the arcs that leave a state and its final weight sum to one in the
    semiring (in the log semiring: they are a distribution). What is left, the sum of all paths, goes to
    the arcs of the start state, or, if arcs enter that, to an epsilon arc from a new start state, as in
    OpenFST. Towards the end: the weights of the arcs that enter a state sum to one, the start counting as
    entered once more, and what is left goes to the final weights.

    Args:
        f: the machine; what lies on no path from the start to a final state is left out.
        to: "initial" or "final".
        remove_total: leave the sum of all paths out, so that the sum of the result is one.

    Returns:
        A connected machine with states and arcs in their order.

    Raises:
        InputError: if the sum of all paths diverges.
    """
    if to not in ("initial", "final"):
        raise invalid("direction", repr(to), "'initial' or 'final'", code="invalid-value")
    f = connect(without_zero_arcs(f))
    if not f.num_states:
        return f
    if to == "initial":
        potential = _potential(f, reverse=True)
        total = float(potential[f.start])
        pushed = _reweighted(f, potential, -potential)
        return pushed if remove_total or total == 0.0 else _with_total_at_start(pushed, total)
    potential = _potential(f, reverse=False)
    ends = potential - potential[f.start]
    if remove_total:
        ends = ends - _potential(f, reverse=True)[f.start]
    return _reweighted(f, -potential, ends)


def _potential(f: Fst, reverse: bool) -> F64:
    """[V] the sum of the paths to the finals, or from the start, as a cost."""
    return converted(state_distances(f, reverse=reverse), f.semiring, SEMIRINGS["log64"])


def _reweighted(f: Fst, potential: F64, ends: F64) -> Fst:
    """Arcs cost w - potential[source] + potential[nextstate], final states their cost + ends[state]."""
    costs = costs_of(f)
    arc = costs.arc - potential[f.source] + potential[f.nextstate]
    return f.with_trusted(
        weight=weights_of(arc, f.semiring),
        final=weights_of(costs.final + ends, f.semiring),
    )


def _with_total_at_start(f: Fst, total: float) -> Fst:
    """The machine with a cost more on every path."""
    costs = costs_of(f)
    if not (f.nextstate == f.start).any():
        leaving = slice(f.offsets[f.start], f.offsets[f.start + 1])
        costs.arc[leaving] += total
        costs.final[f.start] += total
        return f.with_trusted(
            weight=weights_of(costs.arc, f.semiring), final=weights_of(costs.final, f.semiring)
        )
    left = weights_of(np.array([total]), f.semiring)
    made = with_epsilons(with_state(f, f.semiring.zero), [f.num_states], f.start, left)
    return made.with_trusted(start=f.num_states)
