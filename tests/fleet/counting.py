"""Incidents and node-days of a log, counted by loops over every attempt, node and second."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from logs import Attempt, Log
from test_attribution import AFTER, BEFORE, blame_by_loops, causes_by_loops

DAY = 86_400
GAP_S = 60


def blamed(log: Log) -> dict[Attempt, dict[str, float]]:
    """Failed attempt -> nodes that it may blame -> when each failed, as far as it is known."""
    found: dict[Attempt, dict[str, float]] = defaultdict(dict)
    for attempt, node, _ in blame_by_loops(log):
        signs = [
            (abs(cause.offset), cause.offset)
            for cause in causes_by_loops(log, attempt, BEFORE, AFTER)
            if cause.check.rated == "HIGH" and cause.check.node == node
        ]
        found[attempt][node] = attempt.stop + (min(signs)[1] if signs else 0)
    return dict(found)


def incidents_by_loops(log: Log) -> list[set[Attempt]]:
    """The attempts that each incident ended, in order of time."""
    failed = blamed(log)
    moments = defaultdict(list)  # node -> (event, attempt) of the sure ones
    for attempt, nodes in failed.items():
        if len(nodes) == 1:
            ((node, event),) = nodes.items()
            moments[node].append((event, attempt.stop, attempt))
    groups: list[set[Attempt]] = []
    at: dict[str, list[tuple[float, int]]] = defaultdict(list)  # node -> (event, group)
    for node, events in moments.items():
        events.sort(key=lambda each: each[:2])
        for place, (event, _, attempt) in enumerate(events):
            if place == 0 or event - events[place - 1][0] > GAP_S:
                groups.append(set())
            groups[-1].add(attempt)
            at[node].append((event, len(groups) - 1))
    unsure: list[set[Attempt]] = []
    for attempt, nodes in failed.items():
        if len(nodes) == 1:
            continue
        near = [(abs(t - event), node, t, g) for node, event in nodes.items() for t, g in at[node]]
        if near and min(near)[0] <= GAP_S:
            groups[min(near)[-1]].add(attempt)
        else:
            unsure.append({attempt})
    merged = True
    while merged:
        merged = False
        for one in unsure:
            for other in unsure:
                if one is not other and any(
                    abs(failed[a][node] - failed[b][node]) <= GAP_S
                    for a in one
                    for b in other
                    for node in failed[a].keys() & failed[b].keys()
                ):
                    one |= other
                    unsure.remove(other)
                    merged = True
                    break
            if merged:
                break
    return sorted([*groups, *unsure], key=lambda each: min(a.stop for a in each))


def node_use(
    log: Log, since: int = 0, min_gpus: int = -1
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(node, GPUs of the largest job on it) -> spans, each moment of a node once.

    Jobs with all GPUs of their nodes, where an inventory tells, have them for themselves.
    """
    held, found = defaultdict(list), defaultdict(list)
    most = max(log.nodes.values(), default=0)
    for a in log.attempts:
        if a.start is None or a.stop <= since or a.gpu_count <= min_gpus:
            continue
        for node in a.nodes:
            span = max(a.stop - a.ran_s, since), a.stop
            if most and a.gpu_count >= most * len(a.nodes):
                found[node, a.gpu_count].append(span)
            else:
                held[node].append((*span, a.gpu_count))
    for node, spans in held.items():
        edges = sorted({edge for low, high, _ in spans for edge in (low, high)})
        for low, high in pairwise(edges):
            on = [gpus for begin, end, gpus in spans if begin <= low and high <= end]
            if on:
                found[node, max(on)].append((low, high))
    return dict(found)


def node_days(log: Log, since: int = 0, min_gpus: int = -1) -> Counter[tuple[str, int]]:
    """(node, GPUs of the largest job on it) -> node-days."""
    days: Counter[tuple[str, int]] = Counter()
    for place, spans in node_use(log, since, min_gpus).items():
        days[place] = sum(high - low for low, high in spans) / DAY  # type: ignore[assignment]
    return days
