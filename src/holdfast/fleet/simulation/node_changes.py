"""Changes of which nodes a cluster has and which of them are lemons.

The failure rate of a scenario is the mean of all nodes; a change leaves each node that stays its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.errors import InputError
from holdfast.fleet.simulation.changes import Edit, changed, impossible, switch
from holdfast.fleet.simulation.scenario import Lemons, Scenario

SAME_RATE = 1e-13  # Relative difference of two failure rates that are one


def with_rates_kept(before: Scenario, after: Scenario) -> Scenario:
    """`after` with the mean failure rate at which its healthy nodes fail as often as `before`'s.

    The mean is over nodes in service: it depends on which nodes are lemons, on how often they fail, and
    on how long repairs keep them out.
    """
    lemons = (before.failures.lemons, after.failures.lemons)
    if not any(each.count or each.nodes for each in lemons):
        return after  # the mean is that of the healthy nodes
    from holdfast.fleet.simulation.hazards import healthy_rate_per_node_day as healthy

    healthy_rate = healthy(before)
    for _ in range(100):
        now = healthy(after)
        if abs(now - healthy_rate) <= SAME_RATE * healthy_rate:
            break
        # Nearly proportional: each step leaves a small part of the error.
        rate = after.failures.rate_per_node_day * healthy_rate / now
        after = replace(after, failures=replace(after.failures, rate_per_node_day=rate))
    return after


def _with(scenario: Scenario, lemons: Lemons, **cluster: Any) -> Scenario:
    """Other lemons, or other nodes."""
    return replace(
        scenario,
        cluster=replace(scenario.cluster, **cluster),
        failures=replace(scenario.failures, lemons=lemons),
    )


def _lemons(scenario: Scenario, edit: Edit) -> Scenario:
    if edit.operator == "=" and edit.value.lower() in ("off", "0", "none"):
        return _with(scenario, Lemons(factor=scenario.failures.lemons.factor))
    if edit.operator != "=" or not edit.value.isdigit():
        raise impossible(edit, "lemons=off, or a number of lemon nodes")
    return _with(scenario, replace(scenario.failures.lemons, count=int(edit.value)))


def _replace(scenario: Scenario, edit: Edit) -> Scenario:
    names, lemons = _named(scenario, edit), scenario.failures.lemons
    unknown = [name for name in names if name not in lemons.nodes]
    if unknown and lemons.count:
        raise InputError(
            "the seed chooses which nodes are lemons: their names are not known beforehand",
            code="conflict",
            place="failures.lemons.count",
            found=", ".join(unknown),
            expected="lemons=off, or the names of nodes under failures.lemons.nodes",
        )
    left = {name: factor for name, factor in lemons.nodes.items() if name not in names}
    return _with(scenario, replace(lemons, nodes=left))


def _pull(scenario: Scenario, edit: Edit) -> Scenario:
    """Out of service, but not out of the list: the other nodes keep their places and random numbers."""
    without = {*scenario.cluster.without, *_named(scenario, edit)}
    return replace(scenario, cluster=replace(scenario.cluster, without=tuple(sorted(without))))


def _named(scenario: Scenario, edit: Edit) -> list[str]:
    """The nodes of a host list."""
    from holdfast.fleet.formats.hosts import hosts_of

    names = hosts_of(re.sub(r"\s+", "", edit.value)) if edit.operator == "=" else None
    if not names:
        raise impossible(edit, f"{edit.key}=NODE,NODE or a host list such as node[05,09]")
    if not set(names) <= set(scenario.node_names):
        raise impossible(edit, f"nodes of the cluster, {', '.join(scenario.node_names[:2])} ...")
    return names


def _nodes(scenario: Scenario, edit: Edit) -> Scenario:
    cluster = scenario.cluster
    count = round(changed(cluster.nodes, edit))
    if not (cluster.names or cluster.without or scenario.failures.lemons.nodes):
        return _with(scenario, scenario.failures.lemons, nodes=count)
    old = scenario.node_names
    # Names are sorted: a name that begins with the last one keeps the places of all others.
    fresh = [f"{old[-1]}-new{index:06d}" for index in range(1, count - len(old) + 1)]
    names = [*old, *fresh][: max(count, 0)]
    lemons = scenario.failures.lemons
    left = {name: factor for name, factor in lemons.nodes.items() if name in names}
    without = tuple(name for name in cluster.without if name in names)
    return _with(
        scenario,
        replace(lemons, nodes=left),
        nodes=count,
        names=",".join(names),
        without=without,
    )


def _backfill(scenario: Scenario, edit: Edit) -> Scenario:
    policy = "easy" if switch(edit) else "fcfs"
    return replace(scenario, scheduler=replace(scenario.scheduler, policy=policy))


BY_WORD: dict[str, Callable[[Scenario, Edit], Scenario]] = {
    "lemons": _lemons,
    "replace": _replace,
    "pull": _pull,
    "nodes": _nodes,
    "backfill": _backfill,
}
