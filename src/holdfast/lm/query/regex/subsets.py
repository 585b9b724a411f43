"""Deterministic automata over the symbols of an alphabet, and the subset construction that makes them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.errors import LimitError
from holdfast.lm.query.regex import _kernels as kernels
from holdfast.lm.query.regex.dfa import DEAD

MOST_STATES = 1 << 20
MOST_CELLS = 1 << 28
"""Entries of a transition table: 1 GiB."""


@dataclass(frozen=True, eq=False)
class CharacterDfa:
    """A deterministic automaton over symbols that stand for sets of characters; state 0 is the start."""

    table: npt.NDArray[np.int32]
    """[states, symbols] the state that follows, or -1."""
    final: npt.NDArray[np.bool_]
    """[states]"""

    def minimal(self) -> CharacterDfa:
        """The smallest automaton of the same language, its states numbered breadth-first."""
        return CharacterDfa(*kernels.minimal(self.table, self.final, False))

    def complement(self) -> CharacterDfa:
        """The texts that this one does not accept."""
        states = len(self.final)
        table = np.vstack([self.table, np.full((1, self.table.shape[1]), DEAD, np.int32)])
        table[table == DEAD] = states
        return CharacterDfa(table, ~np.append(self.final, False)).minimal()

    def meet(self, other: CharacterDfa) -> CharacterDfa:
        """The texts that both accept."""
        check_room(len(self.final) * len(other.final), 1)
        if not len(self.final) or not len(other.final):
            return CharacterDfa(self.table[:0], self.final[:0])
        table, left, right = kernels.product(self.table, other.table, False, False)
        return CharacterDfa(table, self.final[left] & other.final[right]).minimal()


def check_room(states: int, symbols: int) -> None:
    """Refuse what would not fit.

    Raises:
        LimitError: if there are too many states, or entries of their table.
    """
    if states * symbols > MOST_CELLS:
        raise LimitError(
            "regular expression: the table of its automaton becomes too large",
            needed=f"at least {states * symbols:,} entries",
            allowed=f"{MOST_CELLS:,} entries",
            remedy="repeat less; fewer edits, fewer parts joined by &",
        )


State = TypeVar("State", bound=Hashable)


def subset_automaton(
    start: State,
    moves: Callable[[State], Iterable[tuple[int, State]]],
    final: Callable[[State], bool],
    symbols: int,
) -> CharacterDfa:
    """The automaton of what is reached from a start, explored breadth-first, and made minimal.

    Args:
        start: any value that tells the state.
        moves: symbols, and what each leads to; those left out lead to nothing.
        final: whether a text may end there.
        symbols: how many.

    Raises:
        LimitError: if there are more than 2^20 states.
    """
    numbers: dict[State, int] = {start: 0}
    nowhere = [DEAD] * symbols
    queue = [start]
    rows: list[list[int]] = []
    for state in queue:
        row = nowhere.copy()
        for symbol, target in moves(state):
            number = numbers.get(target)
            if number is None:
                number = len(queue)
                numbers[target] = number
                queue.append(target)
            row[symbol] = number
        rows.append(row)
        if len(queue) > MOST_STATES:
            raise LimitError(
                "regular expression: it becomes too large an automaton",
                needed=f"more than {MOST_STATES:,} states",
                allowed=f"{MOST_STATES:,} states",
                remedy="repeat less after a choice that stays open, as in (a|b)*a(a|b){20}",
            )
    check_room(len(rows), symbols)
    table = np.array(rows, np.int32).reshape(len(rows), symbols)
    ends = np.fromiter(map(final, queue), np.bool_, len(queue))
    return CharacterDfa(table, ends).minimal()
