"""What would change, and by how much: a fleet as it is beside the same fleet with one thing changed.

Each scenario is played with the same seeds, and the random numbers of a job or a node depend on its
seed alone (common random numbers): the same jobs arrive, and a node that is not changed draws the same
failures. So the difference of a pair holds little of the chance that both share. The interval is that of
the mean difference d over n pairs by Student's t: mean(d) ± t(0.975; n - 1) · s(d) / √n.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.log import FleetLog
from holdfast.fleet.simulation.baseline import as_it_is
from holdfast.fleet.simulation.change_wording import phrase
from holdfast.fleet.simulation.changes import apply
from holdfast.fleet.simulation.outcomes import TOPS, Outcome, Scope, metrics, scope
from holdfast.fleet.simulation.proposals import enough_days, proposals
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replicas import OnProgress, Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import duration, percent

LEVEL = 0.95
PRESET_DAYS = 28.0
MOST_DAYS = 120.0
"""A store is simulated for as long as it is, and no longer than this."""
FULL = 0.97
"""From this share of the capacity on, the productive time that jobs need leaves no room."""
GOODPUT = "goodput_share_of_busy_time"
MAIN = ("ettr_large_runs", GOODPUT, "goodput_gpu_hours_per_day")
"""What a change is judged by: the first that can be measured."""


@dataclass(frozen=True)
class Difference:
    """What one change does to one metric."""

    change: str
    metric: str
    """See `outcomes.metrics`."""
    baseline: float
    """Mean over the replicas."""
    value: float
    """With the change."""
    difference: float
    ci95: tuple[float, float]
    """Of `difference`."""
    variance_saved: float
    """Share of the variance of the difference that common random numbers took away; NaN: none."""

    @property
    def half_width(self) -> float:
        """Of the interval."""
        return (self.ci95[1] - self.ci95[0]) / 2

    @property
    def told(self) -> bool:
        """Whether the interval excludes zero."""
        return self.ci95[0] > 0 or self.ci95[1] < 0

    def to_dict(self) -> dict[str, Any]:
        """A row of ``holdfast fleet whatif --json``."""
        return {
            "change": self.change,
            "metric": self.metric,
            "baseline": self.baseline,
            "value": self.value,
            "difference": self.difference,
            "ci95": list(self.ci95),
        }


@dataclass(frozen=True)
class WhatIf:
    """A fleet and what changes would do to it."""

    differences: list[Difference]
    """One a change and metric, in the order of the changes."""
    baseline: Scenario
    scenarios: dict[str, Scenario]
    """Change -> the scenario with it."""
    phrases: dict[str, str]
    """Change -> the change in words."""
    scope: Scope
    """Which runs count as long and large."""
    gpus: Mapping[int, tuple[int, int]]
    """Bucket of sizes -> GPUs of its smallest and its largest job."""
    main: str
    """The metric by which changes are judged, one of `MAIN`."""
    source: str
    """What was simulated: a store, a preset, a file."""
    days: float
    replicas: int
    seed: int
    seconds: float
    """Wall-clock time of the simulations."""
    notes: list[str]
    """What a reader must know: assumptions, and what could not be told."""
    measured: MeasuredEttr | None = None
    """The measured ETTR of the log, as `measured_ettr` gives it; None: no log was simulated."""
    html: Path | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """`differences` as plain values; simulated ETTRs with the measured one and what it assumes."""
        return [
            each.to_dict()
            | (
                {
                    "measured": self.measured_of(each.metric),
                    "assumptions": self.measured.assumptions | {"qos": self.measured.qos},
                }
                if self.measured is not None and each.metric.startswith("ettr_")
                else {}
            )
            for each in self.differences
        ]

    def measured_of(self, metric: str) -> float | None:
        """The measured ETTR of the job sizes that an ETTR metric is of; None: no run long enough."""
        if self.measured is None:
            return None
        if metric == "ettr_large_runs":
            return self.measured.mean(self.scope.large_gpus)
        top = int(metric.removeprefix("ettr_gpus_"))
        return self.measured.mean(top, top)

    @property
    def measured_beside_simulated(self) -> str:
        """The measured ETTR of large runs beside that of the simulated baseline; empty without a log."""
        if self.measured is None or self.main != MAIN[0]:
            return ""
        value, assumed = self.measured_of(MAIN[0]), self.measured.assumptions
        simulated = next(each.baseline for each in self.differences if each.metric == MAIN[0])
        every = len(self.scope.classes) > 1 or len(self.baseline.qos) == 1
        saved = "saves its work" if assumed["save_on_signal"] else "loses half an interval"
        return (
            f"Measured ETTR of {self.large_runs}, as in the report: "
            + ("no run was long enough" if value is None else percent(value, 1))
            + f" (runs that spent {duration(assumed['long_run_s'])} or more on their nodes, "
            + ("all classes" if self.measured.qos is None else f"class {self.measured.qos}")
            + f"). Simulated ETTR before the change: {percent(simulated, 1)} (jobs that need "
            f"{self.scope.long_run_hours} h or more of productive time, "
            + ("all classes" if every else "the class that waits least")
            + f"). Assumed in both: a checkpoint every {duration(assumed['checkpoint_interval_s'])} "
            f"that takes {duration(assumed['write_s'])}, initialization {duration(assumed['init_s'])}, "
            f"a preempted job {saved}; both count the wait before the first start."
        )

    def of(self, change: str, metric: str) -> Difference:
        """What a change does to a metric."""
        return next(d for d in self.differences if (d.change, d.metric) == (change, metric))

    @property
    def ranked(self) -> list[Difference]:
        """The changes by what they do to the main metric, the largest gain first."""
        return self.ranked_by(self.main)

    def ranked_by(self, metric: str) -> list[Difference]:
        """The changes by what they do to a metric of which more is better."""
        found = [each for each in self.differences if each.metric == metric]
        return sorted(found, key=lambda each: -np.nan_to_num(each.difference, nan=-math.inf))

    @property
    def best(self) -> Difference | None:
        """The largest gain whose interval excludes zero: of the main metric, else of goodput."""
        for metric in dict.fromkeys((self.main, GOODPUT)):
            found = next((each for each in self.ranked_by(metric) if each.ci95[0] > 0), None)
            if found is not None:
                return found
        return None

    @property
    def recommended(self) -> str:
        """The largest gain in a sentence; empty if none can be told from zero."""
        return "" if self.best is None else self.sentence(self.best.change, self.best.metric)

    def sentence(self, change: str, metric: str | None = None) -> str:
        """What a change does to a metric; to the ETTR, of the largest runs for which it can be told.

        For example "replacing node05 and writing checkpoints in 30 s instead of 5 min raises the simulated
        ETTR of your 1,024-GPU runs from 0.81 to 0.90 (±0.01)".
        """
        shown = self.of(change, metric or self.main)
        what = {
            "ettr_large_runs": f"the simulated ETTR of your {self.large_runs}",
            GOODPUT: "the share of busy GPU time that is productive",
            "goodput_gpu_hours_per_day": "the productive GPU-hours a day",
        }[shown.metric]
        if shown.metric == "ettr_large_runs":
            for size in reversed(self.scope.sizes):
                one = self.of(change, f"ettr_gpus_{TOPS[size]}")
                large = TOPS[size] >= self.scope.large_gpus
                if large and one.told and one.difference * shown.difference > 0:
                    shown, what = one, f"the simulated ETTR of your {_runs_of(*self.gpus[size])}"
                    break
        values = _plain(shown.baseline, shown.value, shown.half_width)
        if shown.difference == 0:
            return f"{self.phrases[change]} leaves {what} at {values[0]}"
        verb = "raises" if shown.difference > 0 else "lowers"
        return (
            f"{self.phrases[change]} {verb} {what} from {values[0]} to {values[1]} (±{values[2]})"
        )

    @property
    def large_runs(self) -> str:
        """The runs that `ettr_large_runs` is of: "1,024-GPU runs", "runs of 512 to 4,096 GPUs"."""
        large = [gpus for size, gpus in self.gpus.items() if TOPS[size] >= self.scope.large_gpus]
        return _runs_of(min(low for low, _ in large), max(high for _, high in large))

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON of ``holdfast fleet whatif``."""
        return self.rows


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
        days: how long each one is; None: as long as the log, and long enough for large runs.
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
        days = _default_days(baseline, fleet.days, replicas)
    began = time.perf_counter()
    played = _play(baseline, scenarios, days, seed, replicas, processes, ray, on_progress)
    seconds = time.perf_counter() - began
    before = played[""]
    chosen = scope(before)
    old = [metrics(each, chosen) for each in before]
    differences = [
        _difference(change, name, old, new)
        for change in changes
        for new in [[metrics(each, chosen) for each in played[change]]]
        for name in old[0]
    ]
    main = next((m for m in MAIN if any(math.isfinite(each[m]) for each in old)), MAIN[-1])
    found = WhatIf(
        differences=differences,
        baseline=baseline,
        scenarios=scenarios,
        phrases={change: phrase(baseline, change) for change in changes},
        scope=chosen,
        gpus=_sizes(before),
        main=main,
        source=fleet.name,
        days=days,
        replicas=replicas,
        seed=seed,
        seconds=seconds,
        notes=[*fleet.notes, *_doubts(before, chosen, main)],
        measured=fleet.measured,
    )
    if beside := found.measured_beside_simulated:
        found.notes.insert(0, beside)
    if html is None:
        return found
    from holdfast.fleet.simulation.whatif_page import page
    from holdfast.report import write

    return replace(found, html=write(page(found), html))


def _play(
    baseline: Scenario,
    scenarios: Mapping[str, Scenario],
    days: float,
    seed: int,
    replicas: int,
    processes: int | None,
    ray: str | None,
    on_progress: OnProgress | None,
) -> dict[str, list[Outcome]]:
    """Change -> the outcomes of its replicas; the baseline under the empty change."""
    seeds = range(seed, seed + replicas)
    every = {"": baseline, **scenarios}
    tasks = [Task(each, days, s) for each in every.values() for s in seeds]
    played = play(tasks, processes=processes, ray=ray, on_progress=on_progress)
    return {
        change: played[place * replicas : (place + 1) * replicas]
        for place, change in enumerate(every)
    }


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
        return Difference(change, metric, *(math.nan,) * 3, (math.nan, math.nan), math.nan)
    baseline, value = pairs.mean(axis=0)
    differences = pairs[:, 1] - pairs[:, 0]
    low, high = mean_interval(differences)
    alone = pairs.var(axis=0).sum()
    saved = 1 - differences.var() / alone if alone > 0 else math.nan
    mean = float(differences.mean())
    return Difference(
        change, metric, float(baseline), float(value), mean, (low, high), float(saved)
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


# --- What is simulated ---------------------------------------------------------------------------


def _default_days(baseline: Scenario, log_days: float | None, replicas: int) -> float:
    days = PRESET_DAYS if log_days is None else log_days
    return min(max(days, enough_days(baseline, replicas)), MOST_DAYS)


def _sizes(before: Sequence[Outcome]) -> dict[int, tuple[int, int]]:
    smallest = np.array([each.smallest_gpus for each in before])
    largest = np.max([each.largest_gpus for each in before], axis=0)
    smallest = np.where(smallest > 0, smallest, np.inf).min(axis=0)
    return {
        int(size): (int(smallest[size]), int(largest[size])) for size in np.flatnonzero(largest)
    }


def _doubts(before: Sequence[Outcome], chosen: Scope, main: str) -> list[str]:
    notes = []
    wanted = sum(each.wanted_gpu_ms for each in before)
    wanted /= sum(each.capacity_gpu_ms for each in before)
    if wanted > FULL:
        notes.append(
            f"The jobs need {percent(wanted, 0)} of all GPU time, so the queue grows for as long as is "
            "simulated, and with it the waits and their share in the ETTR."
        )
    if main != MAIN[0]:
        notes.append("No large run was long enough to measure: changes are judged by goodput.")
    elif len(chosen.classes) > 1:
        notes.append(
            "The class of service that waits least has too few large runs: those of all classes count."
        )
    return notes


# --- Words ---------------------------------------------------------------------------------------


def _runs_of(smallest: int, largest: int) -> str:
    if smallest == largest:
        return f"{largest:,}-GPU runs"
    return f"runs of {smallest:,} to {largest:,} GPUs"


def _plain(before: float, after: float, half_width: float) -> list[str]:
    """Two decimals, or as many as it takes to tell the first two apart and to show the third."""
    digits = 0 if max(abs(before), abs(after)) >= 100 else 2
    while digits < 5 and (
        (before != after and f"{before:.{digits}f}" == f"{after:.{digits}f}")
        or (0 < half_width < 0.5 * 10**-digits)
    ):
        digits += 1
    return [f"{each:,.{digits}f}" for each in (before, after, half_width)]
