"""Compiled: a search by frontiers that drops what is too costly, and the machine of what it kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata._kernels import compiled, counting_order
from holdfast.automata.composition._kernels import slot_of
from holdfast.automata.composition.joining import A_SHIFT, B_MASK, F_BITS, join

# Why `search` came back.
DONE, TOO_MANY, DIVERGES = 0, 1, 2

FIRST_ROOM = 1024
# States that are joined at once.
BATCH = 512
BATCH_SEGMENTS = 2048
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
    queue: Any
    """i64[room] states of the frontier whose costs fell since they were expanded."""
    queued: Any
    """bool[room] whether a state is in the queue."""
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


@compiled
def with_room(found: Any, count: int, extra: int) -> Any:
    """What was found, with room for `extra` more."""
    room = len(found.key)
    if count + extra <= room:
        return found
    while count + extra > room:
        room *= 2
    key = grown(found.key, room)
    return Found(
        key,
        grown(found.cost, room),
        grown(found.behind, room),
        grown(found.queue, room),
        grown(found.queued, room),
        grown(found.kept, room),
        rehashed(key, count, room),
    )


@compiled
def expand(
    a: Any,
    b: Any,
    plan: Any,
    found: Any,
    fronts: Any,
    count: int,
    states: Any,
    depth: Any,
    frontier: int,
    forward: bool,
    beam: float,
    scratch: Any,
) -> tuple[Any, int, int]:
    """Take the steps from some states of a frontier that leave it, or those that do not; lower costs.

    Batches are joined at once: a call costs more than a state, since every array is counted.

    Returns:
        What is found now, how many states, and how many of the frontier are queued again.
    """
    keys, ends, segments = scratch
    again = taken = 0
    while taken < len(states):
        batch = min(len(states) - taken, BATCH)
        for at in range(batch):
            keys[at] = found.key[states[taken + at]]
        # 1. Join a batch of state pairs: runs of arcs on both sides that match, as segments.
        done, _ = join(a, b, plan.exact, plan.moves, keys, 0, batch, ends, segments)
        found = with_room(found, count, ends[done])
        key, cost, behind, queue, queued, kept, slots = found
        head, tail, best = fronts
        row = 0
        for at in range(done):
            state = states[taken + at]
            left_over = ends[at + 1] - ends[at]
            while left_over > 0:
                first_a, first_b = segments[row, 0], segments[row, 1]
                many_a, many_b = np.int64(segments[row, 2]), np.int64(segments[row, 3])
                memory = np.int64(segments[row, 4])
                left_over -= many_a * many_b
                row += 1
                for left in range(first_a, first_a + many_a):
                    # 2. Every pair of a run is an arc of the composition; its target is a key of A, B and
                    # filter.
                    target_a = np.int64(a.nextstate[left])
                    ahead = depth[target_a]
                    if (ahead != frontier) != forward:
                        continue
                    so_far = cost[state] + a.weight[left]
                    high = (target_a << A_SHIFT) | memory
                    for right in range(first_b, first_b + many_b):
                        total = so_far + b.weight[right]
                        # 3. The beam is applied before the state is made, so the table holds no more than
                        # the beam needs.
                        if total > best[ahead] + beam:
                            continue
                        best[ahead] = min(best[ahead], total)
                        target = high | (np.int64(b.nextstate[right]) << F_BITS)
                        # 4. New states join their frontier; known ones keep the lower cost, and are queued
                        # if it fell.
                        slot = slot_of(slots, target)
                        if slots[slot] < 0:
                            number = count
                            count += 1
                            slots[slot] = target
                            slots[slot + 1] = number
                            key[number] = target
                            behind[number] = NONE
                            queued[number] = kept[number] = False
                            if head[ahead] == NONE:
                                head[ahead] = number
                            else:
                                behind[tail[ahead]] = number
                            tail[ahead] = number
                        else:
                            number = slots[slot + 1]
                            if total >= cost[number]:
                                continue
                        cost[number] = total
                        if not forward and not queued[number]:
                            queued[number] = True
                            queue[again] = number
                            again += 1
        taken += done
    return found, count, again


@compiled
def members(head: int, behind: Any) -> Any:
    """The states of a frontier in order of discovery: i64[n]."""
    count = 0
    state = head
    while state != NONE:
        count += 1
        state = behind[state]
    states = np.empty(count, np.int64)
    state = head
    for at in range(count):
        states[at] = state
        state = behind[state]
    return states


@compiled
def promising(
    epsilons: Any, key: Any, cost: Any, queued: Any, states: Any, worst: float, turns: Any
) -> Any:
    """Those of the states that may lower costs in their own frontier: i64[n]. None is queued then."""
    chosen = np.empty(len(states), np.int64)
    count = 0
    for state in states:
        queued[state] = False
        stays = epsilons[(key[state] >> F_BITS) & B_MASK] > 0 or turns[key[state] >> A_SHIFT]
        if stays and cost[state] <= worst:
            chosen[count] = state
            count += 1
    return chosen[:count]


@compiled
def smallest(values: Any, rank: int) -> Any:
    """The value that `rank` others precede; the order of the values changes (quickselect)."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return values[rank]


@compiled
def pruned(states: Any, cost: Any, kept: Any, worst: float, most_active: int) -> Any:
    """The states of a settled frontier that are kept, marked as such, in the same order: i64[n]."""
    costs = np.empty(len(states), np.float64)
    equals = 0  # how many of cost `worst` may stay
    for state in states:
        if cost[state] <= worst:
            costs[equals] = cost[state]
            equals += 1
    if equals > most_active:
        worst = smallest(costs[:equals], most_active - 1)
        equals = most_active
        for state in states:
            equals -= cost[state] < worst
    made = np.empty(len(states), np.int64)
    count = 0
    for state in states:
        keep = cost[state] <= worst
        if keep and cost[state] == worst:
            keep = equals > 0
            equals -= 1
        if keep or state == 0:
            kept[state] = True
            made[count] = state
            count += 1
    return made[:count]


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
    moves that stay in it (in rounds, as Bellman and Ford do); then it is pruned; then what is kept is
    expanded into the frontiers behind.

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
        Why it ended; the keys of the states found [N], whether each is kept [N], and their table. If it
        DIVERGES, the key is of a state whose cost still falls.
    """
    frontiers = depth.max() + 1
    # Frontiers are lists linked through `behind`: first and last state and the best cost of each, [F].
    fronts = Frontiers(
        np.full(frontiers, NONE, np.int64),
        np.full(frontiers, NONE, np.int64),
        np.full(frontiers, np.inf),
    )
    table = Found(
        np.full(FIRST_ROOM, start),
        np.zeros(FIRST_ROOM, np.float64),
        np.full(FIRST_ROOM, NONE, np.int64),
        np.empty(FIRST_ROOM, np.int64),
        np.zeros(FIRST_ROOM, np.bool_),
        np.zeros(FIRST_ROOM, np.bool_),
        rehashed(np.full(1, start), 1, FIRST_ROOM),
    )
    origin = depth[start >> A_SHIFT]
    fronts.head[origin] = fronts.tail[origin] = 0
    fronts.best[origin] = 0.0
    count, keeping = 1, 0
    segments = np.empty((max(plan.longest, BATCH_SEGMENTS), 5), a.span.dtype)
    scratch = (np.empty(BATCH, np.int64), np.zeros(BATCH + 1, np.int64), segments)
    # 1. Frontiers in the order of A's depth: what is behind one cannot lower a cost in it.
    for frontier in range(frontiers):
        states = members(fronts.head[frontier], table.behind)
        # 2. Settle: expand within the frontier until no cost falls (Bellman and Ford), in at most as many
        # rounds as there are states: more mean a cycle of negative cost.
        rounds = 0
        forward = len(states) == 0
        while True:
            worst = fronts.best[frontier] + beam
            # 3. Prune to the beam and the number of active states; what is kept is expanded into later
            # frontiers.
            if forward:
                states = members(fronts.head[frontier], table.behind)
                states = pruned(states, table.cost, table.kept, worst, most_active)
                keeping += len(states)
                if keeping > most_states:
                    return TOO_MANY, table.key[:0], table.kept[:0], table.slots
            else:
                states = promising(
                    b.epsilons, table.key, table.cost, table.queued, states, worst, turns
                )
            table, count, again = expand(
                a, b, plan, table, fronts, count, states, depth, frontier, forward, beam, scratch
            )
            if forward:
                break
            rounds += 1
            if again and rounds > count:  # a path would be longer than there are states
                state = table.queue[0]
                return DIVERGES, table.key[state : state + 1], table.kept[:0], table.slots
            states = table.queue[:again].copy()
            forward = again == 0
    return DONE, table.key[:count], table.kept[:count], table.slots


@compiled
def pruned_machine(
    a: Any, b: Any, plan: Any, key: Any, keep: Any, slots: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """The part of the composition that the kept states are, from the start, numbered breadth first.

    Returns:
        Keys of its states i64[V], offsets i64[V + 1], and of its arcs the positions on side A i64[E], on
        side B i64[E], and the states that they enter i32[E].
    """
    states = keep.sum()
    number = np.full(len(key), NONE, np.int64)
    queue = np.empty(states, np.int64)
    offsets = np.zeros(states + 1, np.int64)  # of the arcs kept
    ends = np.zeros(states + 1, np.int64)  # of all arcs
    room = FIRST_ROOM
    at_a = np.empty(room, np.int64)
    at_b = np.empty(room, np.int64)
    nextstate = np.empty(room, np.int32)
    segments = np.empty((max(plan.longest, BATCH_SEGMENTS), 5), a.span.dtype)
    queue[0] = key[0]
    number[0] = 0
    known = 1
    done = arcs = 0
    while done < known:
        last = min(known, done + BATCH)
        last, _ = join(a, b, plan.exact, plan.moves, queue, done, last, ends, segments)
        if arcs + ends[last] - ends[done] > room:
            room = max(2 * room, arcs + ends[last] - ends[done])
            at_a = grown(at_a, room)
            at_b = grown(at_b, room)
            nextstate = grown(nextstate, room)
        row = 0
        while done < last:
            left_over = ends[done + 1] - ends[done]
            while left_over > 0:
                first_a, first_b = segments[row, 0], segments[row, 1]
                many_a, many_b = np.int64(segments[row, 2]), np.int64(segments[row, 3])
                memory = np.int64(segments[row, 4])
                left_over -= many_a * many_b
                row += 1
                for left in range(first_a, first_a + many_a):
                    high = (np.int64(a.nextstate[left]) << A_SHIFT) | memory
                    for right in range(first_b, first_b + many_b):
                        slot = slot_of(slots, high | (np.int64(b.nextstate[right]) << F_BITS))
                        if slots[slot] < 0 or not keep[slots[slot + 1]]:
                            continue
                        target = slots[slot + 1]
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
