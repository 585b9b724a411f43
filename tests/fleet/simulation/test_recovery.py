"""The analyses find in a simulated log what was injected, at other rates, sizes and seeds too.

Every seed goes the whole way: simulate, write a store, open it, analyse. The truth is the hazard that
the simulator integrated over the attempts, which no analysis reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast.fleet as fleet
from holdfast.fleet.simulation.scenario import (
    Cluster,
    Component,
    End,
    Failures,
    Lemons,
    Qos,
    Scenario,
    Size,
    Workload,
)
from holdfast.fleet.simulation.simulated_log import simulate

DAYS = 60.0


def cluster(nodes: int, rate: float, lemons: Lemons | None = None) -> Scenario:
    """A cluster on which more than half of the GPU time is that of gangs above 128 GPUs."""
    return Scenario(
        name="recovery",
        cluster=Cluster(nodes=nodes, nodes_per_pod=16),
        qos=(Qos("low", 1), Qos("normal", 2), Qos("high", 3)),
        workload=Workload(
            jobs_per_day=1.2 * nodes,
            users=10,
            sizes=(
                Size(1, 0.39, 2.0, 1.0, {"low": 0.5, "normal": 0.5}),
                Size(8, 0.50, 3.0, 1.0, {"low": 0.5, "normal": 0.5}),
                Size(144, 0.07, 5.0, 0.8, {"normal": 0.5, "high": 0.5}),
                Size(256, 0.04, 8.0, 0.8, {"normal": 0.5, "high": 0.5}),
            ),
            ends=(End("FAILED", 60.0, 0.6), End("CANCELLED", 400.0, 0.6)),
        ),
        failures=Failures(
            rate_per_node_day=rate,
            lemons=lemons or Lemons(),
            components=(
                Component("GPU memory", 0.4, "gpu_ecc", xid=48, high=0.9, low=0.1, crash=0.7),
                Component("InfiniBand link", 0.4, "ib_link", high=0.9, low=0.1),
                Component("node", 0.2, "node_down", high=0.0, permanent=0.2),
            ),
        ),
    )


@dataclass(frozen=True)
class Recovered:
    """What one seed gave."""

    failures: int
    """Counted by the analysis in attempts above 128 GPUs."""
    node_days: float
    low: float
    high: float
    """Per node-day, 95 %."""
    truth: dict[str, Any]
    lemons: set[str]
    """Found by the analysis."""

    @property
    def injected(self) -> float:
        """Failures per node-day."""
        rate = self.truth["failure_rate_per_node_day"]
        assert isinstance(rate, float)
        return rate

    @property
    def inside(self) -> bool:
        return self.low <= self.injected <= self.high


def recover(scenario: Scenario, seed: int, folder: Path) -> Recovered:
    store = folder / f"{seed}"
    simulate(scenario, store, days=DAYS, seed=seed)
    log = fleet.open(store)
    model = fleet.mttf(log).model
    low, high = (bound / 1000 for bound in model.ci95_)
    truth = json.loads((store / "truth.json").read_text())
    found = set(fleet.lemons(log).detector.lemons_) if scenario.failures.lemons.count else set()
    return Recovered(model.failures_, model.node_days_, low, high, truth, found)


def test_the_failure_rate_is_recovered(tmp_path: Path) -> None:
    found = [recover(cluster(32, 0.1), seed, tmp_path) for seed in (1, 2, 3)]
    expected = sum(each.injected * each.node_days for each in found)
    counted = sum(each.failures for each in found)
    assert expected > 100
    assert abs(counted - expected) < 3.5 * expected**0.5
    assert sum(each.inside for each in found) >= 2


def test_lemons_are_recovered(tmp_path: Path) -> None:
    found = recover(cluster(48, 0.05, Lemons(3, 25.0)), 1, tmp_path)
    assert len(found.truth["lemons"]) == 3
    assert found.lemons == set(found.truth["lemons"])


@pytest.mark.full
def test_the_interval_covers_the_injected_rate(tmp_path: Path) -> None:
    """r_f lies in its 95 % interval for at least 93 of 100 seeds, of clusters that are all different."""
    inside = 0
    for seed in range(1, 101):
        lemons = Lemons(2, 20.0) if seed % 3 == 0 else Lemons()
        nodes, rate = 32 + 16 * (seed % 4), 0.02 + 0.02 * (seed % 5)
        found = recover(cluster(nodes, rate, lemons), seed, tmp_path)
        inside += found.inside
        print(f"seed {seed}: {nodes} nodes, {found.failures} failures, {found.inside}")
    print(f"{inside} of 100 inside")
    assert inside >= 93


@pytest.mark.full
def test_lemons_are_found_with_precision_and_recall(tmp_path: Path) -> None:
    right = found = true = 0
    for seed in range(1, 21):
        factor = (8.0, 15.0, 30.0, 60.0)[seed % 4]
        each = recover(cluster(64, 0.03, Lemons(3, factor)), seed, tmp_path)
        lemons = set(each.truth["lemons"])
        right += len(each.lemons & lemons)
        found += len(each.lemons)
        true += len(lemons)
        print(f"seed {seed}, factor {factor}: {len(each.lemons & lemons)} of {len(lemons)}")
    print(f"precision {right / found:.3f} recall {right / true:.3f}")
    assert right / found >= 0.85
    assert right / true >= 0.80
