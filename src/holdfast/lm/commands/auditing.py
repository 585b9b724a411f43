"""`holdfast lm audit memorization`, `bias`, `toxicity` and `cloze`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.lm.commands.options import ModelOption, opened
from holdfast.numbers import counted, interval, number, p_value, percent, probability

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.lm.models.protocol import LanguageModel
    from holdfast.lm.query.audits.closing_words import ClozeAudit
    from holdfast.lm.query.audits.comparing_groups import BiasAudit
    from holdfast.lm.query.audits.listing_words import ToxicityAudit
    from holdfast.lm.query.audits.memorizing import MemorizationAudit

SHOWN = 20

TemplateOption = Annotated[
    Path,
    typer.Option(
        "--template", metavar="FILE", help="What to ask: a TOML file, see the documentation."
    ),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report, one page.")
]


def memorization(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Which texts of a pattern the model gives first, and which known ones are among them."""
    from holdfast.lm.commands.live import watching
    from holdfast.lm.query.audits.memorizing import audit_memorization

    def ask(asked: LanguageModel, read: Any) -> MemorizationAudit:
        with watching(quiet or as_json) as watch:
            return audit_memorization(asked, read, watch=watch)

    _audit("memorization", ask, template, model, html, as_json, quiet, _memorized)


def bias(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Whether what the model says of an outcome depends on a group."""
    from holdfast.lm.query.audits.comparing_groups import audit_bias

    _audit("bias", audit_bias, template, model, html, as_json, quiet, _compared)


def toxicity(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """How probable the words of a list are, unprompted and after prompts."""
    from holdfast.lm.query.audits.listing_words import audit_toxicity

    _audit("toxicity", audit_toxicity, template, model, html, as_json, quiet, _said)


def cloze(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Whether the model finds the last word of a passage."""
    from holdfast.lm.query.audits.closing_words import audit_cloze

    _audit("cloze", audit_cloze, template, model, html, as_json, quiet, _closed)


def _audit(
    kind: str,
    ask: Callable[[LanguageModel, Any], Any],
    template: Path,
    model: str,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    render: Callable[[Any], Table],
) -> None:
    from holdfast.lm.query.audits.templates import read_template

    read = read_template(template, kind)
    asked = opened(model, quiet)
    found = ask(asked, read)
    emit(found, as_json, render)
    if html is not None:
        from holdfast.lm.query.audits.pages import audit_page
        from holdfast.report import write

        remark(f"report: {write(audit_page(found, asked.name), html)}", quiet)


# --- For people ----------------------------------------------------------------------------------


def _memorized(found: MemorizationAudit) -> Table:
    repeats = {canary.text: canary.repeats for canary in found.canaries}
    known = sum(known for _, known, _ in found.by_repeats)
    hits = sum(hits for _, _, hits in found.by_repeats)
    return table(
        {"": "right", "text": "left", "log probability": "right", "repeats": "right"},
        [
            (place, match.text, number(match.logprob, 3), number(repeats.get(match.text)))
            for place, match in enumerate(found.extracted.found[:SHOWN], 1)
        ],
        title=found.pattern,
        caption=(f"{hits} of {counted(known, 'known text')} found; " if known else "")
        + counted(found.extracted.cost.evaluations, "evaluation"),
    )


def _compared(found: BiasAudit) -> Table:
    return table(
        {"outcome": "left", "group": "left", "share [95 %]": "right", "exact share": "right"},
        [
            (
                cell.outcome,
                cell.group,
                f"{percent(cell.share_of_outcome)} "
                f"{interval(100 * cell.interval_low, 100 * cell.interval_high, 0)}",
                interval(100 * cell.bound_low, 100 * cell.bound_high, 1),
            )
            for cell in sorted(found.cells, key=lambda cell: found.outcomes.index(cell.outcome))
        ],
        title=found.template,
        caption=f"chi-square {number(found.statistic, 1)}, {counted(found.freedom, 'degree')} of freedom, "
        f"{p_value(found.p)}; {number(found.effective, 0)} effective samples",
    )


def _said(found: ToxicityAudit) -> Table:
    return table(
        {"prompt": "left", "edits": "right", "probability": "right", "most probable text": "left"},
        [
            (
                one.prompt or "(none)",
                one.edits,
                f"[{probability(one.lower)}, {probability(one.upper)}]",
                one.text or "–",
            )
            for one in found.findings
        ],
        caption=f"{counted(found.words, 'word')}; {counted(found.evaluations, 'evaluation')}",
    )


def _closed(found: ClozeAudit) -> Table:
    return table(
        {"asked": "left", "right": "right", "accuracy [95 %]": "right"},
        [
            (
                variant.name,
                f"{variant.right} of {variant.asked}",
                f"{percent(variant.accuracy)} "
                f"{interval(100 * variant.interval_low, 100 * variant.interval_high, 0)}",
            )
            for variant in found.variants
        ],
        caption=counted(found.evaluations, "evaluation"),
    )
