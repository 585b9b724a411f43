"""Composition in plain Python: the breadth-first search that defines the answer of every faster form.

States are numbered in the order in which they are first met. The arcs of a state are those of A alone,
those of B alone, both epsilons at once, then the matches by ascending label; among equals A's order comes
before B's. Trimming keeps the order of what is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata import Fst
from holdfast.automata.composition import filters


class PlainComposition(NamedTuple):
    machine: Fst
    arc_a: list[int]
    """For each arc the arc of A that it came from, -1 for none."""
    arc_b: list[int]
    states: list[tuple[int, int, int]]
    """For each state (state of A, state of B, filter state)."""


def compose_plainly(
    a: Fst, b: Fst, connect: bool = True, filter: filters.FilterName = "auto"
) -> PlainComposition:
    ring = a.semiring
    if not a.num_states or not b.num_states:
        return PlainComposition(Fst.empty(ring, a.isymbols, b.osymbols), [], [], [])
    table = filters.transitions(filter)
    kinds_a = filters.kinds(a.offsets, a.by_olabel.epsilons, a.final, ring.zero)
    kinds_b = filters.kinds(b.offsets, b.by_ilabel.epsilons, b.final, ring.zero)
    arcs_a, arcs_b = list(a.arcs()), list(b.arcs())
    states = [(a.start, b.start, 0)]
    number = {states[0]: 0}
    arcs: list[tuple[int, int, int, int]] = []  # source, target, arc of a, arc of b
    for source, (p, q, memory) in enumerate(states):  # grows while it is walked
        of_a = range(a.offsets[p], a.offsets[p + 1])
        of_b = range(b.offsets[q], b.offsets[q + 1])
        eps_a = [k for k in of_a if arcs_a[k].olabel == 0]
        eps_b = [k for k in of_b if arcs_b[k].ilabel == 0]
        moves = [(k, -1, filters.A_ALONE) for k in eps_a]
        moves += [(-1, k, filters.B_ALONE) for k in eps_b]
        moves += [(j, k, filters.BOTH_EPSILON) for j in eps_a for k in eps_b]
        moves += [
            (j, k, filters.MATCH)
            for j in sorted(of_a, key=lambda j: arcs_a[j].olabel)
            for k in of_b
            if arcs_a[j].olabel == arcs_b[k].ilabel != 0
        ]
        for j, k, move in moves:
            then = int(table[kinds_a[p], kinds_b[q], memory, move])
            if then == filters.BLOCKED:
                continue
            key = (
                arcs_a[j].nextstate if j >= 0 else p,
                arcs_b[k].nextstate if k >= 0 else q,
                then,
            )
            if key not in number:
                number[key] = len(states)
                states.append(key)
            arcs.append((source, number[key], j, k))
    final = [_times(a, a.final[p], b.final[q]) for p, q, _ in states]
    keep = set(range(len(states)))
    if connect:
        keep = _reaching_a_final(arcs, [s for s, w in enumerate(final) if w != ring.zero])
        if 0 not in keep:
            return PlainComposition(Fst.empty(ring, a.isymbols, b.osymbols), [], [], [])
    renumbered = {state: at for at, state in enumerate(sorted(keep))}
    arcs = [arc for arc in arcs if arc[0] in keep and arc[1] in keep]
    machine = Fst.build(
        [
            (
                renumbered[source],
                arcs_a[j].ilabel if j >= 0 else 0,
                arcs_b[k].olabel if k >= 0 else 0,
                _times(
                    a,
                    a.weight[j] if j >= 0 else a.weight.dtype.type(ring.one),
                    b.weight[k] if k >= 0 else b.weight.dtype.type(ring.one),
                ),
                renumbered[target],
            )
            for source, target, j, k in arcs
        ],
        {
            renumbered[state]: weight
            for state, weight in enumerate(final)
            if state in keep and weight != ring.zero
        },
        states=len(keep),
        semiring=ring,
        isymbols=a.isymbols,
        osymbols=b.osymbols,
    )
    return PlainComposition(
        machine,
        [arc[2] for arc in arcs],
        [arc[3] for arc in arcs],
        [states[state] for state in sorted(keep)],
    )


def same_bytes(x: Fst, y: Fst) -> bool:
    """Whether two machines are equal to the last bit, numbering and order of arcs included."""
    names = ("offsets", "ilabel", "olabel", "nextstate", "weight", "final")
    pairs = [(getattr(x, name), getattr(y, name)) for name in names]
    return (x.start, x.semiring, x.isymbols, x.osymbols) == (
        y.start,
        y.semiring,
        y.isymbols,
        y.osymbols,
    ) and all(one.dtype == two.dtype and np.array_equal(one, two) for one, two in pairs)


def _times(a: Fst, x: Any, y: Any) -> Any:
    return x + y if a.semiring.is_negative_log else x * y


def _reaching_a_final(arcs: list[tuple[int, int, int, int]], finals: list[int]) -> set[int]:
    entering: dict[int, list[int]] = {}
    for source, target, _, _ in arcs:
        entering.setdefault(target, []).append(source)
    found, waiting = set(finals), list(finals)
    while waiting:
        new = [s for s in entering.get(waiting.pop(), ()) if s not in found]
        found.update(new)
        waiting += new
    return found
