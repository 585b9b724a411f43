"""What breaks how often: the failures of a scenario as numbers of every node."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from holdfast.fleet.simulation.kernel.state import BLAST_KIND, BLAST_SOURCE, COMPONENT
from holdfast.fleet.simulation.portable import LEMON, stream, uniform
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.workload import DAY_MS


@dataclass(frozen=True)
class Hazards:
    """Failures per millisecond, and the records of `kernel.state` that say what they are like."""

    rate: Array
    """float64 [nodes]: of failures that end attempts."""
    scale: Array
    """float64 [nodes]: Weibull scale of the gaps between failures of any kind, milliseconds."""
    ending: float
    """Share of the failures that end attempts."""
    pod_rate: float
    """Blasts of one pod."""
    fleet_rate: float
    """Blasts of the fleet."""
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
        of = stream(seed, LEMON, 0)
        drawn = [uniform(of, node) for node in range(scenario.cluster.nodes)]
        factors[np.argsort(drawn, kind="stable")[: lemons.count]] = lemons.factor
    if lemons.nodes:
        place = {name: node for node, name in enumerate(scenario.node_names)}
        for name, factor in lemons.nodes.items():
            factors[place[name]] = factor
    return factors


def hazards(scenario: Scenario, seed: int) -> Hazards:
    """The failures of a scenario as the kernel needs them."""
    failures, cluster = scenario.failures, scenario.cluster
    parts = failures.components
    shares = np.array([part.share for part in parts] or [1.0])
    shares = shares / shares.sum()
    drains = float(sum(s * p.low for s, p in zip(shares, parts, strict=False)))
    factors = lemon_factors(scenario, seed)
    ending = 1.0 - drains
    rate = failures.rate_per_node_day / DAY_MS * factors / factors.mean()
    with np.errstate(divide="ignore"):
        gap = ending / rate  # mean time between failures of any kind
    # Rounded, so that the gamma functions of different machines give one scale.
    scale = np.round(gap / math.gamma(1 + 1 / failures.shape), 3)
    pods = -(-cluster.nodes // cluster.nodes_per_pod)
    sources = [
        (kind, pod, DAY_MS / each.rate_per_day)
        for kind, each in enumerate(failures.blasts)
        if each.rate_per_day > 0
        for pod in (range(pods) if each.domain == "pod" else [-1])
    ]
    of_domain = {
        domain: sum(b.rate_per_day for b in failures.blasts if b.domain == domain) / DAY_MS
        for domain in ("pod", "fleet")
    }

    def column(name: str) -> Array:
        return np.array([getattr(part, name) for part in parts] or [0.0], np.float64)

    blasts = np.zeros(max(len(failures.blasts), 1), BLAST_KIND)
    blasts["repair"][: len(failures.blasts)] = [
        round(each.repair_s * 1e3) for each in failures.blasts
    ]
    components = np.zeros(max(len(parts), 1), COMPONENT)
    for name in ("high", "low", "crash", "permanent"):
        components[name][: len(parts)] = [getattr(part, name) for part in parts]
    components["share"] = np.cumsum(shares)
    return Hazards(
        rate=rate,
        scale=scale,
        ending=ending,
        pod_rate=of_domain["pod"],
        fleet_rate=of_domain["fleet"],
        components=components,
        blasts=blasts,
        sources=np.array([(kind, pod, gap, 0) for kind, pod, gap in sources], BLAST_SOURCE),
    )
