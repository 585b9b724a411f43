"""Compiled steps of the bound on other texts: a trie of bytes, and sums of open mass along its paths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled

NEGLIGIBLE = -46.0
"""Logarithm below which a piece only adds to the slack: a trillion of them are 1e-8 of the reference."""


@compiled
def insert(
    keys: Any,
    values: Any,
    parent: Any,
    size: int,
    at: Any,
    tokens: Any,
    text: Any,
    begin: Any,
    out: Any,
) -> int:
    """Walk down the trie from `at[k]` along the bytes of `tokens[k]`, making what is not there.

    Args:
        keys: i64[2^k] of the edges, (node << 8) | byte, -1 where free; roomy enough.
        values: i32[2^k] the node that an edge leads to.
        parent: i32[room] of every node.
        size: nodes so far.
        at: i32[n] where each walk starts; a negative one, -1 - j, starts where walk j ended.
        tokens: i32[n].
        text: u8[bytes] the pieces of all tokens.
        begin: i64[V + 1] where each token's piece begins.
        out: i32[n] filled with the nodes reached.

    Returns:
        Nodes now.
    """
    mask = len(keys) - 1
    for walk in range(len(tokens)):
        node = np.int64(at[walk]) if at[walk] >= 0 else np.int64(out[-1 - at[walk]])
        token = tokens[walk]
        for place in range(begin[token], begin[token + 1]):
            key = (node << 8) | np.int64(text[place])
            slot = ((key * np.int64(0x9E3779B97F4A7C1)) >> np.int64(20)) & mask
            while keys[slot] != -1 and keys[slot] != key:
                slot = (slot + 1) & mask
            if keys[slot] == -1:
                keys[slot] = key
                values[slot] = size
                parent[size] = node
                size += 1
            node = np.int64(values[slot])
        out[walk] = node
    return size


@compiled
def rehashed(keys: Any, values: Any, room: int) -> Any:
    """The edges in a table of `room` slots, a power of two."""
    new_keys = np.full(room, -1, np.int64)
    new_values = np.empty(room, np.int32)
    mask = room - 1
    for old in range(len(keys)):
        key = keys[old]
        if key != -1:
            slot = ((key * np.int64(0x9E3779B97F4A7C1)) >> np.int64(20)) & mask
            while new_keys[slot] != -1:
                slot = (slot + 1) & mask
            new_keys[slot] = key
            new_values[slot] = values[old]
    return new_keys, new_values


@compiled
def bound(
    parent: Any,
    size: int,
    where: Any,
    log: Any,
    longer: Any,
    count: int,
    text_nodes: Any,
    text_logs: Any,
    reference: float,
    tolerance: float,
    limit: float,
    upper: Any,
) -> Any:
    """Upper bound of the mass of every text, in units of exp(reference).

    A piece adds its mass to every text that starts with the piece's text; a `longer` piece only to longer
    texts. So the most that a text not found can have is the largest sum along a path of the trie.

    Args:
        parent: i32[>= size] of every node of the trie; parents come first, -1 for the root.
        size: nodes.
        where: i32[>= count] the node of each piece.
        log: f64[>= count] log of its mass; -inf for a removed piece.
        longer: bool[>= count].
        count: number of pieces.
        text_nodes: i32[n] the nodes of texts found.
        text_logs: f64[n] log of their mass; -inf for one that does not matter.
        reference: see above.
        tolerance: share of its mass that a found text may still gain, once it is equal.
        limit: mass that a text must exceed to matter.
        upper: f64[n] filled with the bounds of the found texts.

    Returns:
        (pieces to expand: the largest of each path on which a text could exceed the limit; the largest sum
        of a path).
    """
    here = np.zeros(size)
    below = np.zeros(size)
    largest_here = np.full(size, -1, np.int32)
    largest = np.full(size, -1, np.int32)
    slack = 0.0
    for piece in range(count):
        exponent = log[piece] - reference
        if exponent < NEGLIGIBLE:
            if exponent > -np.inf:
                slack += 1e-20
            continue
        mass = math.exp(min(exponent, 700.0))
        node = where[piece]
        if longer[piece]:
            below[node] += mass
        else:
            here[node] += mass
            if largest_here[node] < 0 or log[piece] > log[largest_here[node]]:
                largest_here[node] = piece
        if largest[node] < 0 or log[piece] > log[largest[node]]:
            largest[node] = piece

    wanted = np.zeros(count, np.bool_)
    total = np.zeros(size)
    most = slack
    for node in range(size):
        above = parent[node]
        total[node] = here[node] + below[node]
        some = largest[node] >= 0
        if above >= 0:
            total[node] += total[above]
            over = largest[above]
            if over >= 0:
                if largest_here[node] < 0 or log[over] >= log[largest_here[node]]:
                    largest_here[node] = over
                if largest[node] < 0 or log[over] >= log[largest[node]]:
                    largest[node] = over
        if some:
            most = max(most, total[node] + slack)
            if total[node] + slack > limit:
                wanted[largest[node]] = True
    for place in range(len(text_nodes)):
        if text_logs[place] == -np.inf:
            upper[place] = 0.0
            continue
        node = text_nodes[place]
        mass = math.exp(min(text_logs[place] - reference, 700.0))
        gain = total[node] - below[node] + slack
        upper[place] = mass + gain
        if mass + gain > limit and gain > tolerance * mass and largest_here[node] >= 0:
            wanted[largest_here[node]] = True
    return np.flatnonzero(wanted), most
