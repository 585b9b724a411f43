"""The rational operations: union, concatenation, closure.

They add epsilon arcs and keep everything else, so each takes time proportional to its result; states and
arcs are numbered as OpenFST numbers them.
"""

from __future__ import annotations

import numpy as np

from holdfast.automata.algebra.assembling import (
    agreed_tables,
    beside,
    with_epsilons,
    with_state,
)
from holdfast.automata.fst import Fst


def union(a: Fst, b: Fst) -> Fst:
    """The paths of A and those of B: a string of both has the sum of its two weights.

    The states of B follow those of A; a new start, numbered last, is needed where an arc enters the start
    of A.

    Raises:
        InputError: if semirings or symbol tables differ.
    """
    both = beside(a, b)
    if b.num_states == 0:
        return both
    start = b.start + a.num_states
    if a.num_states == 0:
        return both.with_trusted(start=start)
    one = a.semiring.one
    if not (a.nextstate == a.start).any():
        return with_epsilons(both, [a.start], start, one)
    new = both.num_states
    grown = with_state(both, a.semiring.zero).with_trusted(start=new)
    return with_epsilons(grown, [new, new], [a.start, start], one)


def concat(a: Fst, b: Fst) -> Fst:
    """Every path of A followed by every path of B, weights multiplied.

    The states of B follow those of A; an epsilon arc with its final weight leads from each final state of A
    to the start of B.

    Raises:
        InputError: if semirings or symbol tables differ.
    """
    if a.num_states == 0 or b.num_states == 0:
        isymbols, osymbols = agreed_tables(a, b)
        return Fst.empty(a.semiring, isymbols, osymbols)
    both = beside(a, b)
    ends = np.flatnonzero(a.final != a.semiring.zero)
    final = both.final.copy()
    final[: a.num_states] = a.semiring.zero
    return with_epsilons(both, ends, b.start + a.num_states, a.final[ends]).with_trusted(
        final=final
    )


def closure(f: Fst, plus: bool = False) -> Fst:
    """The paths of F any number of times: none or more, or one or more if `plus`.

    An epsilon arc with its final weight leads from each final state back to the start. Without `plus` a new
    start, numbered last, accepts the empty string with weight one.
    """
    one = f.semiring.one
    ends = np.flatnonzero(f.final != f.semiring.zero)
    looped = with_epsilons(f, ends, f.start, f.final[ends])
    if plus:
        return looped
    new = f.num_states
    grown = with_state(looped, one).with_trusted(start=new)
    return grown if new == 0 else with_epsilons(grown, [new], f.start, one)
