"""Epsilon filters: which of several equal paths through a composition is kept.

A pair of paths whose inner labels are `x eps` and `eps x` can be matched in several orders. Each order is a
separate path in the composition; a filter lets exactly one through. Only the tropical semiring gives the
same result without one. The states of a composition are (a, b, f), where f is the state of the filter.

Names, states and transitions are those of OpenFST's filters, so trimmed compositions have as many states
and arcs (Allauzen, Riley, Schalkwyk, Skut, Mohri, "OpenFst", 2007; for the filter called match: Mohri,
Pereira, Riley, "Weighted automata in text and speech processing", 1996).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.automata.arguments import invalid

FilterName = Literal["auto", "sequence", "alt_sequence", "match", "trivial", "null"]

# A move of a state of the composition.
A_ALONE = 0  # an arc of A with olabel 0; B stays
B_ALONE = 1  # an arc of B with ilabel 0; A stays
BOTH_EPSILON = 2  # an arc of A with olabel 0 and one of B with ilabel 0, at once
MATCH = 3  # arcs with the same label, not 0
MOVES = 4

BLOCKED = -1

# What a state of A tells of its output labels, and a state of B of its input labels.
SOME, NONE, ONLY = 0, 1, 2  # some epsilon arcs; none; no others, and the state is not final
KINDS = 3


def kinds(
    offsets: npt.NDArray[np.int64],
    epsilons: npt.NDArray[np.int32],
    final: npt.NDArray[np.floating],
    zero: float,
) -> npt.NDArray[np.int8]:
    """[V] SOME, NONE or ONLY, from the number of epsilon arcs on the matched side of each state."""
    kind = np.full(len(epsilons), SOME, np.int8)
    kind[epsilons == 0] = NONE
    kind[(epsilons == np.diff(offsets)) & (final == zero)] = ONLY  # a dead end is left at once
    return kind


def transitions(name: FilterName) -> npt.NDArray[np.int8]:
    """The filter as a table: [KINDS of a, KINDS of b, filter states, MOVES] -> filter state or BLOCKED.

    State 0 is the filter's start. A composition's state is final whatever f is.

    Raises:
        InputError: if no filter has that name.
    """
    if name == "auto":
        name = "sequence"
    if name in ("trivial", "null"):
        table = np.zeros((KINDS, KINDS, 1, MOVES), np.int8)
        if name == "null":  # epsilon is a symbol like another
            table[..., [A_ALONE, B_ALONE]] = BLOCKED
        return table
    if name in ("sequence", "alt_sequence"):
        # Sequence: first all arcs of A alone, then those of B; alt_sequence: the other way round.
        table = np.zeros((KINDS, KINDS, 2, MOVES), np.int8)
        table[..., BOTH_EPSILON] = BLOCKED
        first, then = (A_ALONE, B_ALONE) if name == "sequence" else (B_ALONE, A_ALONE)
        table[:, :, 1, first] = BLOCKED
        # The kind of the state whose epsilons must come first decides what must be remembered.
        for kind, target in ((SOME, 1), (NONE, 0), (ONLY, BLOCKED)):
            decides = table[kind] if name == "sequence" else table[:, kind]
            decides[..., then] = target
        return table
    if name == "match":
        # Epsilons are matched with each other as long as both sides have them.
        table = np.full((KINDS, KINDS, 3, MOVES), BLOCKED, np.int8)
        table[..., MATCH] = 0
        table[:, :, 0, BOTH_EPSILON] = 0
        table[:, :, 1, A_ALONE] = 1
        table[:, :, 2, B_ALONE] = 2
        for kind, a_alone, b_alone in ((SOME, 1, 2), (NONE, 0, 0), (ONLY, BLOCKED, BLOCKED)):
            table[:, kind, 0, A_ALONE] = a_alone
            table[kind, :, 0, B_ALONE] = b_alone
        return table
    expected = "auto, sequence, alt_sequence, match, trivial or null"
    raise invalid("filter", repr(name), expected, code="unknown-name")
