"""Making room for a job of higher priority: whom to stop, and keeping the nodes for the job."""

from __future__ import annotations

from holdfast.fleet.simulation.kernel import state as const
from holdfast.fleet.simulation.kernel.attempts import exit_time, leaves
from holdfast.fleet.simulation.kernel.compiling import compiled, sort
from holdfast.fleet.simulation.kernel.heap import plan
from holdfast.fleet.simulation.kernel.placement import choose_whole, list_node
from holdfast.fleet.simulation.kernel.queue import dequeue, enqueue
from holdfast.fleet.simulation.kernel.state import Simulation, wide

_NODE_BITS = 22
_TIME_BITS = 32


@compiled
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
    return _clear_nodes(sim, job, -(-wide(sim.jobs[job].gpus) // size))


@compiled
def let_go(sim: Simulation, job: int) -> None:
    """Release the nodes that are held for a job, and let it wait again."""
    for node in range(sim.nodes.size):
        if sim.nodes[node].held_for == job:
            sim.nodes[node].held_for = -1
            list_node(sim, node)
    sim.jobs[job].held_left = -1
    enqueue(sim, job)


@compiled
def _clear_nodes(sim: Simulation, job: int, count: int) -> int:
    """Clear whole nodes."""
    nodes, keys, marks = sim.nodes, sim.scratch[0], sim.scratch[1]
    now = sim.counters[const.NOW]
    after = sim.rules[0].preempt_after
    rank = sim.classes[sim.jobs[job].qos].rank
    need = count - sim.counters[const.WHOLE_FREE]
    found = 0
    later = const.NEVER
    for place in range(nodes.size):
        node = nodes[place]
        marks[place] = 0
        if (
            node.attempts == 0
            or node.rank >= rank
            or node.status != const.UP
            or node.held_for >= 0
            or node.leaving > 0
        ):
            continue
        if node.newest + after > now:
            later = min(later, node.newest + after)
            continue
        marks[place] = 1
        ran = (now - node.oldest) // 1000
        keys[found] = (node.rank << (_NODE_BITS + _TIME_BITS)) | (ran << _NODE_BITS) | place
        found += 1
    if found < need:
        return later
    sort(keys, found)

    # marks: 1 may be cleared, 2 will be.
    gained = units = 0
    for k in range(found):
        place = keys[k] & ((1 << _NODE_BITS) - 1)
        if marks[place] == 1:
            gained += _mark(sim, place, 1, 2)
            keys[units] = place
            units += 1
            if gained >= need:
                break
    for k in range(units):
        gains = _mark(sim, keys[k], 2, 1)
        if gained - gains >= need:
            gained -= gains
        else:
            _mark(sim, keys[k], 1, 2)

    free = min(count, sim.counters[const.WHOLE_FREE])
    choose_whole(sim, free, keys)
    for k in range(free):
        _hold(sim, keys[k], job)
    left = count - free
    for place in range(nodes.size):
        if marks[place] == 2:
            if left > 0:
                _hold(sim, place, job)
                left -= 1
            for each in range(nodes[place].attempts):
                _signal(sim, wide(sim.on_node[place, each]), job)
    sim.jobs[job].held_left = count - free
    dequeue(sim, job)
    return 0


@compiled
def _mark(sim: Simulation, place: int, old: int, new: int) -> int:
    """Mark the nodes that are cleared together with a node; gives how many they are."""
    marks = sim.scratch[1]
    changed = 0
    for each in range(sim.nodes[place].attempts):
        slot = sim.slots[wide(sim.on_node[place, each])]
        for k in range(slot.count):
            node = sim.node_rows[slot.offset + k]
            if marks[node] == old:
                marks[node] = new
                changed += 1
    return changed


@compiled
def _clear_part(sim: Simulation, job: int) -> int:
    """Make room for part of a node on the node where the least important work stops."""
    nodes = sim.nodes
    wanted = wide(sim.jobs[job].gpus)
    best, best_key, later = -1, const.NEVER, const.NEVER
    for place in range(nodes.size):
        if nodes[place].status != const.UP or nodes[place].held_for >= 0:
            continue
        room = nodes[place].free
        key = 0
        for each in range(nodes[place].attempts):
            slot = wide(sim.on_node[place, each])
            from_when = _may_stop(sim, slot, job)
            if from_when <= sim.counters[const.NOW]:
                room += sim.slots[slot].gpus
                key = max(key, _order(sim, slot))
            else:
                later = min(later, from_when)
        if room >= wanted and key < best_key:
            best = place
            best_key = key
    if best < 0:
        return later
    room = nodes[best].free
    while room < wanted:
        victim = -1
        first = const.NEVER
        for each in range(nodes[best].attempts):
            slot = wide(sim.on_node[best, each])
            if _may_stop(sim, slot, job) <= sim.counters[const.NOW] and _order(sim, slot) < first:
                victim = slot
                first = _order(sim, slot)
        _signal(sim, victim, job)
        room += sim.slots[victim].gpus
    _hold(sim, best, job)
    sim.jobs[job].held_left = 1
    dequeue(sim, job)
    return 0


@compiled
def _may_stop(sim: Simulation, place: int, job: int) -> int:
    """From when an attempt on one node may be preempted for a job; NEVER: not at all."""
    slot = sim.slots[place]
    higher = sim.classes[sim.jobs[job].qos].rank > slot.rank
    if not higher or slot.count > 1 or slot.signal >= 0 or slot.stopped >= 0:
        return const.NEVER
    return slot.start + sim.rules[0].preempt_after


@compiled
def _order(sim: Simulation, place: int) -> int:
    """Attempts of the lowest class first, of one class the one that started last."""
    slot = sim.slots[place]
    return (slot.rank << _TIME_BITS) | ((sim.counters[const.NOW] - slot.start) // 1000)


@compiled
def _hold(sim: Simulation, place: int, job: int) -> None:
    sim.nodes[place].held_for = job
    list_node(sim, place)


@compiled
def _signal(sim: Simulation, place: int, job: int) -> None:
    """Send SIGTERM to an attempt."""
    slot = sim.slots[place]
    now = sim.counters[const.NOW]
    if slot.signal < 0:
        slot.signal, slot.preemptor = now, job
        leaves(sim, place)
        plan(sim, exit_time(sim.rules[0], now), const.KILL, place, slot.generation)
