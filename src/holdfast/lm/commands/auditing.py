"""`holdfast lm audit memorization`, `bias`, `toxicity` and `cloze`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.lm.commands.live import Notes, watching
from holdfast.lm.commands.options import INCOMPLETE, INTERRUPTED, ModelOption, opened
from holdfast.numbers import bounds, counted, interval, number, p_value, percent

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
    typer.Option("--template", metavar="FILE", help="TOML file that describes the audit."),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report to FILE.")
]


def memorization(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Extract the most probable texts of a pattern and look for known training texts among them.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.memorizing import audit_memorization

    notes = Notes(quiet)

    def ask(asked: LanguageModel, read: Any) -> MemorizationAudit:
        with watching(quiet, as_json, notes) as watch:
            found = audit_memorization(asked, read, watch=watch)
        notes.show(found.extracted.notes)
        return found

    _audit("memorization", ask, template, model, html, as_json, quiet, _memorized)


def bias(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure how outcomes depend on a group: exact shares and odds ratios, then samples.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.comparing_groups import audit_bias

    _audit("bias", audit_bias, template, model, html, as_json, quiet, _compared)


def toxicity(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bound the probability of listed words, unprompted and after prompts.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.listing_words import audit_toxicity

    _audit("toxicity", audit_toxicity, template, model, html, as_json, quiet, _said)


def cloze(
    template: TemplateOption,
    model: ModelOption,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure how often the most probable last word of a passage is the right one.

    Exit code 1 if the audit stopped before it was complete.
    """
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
    if found.stopped is not None:
        remark(f"not complete: {found.stopped}", quiet)
        raise typer.Exit(INTERRUPTED if found.stopped == "interrupted" else INCOMPLETE)


# --- For people ----------------------------------------------------------------------------------


def _caption(found: Any, evaluations: int, *parts: str) -> str:
    """The line below a table; an audit that is not complete says so first."""
    stopped = [f"not complete ({found.stopped})"] if found.stopped is not None else []
    return "; ".join([*stopped, *filter(None, parts), counted(evaluations, "evaluation")])


def _memorized(found: MemorizationAudit) -> Table:
    repeats = {canary.text: canary.repeats for canary in found.canaries}
    known = sum(known for _, known, _ in found.by_repeats)
    hits = sum(hits for _, _, hits in found.by_repeats)
    texts = found.extracted
    columns: dict[str, Literal["left", "right"]] = {
        "": "right",
        "text": "left",
        "log probability": "right",
        "repeats": "right",
    }
    return table(
        columns if found.stopped is None else columns | {"proven": "left"},
        [
            (
                place,
                match.text,
                number(match.logprob, 3),
                number(repeats.get(match.text)),
                *(() if found.stopped is None else ("yes" if match.proven else "no",)),
            )
            for place, match in enumerate(texts.found[:SHOWN], 1)
        ],
        title=found.pattern,
        caption=_caption(
            found,
            texts.cost.evaluations,
            f"{texts.proven} of {counted(len(texts.found), 'text')} proven"
            if found.stopped is not None
            else "",
            f"{hits} of {counted(known, 'known text')} found" if known else "",
            f"{counted(len(found.unmatched), 'known text')} not matched by the pattern"
            if found.unmatched
            else "",
        ),
    )


def _compared(found: BiasAudit) -> Table:
    return table(
        {
            "outcome": "left",
            "group": "left",
            "exact share (%)": "right",
            "odds ratio": "right",
            "sampled share [95 %]": "right",
        },
        [
            (
                cell.outcome,
                cell.group,
                interval(100 * cell.bound_low, 100 * cell.bound_high, 1),
                "–" if cell.odds_low is None else interval(cell.odds_low, cell.odds_high, 2),
                f"{percent(cell.share_of_outcome)} "
                f"{interval(100 * cell.interval_low, 100 * cell.interval_high, 0)}",
            )
            for cell in sorted(found.cells, key=lambda cell: found.outcomes.index(cell.outcome))
        ],
        title=found.template,
        caption=_caption(
            found,
            found.evaluations,
            found.difference(),
            *found.notes,
            f"samples: chi-square {number(found.statistic, 1)}, "
            f"{counted(found.freedom, 'degree')} of freedom, {p_value(found.p)}, "
            f"{number(found.effective, 0)} effective",
        ),
    )


def _said(found: ToxicityAudit) -> Table:
    return table(
        {"prompt": "left", "edits": "right", "probability": "right", "most probable text": "left"},
        [
            (one.prompt or "(none)", one.edits, bounds(one.lower, one.upper), one.text or "–")
            for one in found.findings
        ],
        caption=_caption(found, found.evaluations, counted(found.words, "word")),
    )


def _closed(found: ClozeAudit) -> Table:
    return table(
        {"variant": "left", "correct": "right", "accuracy [95 %]": "right"},
        [
            (
                variant.name,
                f"{variant.right} of {variant.asked}",
                f"{percent(variant.accuracy)} "
                f"{interval(100 * variant.interval_low, 100 * variant.interval_high, 0)}",
            )
            for variant in found.variants
        ],
        caption=_caption(found, found.evaluations),
    )
