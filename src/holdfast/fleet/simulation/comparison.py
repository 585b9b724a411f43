"""A fleet as it is beside the same fleet with one thing changed, simulated on the same random numbers.

Each scenario is played with the same seeds, and the random numbers of a job or a node depend on its
seed alone (common random numbers): the same jobs arrive, and a node that is not changed draws the same
failures. So the difference of a pair holds little of the chance that both share. The interval is that of
the mean difference d over n pairs by Student's t: mean(d) ± t(0.975; n - 1) · s(d) / √n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.log import FleetLog
from holdfast.fleet.simulation.baseline import as_it_is
from holdfast.fleet.simulation.changes import apply
from holdfast.fleet.simulation.outcomes import Outcome, Scope, metrics, scope
from holdfast.fleet.simulation.proposals import proposals
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replicas import OnProgress, Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.whatif import MAIN, Difference, WhatIf
from holdfast.numbers import percent
from holdfast.report import write

LEVEL = 0.95
PRESET_DAYS = 28.0
MOST_DAYS = 120.0  # A store is simulated for as long as it is, and no longer than this
FULL = 0.97  # From this share of the capacity on, the productive time that jobs need leaves no room


def whatif(
    source: str | Path | Scenario | FleetLog,
    changes: Sequence[str] = (),
    *,
    replicas: int = 8,
    days: float | None = None,
    seed: int = 0,
    processes: int | None = None,
    ray: str | None = None,
    html: str | Path | None = None,
    given: Sequence[str] = (),
    on_progress: OnProgress | None = None,
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
        html: file to write the report to.
        given: changes that hold before and after: what is true of the fleet and not in its log, such
            as ``checkpoint.write=5m``.
        on_progress: called with the simulations done and their number.

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
    if days is not None and not (math.isfinite(days) and days > 0):
        raise InputError(
            "invalid simulated time", code="unknown-name", place="days", found=str(days)
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
    played = play(tasks, processes=processes, ray=ray, on_progress=on_progress)
    before = played[:replicas]
    measured_scope = scope(before, baseline)
    old = [metrics(each, measured_scope) for each in before]
    differences = []
    for place, change in enumerate(changes, 1):
        after = played[place * replicas : (place + 1) * replicas]
        new = [metrics(each, measured_scope) for each in after]
        differences += [_difference(change, name, old, new) for name in old[0]]
    main = next((m for m in MAIN if any(math.isfinite(each[m]) for each in old)), MAIN[-1])
    answer = WhatIf(
        differences=differences,
        baseline=baseline,
        scenarios=scenarios,
        scope=measured_scope,
        main=main,
        source=fleet.name,
        days=days,
        replicas=replicas,
        seed=seed,
        notes=[*fleet.notes, *_doubts(before, measured_scope, main)],
        assumed=fleet.assumed,
        measured=fleet.measured,
    )
    return answer if html is None else replace(answer, html=write(answer.page(), html))


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
    baseline, value = pairs.mean(axis=0).tolist()
    differences = pairs[:, 1] - pairs[:, 0]
    return Difference(
        change, metric, baseline, value, float(differences.mean()), mean_interval(differences)
    )


def mean_interval(values: Array) -> tuple[float, float]:
    """95 % interval of a mean by Student's t: of independent, roughly normal values.

    Args:
        values: shape [n]; one alone has no interval (NaN).
    """
    from scipy import stats

    n = len(values)
    if n < 2:
        return math.nan, math.nan
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return float(values.mean() - half), float(values.mean() + half)


def _doubts(before: Sequence[Outcome], chosen: Scope, main: str) -> list[str]:
    notes = []
    needed = sum(each.wanted_gpu_ms for each in before)
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
