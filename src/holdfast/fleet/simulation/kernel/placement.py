"""Which nodes are free, and which of them an attempt gets.

Part of a node goes to the fullest node that has room; whole nodes go to the fullest pod that has room, and
a gang that fits no pod to as few pods as possible.
"""

from __future__ import annotations

from holdfast.fleet.simulation.kernel.compiling import compiled
from holdfast.fleet.simulation.kernel.state import UP, WHOLE_FREE, Simulation, wide
from holdfast.fleet.simulation.records import Array


@compiled
def list_node(sim: Simulation, place: int) -> None:
    """Bring a node into the list of free nodes that it belongs to now."""
    nodes, lists, size = sim.nodes, sim.lists, sim.rules[0].gpus_per_node
    node = nodes[place]
    old = node.listed
    new = -1
    if node.status == UP and node.held_for < 0 and node.free > 0:
        new = node.free if node.free < size else size + node.pod
    if old == new:
        return
    if old >= 0:
        if node.before >= 0:
            nodes[node.before].following = node.following
        else:
            lists[old].first = node.following
        if node.following >= 0:
            nodes[node.following].before = node.before
        lists[old].count -= 1
        sim.counters[WHOLE_FREE] -= old >= size
    node.listed = new
    if new >= 0:
        first = lists[new].first
        node.before, node.following = -1, first
        if first >= 0:
            nodes[first].before = place
        lists[new].first = place
        lists[new].count += 1
        sim.counters[WHOLE_FREE] += new >= size


@compiled
def node_with(sim: Simulation, gpus: int) -> int:
    """The node that part of a node is taken from; -1: none has so many free GPUs."""
    for free in range(gpus, sim.rules[0].gpus_per_node):
        if sim.lists[free].count > 0:
            return wide(sim.lists[free].first)
    if sim.counters[WHOLE_FREE] == 0:
        return -1
    return wide(sim.lists[_fullest_pod(sim, 1)].first)


@compiled
def choose_whole(sim: Simulation, count: int, chosen: Array) -> None:
    """Choose wholly free nodes, no more than there are."""
    if count == 0:
        return
    best = _fullest_pod(sim, count)
    if best >= 0:
        _take(sim, best, count, chosen, 0)
        return
    size = sim.rules[0].gpus_per_node
    used = sim.scratch[2]
    used[: sim.lists.size - size] = 0
    found = 0
    while found < count:
        left, best, room = count - found, -1, 0
        for each in range(size, sim.lists.size):
            have = sim.lists[each].count if used[each - size] == 0 else 0
            # The last pod is the fullest that has room; those before it are the emptiest.
            if have > 0 and (have > room if room < left else left <= have < room):
                best = each
                room = have
        used[best - size] = 1
        found += _take(sim, best, min(left, room), chosen, found)


@compiled
def _take(sim: Simulation, which: int, count: int, chosen: Array, found: int) -> int:
    """Choose nodes of one list."""
    node = sim.lists[which].first
    for k in range(count):
        chosen[found + k] = node
        node = sim.nodes[node].following
    return count


@compiled
def _fullest_pod(sim: Simulation, count: int) -> int:
    """The list of the pod with the fewest wholly free nodes that are enough; -1: none has enough."""
    best = -1
    room = 1 << 30
    for each in range(sim.rules[0].gpus_per_node, sim.lists.size):
        have = sim.lists[each].count
        if count <= have < room:
            best = each
            room = have
            if have == count:
                break
    return best
