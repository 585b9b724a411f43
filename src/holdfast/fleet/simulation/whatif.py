"""What changes would do to a fleet: differences with their intervals, and what they recommend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.answer import Answer, Figure, Finding, How, Section, Table, Unknown, Value
from holdfast.fleet.schema import Row
from holdfast.fleet.simulation.changes import paths_of
from holdfast.fleet.simulation.outcomes import LOSSES, Scope, metric, window_ms
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.wording import how, table
from holdfast.numbers import duration
from holdfast.report import figures

GOODPUT = "goodput_share_of_busy_time"
# What a change is judged by: the first that can be measured.
MAIN = ("ettr_large_runs", GOODPUT, "goodput_gpu_hours_per_day")
LOST = tuple(f"lost_{order}_gpu_hours_per_day" for order in LOSSES)
# What the page shows beside it; the JSON has every metric.
EFFECTS = (
    "goodput_gpu_hours_per_day",
    *LOST,
    "queue_wait_mean_s",
    "completed_jobs_per_day",
)
MOST_FINDINGS = 6


@dataclass(frozen=True)
class Difference:
    """What one change does to one metric."""

    change: str
    metric: str  # See `outcomes.METRICS`
    baseline: float  # Mean over the replicas
    value: float  # With the change
    difference: float
    ci95: tuple[float, float]  # Of `difference`

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.ci95[0] > 0 or self.ci95[1] < 0


@dataclass(frozen=True)
class WhatIf(Answer):
    """A fleet and what changes would do to it."""

    differences: list[Difference]  # One per change and metric, in the order of the changes
    baseline: Scenario
    scenarios: dict[str, Scenario]  # Change -> the scenario with it
    scope: Scope  # Which runs count as long and large
    main: str  # The metric by which changes are judged, one of `MAIN`
    source: str  # What was simulated: a store, a preset, a file
    days: float
    replicas: int
    seed: int
    notes: list[str]  # What is doubtful
    # Paths of the baseline that the log does not tell and nobody said.
    assumed: frozenset[str] = frozenset()

    def to_dict(self) -> list[Row]:
        """A row for each change and metric."""
        return [{**vars(each), "ci95": list(each.ci95)} for each in self.differences]

    # --- What is best ----------------------------------------------------------------------------

    def of(self, change: str, name: str) -> Difference:
        """What a change does to a metric."""
        return next(d for d in self.differences if (d.change, d.metric) == (change, name))

    def ranked_by(self, name: str) -> list[Difference]:
        """The changes by what they do to a metric of which more is better, the largest gain first."""
        differences = [each for each in self.differences if each.metric == name]
        return sorted(differences, key=lambda each: -np.nan_to_num(each.difference, nan=-math.inf))

    @property
    def best(self) -> Difference | None:
        """The largest gain whose interval excludes zero: of the main metric, else of goodput."""
        ranked = [each for name in (self.main, GOODPUT) for each in self.ranked_by(name)]
        return next((each for each in ranked if each.ci95[0] > 0), None)

    @property
    def recommended(self) -> str:
        """The largest gain in a sentence; empty if no gain can be told from zero."""
        return "" if self.best is None else self.sentence(self.best.change, self.best.metric)

    def sentence(self, change: str, name: str | None = None) -> str:
        """What a change does to a metric (the main one by default), in one sentence.

        For example "lemons=off raises the simulated ETTR of runs on 512 GPUs or more from 81.0 % to
        90.2 % (+9.20 points [8.01, 10.4])."
        """
        effect = self.of(change, name or self.main)
        words = metric(effect.metric)
        what = words.label.replace("large runs", self.large_runs)
        before = words.text(effect.baseline)
        after = words.text(effect.value)
        if math.isnan(effect.difference):
            return f"{change}: the {what} could not be measured."
        if effect.difference == 0:
            return f"{change} leaves the {what} at {before}."
        verb = "raises" if effect.difference > 0 else "lowers"
        by = words.difference(effect.difference, effect.ci95)
        doubt = "" if effect.is_significant else ", which cannot be told from no change"
        return f"{change} {verb} the {what} from {before} to {after} ({by}){doubt}."

    @property
    def large_runs(self) -> str:
        """The runs that `ettr_large_runs` is of."""
        return f"runs on {self.scope.large_gpus:,} GPUs or more"

    # --- What is shown ---------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """With what was simulated."""
        return f"What if: {self.source}"

    def findings(self) -> list[Finding]:
        """What is recommended, what that assumes, and what the other changes do."""
        none = (
            f"No change raises the {metric(self.main).label} by more than chance does in "
            f"{self.replicas} replicas; more replicas or days narrow the intervals."
        )
        lead = "Recommended." if self.best else "No recommendation."
        findings = [Finding(self.recommended or none, "gain", lead)]
        paths = dict.fromkeys(path for change in self.scenarios for path in paths_of(change))
        tables = tuple(f"{key}." for key in self.assumed)
        if guesses := [path for path in paths if f"{path}.".startswith(tables)]:
            findings.append(
                Finding(
                    f"The log does not tell {', '.join(guesses)}, from which these changes start: what "
                    f"they gain depends on it. Say what is so, for example --set {guesses[0]}=VALUE.",
                    "assumed",
                    "Assumed.",
                )
            )
        ranked = [each.change for each in self.ranked_by(self.main)]
        others = [each for each in ranked if each != (self.best.change if self.best else ranked[0])]
        shown = others[: MOST_FINDINGS - 3]
        findings += [Finding(self.sentence(change), "gain") for change in shown]
        first, second, busy = (self._now(name) for name in (*LOST[:2], GOODPUT))
        lost = f"failures cost {first} and preemptions by jobs that had failed {second}"
        findings.append(
            Finding(f"Without a change {lost}; {busy} of busy GPU time is productive.", "effects")
        )
        return findings

    def _now(self, name: str) -> str:
        return metric(name).text(self.of(next(iter(self.scenarios)), name).baseline)

    @property
    def _large(self) -> str:
        chosen = self.scope
        qos = self.baseline.qos
        some = len(chosen.classes) < len(qos)
        of_class = f" of class {qos[chosen.classes[0]].name}" if some else ""
        return f"{self.large_runs}{of_class} that need {chosen.long_run_hours} productive hours or more"

    def inputs(self) -> list[tuple[str, str]]:
        """What was simulated, and what of it counts."""
        begin_s, end_s = (each / 1e3 for each in window_ms(self.days))
        return [
            ("Simulated", f"{self.source}, {len(self.scenarios) + 1} scenarios"),
            ("Replicas", f"{self.replicas}, seeds {self.seed} to {self.seed + self.replicas - 1}"),
            ("Counted", f"the last {duration(end_s - begin_s)} of {duration(end_s)}"),
            ("Large runs", self._large),
        ]

    def values(self) -> list[Value]:
        """Every difference with its interval."""
        values = []
        for each in self.differences:
            words = metric(each.metric)
            unit = words.unit.replace("%", "")
            measured = () if math.isnan(each.difference) else (each.difference, unit, each.ci95)
            values.append(
                Value(
                    f"{each.change}: {each.metric}", *(measured or (None, unit, None)), words.better
                )
            )
        return values

    def unknowns(self) -> list[Unknown]:
        """What is doubtful, and what the log did not tell."""
        unknowns = [Unknown(note) for note in self.notes]
        if self.assumed:
            unknowns.append(
                Unknown(
                    f"The log does not tell, so assumed: {', '.join(sorted(self.assumed))}.",
                    "Say what is so with --set KEY=VALUE.",
                )
            )
        return unknowns

    def sections(self) -> list[Section]:
        """Which change gains most, what else changes, and what was assumed."""
        return [self._gain(), self._effects(), self._assumed()]

    def _gain(self) -> Section:
        ranked = [(each.change, each) for each in self.ranked_by(self.main)]
        words = metric(self.main)
        computed = how("gain", {"replicas n": self.replicas, "large runs": self._large})
        sentence = self.recommended or "No interval lies above zero."
        gains = [
            _table(
                ranked,
                "Change",
                f"The {words.label} ({words.display_unit}), the largest gain first.",
            )
        ]
        return Section(
            "gain", "Which change gains most?", sentence, [_figure(ranked)], gains, computed
        )

    def _effects(self) -> Section:
        ordered = [each.change for each in self.ranked_by(self.main)]
        best = min((self.of(each, LOST[0]) for each in ordered), key=lambda each: each.difference)
        sentence = "No change lowers what failures cost by more than can be told from zero."
        if best.ci95[1] < 0:
            sentence = self.sentence(best.change, LOST[0])
        shown = {*EFFECTS, self.main}
        by_change = [(name, d) for name in ordered for d in self.differences if d.change == name]
        rows = [(name, d) for name, d in by_change if d.metric in shown]
        tables = [_table(rows, "Change", "One row per change and metric.", several=True)]
        return Section("effects", "What else changes?", sentence, tables=tables, how=how("effects"))

    def _assumed(self) -> Section:
        toml = How(
            self.baseline.to_toml().splitlines(),
            notes="The scenario as TOML: save it to a file, edit it, and simulate it with --scenario FILE.",
        )
        return Section(
            "assumed",
            "What was assumed of the fleet?",
            "What was simulated is one scenario, written below; correct it with --set KEY=VALUE.",
            how=toml,
        )


def _table(
    rows: Iterable[tuple[str, Difference]], first: str, caption: str, *, several: bool = False
) -> Table:
    """Differences with their labels, each in the unit of its metric; `several` of them are named."""
    data = [
        {
            "label": label,
            "before": words.scaled(each.baseline),
            "after": words.scaled(each.value),
            **_scaled(each),
            "metric": f"{words.label} ({words.display_unit})",
        }
        for label, each in rows
        for words in [metric(each.metric)]
    ]
    return table(
        data, f"label before after difference {'metric' if several else ''}", caption, label=first
    )


def _scaled(each: Difference) -> dict[str, float]:
    """Difference and interval in the unit in which they are shown."""
    words, (low, high) = metric(each.metric), each.ci95
    values = {"difference": each.difference, "low": low, "high": high}
    return {name: words.scaled(value) for name, value in values.items()}


def _figure(rows: Sequence[tuple[str, Difference]]) -> Figure:
    """Differences of one metric with their intervals, one line each."""
    words = metric(rows[0][1].metric)
    unit = "points" if words.unit == "%" else words.display_unit
    values = [
        {"change": label, **_scaled(each)}
        for label, each in rows
        if not math.isnan(each.difference)
    ]
    figure = figures.intervals(
        values, "change", "difference", "low", "high", f"Difference ({unit})", reference=0.0
    )
    return replace(figure, caption=f"{words.label[0].upper()}{words.label[1:]}")
