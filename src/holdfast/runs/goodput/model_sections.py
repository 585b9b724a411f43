"""The sections of a run report on what should have been: the expected ETTR, the checkpoint interval."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.fleet.checkpoint_interval import daly_interval, young_interval
from holdfast.numbers import percent
from holdfast.report import ColumnFormat, Figure, How, Section, Table
from holdfast.runs.goodput import model_figures
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.expected import Expected
from holdfast.runs.goodput.model_wording import expected_sentence, interval_sentence
from holdfast.runs.goodput.wording import (
    rate_source,
    rate_text,
    seconds,
)

SOURCE = (
    "holdfast.fleet.ettr_forms (exact and exact_finite), after Kokolis et al., arXiv 2410.21680v2"
)


def expected(made: Breakdown) -> Section:
    """Was that ETTR to be expected?"""
    rows = _rows(made)
    figures = [model_figures.compared(rows)] if made.expected.ettr is not None else []
    table = pa.table(
        {name: pa.array([row[name] for row in rows]) for name in ("name", "what")}
        | {
            name: pa.array([row[name] for row in rows], pa.float64())
            for name in ("ettr", "low", "high")
        }
    )
    return Section(
        "expected",
        "Was that ETTR to be expected?",
        expected_sentence(made),
        figures,
        [
            Table(
                table,
                {
                    "name": ColumnFormat("ETTR"),
                    "ettr": ColumnFormat("Value", "%", digits=1, interval=("low", "high")),
                    "what": ColumnFormat("What is in it"),
                },
                caption="Intervals are those of the failure rate at 95 %.",
            )
        ],
        How(
            [
                "ettr(dt) = R / E[W]: R productive time, E[W] expected wall time of a run of R that "
                "restarts from its last checkpoint after each failure"
                if made.expected.form == "exact_finite"
                else "ettr(dt) = dt / [(1/L + q) e^{L u0} (e^{L(dt+w)} - 1)], the long run",
                "first queue: E[W] counts q for the first start; the measured first wait takes its place",
                "with other losses: s x ettr(dt/s), R/s and q + stall, s = step time / (step time + "
                "data wait + evaluation + idle time but for stalls)",
            ],
            parameters(made.expected),
            SOURCE,
            "Failures strike when they will: even if the model is right, one run with few failures "
            "lies above or below its expectation by chance.",
        ),
    )


def _rows(made: Breakdown) -> list[dict[str, Any]]:
    held = made.expected
    rows = [
        {
            "name": "measured",
            "ettr": made.ettr,
            "low": None,
            "high": None,
            "colour": "measured",
            "what": "everything that happened",
        }
    ]
    if held.ettr is None:
        return rows
    rows.append(
        {
            "name": "expected",
            "ettr": held.ettr,
            "low": held.low,
            "high": held.high,
            "colour": "model",
            "what": "failures, work lost to them, restarts, checkpoint writes; nothing else",
        }
    )
    rows.append(
        {
            "name": "expected, with other losses",
            "ettr": held.with_other_losses,
            "low": None,
            "high": None,
            "colour": "model",
            "what": "the same, with the data wait, evaluation, idle time and stalls of this run",
        }
    )
    if held.best_interval_ettr is not None:
        rows.append(
            {
                "name": "expected at the best interval",
                "ettr": held.best_interval_ettr,
                "low": None,
                "high": None,
                "colour": "good",
                "what": f"as expected, with a checkpoint every {seconds(held.best_interval_s)} of "
                "step time",
            }
        )
    return rows


def parameters(held: Expected) -> dict[str, object]:
    """What was put into the model, as a reader checks it."""
    shown: dict[str, object] = {"nodes": f"{held.nodes:g}"}
    if held.rate is not None:
        shown["failure rate"] = f"{rate_text(held.rate)}: {rate_source(held.rate)}"
    shown["step time between checkpoints dt"] = seconds(held.interval_s)
    shown["time that a checkpoint stops the training w"] = seconds(held.write_s)
    shown["initialisation u0"] = seconds(held.restarts.init_s)
    shown["from an end to the next start q"] = seconds(held.restarts.queue_s)
    shown["first wait in the queue"] = seconds(held.restarts.first_queue_s)
    shown["productive time R"] = seconds(held.productive_s)
    if held.progress_share is not None:
        shown["share of steps in the training time s"] = percent(held.progress_share)
    shown["stall before a restart"] = seconds(held.restarts.stalled_s)
    return shown


def interval(made: Breakdown) -> Section:
    """Was the checkpoint interval right?"""
    held = made.expected
    curve: Figure | None = model_figures.interval_curve(held)
    return Section(
        "interval",
        "Was the checkpoint interval right?",
        interval_sentence(made),
        [] if curve is None else [curve],
        [
            Table(
                _interval_table(made),
                {
                    "which": ColumnFormat("Interval"),
                    "interval_s": ColumnFormat("Step time", "s"),
                    "steps": ColumnFormat("Steps", digits=0),
                    "ettr": ColumnFormat("Expected ETTR", "%", digits=1),
                },
                caption="Step time (productive or replayed) from one checkpoint to the next.",
                empty="No interval can be told.",
            )
        ],
        How(
            [
                "best: the interval with the highest ETTR in the long run, (1 + W0(-e^(-1-Lw))) / L, "
                "but at least a step and the time in the background",
                "measured: median over the run; w: mean time that a finished checkpoint stopped the "
                "training, on the rank that they stopped longest",
            ],
            {
                **parameters(held),
                "checkpoints that stopped the training": made.checkpoints.count,
                "time in the background": seconds(made.checkpoints.background_s),
            },
            SOURCE,
            "A checkpoint that is written in the background counts with the time for which it stopped "
            "the training. It must be complete before the next one begins.",
        ),
    )


def _interval_table(made: Breakdown) -> pa.Table:
    held = made.expected
    rate, step = held.rate, made.work.step_s_mean
    rows: list[tuple[str, float | None]] = [("measured (median)", made.checkpoints.interval_s)]
    if rate is not None and held.ettr is not None:
        rows += [
            ("best", held.best_interval_s),
            ("best at the highest failure rate", held.best_interval_low_s),
            ("best at the lowest failure rate", held.best_interval_high_s),
            ("Young", young_interval(held.nodes, rate.per_node_day, write_s=held.write_s)),
            ("Daly", daly_interval(held.nodes, rate.per_node_day, write_s=held.write_s)),
        ]
    known = [(name, value) for name, value in rows if value]
    values = [value for _, value in known]
    return pa.table(
        {
            "which": pa.array([name for name, _ in known], pa.string()),
            "interval_s": pa.array(values, pa.float64()),
            "steps": pa.array([value / step if step else None for value in values], pa.float64()),
            "ettr": pa.array([each[0] for each in held.curve(values)] or None, pa.float64())
            if held.ettr is not None
            else pa.nulls(len(values), pa.float64()),
        }
    )
