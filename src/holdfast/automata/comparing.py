"""`first_difference`: where two machines are not the same, state by state and arc by arc."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import Fst, Weights

DELTA = 1 / 1024


def first_difference(a: Fst, b: Fst, delta: float = DELTA, *, symbols: bool = False) -> str | None:
    """What differs first between two machines, or None if nothing does.

    Numbers of states and the order of arcs count, as in OpenFST's `fstequal`; `isomorphic` and `equivalent`
    ask for less.

    Args:
        a: a machine.
        b: another.
        delta: weights this close are the same.
        symbols: compare the symbol tables too.

    Returns:
        A phrase such as "arc 3 of state 7: ilabel 4 and 5".
    """
    for name, left, right in (
        ("semiring", a.semiring.name, b.semiring.name),
        ("number of states", a.num_states, b.num_states),
        ("start", a.start, b.start),
        ("number of arcs", a.num_arcs, b.num_arcs),
    ):
        if left != right:
            return f"{name}: {left} and {right}"
    differs = a.offsets != b.offsets
    if differs.any():
        state = int(np.argmax(differs)) - 1
        counts = [int(f.offsets[state + 1] - f.offsets[state]) for f in (a, b)]
        return f"number of arcs of state {state}: {counts[0]} and {counts[1]}"
    where = _apart(a.final, b.final, delta)
    if where.any():
        state = int(np.argmax(where))
        return f"final weight of state {state}: {a.final[state]} and {b.final[state]}"
    for name, left_values, right_values, where in (
        ("ilabel", a.ilabel, b.ilabel, a.ilabel != b.ilabel),
        ("olabel", a.olabel, b.olabel, a.olabel != b.olabel),
        ("destination", a.nextstate, b.nextstate, a.nextstate != b.nextstate),
        ("weight", a.weight, b.weight, _apart(a.weight, b.weight, delta)),
    ):
        if where.any():
            arc = int(np.argmax(where))
            state = int(np.searchsorted(a.offsets, arc, "right")) - 1
            nth = arc - int(a.offsets[state])
            return f"arc {nth} of state {state}: {name} {left_values[arc]} and {right_values[arc]}"
    if symbols:
        for name, one, other in (
            ("input", a.isymbols, b.isymbols),
            ("output", a.osymbols, b.osymbols),
        ):
            if one != other:
                return f"tables of {name} symbols"
    return None


def _apart(left: Weights, right: Weights, delta: float) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        close = np.abs(left.astype(np.float64) - right) <= delta
    apart: npt.NDArray[np.bool_] = ~(close | (left == right))
    return apart
