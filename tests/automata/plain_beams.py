"""A beam search over a composition in plain Python: the oracle of `compose_pruned`.

For machines whose weights are costs of 0 or more, no two paths of equal cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from plain_composition import PlainComposition

from holdfast.automata import Fst


class PlainSearch(NamedTuple):
    kept: set[int]
    """States of the composition."""
    cost: list[float]
    """[V] of the best path to each state through kept ones; inf for those that were never met."""
    best: dict[int, float]
    """The lowest cost of each frontier."""


def depths(a: Fst) -> list[int]:
    """[V] the longest distance from the start in arcs between components; -1 where no path leads."""
    reached = [[s == t for t in range(a.num_states)] for s in range(a.num_states)]
    for _ in range(a.num_states):
        for arc in a.arcs():
            for origin in reached:
                origin[arc.nextstate] |= origin[arc.source]
    depth = [0 if reached[a.start][s] else -1 for s in range(a.num_states)]
    for _ in range(a.num_states):
        for arc in a.arcs():
            s, t = arc.source, arc.nextstate
            if depth[s] >= 0 and not reached[t][s]:
                depth[t] = max(depth[t], depth[s] + 1)
        for s in range(a.num_states):
            for t in range(a.num_states):
                if reached[s][t] and reached[t][s] and depth[s] >= 0:
                    depth[s] = depth[t] = max(depth[s], depth[t])
    return depth


def search(a: Fst, exact: PlainComposition, beam: float, max_active: float) -> PlainSearch:
    """What a beam keeps of a composition that was not trimmed."""
    depth = depths(a)
    frontier = [depth[state[0]] for state in exact.states]
    arcs = list(exact.machine.arcs())
    cost = [math.inf] * len(frontier)
    cost[0] = 0.0
    kept: set[int] = set()
    best = {}
    for now in sorted(set(frontier)):
        members = [s for s, of in enumerate(frontier) if of == now]
        lowest = best[now] = min(cost[s] for s in members)
        for _ in members:
            for arc in arcs:
                if frontier[arc.source] == now == frontier[arc.nextstate]:
                    through = cost[arc.source] + arc.weight
                    if through < cost[arc.nextstate] and cost[arc.source] <= lowest + beam:
                        cost[arc.nextstate] = through
        left = sorted((s for s in members if cost[s] <= lowest + beam), key=lambda s: cost[s])
        keep = {s for s in left[: int(min(max_active, len(left)))] if cost[s] < math.inf}
        keep |= {0} & set(members)
        for arc in arcs:
            if arc.source in keep and frontier[arc.nextstate] > now:
                cost[arc.nextstate] = min(cost[arc.nextstate], cost[arc.source] + arc.weight)
        kept |= keep
    return PlainSearch(kept, cost, best)


def reachable(exact: PlainComposition, kept: set[int]) -> set[int]:
    """The kept states that the start reaches through kept ones."""
    found, waiting = {0}, [0]
    while waiting:
        for arc in exact.machine.arcs(waiting.pop()):
            if arc.nextstate in kept and arc.nextstate not in found:
                found.add(arc.nextstate)
                waiting.append(arc.nextstate)
    return found
