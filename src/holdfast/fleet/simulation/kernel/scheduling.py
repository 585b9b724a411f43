"""One pass over the queue: start what fits, preempt or reserve for the first that does not, backfill."""

from __future__ import annotations

from holdfast.fleet.simulation.kernel import state as const
from holdfast.fleet.simulation.kernel.attempts import start
from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.placement import choose_whole, node_with
from holdfast.fleet.simulation.kernel.preempting import preempt
from holdfast.fleet.simulation.kernel.queue import dequeue, following, rewind
from holdfast.fleet.simulation.kernel.state import Simulation, wide
from holdfast.fleet.simulation.records import Array


@compiled
def schedule(sim: Simulation) -> int:
    """Start jobs in the order of priority, and behind the first that cannot start by EASY backfill.

    EASY keeps one reservation: the first job that waits will start at the shadow time, when enough
    running attempts have reached their limits. A later job may start now if its limit ends by then, or
    if it takes none of the nodes that the reservation needs (Lifka, JSSPP 1995).

    Returns:
        The next moment at which a pass may do more although nothing happens before; NEVER: none.
    """
    rules, size, counters = sim.rules[0], sim.rules[0].gpus_per_node, sim.counters
    now = counters[const.NOW]
    again = const.NEVER
    blocked = False
    shadow, extra, reserved = const.NEVER, 0, -1
    # The smallest requests that did not fit: nothing larger needs to be tried.
    too_many_gpus = size
    too_many_nodes = 1 << 30
    looked_at = 0
    # 1. Jobs by priority, as deep as the rules look.
    rewind(sim)
    while rules.depth == 0 or looked_at < rules.depth:
        job = following(sim)
        if job < 0:
            break
        looked_at += 1
        # 2. Is there room now? A smaller request that failed answers for all larger ones.
        gpus = wide(sim.jobs[job].gpus)
        node = const.NONE
        count = const.ONE
        if gpus < size:
            if gpus < too_many_gpus:
                node = node_with(sim, gpus)
            fits = node >= 0
            if not fits:
                too_many_gpus = min(too_many_gpus, gpus)
        else:
            count = -(-gpus // size)
            fits = count < too_many_nodes and counters[const.WHOLE_FREE] >= count
            if not fits:
                too_many_nodes = min(count, counters[const.WHOLE_FREE] + 1)
        if fits and blocked and now + sim.jobs[job].limit_ms > shadow:
            # It would still run at the shadow time: only on what the reservation can spare.
            if gpus >= size:
                fits = count <= extra
                extra -= count if fits else 0
            elif reserved >= 0:
                fits = node != reserved
            elif sim.nodes[node].until <= shadow:
                fits = extra >= 1
                extra -= 1 if fits else 0
            if not fits:
                continue
        # 3. Start it; the first that does not fit preempts, or gets the one reservation.
        if fits:
            dequeue(sim, job)
            chosen = sim.scratch[0]
            if gpus >= size:
                choose_whole(sim, count, chosen)
            else:
                chosen[0] = node
            start(sim, job, chosen, count)
        elif not blocked:
            if rules.preemption:
                when = preempt(sim, job)
                if when == 0:
                    continue
                again = min(again, when)
            if not rules.backfill:
                break
            blocked = True
            shadow, extra, reserved = _reservation(sim, gpus)
        elif too_many_gpus <= 1 and too_many_nodes <= 1:
            break
    return again


@compiled
def _reservation(sim: Simulation, gpus: int) -> tuple[int, int, int]:
    """When a job that does not fit will start.

    Returns:
        The shadow time; how many whole nodes are to spare then; for part of a node, which it gets.
    """
    nodes, size, times = sim.nodes, sim.rules[0].gpus_per_node, sim.scratch[0]
    if gpus < size:
        return _reserved_part(sim, gpus)
    count = -(-gpus // size)
    usable = 0
    for node in range(nodes.size):
        if nodes[node].status == const.UP and nodes[node].held_for < 0:
            times[usable] = nodes[node].until
            usable += 1
    if usable < count:
        return const.NEVER, 1 << 30, -1
    shadow = _smallest(times, usable, count - 1)
    spare = -count
    for k in range(usable):
        spare += times[k] <= shadow
    return max(shadow, sim.counters[const.NOW]), spare, -1


@compiled
def _reserved_part(sim: Simulation, gpus: int) -> tuple[int, int, int]:
    """The node that has room first when attempts reach their limits."""
    nodes = sim.nodes
    slots = sim.slots
    first = const.NEVER
    best = -1
    for node in range(nodes.size):
        if nodes[node].status != const.UP or nodes[node].held_for >= 0:
            continue
        for place in range(nodes[node].attempts):
            time = slots[sim.on_node[node, place]].limit
            if time >= first:
                continue
            room = nodes[node].free
            for other in range(nodes[node].attempts):
                slot = sim.on_node[node, other]
                if slots[slot].limit <= time:
                    room += slots[slot].gpus
            if room >= gpus:
                first = time
                best = node
    return first, 0, best


@compiled
def _smallest(values: Array, count: int, k: int) -> int:
    """The value at place k if `count` values were sorted; they are moved (Hoare's quickselect)."""
    low = 0
    high = count - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return int(values[k])
