"""The search for the states of a composition, and the arrays it fills."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition.filters import (
    FilterName,
    transitions,
)
from holdfast.automata.composition.matching import Side, sides
from holdfast.automata.composition.memory import available_bytes, refuse_memory
from holdfast.automata.fst import I32, I64, Fst, Weights
from holdfast.errors import LimitError

# A table with a place for every pair of states is used up to this many bytes, and up to this share of
# the memory allowed; beyond it, states are hashed.
DENSE_BYTES = 2 << 30
DENSE_SHARE = 8
# A hash table is at most this full.
LOAD = 0.5
FIRST_SLOTS = 1 << 16
# Keys hold a state of A, one of B and one of the filter in 64 bits.
MOST_STATES = 1 << 30


class Arcs(NamedTuple):
    """Arrays of arcs of the result, as long as there might be arcs; memory is taken as they are written."""

    ilabel: I32
    olabel: I32
    nextstate: I32
    weight: Weights
    from_a: npt.NDArray[Any]
    """The arc of A, -1 for none; empty if nobody asked."""
    from_b: npt.NDArray[Any]


class Table(NamedTuple):
    """State of the composition -> its number: `dense`, or if that is empty, `slots`."""

    dense: I32
    """[V of A * V of B * filter states] one more than the number; 0 if it has none."""
    states_b: int
    filters: int
    slots: I64
    """[slots * 2] key and number by turns, open addressing; key -1 where none is."""


class Exploration(NamedTuple):
    """What a search found."""

    states: int
    offsets: I64
    """[states + 1]"""
    arcs: Arcs
    final: Weights
    """[states]"""


def explored(
    a: Fst,
    b: Fst,
    filter: FilterName,
    threads: int,
    *,
    mapped: bool,
    max_states: int | None,
    memory_bytes: int | None,
    dense_bytes: int = DENSE_BYTES,
) -> Exploration:
    """All states of the composition that the start reaches, numbered breadth first, and their arcs."""
    memory = available_bytes() if memory_bytes is None else memory_bytes
    moves = transitions(filter)
    left, right, buckets = sides(a, b, mapped)
    pairs = a.num_states * b.num_states * moves.shape[2]
    most_states = min(pairs, 2**31 - 1, memory // 16 + 1)
    most_arcs = memory // 16 + 1
    arcs = _room(most_arcs, left, right, mapped)
    keys = np.empty(most_states + 1, np.int64)
    offsets = np.empty(most_states + 2, np.int64)
    table = _table(pairs, b.num_states, moves.shape[2], min(dense_bytes, memory // DENSE_SHARE))
    offsets[0] = 0
    flat = np.zeros((3, 3, 4, 4), np.int8)
    flat[:, :, : moves.shape[2]] = moves
    flat = flat.reshape(-1)
    exact = buckets.shift == 0
    code = a.semiring.code
    done = known = 0
    if a.num_states and b.num_states:
        start = np.array([a.start << kernels.A_SHIFT | b.start << kernels.F_BITS], np.int64)
        known, _ = kernels.number(table, start, 1, keys, 0, 1, np.empty(1, np.int32), 0)
    while True:
        limit = most_states if max_states is None else min(most_states, max_states)
        if not len(table.dense):
            limit = min(limit, int(LOAD * (len(table.slots) // 2)))
        why, done, known = kernels.explore(
            left,
            right,
            exact,
            flat,
            code,
            table,
            keys,
            done,
            known,
            limit,
            most_arcs,
            offsets,
            arcs,
        )
        if why == kernels.DONE:
            break
        if max_states is not None and known >= max_states:
            raise LimitError(
                "the composition has too many states",
                needed=f"more than {known} states",
                allowed=f"{max_states} states",
                remedy="raise max_states, compose lazily or with a beam",
            )
        if why == kernels.FULL_STATES and known < most_states:
            table = table._replace(slots=kernels.rehashed(table.slots))
            continue
        used = sum(array[:1].nbytes for array in arcs) * int(offsets[done]) + 20 * known
        raise refuse_memory(used, memory, f"{known} states found, {done} of them expanded")
    final = kernels.final_weights(left, right, code, keys, known, a.semiring.zero)
    return Exploration(
        known, offsets[: known + 1], Arcs(*(x[: offsets[known]] for x in arcs)), final
    )


def _room(count: int, left: Side, right: Side, mapped: bool) -> Arcs:
    maps = count if mapped else 0
    return Arcs(
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.empty(count, left.weight.dtype),
        np.empty(maps, left.arc.dtype),
        np.empty(maps, right.arc.dtype),
    )


def _table(pairs: int, states_b: int, filters: int, budget: int) -> Table:
    if pairs * 4 <= budget:
        return Table(np.zeros(pairs, np.int32), states_b, filters, np.empty(0, np.int64))
    return Table(np.empty(0, np.int32), states_b, filters, np.full(2 * FIRST_SLOTS, -1, np.int64))
