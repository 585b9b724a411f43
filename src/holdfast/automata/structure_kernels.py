"""Compiled walks over the graph of a machine; each is linear in states and arcs."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import graph_walk


@graph_walk
def accessible(offsets: Any, nextstate: Any, start: int) -> Any:
    """States reachable from `start`: bool[V]; none if `start` is -1."""
    states = len(offsets) - 1
    reached = np.zeros(states, np.bool_)
    if start < 0:
        return reached
    waiting = np.empty(states, np.int32)
    waiting[0] = start
    reached[start] = True
    _walk(offsets, nextstate, reached, waiting)
    return reached


@graph_walk
def _walk(offsets: Any, neighbours: Any, marked: Any, waiting: Any) -> None:
    """Mark what can be reached from the state that waits first."""
    count = 1
    while count:
        count -= 1
        state = waiting[count]
        for arc in range(offsets[state], offsets[state + 1]):
            neighbour = neighbours[arc]
            if not marked[neighbour]:
                marked[neighbour] = True
                waiting[count] = neighbour
                count += 1


SWEPT = 256  # states whose arcs are looked at together
MOST_LOOKS = 4  # at each arc, on average, before the rest is walked backwards


@graph_walk
def coaccessible(offsets: Any, nextstate: Any, is_final: Any) -> Any:
    """States from which a final state can be reached: bool[V]."""
    marked = is_final.copy()
    waiting = np.empty(len(marked) + 1, np.int32)
    count = mark_leading(offsets, nextstate, marked, waiting)
    mark_rest(offsets, nextstate, marked, waiting, count)
    return marked


@graph_walk
def mark_leading(offsets: Any, nextstate: Any, marked: Any, waiting: Any) -> int:
    """Mark the states with an arc into a marked one, the last first; the others wait.

    Most arcs of most machines lead to higher states, and most states reach a final one. There is no branch
    that asks whether an arc does: nobody could guess it.

    Args:
        offsets: [V + 1] of the machine.
        nextstate: [E] of the machine.
        marked: [V] which states are marked.
        waiting: [> V] is set to those that are not, descending.

    Returns:
        How many wait.
    """
    hits = np.zeros(1, np.int32)
    count = 0
    end = len(marked)
    while end > 0:
        first = max(end - SWEPT, 0)
        low = np.uint64(offsets[first])
        arcs = np.uint64(offsets[end]) - low
        if arcs + np.uint64(1) > len(hits):
            hits = np.zeros(2 * arcs + np.uint64(1), np.int32)
        seen = np.int32(0)
        for arc in range(np.uint64(0), arcs):
            seen += marked[np.uint64(nextstate[low + arc])]
            hits[arc + np.uint64(1)] = seen
        for state in range(end - 1, first - 1, -1):
            before = hits[np.uint64(offsets[state]) - low]
            leads = marked[state] | (hits[np.uint64(offsets[state + 1]) - low] != before)
            marked[state] = leads
            waiting[count] = state
            count += not leads
        end = first
    return count


@graph_walk
def mark_rest(offsets: Any, nextstate: Any, marked: Any, waiting: Any, count: int) -> None:
    """Mark those of the `count` waiting states that reach a marked one.

    They are swept again and again, which is soon over but for machines made to defeat it: those are walked
    along reversed arcs, so the work is linear.
    """
    looks = MOST_LOOKS * (len(nextstate) + len(marked))
    while count:
        left = 0
        for at in range(count):
            state = waiting[at]
            leads = False
            for arc in range(np.uint64(offsets[state]), np.uint64(offsets[state + 1])):
                looks -= 1
                if marked[np.uint64(nextstate[arc])]:
                    leads = True
                    break
            marked[state] = leads
            waiting[left] = state
            left += not leads
        if left == count:
            return
        count = left
        looks -= count
        if looks < 0:
            _mark_backwards(offsets, nextstate, marked, count)
            return


@graph_walk
def _mark_backwards(offsets: Any, nextstate: Any, marked: Any, left: int) -> None:
    """Mark what reaches a marked state, along the reversed arcs between the `left` unmarked ones."""
    states = len(offsets) - 1
    waiting = np.empty(left, np.int32)
    # Arcs of unmarked states by their target, so the memory is that of what is left.
    begin = np.zeros(states + 1, np.int64)
    for state in range(states):
        if marked[state]:
            continue
        for arc in range(offsets[state], offsets[state + 1]):
            begin[nextstate[arc] + 1] += 1
    for state in range(states):
        begin[state + 1] += begin[state]
    sources = np.empty(begin[states], np.int32)
    slot = begin[:-1].copy()
    for state in range(states):
        if marked[state]:
            continue
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            sources[slot[target]] = state
            slot[target] += 1
    for target in range(states):
        if not marked[target]:
            continue
        waiting[0] = target
        _walk(begin, sources, marked, waiting)


@graph_walk
def strong_components(offsets: Any, nextstate: Any) -> tuple[Any, int]:
    """The strongly connected component of each state, i32[V], and how many there are.

    Tarjan's algorithm with its stack in an array. Components are numbered in topological order: no arc
    leads to a component of lower number.
    """
    states = len(offsets) - 1
    component = np.full(states, -1, np.int32)
    entered = np.full(states, -1, np.int32)  # when a state was entered
    lowest = np.empty(states, np.int32)  # the earliest entered that it is known to reach
    cursor = offsets[:-1].copy()
    open_states = np.empty(states, np.int32)  # entered, without a component yet
    path = np.empty(states, np.int32)  # from the root to where the walk is
    opened = depth = clock = count = 0
    for root in range(states):
        if entered[root] >= 0:
            continue
        path[0] = root
        depth = 1
        while depth:
            state = path[depth - 1]
            if entered[state] < 0:
                entered[state] = lowest[state] = clock
                clock += 1
                open_states[opened] = state
                opened += 1
            deeper = False
            while cursor[state] < offsets[state + 1]:
                target = nextstate[cursor[state]]
                if entered[target] < 0:
                    path[depth] = target
                    depth += 1
                    deeper = True
                    break  # the cursor stays: the target is looked at again when it is done
                if component[target] < 0 and lowest[target] < lowest[state]:
                    lowest[state] = lowest[target]
                cursor[state] += 1
            if deeper:
                continue
            depth -= 1
            if lowest[state] == entered[state]:
                while True:
                    opened -= 1
                    member = open_states[opened]
                    component[member] = count
                    if member == state:
                        break
                count += 1
    for state in range(states):
        component[state] = count - 1 - component[state]
    return component, count


@graph_walk
def topological_order(offsets: Any, nextstate: Any) -> Any:
    """The states so that every arc leads to a later one, i32[V]; shorter than V if there is a cycle.

    Kahn's algorithm, first come first served; a machine that is in order already keeps it.
    """
    states = len(offsets) - 1
    incoming = np.zeros(states, np.int64)
    in_order = True
    for state in range(states):
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            incoming[target] += 1
            in_order &= target > state
    if in_order:
        return np.arange(states).astype(np.int32)
    order = np.empty(states, np.int32)
    count = 0
    for state in range(states):
        if incoming[state] == 0:
            order[count] = state
            count += 1
    done = 0
    while done < count:
        state = order[done]
        done += 1
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            incoming[target] -= 1
            if incoming[target] == 0:
                order[count] = target
                count += 1
    return order[:count]


@graph_walk
def subgraph(offsets: Any, nextstate: Any, keep: Any) -> tuple[Any, Any, Any]:
    """What is left of a machine when only some states are kept, bool[V], and the arcs between them.

    Returns:
        Their offsets i64[kept + 1], their arcs i64[*] as positions in the machine, and the new number of
        each state, i32[V], -1 for those not kept. The order of states and arcs stays.
    """
    states = len(offsets) - 1
    number = np.full(states, -1, np.int32)
    count = 0
    arcs = 0
    for state in range(states):
        if not keep[state]:
            continue
        number[state] = count
        count += 1
        for arc in range(offsets[state], offsets[state + 1]):
            arcs += keep[nextstate[arc]]
    kept_offsets = np.zeros(count + 1, np.int64)
    arc_kept = np.empty(arcs, np.int64)
    arcs = 0
    for state in range(states):
        if not keep[state]:
            continue
        for arc in range(offsets[state], offsets[state + 1]):
            if keep[nextstate[arc]]:
                arc_kept[arcs] = arc
                arcs += 1
        kept_offsets[number[state] + 1] = arcs
    return kept_offsets, arc_kept, number
