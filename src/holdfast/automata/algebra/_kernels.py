"""Compiled walks over two machines at once: their difference, their equivalence, their isomorphism."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.composition._kernels import slot_of
from holdfast.automata.composition.frontiers import grown, rehashed

FIRST_ROOM = 1024
DIFFERENT, SAME, AMBIGUOUS = 0, 1, 2


@compiled
def arc_with(label: Any, begin: int, end: int, target: int) -> Any:
    """The first arc in begin:end, ascending in its label, with the wanted one; -1 if there is none."""
    low, high = begin, end
    while low < high:
        middle = (low + high) >> 1
        if label[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < end and label[low] == target else -1


@compiled
def subtract(
    offsets: Any,
    label: Any,
    nextstate: Any,
    start: int,
    without: Any,
    without_label: Any,
    without_next: Any,
    without_start: int,
) -> tuple[Any, Any, Any, Any]:
    """A walk with a second, deterministic machine along: which strings does it fall off?

    The second machine, B, has its arcs sorted by label; state V of B is where it has fallen off.

    Args:
        offsets: of A.
        label: of A; an arc with label 0 leaves B where it is.
        nextstate: of A.
        start: of A.
        without: offsets of B.
        without_label: labels of B, ascending in each state, none 0.
        without_next: nextstates of B.
        without_start: start of B; V of B if B is empty.

    Returns:
        States in order of first occurrence as a * (V + 1) + b, i64[n]; offsets i64[n + 1]; for each arc the
        arc of A i64[m], and the state that it enters i32[m].
    """
    lost = len(without) - 1
    wide = np.int64(lost + 1)
    room = FIRST_ROOM
    keys = np.empty(room, np.int64)
    ends = np.zeros(room + 1, np.int64)
    slots = rehashed(keys, 0, room)
    arc_room = FIRST_ROOM
    origin = np.empty(arc_room, np.int64)
    target = np.empty(arc_room, np.int32)
    keys[0] = start * wide + without_start
    at = slot_of(slots, keys[0])
    slots[at] = keys[0]
    slots[at + 1] = 0
    known = 1
    done = count = 0
    while done < known:
        left, right = keys[done] // wide, keys[done] % wide
        degree = offsets[left + 1] - offsets[left]
        if count + degree > arc_room:
            arc_room = max(2 * arc_room, count + degree)
            origin = grown(origin, arc_room)
            target = grown(target, arc_room)
        if known + degree > room:
            room = max(2 * room, known + degree)
            keys = grown(keys, room)
            ends = grown(ends, room + 1)
            slots = rehashed(keys, known, room)
        for arc in range(offsets[left], offsets[left + 1]):
            then = right
            if label[arc] != 0 and right != lost:
                found = arc_with(without_label, without[right], without[right + 1], label[arc])
                then = np.int64(lost) if found < 0 else np.int64(without_next[found])
            key = nextstate[arc] * wide + then
            at = slot_of(slots, key)
            if slots[at] < 0:
                slots[at] = key
                slots[at + 1] = known
                keys[known] = key
                known += 1
            origin[count] = arc
            target[count] = slots[at + 1]
            count += 1
        done += 1
        ends[done] = count
    return keys[:known], ends[: known + 1], origin[:count], target[:count]


@compiled
def root_of(parent: Any, ahead: Any, state: int) -> Any:
    """The root of a state; its `ahead` is afterwards measured from there."""
    root = state
    total = 0.0
    while parent[root] != root:
        total += ahead[root]
        root = parent[root]
    while parent[state] != root and state != root:
        above, step = parent[state], ahead[state]
        parent[state], ahead[state] = root, total
        total -= step
        state = above
    return root


@compiled
def same_strings(
    offsets: Any,
    label: Any,
    nextstate: Any,
    cost: Any,
    final: Any,
    start: int,
    other: int,
    delta: float,
) -> bool:
    """Whether two states of a deterministic machine accept the same strings at the same costs.

    Hopcroft and Karp's merging of states, in which a state remembers how much more its completions cost
    than those of the state it was merged with: F(x) = F(parent) + ahead.

    Args:
        offsets: of both machines side by side, every state on a path to a final one.
        label: labels, ascending in each state.
        nextstate: the states that arcs enter.
        cost: f64[E] of arcs, finite.
        final: f64[V] costs, inf where a state is not final.
        start: a state.
        other: another.
        delta: how much costs may differ.
    """
    states = len(offsets) - 1
    parent = np.arange(states)
    ahead = np.zeros(states)
    size = np.ones(states, np.int64)
    waiting = np.empty((states, 2), np.int64)
    more = np.empty(states)  # how much more the completions of the first cost
    waiting[0, 0], waiting[0, 1], more[0] = start, other, 0.0
    count = 1
    parent[start] = other
    size[other] = 2
    while count:
        count -= 1
        p, q, d = waiting[count, 0], waiting[count, 1], more[count]
        if (final[p] == np.inf) != (final[q] == np.inf):
            return False
        if final[p] < np.inf and abs(final[p] - final[q] - d) > delta:
            return False
        degree = offsets[p + 1] - offsets[p]
        if degree != offsets[q + 1] - offsets[q]:
            return False
        for step in range(degree):
            i, j = offsets[p] + step, offsets[q] + step
            if label[i] != label[j]:
                return False
            x, y = nextstate[i], nextstate[j]
            then = d + cost[j] - cost[i]
            top_x, top_y = root_of(parent, ahead, x), root_of(parent, ahead, y)
            gap = ahead[y] + then - ahead[x]  # F(root of x) - F(root of y)
            if top_x == top_y:
                if abs(gap) > delta:
                    return False
                continue
            if size[top_x] > size[top_y]:
                parent[top_y], ahead[top_y] = top_x, -gap
                size[top_x] += size[top_y]
            else:
                parent[top_x], ahead[top_x] = top_y, gap
                size[top_y] += size[top_x]
            waiting[count, 0], waiting[count, 1], more[count] = x, y, then
            count += 1
    return True


@compiled
def pair_states(
    offsets: Any,
    ilabel: Any,
    olabel: Any,
    nextstate: Any,
    cost: Any,
    final: Any,
    start: int,
    other: int,
    delta: float,
    partner: Any,
) -> int:
    """Follow two machines side by side from their starts, as far as there is no choice.

    The arcs of a state are sorted by labels, then by weight.

    Args:
        offsets: of both machines side by side.
        ilabel: labels.
        olabel: labels.
        nextstate: the states that arcs enter.
        cost: f64[E] weights of arcs.
        final: f64[V] final weights.
        start: of the first machine.
        other: the start of the second.
        delta: how much weights may differ.
        partner: i64[V], -1; the states paired are written to it.

    Returns:
        SAME if all that was followed agrees, DIFFERENT if no renumbering can help, AMBIGUOUS if arcs of one
        state with the same labels and nearly the same weight lead to different states.
    """
    waiting = np.empty(len(partner), np.int64)
    waiting[0] = start
    partner[start], partner[other] = other, start
    count = 1
    while count:
        count -= 1
        p = waiting[count]
        q = partner[p]
        degree = offsets[p + 1] - offsets[p]
        if degree != offsets[q + 1] - offsets[q]:
            return DIFFERENT
        if final[p] != final[q] and not abs(final[p] - final[q]) <= delta:
            return DIFFERENT
        for step in range(degree):
            i, j = offsets[p] + step, offsets[q] + step
            if ilabel[i] != ilabel[j] or olabel[i] != olabel[j]:
                return DIFFERENT
            if cost[i] != cost[j] and not abs(cost[i] - cost[j]) <= delta:
                return DIFFERENT
            for k in (i, j):
                if step and ilabel[k] == ilabel[k - 1] and olabel[k] == olabel[k - 1]:
                    near = cost[k] == cost[k - 1] or cost[k] - cost[k - 1] <= 2 * delta
                    if near and nextstate[k] != nextstate[k - 1]:
                        return AMBIGUOUS
        for step in range(degree):
            x, y = nextstate[offsets[p] + step], nextstate[offsets[q] + step]
            if partner[x] == -1 and partner[y] == -1:
                partner[x], partner[y] = y, x
                waiting[count] = x
                count += 1
            elif partner[x] != y or partner[y] != x:
                return DIFFERENT
    return SAME
