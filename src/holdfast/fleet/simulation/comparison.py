"""A fleet as it is beside the same fleet with one thing changed, simulated on the same random numbers.

Each scenario is played with the same seeds, and the random numbers of a job or a node depend on its
seed alone (common random numbers): the same jobs arrive, and a node that is not changed draws the same
failures. So the difference of a pair holds little of the chance that both share. The interval is that of
the mean difference d over n pairs by Student's t: mean(d) ± t(0.975; n - 1) · s(d) / √n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.checkpoint_interval import optimal_checkpoint_interval
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.simulation.changes import apply, known, parse, paths_of, value_of
from holdfast.fleet.simulation.outcomes import Outcome, Scope, large_gpus, metrics, scope
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import PRESETS, Scenario, scenario
from holdfast.fleet.simulation.whatif import MAIN, Difference, WhatIf
from holdfast.numbers import percent
from holdfast.stats import mean_interval

PRESET_DAYS = 28.0
MOST_DAYS = 120.0  # a store is simulated for as long as it is, and no longer than this
FULL = 0.97  # from this share of the capacity on, the time that jobs need leaves no room
# Path -> the assumption of an analysis that says the same.
ASSUMED = {
    "checkpoint.interval": "checkpoint_interval_s",
    "checkpoint.write": "write_s",
    "checkpoint.init": "init_s",
    "checkpoint.save_on_signal": "save_on_signal",
}


def whatif(
    source: str | Path | Scenario | FleetLog,
    changes: Sequence[str] = (),
    *,
    replicas: int = 8,
    days: float | None = None,
    seed: int = 0,
    processes: int | None = None,
    ray: str | None = None,
    given: Sequence[str] = (),
) -> WhatIf:
    """Simulate a fleet with and without changes.

    Args:
        source: a store, a log file or an open log, to which a scenario is fitted first; or a
            scenario, the name of a preset, or a TOML file.
        changes: each as `changes.parse` reads it; none: the usual ones are proposed.
        replicas: simulations of each scenario, with seeds from `seed` on; 2 or more.
        days: how long each one is; None: as long as the log, for a scenario 28 days.
        seed: the first seed.
        processes: of this machine; None: all processors.
        ray: the address of a Ray cluster that takes the simulations instead.
        given: changes that hold before and after: what is true of the fleet and not in its log, such
            as ``checkpoint.write=5m``.

    Returns:
        The differences with their 95 % intervals, and what is recommended.

    Raises:
        InputError: if a change cannot be made or the source cannot be simulated.
    """
    if replicas < 2:
        raise InputError(
            "an interval takes two or more replicas",
            code="no-data",
            place="replicas",
            found=str(replicas),
        )
    fleet = as_it_is(source, given)
    baseline = fleet.scenario
    changes = list(dict.fromkeys(changes)) or proposals(baseline)
    if not changes:
        raise InputError(
            "there is nothing to propose for this fleet: nothing in it fails",
            code="no-data",
            expected="a change, for example checkpoint.write=30s",
        )
    scenarios = {change: apply(baseline, change) for change in changes}
    if days is None:
        days = min(fleet.days or PRESET_DAYS, MOST_DAYS)
    seeds = range(seed, seed + replicas)
    tasks = [Task(each, days, s) for each in (baseline, *scenarios.values()) for s in seeds]
    played = play(tasks, processes=processes, ray=ray)
    before = played[:replicas]
    chosen = scope(before, baseline)
    old, *new = (
        [metrics(each, chosen) for each in played[first : first + replicas]]
        for first in range(0, len(played), replicas)
    )
    main = next((m for m in MAIN if any(math.isfinite(each[m]) for each in old)), MAIN[-1])
    differences = [
        _difference(change, name, old, after)
        for change, after in zip(changes, new, strict=True)
        for name in old[0]
    ]
    notes = [*fleet.notes, *_doubts(before, chosen, main)]
    return WhatIf(
        differences,
        baseline,
        scenarios,
        chosen,
        main,
        fleet.name,
        days,
        replicas,
        seed,
        notes,
        fleet.assumed,
    )


def _difference(
    change: str,
    metric: str,
    old: Sequence[Mapping[str, float]],
    new: Sequence[Mapping[str, float]],
) -> Difference:
    """A metric before and after, over the replicas that have it in both."""
    pairs = np.array([(b[metric], v[metric]) for b, v in zip(old, new, strict=True)])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]  # [replicas, 2]
    if not len(pairs):
        return Difference(change, metric, *(math.nan,) * 3, (math.nan, math.nan))
    gains = np.diff(pairs)[:, 0]
    before, after = pairs.mean(axis=0).tolist()
    gain, ends = mean_interval(gains)
    if len(gains) < 2:  # one alone has no interval
        ends = (math.nan, math.nan)
    return Difference(change, metric, before, after, gain, ends)


def _doubts(before: Sequence[Outcome], chosen: Scope, main: str) -> list[str]:
    notes = []
    needed = sum(each.required_gpu_ms for each in before)
    needed /= sum(each.capacity_gpu_ms for each in before)
    if needed > FULL:
        notes.append(
            f"The jobs need {percent(needed, 0)} of all GPU time, so the queue grows for as long as is "
            "simulated, and with it the waits and their share in the ETTR."
        )
    if main != MAIN[0]:
        notes.append("No large run was long enough to measure: changes are judged by goodput.")
    elif len(chosen.classes) > 1:
        notes.append("The class that waits least has too few large runs: all classes count.")
    return notes


# --- The fleet as it is --------------------------------------------------------------------------


@dataclass(frozen=True)
class Baseline:
    """A fleet that changes are tried on: read, or fitted to a log.

    Without a log, days is None; assumed are the paths that no log tells and nobody said.
    """

    scenario: Scenario
    name: str
    days: float | None = None
    notes: Sequence[str] = ()
    assumed: frozenset[str] = frozenset()


def as_it_is(source: str | Path | Scenario | FleetLog, given: Sequence[str] = ()) -> Baseline:
    """The fleet of a log, or of a scenario.

    Args:
        source: a store, a log file or an open log; or a scenario, the name of a preset, a TOML
            file. The name of a preset as text is the preset, also beside a folder of that name.
        given: changes that say what is true of the fleet. What they say of checkpoints is also
            assumed where a log is analysed: it decides how much of an attempt was work.

    Raises:
        InputError: if the source cannot be read or is too short, or a change cannot be made.
    """
    # The text "small" is the preset, whatever lies in the working directory; a path is a path.
    is_preset = isinstance(source, str) and source in PRESETS
    if isinstance(source, Scenario):
        fleet = Baseline(source, f"scenario {source.name}")
    elif isinstance(source, FleetLog) or (not is_preset and _is_log(Path(source))):
        fleet = _fitted(open_log(source), given)
    else:
        kind = "preset" if str(source) in PRESETS else "scenario"
        fleet = Baseline(scenario(source), f"{kind} {source}")
    changed = fleet.scenario
    for change in given:
        changed = apply(changed, change)
    return replace(fleet, scenario=changed)


def _is_log(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.suffix != ".toml")


def _fitted(log: FleetLog, given: Sequence[str]) -> Baseline:
    from holdfast.fleet.simulation.calibration import calibrate

    if assumed := _assumptions(given):
        again = FleetLog(log.store, replace(log.assumptions, **assumed))
        again.since_s = log.since_s
        log = again
    fit = calibrate(log)
    stated = {path for change in given for path in paths_of(change)}
    silent = {e.key for e in fit.estimates if not e.estimated} - stated
    return Baseline(fit.scenario, f"store {fit.source}", fit.days, fit.remarks, frozenset(silent))


def _assumptions(given: Sequence[str]) -> dict[str, Any]:
    """What changes say of checkpoints, as assumptions of an analysis."""
    return {
        ASSUMED[leaf.path]: value_of(leaf, edit)
        for change in given
        for edit in parse(change)
        for leaf in known(edit.key)
        if leaf.path in ASSUMED and edit.operator == "="
    }


# --- What an operator could change ---------------------------------------------------------------


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
    changes = [
        lemons,
        interval,
        faster,
        f"{lemons}; {faster or interval}" if lemons and (faster or interval) else None,
        "failure_rate*0.75" if failures.rate_per_node_day else None,
        "checkpoint.init*0.5" if checkpoint.init_s else None,
    ]
    if scheduler.preemption and len({each.priority for each in scenario.qos}) > 1:
        changes.append("preempt_after*2" if scheduler.preempt_after_s else "preempt_after=2h")
    return [each for each in changes if each]


def _without_lemons(scenario: Scenario) -> str | None:
    lemons = scenario.failures.lemons
    if lemons.count and lemons.factor > 1:
        return "lemons=off"
    worse = {name for name, factor in lemons.nodes.items() if factor > 1}
    left = [name for name in lemons.nodes if name in worse - {*scenario.cluster.without}]
    return f"replace={','.join(left)}" if left else None


def _best_interval(scenario: Scenario) -> str | None:
    """The interval with the highest expected ETTR of the large jobs that take most GPU time."""
    checkpoint = scenario.checkpoint
    rate = scenario.failures.rate_per_node_day
    if not checkpoint.write_s:  # a free write pays at any interval
        return "checkpoint.interval*0.5"
    sizes = [size for size in scenario.workload.sizes if size.share > 0]
    if not sizes:
        return None
    least = large_gpus(max(size.gpus for size in sizes))
    large = [size for size in sizes if size.gpus >= least]
    heaviest = max(large, key=lambda size: size.gpus * size.share * size.hours)
    nodes = max(heaviest.gpus / scenario.cluster.gpus_per_node, 1.0)
    best_s = optimal_checkpoint_interval(nodes, rate, write_s=checkpoint.write_s)
    minutes = max(round((best_s or 0.0) / 60), 1)
    near = abs(minutes * 60 - checkpoint.interval_s) < 0.1 * checkpoint.interval_s
    return None if best_s is None or near else f"checkpoint.interval={minutes}m"
