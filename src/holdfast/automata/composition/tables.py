"""The table from a state of the composition to its number: dense where that pays, else hashed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.fst import I32, I64

# A table with a place for every state there could be is used up to this many bytes, and up to this share
# of the memory allowed, once it has no more places than this for each state known (or is small).
DENSE_BYTES = 2 << 30
DENSE_SHARE = 8
SPARSEST = 64
SMALL_PLACES = 1 << 18
FIRST_SLOTS = 1 << 12


class Table(NamedTuple):
    """State of the composition -> its number: `dense`, or if that is empty, `slots`."""

    dense: I32
    """[V of A * V of B * filter states] one more than the number; 0 if it has none."""
    states_b: int
    filters: int
    slots: I64
    """[slots * 2] key and number by turns, see `_kernels`; key -1 where none is."""

    @property
    def most_states(self) -> int:
        """How many states fit."""
        return len(self.dense) or len(self.slots) // 4

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.dense.nbytes + self.slots.nbytes


def first_table(states_b: int, filters: int) -> Table:
    """A small empty table."""
    return Table(np.empty(0, np.int32), states_b, filters, _slots(FIRST_SLOTS))


def wider_table(
    table: Table, places: int, keys: I64, known: int, wanted: int, memory: int
) -> Table:
    """A table that holds the known states and has room for more.

    Args:
        table: the table until now, a hashed one.
        places: how many states there could be.
        keys: [known] the states.
        known: their number.
        wanted: how many must fit.
        memory: bytes that the composition may take.
    """
    fits = 4 * places <= min(DENSE_BYTES, memory // DENSE_SHARE)
    if fits and places <= max(SPARSEST * known, SMALL_PLACES):
        made = table._replace(dense=np.zeros(places, np.int32), slots=np.empty(0, np.int64))
    else:
        size = len(table.slots) // 2
        while size // 2 < max(wanted, known + 1):
            size *= 2
        made = table._replace(slots=_slots(size))
    kernels.enter(made, keys, known)
    return made


def _slots(count: int) -> I64:
    return np.full(2 * count, -1, np.int64)
