"""What limits a pipeline, and what would change it: the answer of ``explain``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import (
    Answer,
    ColumnFormat,
    How,
    Section,
    Table,
    Tile,
    Unknown,
    Value,
)
from holdfast.data.pipeline.graph_model import is_graph, plan_settings
from holdfast.data.pipeline.model import bottleneck, limit_of
from holdfast.data.pipeline.prediction import HIGHEST_ERROR, WORTH, plan, predict, relative_error
from holdfast.data.pipeline.stages import Kind, Stage, Trace
from holdfast.numbers import brief, duration, interval, number, percent
from holdfast.report.figures import bars, intervals

PARTS = {
    "CPU, lock free": "user",
    "CPU, lock held": "hardware",
    "waiting": "sky",
}
REMEDIES: Mapping[Kind, str] = {
    "cpu": "more workers help until all cores are busy; threads would do as well",
    "gil": "it holds the interpreter lock: worker processes help, threads do not",
    "latency": "it waits for answers: more workers help, at almost no CPU",
    "bandwidth": "it waits for bytes: fewer bytes help, more workers do not once the bandwidth is used",
    "consumer": "the consumer is slower than the loader: a faster loader gains nothing",
}
SOURCE = "Kuchnik et al., Plumber, MLSys 2022 (arXiv 2111.04131)"


@dataclass(frozen=True)
class Explanation(Answer):
    """The rate of a pipeline, the stage that limits it, and predicted rates of changes.

    Args:
        trace: what was measured.
        bottleneck: name of the stage with the lowest R theta.
        kind: what limits it.
        predicted: rows ``{"change", "rate", "interval"}``: batches per second with its 95 % interval.
        interval: of the measured rate.
        target: what was explained.
    """

    trace: Trace
    bottleneck: str
    kind: Kind
    predicted: list[dict[str, Any]]
    interval: tuple[float, float]
    target: str = ""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Input pipeline {Path(self.target).name}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Stages with their costs per batch, in seconds and batches per second."""
        trace = self.trace
        return {
            "rate": trace.rate,
            "interval": [_finite(end) for end in self.interval],
            "stages": [
                {
                    "name": stage.name,
                    "cpu_seconds_per_batch": stage.cpu_s,
                    "gil_seconds_per_batch": stage.gil_s,
                    "blocked_seconds_per_batch": stage.blocked_s,
                    "latency_s": stage.latency_s,
                    "parallelism": stage.parallelism,
                    "visits_per_batch": stage.visits,
                    "output_bytes_per_batch": stage.out_bytes,
                    "read_bytes_per_batch": stage.read_bytes,
                    "random": stage.random,
                    "rate_limit": _finite(limit_of(stage, trace.resources.cores)),
                }
                for stage in trace.stages
            ],
            "bottleneck": self.bottleneck,
            "kind": self.kind,
            "starved": trace.starved,
            "predicted": [
                {**row, "interval": [_finite(end) for end in row["interval"]]}
                for row in self.predicted
            ],
            "settings": dict(trace.settings),
            "cores": trace.resources.cores,
            "batches": trace.batches,
            "seconds": trace.seconds,
        }

    def values(self) -> Sequence[Value]:
        """What a later answer is compared by."""
        low, high = (_finite(end) for end in self.interval)
        return [
            Value("rate", self.trace.rate, "batches/s", (low, high), "higher"),
            Value("starved", self.trace.starved, better="lower"),
        ]

    def tiles(self) -> Sequence[Tile]:
        """The rate, the waiting consumer, the bottleneck."""
        return [
            Tile("Rate", brief(self.trace.rate), "batches per second"),
            Tile("Consumer waiting", percent(self.trace.starved), "of the time"),
            Tile("Bottleneck", self.bottleneck, self.kind),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """What was traced, for how long, with which settings."""
        settings = ", ".join(f"{key} {value}" for key, value in self.trace.settings.items())
        return [
            ("pipeline", self.target),
            ("traced", f"{self.trace.batches:,} batches in {duration(self.trace.seconds)}"),
            ("settings", settings),
            ("cores", brief(self.trace.resources.cores)),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What the trace is too short for."""
        error, others = relative_error(self.trace), self.trace.others
        if error <= HIGHEST_ERROR and others >= 0.5:
            load = (
                f"Other processes kept {number(others, 1)} threads busy: rates hold for that load."
            )
            return [Unknown(load, "trace on a quiet machine")]
        if error <= HIGHEST_ERROR:
            return []
        text = (
            "The rates are not determined: the trace is too short."
            if math.isinf(error)
            else f"The rates are known to ±{percent(error)} only."
        )
        return [Unknown(text, "trace longer (--seconds), or use smaller batches")]

    def sections(self) -> Sequence[Section]:
        """What limits the pipeline; what would change it."""
        return [self._stages(), self._changes()]

    def _stages(self) -> Section:
        trace, cores = self.trace, self.trace.resources.cores
        stage = trace.stage[self.bottleneck]
        remedy = REMEDIES[self.kind]
        if self.kind == "consumer" and not trace.settings["num_workers"]:
            remedy = (
                "it takes turns with the loader in one thread: one worker lets both run at once"
            )
        sentence = (
            f"{self.bottleneck} limits the pipeline ({self.kind}): "
            f"{brief(trace.rate)} {interval(*self.interval)} batches per second; {remedy}."
        )
        parts = [
            {"stage": part.name, "part": name, "milliseconds": 1e3 * seconds}
            for part in trace.stages
            for name, seconds in zip(
                PARTS, (part.cpu_s - part.gil_s, part.gil_s, part.blocked_s), strict=True
            )
        ]
        rows = [
            {
                "stage": part.name,
                "cpu": 1e3 * part.cpu_s,
                "gil": 1e3 * part.gil_s,
                "blocked": 1e3 * part.blocked_s,
                "parallelism": part.parallelism,
                "limit": _finite(limit_of(part, cores)),
                "visits": part.visits,
                "bytes": part.out_bytes / 1e6,
                "random": {True: "yes", False: "no", None: ""}[part.random],
            }
            for part in trace.stages
        ]
        columns = {
            "stage": ColumnFormat("Stage"),
            "cpu": ColumnFormat("CPU", "ms per batch", digits=2),
            "gil": ColumnFormat("Lock held", "ms per batch", digits=2),
            "blocked": ColumnFormat("Waiting", "ms per batch", digits=2),
            "parallelism": ColumnFormat("Workers"),
            "limit": ColumnFormat("Limit", "batches per second", digits=1),
            "visits": ColumnFormat("Runs per batch", digits=1, detail=True),
            "bytes": ColumnFormat("Output", "MB per batch", digits=2, detail=True),
            "random": ColumnFormat("Random draws", detail=True),
        }
        figure = bars(
            parts,
            "stage",
            "milliseconds",
            "Milliseconds per batch in one worker",
            part="part",
            meanings=PARTS,
        )
        how = How(
            "limit = R theta with R = (C / V) / P: batches per core-second, times workers",
            source=SOURCE,
            notes=(
                "CPU time is that of the thread; time in the run queue is nobody's. Waiting is time "
                "asleep, and lengthens a batch in its worker. The lock is sampled. A stage that calls "
                f"others is charged what it does itself. {stage.name} has the lowest limit."
            ),
        )
        return Section(
            "stages",
            "What limits the pipeline?",
            sentence,
            [figure],
            [Table(pa.Table.from_pylist(rows), columns, "From the source to the consumer.")],
            how,
        )

    def _changes(self) -> Section:
        top = max(row["rate"] for row in self.predicted)
        best = next(row for row in self.predicted if row["rate"] >= top * (1 - WORTH))
        sentence = (
            f"Predicted to gain most: {best['change']}, {brief(best['rate'])} "
            f"{interval(*best['interval'])} batches per second "
            f"({number(best['rate'] / self.trace.rate, 2)} times the present rate)."
        )
        rows = [
            {
                "change": row["change"],
                "rate": row["rate"],
                "low": _finite(row["interval"][0]),
                "high": _finite(row["interval"][1]),
            }
            for row in self.predicted
        ]
        columns = {
            "change": ColumnFormat("Change"),
            "rate": ColumnFormat("Rate", "batches per second", digits=1, interval=("low", "high")),
        }
        figure = intervals(
            rows,
            "change",
            "rate",
            "low",
            "high",
            "Batches per second (dashed: measured)",
            reference=self.trace.rate,
        )
        how = How(
            "traced batches drawn again and played through the loader's protocol on shared cores",
            notes="Intervals: 95 %, of what was sampled and of the model. Nothing of this was measured.",
        )
        return Section(
            "changes",
            "What would change it?",
            sentence,
            [figure],
            [Table(pa.Table.from_pylist(rows), columns)],
            how,
        )


def explain(trace: Trace, target: str = "") -> Explanation:
    """Name the stage that limits a traced pipeline, and predict what changes would bring.

    Args:
        trace: of the pipeline.
        target: its name, for the page.
    """
    stage, kind = bottleneck(trace.stages, trace.resources.cores)
    return Explanation(
        trace, stage.name, kind, _predicted(trace, stage), predict(trace, {})[1], target
    )


def _predicted(trace: Trace, stage: Stage) -> list[dict[str, Any]]:
    """Predictions for the best settings, for as many workers as cores, and for a faster bottleneck."""
    best = plan(trace)
    if is_graph(trace):
        candidates = [plan_settings(trace, best)]
    else:
        settings = {"num_workers": best.parallelism["workers"], "prefetch_factor": best.prefetch}
        cores = max(1, math.ceil(trace.resources.cores))
        candidates = [settings]
        candidates += [{**trace.settings, "num_workers": count} for count in (cores, 2 * cores)]
    rows: list[dict[str, Any]] = []
    for candidate in candidates:
        changes = {k: v for k, v in candidate.items() if v != trace.settings[k]}
        text = ", ".join(f"{key} {value}" for key, value in changes.items())
        if changes and text not in [row["change"] for row in rows]:
            rate, ends = predict(trace, candidate)
            rows.append({"change": text, "rate": rate, "interval": ends})
    faster = [
        replace(
            part,
            cpu_s=part.cpu_s / 2,
            gil_s=part.gil_s / 2,
            blocked_s=part.blocked_s / 2,
            out_bytes=part.out_bytes / 2,
        )
        if part.name == stage.name
        else part
        for part in trace.stages
    ]
    rate, ends = predict(trace, {}, faster)
    rows.append({"change": f"{stage.name} twice as fast", "rate": rate, "interval": ends})
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
