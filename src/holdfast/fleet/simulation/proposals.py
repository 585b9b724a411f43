"""What an operator could change, worked out from a scenario: the usual levers at useful values."""

from __future__ import annotations

from holdfast.fleet.checkpoint_interval import optimal_checkpoint_interval
from holdfast.fleet.simulation.outcomes import large_gpus
from holdfast.fleet.simulation.scenario import Scenario, Size


def proposals(scenario: Scenario) -> list[str]:
    """Changes that are worth a simulation, as `changes.parse` reads them.

    Lemon nodes replaced; the checkpoint interval at its optimum for the large jobs; writes ten times
    as fast; both with the lemons; a quarter of the failures gone; half the initialisation; preemption
    after twice the time. What a scenario does not have is not proposed.
    """
    failures, checkpoint, scheduler = scenario.failures, scenario.checkpoint, scenario.scheduler
    if not failures.rate_per_node_day and not failures.blasts:
        return []
    lemons = _without_lemons(scenario)
    faster = "checkpoint.write*0.1" if checkpoint.write_s else None
    interval = _best_interval(scenario)
    both = "; ".join(each for each in (lemons, faster or interval) if each)
    changes = [
        lemons,
        interval,
        faster,
        both if lemons and (faster or interval) else None,
        "failure_rate-25%" if failures.rate_per_node_day else None,
        "checkpoint.init*0.5" if checkpoint.init_s else None,
    ]
    if scheduler.preemption and len({each.priority for each in scenario.qos}) > 1:
        changes.append("preempt_after*2" if scheduler.preempt_after_s else "preempt_after=2h")
    return [each for each in changes if each]


def large_sizes(scenario: Scenario) -> list[Size]:
    """The sizes of large jobs, see `outcomes.large_gpus`."""
    sizes = [size for size in scenario.workload.sizes if size.share > 0]
    least = large_gpus(max((size.gpus for size in sizes), default=0))
    return [size for size in sizes if size.gpus >= least]


def _without_lemons(scenario: Scenario) -> str | None:
    lemons = scenario.failures.lemons
    if lemons.count and lemons.factor > 1:
        return "lemons=off"
    worse = [
        name
        for name, factor in lemons.nodes.items()
        if factor > 1 and name not in scenario.cluster.without
    ]
    return f"replace={','.join(worse)}" if worse else None


def _best_interval(scenario: Scenario) -> str | None:
    """The interval with the highest expected ETTR of the large jobs that take most GPU time."""
    checkpoint = scenario.checkpoint
    if not checkpoint.write_s:  # a free write pays at any interval
        return "checkpoint.interval*0.5"
    large = large_sizes(scenario)
    if not large:
        return None
    heaviest = max(large, key=lambda size: size.gpus * size.share * size.hours)
    nodes = max(heaviest.gpus / scenario.cluster.gpus_per_node, 1.0)
    best_s = optimal_checkpoint_interval(
        nodes, scenario.failures.rate_per_node_day, write_s=checkpoint.write_s
    )
    if best_s is None:
        return None
    minutes = max(round(best_s / 60), 1)
    if abs(minutes * 60 - checkpoint.interval_s) < 0.1 * checkpoint.interval_s:
        return None
    return f"checkpoint.interval={minutes}m"
