"""What changes would do to a fleet: differences with their intervals, and what they recommend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import (
    Answer,
    ColumnFormat,
    Figure,
    Finding,
    How,
    Section,
    Table,
    Tile,
    Unknown,
    Value,
)
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.simulation.changes import (
    leaves,
    parse,
    paths_of,
    spoken,
    value_at,
)
from holdfast.fleet.simulation.outcomes import (
    FEWEST_RUNS,
    TOPS,
    Scope,
    metric,
    window_ms,
)
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import brief, duration, percent
from holdfast.report import figures

GOODPUT = "goodput_share_of_busy_time"
MAIN = ("ettr_large_runs", GOODPUT, "goodput_gpu_hours_per_day")
"""What a change is judged by: the first that can be measured."""
LOST = ("lost_first_order_gpu_hours_per_day", "lost_second_order_gpu_hours_per_day")
EFFECTS = (
    "goodput_gpu_hours_per_day",
    *LOST,
    "lost_other_preemption_gpu_hours_per_day",
    "queue_wait_mean_s",
    "completed_jobs_per_day",
)
SETTINGS = (
    *("cluster.nodes", "cluster.gpus", "workload.jobs", "failures", "checkpoint", "scheduler"),
    *("detection", "repair"),
)
"""How the keys begin that are shown of a scenario."""
MOST_FINDINGS = 6


@dataclass(frozen=True)
class Difference:
    """What one change does to one metric."""

    change: str
    metric: str
    """See `outcomes.METRICS`."""
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
    def told(self) -> bool:
        """Whether the interval excludes zero."""
        return self.ci95[0] > 0 or self.ci95[1] < 0


@dataclass(frozen=True)
class WhatIf(Answer):
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
    """What is doubtful."""
    assumed: frozenset[str] = frozenset()
    """Paths of the baseline that the log does not tell and nobody said."""
    measured: MeasuredEttr | None = None
    """The measured ETTR of the log, as `measured_ettr` gives it; None: no log was simulated."""
    html: Path | None = None

    def to_dict(self) -> list[dict[str, Any]]:
        """A row for each change and metric; simulated ETTRs with the measured one and its assumptions."""
        rows = []
        for each in self.differences:
            row: dict[str, Any] = {
                "change": each.change,
                "metric": each.metric,
                "baseline": each.baseline,
                "value": each.value,
                "difference": each.difference,
                "ci95": list(each.ci95),
            }
            if self.measured is not None and each.metric.startswith("ettr_"):
                row["measured"] = self.measured_of(each.metric)
                row["assumptions"] = self.measured.assumptions | {"qos": self.measured.qos}
            rows.append(row)
        return rows

    def measured_of(self, name: str) -> float | None:
        """The measured ETTR of the job sizes that an ETTR metric is of; None: no run long enough."""
        if self.measured is None:
            return None
        if name == "ettr_large_runs":
            return self.measured.mean(self.scope.large_gpus)
        top = int(name.removeprefix("ettr_gpus_"))
        return self.measured.mean(top, top)

    # --- What is best ----------------------------------------------------------------------------

    def of(self, change: str, name: str) -> Difference:
        """What a change does to a metric."""
        return next(d for d in self.differences if (d.change, d.metric) == (change, name))

    def ranked_by(self, name: str) -> list[Difference]:
        """The changes by what they do to a metric of which more is better."""
        found = [each for each in self.differences if each.metric == name]
        return sorted(found, key=lambda each: -np.nan_to_num(each.difference, nan=-math.inf))

    @property
    def ranked(self) -> list[Difference]:
        """The changes by what they do to the main metric, the largest gain first."""
        return self.ranked_by(self.main)

    @property
    def best(self) -> Difference | None:
        """The largest gain whose interval excludes zero: of the main metric, else of goodput."""
        for name in dict.fromkeys((self.main, GOODPUT)):
            found = next((each for each in self.ranked_by(name) if each.ci95[0] > 0), None)
            if found is not None:
                return found
        return None

    @property
    def recommended(self) -> str:
        """The largest gain in a sentence; empty if none can be told from zero."""
        return "" if self.best is None else self.sentence(self.best.change, self.best.metric)

    def sentence(self, change: str, name: str | None = None) -> str:
        """What a change does to a metric; to the ETTR, of the largest runs for which it can be told.

        For example "Replacing node05 raises the simulated ETTR of 1,024-GPU runs from 81.0 % to 90.2 %
        (+9.20 points [8.01, 10.4])."
        """
        shown = self.of(change, name or self.main)
        words = metric(shown.metric)
        what = words.label
        if shown.metric == "ettr_large_runs":
            what = f"simulated ETTR of {self.large_runs}"
            for size in reversed(self.scope.sizes):
                one = self.of(change, f"ettr_gpus_{TOPS[size]}")
                large = TOPS[size] >= self.scope.large_gpus
                if large and one.told and one.difference * shown.difference > 0:
                    shown, what = one, f"simulated ETTR of {_runs_of(*self.gpus[size])}"
                    break
        before, after = words.text(shown.baseline), words.text(shown.value)
        subject = f"{self.phrases[change][0].upper()}{self.phrases[change][1:]}"
        if math.isnan(shown.difference):
            return f"{subject}: the {what} could not be measured."
        if shown.difference == 0:
            return f"{subject} leaves the {what} at {before}."
        verb = "raises" if shown.difference > 0 else "lowers"
        by = words.difference(shown.difference, shown.ci95)
        doubt = "" if shown.told else ", which cannot be told from no change"
        return f"{subject} {verb} the {what} from {before} to {after} ({by}){doubt}."

    @property
    def large_runs(self) -> str:
        """The runs that `ettr_large_runs` is of: "1,024-GPU runs", "runs of 512 to 4,096 GPUs"."""
        large = [gpus for size, gpus in self.gpus.items() if TOPS[size] >= self.scope.large_gpus]
        return _runs_of(min(low for low, _ in large), max(high for _, high in large))

    # --- What is shown ---------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """With what was simulated."""
        return f"What if: {self.source}"

    def findings(self) -> list[Finding]:
        """What is recommended, what that assumes, and what the other changes do."""
        best = self.best
        made = [
            Finding(self.recommended, "gain", "Recommended.")
            if best
            else Finding(
                f"No change raises the {metric(self.main).label} by more than chance does in "
                f"{self.replicas} replicas; more replicas or days narrow the intervals.",
                "gain",
                "No recommendation.",
            )
        ]
        if told := self._guessed():
            made.append(Finding(told, "assumed", "Assumed."))
        others = [each.change for each in self.ranked if best is None or each.change != best.change]
        made += [Finding(self.sentence(change), "gain") for change in others[: MOST_FINDINGS - 3]]
        first, second, busy = (self._now(name) for name in (*LOST, GOODPUT))
        lost = f"failures cost {first} and preemptions by jobs that had failed {second}"
        now = f"Without a change {lost}; {busy} of busy GPU time is productive."
        made.append(Finding(now, "effects"))
        measured = self._measured_beside_simulated()
        return [*made, *([Finding(measured, "gain")] if measured else [])]

    def _guessed(self) -> str:
        """What the changes start from and no log told."""
        edits = [edit for change in self.scenarios for edit in parse(change).edits]
        paths = dict.fromkeys(path for edit in edits for path in paths_of(edit))
        guesses = [path for path in paths if _within(path, self.assumed)]
        if not guesses:
            return ""
        said = ", ".join(
            f"{path}={spoken(value_at(self.baseline, path), path)}" for path in guesses
        )
        return (
            f"The log does not tell where these changes start from: {said} is a guess, and what they "
            f"gain depends on it. Say what is so, for example --set {guesses[0]}=VALUE."
        )

    def _now(self, name: str) -> str:
        return metric(name).text(self.of(next(iter(self.scenarios)), name).baseline)

    def tiles(self) -> list[Tile]:
        """The main figures, before and with the best change."""
        change = self._subject
        shown = dict.fromkeys((self.main, "goodput_gpu_hours_per_day", *LOST, "queue_wait_mean_s"))
        found = [(self.of(change, name), metric(name)) for name in shown]
        return [
            Tile(
                f"{words.label[0].upper()}{words.label[1:]}",
                brief(words.scaled(each.baseline)),
                words.shown_unit,
                note=f"{words.text(each.value)} with {change}",
                section_id="effects",
            )
            for each, words in found
        ]

    @property
    def _subject(self) -> str:
        """The change that tiles and sizes are about."""
        return (self.best or self.ranked[0]).change

    def inputs(self) -> list[tuple[str, str]]:
        """What was simulated, and what of it counts."""
        begin_s, end_s = (each / 1e3 for each in window_ms(self.days))
        counted = f"the last {duration(end_s - begin_s)} of {duration(end_s)}"
        return [
            ("Simulated", f"{self.source}, {len(self.scenarios) + 1} scenarios"),
            ("Replicas", f"{self.replicas}, seeds {self.seed} to {self.seed + self.replicas - 1}"),
            ("Counted", f"{counted}: the cluster begins empty"),
            ("Large runs", self._large),
            ("Computed in", duration(self.seconds)),
        ]

    @property
    def _large(self) -> str:
        chosen, qos = self.scope, self.baseline.qos
        classes = [qos[place].name for place in chosen.classes]
        of_classes = f" of class {classes[0]}" if len(classes) < len(qos) else ""
        long = f" that need {chosen.long_run_hours} productive hours or more"
        return f"{self.large_runs}{of_classes}{long if chosen.long_run_hours else ''}"

    def values(self) -> list[Value]:
        """Every difference with its interval."""
        return [
            Value(
                f"{each.change}: {each.metric}",
                each.difference if each.difference == each.difference else None,
                "" if words.unit == "%" else words.unit,
                each.ci95 if each.difference == each.difference else None,
                words.better,
            )
            for each in self.differences
            for words in [metric(each.metric)]
        ]

    def unknowns(self) -> list[Unknown]:
        """What is doubtful, and what the log did not tell."""
        made = [Unknown(note) for note in self.notes]
        if self.assumed:
            keys = ", ".join(sorted(self.assumed))
            remedy = "Say what is so with --set KEY=VALUE."
            made.append(Unknown(f"The log does not tell, so assumed: {keys}.", remedy))
        return made

    def _measured_beside_simulated(self) -> str:
        """The measured ETTR of large runs beside that of the simulated baseline; empty without a log."""
        if self.measured is None or self.main != MAIN[0]:
            return ""
        value, assumed = self.measured_of(MAIN[0]), self.measured.assumptions
        every = len(self.scope.classes) > 1 or len(self.baseline.qos) == 1
        of_class = "all classes" if self.measured.qos is None else f"class {self.measured.qos}"
        shown = "no run was long enough" if value is None else percent(value, 1)
        return (
            f"Measured ETTR of {self.large_runs}, as in the report: {shown} (runs of "
            f"{duration(assumed['long_run_s'])} or more on their nodes, {of_class}). Simulated ETTR "
            f"before the change: {self._now(MAIN[0])} (jobs that need {self.scope.long_run_hours} h "
            f"or more, {'all classes' if every else 'the class that waits least'}). Both assume a "
            f"checkpoint every {duration(assumed['checkpoint_interval_s'])} that takes "
            f"{duration(assumed['write_s'])}, and count the wait before the first start."
        )

    def sections(self) -> list[Section]:
        """Which change gains most, in which sizes, what else changes, and what was assumed."""
        return [self._gain(), self._sizes(), self._effects(), self._settings()]

    def _gain(self) -> Section:
        ranked = [(each.change, each) for each in self.ranked]
        label, unit = metric(self.main).label, metric(self.main).shown_unit
        sentence = self.recommended or "No interval lies above zero."
        if self.best and self.best.metric != self.main:
            sentence += f" The {label} tells no gain from zero."
        return Section(
            "gain",
            "Which change gains most?",
            sentence,
            [_figure(ranked)],
            [_table(ranked, "Change", f"The {label} ({unit}), the largest gain first.")],
            How(
                [
                    "d = mean over the seeds of (metric with the change − metric without)",
                    "95 % interval: d ± t(0.975; n − 1) · s / √n, s the deviation of the differences",
                    "simulated ETTR = Σ productive time / Σ (waiting + running time), of long runs",
                ],
                {"replicas n": self.replicas, "large runs": self._large},
                "Kokolis et al., arXiv 2410.21680v2 (ETTR); Law, Simulation Modeling and Analysis",
                "Pairs share their jobs and the failures of unchanged nodes; “saved” in the CSV file is "
                "the share of variance that this saves. The best of several changes looks a little "
                "better than it is.",
            ),
        )

    def _sizes(self) -> Section:
        change, question = self._subject, "Which job sizes gain?"
        tops = [int(TOPS[size]) for size in self.scope.sizes]
        rows = [(f"{bucket_label(top)} GPUs", self.of(change, f"ettr_gpus_{top}")) for top in tops]
        if not rows:
            return Section("sizes", question, "No size has enough long runs to tell.")
        told = [label for label, each in rows if each.ci95[0] > 0]
        waits = [
            (
                bucket_label(int(TOPS[size])),
                self.of(change, f"queue_wait_{name}_s_gpus_{TOPS[size]}"),
            )
            for size in self.scope.waits
            for name in ("mean", "p90")
        ]
        caption = f"Waits before a start with {change}, two rows per job size."
        return Section(
            "sizes",
            question,
            f"With {change}, the simulated ETTR of long runs rises in {len(told)} of {len(rows)} "
            f"sizes{': ' if told else ''}{', '.join(told)}.",
            [replace(_figure(rows), caption="Simulated ETTR of long runs")],
            [_table(waits, "Job size (GPUs)", caption, "Nothing waited.")],
            How(
                "simulated ETTR = Σ productive time / Σ (waiting + running time) of its long runs",
                {"long runs": self._large, "fewest runs of a size, all replicas": FEWEST_RUNS},
                notes="Waits are those before every start; one that is not over counts as it stands.",
            ),
        )

    def _effects(self) -> Section:
        ordered = [each.change for each in self.ranked]
        lost = [self.of(change, LOST[0]) for change in ordered]
        best = min(lost, key=lambda each: each.difference)
        shown = {*EFFECTS, self.main}
        rows = [
            (change, each)
            for change in ordered
            for each in self.differences
            if each.change == change and (each.metric in shown or "failed_share" in each.metric)
        ]
        return Section(
            "effects",
            "What else changes?",
            self.sentence(best.change, LOST[0])
            if best.ci95[1] < 0
            else "No change lowers what failures cost by more than can be told from zero.",
            [_figure([(each.change, each) for each in lost])],
            [_table(rows, "Change", "One row per change and metric.")],
            How(
                [
                    "loss to failures = Σ GPUs · (progress lost + time hung + initialisation) of "
                    "attempts that the infrastructure ended (first order)",
                    "loss to preemption by jobs that had failed: of attempts that these preempted",
                    "productive GPU-hours = Σ GPUs · kept productive time",
                ],
                source="Kokolis et al., arXiv 2410.21680v2, on goodput loss",
            ),
        )

    def _settings(self) -> Section:
        values = {
            path: spoken(value_at(self.baseline, path), path)
            for path in leaves()
            if path.startswith(SETTINGS)
        }
        rows = [
            {"key": path, "value": value, "told": "assumed" if _within(path, self.assumed) else ""}
            for path, value in values.items()
            if value is not None
        ]
        return Section(
            "assumed",
            "What was assumed of the fleet?",
            "Everything that was simulated is in one scenario; these are its main settings.",
            tables=[
                Table(
                    pa.Table.from_pylist(rows),
                    {
                        "key": ColumnFormat("Key"),
                        "value": ColumnFormat("Value"),
                        "told": ColumnFormat("Source"),
                    },
                    "One row per setting; correct what is not so with --set KEY=VALUE.",
                )
            ],
            how=How(
                self.baseline.to_toml().splitlines(),
                notes="The scenario as TOML: save it to a file, edit it, and simulate it with "
                "--scenario FILE.",
            ),
        )


def _within(path: str, keys: Iterable[str]) -> bool:
    """Whether a path, or a table that it lies in, is among some keys."""
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def _table(
    rows: Iterable[tuple[str, Difference]], first: str, caption: str, empty: str = "No rows."
) -> Table:
    """Differences with their labels, each in the unit of its metric."""
    data = pa.Table.from_pylist(
        [
            {
                "label": label,
                "metric": f"{words.label} ({words.shown_unit})",
                "before": words.scaled(each.baseline),
                "after": words.scaled(each.value),
                "difference": words.scaled(each.difference),
                "low": words.scaled(each.ci95[0]),
                "high": words.scaled(each.ci95[1]),
                "saved": each.variance_saved,
            }
            for label, each in rows
            for words in [metric(each.metric)]
        ]
    )
    columns = {
        "label": ColumnFormat(first),
        "before": ColumnFormat("Before"),
        "after": ColumnFormat("After"),
        "difference": ColumnFormat("Difference, 95 %", interval=("low", "high")),
        "metric": ColumnFormat("Of"),
    }
    if data.num_rows and len(data["metric"].unique()) == 1:
        del columns["metric"]  # the caption names it
    return Table(data, columns if data.num_rows else {}, caption, empty)


def _figure(rows: Sequence[tuple[str, Difference]]) -> Figure:
    """Differences of one metric with their intervals, one line each."""
    words = metric(rows[0][1].metric)
    unit = "points" if words.unit == "%" else words.shown_unit
    values = [
        {
            "change": label,
            "difference": words.scaled(each.difference),
            "low": words.scaled(each.ci95[0]),
            "high": words.scaled(each.ci95[1]),
        }
        for label, each in rows
        if each.difference == each.difference
    ]
    made = figures.intervals(
        values, "change", "difference", "low", "high", f"Difference ({unit})", reference=0.0
    )
    return replace(made, caption=f"{words.label[0].upper()}{words.label[1:]}")


def _runs_of(smallest: int, largest: int) -> str:
    if smallest == largest:
        return f"{largest:,}-GPU runs"
    return f"runs of {smallest:,} to {largest:,} GPUs"
