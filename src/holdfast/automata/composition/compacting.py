"""Compiled trimming of a machine: final weights, new numbers, and arcs closed up in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, times
from holdfast.automata.composition.joining import A_SHIFT, B_MASK, F_BITS
from holdfast.automata.semirings import LOG
from holdfast.automata.structure_kernels import mark_leading, mark_rest

BATCH_ARCS = 4096


@compiled
def finish(
    a: Any,
    b: Any,
    code: int,
    connect: bool,
    keys: Any,
    count: int,
    offsets: Any,
    final: Any,
    out: Any,
) -> int:
    """Set the final weights of `count` states; leave out those that reach no final one, if wanted.

    States, their offsets and the arcs `out` move together in place and keep their order.

    Returns:
        How many states are left; offsets[that] is how many arcs are.
    """
    zero = np.inf if code <= LOG else 0.0
    alive = np.empty(count, np.bool_)
    for state in range(count):
        left = a.final[keys[state] >> A_SHIFT]
        right = b.final[(keys[state] >> F_BITS) & B_MASK]
        final[state] = zero
        if left != zero and right != zero:
            final[state] = times(code, left, right)
        alive[state] = final[state] != zero
    if not connect:
        return count
    waiting = np.empty(count + 1, np.int32)
    graph = offsets[: count + 1], out.nextstate[: offsets[count]]
    waits = mark_leading(*graph, alive, waiting)
    mark_rest(*graph, alive, waiting, waits)
    number = waiting  # the same memory again
    kept = 0
    for state in range(count):
        number[state] = kept if alive[state] else -1
        final[kept] = final[state]
        kept += alive[state]
    if kept < count:
        compact(offsets, out, number, count)
    return kept


@compiled
def compact(offsets: Any, out: Any, number: Any, count: int) -> None:
    """Keep the arcs into states that have a number; their offsets are set by it.

    No other arcs leave states with a number for them, since what leads to such a state has one.
    """
    arcs = offsets[count]
    dropped = np.empty(BATCH_ARCS + 1, np.int64)
    state = kept = 0
    for here in range(0, arcs, BATCH_ARCS):
        behind = min(arcs, here + BATCH_ARCS)
        dropping = 0
        for arc in range(np.uint64(here), np.uint64(behind)):
            target = number[np.uint64(out.nextstate[arc])]
            out.nextstate[arc] = target
            dropped[dropping] = arc
            dropping += target < 0
        gone = 0
        while state < count and offsets[state + 1] <= behind:
            while gone < dropping and dropped[gone] < offsets[state + 1]:
                gone += 1
            if number[state] >= 0:
                # Never above state + 1, so the offsets to come are still those of before.
                offsets[number[state] + 1] = kept + offsets[state + 1] - here - gone
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
