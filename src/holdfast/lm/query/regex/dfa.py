"""The deterministic automaton over bytes that a regular expression becomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
