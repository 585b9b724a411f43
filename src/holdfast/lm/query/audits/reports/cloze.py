"""The report of a cloze audit."""

from __future__ import annotations

import pyarrow as pa

from holdfast.lm.query.audits.closing_words import ClozeAudit
from holdfast.lm.query.pages import incomplete
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import ColumnFormat, Finding, How, Page, Section, Table, Tile, figures


def cloze_page(found: ClozeAudit, model: str) -> Page:
    """The report of the audit."""
    best = max(found.variants, key=lambda variant: variant.accuracy)
    rows = [vars(variant) for variant in found.variants]
    shares = [
        {
            "variant": one.name,
            "accuracy": 100 * one.accuracy,
            "low": 100 * one.interval_low,
            "high": 100 * one.interval_high,
        }
        for one in found.variants
    ]
    return Page(
        title="Cloze audit",
        subtitle=counted(best.asked, "passage"),
        inputs=[("Model", model), ("Passages", number(best.asked))],
        findings=[
            Finding(
                f"{'At least ' if best.undecided else ''}{percent(best.accuracy)} "
                f"{interval(100 * best.interval_low, 100 * best.interval_high, 0)} correct with the "
                f"variant “{best.name}”.",
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
                "Accuracy by variant",
                f"Most are correct with “{best.name}”: {best.right} of {counted(best.asked, 'passage')}."
                + (" Of others the search cannot tell." if found.stopped else ""),
                figures=[
                    figures.intervals(
                        shares,
                        "variant",
                        "accuracy",
                        "low",
                        "high",
                        "Passages answered correctly (%)",
                    )
                ],
                tables=[
                    Table(
                        pa.Table.from_pylist(rows),
                        {
                            "name": ColumnFormat("variant"),
                            "right": ColumnFormat("correct"),
                            "undecided": ColumnFormat("cannot tell"),
                            "asked": ColumnFormat("passages"),
                            "accuracy": ColumnFormat(
                                unit="%", interval=("interval_low", "interval_high")
                            ),
                        },
                        "One row per variant, the freest first.",
                    ),
                    Table(
                        pa.Table.from_pylist(list(found.answers)),
                        caption="One row per passage: answer, that of each variant, what is not proven.",
                    ),
                ],
                how=How(
                    "correct if the most probable whole word that the variant allows is the answer",
                    source="Kuchnik et al., ReLM, MLSys 2023, section 4.4; intervals: Wilson, 95 %.",
                ),
            )
        ],
        unknowns=incomplete(found.stopped),
    )
