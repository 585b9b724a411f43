"""What search, sampling and mass see of a query: an automaton over token ids, unfolded when needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
Arcs = tuple[I32, I32]
"""Tokens, ascending, and the states that they lead to."""

MOST_KEPT_ARCS = 1 << 25
"""That one automaton keeps, at 8 bytes each; beyond, those asked for longest ago are made again."""


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


class ArcCache:
    """The arcs of the states asked for last, up to a number of arcs in all."""

    def __init__(self, most: int = MOST_KEPT_ARCS) -> None:
        self.most = most
        self._rows: OrderedDict[int, Arcs] = OrderedDict()
        self._number = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, state: int) -> Arcs | None:
        """The arcs of a state, if they are kept."""
        found = self._rows.get(state)
        if found is not None:
            self._rows.move_to_end(state)
        return found

    def keep(self, state: int, arcs: Arcs) -> Arcs:
        """Keep the arcs of a state, which are returned; others may have to go."""
        self._rows[state] = arcs
        self._number += len(arcs[0])
        while self._number > self.most and len(self._rows) > 1:
            _, (tokens, _) = self._rows.popitem(last=False)
            self._number -= len(tokens)
        return arcs
