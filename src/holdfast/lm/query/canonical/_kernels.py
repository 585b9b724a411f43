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
