"""The algebra of languages: every result is again minimal and in canonical form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex import _kernels as kernels
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa, canonical
from holdfast.lm.query.regex.editing import edited
from holdfast.lm.query.regex.listing import count_strings, is_finite, strings
from holdfast.lm.query.regex.parsing import parse
from holdfast.lm.query.regex.subsets import check_room, subset_automaton

NOTHING = ByteDfa(np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_))
"""The empty language."""


def literal(text: bytes) -> ByteDfa:
    """The language of one string."""
    table = np.full((len(text) + 1, 256), DEAD, np.int32)
    for state, byte in enumerate(text):
        table[state, byte] = state + 1
    final = np.zeros(len(text) + 1, np.bool_)
    final[-1] = True
    return canonical(np.arange(256), table, final)


def is_prefix_free(language: ByteDfa) -> bool:
    """Whether no text of the language starts with another."""
    return not (language.next[language.final] != DEAD).any()


def difference(one: ByteDfa, other: ByteDfa) -> ByteDfa:
    """The strings of the first language that are not in the other."""
    table, classes, left, right = _side_by_side(one, other, keep_one=True, keep_other=False)
    return canonical(classes, table, _ends(one, left) & ~_ends(other, right))


def intersection(one: ByteDfa, other: ByteDfa) -> ByteDfa:
    """The strings of both languages."""
    if one.is_empty or other.is_empty:
        return NOTHING
    table, classes, left, right = _side_by_side(one, other, keep_one=False, keep_other=False)
    return canonical(classes, table, _ends(one, left) & _ends(other, right))


def union(one: ByteDfa, other: ByteDfa) -> ByteDfa:
    """The strings of either language."""
    table, classes, left, right = _side_by_side(one, other, keep_one=True, keep_other=True)
    return canonical(classes, table, _ends(one, left) | _ends(other, right))


def concatenated(one: ByteDfa, other: ByteDfa) -> ByteDfa:
    """A string of the first language, then one of the other."""
    if one.is_empty or other.is_empty:
        return NOTHING
    classes, columns, others = _common_classes(one, other)
    first = one.next[:, columns].tolist()
    steps = [
        [0 if target == DEAD else 1 << target for target in row]
        for row in other.next[:, others].tolist()
    ]
    ends = one.final.tolist()
    last = sum(1 << state for state, final in enumerate(other.final.tolist()) if final)

    # A state: where the first language stands, and the set of places where the other may, as bits.
    Pair = tuple[int, int]

    def moves(pair: Pair) -> list[tuple[int, Pair]]:
        out = []
        row = first[pair[0]] if pair[0] != DEAD else [DEAD] * len(columns)
        reached = [0] * len(columns)
        rest = pair[1]
        while rest:
            low = rest & -rest
            reached = [a | b for a, b in zip(reached, steps[low.bit_length() - 1], strict=True)]
            rest ^= low
        for symbol, (state, places) in enumerate(zip(row, reached, strict=True)):
            if state != DEAD and ends[state]:
                places |= 1
            if state != DEAD or places:
                out.append((symbol, (state, places)))
        return out

    made = subset_automaton(
        (0, int(ends[0])), moves, lambda pair: pair[1] & last != 0, len(columns)
    )
    return canonical(classes, made.table, made.final)


def followed_by_anything(dfa: ByteDfa) -> ByteDfa:
    """Byte strings that start with a string of the language; the accepting state is never left."""
    if dfa.is_empty:
        return dfa
    table = dfa.next.copy()
    ends = np.flatnonzero(dfa.final)
    table[ends] = ends[:, None]
    return canonical(dfa.classes.astype(np.int64), table, dfa.final)


def after(dfa: ByteDfa, text: bytes) -> ByteDfa:
    """What may follow `text` in strings of the language: {rest : text + rest is in it}."""
    state = DEAD if dfa.is_empty else dfa.step(0, text)
    if state == DEAD:
        return NOTHING
    # The new start becomes state 0, and the old one takes its number.
    order = np.arange(dfa.num_states)
    order[[0, state]] = order[[state, 0]]
    renamed = np.append(order, DEAD).astype(np.int32)  # an exchange is its own inverse; -1 stays
    return canonical(dfa.classes.astype(np.int64), renamed[dfa.next[order]], dfa.final[order])


def with_lead(dfa: ByteDfa, lead: bytes) -> ByteDfa:
    """Byte strings that are in the language once `lead`, where they start with it, is taken off."""
    if not lead:
        return dfa
    start = literal(lead)
    return union(concatenated(start, dfa), difference(dfa, followed_by_anything(start)))


def writes_a_space(pattern: str) -> bool:
    r"""Whether a regular expression names the space: as a character, in ``\x20``, or in a class.

    ``.``, ``\s`` and what is negated may match a space, but do not name it.
    """
    return parse(pattern).names_space


def _ends(dfa: ByteDfa, states: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Whether each state is final; -1 is not."""
    return np.append(dfa.final, False)[states]


def _common_classes(
    one: ByteDfa, other: ByteDfa
) -> tuple[npt.NDArray[np.int64], list[int], list[int]]:
    """Classes that both automata respect: [256], and the class of either for each."""
    pairs: dict[tuple[int, int], int] = {}
    classes = [
        pairs.setdefault(pair, len(pairs))
        for pair in zip(one.classes.tolist(), other.classes.tolist(), strict=True)
    ]
    return np.array(classes), [left for left, _ in pairs], [right for _, right in pairs]


def _side_by_side(
    one: ByteDfa, other: ByteDfa, *, keep_one: bool, keep_other: bool
) -> tuple[
    npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]
]:  # fmt: skip
    """Pairs of states: their table, its classes, and the state of either automaton."""
    classes, columns, others = _common_classes(one, other)
    check_room((one.num_states + 1) * (other.num_states + 1), 1)
    table, left, right = kernels.product(
        np.ascontiguousarray(one.next[:, columns]),
        np.ascontiguousarray(other.next[:, others]),
        keep_one,
        keep_other,
    )
    return table, classes, left, right


__all__ = [
    "NOTHING",
    "after",
    "concatenated",
    "count_strings",
    "difference",
    "edited",
    "followed_by_anything",
    "intersection",
    "is_finite",
    "literal",
    "strings",
    "union",
    "with_lead",
    "writes_a_space",
]
