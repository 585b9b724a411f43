"""Bias: which group goes with which outcome."""

from __future__ import annotations

import altair as alt
import pyarrow as pa

from holdfast.lm.query.audits.comparing_groups import BiasAudit, Cell
from holdfast.numbers import counted, interval, number, p_value, percent
from holdfast.report import ColumnFormat, Figure, Finding, How, Page, Section, Table, Tile, charts
from holdfast.report.theme import colour


def bias_page(found: BiasAudit, model: str) -> Page:
    """The report of the audit."""
    far = max(found.cells, key=lambda cell: abs(cell.share_of_outcome - 1 / len(found.groups)))
    verdict = "depends" if found.p < 0.05 else "was not seen to depend"
    rows = [
        vars(cell)
        for cell in sorted(found.cells, key=lambda cell: found.outcomes.index(cell.outcome))
    ]
    return Page(
        title="Bias audit",
        subtitle=found.template,
        inputs=[
            ("Model", model),
            ("Template", found.template),
            ("Groups", ", ".join(found.groups)),
            ("Outcomes", ", ".join(found.outcomes)),
        ],
        findings=[
            Finding(
                f"The outcome {verdict} on the group: chi-square {number(found.statistic, 1)} with "
                f"{counted(found.freedom, 'degree')} of freedom, {p_value(found.p)}, "
                f"{number(found.effective, 0)} effective samples.",
                "groups",
            ),
            Finding(
                f"“{far.group}” has {percent(far.share_of_outcome)} {_percents(far)} of “{far.outcome}”, "
                "the share farthest from an even one.",
                "groups",
            ),
        ],
        tiles=[
            Tile("Chi-square", number(found.statistic, 1), note=p_value(found.p)),
            Tile("Samples", number(found.samples), note=f"{number(found.effective, 0)} effective"),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "groups",
                "Which group goes with which outcome?",
                f"The shares of “{far.outcome}” are the farthest from even ones.",
                figures=[_shares(found)],
                tables=[
                    Table(
                        pa.Table.from_pylist(rows),
                        {
                            "outcome": ColumnFormat(),
                            "group": ColumnFormat(),
                            "share_of_outcome": ColumnFormat(
                                "share", "%", interval=("interval_low", "interval_high")
                            ),
                            "bound_low": ColumnFormat("exact share ≥", "%"),
                            "bound_high": ColumnFormat("exact share ≤", "%"),
                            "samples": ColumnFormat("effective samples", digits=0),
                            "lower": ColumnFormat("probability ≥"),
                            "upper": ColumnFormat("probability ≤"),
                        },
                        "One row a group and outcome.",
                    )
                ],
                how=How(
                    [
                        "share = samples of the group / samples of the outcome; interval: Wilson, 95 %",
                        "χ² = Σ (seen − expected)² / expected, expected = row · column / total",
                    ],
                    {"samples": found.samples},
                    source="Kuchnik et al., ReLM, MLSys 2023, section 4.2.",
                    notes="Samples are weighted, and counted by their effective number. The exact share "
                    "comes from bounds of the probabilities of the texts; no sampling is in it.",
                ),
            )
        ],
    )


def _shares(found: BiasAudit) -> Figure:
    names = ("user", "system", "good", "purple", "sky", "hardware", "yellow")
    legend = {group: names[k % len(names)] for k, group in enumerate(found.groups)}
    x = (
        alt.X("outcome", type="nominal")
        .sort(list(found.outcomes))
        .title(None)
        .axis(labelAngle=-30, labelOverlap=False)
    )
    y = charts.percent_axis(alt.Y, "share_of_outcome", "Share of the outcome").scale(domain=[0, 1])
    offset = alt.XOffset("group", type="nominal", sort=list(found.groups))
    base = alt.Chart(charts.data([vars(cell) for cell in found.cells])).encode(
        x=x,
        xOffset=offset,
        tooltip=charts.tooltip(
            {
                "group": "group",
                "outcome": "outcome",
                "share_of_outcome": ("share", ".1%"),
                "interval_low": ("from", ".1%"),
                "interval_high": ("to", ".1%"),
                "bound_low": ("exact, at least", ".2%"),
                "bound_high": ("exact, at most", ".2%"),
            }
        ),
    )
    bars = base.mark_bar().encode(y=y, color=charts.meaning_colour("group", legend))
    whiskers = base.mark_rule(color=colour("ink"), strokeWidth=1.5).encode(
        y=charts.same_axis(y, "interval_low"), y2="interval_high:Q"
    )
    return Figure(
        alt.layer(bars, whiskers).properties(height=260),
        "Share of each group among the samples of an outcome, with 95 % intervals",
        legend,
    )


def _percents(cell: Cell) -> str:
    return interval(100 * cell.interval_low, 100 * cell.interval_high, 0)
