"""Compiled: a search by frontiers that drops what is too costly, and the machine of what it kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata._kernels import compiled, counting_order
from holdfast.automata.composition._kernels import A_SHIFT, B_MASK, F_BITS, hashed, join

# Why `search` came back.
DONE, TOO_MANY, DIVERGES = 0, 1, 2

FIRST_ROOM = 1024
NONE = -1


@compiled
def depths(offsets: Any, nextstate: Any, start: int, component: Any, components: int) -> Any:
    """For each state how many arcs between components the longest path from the start to it has.

    i32[V], -1 where no path leads. Components are numbered in topological order.
    """
    states = len(offsets) - 1
    begin, member = counting_order(component, components)
    of = np.full(components, NONE, np.int32)
    of[component[start]] = 0
    for place in range(components):
        if of[place] < 0:
            continue
        for at in range(begin[place], begin[place + 1]):
            state = member[at]
            for arc in range(offsets[state], offsets[state + 1]):
                target = component[nextstate[arc]]
                if target != place:
                    of[target] = max(of[target], of[place] + 1)
    depth = np.empty(states, np.int32)
    for state in range(states):
        depth[state] = of[component[state]]
    return depth


@compiled
def grown(values: Any, room: int) -> Any:
    """The same values with room for more."""
    larger = np.empty(room, values.dtype)
    larger[: len(values)] = values
    return larger


@compiled
def slot_of(slots: Any, key: Any) -> Any:
    """Where a key stands in an open-addressing table [2 * slots], or would."""
    wrap = len(slots) // 2 - 1
    place = hashed(key) & wrap
    while slots[2 * place] != key and slots[2 * place] >= 0:
        place = (place + 1) & wrap
    return 2 * place


@compiled
def rehashed(keys: Any, count: int, room: int) -> Any:
    """A table of the first `count` keys with room for `room` at half load."""
    size = 4
    while size < 4 * room:
        size *= 2
    slots = np.full(size, NONE, np.int64)
    for number in range(count):
        at = slot_of(slots, keys[number])
        slots[at] = keys[number]
        slots[at + 1] = number
    return slots


class Found(NamedTuple):
    """The states that a search has found, with room for more, in order of discovery; 0 is the start."""

    key: Any
    """i64[room]"""
    cost: Any
    """f64[room] of the best path from the start so far."""
    behind: Any
    """i64[room] the state found next in the same frontier."""
    waiting: Any
    """i64[room] the next state in the queue."""
    rounds: Any
    """i64[room] how often the state, n, has left the queue; -1 - n while it is in it."""
    kept: Any
    """bool[room]"""
    slots: Any
    """i64[2 * slots] table from key to state."""


class Frontiers(NamedTuple):
    """The frontiers of a search; each is a chain of states in order of discovery."""

    head: Any
    """i64[frontiers] the first state, -1 where there is none."""
    tail: Any
    """i64[frontiers] the last state."""
    best: Any
    """f64[frontiers] the lowest cost."""
    queue: Any
    """i64[3] first and last state of the queue, -1 if it is empty; how many states were found."""


FIRST, LAST, COUNT = 0, 1, 2


@compiled
def with_room(found: Any, count: int, wanted: int) -> Any:
    """What was found, with room for `wanted` more."""
    room = len(found.key)
    if count + wanted <= room:
        return found
    while count + wanted > room:
        room *= 2
    key = grown(found.key, room)
    return Found(
        key,
        grown(found.cost, room),
        grown(found.behind, room),
        grown(found.waiting, room),
        grown(found.rounds, room),
        grown(found.kept, room),
        rehashed(key, count, room),
    )


@compiled
def enqueue(found: Any, queue: Any, state: int) -> None:
    """Put a state at the end of the queue."""
    found.waiting[state] = NONE
    if queue[FIRST] == NONE:
        queue[FIRST] = state
    else:
        found.waiting[queue[LAST]] = state
    queue[LAST] = state


@compiled
def found_at(found: Any, fronts: Any, at: Any, target: Any, ahead: Any) -> Any:
    """A new state, entered at a slot of the table and at the end of its frontier: its number."""
    number = fronts.queue[COUNT]
    fronts.queue[COUNT] += 1
    found.slots[at] = target
    found.slots[at + 1] = number
    found.key[number] = target
    found.behind[number] = NONE
    found.rounds[number] = 0
    found.kept[number] = False
    if fronts.head[ahead] == NONE:
        fronts.head[ahead] = number
    else:
        found.behind[fronts.tail[ahead]] = number
    fronts.tail[ahead] = number
    return number


@compiled
def relax(
    a: Any,
    b: Any,
    segments: Any,
    made: int,
    state: int,
    depth: Any,
    frontier: int,
    forward: bool,
    beam: float,
    found: Any,
    fronts: Any,
) -> None:
    """Take the steps from a state that leave its frontier, or those that do not, and lower costs."""
    for row in range(made):
        for left in range(segments[row, 0], segments[row, 0] + segments[row, 2]):
            target_a = np.int64(a.nextstate[left])
            ahead = depth[target_a]
            if (ahead != frontier) != forward:
                continue
            so_far = found.cost[state] + a.weight[left]
            high = (target_a << A_SHIFT) | np.int64(segments[row, 4])
            for right in range(segments[row, 1], segments[row, 1] + segments[row, 3]):
                cost = so_far + b.weight[right]
                if cost > fronts.best[ahead] + beam:
                    continue
                fronts.best[ahead] = min(fronts.best[ahead], cost)
                target = high | (np.int64(b.nextstate[right]) << F_BITS)
                at = slot_of(found.slots, target)
                if found.slots[at] < 0:
                    number = found_at(found, fronts, at, target, ahead)
                else:
                    number = found.slots[at + 1]
                    if cost >= found.cost[number]:
                        continue
                found.cost[number] = cost
                if not forward and found.rounds[number] >= 0:
                    found.rounds[number] = -1 - found.rounds[number]
                    enqueue(found, fronts.queue, number)


@compiled
def prune(found: Any, fronts: Any, frontier: int, beam: float, most_active: int) -> int:
    """Mark what a settled frontier keeps, and queue it in order of discovery: how many states."""
    worst = fronts.best[frontier] + beam
    members = 0
    state = fronts.head[frontier]
    while state != NONE:
        members += found.cost[state] <= worst
        state = found.behind[state]
    costs = np.empty(members, np.float64)
    members = 0
    state = fronts.head[frontier]
    while state != NONE:
        if found.cost[state] <= worst:
            costs[members] = found.cost[state]
            members += 1
        state = found.behind[state]
    equals = members  # how many of cost `worst` may stay
    if members > most_active:
        worst = np.partition(costs, most_active - 1)[most_active - 1]
        equals = most_active - (costs < worst).sum()
    keeping = 0
    state = fronts.head[frontier]
    while state != NONE:
        keep = found.cost[state] <= worst
        if keep and found.cost[state] == worst:
            keep = equals > 0
            equals -= 1
        if keep or state == 0:
            found.kept[state] = True
            keeping += 1
            enqueue(found, fronts.queue, state)
        state = found.behind[state]
    return keeping


@compiled
def search(
    a: Any,
    b: Any,
    plan: Any,
    start: int,
    depth: Any,
    turns: Any,
    beam: float,
    most_active: int,
    most_states: int,
) -> tuple[int, Any, Any, Any]:
    """Which states of the composition a beam keeps.

    The frontiers are taken one after the other. In each, the costs of its states are settled along the
    moves that stay in it (a queue, first in first out); then it is pruned; then what is kept is expanded
    into the frontiers behind.

    Args:
        a: the side of A, with costs for weights, f64.
        b: the side of B, likewise.
        plan: how they match.
        start: key of the start, which is always kept.
        depth: [V of A] the frontier that a state of A belongs to.
        turns: [V of A] whether the state has arcs within its frontier.
        beam: how much worse than the best of its frontier a state may be.
        most_active: how many states a frontier may keep.
        most_states: how many may be kept in all.

    Returns:
        Why it ended; the keys of the states found [N], whether each is kept [N], and their table.
    """
    frontiers = depth.max() + 1
    fronts = Frontiers(
        np.full(frontiers, NONE, np.int64),
        np.full(frontiers, NONE, np.int64),
        np.full(frontiers, np.inf),
        np.array([NONE, NONE, 0]),
    )
    found = Found(
        np.empty(FIRST_ROOM, np.int64),
        np.empty(FIRST_ROOM, np.float64),
        np.empty(FIRST_ROOM, np.int64),
        np.empty(FIRST_ROOM, np.int64),
        np.empty(FIRST_ROOM, np.int64),
        np.empty(FIRST_ROOM, np.bool_),
        rehashed(np.empty(0, np.int64), 0, FIRST_ROOM),
    )
    one = np.empty(1, np.int64)
    ends = np.zeros(2, np.int64)
    segments = np.empty((plan.longest, 5), a.span.dtype)
    queue = fronts.queue
    origin = depth[start >> A_SHIFT]
    found.cost[found_at(found, fronts, slot_of(found.slots, start), start, origin)] = 0.0
    fronts.best[origin] = 0.0
    keeping = 0
    for frontier in range(frontiers):
        state = fronts.head[frontier]
        while state != NONE:
            found.rounds[state] = -1
            enqueue(found, queue, state)
            state = found.behind[state]
        for forward in (False, True):
            if forward:
                keeping += prune(found, fronts, frontier, beam, most_active)
                if keeping > most_states:
                    return (
                        TOO_MANY,
                        found.key[: queue[COUNT]],
                        found.kept[: queue[COUNT]],
                        found.slots,
                    )
            while queue[FIRST] != NONE:
                state = queue[FIRST]
                queue[FIRST] = found.waiting[state]
                one[0] = found.key[state]
                if not forward:
                    found.rounds[state] = -found.rounds[state]
                    if found.rounds[state] > queue[COUNT] + 1:
                        return DIVERGES, found.key[state : state + 1], found.kept[:0], found.slots
                    if found.cost[state] > fronts.best[frontier] + beam:
                        continue
                    if (
                        not turns[one[0] >> A_SHIFT]
                        and b.epsilons[(one[0] >> F_BITS) & B_MASK] == 0
                    ):
                        continue
                _, made = join(a, b, plan.exact, plan.moves, one, 0, 1, ends, segments)
                found = with_room(found, queue[COUNT], ends[1])
                relax(a, b, segments, made, state, depth, frontier, forward, beam, found, fronts)
    return DONE, found.key[: queue[COUNT]], found.kept[: queue[COUNT]], found.slots


@compiled
def kept_machine(
    a: Any, b: Any, plan: Any, key: Any, kept: Any, slots: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """The part of the composition that the kept states are, from the start, numbered breadth first.

    Returns:
        Keys of its states i64[V], offsets i64[V + 1], and of its arcs the positions on side A i64[E], on
        side B i64[E], and the states that they enter i32[E].
    """
    states = kept.sum()
    number = np.full(len(key), NONE, np.int64)
    queue = np.empty(states, np.int64)
    offsets = np.zeros(states + 1, np.int64)
    room = FIRST_ROOM
    at_a = np.empty(room, np.int64)
    at_b = np.empty(room, np.int64)
    nextstate = np.empty(room, np.int32)
    one = np.empty(1, np.int64)
    ends = np.zeros(2, np.int64)
    segments = np.empty((plan.longest, 5), a.span.dtype)
    queue[0] = key[0]
    number[0] = 0
    known = 1
    done = arcs = 0
    while done < known:
        one[0] = queue[done]
        _, made = join(a, b, plan.exact, plan.moves, one, 0, 1, ends, segments)
        if arcs + ends[1] > room:
            room = max(2 * room, arcs + ends[1])
            at_a = grown(at_a, room)
            at_b = grown(at_b, room)
            nextstate = grown(nextstate, room)
        for row in range(made):
            for left in range(segments[row, 0], segments[row, 0] + segments[row, 2]):
                high = (np.int64(a.nextstate[left]) << A_SHIFT) | np.int64(segments[row, 4])
                for right in range(segments[row, 1], segments[row, 1] + segments[row, 3]):
                    at = slot_of(slots, high | (np.int64(b.nextstate[right]) << F_BITS))
                    if slots[at] < 0 or not kept[slots[at + 1]]:
                        continue
                    target = slots[at + 1]
                    if number[target] == NONE:
                        number[target] = known
                        queue[known] = key[target]
                        known += 1
                    at_a[arcs] = left
                    at_b[arcs] = right
                    nextstate[arcs] = number[target]
                    arcs += 1
        done += 1
        offsets[done] = arcs
    return queue[:known], offsets[: known + 1], at_a[:arcs], at_b[:arcs], nextstate[:arcs]


@compiled
def steps_of(a: Any, b: Any, plan: Any, key: int) -> tuple[Any, Any, Any]:
    """The steps from one state: positions on side A i64[n], on side B i64[n], keys entered i64[n]."""
    one = np.full(1, key)
    ends = np.zeros(2, np.int64)
    segments = np.empty((plan.longest, 5), a.span.dtype)
    _, made = join(a, b, plan.exact, plan.moves, one, 0, 1, ends, segments)
    at_a = np.empty(ends[1], np.int64)
    at_b = np.empty(ends[1], np.int64)
    target = np.empty(ends[1], np.int64)
    slot = 0
    for row in range(made):
        for left in range(segments[row, 0], segments[row, 0] + segments[row, 2]):
            high = (np.int64(a.nextstate[left]) << A_SHIFT) | np.int64(segments[row, 4])
            for right in range(segments[row, 1], segments[row, 1] + segments[row, 3]):
                at_a[slot] = left
                at_b[slot] = right
                target[slot] = high | (np.int64(b.nextstate[right]) << F_BITS)
                slot += 1
    return at_a, at_b, target
