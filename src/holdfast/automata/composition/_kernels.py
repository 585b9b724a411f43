"""The compiled search: arcs are expanded, the states that they enter numbered, and what is found trimmed.

The table of states is `dense`, with one place for every (a, b, f), or if that is empty, `slots`: open
addressing. The join before these steps is in `joining`, the trimming after them in `compacting`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.composition.compacting import finish
from holdfast.automata.composition.joining import A_SHIFT, B_MASK, F_BITS, F_MASK, ONE, join
from holdfast.automata.semirings import LOG
from holdfast.automata.simplifying._kernels import mixed

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


class Arcs(NamedTuple):
    """Arcs of the results, with room for more; memory is taken as they are written."""

    ilabel: Any
    """i32[E]"""
    olabel: Any
    """i32[E]"""
    nextstate: Any
    """i32[E]"""
    weight: Any
    """[E] of the semiring's dtype."""
    from_a: Any
    """[E] the arc of A, -1 for none; empty if nobody asked."""
    from_b: Any
    """[E] the arc of B, likewise."""


@compiled
def arcs_from(arcs: Any, first: int) -> Any:
    """The same arrays from an arc on."""
    return Arcs(
        arcs.ilabel[first:],
        arcs.olabel[first:],
        arcs.nextstate[first:],
        arcs.weight[first:],
        arcs.from_a[first:],
        arcs.from_b[first:],
    )


@compiled
def expand(
    a: Any, b: Any, code: int, segments: Any, row: int, end: int, first: int, out: Any, targets: Any
) -> None:
    """Write out the arcs of segments from arc `first` on, and the keys of the states that they enter.

    Most products are of one or two arcs: two at a time are written, if need be past the end of a row, so
    that the processor need not guess. Positions are unsigned, so that Numba need not ask whether they count
    from the end.
    """
    adds = code <= LOG
    base = np.uint64(first)
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
                    to = base + here
                    out.ilabel[to] = ilabel
                    out.olabel[to] = b.outer[one]
                    factor = b.weight[one]
                    out.weight[to] = weight + factor if adds else weight * factor
                    targets[here] = target | np.int64(b.nextstate[one]) << F_BITS
                right += np.uint64(STEP)
                slot += np.uint64(STEP)
                if slot >= stop:
                    break
            slot = stop
            left += ONE
            if left >= last:
                break


@compiled
def trace(a: Any, b: Any, segments: Any, row: int, end: int, first: int, out: Any) -> None:
    """Write down which arcs of A and of B the arcs of segments come from."""
    slot = first
    for at in range(row, end):
        for left in range(segments[at, 0], segments[at, 0] + segments[at, 2]):
            for right in range(segments[at, 1], segments[at, 1] + segments[at, 3]):
                out.from_a[slot] = a.arc[left]
                out.from_b[slot] = b.arc[right]
                slot += 1


@compiled
def place_of(table: Any, base: int, key: int) -> int:
    """The place of a key in a dense table; `base` is that of the first states of both machines."""
    pair = (key >> A_SHIFT) * table.states_b + ((key >> F_BITS) & B_MASK)
    return pair * table.filters + (key & F_MASK) - base


@compiled
def slot_of(slots: Any, key: Any) -> Any:
    """Where a key stands in a table of keys and numbers by turns, or would: open addressing."""
    wrap = np.uint64(len(slots) // 2 - 1)
    slot = mixed(key) & wrap
    while slots[np.uint64(2) * slot] != key and slots[np.uint64(2) * slot] >= 0:
        slot = (slot + ONE) & wrap
    return 2 * np.int64(slot)


@compiled
def enter(table: Any, base: int, keys: Any, count: int) -> None:
    """Put the first `count` keys and their numbers into an empty table."""
    for state in range(count):
        if len(table.dense):
            table.dense[place_of(table, base, keys[state])] = state + 1
        else:
            slot = slot_of(table.slots, keys[state])
            table.slots[slot] = keys[state]
            table.slots[slot + 1] = state


@compiled
def clear(table: Any, base: int, keys: Any, count: int) -> None:
    """Take the first `count` keys out of a table that holds no others."""
    # The last first: no key that is still there was entered past a slot that is freed.
    for state in range(count - 1, -1, -1):
        if len(table.dense):
            table.dense[place_of(table, base, keys[state])] = 0
        else:
            table.slots[slot_of(table.slots, keys[state])] = -1


@compiled
def number(
    table: Any, base: int, targets: Any, count: int, keys: Any, known: int, states: Any, at: int
) -> int:
    """Number targets in order of first occurrence, into states[at:]: how many states are known then.

    The keys and the table have room for `count` states more.
    """
    if len(table.dense):
        for slot in range(count):
            key = targets[slot]
            place = np.uint64(place_of(table, base, key))
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
        if table.slots[at_key] < 0:
            table.slots[at_key] = key
            table.slots[at_key + 1] = known
            keys[known] = key
            known += 1
        states[at + slot] = table.slots[at_key + 1]
    return known


@compiled
def explore(
    a: Any,
    b: Any,
    plan: Any,
    connect: bool,
    table: Any,
    keys: Any,
    starts: Any,
    bases: Any,
    rows: Any,
    firsts: Any,
    begun: int,
    done: int,
    known: int,
    most: int,
    most_rows: int,
    most_arcs: int,
    offsets: Any,
    final: Any,
    out: Any,
) -> tuple[int, int, int, int]:
    """Make the machine of each start, one after the other, until all are made or a limit is met.

    States are numbered from 0 in each machine. Machine k has the offsets rows[k]:rows[k + 1], which count
    from its first arc, firsts[k], the final weights from rows[k] on (the last row is spare), and a dense
    table from place bases[k] on. A start of -1 is none. A machine is trimmed before the next one begins,
    while the processor's caches hold it.

    Args:
        a: the side of A.
        b: the side of B.
        plan: how they match.
        connect: whether to trim.
        table: of the states of the machine in the making.
        keys: [known] of them, with room for more.
        starts: i64[machines] keys.
        bases: i64[machines]
        rows: i64[machines + 1], continued.
        firsts: i64[machines + 1], continued.
        begun: how many machines are made.
        done: how many states of the one in the making are expanded.
        known: how many have been found.
        most: how many may be found.
        most_rows: rows that there is room for.
        most_arcs: arcs that there is room for.
        offsets: i64[rows]
        final: [rows]
        out: the arcs.

    Returns:
        Why it came back; `begun`, `done` and `known`.
    """
    segments = np.empty((max(plan.longest, BATCH_SEGMENTS), 5), a.span.dtype)
    targets = np.empty(BATCH_ARCS + STEP, np.int64)
    first = np.empty(1, np.int32)
    while begun < len(starts):
        base = bases[begun]
        own = arcs_from(out, firsts[begun])
        own_offsets = offsets[rows[begun] :]
        room = most_rows - rows[begun] - 1
        if known == 0:
            if room < 1:
                return FULL_STATES, begun, done, known
            own_offsets[0] = 0
            if starts[begun] >= 0:
                known = number(table, base, starts[begun : begun + 1], 1, keys, 0, first, 0)
        while done < known:
            last = min(known, done + BATCH_STATES)
            last, count = join(
                a, b, plan.exact, plan.moves, keys, done, last, own_offsets, segments
            )
            if firsts[begun] + own_offsets[last] > most_arcs:
                return FULL_ARCS, begun, done, known
            row = 0
            at = own_offsets[done]
            while row < count:
                end, arcs = some_arcs(segments, row, count)
                if arcs + STEP > len(targets):
                    targets = np.empty(arcs + STEP, np.int64)
                expand(a, b, plan.code, segments, row, end, at, own, targets)
                if len(own.from_a):
                    trace(a, b, segments, row, end, at, own)
                row = end
                for part in range(0, arcs, BATCH_ARCS):
                    some = min(BATCH_ARCS, arcs - part)
                    # What is numbered stays so when this batch is taken again.
                    if known + some > min(room, table.most) or known > most:
                        return FULL_STATES, begun, done, known
                    known = number(
                        table, base, targets[part:], some, keys, known, own.nextstate, at + part
                    )
                at += arcs
            done = last
        if known > most:
            return FULL_STATES, begun, done, known
        own_final = final[rows[begun] :]
        states = finish(a, b, plan.code, connect, keys, known, own_offsets, own_final, own)
        if begun + 1 < len(starts):
            clear(table, base, keys, known)
        rows[begun + 1] = rows[begun] + states + 1
        firsts[begun + 1] = firsts[begun] + own_offsets[states]
        begun += 1
        done = known = 0
    return DONE, begun, done, known
