"""`rmepsilon`: no arc has epsilon on both sides.

Source: M. Mohri, "Generic epsilon-removal and input epsilon-normalization algorithms for weighted
transducers", International Journal of Foundations of Computer Science 13, 2002.
"""

from __future__ import annotations

import numpy as np

from holdfast.automata import _kernels as sorting
from holdfast.automata.fst import EPS, I64, Fst
from holdfast.automata.path_sums.distances import without_zero_arcs
from holdfast.automata.simplifying.costs import costs_of, weights_of
from holdfast.automata.simplifying.epsilons import _kernels as kernels
from holdfast.automata.structure import _kernels as structure
from holdfast.automata.structure.connecting import connect
from holdfast.errors import InputError

NAMED_STATES = 10


def rmepsilon(f: Fst) -> Fst:
    """An equivalent machine without arcs that have epsilon on both sides.

    A state gets the arcs and the final weight of every state that epsilons lead to, times the sum over all
    paths of epsilons between the two; arcs with the same labels and nextstate become one. Cycles of
    epsilons are summed exactly: each strongly connected component is a system of linear equations.

    Args:
        f: any machine; what lies on no path from the start to a final state is left out first.

    Returns:
        A connected machine; states keep their order. The (connected) machine itself if it has no epsilons.

    Raises:
        InputError: if the sum over a cycle of epsilons diverges: one of negative cost in the tropical
            semiring, weights that do not sum below one in the log and probability semirings.
    """
    f = connect(without_zero_arcs(f))
    epsilon = (f.ilabel == EPS) & (f.olabel == EPS)
    if not epsilon.any():
        return f
    costs = costs_of(f)
    leaving, within = np.flatnonzero(~epsilon), np.flatnonzero(epsilon)
    # With where the arcs of each state begin among their own kind.
    offsets, epsilon_offsets = (np.searchsorted(kind, f.offsets) for kind in (leaving, within))
    epsilons = (epsilon_offsets, f.nextstate[within], costs.arc[within])
    component, number = structure.strong_components(*epsilons[:2])
    bounds, order = sorting.counting_order(component, number)
    sums, begin, wrong = kernels.component_stars(costs.code, *epsilons, component, bounds, order)
    if wrong >= 0:
        raise _divergence(order[bounds[wrong] : bounds[wrong + 1]])
    ilabel, olabel, nextstate = (part[leaving] for part in (f.ilabel, f.olabel, f.nextstate))
    made, arc, cost, final = kernels.without_epsilons(
        costs.code,
        offsets,
        ilabel,
        olabel,
        nextstate,
        costs.arc[leaving],
        costs.final,
        f.start,
        *epsilons,
        component,
        bounds,
        order,
        sums,
        begin,
    )
    return connect(
        f.with_trusted(
            offsets=made,
            ilabel=ilabel[arc],
            olabel=olabel[arc],
            nextstate=nextstate[arc],
            weight=weights_of(cost, f.semiring),
            final=weights_of(final, f.semiring),
        )
    )


def _divergence(members: I64) -> InputError:
    named = ", ".join(map(str, np.sort(members)[:NAMED_STATES].tolist()))
    if len(members) > NAMED_STATES:
        named += f", ... ({len(members)} states)"
    return InputError(
        f"sum diverges in component {{{named}}}",
        place="epsilon arcs of the connected machine",
        expected="cycles of epsilons whose weights have a finite sum",
        remedy="change the weights of the cycle: negative costs, or probabilities that sum to one or more",
    )
