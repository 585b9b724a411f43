"""The ETTR of large jobs: what is expected of the fitted failure rate, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from holdfast.answer import Figure, How, Section, Table
from holdfast.fleet.checkpoint_interval import SECONDS_PER_DAY
from holdfast.fleet.ettr_forms import expected_ettr, long_run_ettr
from holdfast.fleet.ettr_measured import FEWEST_RUNS, MeasuredEttr
from holdfast.fleet.wording import ettr_settings, how, size, table
from holdfast.numbers import duration, percent
from holdfast.report.figures import lines

if TYPE_CHECKING:
    from holdfast.fleet.analysis import Analysis

SMALLEST_GAIN = 0.001  # A change that raises the ETTR by less is not worth a sentence
CURVE_POINTS = 20
EXPECTED = "expected (exact form)"
QUESTION = "How much of a large run's time is productive?"


def section(analysis: Analysis) -> Section:
    """How much of a large run's time is productive?"""
    computed = _how(analysis)
    if analysis.expected_ettr is None:
        why = (analysis.mttf and analysis.mttf.blind) or "no node-days are known"
        return Section("ettr", QUESTION, f"Cannot tell what ETTR to expect: {why}.", how=computed)
    job = size(analysis, analysis.largest_job_nodes)
    per_node = analysis.log.gpus_per_node
    measured = analysis.measured
    in_nodes = analysis.without_gpus
    figure = expected_and_measured(measured, ettr_settings(analysis), per_node, in_nodes)
    sizes = (max(gpus / per_node, 1.0) for gpus in measured.by_size["gpus"].to_pylist())
    expected = [expected_ettr(**analysis.ettr_setting | {"nodes": nodes}) for nodes in sizes]
    tables = [_lever_table(analysis, job), analysis.measured.table(expected)]
    return Section("ettr", QUESTION, _sentence(analysis, job), [figure], tables, computed)


def _sentence(analysis: Analysis, job: str) -> str:
    assumed = analysis.log.assumptions
    expected = analysis.expected_ettr or 0.0
    text = f"ETTR of a job on {job}: {expected_text(analysis)} of its time is expected to be productive"
    if expected < SMALLEST_GAIN:
        text += (
            ": it hardly reaches a checkpoint, assumed every "
            f"{duration(assumed.checkpoint_interval_s)}"
        )
    if analysis.measured.runs:
        text += f"; measured: {analysis.measured.largest_text()}"
    levers = analysis.levers if analysis.goodput.failures else []
    if levers and levers[0].ettr - expected >= SMALLEST_GAIN:
        best = levers[0]
        text += f". What would raise it most: {best.name} (to {percent(best.ettr, 1)})"
    return f"{text}."


def expected_text(analysis: Analysis) -> str:
    """The expected ETTR of the largest job, ``"77.4 % [74.9 %, 79.7 %]"`` or ``"at least 95.1 %"``."""
    assert analysis.mttf is not None
    value, high, low = (percent(expected_ettr(**setting), 1) for setting in ettr_settings(analysis))
    if not analysis.mttf.model.failures_:
        return f"at least {low}"
    return value if low == high else f"{value} [{low}, {high}]"


def _how(analysis: Analysis) -> How:
    assumed = analysis.log.assumptions
    wait_s, restarts = analysis.restart_wait_s
    return how(
        "ettr",
        {
            "checkpoint interval Δt (assumed)": duration(assumed.checkpoint_interval_s),
            "initialisation u0 (assumed)": duration(analysis.log.init_s),
            "preempted jobs save their work (assumed)": "yes" if assumed.save_on_signal else "no",
            "checkpoint write w (assumed)": duration(assumed.write_s),
            f"queue before restarts q (mean of {restarts:,})": duration(wait_s),
            "runs measured: at least": duration(assumed.long_run_s),
        },
    )


def _lever_table(analysis: Analysis, job: str) -> Table:
    base = analysis.expected_ettr or 0.0
    rows = [
        {"change": lever.name, "ettr": lever.ettr, "gain": 100 * (lever.ettr - base)}
        for lever in (analysis.levers if analysis.goodput.failures else [])
    ]
    return table(
        rows,
        "change ettr gain",
        f"What would raise the ETTR of a job on {job}, strongest first.",
        "No failure, so no change to recommend.",
    )


def expected_and_measured(
    measured: MeasuredEttr,
    settings: Sequence[Mapping[str, float]],
    gpus_per_node: int,
    in_nodes: bool = False,
) -> Figure:
    """Expected ETTR against job size, with what the long runs had.

    Args:
        measured: the long runs by job size.
        settings: the parameters of the expected ETTR with the fitted failure rate and with the two
            ends of its interval.
        gpus_per_node: GPUs of a node.
        in_nodes: give sizes in nodes, for a log without GPUs.
    """
    scale, unit = (gpus_per_node, "nodes") if in_nodes else (1, "GPUs")
    points = [row for row in measured.by_size.to_pylist() if row["gpus"] > 0]
    sizes = [*(row["gpus"] for row in points), float(gpus_per_node)]
    largest = 4 * max(settings[0]["nodes"] * gpus_per_node, 2.0 * gpus_per_node, *sizes)
    steps = np.geomspace(min(sizes), largest, CURVE_POINTS)
    # A job on a part of a node fails with its node.
    curves = (_long_run(each, np.maximum(steps / gpus_per_node, 1.0)) for each in settings)
    rows = [
        {"from": EXPECTED, "size": gpus / scale, "ettr": value, "low": low, "high": high}
        for gpus, value, high, low in zip(steps.tolist(), *curves, strict=True)
    ]
    for row in points:
        between = {"low": 100 * row["lo"], "high": 100 * row["hi"]}
        between = between if row["runs"] >= FEWEST_RUNS else {}
        size_ = {"from": "measured", "size": row["gpus"] / scale, "ettr": 100 * row["ettr"]}
        rows.append(size_ | between)
    meanings = {EXPECTED: "model", **({"measured": "hardware"} if points else {})}
    figure = lines(
        rows,
        "size",
        "ettr",
        f"Job size ({unit})",
        "ETTR (%)",
        low="low",
        high="high",
        series="from",
        meanings=meanings,
        points=True,
        log_x=True,
    )
    measured_too = f", and measured, with intervals from {FEWEST_RUNS} runs on" * bool(points)
    return replace(
        figure, caption=f"Expected, with the 95 % interval of the failure rate{measured_too}"
    )


def _long_run(setting: Mapping[str, float], nodes: npt.NDArray[np.float64]) -> list[float]:
    """The exact form at each number of nodes, per cent."""
    times = (setting[f"{name}_s"] for name in ("checkpoint_interval", "init", "write", "queue"))
    failures_per_s = nodes * setting["rate_per_node_day"] / SECONDS_PER_DAY
    return [100 * share for share in long_run_ettr(failures_per_s, *times).tolist()]
