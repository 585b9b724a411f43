"""How an attempt starts, what it has done by a moment, and how it ends."""

from __future__ import annotations

import math
from typing import Any

from holdfast.fleet.simulation.kernel import state as const
from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.heap import plan
from holdfast.fleet.simulation.kernel.placement import list_node
from holdfast.fleet.simulation.kernel.state import Simulation, wide
from holdfast.fleet.simulation.portable import NODE, REQUEUE, stream, uniform, weibull
from holdfast.fleet.simulation.records import Array


@compiled
def start(sim: Simulation, job: int, chosen: Array, count: int) -> None:
    """Start a job on the chosen nodes now."""
    rules, counters, mine = sim.rules[0], sim.counters, sim.jobs[job]
    now = counters[const.NOW]
    counters[const.EVENTS] += 1
    counters[const.UNUSED] -= 1
    place = wide(sim.slots[counters[const.UNUSED]].unused)
    slot = sim.slots[place]
    slot.job, slot.start, slot.limit = job, now, now + mine.limit_ms
    slot.rank = sim.classes[mine.qos].rank
    slot.gpus = min(mine.gpus, rules.gpus_per_node)
    slot.offset, slot.count = counters[const.NODE_ROWS], count
    slot.stopped = slot.signal = -1
    slot.taken = 0
    slot.failure = slot.preemptor = -1
    slot.hazard = rules.fleet_rate + _shared_hazard(sim, chosen, count)
    for k in range(count):
        node = sim.nodes[chosen[k]]
        sim.node_rows[counters[const.NODE_ROWS] + k] = chosen[k]
        sim.on_node[chosen[k], node.attempts] = place
        if node.attempts == 0:
            node.oldest, node.rank = now, slot.rank
        node.newest, node.rank = now, max(node.rank, slot.rank)
        node.attempts += 1
        node.free -= slot.gpus
        node.until = max(node.until, slot.limit)
        healthy = node.healthy > now
        slot.hazard += node.rate * (node.scale / rules.healthy if healthy else 1.0)
        list_node(sim, wide(chosen[k]))
    counters[const.NODE_ROWS] += count
    mine.attempts += 1

    ending, last = _ending(sim, job, mine.work_ms - mine.done)
    if last > mine.limit_ms:
        ending = const.TIMEOUT
        last = mine.limit_ms
    slot.ending = ending
    plan(sim, now + last, const.END, place, slot.generation)


@compiled
def _shared_hazard(sim: Simulation, chosen: Array, count: int) -> float:
    """Blasts per millisecond of the racks and pods that an attempt touches."""
    rules = sim.rules[0]
    number = sim.counters[const.SEQUENCE] + 1
    total = 0.0
    if rules.rack_rate + rules.pod_rate == 0.0:
        return total
    for k in range(count):
        rack = sim.nodes[chosen[k] // rules.nodes_per_rack * rules.nodes_per_rack]
        pod = sim.nodes[chosen[k] // rules.nodes_per_pod * rules.nodes_per_pod]
        if rack.rack_seen != number:
            rack.rack_seen = number
            total += rules.rack_rate
        if pod.pod_seen != number:
            pod.pod_seen = number
            total += rules.pod_rate
    return total


@compiled
def _ending(sim: Simulation, job: int, rest: int) -> tuple[int, int]:
    """In which state an attempt ends if nothing happens to it, and after which time."""
    rules = sim.rules[0]
    mine = sim.jobs[job]
    attempt = mine.attempts
    state = wide(mine.end_state)
    if math.isfinite(rules.requeue_scale):
        of = stream(rules.seed, REQUEUE, job)
        until = weibull(of, attempt, rules.requeue_scale, rules.requeue_shape)
        if until < rest:
            state = const.REQUEUED
            rest = int(until)
    # A job that completes writes its result; one that is stopped does not come to it.
    since = rest + mine.phase
    writes = (
        -(-since // rules.checkpoint) if state == const.COMPLETED else since // rules.checkpoint
    )
    if not rules.synchronous:
        writes = 1 if state == const.COMPLETED else 0
    return state, mine.init + rest + writes * rules.write


@compiled
def progress(rules: Any, job: Any, ran: int) -> tuple[int, int, int, int, int]:
    """What an attempt has done after a time: initialised, worked, waited for writes; saved; its phase.

    Where peers held what it began from, its last checkpoint may be older: less than nothing is saved.
    """
    init = min(ran, job.init)
    rest = ran - init
    since = ran - init + job.phase
    if rules.synchronous:
        cycle = rules.checkpoint + rules.write
        begun = min(job.phase, rules.checkpoint)
        full = since // cycle
        phase = since - full * cycle
        saved = full * rules.checkpoint - begun
        worked = saved + min(phase, rules.checkpoint)
        return init, worked, rest - worked, saved, phase
    written = max(since - rules.write, 0) // rules.checkpoint * rules.checkpoint
    return init, rest, 0, written - job.phase, since - written


@compiled
def end(sim: Simulation, place: int, state: int) -> None:
    """End an attempt now: record it, free its nodes, and send the job back if it is to run again."""
    slot = sim.slots[place]
    now = sim.counters[const.NOW]
    number = wide(slot.job)
    job = sim.jobs[number]
    slot.generation += 1  # its planned events do not happen
    finished = state == const.TIMEOUT or (state < const.TIMEOUT and slot.failure < 0)
    spared = _spared(sim, place)
    kept = record(sim, place, state, now, finished)
    if not finished:
        job.done += kept
        job.eligible = job.turn = now + sim.rules[0].requeue_delay
        job.init = sim.rules[0].init
        if spared:
            job.eligible, job.turn, job.init = now, const.FIRST, sim.rules[0].recovery
        plan(sim, job.eligible, const.ELIGIBLE, number, 0)
    _release(sim, place)


@compiled
def record(sim: Simulation, place: int, state: int, now: int, finished: bool) -> int:
    """Write an attempt's row; gives the progress that the job keeps."""
    slot = sim.slots[place]
    rules = sim.rules[0]
    job = sim.jobs[slot.job]
    row = sim.out[sim.counters[const.ROWS]]
    sim.counters[const.ROWS] += 1
    stop = slot.stopped if slot.stopped >= 0 else now
    ran = stop - slot.start
    rest = job.work_ms - job.done
    init, worked, written, saved, phase = progress(rules, job, ran)
    if worked > rest:  # it works on the last write
        written += worked - rest
        worked = rest
    saved = min(saved, worked)
    if state == const.PREEMPTED and _saves(rules):
        # Work ends at the signal; the rest of the time writes it down.
        told = slot.signal - slot.start
        init, worked, written, saved, phase = progress(rules, job, told)
        worked = min(worked, rest)
        written += ran - told
        saved = worked
    spared = _spared(sim, place)
    kept = worked if finished or spared else saved
    job.phase = phase if spared else 0
    row.job, row.attempt, row.state = slot.job, job.attempts, state
    row.eligible_ms, row.start_ms, row.end_ms = job.eligible, slot.start, now
    row.node_offset, row.node_count, row.gpus = slot.offset, slot.count, job.gpus
    row.productive_ms, row.lost_ms = kept, worked - kept + (now - stop)
    row.init_ms, row.write_ms = init, written
    row.failure, row.preemptor, row.signal_ms = slot.failure, slot.preemptor, slot.signal
    row.expected_failures = slot.hazard * float(stop - slot.start)
    return kept


@compiled
def _spared(sim: Simulation, place: int) -> bool:
    """Whether peers hold the state of an attempt that a failure ends: they do once it has begun to work."""
    slot = sim.slots[place]
    rules = sim.rules[0]
    job = sim.jobs[slot.job]
    some = slot.taken <= rules.survives and slot.taken < slot.count
    begun = job.turn == const.FIRST or slot.stopped - slot.start > job.init
    return rules.recovery > 0 and slot.failure >= 0 and some and begun


@compiled
def _saves(rules: Any) -> bool:
    """Whether a preempted attempt can write a checkpoint before it is killed."""
    return rules.save_on_signal and rules.write <= rules.grace


@compiled
def exit_time(rules: Any, now: int) -> int:
    """When an attempt that is signalled now is gone."""
    return now + (max(rules.write, 1_000) if _saves(rules) else rules.grace)


@compiled
def leaves(sim: Simulation, place: int) -> None:
    """An attempt hangs or is told to go: its nodes are not asked for room again."""
    slot = sim.slots[place]
    for k in range(slot.count):
        sim.nodes[sim.node_rows[slot.offset + k]].leaving += 1


@compiled
def _release(sim: Simulation, place: int) -> None:
    """Free the nodes of an attempt that has ended."""
    slot = sim.slots[place]
    slots = sim.slots
    slot.job = -1
    slots[sim.counters[const.UNUSED]].unused = place
    sim.counters[const.UNUSED] += 1
    left = (slot.signal >= 0) + (slot.stopped >= 0)
    for k in range(slot.count):
        which = wide(sim.node_rows[slot.offset + k])
        node = sim.nodes[which]
        node.attempts -= 1
        node.free += slot.gpus
        node.leaving -= left
        last = sim.on_node[which, node.attempts]
        node.until = node.newest = node.rank = 0
        node.oldest = const.NEVER
        for each in range(node.attempts):
            if sim.on_node[which, each] == place:
                sim.on_node[which, each] = last
            other = slots[sim.on_node[which, each]]
            node.until = max(node.until, other.limit)
            node.oldest = min(node.oldest, other.start)
            node.newest = max(node.newest, other.start)
            node.rank = max(node.rank, other.rank)
        if node.status == const.DRAINING and node.attempts == 0:
            take_out(sim, which)
        elif node.held_for >= 0:
            _node_held(sim, which)
        else:
            list_node(sim, which)


@compiled
def _node_held(sim: Simulation, place: int) -> None:
    """A node that is held for a preemptor has more free GPUs: is it enough for it now?"""
    node = sim.nodes[place]
    size = sim.rules[0].gpus_per_node
    number = wide(node.held_for)
    job = sim.jobs[number]
    if job.held_left > 0 and node.free >= min(job.gpus, size):
        job.held_left -= 1
        if job.held_left == 0:
            plan(sim, sim.counters[const.NOW], const.HELD, number, 0)


@compiled
def take_out(sim: Simulation, place: int) -> None:
    """Take an empty node out of service, and plan its return."""
    node, rules, now = sim.nodes[place], sim.rules[0], sim.counters[const.NOW]
    node.status = const.OUT
    node.generation += 1
    failure = sim.failures[node.failure if node.failure >= 0 else node.drain]
    u = uniform(stream(rules.seed, NODE, place), node.draws)
    node.draws += 1
    if failure.blast >= 0:
        takes = sim.blasts[failure.component].repair
    elif failure.permanent:
        takes = rules.slow_min + int(u * (rules.slow_max - rules.slow_min))
    else:
        takes = rules.fast_min + int(u * (rules.fast_max - rules.fast_min))
    if failure.pulled:
        takes = max(takes, rules.pull_repair)
    for each in (node.failure, node.drain):
        if each >= 0:
            sim.failures[each].out_ms = now
    list_node(sim, place)
    plan(sim, now + max(takes, 1_000), const.REPAIR, place, node.generation)
