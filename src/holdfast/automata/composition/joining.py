"""Compiled index and join: which arcs of a state of A pair with which of a state of B.

A state of the composition is a key, a << 32 | b << 2 | f.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from holdfast.automata._kernels import compiled
from holdfast.automata.composition.filters import (
    A_ALONE,
    B_ALONE,
    BOTH_EPSILON,
    KINDS,
    MATCH,
    MOVES,
)

F_BITS = 2
A_SHIFT = 32
B_MASK = (1 << (A_SHIFT - F_BITS)) - 1
F_MASK = (1 << F_BITS) - 1

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
def seek(label: Any, begin: int, end: int, target: int) -> int:
    """The first position in begin:end whose label is not below `target`; quick if it is near."""
    step = 1
    while begin < end and label[begin] < target:
        low = begin + 1
        begin += step
        step *= 2
        if begin >= end or label[begin] >= target:
            high = min(begin, end)
            while low < high:
                middle = (low + high) >> 1
                if label[middle] < target:
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
    count: int,
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
                put(segments, count, begin, i, behind - begin, m, f)
            else:
                put(segments, count, i, begin, m, behind - begin, f)
            count += 1
        begin = behind
    return count


@compiled
def merge(a: Any, left: int, b: Any, right: int, f: int, segments: Any, count: int) -> int:
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
                put(segments, count, i, j, next_i - i, next_j - j, f)
                count += 1
                i, j = next_i, next_j
    return count
