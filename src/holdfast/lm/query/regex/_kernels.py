"""Compiled steps on dense transition tables: the minimal form, and products of two automata."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, counting_order
from holdfast.automata.simplifying.partition_kernels import refine


@compiled
def minimal(table: Any, final: Any, parted: bool) -> tuple[Any, Any]:
    """The smallest automaton of the same language, its states numbered breadth-first by symbol.

    Args:
        table: i32[states, symbols] the state that follows, -1 for none; state 0 is the start.
        final: bool[states].
        parted: it is known that no two states are alike, so that only numbers change.

    Returns:
        The two arrays of the trimmed minimal automaton; of no states where the language is empty.
    """
    states, symbols = table.shape
    reached = np.zeros(states, np.bool_)
    queue = np.empty(states, np.int32)
    size = 0
    if states > 0:
        reached[0] = True
        queue[0] = 0
        size = 1
    at = 0
    arcs = 0
    while at < size:
        state = queue[at]
        at += 1
        for symbol in range(symbols):
            target = table[state, symbol]
            if target >= 0:
                arcs += 1
                if not reached[target]:
                    reached[target] = True
                    queue[size] = target
                    size += 1

    # Backwards from the final states: what leads nowhere is cut off.
    source_of = np.empty(arcs, np.int32)
    target_of = np.empty(arcs, np.int32)
    arcs = 0
    for at in range(size):
        state = queue[at]
        for symbol in range(symbols):
            target = table[state, symbol]
            if target >= 0:
                source_of[arcs] = state
                target_of[arcs] = target
                arcs += 1
    into, entering = counting_order(target_of, states)
    alive = np.zeros(states, np.bool_)
    waiting = np.empty(size, np.int32)
    count = 0
    for at in range(size):
        state = queue[at]
        if final[state]:
            alive[state] = True
            waiting[count] = state
            count += 1
    while count > 0:
        count -= 1
        state = waiting[count]
        for at in range(into[state], into[state + 1]):
            source = source_of[entering[at]]
            if not alive[source]:
                alive[source] = True
                waiting[count] = source
                count += 1
    if states == 0 or not alive[0]:
        return np.empty((0, symbols), np.int32), np.empty(0, np.bool_)

    # Compact numbers for what is kept, and for the symbols that occur in it.
    number = np.full(states, -1, np.int32)
    kept = 0
    for at in range(size):
        state = queue[at]
        if alive[state]:
            number[state] = kept
            queue[kept] = state
            kept += 1
    symbol_number = np.full(symbols, -1, np.int32)
    used = 0
    count = 0
    source_in = np.empty(arcs, np.int32)
    symbol_in = np.empty(arcs, np.int32)
    target_in = np.empty(arcs, np.int32)
    for state in range(kept):
        for symbol in range(symbols):
            target = table[queue[state], symbol]
            if target >= 0 and alive[target]:
                if symbol_number[symbol] < 0:
                    symbol_number[symbol] = used
                    used += 1
                source_in[count] = state
                symbol_in[count] = symbol_number[symbol]
                target_in[count] = number[target]
                count += 1
    kind = np.zeros(kept, np.int32)
    finals = 0
    for state in range(kept):
        if final[queue[state]]:
            kind[state] = 1
            finals += 1
    kinds = 2
    if finals == kept:
        for state in range(kept):
            kind[state] = 0
        kinds = 1
    if parted:
        block = np.empty(kept, np.int32)
        for state in range(kept):
            block[state] = state
    else:
        block = refine(source_in[:count], symbol_in[:count], target_in[:count], used, kind, kinds)

    # One state of each block, numbered breadth-first.
    blocks = block.max() + 1
    rank = np.full(blocks, -1, np.int32)
    member = np.empty(blocks, np.int32)
    rank[block[0]] = 0
    member[0] = queue[0]
    size = 1
    small = np.full((blocks, symbols), -1, np.int32)
    small_final = np.empty(blocks, np.bool_)
    at = 0
    while at < size:
        state = member[at]
        small_final[at] = final[state]
        for symbol in range(symbols):
            target = table[state, symbol]
            if target >= 0 and alive[target]:
                home = block[number[target]]
                if rank[home] < 0:
                    rank[home] = size
                    member[size] = target
                    size += 1
                small[at, symbol] = rank[home]
        at += 1
    return small, small_final


@compiled
def product(one: Any, other: Any, keep_one: bool, keep_other: bool) -> tuple[Any, Any, Any]:
    """Product of two automata, from the pair of their starts, breadth-first.

    Args:
        one: i32[states, symbols] -1 where dead.
        other: i32[states, symbols] over the same symbols.
        keep_one: continue where the other automaton is dead.
        keep_other: continue where the first is dead.

    Returns:
        The table i32[pairs, symbols], and each pair's state in either automaton, -1 where dead.
    """
    symbols = one.shape[1]
    width = len(other) + 1
    seen = np.full((len(one) + 1) * width, -1, np.int32)
    room = 64
    left = np.empty(room, np.int32)
    right = np.empty(room, np.int32)
    table = np.empty((room, symbols), np.int32)
    left[0] = 0 if len(one) else -1
    right[0] = 0 if len(other) else -1
    seen[(left[0] + 1) * width + right[0] + 1] = 0
    size = 1
    at = 0
    while at < size:
        if size + symbols > room:
            room = 2 * room + symbols
            new_left = np.empty(room, np.int32)
            new_right = np.empty(room, np.int32)
            new_table = np.empty((room, symbols), np.int32)
            for pair in range(size):
                new_left[pair] = left[pair]
                new_right[pair] = right[pair]
            for pair in range(at):
                for symbol in range(symbols):
                    new_table[pair, symbol] = table[pair, symbol]
            left, right, table = new_left, new_right, new_table
        for symbol in range(symbols):
            x = one[left[at], symbol] if left[at] >= 0 else -1
            y = other[right[at], symbol] if right[at] >= 0 else -1
            table[at, symbol] = -1
            if (x < 0 and not keep_other) or (y < 0 and not keep_one) or (x < 0 and y < 0):
                continue
            key = (x + 1) * width + y + 1
            if seen[key] < 0:
                seen[key] = size
                left[size] = x
                right[size] = y
                size += 1
            table[at, symbol] = seen[key]
        at += 1
    return table[:size].copy(), left[:size].copy(), right[:size].copy()
