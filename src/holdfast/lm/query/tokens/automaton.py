"""What search, sampling and mass see of a query: an automaton over token ids, unfolded when needed."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]


class TokenAutomaton(Protocol):
    """Deterministic over tokens; from every state acceptance can be reached."""

    @property
    def start(self) -> int:
        """The state in front of the first token; -1 when no token sequence spells a text."""
        ...

    def arcs(self, state: int) -> tuple[I32, I32]:
        """(tokens, next states) that leave a state, by rising token id; kept, so asking again is cheap."""
        ...

    def is_final(self, state: int) -> bool:
        """Whether a text of the language may end here."""
        ...
