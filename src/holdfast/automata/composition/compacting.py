"""Compiled steps of trimming: final weights, new numbers, and arcs closed up in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, times
from holdfast.automata.composition.joining import A_SHIFT, B_MASK, F_BITS

BATCH_ARCS = 4096


@compiled
def final_weights(
    a: Any, b: Any, code: int, zero: float, keys: Any, final: Any, alive: Any
) -> None:
    """Final weights of states, from those that they are made of, and whether they are final."""
    for state in range(len(final)):
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
    return int(kept - begin)


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
