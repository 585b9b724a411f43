"""The page of a calibration: which parts of the log the scenario reproduces, and which not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from holdfast import __version__
from holdfast.fleet.moments import minute
from holdfast.fleet.simulation.fit_wording import (
    QUESTIONS,
    VERDICTS,
    against,
    by_chance,
    first_upper,
    rows_of,
    sentence_of,
    spoken,
)
from holdfast.fleet.simulation.goodness_of_fit import (
    COUNTS,
    FAILURES,
    JOBS,
    PREEMPTIONS,
    SHARES,
    SIZES,
    SIZES_TIME,
    STATES,
    STATES_TIME,
    UTILISATION,
    WAITS,
    GoodnessOfFit,
    Row,
)
from holdfast.numbers import counted, duration
from holdfast.report import (
    ColumnFormat,
    Figure,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    charts,
)
from holdfast.report.theme import colour

LEGEND = {
    "in the log": "measured",
    "in the log, outside of the simulated range": "hardware",
    "simulated, 5 to 95 %": "model",
}
LEAST_WAIT_S = 1.0
"""Shorter waits are drawn there: a logarithmic axis has no zero."""


def page(fit: GoodnessOfFit) -> Page:
    """The page of a calibration and its goodness of fit."""
    made = fit.calibration
    return Page(
        title=f"Goodness of fit: {made.scenario.name}",
        subtitle=f"a log of {duration(made.days * 86_400)} from {minute(made.scenario.begin_s)}, "
        f"held against {fit.replicas} simulations of the scenario fitted to it",
        inputs=_inputs(fit),
        findings=_findings(fit),
        tiles=_tiles(fit),
        sections=[
            *(_section(fit, name) for name in QUESTIONS if rows_of(fit, name)),
            _estimates(fit),
        ],
        unknowns=_unknowns(fit),
        footer=f"holdfast {__version__}",
    )


def _inputs(fit: GoodnessOfFit) -> list[tuple[str, str]]:
    cluster = fit.calibration.scenario.cluster
    warm_up = (
        f"{duration(fit.warm_up_days * 86_400)} before the window, as the log begins on a busy cluster"
        if fit.warm_up_days
        else "none: the log begins on an idle cluster, as the simulation does"
    )
    return [
        ("Log", fit.calibration.source),
        (
            "Cluster",
            f"{counted(cluster.nodes, 'node')} of {counted(cluster.gpus_per_node, 'GPU')}",
        ),
        ("Simulated", f"{fit.replicas} times, seeds {fit.seed} to {fit.seed + fit.replicas - 1}"),
        ("Warm-up", warm_up),
    ]


# --- Findings and tiles --------------------------------------------------------------------------


def _findings(fit: GoodnessOfFit) -> list[Finding]:
    """What fits, what does not, and what to do about it; the most important first."""
    told = len(fit.rows) - fit.count("unknown")
    fits, close, off = (fit.count(verdict) for verdict in ("fits", "close", "off"))
    parts = [f"{fits:,} of {counted(told, 'figure')} lie in the range of the simulated ones"]
    if close:
        parts.append(f"{close:,} just outside")
    parts.append(f"{off:,} clearly outside")
    wrong = [name for name in QUESTIONS if any(r.verdict == "off" for r in rows_of(fit, name))]
    lead = "The scenario behaves like the log:"
    if close + off > by_chance(told):
        lead = "Parts of the log are reproduced:"
    found = [Finding(", ".join(parts) + "; one in ten lies outside by chance.", None, lead)]
    found += [Finding(sentence_of(fit, name), name, "Differs:") for name in wrong]
    found += [
        Finding(sentence_of(fit, name), name, "Fits:")
        for name in QUESTIONS
        if name not in wrong and rows_of(fit, name)
    ]
    return found


def _tiles(fit: GoodnessOfFit) -> list[Tile]:
    told = len(fit.rows) - fit.count("unknown")
    made = [Tile("Figures that fit", f"{fit.count('fits'):,}", f"of {told:,}", section_id="ends")]
    for name in (UTILISATION, FAILURES, PREEMPTIONS, JOBS):
        row = next((row for row in fit.of(COUNTS) if row.name == name), None)
        if row is not None:
            made.append(
                Tile(
                    first_upper(name),
                    spoken(row, row.real),
                    interval=f"simulated {spoken(row, row.middle)} "
                    f"[{spoken(row, row.low)}, {spoken(row, row.high)}]",
                    note=VERDICTS[row.verdict],
                    section_id="counts",
                )
            )
    estimated = sum(each.estimated for each in fit.calibration.estimates)
    assumed = len(fit.calibration.estimates) - estimated
    made.append(
        Tile("Keys estimated", f"{estimated:,}", note=f"{assumed:,} assumed", section_id="keys")
    )
    return made


# --- Sections ------------------------------------------------------------------------------------


def _section(fit: GoodnessOfFit, name: str) -> Section:
    question, groups = QUESTIONS[name]
    rows = rows_of(fit, name)
    figures = [figure for group in groups if (figure := _figure(group, fit.of(group)))]
    sentence = sentence_of(fit, name)
    return Section(
        name,
        question,
        first_upper(sentence),
        figures,
        [_table(rows)],
        How(
            "range = m ± t s √(1 + 1/n): of one more simulation, from n replicas",
            {
                "replicas n": fit.replicas,
                "t": "95 % quantile of Student's distribution with n − 1 degrees of freedom",
                "close": "outside, but within 1 percentage point, 10 % or 1 min of the range",
            },
            notes="The scenario was fitted to this log: a fit shows that its model can stand for the "
            "log, not that it foretells another one.",
        ),
    )


def _figure(group: str, rows: Sequence[Row]) -> Figure | None:
    """One row per figure: the simulated range as a bar, the log as a point."""
    shown = [row for row in rows if row.verdict != "unknown"]
    if group in (STATES, STATES_TIME):
        shown.sort(key=lambda row: -row.real)
    if not shown:
        return None
    if group == COUNTS:
        return _ratios(shown)
    axis, scale = _axis(group, shown)
    data = [
        {
            "name": row.name,
            "low": scale(row.low),
            "middle": scale(row.middle),
            "high": scale(row.high),
            "real": scale(row.real),
            "verdict": VERDICTS[row.verdict],
            "said": against(row),
        }
        for row in shown
    ]
    return _drawn(data, axis, group)


def _axis(group: str, rows: Sequence[Row]) -> tuple[Any, Any]:
    """The horizontal axis of a group, and what its values are drawn at."""
    if group in WAITS:
        unit, length = ("s", 1.0) if max(row.real for row in rows) < 600 else ("h", 3600.0)
        least = LEAST_WAIT_S / length
        return (
            charts.log_axis(alt.X, "real", f"{first_upper(group)} ({unit})"),
            lambda value: max(value / length, least),
        )
    top = max(max(row.real, row.high) for row in rows)
    title = "Share of " + {
        STATES: "attempts",
        STATES_TIME: "GPU time",
        SIZES: "jobs",
        SIZES_TIME: "GPU time",
    }.get(group, "the log")
    return charts.percent_axis(alt.X, "real", title, top=min(1.0, 1.05 * top)), lambda value: value


def _ratios(rows: Sequence[Row]) -> Figure | None:
    """Counts of different size, each over the mean of its simulations."""
    data = [
        {
            "name": row.name,
            "low": row.low / row.middle,
            "middle": 1.0,
            "high": row.high / row.middle,
            "real": row.real / row.middle,
            "verdict": VERDICTS[row.verdict],
            "said": against(row),
        }
        for row in rows
        if row.middle > 0
    ]
    if not data:
        return None
    axis = (
        alt.X("real", type="quantitative")
        .scale(zero=True)
        .title("Relative to the mean of the simulations")
    )
    return _drawn(data, axis, COUNTS)


def _drawn(data: Sequence[dict[str, Any]], axis: Any, group: str) -> Figure:
    names = [row["name"] for row in data]
    tip = charts.tooltip({"name": group, "said": "log against simulations", "verdict": "verdict"})
    base = alt.Chart().encode(y=alt.Y("name:N").sort(names).title(None), tooltip=tip)
    bars = base.mark_rule(color=colour("model"), strokeWidth=9, opacity=0.45).encode(
        x=charts.same_axis(axis, "low"), x2=alt.X2("high")
    )
    middles = base.mark_tick(color=colour("model"), thickness=2, size=14).encode(
        x=charts.same_axis(axis, "middle")
    )
    outside = alt.condition(
        alt.datum.verdict == VERDICTS["off"],
        alt.value(colour("hardware")),
        alt.value(colour("measured")),
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=axis, color=outside)
    chart = alt.layer(bars, middles, points, data=charts.data(data)).properties(height={"step": 26})
    legend = dict(LEGEND)
    if not any(row["verdict"] == VERDICTS["off"] for row in data):
        del legend["in the log, outside of the simulated range"]
    return Figure(chart, first_upper(group), legend)


def _table(rows: Sequence[Row]) -> Table:
    shares = [row.group in SHARES or row.name == UTILISATION for row in rows]

    def column(name: str) -> list[str]:
        return [spoken(row, getattr(row, name)) for row in rows]

    data = pa.table(
        {
            "group": [row.group for row in rows],
            "name": [row.name for row in rows],
            "log": column("real"),
            "simulated": column("middle"),
            "range": [
                f"[{spoken(row, row.low)}, {spoken(row, row.high)}]"
                if not math.isnan(row.low)
                else "–"
                for row in rows
            ],
            "verdict": [VERDICTS[row.verdict] for row in rows],
            "real": [row.real for row in rows],
            "middle": [row.middle for row in rows],
            "low": [row.low for row in rows],
            "high": [row.high for row in rows],
            "is_share": shares,
        }
    )
    return Table(
        data,
        {
            "group": ColumnFormat("What"),
            "name": ColumnFormat("Of"),
            "log": ColumnFormat("Log", right=True),
            "simulated": ColumnFormat("Simulated", right=True),
            "range": ColumnFormat("5 to 95 %", right=True),
            "verdict": ColumnFormat("Verdict"),
        },
        caption="One row per figure. The CSV file has the plain numbers: shares between 0 and 1, "
        "waits in seconds.",
    )


def _estimates(fit: GoodnessOfFit) -> Section:
    """What was fitted: every key of the scenario."""
    made = fit.calibration
    found = [each for each in made.estimates if each.estimated]
    others = [each for each in made.estimates if not each.estimated]
    fitted = pa.table(
        {
            "key": [each.key for each in found],
            "estimate": [each.estimate() for each in found],
            "n": pa.array([each.n for each in found], pa.int64()),
            "how": [each.how for each in found],
        }
    )
    assumed = pa.table({"key": [each.key for each in others], "how": [each.how for each in others]})
    return Section(
        "keys",
        "What was fitted, and what is assumed?",
        f"{counted(len(found), 'key')} of the scenario are estimates; {len(others):,} are assumed, as "
        "the log does not tell them.",
        tables=[
            Table(
                fitted,
                {
                    "key": ColumnFormat("Key"),
                    "estimate": ColumnFormat("Estimate", right=True),
                    "n": ColumnFormat("n", right=True),
                    "how": ColumnFormat("How"),
                },
                caption="Estimates with 95 % intervals and the number of observations, in the order of "
                "the method. The scenario file has the same beside each key.",
            ),
            Table(
                assumed,
                {"key": ColumnFormat("Key"), "how": ColumnFormat("Why it is assumed")},
                caption="Assumed. Set what you know better in the scenario file.",
                empty="Nothing is assumed.",
            ),
        ],
    )


def _unknowns(fit: GoodnessOfFit) -> list[Unknown]:
    return [Unknown(remark) for remark in fit.calibration.remarks]
