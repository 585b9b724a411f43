"""Compiled loops of canonical encodings: merge trees, pairs that merge, products of automata."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled

# The rank at which a token that is never merged further would be.
NEVER = np.iinfo(np.int32).max


@compiled
def _find(offsets: Any, rights: Any, left: Any, right: Any) -> Any:
    """The place of the merge (left, right) among merges sorted by left and right, or -1."""
    low, high = offsets[left], offsets[left + 1]
    while low < high:
        middle = (low + high) // 2
        if rights[middle] < right:
            low = middle + 1
        else:
            high = middle
    if low < offsets[left + 1] and rights[low] == right:
        return low
    return np.int64(-1)


@compiled
def merge_trees(
    begins: Any,
    bases: Any,
    offsets: Any,
    rights: Any,
    merged: Any,
    ranks: Any,
    left: Any,
    right: Any,
    key: Any,
    top_left: Any,
    top_right: Any,
) -> Any:
    """Merge the base tokens of every token alone, and keep the last merge of those that come out whole.

    Given:
        begins i64[V + 1], bases i32[...]: the base tokens of every token, -1 where there is none.
        offsets i64[V + 1], rights, merged, ranks i32[M]: merges by left token, `rights` rising within each.

    Filled:
        left, right i32[V]: the two tokens that the last merge joins, -1 for base tokens. key i32[V]:
        the highest rank among the merges inside a token, -1 for base tokens, -2 for tokens whose
            bytes do not merge to themselves.
        top_left, top_right i32[V]: the highest rank among the merges that were made, the last one included,
            since the left (right) token stood.
    """
    longest = 0
    for token in range(len(left)):
        longest = max(longest, begins[token + 1] - begins[token])
    symbols = np.empty(longest, np.int32)
    places = np.empty(longest, np.int64)  # the merge with the next symbol, or -1
    born = np.empty(longest, np.int64)  # the number of merges made when a symbol came to be
    made = np.empty(longest + 1, np.int32)
    for token in range(len(left)):
        left[token] = right[token] = -1
        key[token] = -2
        size = begins[token + 1] - begins[token]
        if size == 0:
            continue
        known = True
        for k in range(size):
            symbols[k] = bases[begins[token] + k]
            born[k] = 0
            known = known and symbols[k] >= 0
        if not known:
            continue
        for k in range(size - 1):
            places[k] = _find(offsets, rights, symbols[k], symbols[k + 1])
        count = 0
        highest = np.int32(-1)
        last: Any = -1
        left_born: Any = 0
        right_born: Any = 0
        while size > 1:
            best = -1
            for k in range(size - 1):
                if places[k] >= 0 and (best < 0 or ranks[places[k]] < ranks[places[best]]):
                    best = k
            if best < 0:
                break
            last = places[best]
            left_born, right_born = born[best], born[best + 1]
            made[count] = ranks[last]
            highest = max(highest, ranks[last])
            count += 1
            if size == 2:
                left[token], right[token] = symbols[0], symbols[1]
            symbols[best] = merged[last]
            born[best] = count
            for k in range(best + 1, size - 1):
                symbols[k] = symbols[k + 1]
                born[k] = born[k + 1]
                places[k] = places[k + 1]
            size -= 1
            if best > 0:
                places[best - 1] = _find(offsets, rights, symbols[best - 1], symbols[best])
            if best < size - 1:
                places[best] = _find(offsets, rights, symbols[best], symbols[best + 1])
        if size > 1 or symbols[0] != token:
            left[token] = right[token] = -1
            continue
        key[token] = highest
        top = np.int32(-1)
        for k in range(count - 1, -1, -1):
            top = max(top, made[k])
            if k == left_born:
                top_left[token] = top
            if k == right_born:
                top_right[token] = top


@compiled
def forest_order(child_offsets: Any, children: Any, roots: Any, place: Any, end: Any) -> Any:
    """Number the tokens so that those whose left spine holds a token stand together behind it.

    Given:
        child_offsets i64[V + 1], children i32[...]: the tokens whose last merge has a given left token.
        roots i32[...]: base tokens.

    Filled:
        place i32[V]: the number of a token, -1 for those outside the forest.
        end i32[V]: one behind the last number of a token's descendants.
    """
    stack = np.empty(len(place), np.int32)
    walked = child_offsets[:-1].copy()
    number = 0
    for root in roots:
        depth = 0
        stack[0] = root
        place[root] = number
        number += 1
        while depth >= 0:
            token = stack[depth]
            if walked[token] < child_offsets[token + 1]:
                child = children[walked[token]]
                walked[token] += 1
                place[child] = number
                number += 1
                depth += 1
                stack[depth] = child
            else:
                end[token] = number
                depth -= 1
    return number


@compiled
def merging(
    token: Any,
    offsets: Any,
    rights: Any,
    ranks: Any,
    child_offsets: Any,
    children: Any,
    right: Any,
    key: Any,
    top_left: Any,
    top_right: Any,
    place: Any,
    end: Any,
    row: Any,
) -> Any:
    """Mark in `row`, by number in the forest, the tokens that do not stay apart behind `token`.

    See `pairs` for the argument; the children of a token are sorted by `key`. `row` bool[numbers] is
    false when the function begins.
    """
    inner = token
    consumed = np.int64(
        NEVER
    )  # the rank that ends the right-spine token `inner`, and the highest it stands
    highest = np.int64(NEVER)
    while True:
        for k in range(offsets[inner], offsets[inner + 1]):
            other = rights[k]
            if key[other] < -1 or key[other] >= consumed:
                continue
            rank = ranks[k]
            before_left = rank < highest
            if before_left:
                row[place[other]] = True
            for c in range(child_offsets[other], child_offsets[other + 1]):
                child = children[c]
                if key[child] < key[inner]:
                    continue
                if key[child] >= consumed and not before_left:
                    break
                if consumed <= key[child]:
                    fires = before_left
                else:
                    fires = rank <= top_left[child]
                if fires:
                    row[place[child] : end[child]] = True
        if right[inner] < 0:
            return
        consumed = np.int64(key[inner])
        highest = np.int64(top_right[inner])
        inner = right[inner]


@compiled
def _longer(values: Any, size: Any) -> Any:
    """The values with room for `size` of them; -1 in new places."""
    grown = np.full(size, -1, np.int32)
    for place in range(
        len(values)
    ):  # a slice would make Numba compile the text of its error, for seconds
        grown[place] = values[place]
    return grown


@compiled
def product(
    classes: Any,
    following: Any,
    final: Any,
    other_classes: Any,
    other: Any,
    mark: Any,
    other_final: Any,
) -> Any:
    """The pairs of states that an automaton and a marked language come to together.

    Given:
        classes i64[C], other_classes i64[C]: for each common class of bytes, its class in either automaton.
        following i32[n, ...], final bool[n]: the automaton; marks leave it where it is.
        other i32[m, ...], mark i32[m], other_final bool[m]: the marked language.

    Returns:
        left, right i32[P]: the states of a pair, the start first. table i32[P * (C + 1)]: the pair after a
        byte and, in the last column, after a mark; -1 if none is alive. alive bool[P]: whether
        acceptance can be reached.
    """
    columns = len(classes)
    room = 256
    left, right = np.full(room, -1, np.int32), np.full(room, -1, np.int32)
    left[0] = right[0] = 0
    table = np.full(room * (columns + 1), -1, np.int32)
    slots = np.full(4 * room, -1, np.int64)
    size = 1
    slots[_slot(0, 0, len(slots))] = 0
    done = 0
    while done < size:
        for column in range(columns + 1):
            if column < columns:
                to = following[left[done], classes[column]]
                other_to = other[right[done], other_classes[column]]
            else:
                to = left[done]
                other_to = mark[right[done]]
            if to < 0 or other_to < 0:
                continue
            slot = _slot(to, other_to, len(slots))
            while slots[slot] >= 0 and (left[slots[slot]] != to or right[slots[slot]] != other_to):
                slot = (slot + 1) % len(slots)
            if slots[slot] < 0:
                if size == room:
                    room *= 2
                    left, right = _longer(left, room), _longer(right, room)
                    table = _longer(table, room * (columns + 1))
                    slots = np.full(4 * room, -1, np.int64)
                    for pair in range(size):
                        slot = _slot(left[pair], right[pair], len(slots))
                        while slots[slot] >= 0:
                            slot = (slot + 1) % len(slots)
                        slots[slot] = pair
                    slot = _slot(to, other_to, len(slots))
                    while slots[slot] >= 0:
                        slot = (slot + 1) % len(slots)
                left[size], right[size] = to, other_to
                slots[slot] = size
                size += 1
            table[done * (columns + 1) + column] = slots[slot]
        done += 1
    arcs = size * (columns + 1)
    # Backwards from acceptance, along arcs sorted by where they lead.
    begins = np.zeros(size + 1, np.int64)
    for arc in range(arcs):
        if table[arc] >= 0:
            begins[table[arc] + 1] += 1
    for pair in range(size):
        begins[pair + 1] += begins[pair]
    sources = np.empty(begins[size], np.int32)
    fill = begins[:-1].copy()
    for arc in range(arcs):
        to = table[arc]
        if to >= 0:
            sources[fill[to]] = arc // (columns + 1)
            fill[to] += 1
    alive = np.zeros(size, np.bool_)
    waiting = np.empty(size, np.int32)
    depth = 0
    for pair in range(size):
        if final[left[pair]] and other_final[right[pair]]:
            alive[pair] = True
            waiting[depth] = pair
            depth += 1
    while depth:
        depth -= 1
        pair = waiting[depth]
        for k in range(begins[pair], begins[pair + 1]):
            if not alive[sources[k]]:
                alive[sources[k]] = True
                waiting[depth] = sources[k]
                depth += 1
    for arc in range(arcs):
        if table[arc] >= 0 and not alive[table[arc]]:
            table[arc] = -1
    return left[:size].copy(), right[:size].copy(), table[:arcs].copy(), alive


@compiled
def _slot(left: Any, right: Any, size: Any) -> Any:
    mixed = np.uint64(left) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(right)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) % np.uint64(size))


@compiled
def number_keys(keys: Any, slots: Any, kept: Any, count: Any, numbers: Any) -> Any:
    """Number every key, one met before as before; returns how many are numbered then.

    Given:
        keys i64[K].
        slots i64[power of two, above 2 * (count + K)]: a table of numbers, -1 where free.
        kept i64[count + K or more]: the keys by number; `count` of them are known.

    Filled:
        numbers i32[K].
    """
    for k in range(len(keys)):
        slot = _slot(keys[k] >> 20, keys[k] & 0xFFFFF, len(slots))
        while slots[slot] >= 0 and kept[slots[slot]] != keys[k]:
            slot = (slot + 1) % len(slots)
        if slots[slot] < 0:
            slots[slot] = count
            kept[count] = keys[k]
            count += 1
        numbers[k] = slots[slot]
    return count
