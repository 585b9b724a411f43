"""Compiled steps of the search: arcs are expanded, and the states that they enter numbered.

The table of states is `dense`, with one place for every (a, b, f), or if that is empty, `slots`: open
addressing. The join before these steps is in `joining`, the trimming after them in `compacting`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.composition.joining import A_SHIFT, B_MASK, F_BITS, F_MASK, ONE, join
from holdfast.automata.semirings import LOG

# Why `explore` came back.
DONE, FULL_ARCS, FULL_STATES = 0, 1, 2

# A batch is small enough for its segments and arcs to stay in the cache.
BATCH_STATES = 1024
BATCH_SEGMENTS = 4096
BATCH_ARCS = 4096
STEP = 2  # arcs are written so many at a time


@compiled
def some_arcs(segments: Any, row: int, count: int) -> tuple[int, int]:
    """A batch of segments from `row` on: (the row behind it, its arcs)."""
    arcs = 0
    while row < count and arcs < BATCH_ARCS:
        arcs += np.int64(segments[row, 2]) * segments[row, 3]
        row += 1
    return row, arcs


class Batch(NamedTuple):
    """Arcs on their way to the result."""

    ilabel: Any
    olabel: Any
    weight: Any
    targets: Any
    """Keys of the states that they enter."""
    from_a: Any
    from_b: Any


@compiled
def room_for(arcs: int, out: Any) -> Any:
    """A batch for so many arcs, and a step more."""
    count = arcs + STEP
    mapped = count if len(out.from_a) else 0
    return Batch(
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.empty(count, out.weight.dtype),
        np.empty(count, np.int64),
        np.empty(mapped, out.from_a.dtype),
        np.empty(mapped, out.from_b.dtype),
    )


@compiled
def expand(a: Any, b: Any, code: int, segments: Any, row: int, end: int, batch: Any) -> None:
    """Write out the arcs of segments, and the keys of the states that they enter, into a batch.

    Most products are of one or two arcs: two at a time are written, if need be past the end of a row, so
    that the processor need not guess. Positions are unsigned, so that Numba need not ask whether they count
    from the end.
    """
    adds = code <= LOG
    slot = np.uint64(0)
    for at in range(np.uint64(row), np.uint64(end)):
        left = np.uint64(segments[at, 0])
        last = left + np.uint64(segments[at, 2])
        begin = np.uint64(segments[at, 1])
        width = np.uint64(segments[at, 3])
        f = np.int64(segments[at, 4])
        while True:  # no segment is empty
            ilabel = a.outer[left]
            weight = a.weight[left]
            target = np.int64(a.nextstate[left]) << A_SHIFT | f
            right = begin
            stop = slot + width
            while True:
                for more in range(STEP):
                    one = right + np.uint64(more)
                    here = slot + np.uint64(more)
                    batch.ilabel[here] = ilabel
                    batch.olabel[here] = b.outer[one]
                    factor = b.weight[one]
                    batch.weight[here] = weight + factor if adds else weight * factor
                    batch.targets[here] = target | np.int64(b.nextstate[one]) << F_BITS
                right += np.uint64(STEP)
                slot += np.uint64(STEP)
                if slot >= stop:
                    break
            slot = stop
            left += ONE
            if left >= last:
                break


@compiled
def trace(a: Any, b: Any, segments: Any, row: int, end: int, batch: Any) -> None:
    """Write down which arcs of A and of B the arcs of segments come from."""
    slot = 0
    for at in range(row, end):
        for left in range(segments[at, 0], segments[at, 0] + segments[at, 2]):
            for right in range(segments[at, 1], segments[at, 1] + segments[at, 3]):
                batch.from_a[slot] = a.arc[left]
                batch.from_b[slot] = b.arc[right]
                slot += 1


@compiled
def copy(batch: Any, count: int, at: int, out: Any) -> None:
    """Copy the arcs of a batch, all but the states that they enter, to position `at`."""
    out.ilabel[at : at + count] = batch.ilabel[:count]
    out.olabel[at : at + count] = batch.olabel[:count]
    out.weight[at : at + count] = batch.weight[:count]
    if len(out.from_a):
        out.from_a[at : at + count] = batch.from_a[:count]
        out.from_b[at : at + count] = batch.from_b[:count]


@compiled
def hashed(key: int) -> Any:
    """A 62-bit hash of a key."""
    mixed = np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) >> np.uint64(2))


@compiled
def place_of(table: Any, key: int) -> int:
    """The place of a key in a dense table."""
    pair = (key >> A_SHIFT) * table.states_b + ((key >> F_BITS) & B_MASK)
    return pair * table.filters + (key & F_MASK)


@compiled
def slot_of(slots: Any, key: int) -> int:
    """Where a key stands in a table of slots, or would."""
    last = len(slots) // 2 - 1
    slot = hashed(key) & last
    while slots[2 * slot] != key and slots[2 * slot] >= 0:
        slot = (slot + 1) & last
    return slot


@compiled
def enter(table: Any, keys: Any, count: int) -> None:
    """Put the first `count` keys and their numbers into an empty table."""
    for state in range(count):
        if len(table.dense):
            table.dense[place_of(table, keys[state])] = state + 1
        else:
            slot = slot_of(table.slots, keys[state])
            table.slots[2 * slot] = keys[state]
            table.slots[2 * slot + 1] = state


@compiled
def number(
    table: Any, targets: Any, count: int, keys: Any, known: int, limit: int, states: Any, at: int
) -> int:
    """Number targets in order of first occurrence, into states[at:]: how many states are known then.

    Where that passes `limit`, the search must go back to before this batch; numbers given stay right.
    """
    if len(table.dense):
        if known + count > limit:
            return number_few(table, targets, count, keys, known, limit, states, at)
        for slot in range(count):
            key = targets[slot]
            place = np.uint64(place_of(table, key))
            state = table.dense[place]
            # Without a branch, since nobody can guess it.
            keys[known] = key
            known += state == 0
            state = np.int32(known) if state == 0 else state
            table.dense[place] = state
            states[at + slot] = state - 1
        return known
    for slot in range(count):
        key = targets[slot]
        at_key = slot_of(table.slots, key)
        if table.slots[2 * at_key] < 0:
            if known >= limit:
                return limit + 1
            table.slots[2 * at_key] = key
            table.slots[2 * at_key + 1] = known
            keys[known] = key
            known += 1
        states[at + slot] = table.slots[2 * at_key + 1]
    return known


@compiled
def number_few(
    table: Any, targets: Any, count: int, keys: Any, known: int, limit: int, states: Any, at: int
) -> int:
    """`number` with a dense table when the limit is near."""
    for slot in range(count):
        place = place_of(table, targets[slot])
        if table.dense[place] == 0:
            if known >= limit:
                return limit + 1
            keys[known] = targets[slot]
            known += 1
            table.dense[place] = known
        states[at + slot] = table.dense[place] - 1
    return known


@compiled
def explore(
    a: Any,
    b: Any,
    plan: Any,
    table: Any,
    keys: Any,
    starts: Any,
    bounds: Any,
    begun: int,
    done: int,
    known: int,
    limit: int,
    arc_limit: int,
    offsets: Any,
    out: Any,
) -> tuple[int, int, int, int]:
    """Expand what each start reaches, one start after the other, until all is done or a limit is met.

    bounds[k] is set to the number of start k; a start of -1 is none.

    Returns:
        Why it came back; how many starts were begun, how many states expanded, and how many are known.
    """
    segments = np.empty((max(plan.longest, BATCH_SEGMENTS), 5), a.span.dtype)
    batch = room_for(BATCH_ARCS, out)
    first = np.empty(1, np.int32)
    while True:
        while done == known:
            bounds[begun] = known
            if begun == len(starts):
                return DONE, begun, done, known
            if starts[begun] >= 0:
                one = starts[begun : begun + 1]
                found = number(table, one, 1, keys, known, limit, first, 0)
                if found > limit:
                    return FULL_STATES, begun, done, known
                known = found
            begun += 1
        last = min(known, done + BATCH_STATES)
        last, count = join(a, b, plan.exact, plan.moves, keys, done, last, offsets, segments)
        if offsets[last] > arc_limit:
            return FULL_ARCS, begun, done, known
        row = 0
        at = offsets[done]
        while row < count:
            end, arcs = some_arcs(segments, row, count)
            if arcs + STEP > len(batch.targets):
                batch = room_for(arcs, out)
            expand(a, b, plan.code, segments, row, end, batch)
            if len(out.from_a):
                trace(a, b, segments, row, end, batch)
            copy(batch, arcs, at, out)
            found = number(table, batch.targets, arcs, keys, known, limit, out.nextstate, at)
            if found > limit:
                return FULL_STATES, begun, done, limit
            known = found
            row = end
            at += arcs
        done = last


@compiled
def split(bounds: Any, offsets: Any, nextstate: Any) -> Any:
    """Number the states bounds[k]:bounds[k + 1] of each machine k from 0, in place.

    Returns:
        i64[V + machines] the offsets of each machine, one after the other.
    """
    machines = len(bounds) - 1
    made = np.empty(bounds[machines] + machines, np.int64)
    for k in range(machines):
        base = bounds[k]
        begin = offsets[base]
        for state in range(base, bounds[k + 1] + 1):
            made[state + k] = offsets[state] - begin
        if base:
            for arc in range(begin, offsets[bounds[k + 1]]):
                nextstate[arc] -= base
    return made
