"""The loop: what happens next, until a given moment."""

from __future__ import annotations

from numba import njit

from holdfast.fleet.simulation.kernel import failing
from holdfast.fleet.simulation.kernel import state as const
from holdfast.fleet.simulation.kernel.attempts import end, record, start
from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.heap import drop_first
from holdfast.fleet.simulation.kernel.placement import list_node
from holdfast.fleet.simulation.kernel.queue import enqueue
from holdfast.fleet.simulation.kernel.scheduling import schedule
from holdfast.fleet.simulation.kernel.state import Simulation, wide


@compiled
def begin(sim: Simulation) -> None:
    """List the free nodes, the first in front, and plan the first failures."""
    for node in range(sim.nodes.size - 1, -1, -1):
        list_node(sim, node)
    for node in range(sim.nodes.size):
        if sim.nodes[node].status == const.UP:
            failing.plan_failure(sim, node)
    for source in range(sim.sources.size):
        failing.plan_blast(sim, source)


@compiled
def advance(sim: Simulation, until: int) -> bool:
    """Play all events before a moment; False: an array is nearly full, and must grow first."""
    counters, heap, jobs = sim.counters, sim.heap, sim.jobs
    burst = const.ROOM * (sim.slots.size + sim.nodes.size)
    while True:
        if (
            counters[const.ROWS] + burst > sim.out.size
            or counters[const.NODE_ROWS] + burst > sim.node_rows.size
            or counters[const.HEAP_SIZE] + burst > heap.size
            or counters[const.FAILURES] + burst > sim.failures.size
        ):
            return False
        planned = heap[0].time if counters[const.HEAP_SIZE] > 0 else const.NEVER
        job = counters[const.NEXT_SUBMIT]
        submitted = jobs[job].submit_ms if job < jobs.size else const.NEVER
        time = min(planned, submitted, counters[const.NEXT_PASS])
        if time >= until:
            return True
        counters[const.NOW] = time
        if planned == time:
            if _happen(sim):
                counters[const.EVENTS] += 1
                _call_for_pass(sim)
        elif submitted == time:
            counters[const.NEXT_SUBMIT] += 1
            counters[const.EVENTS] += 1
            sim.jobs[job].eligible = sim.jobs[job].turn = time
            enqueue(sim, job)
            _call_for_pass(sim)
        else:
            again = schedule(sim)
            counters[const.NEXT_PASS] = const.NEVER
            if again < const.NEVER:
                _call_for_pass_at(sim, again)


@njit(cache=True, inline="always")
def _call_for_pass(sim: Simulation) -> None:
    if sim.counters[const.QUEUED] > 0:
        _call_for_pass_at(sim, sim.counters[const.NOW])


@compiled
def _call_for_pass_at(sim: Simulation, time: int) -> None:
    """Passes come at multiples of the interval."""
    every = sim.rules[0].interval
    if every > 0:
        time = -(-time // every) * every
    sim.counters[const.NEXT_PASS] = min(sim.counters[const.NEXT_PASS], time)


@compiled
def _happen(sim: Simulation) -> bool:
    """Let the first planned event happen; False: it was called off."""
    heap, slots, nodes = sim.heap, sim.slots, sim.nodes
    # Every number of a node, job or slot is an int64 here: each function is compiled once.
    kind, index, generation = heap[0].order >> 56, wide(heap[0].index), heap[0].generation
    drop_first(sim)
    if kind in (const.END, const.KILL):
        if slots[index].generation != generation:
            return False
        end(sim, index, wide(slots[index].ending) if kind == const.END else const.PREEMPTED)
    elif kind in (const.FAIL, const.REPAIR):
        if nodes[index].generation != generation:
            return False
        if kind == const.FAIL:
            failing.fail(sim, index)
        else:
            failing.repair(sim, index)
    elif kind == const.DETECT:
        failing.detect(sim, index)
    elif kind == const.ELIGIBLE:
        enqueue(sim, index)
        if sim.jobs[index].turn == const.FIRST:  # its nodes are not given to others
            sim.counters[const.NEXT_PASS] = sim.counters[const.NOW]
    elif kind == const.BLAST:
        failing.blast(sim, index)
    elif kind == const.HELD:
        if sim.jobs[index].held_left != 0:
            return False
        _start_held(sim, index)
    return True


@compiled
def _start_held(sim: Simulation, job: int) -> None:
    """Start a job for which others were preempted."""
    nodes = sim.nodes
    chosen = sim.scratch[0]
    count = const.ZERO
    for node in range(nodes.size):
        if nodes[node].held_for == job:
            nodes[node].held_for = -1
            chosen[count] = node
            count += 1
    sim.jobs[job].held_left = -1
    start(sim, job, chosen, count)


@compiled
def finish(sim: Simulation, now: int) -> None:
    """Record what still runs when the time is over."""
    sim.counters[const.NOW] = now
    for slot in range(sim.slots.size):
        if sim.slots[slot].job >= 0:
            record(sim, slot, const.RUNNING, now, const.YES)
            sim.out[sim.counters[const.ROWS] - 1].end_ms = -1
