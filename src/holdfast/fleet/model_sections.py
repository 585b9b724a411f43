"""Sections of the report on estimates: the failure rate, MTTF, ETTR."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.fleet import model_figures
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.fleet.failures import Mttf
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.moments import moment
from holdfast.fleet.sections import PAPER, drawn
from holdfast.fleet.summary import FEWEST_RUNS, largest_measured, measured_text, reference_nodes
from holdfast.fleet.wording import (
    RATE_UNIT,
    decimals,
    drift,
    ettr_settings,
    expected_text,
    size,
    without_gpus,
)
from holdfast.numbers import brief, counted, duration
from holdfast.report import ColumnFormat, How, Section, Table

PROJECTED_NODES = (1, 16, 128, 1024, 2048, 16_384)


def rate(analysis: Analysis) -> Section:
    """Does the failure rate drift?"""
    frame, unit = analysis.over_time
    scope = f" of attempts above {analysis.min_gpus:,} GPUs" if analysis.min_gpus else ""
    sentence = "No failures, so no drift."
    if frame["failures"].sum():
        sentence = drift(analysis.trend)
    if len(analysis.new_checks):
        sentence += " A step at the first event of a new check is a better view, not a worse fleet."
    table = pa.table(
        {
            "begin": [moment(each) for each in frame["begin_s"]],
            "cause": list(frame["cause"]),
            "failures": frame["failures"].to_numpy(),
            "node_days": frame["node_days"].to_numpy(),
        }
    )
    return Section(
        "rate",
        "Does the failure rate drift?",
        sentence,
        drawn(model_figures.rate_over_time(frame, unit, analysis.new_checks)),
        [
            Table(
                table,
                {
                    "begin": ColumnFormat(f"From ({unit})"),
                    "cause": ColumnFormat("Cause"),
                    "failures": ColumnFormat("Failures"),
                    "node_days": ColumnFormat(
                        "Exposure", "node-days", digits=decimals(frame["node_days"])
                    ),
                },
                caption=f"One row per {unit} and cause. The exposure is that of the whole {unit}.",
                empty="Nothing ran.",
            )
        ],
        How(
            "r_f = failures / Σ node-days up"
            if analysis.outages is not None
            else "r_f = (NODE_FAIL + FAILED with a HIGH check) / Σ node-days" + scope,
            {
                "attempts above, GPUs": analysis.min_gpus,
                f"rate, {RATE_UNIT}": "–"
                if analysis.mttf is None
                else brief(analysis.mttf.model.rate_per_1000_node_days_),
                "test of the trend": analysis.trend.method,
                "p-value": brief(analysis.trend.p_value),
                "p-value of scatter around the trend": brief(analysis.trend.dispersion_p_value),
            },
            PAPER,
        ),
    )


def mttf(analysis: Analysis) -> Section:
    """How long does a job run before it fails?"""
    fitted = analysis.mttf
    question = "How long does a job run before it fails?"
    if fitted is None:
        return Section("mttf", question, "Nothing ran: there is no rate.")
    by_size = fitted if analysis.outages is not None else analysis.mttf_all
    assert by_size is not None
    sentence = by_size.model.independence_
    if not fitted.model.failures_:
        bound = brief(fitted.model.ci95_[1])
        sentence = f"No failures: the rate is at most {bound} {RATE_UNIT} (95 %)."
    return Section(
        "mttf",
        question,
        sentence,
        drawn(
            model_figures.mttf_by_size(
                by_size, fitted, reference_nodes(analysis), without_gpus(analysis)
            )
        ),
        [_size_table(by_size), _projection_table(analysis, fitted)],
        How(
            [
                "MTTF(N nodes) = 1 / (N · r_f)",
                "95 % interval of n failures in T node-days: "
                "[2T / χ²(0.975; 2n + 2), 2T / χ²(0.025; 2n)]",
            ],
            {
                f"r_f of the line, {RATE_UNIT}": brief(fitted.model.rate_per_1000_node_days_),
                "from attempts above, GPUs": analysis.min_gpus,
                "GPUs per node": fitted.gpus_per_node,
            },
            f"{PAPER}; Garwood 1936",
            "The line assumes that nodes fail independently and that any failure ends the job.",
        ),
    )


def _size_table(by_size: Mttf) -> Table:
    buckets = by_size.model.buckets_
    rows = [
        {
            "size": bucket_label(bucket.gpus_max or 0),
            "failures": bucket.failures,
            "node_days": bucket.node_days,
            "rate": bucket.rate_per_1000_node_days,
            "low": None if bucket.ci95 is None else bucket.ci95[0],
            "high": None if bucket.ci95 is None else bucket.ci95[1],
        }
        for bucket in buckets
    ]
    numbers = ("node_days", "rate", "low", "high")
    schema = pa.schema(
        [
            ("size", pa.string()),
            ("failures", pa.int64()),
            *((name, pa.float64()) for name in numbers),
        ]
    )
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "size": ColumnFormat("Job size", "GPUs", right=True),
            "failures": ColumnFormat("Failures"),
            "node_days": ColumnFormat(
                "Exposure", "node-days", digits=decimals(bucket.node_days for bucket in buckets)
            ),
            "rate": ColumnFormat(
                "Rate, 95 %",
                RATE_UNIT,
                digits=_rate_decimals(rows),
                interval=("low", "high"),
            ),
        },
        caption="One row per job size, all attempts.",
        empty="A log of node failures has no job sizes.",
    )


def _rate_decimals(rows: list[dict[str, Any]]) -> int:
    """Decimals for the rates, or for their upper bounds where none failed."""
    return max(decimals(row["rate"] for row in rows), decimals(row["high"] or 0.0 for row in rows))


def _projection_table(analysis: Analysis, fitted: Mttf) -> Table:
    """MTTF at the usual sizes, with the largest job that ran."""
    per_node = fitted.gpus_per_node
    largest = reference_nodes(analysis)
    usual = {nodes for nodes in PROJECTED_NODES if nodes <= model_figures.BEYOND * largest}
    nodes = sorted({*usual, largest})
    found = [fitted.model.mttf_hours(each * per_node, per_node) for each in nodes]
    texts = [
        tuple("" if hours is None else duration(3600 * hours) for hours in row) for row in found
    ]
    value, low, high = zip(*texts, strict=True)
    columns = {"nodes": nodes, "gpus": [each * per_node for each in nodes]}
    table = pa.table({**columns, "mttf": list(value), "low": list(low), "high": list(high)})
    formats = {
        "nodes": ColumnFormat("Nodes"),
        "gpus": ColumnFormat("GPUs"),
        "mttf": ColumnFormat("MTTF", right=True),
        "low": ColumnFormat("From, 95 %", right=True),
        "high": ColumnFormat("To, 95 %", right=True),
    }
    if without_gpus(analysis):
        del formats["gpus"]
    if not fitted.model.failures_:  # a lower bound is all there is
        del formats["mttf"], formats["high"]
        formats["low"] = ColumnFormat("MTTF at least, 95 %", right=True)
    return Table(table, formats, caption="Projections of the fitted rate, one row per job size.")


def ettr(analysis: Analysis) -> Section:
    """How much of a large run's time is productive?"""
    question = "How much of a large run's time is productive?"
    if analysis.expected_ettr is None:
        sentence = "Nothing ran: there is no failure rate to expect an ETTR from."
        return Section("ettr", question, sentence, how=_ettr_how(analysis))
    job = size(analysis, analysis.largest_job_nodes)
    wait_s, restarts = analysis.restart_wait_s
    sentence = (
        f"A job on {job} is expected to spend {expected_text(analysis)} of its time productively"
    )
    if restarts:
        sentence += f"; {counted(restarts, 'restart')} after failures waited {duration(wait_s)} on "
        sentence += "average"
    row = largest_measured(analysis.measured.by_size)
    sentence += (
        f". Measured: {measured_text(row)}." if row else ". No run was long enough to measure."
    )
    settings, per_node = ettr_settings(analysis), analysis.log.gpus_per_node
    return Section(
        "ettr",
        question,
        sentence,
        [
            model_figures.expected_and_measured(
                analysis.measured, settings, per_node, without_gpus(analysis)
            ),
        ],
        [_lever_table(analysis, job), _measured_table(analysis)],
        _ettr_how(analysis),
    )


def _ettr_how(analysis: Analysis) -> How:
    assumed = analysis.log.assumptions
    return How(
        [
            "measured: ETTR = R / (Q + R + U), U = initialization + replay + checkpoint writes; replay = "
            "min(runtime, Δt / 2) per attempt that was cut off",
            "expected: Δt / [(1/L + q) · e^{L·u0} · (e^{L(Δt + w)} − 1)], L = N · r_f",
        ],
        {
            "checkpoint interval Δt (assumed)": duration(assumed.checkpoint_interval_s),
            "initialisation u0 (assumed)": duration(analysis.log.init_s),
            "preempted jobs save their work (assumed)": "yes" if assumed.save_on_signal else "no",
            "checkpoint write w (assumed)": duration(assumed.write_s),
            "queue before restarts q (measured mean)": duration(analysis.restart_wait_s[0]),
            "runs measured: at least": duration(assumed.long_run_s),
        },
        PAPER,
        "The exact form holds for failures at a constant rate, also during initialisation and writes.",
    )


def _lever_table(analysis: Analysis, job: str) -> Table:
    base = analysis.expected_ettr or 0.0
    changes = analysis.levers if analysis.goodput.failures else []
    levers = pa.table(
        {
            "change": pa.array([lever.name for lever in changes], pa.string()),
            "ettr": pa.array([lever.ettr for lever in changes], pa.float64()),
            "gain": pa.array([100 * (lever.ettr - base) for lever in changes], pa.float64()),
        }
    )
    return Table(
        levers,
        {
            "change": ColumnFormat("Change"),
            "ettr": ColumnFormat("Expected ETTR", "%", digits=1),
            "gain": ColumnFormat("Gain", "points", digits=1),
        },
        caption=f"What would raise the ETTR of a job on {job}, strongest first.",
        empty="No failure, so no change to recommend.",
    )


def _measured_table(analysis: Analysis) -> Table:
    """Measured beside expected, at each size's own mean."""
    frame = analysis.measured.by_size
    per_node = analysis.log.gpus_per_node
    nodes = [max(gpus / per_node, 1.0) for gpus in frame["gpus"]]
    many = frame["runs"] >= FEWEST_RUNS
    table = frame.assign(
        size=[bucket_label(int(top)) for top in frame["gpus_max"]],
        expected=[expected_ettr(**{**analysis.ettr_setting, "nodes": each}) for each in nodes],
        lo=frame["lo"].where(many),
        hi=frame["hi"].where(many),
        queue=frame["queue_s"] / 60,
    )
    return Table(
        pa.Table.from_pandas(table, preserve_index=False),
        {
            "size": ColumnFormat("Job size", "GPUs", right=True),
            "runs": ColumnFormat("Runs"),
            "ettr": ColumnFormat("Measured, 95 %", "%", digits=1, interval=("lo", "hi")),
            "expected": ColumnFormat("Expected", "%", digits=1),
            "queue": ColumnFormat("Wait a start", "min", digits=decimals(table["queue"])),
            "interruptions": ColumnFormat("Interruptions", "a run", digits=1),
        },
        caption="One row per job size: runs of the class that waits least.",
        empty=f"No run spent {duration(analysis.log.assumptions.long_run_s)} on its nodes.",
    )
