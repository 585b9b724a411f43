"""Cloze: how the last word of a passage should be asked for."""

from __future__ import annotations

import altair as alt
import pyarrow as pa

from holdfast.lm.query.audits.closing_words import ClozeAudit
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import ColumnFormat, Figure, Finding, How, Page, Section, Table, Tile, charts
from holdfast.report.theme import colour


def cloze_page(found: ClozeAudit, model: str) -> Page:
    """The report of the audit."""
    best = max(found.variants, key=lambda variant: variant.accuracy)
    rows = [vars(variant) for variant in found.variants]
    y = alt.Y("name", type="nominal").sort(None).title(None).axis(labelLimit=220)
    x = charts.percent_axis(alt.X, "accuracy", "Passages answered right").scale(domain=[0, 1])
    base = alt.Chart(charts.data(rows)).encode(
        y=y,
        tooltip=charts.tooltip(
            {
                "name": "asked",
                "accuracy": ("accuracy", ".1%"),
                "interval_low": ("from", ".1%"),
                "interval_high": ("to", ".1%"),
            }
        ),
    )
    bars = base.mark_bar(color=colour("user")).encode(x=x)
    whiskers = base.mark_rule(color=colour("ink"), strokeWidth=1.5).encode(
        x=charts.same_axis(x, "interval_low"), x2="interval_high:Q"
    )
    return Page(
        title="Cloze audit",
        subtitle=counted(best.asked, "passage"),
        inputs=[("Model", model), ("Passages", number(best.asked))],
        findings=[
            Finding(
                f"{percent(best.accuracy)} "
                f"{interval(100 * best.interval_low, 100 * best.interval_high, 0)} right when asked for "
                f"“{best.name}”.",
                "accuracy",
            )
        ],
        tiles=[
            Tile("Best accuracy", percent(best.accuracy), note=best.name),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "accuracy",
                "How should the last word be asked for?",
                f"Best is “{best.name}”: {best.right} of {counted(best.asked, 'passage')} right.",
                figures=[Figure(alt.layer(bars, whiskers).properties(height=34 * len(rows)))],
                tables=[
                    Table(
                        pa.Table.from_pylist(rows),
                        {
                            "name": ColumnFormat("asked"),
                            "right": ColumnFormat(),
                            "asked": ColumnFormat("passages"),
                            "accuracy": ColumnFormat(
                                unit="%", interval=("interval_low", "interval_high")
                            ),
                        },
                        "One row a variant, the freest first.",
                    ),
                    Table(
                        pa.Table.from_pylist(list(found.answers)),
                        caption="One row a passage: the answer, and what each variant said.",
                    ),
                ],
                how=How(
                    "the most probable word that the variant allows = the answer?",
                    source="Kuchnik et al., ReLM, MLSys 2023, section 4.4; intervals: Wilson, 95 %.",
                ),
            )
        ],
    )
