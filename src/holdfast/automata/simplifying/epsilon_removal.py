"""`rmepsilon`: no arc has epsilon on both sides.

Source: M. Mohri, "Generic epsilon-removal and input epsilon-normalization algorithms for weighted
transducers", International Journal of Foundations of Computer Science 13, 2002.
"""

from __future__ import annotations

import numpy as np

from holdfast.automata import _kernels as sorting
from holdfast.automata import structure_kernels as structure
from holdfast.automata.composition.memory import available_bytes, no_memory, refuse_memory
from holdfast.automata.fst import EPS, I64, Fst
from holdfast.automata.path_sums import system_kernels as systems
from holdfast.automata.path_sums.distances import (
    F64,
    divergence,
    start_sums,
    useful_sums,
    without_zero_arcs,
)
from holdfast.automata.semirings import TROPICAL
from holdfast.automata.simplifying import epsilon_kernels as kernels
from holdfast.automata.simplifying.costs import costs_of, weights_of
from holdfast.automata.structure import Bools, connect

ARC_BYTES = 80
"""Maximum memory per arc of the result, while it is built and trimmed."""
MANY_TIMES, MANY_ARCS = 8, 1 << 20
"""A result with more arcs than so many times the machine's, and than so many, is estimated in whole."""
SAMPLES = 64
ROUNDING = 1e-7
"""Relative to the highest cost of a component: what the float32 weights of a cycle of cost 0 may lack."""


def rmepsilon(f: Fst, *, memory_bytes: int | None = None) -> Fst:
    """An equivalent machine without arcs that have epsilon on both sides.

    A state gets the arcs and the final weight of every state that epsilons lead to, times the sum over all
    paths of epsilons between the two; arcs with the same labels and nextstate become one. Cycles of
    epsilons are summed exactly: a search for least costs (tropical), or a system of linear equations, for
    each state that enters their component.

    Args:
        f: any machine; what lies on no path from the start to a final state is left out first.
        memory_bytes: stop before the result takes more (default: the memory available). Each state of a
            chain of n epsilons may get the arcs of all that follow, n * n / 2 of them.

    Returns:
        A connected machine; states keep their order. The (connected) machine itself if it has no epsilons.

    Raises:
        InputError: if the sum over a cycle of epsilons diverges: one of negative cost in the tropical
            semiring, weights that do not sum below one in the log and probability semirings.
        LimitError: if the result does not fit into memory.
    """
    f = connect(without_zero_arcs(f))
    epsilon = (f.ilabel == EPS) & (f.olabel == EPS)
    if not epsilon.any():
        return f
    memory = available_bytes() if memory_bytes is None else memory_bytes
    try:
        return connect(_removed(f, epsilon, memory))
    except MemoryError as error:
        raise no_memory("the machine without epsilons", error) from error


def _removed(f: Fst, epsilon: Bools, memory: int) -> Fst:
    costs = costs_of(f)
    leaving, within = np.flatnonzero(~epsilon), np.flatnonzero(epsilon)
    # With where the arcs of each state begin among their own kind.
    offsets, epsilon_offsets = (np.searchsorted(kind, f.offsets) for kind in (leaving, within))
    target, weight = f.nextstate[within], costs.arc[within]
    alone = f.with_trusted(offsets=epsilon_offsets, nextstate=target)
    component, number = structure.strong_components(epsilon_offsets, target)
    bounds, order = sorting.counting_order(component, number)
    local = np.empty(f.num_states, np.int32)
    local[order] = np.arange(f.num_states) - bounds[component[order]]
    of_source = component[f.source[within]]
    of_arc = np.where(of_source == component[target], of_source, number)
    cyclic = np.zeros(number + 1, np.bool_)
    cyclic[of_arc] = True
    sums = np.empty(f.num_states)
    epsilons = kernels.Epsilons(
        epsilon_offsets,
        target,
        weight,
        component,
        bounds,
        order,
        local,
        cyclic,
        np.full(f.num_states, -1, np.int64),
        np.empty(f.num_states, np.int64),
        sums,
    )
    ilabel, olabel, nextstate = (part[leaving] for part in (f.ilabel, f.olabel, f.nextstate))
    arcs_of = kernels.Arcs(offsets, ilabel, olabel, nextstate, costs.arc[leaving], costs.final)
    # No path comes any more to states that only epsilons enter.
    keep = np.zeros(f.num_states, np.bool_)
    keep[nextstate] = keep[f.start] = True
    made_offsets = np.zeros(f.num_states + 1, np.int64)
    final = np.full(f.num_states, np.inf)
    room = max(len(leaving), 16)
    arc: I64 = np.empty(room, np.int64)
    cost: F64 = np.empty(room)
    state, is_summed = 0, False
    large = max(MANY_TIMES * f.num_arcs, MANY_ARCS)
    raised: set[int] = set()
    while True:
        status, state, detail = kernels.without_epsilons(
            costs.code, arcs_of, keep, epsilons, state, is_summed, made_offsets, arc, cost, final
        )
        is_summed = False
        epsilons.stamp.fill(-1)  # the state is begun again
        if status == systems.SOLVED:
            break
        if status == kernels.FULL:
            most = memory // ARC_BYTES
            if detail > large:  # once; no estimate is twice what there will be
                detail = max(detail, _estimate(alone, f, leaving, keep) // 2)
                large = memory
            if detail > most:
                reached = f"{detail:,} arcs, after {state:,} of {f.num_states:,} states"
                needed = detail * ARC_BYTES
                raise refuse_memory("the machine without epsilons", needed, memory, reached)
            room = min(max(detail, 2 * len(arc)), most)
            arc = np.append(arc, np.empty(room - len(arc), np.int64))
            cost = np.append(cost, np.empty(room - len(cost)))
        elif status == systems.UNDECIDED:
            sums[:] = start_sums(alone.with_trusted(start=state), costs.code, weight)
            is_summed = True
        elif costs.code == TROPICAL and detail not in raised:
            # A cycle of cost zero may be below it by rounding: that much more for each arc.
            raised.add(detail)
            inside = of_arc == detail
            weight[inside] += ROUNDING * max(1.0, float(np.abs(weight[inside]).max()))
        else:
            raise divergence(np.sort(order[bounds[detail] : bounds[detail + 1]]), costs.code)
    arcs = int(made_offsets[-1])
    arc = arc[:arcs]
    return f.with_trusted(
        offsets=made_offsets,
        ilabel=ilabel[arc],
        olabel=olabel[arc],
        nextstate=nextstate[arc],
        weight=weights_of(cost[:arcs], f.semiring),
        final=weights_of(final, f.semiring),
    )


def _estimate(epsilons: Fst, f: Fst, leaving: I64, keep: Bools) -> int:
    """About how many arcs the result has, in linear time.

    The least of n exponential numbers has the mean 1 / n, and the least of a closure is found without
    listing it. Source: E. Cohen, "Size-estimation framework with applications to transitive closure and
    reachability", Journal of Computer and System Sciences 55, 1997.
    """
    columns = np.stack([f.ilabel, f.olabel, f.nextstate])[:, leaving]
    _, kind = np.unique(columns, axis=1, return_inverse=True)
    random, free = np.random.default_rng(0), np.zeros(len(epsilons.nextstate))
    sums = np.zeros(f.num_states)
    for _ in range(SAMPLES):
        least = np.full(f.num_states, np.inf)
        np.minimum.at(least, f.source[leaving], random.exponential(size=len(leaving))[kind])
        sums += useful_sums(epsilons, TROPICAL, free, least, reverse=True)
    return int(((SAMPLES - 1) / sums[keep]).sum())
