"""What would change, and by how much: a fleet as it is beside the same fleet with one thing changed.

Each scenario is played with the same seeds, and the random numbers of a job or a node depend on its
seed alone (common random numbers): the same jobs arrive, and a node that is not changed draws the same
failures. So the difference of a pair holds little of the chance that both share. The interval is that of
the mean difference d over n pairs by Student's t: mean(d) ± t(0.975; n - 1) · s(d) / √n.
"""

from __future__ import annotations

import math
import time
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
from holdfast.errors import InputError
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.log import FleetLog
from holdfast.fleet.simulation.baseline import as_it_is
from holdfast.fleet.simulation.changes import (
    apply,
    leaves,
    parse,
    paths_of,
    phrase,
    spoken,
    value_at,
)
from holdfast.fleet.simulation.outcomes import (
    FEWEST_RUNS,
    TOPS,
    Outcome,
    Scope,
    metric,
    metrics,
    scope,
    window_ms,
)
from holdfast.fleet.simulation.proposals import enough_days, proposals
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replicas import OnProgress, Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import brief, duration, percent
from holdfast.report import figures, write

LEVEL = 0.95
PRESET_DAYS = 28.0
MOST_DAYS = 120.0
"""A store is simulated for as long as it is, and no longer than this."""
FULL = 0.97
"""From this share of the capacity on, the productive time that jobs need leaves no room."""
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
            row = {
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
        subject = self.phrases[change]
        if shown.difference == 0:
            said = f"{subject} leaves the {what} at {before}"
        else:
            verb = "raises" if shown.difference > 0 else "lowers"
            by = words.difference(shown.difference, shown.ci95)
            said = f"{subject} {verb} the {what} from {before} to {after} ({by})"
        doubt = "" if shown.told else ", which cannot be told from no change"
        return f"{said[0].upper()}{said[1:]}{doubt}."

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
                f"No change raises the {metric(self.main).label} or goodput by more than "
                f"{self.replicas} replicas can tell from zero; more replicas or days narrow the "
                "intervals.",
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
        made.append(
            Finding(f"Without a change {lost}; {busy} of busy GPU time is productive.", "effects")
        )
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
        begin_ms, end_ms = window_ms(self.days)
        counted_s, whole_s = (end_ms - begin_ms) / 1e3, end_ms / 1e3
        return [
            ("Simulated", f"{self.source}, {len(self.scenarios) + 1} scenarios"),
            ("Replicas", f"{self.replicas}, seeds {self.seed} to {self.seed + self.replicas - 1}"),
            (
                "Counted",
                f"the last {duration(counted_s)} of {duration(whole_s)}: the cluster begins empty",
            ),
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
        return (
            f"Measured ETTR of {self.large_runs}, as in the report: "
            + ("no run was long enough" if value is None else percent(value, 1))
            + f" (runs of {duration(assumed['long_run_s'])} or more on their nodes, {of_class}). "
            f"Simulated ETTR before the change: {self._now(MAIN[0])} (jobs that need "
            f"{self.scope.long_run_hours} h or more of productive time, "
            + ("all classes" if every else "the class that waits least")
            + f"). Both assume a checkpoint every {duration(assumed['checkpoint_interval_s'])} that "
            f"takes {duration(assumed['write_s'])}, initialization of {duration(assumed['init_s'])}, "
            f"{'work saved' if assumed['save_on_signal'] else 'half an interval lost'} at a "
            "preemption, and count the wait before the first start."
        )

    def sections(self) -> list[Section]:
        """Which change gains most, in which sizes, what else changes, and what was assumed."""
        return [self._gain(), self._sizes(), self._effects(), self._settings()]

    def _gain(self) -> Section:
        ranked = [(each.change, each) for each in self.ranked]
        label = metric(self.main).label
        sentence = self.recommended or "No interval lies above zero."
        if self.best and self.best.metric != self.main:
            sentence += f" The {label} tells no gain from zero."
        return Section(
            "gain",
            "Which change gains most?",
            sentence,
            [_figure(ranked)],
            [_table(ranked, "Change", f"The {label}, the largest gain first.")],
            How(
                [
                    "d = mean over the seeds of (metric with the change − metric without)",
                    "95 % interval: d ± t(0.975; n − 1) · s / √n, s the standard deviation of the n "
                    "differences",
                    "simulated ETTR = Σ productive time / Σ (waiting + running time), of long runs",
                ],
                {"replicas n": self.replicas, "large runs": self._large},
                "Kokolis et al., arXiv 2410.21680v2 (ETTR); Law, Simulation Modeling and Analysis, on "
                "common random numbers",
                [
                    "Each scenario is played with the same seeds, and random numbers belong to a job "
                    "or a node: a pair shares its jobs and the failures of its unchanged nodes. "
                    "The column “saved” of the CSV file is the share of the variance of two "
                    "independent simulations that this saves.",
                    f"Each interval holds by itself. The best of {len(self.scenarios)} changes looks "
                    "a little better than it is, the more so the wider its interval.",
                ],
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
            [_figure(rows)],
            [_table(waits, "Job size (GPUs)", caption, "Nothing waited.")],
            How(
                "simulated ETTR of one size = Σ productive time / Σ (waiting + running time) of its "
                "long runs",
                {"long runs": self._large, "fewest runs of a size, all replicas": FEWEST_RUNS},
                "",
                "Waits are those before every start, also after a requeue. One that is not over at "
                "the end counts as long as it has lasted.",
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
                    "loss to failures (first order) = Σ GPUs · (progress lost + time hung + "
                    "initialisation) of attempts that the infrastructure ended",
                    "loss to preemption by jobs that had failed (second order) = the same of attempts "
                    "that such a job preempted after its failure",
                    "goodput = Σ GPUs · kept productive time",
                ],
                {},
                "Kokolis et al., arXiv 2410.21680v2, on goodput loss",
                "The simulator knows when each checkpoint was written: what is lost is counted, not "
                "estimated as half an interval.",
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
                        "told": ColumnFormat(""),
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
    return Table(data, columns if data.num_rows else {}, caption, empty)


def _figure(rows: Sequence[tuple[str, Difference]]) -> Figure:
    """Differences of one metric with their intervals, one line each."""
    words = metric(rows[0][1].metric)
    unit = "percentage points" if words.unit == "%" else words.shown_unit
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
    title = f"{words.label[0].upper()}{words.label[1:]}: difference ({unit})"
    return figures.intervals(values, "change", "difference", "low", "high", title, reference=0.0)


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
        phrases={change: phrase(baseline, change, fleet.assumed) for change in changes},
        scope=chosen,
        gpus=_sizes(before),
        main=main,
        source=fleet.name,
        days=days,
        replicas=replicas,
        seed=seed,
        seconds=seconds,
        notes=[*fleet.notes, *_doubts(before, chosen, main)],
        assumed=fleet.assumed,
        measured=fleet.measured,
    )
    return found if html is None else replace(found, html=write(found.page(), html))


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


def _runs_of(smallest: int, largest: int) -> str:
    if smallest == largest:
        return f"{largest:,}-GPU runs"
    return f"runs of {smallest:,} to {largest:,} GPUs"
