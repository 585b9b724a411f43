"""`compose_pruned`: composition for decoders, in which costly states are dropped frontier by frontier.

A is typically the scores of a network over time (`linear_emissions`), B what may be said. The states of
the composition are taken in frontiers: all states whose state of A is equally deep. For a linear A a
frontier is a frame; for a lattice the depth of a state is its longest distance from the start, counted in
arcs; a cycle of A lies in one frontier as a whole. Every move leads into its frontier or into one behind,
so that the best cost of a state is known when its frontier is pruned.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from holdfast.automata.arguments import invalid
from holdfast.automata.composition import frontiers
from holdfast.automata.composition.composing import ArcMap, check_composable
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.stepping import (
    Steps,
    final_weights,
    key_parts,
    step_arcs,
    steps,
    with_costs,
)
from holdfast.automata.fst import Fst
from holdfast.automata.structure import coaccessible, strong_components, with_states
from holdfast.errors import InputError, LimitError


@overload
def compose_pruned(
    a: Fst,
    b: Fst,
    beam: float,
    *,
    max_active: int | None = None,
    connect: bool = True,
    filter: FilterName = "auto",
    return_arc_map: Literal[False] = False,
    max_states: int | None = None,
) -> Fst: ...
@overload
def compose_pruned(
    a: Fst,
    b: Fst,
    beam: float,
    *,
    max_active: int | None = None,
    connect: bool = True,
    filter: FilterName = "auto",
    return_arc_map: Literal[True],
    max_states: int | None = None,
) -> tuple[Fst, ArcMap]: ...
def compose_pruned(
    a: Fst,
    b: Fst,
    beam: float,
    *,
    max_active: int | None = None,
    connect: bool = True,
    filter: FilterName = "auto",
    return_arc_map: bool = False,
    max_states: int | None = None,
) -> Fst | tuple[Fst, ArcMap]:
    """The part of the composition of A and B that a beam search keeps.

    The cost of a state is that of the best path to it from the start (in the log semirings too, as decoders
    do; weights of the probability semiring cost their negated logarithm). A state is dropped if it costs
    more than the best of its frontier plus `beam`, or if `max_active` states of its frontier are better.
    What is kept are the arcs of `compose` between states that are not dropped, so no path is better than
    the best path of `compose`; that one is kept if none of its states is worse than the best of its
    frontier by more than `beam`, so a narrow beam may keep another one, or none. With an infinite beam and
    no `max_active` the result is that of `compose`, bit for bit.

    Args:
        a: A; its output labels are matched.
        b: B; its input labels are matched.
        beam: a difference of costs, 0 or more.
        max_active: how many states a frontier may keep, 1 or more; of equals, those found first.
        connect: leave out states from which no final state can be reached.
        filter: which of several equal paths through epsilons is kept; see `filters`.
        return_arc_map: tell where each arc comes from, for gradients.
        max_states: stop when more states than these are kept.

    Returns:
        The machine, and with `return_arc_map` where its arcs come from.

    Raises:
        InputError: if the semirings or the symbols in between differ, the beam is negative, or costs fall
            without end around a cycle within a frontier.
        LimitError: if `max_states` would be passed.
    """
    if not beam >= 0:
        raise invalid("beam", beam, "0 or more")
    if max_active is not None and max_active < 1:
        raise invalid("max_active", max_active, "1 or more")
    check_composable(a, b)
    if a.num_states == 0 or b.num_states == 0:
        empty = np.empty(0, np.int64)
        nothing = Fst.empty(a.semiring, a.isymbols, b.osymbols)
        return (nothing, ArcMap(empty, empty)) if return_arc_map else nothing
    given = steps(a, b, filter)
    costed = with_costs(given, a, b)
    keys, offsets, at_a, at_b, nextstate = frontiers.pruned_machine(
        costed.a,
        costed.b,
        given.plan,
        *_searched(a, costed, beam, max_active, max_states),
    )
    arcs = step_arcs(given, at_a, at_b, a.semiring.is_negative_log)
    machine = Fst.trusted(
        offsets,
        arcs.ilabel,
        arcs.olabel,
        nextstate,
        arcs.weight,
        final_weights(given, keys, a.semiring.is_negative_log),
        0,
        a.semiring,
        a.isymbols,
        b.osymbols,
    )
    arc_map = ArcMap(arcs.arc_a, arcs.arc_b)
    if connect:
        # The start reaches all of it.
        machine, arc = with_states(machine, coaccessible(machine))
        arc_map = ArcMap(arc_map.a[arc], arc_map.b[arc])
    return (machine, arc_map) if return_arc_map else machine


def _searched(
    a: Fst, costed: Steps, beam: float, max_active: int | None, max_states: int | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Keys of the states found, whether each is kept, and the table of the keys."""
    parts = strong_components(a)
    depth = frontiers.depths(a.offsets, a.nextstate, a.start, parts.of, parts.number)
    turns = np.zeros(a.num_states, np.bool_)
    turns[a.source[depth[a.source] == depth[a.nextstate]]] = True
    no_limit = np.iinfo(np.int64).max
    why, keys, kept, slots = frontiers.search(
        costed.a,
        costed.b,
        costed.plan,
        costed.start,
        depth,
        turns,
        float(beam),
        no_limit if max_active is None else max_active,
        no_limit if max_states is None else max_states,
    )
    if why == frontiers.TOO_MANY:
        raise LimitError(
            "the beam keeps too many states",
            needed=f"more than {max_states} states",
            allowed=f"{max_states} states (max_states)",
            remedy="a smaller beam or max_active",
        )
    if why == frontiers.DIVERGES:
        left, right, _ = key_parts(int(keys[0]))
        raise InputError(
            "a cycle that reads no label of A has a negative cost",
            code="divergent-sum",
            place=f"state {left} of A with state {right} of B",
            expected="cycles of epsilons whose weights cost 0 or more",
        )
    return keys, kept, slots
