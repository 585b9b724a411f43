"""The table from a state of the composition to its number: dense where that pays, else hashed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.automata.fst import I32, I64

# A table with a place for every state there could be is used up to this many bytes, and up to this share
# of the memory allowed, once it has no more places than this for each state known (or is small).
DENSE_BYTES = 2 << 30
DENSE_SHARE = 8
SPARSEST = 64
SMALL_PLACES = 1 << 18


class Table(NamedTuple):
    """State of the composition -> its number: `dense`, or if that is empty, `slots`."""

    dense: I32
    """[V of A * V of B * filter states] one more than the number; 0 if it has none."""
    states_b: int
    filters: int
    slots: I64
    """[slots * 2] key and number by turns, see `_kernels`; key -1 where none is."""
    most: int
    """How many states fit."""

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.dense.nbytes + self.slots.nbytes


def table_for(
    states_b: int, filters: int, places: int, known: int, entries: int, memory: int
) -> Table:
    """An empty table.

    Args:
        states_b: the most states of a machine B.
        filters: reachable states of the filter.
        places: how many states there could be.
        known: how many there are already.
        entries: how many must fit.
        memory: bytes that the composition may take.
    """
    fits = 4 * places <= min(DENSE_BYTES, memory // DENSE_SHARE)
    if fits and places <= max(SPARSEST * known, SMALL_PLACES):
        # Every state has its place.
        dense, no_slots = np.zeros(places, np.int32), np.empty(0, np.int64)
        return Table(dense, states_b, filters, no_slots, np.iinfo(np.int64).max)
    slots = 1 << (2 * entries - 1).bit_length()
    none = np.empty(0, np.int32)
    return Table(none, states_b, filters, np.full(2 * slots, -1, np.int64), slots // 2)
