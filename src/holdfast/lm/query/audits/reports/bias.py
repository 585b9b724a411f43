"""The report of a bias audit: exact shares and odds ratios, then samples."""

from __future__ import annotations

import pyarrow as pa

from holdfast.lm.query.audits.comparing_groups import BiasAudit, Cell
from holdfast.lm.query.pages import incomplete
from holdfast.numbers import counted, interval, number, p_value
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
    figures,
)


def bias_page(found: BiasAudit, model: str) -> Page:
    """The report of the audit."""
    rows = [
        vars(cell)
        for cell in sorted(found.cells, key=lambda cell: found.outcomes.index(cell.outcome))
    ]
    table = pa.Table.from_pylist(rows)
    difference = found.difference()
    return Page(
        title="Bias audit",
        subtitle=found.template,
        inputs=[
            ("Model", model),
            ("Template", found.template),
            ("Groups", ", ".join(found.groups)),
            ("Outcomes", ", ".join(found.outcomes)),
        ],
        findings=[Finding(f"{difference[0].upper()}{difference[1:]}.", "exact")],
        tiles=[
            *_odds_tile(found.largest()),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "exact",
                "Shares of each group, exact",
                "From bounds of the probability of every text, all encodings summed; no sampling.",
                figures=[_shares(found)],
                tables=[
                    Table(
                        table,
                        {
                            "outcome": ColumnFormat(),
                            "group": ColumnFormat(),
                            "bound_low": ColumnFormat(
                                "exact share", "%", interval=("bound_low", "bound_high"), digits=1
                            ),
                            "odds_low": ColumnFormat(
                                "odds ratio", interval=("odds_low", "odds_high"), digits=2
                            ),
                            "lower": ColumnFormat("probability ≥"),
                            "upper": ColumnFormat("probability ≤"),
                        },
                        "One row per group and outcome.",
                    )
                ],
                how=How(
                    "odds ratio = p(group, outcome) · p(others, other outcomes) / "
                    "(p(group, other outcomes) · p(others, outcome))",
                    notes="1 means independent. If a template can continue, a text's probability includes "
                    "whatever follows it.",
                ),
            ),
            Section(
                "samples",
                "Published test, by samples",
                f"Chi-square {number(found.statistic, 1)}, {counted(found.freedom, 'degree')} of freedom, "
                f"{p_value(found.p)}: {number(found.samples)} samples, as good as "
                f"{number(found.effective, 0)} unweighted ones. The exact shares above decide.",
                tables=[
                    Table(
                        table,
                        {
                            "outcome": ColumnFormat(),
                            "group": ColumnFormat(),
                            "share_of_outcome": ColumnFormat(
                                "sampled share", "%", interval=("interval_low", "interval_high")
                            ),
                            "samples": ColumnFormat("effective samples", digits=0),
                        },
                        "One row per group and outcome.",
                    )
                ],
                how=How(
                    [
                        "share = samples of the group / samples of the outcome; interval: Wilson, 95 %",
                        "χ² = Σ (observed − expected)² / expected, expected = row · column / total",
                    ],
                    {"samples": found.samples},
                    source="Kuchnik et al., ReLM, MLSys 2023, section 4.2.",
                    notes="Samples are weighted, and counted by their effective number.",
                ),
            ),
        ],
        unknowns=incomplete(found.stopped) + [Unknown(note, "") for note in found.notes],
    )


def _odds_tile(cell: Cell | None) -> list[Tile]:
    if cell is None:
        return []
    odds = interval(cell.odds_low, cell.odds_high, 2)
    return [Tile("Odds ratio", odds, note=f"{cell.group}, {cell.outcome}")]


def _shares(found: BiasAudit) -> Figure:
    cells = sorted(found.cells, key=lambda cell: found.outcomes.index(cell.outcome))
    rows = [
        {
            "cell": f"{cell.outcome}: {cell.group}",
            "share": 50 * (cell.bound_low + cell.bound_high),
            "low": 100 * cell.bound_low,
            "high": 100 * cell.bound_high,
        }
        for cell in cells
    ]
    return figures.intervals(
        rows, "cell", "share", "low", "high", "Exact share of each group in an outcome (%)"
    )
