"""Compiled counting of paths in whole numbers of any size, paths by rank, and random walks.

A number is a row of K limbs of 62 bits in int64, the lowest first; so the sum of two limbs and a carry
is an int64 too. Tables of numbers have layers: layer l counts the paths of at most l arcs; a table of a
machine without cycles has one layer, that of all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled

LIMB_BITS = 62
LIMB = (1 << LIMB_BITS) - 1


@compiled
def add_to(sums: Any, addend: Any) -> None:
    """Add one number, a row of limbs, to another in place."""
    carry = 0
    for k in range(len(sums)):
        limb = sums[k] + addend[k] + carry
        sums[k] = limb & LIMB
        carry = limb >> LIMB_BITS


@compiled
def take_from(rest: Any, taken: Any) -> bool:
    """Subtract a number in place if it is not greater; False, and nothing is done, if it is."""
    for k in range(len(rest) - 1, -1, -1):
        if rest[k] != taken[k]:
            if rest[k] < taken[k]:
                return False
            break
    borrow = 0
    for k in range(len(rest)):
        limb = rest[k] - taken[k] - borrow
        borrow = 1 if limb < 0 else 0
        rest[k] = limb & LIMB
    return True


@compiled
def count_onward(
    offsets: Any, nextstate: Any, is_final: Any, order: Any, counts: Any, before: Any
) -> None:
    """How many paths lead from each state to a final one, into counts i64[V, K], which holds zeros.

    Args:
        offsets: i64[V + 1].
        nextstate: i32[E].
        is_final: bool[V].
        order: the states, targets later than sources (in any order if `before` is another table).
        counts: i64[V, K], all 0.
        before: i64[V, K], the counts of the states that arcs enter: `counts` itself, or the layer below.
    """
    for at in range(len(order) - 1, -1, -1):
        state = order[at]
        counts[state, 0] = 1 if is_final[state] else 0
        for arc in range(offsets[state], offsets[state + 1]):
            add_to(counts[state], before[nextstate[arc]])


@compiled
def by_rank(
    offsets: Any, nextstate: Any, is_final: Any, start: int, counts: Any, ranks: Any
) -> tuple[Any, Any]:
    """The paths of some ranks: each rank below the number of paths has one path, and each path one rank.

    Args:
        offsets: i64[V + 1].
        nextstate: i32[E].
        is_final: bool[V].
        start: the state in which paths begin.
        counts: i64[L, V, K], layers of `count_onward`.
        ranks: i64[n, K], each less than the count of the start in the last layer; used up.

    Returns:
        Bounds i64[n + 1] and the arcs of all paths, i64[*].
    """
    layers = len(counts)
    bounds = np.zeros(len(ranks) + 1, np.int64)
    arcs = np.empty(1024, np.int64)
    used = 0
    for path in range(len(ranks)):
        rank = ranks[path]
        state, layer = start, layers - 1
        while True:
            if is_final[state]:
                if not rank.any():
                    break
                for k in range(len(rank)):  # minus one
                    rank[k] -= 1
                    if rank[k] >= 0:
                        break
                    rank[k] = LIMB
            if layers > 1:
                layer -= 1
            for arc in range(offsets[state], offsets[state + 1]):
                if not take_from(rank, counts[layer, nextstate[arc]]):
                    if used == len(arcs):
                        more = np.empty(2 * used, np.int64)
                        more[:used] = arcs
                        arcs = more
                    arcs[used] = arc
                    used += 1
                    state = nextstate[arc]
                    break
        bounds[path + 1] = used
    return bounds, arcs[:used].copy()


@compiled
def step_chances(offsets: Any, nextstate: Any, weight: Any, final: Any, onward: Any) -> Any:
    """The chance of each next step, summed up within each state: f64[E + V].

    The steps of state s stand at offsets[s] + s: first that the path ends, then its arcs.
    """
    chances = np.empty(len(weight) + len(final), np.float64)
    for state in range(len(final)):
        if onward[state] == np.inf:
            chances[offsets[state] + state : offsets[state + 1] + state + 1] = 0.0
            continue
        total = math.exp(onward[state] - final[state])
        chances[offsets[state] + state] = total
        for arc in range(offsets[state], offsets[state + 1]):
            total += math.exp(onward[state] - weight[arc] - onward[nextstate[arc]])
            chances[arc + state + 1] = total
    return chances


@compiled
def walk(
    offsets: Any,
    nextstate: Any,
    chances: Any,
    start: int,
    uniforms: Any,
    bounds: Any,
    arcs: Any,
    progress: Any,
) -> None:
    """Walk at random until all paths are drawn or the random numbers, one a step, are used up.

    Args:
        offsets: i64[V + 1].
        nextstate: i32[E].
        chances: f64[E + V], of `step_chances`.
        start: the state in which paths begin.
        uniforms: f64[U], random numbers in [0, 1).
        bounds: i64[n + 1], filled.
        arcs: i64[*], filled; there is room for U more.
        progress: i64[3]: paths drawn, arcs used, the state in which the walk is.
    """
    done, used, state = progress
    for uniform in uniforms:
        if done == len(bounds) - 1:
            break
        begin, end = offsets[state] + state, offsets[state + 1] + state + 1
        # Scaled by the last sum, which rounding leaves beside 1.
        step = np.searchsorted(chances[begin:end], uniform * chances[end - 1], "right") - 1
        if step < 0:
            done += 1
            bounds[done] = used
            state = start
        else:
            arcs[used] = offsets[state] + step
            used += 1
            state = nextstate[offsets[state] + step]
    progress[0], progress[1], progress[2] = done, used, state


@compiled
def sum_layer(offsets: Any, nextstate: Any, weight: Any, final: Any, below: Any, sums: Any) -> None:
    """One layer of the sums to the finals in the log semiring, f64[V], from the layer below."""
    for state in range(len(final)):
        least = final[state]
        for arc in range(offsets[state], offsets[state + 1]):
            least = min(least, weight[arc] + below[nextstate[arc]])
        if least == np.inf:
            sums[state] = np.inf
            continue
        total = math.exp(least - final[state])
        for arc in range(offsets[state], offsets[state + 1]):
            total += math.exp(least - weight[arc] - below[nextstate[arc]])
        sums[state] = least - math.log(total)


@compiled
def walk_bounded(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    layers: Any,
    start: int,
    uniforms: Any,
    bounds: Any,
    arcs: Any,
    progress: Any,
) -> None:
    """The same as `walk`, for paths of bounded length.

    `layers` f64[L + 1, V] are those of `sum_layer`; progress i64[4] also holds how many arcs may follow.
    """
    done, used, state, left = progress
    for uniform in uniforms:
        if done == len(bounds) - 1:
            break
        here = layers[left, state]
        rest = uniform - math.exp(here - final[state])
        taken = -1
        if rest >= 0.0 and left > 0:
            # The last arc that leads on stands in for what rounding leaves over.
            for arc in range(offsets[state], offsets[state + 1]):
                chance = math.exp(here - weight[arc] - layers[left - 1, nextstate[arc]])
                if chance > 0.0:
                    taken = arc
                    rest -= chance
                    if rest < 0.0:
                        break
        if taken < 0:
            done += 1
            bounds[done] = used
            state, left = start, len(layers) - 1
        else:
            arcs[used] = taken
            used += 1
            state = nextstate[taken]
            left -= 1
    progress[0], progress[1], progress[2], progress[3] = done, used, state, left
