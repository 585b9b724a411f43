"""Compiled steps of composition: index, join, write, number; then trimming.

A state of the composition is a key, a << 32 | b << 2 | f. Its table is `dense`, with one place for every
(a, b, f), or if that is empty, `slots`: open addressing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from holdfast.automata._kernels import compiled, times
from holdfast.automata.composition.filters import (
    A_ALONE,
    B_ALONE,
    BOTH_EPSILON,
    KINDS,
    MATCH,
    MOVES,
)
from holdfast.automata.semirings import LOG

# Why `explore` came back.
DONE, WIDE, FULL_ARCS, FULL_STATES = 0, 1, 2, 3

F_BITS = 2
A_SHIFT = 32
B_MASK = (1 << (A_SHIFT - F_BITS)) - 1
F_MASK = (1 << F_BITS) - 1

# A batch is small enough for its segments and arcs to stay in the cache.
BATCH_STATES = 1024
BATCH_SEGMENTS = 4096
BATCH_ARCS = 4096
STEP = 2  # arcs are written so many at a time

ONE = np.uint64(1)


def _set_bits(typing_context: Any, word: Any) -> Any:
    """How many bits of a 64-bit word are set: the processor's instruction, which Numba has no name for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


set_bits: Any = intrinsic(_set_bits)


@compiled
def index(
    offsets: Any, epsilons: Any, label: Any, shift: int, mask: Any, rank: Any, span: Any
) -> int:
    """Set masks, ranks and spans of a `Side`, from labels that ascend in a state: how many spans."""
    words = mask.shape[1]
    row = -1
    for state in range(len(epsilons)):
        last = -1
        word = -1
        for arc in range(offsets[state] + epsilons[state], offsets[state + 1]):
            bucket = (label[arc] - 1) >> shift
            if bucket >= words << 6:
                break
            if bucket != last:
                last = bucket
                row += 1
                while word < bucket >> 6:
                    word += 1
                    rank[state, word] = row
                mask[state, bucket >> 6] |= ONE << np.uint64(bucket & 63)
                span[row, 0] = arc
            span[row, 1] = arc + 1
    return row + 1


@compiled
def index_by_label(offsets: Any, label: Any, states: Any, first: Any) -> None:
    """Where the arcs of these states begin whose label is not below each: first[row, label]."""
    for row in range(len(states)):
        arc, end = offsets[states[row]], offsets[states[row] + 1]
        for wanted in range(first.shape[1]):
            while arc < end and label[arc] < wanted:
                arc += 1
            first[row, wanted] = arc


@compiled
def gather(label: Any, target: Any, cost: Any, outer: Any, nextstate: Any, weight: Any) -> None:
    """Copy three columns of arcs into their records in one pass."""
    for arc in range(len(label)):
        outer[arc] = label[arc]
        nextstate[arc] = target[arc]
        weight[arc] = cost[arc]


@compiled
def seek(label: Any, begin: int, end: int, wanted: int) -> int:
    """The first position in begin:end whose label is not below `wanted`; quick if it is near."""
    step = 1
    while begin < end and label[begin] < wanted:
        low = begin + 1
        begin += step
        step *= 2
        if begin >= end or label[begin] >= wanted:
            high = min(begin, end)
            while low < high:
                middle = (low + high) >> 1
                if label[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            return low
    return begin


@compiled
def put(segments: Any, row: int, i: int, j: int, m: int, n: int, f: int) -> Any:
    """Write a segment: how many arcs it makes."""
    segments[row, 0] = i
    segments[row, 1] = j
    segments[row, 2] = m
    segments[row, 3] = n
    segments[row, 4] = f
    return np.int64(m) * np.int64(n)


@compiled
def join(
    a: Any,
    b: Any,
    exact: bool,
    moves: Any,
    keys: Any,
    first: int,
    last: int,
    offsets: Any,
    segments: Any,
) -> tuple[int, int]:
    """What states `first` to `last` of the composition pair: (states done, segments made).

    A segment says that arcs i:i + m of A pair with arcs j:j + n of B, and which state the filter takes:
    (i, j, m, n, f). `offsets[s + 1]` is set for the states done; it stops before a state whose segments
    might not fit.
    """
    words = a.mask.shape[1]
    stay_a = len(a.inner)
    stay_b = len(b.inner)
    made = 0
    for state in range(first, last):
        key = keys[state]
        left = key >> A_SHIFT
        right = (key >> F_BITS) & B_MASK
        begin_a, end_a = a.offsets[left], a.offsets[left + 1]
        begin_b, end_b = b.offsets[right], b.offsets[right + 1]
        if made + 3 + min(end_a - begin_a, end_b - begin_b) > len(segments):
            return state, made
        epsilons_a, epsilons_b = a.epsilons[left], b.epsilons[right]
        move = (((a.kind[left] * KINDS + b.kind[right]) << F_BITS) | (key & F_MASK)) * MOVES
        arcs: Any = 0
        if epsilons_a and moves[move + A_ALONE] >= 0:
            f = moves[move + A_ALONE]
            arcs += put(segments, made, begin_a, stay_b + right, epsilons_a, 1, f)
            made += 1
        if epsilons_b and moves[move + B_ALONE] >= 0:
            f = moves[move + B_ALONE]
            arcs += put(segments, made, stay_a + left, begin_b, 1, epsilons_b, f)
            made += 1
        if epsilons_a and epsilons_b and moves[move + BOTH_EPSILON] >= 0:
            f = moves[move + BOTH_EPSILON]
            arcs += put(segments, made, begin_a, begin_b, epsilons_a, epsilons_b, f)
            made += 1
        f = moves[move + MATCH]
        if f < 0:
            pass
        elif exact:
            for word in range(words):
                mask_a = a.mask[left, word]
                mask_b = b.mask[right, word]
                both = mask_a & mask_b
                while both:
                    rest = both & (both - ONE)
                    below = (both ^ rest) - ONE
                    both = rest
                    row_a = a.rank[left, word] + set_bits(mask_a & below)
                    row_b = b.rank[right, word] + set_bits(mask_b & below)
                    i, m = a.span[row_a, 0], a.span[row_a, 1] - a.span[row_a, 0]
                    j, n = b.span[row_b, 0], b.span[row_b, 1] - b.span[row_b, 0]
                    arcs += put(segments, made, i, j, m, n, f)
                    made += 1
        elif a.mask[left, 0] & b.mask[right, 0]:
            before = made
            if a.row[left] >= 0 and (b.row[right] < 0 or end_b - begin_b <= end_a - begin_a):
                made = look_up(
                    a, a.row[left], b, begin_b + epsilons_b, end_b, f, False, segments, made
                )
            elif b.row[right] >= 0:
                made = look_up(
                    b, b.row[right], a, begin_a + epsilons_a, end_a, f, True, segments, made
                )
            else:
                made = merge(a, left, b, right, f, segments, made)
            for row in range(before, made):
                arcs += np.int64(segments[row, 2] * np.int64(segments[row, 3]))
        offsets[state + 1] = offsets[state] + arcs
    return last, made


@compiled
def look_up(
    crowded: Any,
    row: int,
    other: Any,
    begin: int,
    end: int,
    f: int,
    swapped: bool,
    segments: Any,
    made: int,
) -> int:
    """Join the arcs begin:end of one side with a state of the other that has a row by label."""
    labels = crowded.first.shape[1] - 2
    while begin < end and other.inner[begin] <= labels:
        label = other.inner[begin]
        behind = begin + 1
        while behind < end and other.inner[behind] == label:
            behind += 1
        i, m = crowded.first[row, label], crowded.first[row, label + 1] - crowded.first[row, label]
        if m > 0:
            if swapped:
                put(segments, made, begin, i, behind - begin, m, f)
            else:
                put(segments, made, i, begin, m, behind - begin, f)
            made += 1
        begin = behind
    return made


@compiled
def merge(a: Any, left: int, b: Any, right: int, f: int, segments: Any, made: int) -> int:
    """Join the arcs of two states bucket by bucket."""
    mask_a = a.mask[left, 0]
    mask_b = b.mask[right, 0]
    both = mask_a & mask_b
    while both:
        rest = both & (both - ONE)
        below = (both ^ rest) - ONE
        both = rest
        row_a = a.rank[left, 0] + set_bits(mask_a & below)
        row_b = b.rank[right, 0] + set_bits(mask_b & below)
        i, i_end = a.span[row_a, 0], a.span[row_a, 1]
        j, j_end = b.span[row_b, 0], b.span[row_b, 1]
        while i < i_end and j < j_end:
            x, y = a.inner[i], b.inner[j]
            if x < y:
                i = seek(a.inner, i + 1, i_end, y)
            elif y < x:
                j = seek(b.inner, j + 1, j_end, x)
            else:
                next_i = seek(a.inner, i + 1, i_end, x + 1)
                next_j = seek(b.inner, j + 1, j_end, x + 1)
                put(segments, made, i, j, next_i - i, next_j - j, f)
                made += 1
                i, j = next_i, next_j
    return made


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
    done: int,
    known: int,
    wide: int,
    limit: int,
    arc_limit: int,
    offsets: Any,
    out: Any,
) -> tuple[int, int, int]:
    """Expand states in order, until none or at least `wide` wait or a limit is met.

    Returns:
        Why it came back; how many states were expanded; how many are known.
    """
    segments = np.empty((max(plan.longest, BATCH_SEGMENTS), 5), a.span.dtype)
    batch = room_for(BATCH_ARCS, out)
    while done < known:
        if known - done >= wide:
            return WIDE, done, known
        last = min(known, done + BATCH_STATES)
        last, count = join(a, b, plan.exact, plan.moves, keys, done, last, offsets, segments)
        if offsets[last] > arc_limit:
            return FULL_ARCS, done, known
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
                return FULL_STATES, done, limit
            known = found
            row = end
            at += arcs
        done = last
    return DONE, done, known


# --- the same steps for one part of a wave, which threads work on together ---------------------------


@compiled
def join_part(
    a: Any, b: Any, plan: Any, keys: Any, first: int, last: int, segments: Any
) -> tuple[Any, int, Any]:
    """`join` for all of these states: segments (a longer array if need be), their count, offsets from 0."""
    offsets = np.zeros(last - first + 1, np.int64)
    done = count = 0
    while True:
        done, made = join(
            a,
            b,
            plan.exact,
            plan.moves,
            keys[first:last],
            done,
            last - first,
            offsets,
            segments[count:],
        )
        count += made
        if done == last - first:
            return segments, count, offsets
        longer = np.empty((2 * len(segments) + plan.longest, 5), segments.dtype)
        longer[:count] = segments[:count]
        segments = longer


@compiled
def write_part(
    a: Any,
    b: Any,
    plan: Any,
    table: Any,
    segments: Any,
    count: int,
    at: int,
    out: Any,
    unknown: Any,
    places: Any,
) -> int:
    """Write the arcs of segments from position `at`: how many enter states that the table does not know.

    The keys of those go to `unknown`, the positions of the arcs to `places`; both have room for all arcs
    and one more.
    """
    batch = room_for(BATCH_ARCS, out)
    new = row = 0
    while row < count:
        end, arcs = some_arcs(segments, row, count)
        if arcs + STEP > len(batch.targets):
            batch = room_for(arcs, out)
        expand(a, b, plan.code, segments, row, end, batch)
        if len(out.from_a):
            trace(a, b, segments, row, end, batch)
        copy(batch, arcs, at, out)
        new = recall(table, batch.targets, arcs, out.nextstate, at, unknown, places, new)
        row = end
        at += arcs
    return new


@compiled
def recall(
    table: Any, targets: Any, count: int, states: Any, at: int, unknown: Any, places: Any, new: int
) -> int:
    """The numbers of targets that have one, into states[at:], and a list of those that have none."""
    if len(table.dense):
        for slot in range(count):
            key = targets[slot]
            state = table.dense[np.uint64(place_of(table, key))] - 1
            states[at + slot] = state
            unknown[new] = key
            places[new] = at + slot
            new += state < 0
        return new
    for slot in range(count):
        at_key = slot_of(table.slots, targets[slot])
        states[at + slot] = table.slots[2 * at_key + 1]
        unknown[new] = targets[slot]
        places[new] = at + slot
        new += table.slots[2 * at_key] < 0
    return new


@compiled
def settle(table: Any, unknown: Any, places: Any, keys: Any, known: int, states: Any) -> int:
    """Number the states that `write_part` did not know, in order of first occurrence.

    Returns:
        How many states are known then; `keys` must have room for all, and for one more.
    """
    for at in range(len(unknown)):
        key = unknown[at]
        if len(table.dense):
            place = np.uint64(place_of(table, key))
            state = table.dense[place]
            keys[known] = key
            known += state == 0
            state = np.int32(known) if state == 0 else state
            table.dense[place] = state
            states[places[at]] = state - 1
        else:
            slot = slot_of(table.slots, key)
            if table.slots[2 * slot] < 0:
                table.slots[2 * slot] = key
                table.slots[2 * slot + 1] = known
                keys[known] = key
                known += 1
            states[places[at]] = table.slots[2 * slot + 1]
    return known


# --- trimming ----------------------------------------------------------------------------------------


@compiled
def final_weights(
    a: Any, b: Any, code: int, zero: float, keys: Any, begin: int, end: int, final: Any, alive: Any
) -> None:
    """Final weights of states begin:end, from those that they are made of, and whether they are final."""
    for state in range(begin, end):
        left = a.final[keys[state] >> A_SHIFT]
        right = b.final[(keys[state] >> F_BITS) & B_MASK]
        final[state] = zero
        if left != zero and right != zero:
            final[state] = times(code, left, right)
        alive[state] = final[state] != zero


@compiled
def renumber(alive: Any) -> tuple[int, Any]:
    """How many states are marked, and their new numbers, -1 for the others."""
    number = np.empty(len(alive), np.int32)
    count = 0
    for state in range(len(alive)):
        number[state] = count if alive[state] else -1
        count += alive[state]
    return count, number


@compiled
def compact(offsets: Any, out: Any, renumbered: Any, first: int, last: int, kept_to: Any) -> int:
    """Keep the arcs into marked states of those that leave first:last, moved together in place.

    No other arcs leave marked states for them, since what leads to a marked state is marked.
    kept_to[s + 1] is set to how many arcs the states up to s, new numbers, have kept; returns how many.
    """
    begin, end = offsets[first], offsets[last]
    dropped = np.empty(BATCH_ARCS + 1, np.int64)
    state = first
    kept = begin
    for here in range(begin, end, BATCH_ARCS):
        behind = min(end, here + BATCH_ARCS)
        dropping = 0
        for arc in range(np.uint64(here), np.uint64(behind)):
            target = renumbered[np.uint64(out.nextstate[arc])]
            out.nextstate[arc] = target
            dropped[dropping] = arc
            dropping += target < 0
        gone = 0
        while state < last and offsets[state + 1] <= behind:
            while gone < dropping and dropped[gone] < offsets[state + 1]:
                gone += 1
            if renumbered[state] >= 0:
                kept_to[renumbered[state] + 1] = kept - begin + offsets[state + 1] - here - gone
            state += 1
        dropped[dropping] = behind
        if kept < here or dropping:
            close(out.ilabel, dropped, dropping, here, kept)
            close(out.olabel, dropped, dropping, here, kept)
            close(out.nextstate, dropped, dropping, here, kept)
            close(out.weight, dropped, dropping, here, kept)
            if len(out.from_a):
                close(out.from_a, dropped, dropping, here, kept)
                close(out.from_b, dropped, dropping, here, kept)
        kept += behind - here - dropping
    return kept - begin


@compiled
def close(values: Any, dropped: Any, count: int, here: int, at: int) -> None:
    """Move the values from `here` to dropped[count], but for the dropped ones, down to `at`, in place."""
    begin, to = np.uint64(here), np.uint64(at)
    for gap in range(count + 1):
        end = np.uint64(dropped[gap])
        for place in range(begin, end):
            values[to] = values[place]
            to += np.uint64(1)
        begin = end + np.uint64(1)


@compiled
def move_down(values: Any, source: int, target: int, count: int) -> None:
    """Move values to a lower position in place; the two ranges may overlap."""
    for at in range(count):
        values[target + at] = values[source + at]
