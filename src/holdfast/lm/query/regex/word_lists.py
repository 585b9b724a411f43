"""Long lists of words as automata: a trie, whose equal endings are then merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.lm.query.regex.dfa import DEAD
from holdfast.lm.query.regex.positions import bits
from holdfast.lm.query.regex.subsets import CharacterDfa, check_room
from holdfast.lm.query.regex.syntax import Node, Text

FEWEST_WORDS = 32
"""Shorter lists are made of positions, as all else is."""


def word_list(
    branches: Sequence[Node], symbols_of: Sequence[int], symbols: int
) -> CharacterDfa | None:
    """The minimal automaton of a choice between words; None if it is something else.

    Args:
        branches: of the choice.
        symbols_of: [sets] the symbols of each set, as bits.
        symbols: how many.
    """
    if len(branches) < FEWEST_WORDS or not all(isinstance(branch, Text) for branch in branches):
        return None
    used = sorted(
        {number for branch in branches if isinstance(branch, Text) for number in branch.sets}
    )
    taken = 0
    for number in used:
        if taken & symbols_of[number]:
            return None  # two sets share a character: a trie would not be deterministic
        taken |= symbols_of[number]
    children: dict[tuple[int, int], int] = {}
    ends = set()
    for branch in branches:
        assert isinstance(branch, Text)
        state = 0
        for number in branch.sets:
            state = children.setdefault((state, number), len(children) + 1)
        ends.add(state)
    states = len(children) + 1
    check_room(states, symbols)
    table = np.full((states, symbols), DEAD, np.int32)
    read = {number: bits(symbols_of[number]) for number in used}
    for (state, number), child in children.items():
        table[state, read[number]] = child
    final = np.zeros(states, np.bool_)
    final[list(ends)] = True
    return CharacterDfa(table, final).minimal()
