"""How nodes fail, how that is noticed, and how they come back."""

from __future__ import annotations

import math

from holdfast.fleet.simulation.kernel.attempts import end, leaves, take_out
from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.heap import plan
from holdfast.fleet.simulation.kernel.placement import list_node
from holdfast.fleet.simulation.kernel.preempting import let_go
from holdfast.fleet.simulation.kernel.state import (
    BLAST,
    BLASTS,
    CRASH_SEEN_MS,
    DETECT,
    DOOMED,
    DRAINING,
    END,
    FAIL,
    FAILED,
    FAILURES,
    HIGH,
    LOW,
    NO,
    NODE_FAIL,
    NONE,
    NOW,
    SILENT,
    TIMEOUT,
    UP,
    YES,
    ZERO,
    Simulation,
    wide,
)
from holdfast.fleet.simulation.portable import (
    NODE,
    SHARED,
    exp,
    exponential,
    ln,
    stream,
    uniform,
)

LONGEST = 4e15
"""Milliseconds: beyond it nothing is planned."""


@compiled
def plan_failure(sim: Simulation, place: int) -> None:
    """Plan the next failure of a node that is in service."""
    node, shape, now = sim.nodes[place], sim.rules[0].shape, sim.counters[NOW]
    if not math.isfinite(node.scale):
        return
    drawn = exponential(stream(sim.rules[0].seed, NODE, place), node.draws)
    node.draws += 1
    gap = node.scale * drawn
    if shape != 1.0:
        age = float(now - node.since)
        before = exp(shape * ln(age / node.scale)) if age > 0.0 else 0.0
        gap = node.scale * exp(ln(before + drawn) / shape) - age
    if gap < LONGEST:
        plan(sim, now + max(int(gap), 1), FAIL, place, node.generation)


@compiled
def plan_blast(sim: Simulation, place: int) -> None:
    """Plan the next common failure of a rack, a pod or the fleet."""
    source = sim.sources[place]
    gap = source.gap * exponential(stream(sim.rules[0].seed, SHARED, place), source.draws)
    source.draws += 1
    if gap < LONGEST:
        plan(sim, sim.counters[NOW] + max(int(gap), 1), BLAST, place, 0)


@compiled
def fail(sim: Simulation, place: int) -> None:
    """A component of a node fails now."""
    node, parts = sim.nodes[place], sim.components
    of, number = stream(sim.rules[0].seed, NODE, place), node.draws
    node.draws += 4
    u = uniform(of, number)
    which = ZERO
    while which < parts.size - 1 and u >= parts[which].share:
        which += 1
    part = parts[which]
    seen = uniform(of, number + 1)
    permanent = uniform(of, number + 2) < part.permanent
    crash = uniform(of, number + 3) < part.crash
    if seen < part.high:
        _break(sim, place, which, HIGH, permanent, crash, NONE)
    elif seen < part.high + part.low:
        if node.status == UP and node.drain < 0:
            when = _next_check(sim, place)
            node.drain = _write(sim, place, which, LOW, permanent, when, NONE)
        plan_failure(sim, place)
    else:
        _break(sim, place, which, SILENT, permanent, NO, NONE)


@compiled
def blast(sim: Simulation, place: int) -> None:
    """Something that many nodes share fails now: the attempts on them die."""
    number, source = sim.counters[BLASTS], sim.sources[place]
    sim.counters[BLASTS] += 1
    for node in range(source.first, source.end):
        if sim.nodes[node].status <= DRAINING:
            _break(sim, node, source.kind, HIGH, NO, YES, number)
    plan_blast(sim, place)


@compiled
def _break(
    sim: Simulation, place: int, part: int, kind: int, permanent: bool, crash: bool, number: int
) -> None:
    """A node stops working: its attempts die at once, or hang until it is noticed."""
    node, now = sim.nodes[place], sim.counters[NOW]
    node.status = DOOMED
    node.generation += 1
    if kind == SILENT:
        seen = now + sim.rules[0].heartbeat
    elif crash and node.attempts > 0:
        seen = now + CRASH_SEEN_MS
    else:
        seen = _next_check(sim, place)
    failure = _write(sim, place, part, kind, permanent, seen, number)
    node.failure = failure
    if node.held_for >= 0:
        let_go(sim, wide(node.held_for))
    list_node(sim, place)
    for k in range(node.attempts - 1, -1, -1):  # from the last: one that ends gives up its place
        which = wide(sim.on_node[place, k])
        slot = sim.slots[which]
        if slot.stopped < 0:
            leaves(sim, which)
            slot.stopped, slot.failure = now, failure
        if crash:
            end(sim, which, FAILED)
        else:
            # It hangs: of what was planned, only the end of its limit may still come.
            slot.generation += 1
            slot.ending = TIMEOUT
            plan(sim, max(slot.limit, now), END, which, slot.generation)


@compiled
def _write(
    sim: Simulation, node: int, part: int, kind: int, permanent: bool, seen: int, number: int
) -> int:
    """Record a failure, and plan that it is noticed; gives its row."""
    place = sim.counters[FAILURES]
    sim.counters[FAILURES] += 1
    row = sim.failures[place]
    row.time_ms, row.node = sim.counters[NOW], node
    row.component, row.kind, row.permanent = part, kind, permanent
    row.detected_ms, row.blast = seen, number
    row.out_ms = row.repaired_ms = -1
    plan(sim, seen, DETECT, place, 0)
    return place


@compiled
def _next_check(sim: Simulation, node: int) -> int:
    """When the health checks of a node run next; nodes take turns."""
    every, now = sim.rules[0].check_interval, sim.counters[NOW]
    turn = (node * 7919 * 1000) % every
    return int(now + every - (now + turn) % every)


@compiled
def detect(sim: Simulation, failure: int) -> None:
    """A check fires, or a silent node is given up."""
    place = wide(sim.failures[failure].node)
    node = sim.nodes[place]
    if sim.failures[failure].kind == LOW:
        if node.status != UP or node.drain != failure:
            return
        node.status = DRAINING
        if node.held_for >= 0:
            let_go(sim, wide(node.held_for))
        list_node(sim, place)
    else:
        for k in range(node.attempts - 1, -1, -1):
            end(sim, wide(sim.on_node[place, k]), NODE_FAIL)
    if node.attempts == 0:
        take_out(sim, place)


@compiled
def repair(sim: Simulation, place: int) -> None:
    """A node is back in service."""
    node, now = sim.nodes[place], sim.counters[NOW]
    for failure in (node.failure, node.drain):
        if failure >= 0:
            sim.failures[failure].repaired_ms = now
    node.failure = node.drain = -1
    node.status, node.since, node.until = UP, now, 0
    list_node(sim, place)
    plan_failure(sim, place)
