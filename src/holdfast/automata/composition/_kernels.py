"""Compiled steps of composition: index, join, fill, number, trim."""

from __future__ import annotations

from typing import Any

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

# Why `explore` came back.
DONE, FULL_TABLE, FULL_ARCS, FULL_STATES = 0, 1, 2, 3

# A state of the composition as one number: a << 32 | b << 2 | f.
F_BITS = 2
A_SHIFT = 32
B_MASK = (1 << (A_SHIFT - F_BITS)) - 1
F_MASK = (1 << F_BITS) - 1

# A batch of `explore`: small enough that its segments and keys stay in the cache.
BATCH_STATES = 512
BATCH_SEGMENTS = 2048
ONE = np.uint64(1)


@intrinsic
def set_bits(typing_context: Any, word: Any) -> Any:
    """How many bits of a 64-bit word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@compiled
def labels_seen(label: Any, size: int) -> Any:
    """Which labels below `size` occur: bool[size]."""
    seen = np.zeros(size, np.bool_)
    for at in range(len(label)):
        if label[at] < size:
            seen[label[at]] = True
    return seen


@compiled
def index(offsets: Any, bucket: Any, words: int) -> tuple[Any, Any, Any]:
    """Masks, ranks and spans of a `Side`, from the bucket of each arc (-1: none), ascending in a state."""
    states = len(offsets) - 1
    used = 0
    for state in range(states):
        last = -1
        for arc in range(offsets[state], offsets[state + 1]):
            if bucket[arc] >= 0 and bucket[arc] != last:
                last = bucket[arc]
                used += 1
    mask = np.zeros(states * words, np.uint64)
    rank = np.zeros(states * words, np.int32)
    span = np.zeros((used, 2), np.int64)
    row = -1
    for state in range(states):
        last = -1
        word = -1
        for arc in range(offsets[state], offsets[state + 1]):
            if bucket[arc] < 0:
                continue
            if bucket[arc] != last:
                last = bucket[arc]
                row += 1
                while word < last >> 6:
                    word += 1
                    rank[state * words + word] = row
                mask[state * words + word] |= ONE << np.uint64(last & 63)
                span[row, 0] = arc
            span[row, 1] = arc + 1
    return mask, rank, span


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
    """What states `first` to `last` of the composition pair: (states done, segments).

    A segment says that arcs i:i + m of A pair with arcs j:j + n of B, and which state the filter takes:
    (i, j, m, n, f). `offsets[s + 1]` is set for the states done; it stops before a state whose segments
    might not fit.
    """
    words = len(a.mask) // len(a.epsilons)
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
        move = (((a.kind[left] * KINDS + b.kind[right]) << F_BITS) | (key & F_MASK)) * MOVES
        arcs = 0
        middle_a = begin_a + a.epsilons[left]
        middle_b = begin_b + b.epsilons[right]
        if middle_a > begin_a and moves[move + A_ALONE] >= 0:
            segments[made, 0] = begin_a
            segments[made, 1] = stay_b + right
            segments[made, 2] = middle_a - begin_a
            segments[made, 3] = 1
            segments[made, 4] = moves[move + A_ALONE]
            arcs += middle_a - begin_a
            made += 1
        if middle_b > begin_b:
            if moves[move + B_ALONE] >= 0:
                segments[made, 0] = stay_a + left
                segments[made, 1] = begin_b
                segments[made, 2] = 1
                segments[made, 3] = middle_b - begin_b
                segments[made, 4] = moves[move + B_ALONE]
                arcs += middle_b - begin_b
                made += 1
            if middle_a > begin_a and moves[move + BOTH_EPSILON] >= 0:
                segments[made, 0] = begin_a
                segments[made, 1] = begin_b
                segments[made, 2] = middle_a - begin_a
                segments[made, 3] = middle_b - begin_b
                segments[made, 4] = moves[move + BOTH_EPSILON]
                arcs += (middle_a - begin_a) * (middle_b - begin_b)
                made += 1
        f = moves[move + MATCH]
        for word in range(words if f >= 0 else 0):
            mask_a = a.mask[left * words + word]
            mask_b = b.mask[right * words + word]
            both = mask_a & mask_b
            while both:
                rest = both & (both - ONE)
                below = (both ^ rest) - ONE
                both = rest
                row_a = a.rank[left * words + word] + set_bits(mask_a & below)
                row_b = b.rank[right * words + word] + set_bits(mask_b & below)
                i, i_end = a.span[row_a, 0], a.span[row_a, 1]
                j, j_end = b.span[row_b, 0], b.span[row_b, 1]
                if exact:
                    segments[made, 0] = i
                    segments[made, 1] = j
                    segments[made, 2] = i_end - i
                    segments[made, 3] = j_end - j
                    segments[made, 4] = f
                    arcs += (i_end - i) * (j_end - j)
                    made += 1
                    continue
                while i < i_end and j < j_end:
                    x, y = a.inner[i], b.inner[j]
                    if x < y:
                        i = seek(a.inner, i + 1, i_end, y)
                    elif y < x:
                        j = seek(b.inner, j + 1, j_end, x)
                    else:
                        next_i = seek(a.inner, i + 1, i_end, x + 1)
                        next_j = seek(b.inner, j + 1, j_end, x + 1)
                        segments[made, 0] = i
                        segments[made, 1] = j
                        segments[made, 2] = next_i - i
                        segments[made, 3] = next_j - j
                        segments[made, 4] = f
                        arcs += (next_i - i) * (next_j - j)
                        made += 1
                        i, j = next_i, next_j
        offsets[state + 1] = offsets[state] + arcs
    return last, made


@compiled
def fill(
    a: Any, b: Any, code: int, segments: Any, count: int, at: int, out: Any, targets: Any
) -> None:
    """Write the arcs of segments from position `at`, and the states they enter to `targets` from 0."""
    mapped = len(out.from_a) > 0
    slot = 0
    for row in range(count):
        i, j, m, n, f = (
            segments[row, 0],
            segments[row, 1],
            segments[row, 2],
            segments[row, 3],
            segments[row, 4],
        )
        for left in range(i, i + m):
            high = np.int64(a.nextstate[left]) << A_SHIFT | f
            ilabel = a.outer[left]
            weight = a.weight[left]
            for right in range(j, j + n):
                targets[slot] = high | np.int64(b.nextstate[right]) << F_BITS
                out.ilabel[at] = ilabel
                out.olabel[at] = b.outer[right]
                out.weight[at] = times(code, weight, b.weight[right])
                if mapped:
                    out.from_a[at] = a.arc[left]
                    out.from_b[at] = b.arc[right]
                slot += 1
                at += 1


@compiled
def hashed(key: int) -> int:
    """A 62-bit hash of a key."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(0x3FFFFFFFFFFFFFFF))


@compiled
def number(
    table: Any, targets: Any, count: int, keys: Any, known: int, limit: int, nextstate: Any, at: int
) -> tuple[int, bool]:
    """Number targets in order of first occurrence: (states known, whether all were numbered)."""
    if len(table.dense):
        for slot in range(count):
            key = targets[slot]
            a = key >> A_SHIFT
            b = (key >> F_BITS) & B_MASK
            place = (a * table.states_b + b) * table.filters + (key & F_MASK)
            state = table.dense[place] - 1
            if state < 0:
                if known >= limit:
                    return known, False
                state = known
                keys[known] = key
                known += 1
                table.dense[place] = known
            nextstate[at + slot] = state
        return known, True
    wrap = len(table.slots) // 2 - 1
    for slot in range(count):
        key = targets[slot]
        place = hashed(key) & wrap
        while table.slots[2 * place] != key and table.slots[2 * place] >= 0:
            place = (place + 1) & wrap
        if table.slots[2 * place] < 0:
            if known >= limit:
                return known, False
            table.slots[2 * place] = key
            table.slots[2 * place + 1] = known
            keys[known] = key
            known += 1
        nextstate[at + slot] = table.slots[2 * place + 1]
    return known, True


@compiled
def explore(
    a: Any,
    b: Any,
    exact: bool,
    moves: Any,
    code: int,
    table: Any,
    keys: Any,
    done: int,
    known: int,
    limit: int,
    arc_limit: int,
    offsets: Any,
    out: Any,
) -> tuple[int, int, int]:
    """Expand states in order until none is left or a limit is met: (why, states done, states known)."""
    most = 3
    if len(a.inner) and len(b.inner):
        most += min(np.diff(a.offsets).max(), np.diff(b.offsets).max())
    segments = np.empty((max(most, BATCH_SEGMENTS), 5), a.span.dtype)
    targets = np.empty(4 * BATCH_SEGMENTS, np.int64)
    while done < known:
        last = min(known, done + BATCH_STATES)
        last, count = join(a, b, exact, moves, keys, done, last, offsets, segments)
        begin, end = offsets[done], offsets[last]
        if end > arc_limit:
            return FULL_ARCS, done, known
        if end - begin > len(targets):
            targets = np.empty(end - begin, np.int64)
        fill(a, b, code, segments, count, begin, out, targets)
        known, fitted = number(
            table, targets, end - begin, keys, known, limit, out.nextstate, begin
        )
        if not fitted:
            return FULL_STATES, done, known
        done = last
    return DONE, done, known


@compiled
def final_weights(a: Any, b: Any, code: int, keys: Any, states: int, zero: float) -> Any:
    """The final weight of each state, from those of the states that it is made of."""
    final = np.empty(states, a.final.dtype)
    for state in range(states):
        left = a.final[keys[state] >> A_SHIFT]
        right = b.final[(keys[state] >> F_BITS) & B_MASK]
        final[state] = zero
        if left != zero and right != zero:
            final[state] = times(code, left, right)
    return final


@compiled
def sweep(offsets: Any, nextstate: Any, alive: Any) -> int:
    """Mark states with an arc into a marked one, from the last state to the first: how many were."""
    marked = 0
    for state in range(len(alive) - 1, -1, -1):
        if alive[state]:
            continue
        for arc in range(offsets[state], offsets[state + 1]):
            if alive[nextstate[arc]]:
                alive[state] = True
                marked += 1
                break
    return marked


@compiled
def compact(offsets: Any, out: Any, alive: Any, renumbered: Any) -> int:
    """Keep the arcs between marked states, moved down in place, states renumbered: how many are kept."""
    mapped = len(out.from_a) > 0
    kept = 0
    states = 0
    for state in range(len(alive)):
        begin, end = offsets[state], offsets[state + 1]
        if not alive[state]:
            continue
        offsets[states] = kept
        for arc in range(begin, end):
            if alive[out.nextstate[arc]]:
                out.ilabel[kept] = out.ilabel[arc]
                out.olabel[kept] = out.olabel[arc]
                out.weight[kept] = out.weight[arc]
                out.nextstate[kept] = renumbered[out.nextstate[arc]]
                if mapped:
                    out.from_a[kept] = out.from_a[arc]
                    out.from_b[kept] = out.from_b[arc]
                kept += 1
        states += 1
    offsets[states] = kept
    return kept


@compiled
def rehashed(slots: Any) -> Any:
    """The same table with twice the slots."""
    wider = np.full(2 * len(slots), -1, np.int64)
    wrap = len(slots) - 1
    for old in range(0, len(slots), 2):
        key = slots[old]
        if key >= 0:
            place = hashed(key) & wrap
            while wider[2 * place] >= 0:
                place = (place + 1) & wrap
            wider[2 * place] = key
            wider[2 * place + 1] = slots[old + 1]
    return wider
