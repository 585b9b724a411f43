"""Compiled partition refinement."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, counting_order


@compiled
def clusters(values: Any, order: Any, delta: float) -> tuple[Any, int]:
    """Values that lie close together get one number: i32[n] ascending with the value, and how many.

    A cluster begins with a value that lies more than `delta` above the first of the one before.
    """
    number = np.empty(len(values), np.int32)
    current = -1
    first = 0.0
    for at in order:
        value = values[at]
        # Infinity minus infinity is NaN, which is not more than anything.
        if current < 0 or value - first > delta:
            current += 1
            first = value
        number[at] = current
    return number, current + 1


@compiled
def repeated_label(offsets: Any, label: Any, labels: int) -> int:
    """The first state that two arcs with one label leave; -1 if there is none."""
    seen = np.full(labels, -1, np.int32)
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state], offsets[state + 1]):
            if seen[label[arc]] == state:
                return state
            seen[label[arc]] = state
    return -1


@compiled
def _mark(element: Any, items: Any, place: Any, block: Any, begin: Any, marks: Any) -> bool:
    """Move an element to the front of its block, behind those marked before; whether it is the first."""
    of = block[element]
    at = place[element]
    to = begin[of] + marks[of]
    if at < to:
        return False  # marked already
    other = items[to]
    items[at] = other
    place[other] = at
    items[to] = element
    place[element] = to
    marks[of] += 1
    return marks[of] == 1


@compiled
def _split(
    touched: Any,
    count: int,
    items: Any,
    place: Any,
    block: Any,
    begin: Any,
    end: Any,
    marks: Any,
    blocks: int,
) -> int:
    """Part the touched blocks into marked and unmarked; the smaller part becomes a new block."""
    for at in range(count):
        old = touched[at]
        middle = begin[old] + marks[old]
        if middle < end[old]:
            if marks[old] <= end[old] - middle:
                begin[blocks], end[blocks] = begin[old], middle
                begin[old] = middle
            else:
                begin[blocks], end[blocks] = middle, end[old]
                end[old] = middle
            for position in range(begin[blocks], end[blocks]):
                block[items[position]] = blocks
            blocks += 1
        marks[old] = 0
    return blocks


@compiled
def refine(source: Any, symbol: Any, target: Any, symbols: int, kind: Any, kinds: int) -> Any:
    """The coarsest partition of states in which alike states have the same kind and alike successors.

    Hopcroft's algorithm for partial machines: the arcs are parted too, by symbol and by the block that they
    enter, so that its work is O(E log V) and no symbol costs anything where no arc has it.
    Source: A. Valmari, "Fast brief practical DFA minimization", Information Processing Letters 112, 2012.

    Args:
        source: i32[E], of a machine whose states all reach a final one.
        symbol: i32[E] what tells arcs apart, 0 to symbols - 1; no two arcs of a state have the same.
        target: i32[E].
        symbols: how many.
        kind: i32[V] what tells states apart, 0 to kinds - 1; each occurs.
        kinds: how many.

    Returns:
        The block of each state, i32[V].
    """
    states, arcs = len(kind), len(source)
    into, entering = counting_order(target, states)
    # States by block, and arcs by cord (symbol, block of the target), each with room for all splits.
    bounds, order = counting_order(kind, kinds)
    items = order.astype(np.int32)
    place = np.empty(states, np.int32)
    for at in range(states):
        place[items[at]] = at
    block = kind.copy()
    begin = np.zeros(states, np.int32)
    end = np.zeros(states, np.int32)
    marks = np.zeros(states, np.int32)
    for of in range(kinds):  # a loop, not slices: those cost seconds of compilation
        begin[of] = bounds[of]
        end[of] = bounds[of + 1]
    blocks = kinds
    touched = np.empty(max(states, arcs), np.int32)

    cord_bounds, cord_order = counting_order(symbol, symbols)
    cord_items = cord_order.astype(np.int32)
    cord_place = np.empty(arcs, np.int32)
    for at in range(arcs):
        cord_place[cord_items[at]] = at
    cord_of = symbol.copy()
    cord_begin = np.zeros(arcs, np.int32)
    cord_end = np.zeros(arcs, np.int32)
    cord_marks = np.zeros(arcs, np.int32)
    for of in range(symbols):
        cord_begin[of] = cord_bounds[of]
        cord_end[of] = cord_bounds[of + 1]
    cords = symbols

    # 1. Until neither blocks nor cords are new, each splits the other.
    next_block, cord = 1, 0
    while cord < cords:
        # 2. A cord parts blocks: their states have an arc of it, or have none.
        count = 0
        for at in range(cord_begin[cord], cord_end[cord]):
            state = source[cord_items[at]]
            if _mark(state, items, place, block, begin, marks):
                touched[count] = block[state]
                count += 1
        blocks = _split(touched, count, items, place, block, begin, end, marks, blocks)
        cord += 1
        while next_block < blocks:
            # 3. A new block parts cords: their arcs enter it, or do not.
            count = 0
            for position in range(begin[next_block], end[next_block]):
                state = items[position]
                for at in range(into[state], into[state + 1]):
                    arc = entering[at]
                    if _mark(arc, cord_items, cord_place, cord_of, cord_begin, cord_marks):
                        touched[count] = cord_of[arc]
                        count += 1
            cords = _split(
                touched,
                count,
                cord_items,
                cord_place,
                cord_of,
                cord_begin,
                cord_end,
                cord_marks,
                cords,
            )
            next_block += 1
    return block
