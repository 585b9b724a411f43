"""How nodes fail, how that is noticed, and how they come back."""

from __future__ import annotations

import math

from holdfast.fleet.simulation import portable as draw
from holdfast.fleet.simulation.kernel import state as const
from holdfast.fleet.simulation.kernel.attempts import end, leaves, take_out
from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.heap import plan
from holdfast.fleet.simulation.kernel.placement import list_node
from holdfast.fleet.simulation.kernel.preempting import let_go
from holdfast.fleet.simulation.kernel.state import Simulation, wide

LONGEST = 4e15  # Milliseconds: beyond it nothing is planned


@compiled
def plan_failure(sim: Simulation, place: int) -> None:
    """Plan the next failure of a node that is in service."""
    node = sim.nodes[place]
    now = sim.counters[const.NOW]
    if not math.isfinite(node.scale):
        return
    drawn = draw.exponential(draw.stream(sim.rules[0].seed, draw.NODE, place), node.draws)
    node.draws += 1
    gap = node.scale * drawn
    if node.healthy > now:  # of the hazard up to the failure, some or all is that of a healthy node
        rest = drawn - (node.healthy - now) / sim.rules[0].healthy
        gap = node.healthy - now + rest * (node.scale if rest > 0 else sim.rules[0].healthy)
    if gap < LONGEST:
        plan(sim, now + max(int(gap), 1), const.FAIL, place, node.generation)


@compiled
def plan_blast(sim: Simulation, place: int) -> None:
    """Plan the next common failure of a rack, a pod or the fleet."""
    source = sim.sources[place]
    gap = source.gap * draw.exponential(
        draw.stream(sim.rules[0].seed, draw.SHARED, place), source.draws
    )
    source.draws += 1
    if gap < LONGEST:
        plan(sim, sim.counters[const.NOW] + max(int(gap), 1), const.BLAST, place, 0)


@compiled
def fail(sim: Simulation, place: int) -> None:
    """A component of a node fails now."""
    node = sim.nodes[place]
    parts = sim.components
    of = draw.stream(sim.rules[0].seed, draw.NODE, place)
    number = node.draws
    node.draws += 4
    u = draw.uniform(of, number)
    which = const.ZERO
    while which < parts.size - 1 and u >= parts[which].share:
        which += 1
    part = parts[which]
    seen = draw.uniform(of, number + 1)
    permanent = draw.uniform(of, number + 2) < part.permanent
    crash = draw.uniform(of, number + 3) < part.crash
    if seen < part.high:
        _break(sim, place, which, const.HIGH, permanent, crash, const.NONE)
    elif seen < part.high + part.low:
        if node.status == const.UP and node.drain < 0:
            when = _next_check(sim, place)
            node.drain = _write(sim, place, which, const.LOW, permanent, when, const.NONE)
        plan_failure(sim, place)
    else:
        _break(sim, place, which, const.SILENT, permanent, const.NO, const.NONE)


@compiled
def blast(sim: Simulation, place: int) -> None:
    """Something that many nodes share fails now: the attempts on them die."""
    number = sim.counters[const.BLASTS]
    source = sim.sources[place]
    sim.counters[const.BLASTS] += 1
    for node in range(source.first, source.end):
        if sim.nodes[node].status <= const.DRAINING:
            for k in range(sim.nodes[node].attempts):
                sim.slots[sim.on_node[node, k]].taken += 1
    for node in range(source.first, source.end):
        if sim.nodes[node].status <= const.DRAINING:
            _break(sim, node, source.kind, const.HIGH, const.NO, const.YES, number)
    plan_blast(sim, place)


@compiled
def _break(
    sim: Simulation, place: int, part: int, kind: int, permanent: bool, crash: bool, number: int
) -> None:
    """A node stops working: its attempts die at once, or hang until it is noticed."""
    node = sim.nodes[place]
    now = sim.counters[const.NOW]
    node.status = const.DOOMED
    node.generation += 1
    if kind == const.SILENT:
        seen = now + sim.rules[0].heartbeat
    elif crash and node.attempts > 0:
        seen = now + const.CRASH_SEEN_MS
    else:
        seen = _next_check(sim, place)
    failure = _write(sim, place, part, kind, permanent, seen, number)
    node.failure = failure
    if node.attempts > 0:
        _count(sim, place, failure)
    if node.held_for >= 0:
        let_go(sim, wide(node.held_for))
    list_node(sim, place)
    for k in range(node.attempts - 1, -1, -1):  # from the last: one that ends gives up its place
        which = wide(sim.on_node[place, k])
        slot = sim.slots[which]
        slot.taken += number < 0
        if slot.stopped < 0:
            leaves(sim, which)
            slot.stopped, slot.failure = now, failure
        if crash:
            end(sim, which, const.FAILED)
        else:
            # It hangs: of what was planned, only the end of its limit may still come.
            slot.generation += 1
            slot.ending = const.TIMEOUT
            plan(sim, max(slot.limit, now), const.END, which, slot.generation)


@compiled
def _count(sim: Simulation, place: int, failure: int) -> None:
    """Pull a node if it has failed as often as the rule says."""
    node, row, rules = sim.nodes[place], sim.failures[failure], sim.rules[0]
    recent = sim.recent[place]
    if recent.size == 0 or row.detected_ms < node.asked:
        return
    recent[node.counted % recent.size] = row.detected_ms
    node.counted += 1
    first = recent[node.counted % recent.size]
    if first >= max(row.detected_ms - rules.pull_within, node.asked):
        row.pulled = True
        node.asked = row.detected_ms + rules.pull_horizon
        of = draw.stream(rules.seed, draw.NODE, place)
        if draw.uniform(of, node.draws) < rules.pull_fixed:
            node.healthy = node.asked
        node.draws += 1


@compiled
def _write(
    sim: Simulation, node: int, part: int, kind: int, permanent: bool, seen: int, number: int
) -> int:
    """Record a failure, and plan that it is noticed; gives its row."""
    place = sim.counters[const.FAILURES]
    sim.counters[const.FAILURES] += 1
    row = sim.failures[place]
    row.time_ms, row.node = sim.counters[const.NOW], node
    row.component, row.kind, row.permanent = part, kind, permanent
    row.detected_ms, row.blast = seen, number
    row.out_ms = row.repaired_ms = -1
    plan(sim, seen, const.DETECT, place, 0)
    return place


@compiled
def _next_check(sim: Simulation, node: int) -> int:
    """When the health checks of a node run next; nodes take turns."""
    every = sim.rules[0].check_interval
    now = sim.counters[const.NOW]
    turn = (node * 7919 * 1000) % every
    return int(now + every - (now + turn) % every)


@compiled
def detect(sim: Simulation, failure: int) -> None:
    """A check fires, or a silent node is given up."""
    place = wide(sim.failures[failure].node)
    node = sim.nodes[place]
    if sim.failures[failure].kind == const.LOW:
        if node.status != const.UP or node.drain != failure:
            return
        node.status = const.DRAINING
        if node.held_for >= 0:
            let_go(sim, wide(node.held_for))
        list_node(sim, place)
    else:
        for k in range(node.attempts - 1, -1, -1):
            end(sim, wide(sim.on_node[place, k]), const.NODE_FAIL)
    if node.attempts == 0:
        take_out(sim, place)


@compiled
def repair(sim: Simulation, place: int) -> None:
    """A node is back in service."""
    node = sim.nodes[place]
    now = sim.counters[const.NOW]
    for failure in (node.failure, node.drain):
        if failure >= 0:
            sim.failures[failure].repaired_ms = now
    node.failure = node.drain = -1
    node.status, node.until = const.UP, 0
    list_node(sim, place)
    plan_failure(sim, place)
