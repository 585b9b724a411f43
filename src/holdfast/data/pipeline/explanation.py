"""What limits a pipeline, and what would change it: the answer of ``explain``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Figure, How, Section, Table, Unknown, Value
from holdfast.data.pipeline import prediction
from holdfast.data.pipeline.model import bottleneck, limit_of, runner_up
from holdfast.data.pipeline.stages import Kind, Stage, Trace
from holdfast.numbers import brief, duration, interval, number, percent
from holdfast.plain import plain
from holdfast.report.figures import bars, intervals

PARTS = {
    "CPU, lock free": ("user", lambda part: part.cpu_s - part.gil_s),
    "CPU, lock held": ("hardware", lambda part: part.gil_s),
    "waiting": ("sky", lambda part: part.blocked_s),
}
# By the kind of the bottleneck, or its name.
REMEDIES = {
    "cpu": "more workers help until all cores are busy; threads would do as well",
    "gil": "it holds the interpreter lock: worker processes help, threads do not",
    "latency": "it waits for answers: more workers help, at almost no CPU",
    "bandwidth": "it waits for bytes: fewer bytes help, more workers do not once the bandwidth is used",
    "consumer": "the consumer is slower than the loader: a faster loader gains nothing",
    "main": "it takes turns with the loader in one thread: one worker lets both run at once",
    "receive": "batches are taken from workers one by one: larger batches, fewer tensors in each, or "
    'torch.multiprocessing.set_sharing_strategy("file_system") help, more workers do not',
}
# Of a stage: the key of JSON and tables, the attribute, and the column. The limit is the machine's.
COSTS = {
    "name": ("name", ColumnFormat("Stage")),
    "cpu_seconds_per_batch": ("cpu_s", ColumnFormat("CPU", "s per batch", digits=5)),
    "gil_seconds_per_batch": ("gil_s", ColumnFormat("Lock held", "s per batch", digits=5)),
    "blocked_seconds_per_batch": ("blocked_s", ColumnFormat("Waiting", "s per batch", digits=5)),
    "rate_limit": ("", ColumnFormat("Limit", "batches per second", digits=1)),
    "parallelism": ("parallelism", ColumnFormat("Workers")),
    "latency_s": ("latency_s", ColumnFormat("Waiting", "s per run", digits=5, detail=True)),
    "visits_per_batch": ("visits", ColumnFormat("Runs per batch", digits=1, detail=True)),
    "output_bytes_per_batch": ("out_bytes", ColumnFormat("Output", "bytes per batch", detail=True)),
    "random": ("random", ColumnFormat("Random draws", detail=True)),
}
# A limit that is lower by this share is the lowest, however short the trace.
CLEAR = 1.0
# Share of their computing time that stages may wait for a core before the answer says so.
QUEUED = 0.2
SOURCE = "Kuchnik et al., Plumber, MLSys 2022 (arXiv 2111.04131)"


@dataclass(frozen=True)
class Explanation(Answer):
    """The rate of a pipeline, the stage that limits it, and predicted rates of changes.

    Args:
        trace: what was measured.
        bottleneck: name of the stage with the lowest R theta; None: the trace cannot tell which it is.
        kind: what limits it.
        predicted: rows ``{"change", "rate", "interval"}``: batches per second with its 95 % interval.
        interval: of the measured rate.
        target: what was explained.
        candidates: the two stages of which one limits, where the trace cannot tell which.
    """

    trace: Trace
    bottleneck: str | None
    kind: Kind | None
    predicted: list[dict[str, Any]]
    interval: tuple[float, float]
    target: str = ""
    candidates: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Input pipeline {Path(self.target).name}".rstrip()

    def to_dict(self) -> Any:
        """Stages with their costs per batch, in seconds and batches per second."""
        trace = self.trace
        return plain(
            {
                "unknown": self.unknowns(),
                "rate": trace.rate,
                "interval": self.interval,
                "stages": self._costs(),
                "bottleneck": self.bottleneck,
                "kind": self.kind,
                "candidates": self.candidates,
                "queued": trace.queued,
                "starved": trace.starved,
                "predicted": self.predicted,
                "settings": trace.settings,
                "cores": trace.resources.cores,
                "batches": trace.batches,
                "seconds": trace.seconds,
            }
        )

    def _costs(self) -> list[dict[str, Any]]:
        cores = self.trace.resources.cores
        return [
            {
                key: getattr(part, name) if name else _finite(limit_of(part, cores))
                for key, (name, _) in COSTS.items()
            }
            for part in self.trace.stages
        ]

    def values(self) -> Sequence[Value]:
        """What a later answer is compared by."""
        low, high = (_finite(end) for end in self.interval)
        return [
            Value("rate", self.trace.rate, "batches/s", (low, high), "higher"),
            Value("starved", self.trace.starved, better="lower"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """What was traced, for how long, with which settings."""
        return [
            ("pipeline", self.target),
            ("traced", f"{self.trace.batches:,} batches in {duration(self.trace.seconds)}"),
            ("settings", in_words(self.trace.settings)),
            ("cores", brief(self.trace.resources.cores)),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What the trace is too short for, or too disturbed."""
        text = (
            "Each worker decides what it reads of a stream: more of them may read the same samples."
        )
        stream = [Unknown(text, "tune compares the samples")] if self.trace.stream else []
        return [*_imprecise(self.trace), *loaded(self.trace.queued), *stream]

    def sections(self) -> Sequence[Section]:
        """What limits the pipeline; what would change it."""
        return [self._stages(), self._changes()]

    def _stages(self) -> Section:
        trace = self.trace
        rate = f"{brief(trace.rate)} {interval(*self.interval)} batches per second"
        if self.bottleneck is None or self.kind is None:
            sentence = (
                f"{' or '.join(self.candidates)} limits the pipeline, not determined which: {rate}."
            )
        else:
            remedy = REMEDIES.get(self.bottleneck, REMEDIES[self.kind])
            if self.kind == "consumer" and not trace.settings["num_workers"]:
                remedy = REMEDIES["main"]
            sentence = f"{self.bottleneck} limits the pipeline ({self.kind}): {rate}; {remedy}."
        parts = [
            {"name": part.name, "part": name, "milliseconds": 1e3 * seconds(part)}
            for part in trace.stages
            for name, (_, seconds) in PARTS.items()
        ]
        colors = {name: color for name, (color, _) in PARTS.items()}
        title = "Milliseconds per batch"
        figure = bars(parts, "name", "milliseconds", title, part="part", meanings=colors)
        how = How(
            "limit = R theta with R = (C / V) / P: batches per core-second, times workers",
            source=SOURCE,
            notes=(
                "CPU time is that of the thread; time in the run queue is nobody's. Waiting is time "
                "asleep, and lengthens a batch in its worker. The lock is sampled. A stage that calls "
                "others is charged what it does itself. The lowest limit is that of the pipeline."
            ),
        )
        columns = {key: column for key, (_, column) in COSTS.items()}
        rows = pa.Table.from_pylist(self._costs())
        table = Table(rows, columns, "From the source to the consumer.")
        return Section("stages", "What limits the pipeline?", sentence, [figure], [table], how)

    def _changes(self) -> Section:
        top = max(row["rate"] for row in self.predicted)
        best = next(row for row in self.predicted if row["rate"] >= top * (1 - prediction.WORTH))
        sentence = (
            f"Predicted to gain most: {best['change']}, {brief(best['rate'])} "
            f"{interval(*best['interval'])} batches per second "
            f"({number(best['rate'] / self.trace.rate, 2)} times the present rate)."
        )
        if best["rate"] <= self.trace.rate:
            sentence = "No change is predicted to gain anything."
        how = How(
            "the bounds of the model; of a DataLoader, traced batches drawn again through its protocol",
            notes="Intervals: 95 %, of what was sampled and of the model. Nothing of this was measured. "
            "Dashed: measured.",
        )
        figures, tables = rate_figures(self.predicted, self.trace.rate)
        return Section("changes", "What would change it?", sentence, figures, tables, how)


def rate_figures(
    rows: Sequence[Mapping[str, Any]],
    reference: float,
    more: Mapping[str, ColumnFormat] | None = None,
) -> tuple[list[Figure], list[Table]]:
    """Predicted rates with their intervals, as a figure and as a table.

    Args:
        rows: ``{"change", "rate", "interval"}``, and what `more` names.
        reference: rate to compare with.
        more: further columns.
    """
    records = [
        {key: value for key, value in row.items() if key != "interval"}
        | dict(zip(("low", "high"), map(_finite, row["interval"]), strict=True))
        for row in rows
    ]
    columns = {
        "change": ColumnFormat("Change"),
        "rate": ColumnFormat("Predicted", "batches per second", digits=1, interval=("low", "high")),
        **(more or {}),
    }
    title = "Predicted batches per second"
    figure = intervals(records, "change", "rate", "low", "high", title, reference=reference)
    return [figure], [Table(pa.Table.from_pylist(records), columns)]


def in_words(settings: Mapping[str, int]) -> str:
    """Settings as a phrase."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def explain(trace: Trace, target: str = "") -> Explanation:
    """Name the stage that limits a traced pipeline, and predict what changes would bring.

    Args:
        trace: of the pipeline.
        target: its name, for the page.
    """
    cores = trace.resources.cores
    (stage, kind), error = bottleneck(trace.stages, cores), prediction.relative_error(trace)
    ends = prediction.predict(trace, {})[1]
    rows = _predicted(trace, stage)
    other, factor = runner_up(trace.stages, stage, cores)
    if factor < 1 + min(error, CLEAR):
        return Explanation(trace, None, None, rows, ends, target, (stage.name, other))
    return Explanation(trace, stage.name, kind, rows, ends, target)


def _imprecise(trace: Trace) -> list[Unknown]:
    """That the rate of a short trace is not known."""
    error = prediction.relative_error(trace)
    if error <= prediction.HIGHEST_ERROR:
        return []
    precision = "not" if math.isinf(error) else f"only to ±{percent(error)}"
    text = f"The trace is too short: the rates are {precision} determined."
    return [Unknown(text, "trace longer (--seconds), or use smaller batches", doubt=True)]


def loaded(queued: float) -> list[Unknown]:
    """That other processes used the cores.

    Args:
        queued: share of their computing time that stages waited for a core.
    """
    text = (
        f"Stages waited for a core in {percent(queued)} of their computing time: all rates are those of "
        "a loaded machine, and may change with its load."
    )
    return [Unknown(text, "repeat on a quiet machine", doubt=True)] if queued > QUEUED else []


def _predicted(trace: Trace, stage: Stage) -> list[dict[str, Any]]:
    """Predictions for the best settings, for as many workers as cores, and for a faster bottleneck."""
    candidates = [prediction.plan(trace)]
    if not prediction.is_graph(trace):
        cores = math.ceil(trace.resources.cores)
        counts = [n for n in (cores, 2 * cores) if n <= prediction.busy_workers(trace)]
        candidates += [{**trace.settings, "num_workers": count} for count in counts]
    rates = {
        in_words(changes): prediction.predict(trace, changes)
        for candidate in candidates
        if (changes := {k: v for k, v in candidate.items() if v != trace.settings.get(k)})
    }
    costs = ("cpu_s", "gil_s", "blocked_s", "out_bytes")
    halved = replace(stage, **{name: getattr(stage, name) / 2 for name in costs})
    faster = [halved if part.name == stage.name else part for part in trace.stages]
    rates[f"{stage.name} twice as fast"] = prediction.predict(trace, {}, faster)
    return [
        {"change": name, "rate": rate, "interval": ends} for name, (rate, ends) in rates.items()
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
