"""Compiled walks over the trie of a vocabulary, and the tables that they fill."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.automata._kernels import compiled

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = TypeVar("Array", I32, I64)

BITS = 32
_UNKNOWN, _DEAD = -2, -1

# The place of the lowest bit set: multiplying by this number puts a different five bits on top for each.
_DE_BRUIJN = 0x077CB531
_PLACE = np.zeros(32, np.int64)
_PLACE[[((_DE_BRUIJN << k) & 0xFFFFFFFF) >> 27 for k in range(32)]] = np.arange(32)


@compiled
def preorder(text: U8, ends: I64, byte: U8, depth: U16, skip: I32, first: I32) -> int:
    """The trie of pieces sorted by their bytes, in preorder; returns its number of nodes.

    `text` holds the pieces one after another, `ends` where each ends. `first[i]` becomes the number of
    pieces that end at nodes before i: sorted piece k ends at node i iff first[i] <= k < first[i + 1].
    """
    longest = 0
    begin = 0
    for end in ends:
        longest = max(longest, end - begin)
        begin = end
    open_nodes = np.empty(longest + 1, np.int32)
    size = before = before_size = begin = 0
    for k in range(len(ends)):
        length = ends[k] - begin
        shared = 0
        while (
            shared < length
            and shared < before_size
            and text[begin + shared] == text[before + shared]
        ):
            shared += 1
        for level in range(shared, before_size):
            skip[open_nodes[level]] = size
        for level in range(shared, length):
            byte[size] = text[begin + level]
            depth[size] = level
            open_nodes[level] = size
            first[size] = k
            size += 1
        before, before_size, begin = begin, length, ends[k]
    for level in range(before_size):
        skip[open_nodes[level]] = size
    first[size] = len(ends)
    return size


@compiled
def walk(
    byte: U8,
    depth: U16,
    skip: I32,
    first: I32,
    tokens: I32,
    longest: int,
    classes: U8,
    after: I32,
    state: int,
    mask: U32,
    reached: I32,
) -> int:
    """Which tokens a state lets through, and where they lead; returns their number.

    The trie is that of `Lexicon`, classes[256] and after[states, classes] (-1 where nothing follows) are
    those of `ByteDfa`. In mask[ceil(V / 32)], which is zero before, a bit is set for each token, and
    reached[V] becomes the state that it leads to.
    """
    states = np.empty(longest + 1, np.int32)
    states[0] = state
    count = node = 0
    while node < len(byte):
        level = int(depth[node])
        follows = after[states[level], classes[byte[node]]]
        if follows < 0:
            node = int(skip[node])
            continue
        states[level + 1] = follows
        for k in range(first[node], first[node + 1]):
            token = int(tokens[k])
            word = token // BITS
            mask[word] = np.uint32(int(mask[word]) | (1 << (token % BITS)))
            reached[token] = follows
            count += 1
        node += 1
    return count


@compiled
def sweep(mask: U32, reached: I32, tokens: I32, nextstate: I32) -> None:
    """The tokens of a mask in ascending order, and where each leads."""
    count = 0
    for word in range(len(mask)):
        bits = int(mask[word])
        while bits:
            low = bits & -bits
            token = word * BITS + _PLACE[((low * _DE_BRUIJN) & 0xFFFFFFFF) >> 27]
            tokens[count] = token
            nextstate[count] = reached[token]
            count += 1
            bits ^= low


@compiled
def set_bits(tokens: I32, mask: U32) -> None:
    """Set the bit of every token."""
    for k in range(len(tokens)):
        token = int(tokens[k])
        word = token // BITS
        mask[word] = np.uint32(int(mask[word]) | (1 << (token % BITS)))


@compiled
def _longer(values: Array, size: int, empty: int) -> Array:
    """The array with room for `size` values at least; new places hold `empty`."""
    if size <= len(values):
        return values
    grown = np.empty(max(size, 2 * len(values)), values.dtype)
    grown[:] = empty
    # A loop: the assignment of a slice would take Numba seconds, for the message about shapes.
    for k in range(len(values)):
        grown[k] = values[k]
    return grown


@compiled
def effects(
    byte: U8,
    depth: U16,
    skip: I32,
    first: I32,
    tokens: I32,
    longest: int,
    classes: U8,
    after: I32,
    sources: I32,
    effect_of: I32,
) -> tuple[I64, I32, I32]:
    """Group the tokens by what they do to the states of an automaton.

    The effect of a text is the list of pairs (state, state that follows), states where it is dead left out.
    One walk of the trie (that of `Lexicon`) finds the effects of all tokens: a child's is its parent's
    after one more byte, looked up where that parent and that class of bytes (those of `ByteDfa`) were met
    before. Tokens are wanted of the states `sources` alone. effect_of[V], -1 before, becomes the effect of
    every token that one of them lets through.

    Returns:
        offsets [effects + 1] into two arrays: states, and the states that follow them. Effect 0 is that of
        the empty text.
    """
    width = after.shape[1]
    source, target = sources.copy(), sources.copy()
    offsets = np.zeros(64, np.int64)
    offsets[1] = len(sources)
    keys = np.zeros(64, np.int64)
    children = np.full(64 * width, _UNKNOWN, np.int32)
    table = np.full(256, -1, np.int32)
    keys[0] = _key(sources, sources)
    table[keys[0] & (len(table) - 1)] = 0
    number = 1
    opened = np.zeros(longest + 1, np.int32)
    node = 0
    while True:
        node = _follow(
            byte, depth, skip, first, tokens, classes, children, width, opened, effect_of, node
        )
        if node == len(byte):
            break
        parent = opened[depth[node]]
        begin, end, top = offsets[parent], offsets[parent + 1], offsets[number]
        source = _longer(source, top + end - begin, 0)
        target = _longer(target, top + end - begin, 0)
        fill = top
        for k in range(begin, end):
            follows = after[target[k], classes[byte[node]]]
            if follows >= 0:
                source[fill] = source[k]
                target[fill] = follows
                fill += 1
        effect = np.int32(_DEAD)
        if fill > top:
            key = _key(source[top:fill], target[top:fill])
            slot = _slot(table, keys, offsets, source, target, key, top, fill)
            effect = table[slot]
            if effect < 0:
                effect = table[slot] = np.int32(number)
                number += 1
                offsets = _longer(offsets, number + 1, 0)
                offsets[number] = fill
                keys = _longer(keys, number, 0)
                keys[effect] = key
                children = _longer(children, number * width, _UNKNOWN)
                if 2 * number > len(table):
                    table = _rehashed(keys[:number], 2 * len(table))
        children[parent * width + classes[byte[node]]] = effect
    top = offsets[number]
    return offsets[: number + 1].copy(), source[:top].copy(), target[:top].copy()


@compiled
def _follow(
    byte: U8,
    depth: U16,
    skip: I32,
    first: I32,
    tokens: I32,
    classes: U8,
    children: I32,
    width: int,
    opened: I32,
    effect_of: I32,
    node: int,
) -> int:
    """Walk on through known effects, writing down the tokens'; returns the first node of unknown effect."""
    while node < len(byte):
        level = int(depth[node])
        effect = children[opened[level] * width + classes[byte[node]]]
        if effect >= 0:
            opened[level + 1] = effect
            for k in range(first[node], first[node + 1]):
                effect_of[tokens[k]] = effect
            node += 1
        elif effect == _DEAD:
            node = int(skip[node])
        else:
            break
    return node


@compiled
def _slot(
    table: I32, keys: I64, offsets: I64, source: I32, target: I32, key: int, begin: int, end: int
) -> int:
    """Where in the table the effect with the pairs from `begin` to `end` stands, or would stand."""
    slot = key & (len(table) - 1)
    while table[slot] >= 0:
        other = table[slot]
        if keys[other] == key and offsets[other + 1] - offsets[other] == end - begin:
            shift = offsets[other] - begin
            k = begin
            while k < end and source[k + shift] == source[k] and target[k + shift] == target[k]:
                k += 1
            if k == end:
                break
        slot = (slot + 1) & (len(table) - 1)
    return slot


@compiled
def _rehashed(keys: I64, size: int) -> I32:
    table = np.full(size, -1, np.int32)
    for effect in range(len(keys)):
        slot = keys[effect] & (size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = effect
    return table


@compiled
def _key(source: I32, target: I32) -> int:
    """A hash of pairs."""
    key = 1469598103934665603
    for k in range(len(source)):
        key = (key ^ (int(source[k]) << 32 | int(target[k]))) * 1099511628211
        key ^= key >> 29
    return key


@compiled
def members(effect_of: I32, number: int) -> tuple[I64, I32]:
    """Offsets i64[number + 1] and tokens i32[...] of each effect, ascending."""
    offsets = np.zeros(number + 1, np.int64)
    for token in range(len(effect_of)):
        if effect_of[token] >= 0:
            offsets[effect_of[token] + 1] += 1
    for effect in range(number):
        offsets[effect + 1] += offsets[effect]
    fill = offsets[:-1].copy()
    tokens = np.empty(offsets[number], np.int32)
    for token in range(len(effect_of)):
        effect = effect_of[token]
        if effect >= 0:
            tokens[fill[effect]] = token
            fill[effect] += 1
    return offsets, tokens


@compiled
def rows(
    offsets: I64, source: I32, target: I32, token_offsets: I64, states: int
) -> tuple[I64, I32, I32]:
    """The pairs of all effects that tokens have, by state: offsets [states + 1], effects, next states."""
    row = np.zeros(states + 1, np.int64)
    for effect in range(len(offsets) - 1):
        if token_offsets[effect + 1] > token_offsets[effect]:
            for k in range(offsets[effect], offsets[effect + 1]):
                row[source[k] + 1] += 1
    for state in range(states):
        row[state + 1] += row[state]
    fill = row[:-1].copy()
    label = np.empty(row[states], np.int32)
    follows = np.empty(row[states], np.int32)
    for effect in range(len(offsets) - 1):
        if token_offsets[effect + 1] > token_offsets[effect]:
            for k in range(offsets[effect], offsets[effect + 1]):
                place = fill[source[k]]
                label[place] = effect
                follows[place] = target[k]
                fill[source[k]] += 1
    return row, label, follows


@compiled
def expand(
    row: I64,
    label: I32,
    follows: I32,
    token_offsets: I64,
    members_of: I32,
    effect_of: I32,
    live: I32,
    begin: int,
    end: int,
    tokens: I32,
    nextstate: I32,
) -> None:
    """Fill in the arcs of the states from `begin` to `end`, one after another, tokens ascending.

    The effects of every state are as `rows` gives them, the tokens of every effect as `members` does;
    `live` are the tokens that have one, ascending.
    """
    mask = np.zeros((len(effect_of) + BITS - 1) // BITS, np.uint32)
    reached = np.empty(len(effect_of), np.int32)
    to = np.full(len(token_offsets), -1, np.int32)
    fill = 0
    for state in range(begin, end):
        count = 0
        for k in range(row[state], row[state + 1]):
            count += token_offsets[label[k] + 1] - token_offsets[label[k]]
        if row[state + 1] - row[state] == 1:
            k = row[state]
            for place in range(token_offsets[label[k]], token_offsets[label[k] + 1]):
                tokens[fill] = members_of[place]
                nextstate[fill] = follows[k]
                fill += 1
        elif 8 * count > len(live):
            # One pass over all tokens costs less than putting many in order.
            for k in range(row[state], row[state + 1]):
                to[label[k]] = follows[k]
            done = fill + count
            for token in live:
                leads = to[effect_of[token]]
                if leads >= 0 and fill < done:
                    tokens[fill] = token
                    nextstate[fill] = leads
                    fill += 1
            for k in range(row[state], row[state + 1]):
                to[label[k]] = -1
        else:
            for k in range(row[state], row[state + 1]):
                for place in range(token_offsets[label[k]], token_offsets[label[k] + 1]):
                    token = int(members_of[place])
                    word = token // BITS
                    mask[word] = np.uint32(int(mask[word]) | (1 << (token % BITS)))
                    reached[token] = follows[k]
            sweep(mask, reached, tokens[fill : fill + count], nextstate[fill : fill + count])
            mask[:] = 0
            fill += count
