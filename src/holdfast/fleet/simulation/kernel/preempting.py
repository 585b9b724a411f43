"""Making room for a job of higher priority: whom to stop, and keeping the nodes for the job."""

from __future__ import annotations

from numba import njit

from holdfast.fleet.simulation.kernel.attempts import exit_time
from holdfast.fleet.simulation.kernel.heap import plan
from holdfast.fleet.simulation.kernel.placement import choose_whole, list_node
from holdfast.fleet.simulation.kernel.queue import dequeue, enqueue
from holdfast.fleet.simulation.kernel.state import (
    KILL,
    NEVER,
    NOW,
    UP,
    WHOLE_FREE,
    Simulation,
)

_NODE_BITS, _TIME_BITS = 22, 32


@njit(cache=True)
def preempt(sim: Simulation, job: int) -> int:
    """Stop attempts of lower priority until the job has room, and hold their nodes for it.

    Of the nodes that may be cleared, those with the lowest priorities come first, then those whose
    attempts started last; in the end victims that turned out not to be needed are spared.

    Returns:
        0 if it is done; else the next moment at which more attempts may be preempted, or NEVER.
    """
    size = sim.rules[0].gpus_per_node
    if sim.jobs[job].gpus < size:
        return _clear_part(sim, job)
    return _clear_nodes(sim, job, -(-sim.jobs[job].gpus // size))


@njit(cache=True)
def let_go(sim: Simulation, job: int) -> None:
    """Release the nodes that are held for a job, and let it wait again."""
    for node in range(sim.nodes.size):
        if sim.nodes[node].held_for == job:
            sim.nodes[node].held_for = -1
            list_node(sim, node)
    sim.jobs[job].held_left = -1
    enqueue(sim, job)


@njit(cache=True, inline="always")
def _rank(sim: Simulation, job: int) -> int:
    return sim.classes[sim.jobs[job].qos].rank


@njit(cache=True)
def _may_stop(sim: Simulation, slot: int, job: int) -> int:
    """From when an attempt may be preempted for a job; NEVER: not at all."""
    slots = sim.slots
    other = slots[slot].job
    higher = _rank(sim, job) > _rank(sim, other)
    if not higher or slots[slot].signal >= 0 or slots[slot].stopped >= 0:
        return NEVER
    return slots[slot].start + sim.rules[0].preempt_after


@njit(cache=True)
def _clear_nodes(sim: Simulation, job: int, count: int) -> int:
    nodes, slots, keys, marks = sim.nodes, sim.slots, sim.scratch[0], sim.scratch[1]
    now = sim.counters[NOW]
    need = count - sim.counters[WHOLE_FREE]
    found, later = 0, NEVER
    for node in range(nodes.size):
        marks[node] = 0
        if nodes[node].status != UP or nodes[node].held_for >= 0 or nodes[node].attempts == 0:
            continue
        from_when, rank, oldest = 0, 0, now
        for place in range(nodes[node].attempts):
            slot = sim.on_node[node, place]
            from_when = max(from_when, _may_stop(sim, slot, job))
            rank = max(rank, _rank(sim, slots[slot].job))
            oldest = min(oldest, slots[slot].start)
        if from_when > now:
            later = min(later, from_when)
            continue
        marks[node] = 1
        ran = (now - oldest) // 1000
        keys[found] = (rank << (_NODE_BITS + _TIME_BITS)) | (ran << _NODE_BITS) | node
        found += 1
    if found < need:
        return later
    keys[:found].sort()

    # marks: 1 may be cleared, 2 will be.
    gained = units = 0
    for k in range(found):
        node = keys[k] & ((1 << _NODE_BITS) - 1)
        if marks[node] == 1:
            gained += _mark(sim, node, 1, 2)
            keys[units] = node
            units += 1
            if gained >= need:
                break
    for k in range(units):
        node = keys[k]
        gains = _mark(sim, node, 2, 1)
        if gained - gains >= need:
            gained -= gains
        else:
            _mark(sim, node, 1, 2)

    free = min(count, sim.counters[WHOLE_FREE])
    choose_whole(sim, free, keys)
    for k in range(free):
        nodes[keys[k]].held_for = job
    for k in range(free):
        list_node(sim, keys[k])
    left = count - free
    for node in range(nodes.size):
        if marks[node] == 2:
            if left > 0:
                nodes[node].held_for = job
                list_node(sim, node)
                left -= 1
            for place in range(nodes[node].attempts):
                _signal(sim, sim.on_node[node, place], job)
    sim.jobs[job].held_left = count - free
    dequeue(sim, job)
    return 0


@njit(cache=True)
def _mark(sim: Simulation, node: int, old: int, new: int) -> int:
    """Mark the nodes that are cleared together with a node; gives how many they are."""
    nodes, slots, marks = sim.nodes, sim.slots, sim.scratch[1]
    changed = 0
    for place in range(nodes[node].attempts):
        slot = sim.on_node[node, place]
        for k in range(slots[slot].count):
            each = sim.node_rows[slots[slot].offset + k]
            if marks[each] == old:
                marks[each] = new
                changed += 1
    return changed


@njit(cache=True)
def _signal(sim: Simulation, slot: int, job: int) -> None:
    """Send SIGTERM to an attempt."""
    slots, now = sim.slots, sim.counters[NOW]
    if slots[slot].signal < 0:
        slots[slot].signal, slots[slot].preemptor = now, job
        time = exit_time(sim.rules[0], now)
        plan(sim, time, KILL, slot, slots[slot].generation)


@njit(cache=True)
def _clear_part(sim: Simulation, job: int) -> int:
    """Make room for part of a node on the node where the least important work stops."""
    nodes, slots = sim.nodes, sim.slots
    now, wanted = sim.counters[NOW], sim.jobs[job].gpus
    best, best_key, later = -1, NEVER, NEVER
    for node in range(nodes.size):
        if nodes[node].status != UP or nodes[node].held_for >= 0:
            continue
        room, rank, ran = nodes[node].free, 0, 0
        for place in range(nodes[node].attempts):
            slot = sim.on_node[node, place]
            from_when = _may_stop(sim, slot, job)
            if from_when > now:
                later = min(later, from_when)
            elif slots[slot].count == 1:
                room += min(sim.jobs[slots[slot].job].gpus, sim.rules[0].gpus_per_node)
                rank = max(rank, _rank(sim, slots[slot].job))
                ran = max(ran, (now - slots[slot].start) // 1000)
        key = (rank << _TIME_BITS) | ran
        if room >= wanted and key < best_key:
            best, best_key = node, key
    if best < 0:
        return later
    room = nodes[best].free
    while room < wanted:
        victim, first = -1, NEVER
        for place in range(nodes[best].attempts):
            slot = sim.on_node[best, place]
            if slots[slot].count == 1 and _may_stop(sim, slot, job) <= now:
                rank = _rank(sim, slots[slot].job)
                key = (rank << _TIME_BITS) | ((now - slots[slot].start) // 1000)
                if key < first:
                    victim, first = slot, key
        _signal(sim, victim, job)
        room += min(sim.jobs[slots[victim].job].gpus, sim.rules[0].gpus_per_node)
    nodes[best].held_for = job
    list_node(sim, best)
    sim.jobs[job].held_left = 1
    dequeue(sim, job)
    return 0
