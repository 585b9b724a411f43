"""What breaks how often: the failures of a scenario as numbers of every node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from holdfast.fleet.simulation.kernel.state import BLAST_KIND, BLAST_SOURCE, COMPONENT
from holdfast.fleet.simulation.portable import LEMON, stream, uniform
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario_file import DAY_S
from holdfast.fleet.simulation.workload import DAY_MS


@dataclass(frozen=True)
class Hazards:
    """Failures per millisecond, and the records of `kernel.state` that say what they are like."""

    rate: Array  # float64 [nodes]: of failures that end attempts
    # float64 [nodes]: mean time between failures of any kind, milliseconds.
    scale: Array
    # Of `kernel.state.RULES`: blasts of one rack, one pod, the fleet; `scale` of a healthy node.
    rules: dict[str, float]
    components: Array
    blasts: Array
    sources: Array


def lemon_factors(scenario: Scenario, seed: int) -> Array:
    """How much more often each node fails than a healthy one.

    Args:
        scenario: names its lemons, or says how many the seed shall choose.
        seed: of the random numbers.

    Returns:
        float64 [nodes]; 1 for a healthy node.
    """
    lemons = scenario.failures.lemons
    factors: Array = np.ones(scenario.cluster.nodes)
    if lemons.count:
        drawn = _uniforms(seed, scenario.cluster.nodes)
        factors[np.argsort(drawn, kind="stable")[: lemons.count]] = lemons.factor
    if lemons.nodes:
        place = {name: node for node, name in enumerate(scenario.node_names)}
        for name, factor in lemons.nodes.items():
            factors[place[name]] = factor
    return factors


@njit(cache=True)
def _uniforms(seed: int, count: int) -> Array:
    drawn = np.empty(count)
    of = stream(seed, LEMON, 0)
    for k in range(count):
        drawn[k] = uniform(of, k)
    return drawn


def healthy_rate_per_node_day(scenario: Scenario, factors: Array | None = None) -> float:
    """Failures that end attempts, per day in service, of a node that is no lemon.

    `Failures.rate_per_node_day` is the mean over the nodes in service, and a lemon is in service less
    than others: it spends more time in repair. So the rate of a healthy node solves
    mean(rate_i x availability_i) = rate x mean(availability_i).

    Args:
        scenario: whose failures, repairs and lemons.
        factors: of the nodes, float64 [nodes]; None: as the scenario says, whichever nodes they are.
    """
    mean_rate = scenario.failures.rate_per_node_day
    if factors is None:
        factors = lemon_factors(scenario, 0)
    ending, outage_days = _ending_and_outage(scenario)
    # Nodes of one factor are alike, and few sums in a fixed order have the same bits everywhere.
    values, counts = np.unique(factors, return_counts=True)
    kinds: list[tuple[float, int]] = list(zip(values.tolist(), counts.tolist(), strict=True))
    low = 0.0
    high = mean_rate / kinds[0][0]
    for _ in range(100):
        middle = (low + high) / 2
        failing = in_service = 0.0
        for factor, nodes in kinds:
            available = nodes / (1 + middle * factor / ending * outage_days)
            failing += middle * factor * available
            in_service += available
        if failing < mean_rate * in_service:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _ending_and_outage(scenario: Scenario) -> tuple[float, float]:
    """Share of the failures that end attempts, and the mean days that a failure takes a node away."""
    parts = scenario.failures.components
    repair = scenario.repair
    total = sum(part.share for part in parts) or 1.0
    ending = 1 - sum(part.share * part.low for part in parts) / total
    slow = sum(part.share * part.permanent for part in parts) / total
    fast_s = (repair.fast_min_s + repair.fast_max_s) / 2
    slow_s = (repair.slow_min_s + repair.slow_max_s) / 2
    return ending, ((1 - slow) * fast_s + slow * slow_s) / DAY_S


def hazards(scenario: Scenario, seed: int) -> Hazards:
    """The failures of a scenario as the kernel needs them."""
    failures = scenario.failures
    cluster = scenario.cluster
    parts = failures.components
    factors = lemon_factors(scenario, seed)
    ending, _ = _ending_and_outage(scenario)
    shares = np.array([part.share for part in parts] or [1.0])
    shares = shares / shares.sum()
    healthy = healthy_rate_per_node_day(scenario, factors) / DAY_MS
    rate = healthy * factors
    with np.errstate(divide="ignore"):
        scale = np.round(ending / rate, 3)
    widths = {"rack": cluster.nodes_per_rack, "pod": cluster.nodes_per_pod, "fleet": cluster.nodes}
    sources = []
    shared = dict.fromkeys(widths, 0.0)
    for kind, each in enumerate(failures.blasts):
        shared[each.domain] += each.rate_per_day
        width = widths[each.domain]
        for first in range(0, cluster.nodes, width) if each.rate_per_day > 0 else ():
            end = min(first + width, cluster.nodes)
            sources.append((kind, first, end, DAY_MS / each.rate_per_day, 0))
    blasts = np.zeros(max(len(failures.blasts), 1), BLAST_KIND)
    takes_ms = [round(each.repair_s * 1e3) for each in failures.blasts]
    blasts["repair"][: len(takes_ms)] = takes_ms
    components = np.zeros(max(len(parts), 1), COMPONENT)
    for name in ("high", "low", "crash", "permanent"):
        components[name][: len(parts)] = [getattr(part, name) for part in parts]
    components["share"] = np.cumsum(shares)
    rules = {f"{domain}_rate": shared[domain] / DAY_MS for domain in widths}
    rules["healthy"] = ending / max(healthy, 1e-300)
    return Hazards(rate, scale, rules, components, blasts, np.array(sources, BLAST_SOURCE))
