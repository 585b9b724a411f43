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
def plan_failure(sim: Simulation, node: int) -> None:
    """Plan the next failure of a node that is in service."""
    nodes, shape, scale = sim.nodes, sim.rules[0].shape, sim.nodes[node].scale
    if not math.isfinite(scale):
        return
    of = stream(sim.rules[0].seed, NODE, node)
    drawn = exponential(of, nodes[node].draws)
    nodes[node].draws += 1
    now = sim.counters[NOW]
    gap = scale * drawn
    if shape != 1.0:
        age = float(now - nodes[node].since)
        before = exp(shape * ln(age / scale)) if age > 0.0 else 0.0
        gap = scale * exp(ln(before + drawn) / shape) - age
    if gap < LONGEST:
        time = now + max(int(gap), 1)
        plan(sim, time, FAIL, node, nodes[node].generation)


@compiled
def plan_blast(sim: Simulation, source: int) -> None:
    """Plan the next common failure of a pod or of the fleet."""
    of = stream(sim.rules[0].seed, SHARED, source)
    number = sim.sources[source].draws
    sim.sources[source].draws += 1
    gap = sim.sources[source].gap * exponential(of, number)
    if gap < LONGEST:
        time = sim.counters[NOW] + max(int(gap), 1)
        plan(sim, time, BLAST, source, 0)


@compiled
def fail(sim: Simulation, node: int) -> None:
    """A component of a node fails now."""
    nodes, parts, rules = sim.nodes, sim.components, sim.rules[0]
    of, number = stream(rules.seed, NODE, node), nodes[node].draws
    nodes[node].draws += 4
    u = uniform(of, number)
    part = ZERO
    while part < parts.size - 1 and u >= parts[part].share:
        part += 1
    seen = uniform(of, number + 1)
    permanent = uniform(of, number + 2) < parts[part].permanent
    crash = uniform(of, number + 3) < parts[part].crash
    if seen < parts[part].high:
        _break(sim, node, part, HIGH, permanent, crash, NONE)
    elif seen < parts[part].high + parts[part].low:
        if nodes[node].status == UP and nodes[node].drain < 0:
            nodes[node].drain = _write(
                sim, node, part, LOW, permanent, _next_check(sim, node), NONE
            )
        plan_failure(sim, node)
    else:
        _break(sim, node, part, SILENT, permanent, NO, NONE)


@compiled
def blast(sim: Simulation, source: int) -> None:
    """Something that many nodes share fails now: the attempts on them die."""
    number, mine = sim.counters[BLASTS], sim.sources[source]
    sim.counters[BLASTS] += 1
    for node in range(mine.first, mine.end):
        if sim.nodes[node].status <= DRAINING:
            _break(sim, node, mine.kind, HIGH, NO, YES, number)
    plan_blast(sim, source)


@compiled
def _break(
    sim: Simulation, node: int, part: int, kind: int, permanent: bool, crash: bool, number: int
) -> None:
    """A node stops working: its attempts die at once, or hang until it is noticed."""
    nodes, slots, counters = sim.nodes, sim.slots, sim.counters
    now = counters[NOW]
    nodes[node].status = DOOMED
    nodes[node].generation += 1
    if kind == SILENT:
        seen = now + sim.rules[0].heartbeat
    elif crash and nodes[node].attempts > 0:
        seen = now + CRASH_SEEN_MS
    else:
        seen = _next_check(sim, node)
    failure = _write(sim, node, part, kind, permanent, seen, number)
    nodes[node].failure = failure
    plan(sim, seen, DETECT, failure, 0)
    if nodes[node].held_for >= 0:
        let_go(sim, wide(nodes[node].held_for))
    list_node(sim, node)
    for place in range(nodes[node].attempts - 1, -1, -1):
        slot = wide(sim.on_node[node, place])
        if slots[slot].stopped < 0:
            leaves(sim, slot)
            slots[slot].stopped = now
            slots[slot].failure = failure
        if crash:
            end(sim, slot, FAILED)
        else:
            # It hangs: of what was planned, only the end of its limit may still come.
            slots[slot].generation += 1
            slots[slot].ending = TIMEOUT
            limit = max(slots[slot].limit, now)
            plan(sim, limit, END, slot, slots[slot].generation)


@compiled
def _write(
    sim: Simulation, node: int, part: int, kind: int, permanent: bool, seen: int, number: int
) -> int:
    """Record a failure; gives its row."""
    failures = sim.failures
    row = sim.counters[FAILURES]
    sim.counters[FAILURES] += 1
    failures[row].time_ms, failures[row].node = sim.counters[NOW], node
    failures[row].component, failures[row].kind = part, kind
    failures[row].detected_ms, failures[row].blast = seen, number
    failures[row].permanent = permanent
    failures[row].out_ms = failures[row].repaired_ms = -1
    if kind == LOW:
        plan(sim, seen, DETECT, row, 0)
    return int(row)


@compiled
def _next_check(sim: Simulation, node: int) -> int:
    """When the health checks of a node run next; nodes take turns."""
    every, now = sim.rules[0].check_interval, sim.counters[NOW]
    turn = (node * 7919 * 1000) % every
    return int(now + every - (now + turn) % every)


@compiled
def detect(sim: Simulation, failure: int) -> None:
    """A check fires, or a silent node is given up."""
    nodes, failures = sim.nodes, sim.failures
    node = wide(failures[failure].node)
    if failures[failure].kind == LOW:
        if nodes[node].status != UP or nodes[node].drain != failure:
            return
        nodes[node].status = DRAINING
        if nodes[node].held_for >= 0:
            let_go(sim, wide(nodes[node].held_for))
        list_node(sim, node)
    else:
        for place in range(nodes[node].attempts - 1, -1, -1):
            end(sim, wide(sim.on_node[node, place]), NODE_FAIL)
    if nodes[node].attempts == 0:
        take_out(sim, node)


@compiled
def repair(sim: Simulation, node: int) -> None:
    """A node is back in service."""
    nodes = sim.nodes
    for failure in (nodes[node].failure, nodes[node].drain):
        if failure >= 0:
            sim.failures[failure].repaired_ms = sim.counters[NOW]
    nodes[node].failure = nodes[node].drain = -1
    nodes[node].status = UP
    nodes[node].since = sim.counters[NOW]
    nodes[node].until = 0
    list_node(sim, node)
    plan_failure(sim, node)
