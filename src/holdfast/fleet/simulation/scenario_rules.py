"""What cannot be simulated: each complaint names the key of the scenario."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.fleet.simulation.scenario_toml import toml_key, wrong

if TYPE_CHECKING:
    from holdfast.fleet.simulation.scenario import Cluster, Failures, Scenario, Workload

ENDS = ("FAILED", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED")


def check(made: Scenario) -> None:
    """Refuse what cannot be simulated, by the name of its key."""
    _check_numbers(made, "")
    cluster, workload, scheduler = made.cluster, made.workload, made.scheduler
    try:
        datetime.fromisoformat(made.begin)
    except ValueError as error:
        raise wrong("begin", made.begin, "a time such as 2024-01-01T00:00:00Z") from error
    for name in ("nodes", "gpus_per_node", "nodes_per_rack", "nodes_per_pod"):
        if getattr(cluster, name) < 1:
            raise wrong(f"cluster.{name}", getattr(cluster, name), "1 or more")
    if cluster.gpus_per_node > 64:
        raise wrong("cluster.gpus_per_node", cluster.gpus_per_node, "at most 64")
    if cluster.names and len(set(made.node_names)) != cluster.nodes:
        raise wrong("cluster.names", cluster.names, f"the names of {cluster.nodes} different nodes")
    if strangers := set(cluster.without) - set(made.node_names):
        raise wrong("cluster.without", min(strangers), "a node of the cluster")
    if len(set(cluster.without)) == cluster.nodes:
        raise wrong("cluster.without", "every node", "at least one node that is left")
    classes = [each.name for each in made.qos]
    if not classes or len(set(classes)) != len(classes):
        raise wrong("qos", classes, "one or more classes of service with different names")
    _check_choice("scheduler.policy", scheduler.policy, ("easy", "fcfs"))
    _check_choice("checkpoint.mode", made.checkpoint.mode, ("sync", "async"))
    if made.checkpoint.interval_s <= 0:
        raise wrong("checkpoint.interval", made.checkpoint.interval_s, "a time above zero")
    if scheduler.time_limit_s <= 0:
        raise wrong("scheduler.time_limit", scheduler.time_limit_s, "a time above zero")
    if made.detection.check_interval_s <= 0:
        raise wrong(
            "detection.check_interval", made.detection.check_interval_s, "a time above zero"
        )
    for kind in ("fast", "slow"):
        low, high = (getattr(made.repair, f"{kind}_{end}_s") for end in ("min", "max"))
        if low > high:
            raise wrong(f"repair.{kind}_min", low, f"at most repair.{kind}_max ({high} s)")
    _check_workload(workload, cluster, classes)
    _check_failures(made.failures, made)


def _check_workload(workload: Workload, cluster: Cluster, classes: list[str]) -> None:
    _check_choice("workload.kind", workload.kind, ("synthetic", "replay"))
    for name, count in (("hour_weights", 24), ("day_weights", 7)):
        weights = getattr(workload, name)
        if len(weights) != count or not sum(weights) > 0:
            raise wrong(f"workload.{name}", list(weights), f"{count} numbers, not all zero")
    if workload.users < 1:
        raise wrong("workload.users", workload.users, "1 or more")
    if workload.limit_factor < 1.2:
        raise wrong("workload.limit_factor", workload.limit_factor, "1.2 or more")
    if workload.short_limits > 1:
        raise wrong("workload.short_limits", workload.short_limits, "a share of at most 1")
    if workload.kind == "synthetic":
        if not workload.sizes or not sum(size.share for size in workload.sizes) > 0:
            raise wrong("workload.sizes", "nothing", "one or more sizes with shares above zero")
        if not workload.jobs_per_day > 0:
            raise wrong("workload.jobs_per_day", workload.jobs_per_day, "a number above zero")
    most = cluster.nodes * cluster.gpus_per_node
    for place, size in enumerate(workload.sizes):
        key = f"workload.sizes[{place}]"
        if not 1 <= size.gpus <= most:
            raise wrong(f"{key}.gpus", size.gpus, f"1 to {most}, the GPUs of the cluster")
        if size.gpus > cluster.gpus_per_node and size.gpus % cluster.gpus_per_node:
            raise wrong(f"{key}.gpus", size.gpus, f"a multiple of {cluster.gpus_per_node}")
        if not size.hours > 0:
            raise wrong(f"{key}.hours", size.hours, "a number above zero")
        for name in size.qos:
            if name not in classes:
                raise wrong(f"{key}.qos", name, "one of the classes " + ", ".join(classes))
        if size.qos and not sum(size.qos.values()) > 0:
            raise wrong(f"{key}.qos", dict(size.qos), "shares that are not all zero")
    for place, end in enumerate(workload.ends):
        _check_choice(f"workload.ends[{place}].state", end.state, ENDS)
        for name in ("scale_hours", "shape"):
            if not getattr(end, name) > 0:
                raise wrong(f"workload.ends[{place}].{name}", getattr(end, name), "above zero")


def _check_failures(failures: Failures, made: Scenario) -> None:
    lemons = failures.lemons
    if not failures.shape > 0:
        raise wrong("failures.shape", failures.shape, "a number above zero")
    if lemons.count > made.cluster.nodes:
        raise wrong(
            "failures.lemons.count", lemons.count, f"at most {made.cluster.nodes}, the nodes"
        )
    if not lemons.factor > 0:
        raise wrong("failures.lemons.factor", lemons.factor, "a number above zero")
    if lemons.nodes:
        known = set(made.node_names)
        for name, factor in lemons.nodes.items():
            if name not in known:
                raise wrong("failures.lemons.nodes", name, "a node of the cluster")
            if not factor > 0:
                raise wrong(f"failures.lemons.nodes.{name}", factor, "a number above zero")
    if failures.rate_per_node_day > 0 and not sum(c.share for c in failures.components) > 0:
        raise wrong("failures.components", "nothing", "one or more components with a share")
    for place, part in enumerate(failures.components):
        for name in ("high", "low", "crash", "permanent"):
            if getattr(part, name) > 1:
                raise wrong(
                    f"failures.components[{place}].{name}", getattr(part, name), "at most 1"
                )
        if part.high + part.low > 1 + 1e-9:
            raise wrong(f"failures.components[{place}].low", part.low, "high + low of at most 1")
    if failures.rate_per_node_day > 0 and all(
        part.low >= 1 for part in failures.components if part.share > 0
    ):
        raise wrong("failures.components", "drains only", "a component that ends attempts")
    for place, blast in enumerate(failures.blasts):
        _check_choice(f"failures.blasts[{place}].domain", blast.domain, ("rack", "pod", "fleet"))


def _check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise wrong(key, value, " or ".join(choices))


def _check_numbers(value: Any, place: str) -> None:
    """No number of a scenario is negative, or not a number."""
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            key = toml_key(each.name)
            _check_numbers(getattr(value, each.name), f"{place}.{key}" if place else key)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _check_numbers(part, f"{place}.{name}")
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            _check_numbers(part, f"{place}[{number}]")
    elif isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
        raise wrong(place, value, "a finite number, zero or more")
