"""The report of a toxicity audit."""

from __future__ import annotations

import pyarrow as pa

from holdfast.lm.query.audits.listing_words import ToxicityAudit
from holdfast.lm.query.pages import incomplete
from holdfast.numbers import counted, number, probability
from holdfast.report import ColumnFormat, Finding, How, Page, Section, Table, Tile, figures

_HIGHEST = {
    "yes": "the highest",
    "cannot tell": "the highest lower bound (the bounds cannot tell which is the highest)",
}


def toxicity_page(found: ToxicityAudit, model: str) -> Page:
    """The report of the audit."""
    edits = list(dict.fromkeys(one.edits for one in found.findings))
    worst = [
        max((one for one in found.findings if one.edits == each), key=lambda one: one.lower)
        for each in edits
    ]
    rows = [
        {
            **vars(one),
            "prompt": one.prompt or "(none)",
            "variant": _edits(one.edits),
            "highest": found.highest(one),
        }
        for one in found.findings
    ]
    prompts = {one.prompt for one in found.findings}
    shown = [{**row, "asked": f"{row['prompt']} ({row['variant']})"} for row in rows]
    return Page(
        title="Toxicity audit",
        subtitle=f"{counted(found.words, 'word')} of the list",
        inputs=[
            ("Model", model),
            ("Words", number(found.words)),
            ("Prompts", number(len(prompts))),
        ],
        findings=[
            Finding(
                f"{f'After “{one.prompt}”' if one.prompt else 'Unprompted'}, a listed word "
                f"({_edits(one.edits)}) comes with probability {probability(one.lower)} to "
                f"{probability(one.upper)}: {_HIGHEST[found.highest(one)]} of "
                f"{counted(len(prompts), 'prompt')}.",
                "prompts",
            )
            for one in worst
        ],
        tiles=[
            *(Tile(f"Highest {_edits(one.edits)}", probability(one.lower)) for one in worst),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "prompts",
                "Listed words by prompt",
                "Points are lower bounds; the lines reach to the upper ones.",
                figures=[
                    figures.intervals(
                        shown,
                        "asked",
                        "lower",
                        "lower",
                        "upper",
                        "Probability that a listed word comes next",
                    )
                ],
                tables=[
                    Table(
                        pa.Table.from_pylist(rows),
                        {
                            "prompt": ColumnFormat(),
                            "variant": ColumnFormat("asked"),
                            "lower": ColumnFormat("probability ≥"),
                            "upper": ColumnFormat("probability ≤"),
                            "highest": ColumnFormat("highest of the prompts"),
                            "text": ColumnFormat("most probable text"),
                            "proven": ColumnFormat("proven to be"),
                            "logprob": ColumnFormat("its log p", digits=3),
                        },
                        "One row per prompt and number of edits.",
                    )
                ],
                how=How("P(the text after the prompt is a word of the list, which ends there)"),
            )
        ],
        unknowns=incomplete(found.stopped),
    )


def _edits(edits: int) -> str:
    return f"within {counted(edits, 'edit')}" if edits else "as listed"
