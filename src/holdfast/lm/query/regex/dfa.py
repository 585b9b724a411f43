"""The deterministic automaton over bytes that a regular expression becomes, and its one form.

Equal languages have equal arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex import _kernels as kernels

DEAD = -1


@dataclass(frozen=True, eq=False)
class ByteDfa:
    """A deterministic automaton over bytes: trimmed (every state leads to acceptance) and minimal.

    State 0 is the start; an automaton without states has the empty language. States are numbered breadth
    first by class, classes by their lowest byte, so that equal languages have equal arrays.
    """

    classes: npt.NDArray[np.uint8]
    """[256] class of every byte; bytes of one class are equivalent."""
    next: npt.NDArray[np.int32]
    """[states, classes] the next state, or -1 if no text of the language continues so."""
    final: npt.NDArray[np.bool_]
    """[states] whether the text may end here."""

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final)

    @property
    def is_empty(self) -> bool:
        """Whether no string belongs to the language."""
        return self.num_states == 0

    def same_language(self, other: ByteDfa) -> bool:
        """Whether both have the same strings: of what this package makes, the arrays are then equal."""
        return (
            np.array_equal(self.classes, other.classes)
            and np.array_equal(self.next, other.next)
            and np.array_equal(self.final, other.final)
        )

    def step(self, state: int, text: bytes) -> int:
        """The state after `text`, or -1."""
        for byte in text:
            if state == DEAD:
                return DEAD
            state = int(self.next[state, self.classes[byte]])
        return state

    def accepts(self, text: bytes | str) -> bool:
        """Whether the whole text belongs to the language."""
        if self.is_empty:
            return False
        state = self.step(0, text.encode() if isinstance(text, str) else text)
        return state != DEAD and bool(self.final[state])


def canonical(
    classes: npt.NDArray[np.int64],
    table: npt.NDArray[np.int32],
    final: npt.NDArray[np.bool_],
    parted: bool = False,
) -> ByteDfa:
    """The minimal automaton; bytes are parted only as the language does, and all is in order of bytes.

    Args:
        classes: [256] a number for each byte, of a column of the table.
        table: [states, columns] the state that follows, or -1; state 0 is the start.
        final: [states].
        parted: it is known that no two states are alike.
    """
    # Columns in the order of their first bytes, so that states are numbered by the same order.
    first_bytes: dict[int, int] = {}
    numbers = [first_bytes.setdefault(number, len(first_bytes)) for number in classes.tolist()]
    small, ends = kernels.minimal(np.ascontiguousarray(table[:, list(first_bytes)]), final, parted)
    if not len(ends):
        return ByteDfa(np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_))
    seen: dict[bytes, int] = {}
    merged = [
        seen.setdefault(column.tobytes(), len(seen)) for column in np.ascontiguousarray(small.T)
    ]
    kept: list[int] = []
    for column, number in enumerate(merged):
        if number == len(kept):
            kept.append(column)
    return ByteDfa(
        np.array([merged[number] for number in numbers], np.uint8),
        small if len(kept) == small.shape[1] else np.ascontiguousarray(small[:, kept]),
        ends,
    )
