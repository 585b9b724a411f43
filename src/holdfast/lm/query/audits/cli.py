"""`holdfast lm audit memorization`, `bias`, `toxicity` and `cloze`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.command import Answer, Printed, option, room
from holdfast.lm.query.live import Notes, match_table, watching
from holdfast.lm.query.options import Model, exit_code, open_model
from holdfast.numbers import bounds, counted, interval, number, p_value, percent
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.answer import Page
    from holdfast.lm.models.protocol import LanguageModel
    from holdfast.lm.query.audits.closing_words import ClozeAudit
    from holdfast.lm.query.audits.comparing_groups import BiasAudit
    from holdfast.lm.query.audits.listing_words import ToxicityAudit
    from holdfast.lm.query.audits.memorizing import MemorizationAudit

SHOWN = 20

app = room("audit", "Audit a model for memorization, bias, toxicity or cloze accuracy.")

Template = Annotated[Path, option(metavar="FILE", help="TOML file that describes the audit.")]


@app.command
def memorization(*, template: Template, model: Model) -> Answer:
    """Extract the most probable texts of a pattern and look for known training texts among them.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.memorizing import audit_memorization

    notes = Notes()

    def ask(opened: LanguageModel, read: Any) -> MemorizationAudit:
        with watching(notes) as watch:
            found = audit_memorization(opened, read, watch=watch)
        notes.show(found.extracted.notes)
        return found

    return _audit("memorization", ask, template, model, _memorized)


@app.command
def bias(*, template: Template, model: Model) -> Answer:
    """Measure how outcomes depend on a group: exact shares and odds ratios, then samples.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.comparing_groups import audit_bias

    return _audit("bias", audit_bias, template, model, _compared)


@app.command
def toxicity(*, template: Template, model: Model) -> Answer:
    """Bound the probability of listed words, unprompted and after prompts.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.listing_words import audit_toxicity

    return _audit("toxicity", audit_toxicity, template, model, _said)


@app.command
def cloze(*, template: Template, model: Model) -> Answer:
    """Measure how often the most probable last word of a passage is the right one.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.closing_words import audit_cloze

    return _audit("cloze", audit_cloze, template, model, _closed)


def _audit(
    kind: str,
    ask: Callable[[LanguageModel, Any], Any],
    template: Path,
    model: str,
    render: Callable[[Any], Table],
) -> Answer:
    from holdfast.lm.query.audits.templates import read_template

    read = read_template(template, kind)
    opened = open_model(model)
    found = ask(opened, read)

    def page() -> Page:
        from holdfast.lm.query.audits.pages import audit_page

        return audit_page(found, opened.name)

    return Printed(
        found,
        render,
        make_page=page,
        exit_code=exit_code(found.stopped, found.stopped is not None),
    )


def _caption(found: Any, evaluations: int, *parts: str) -> str:
    """The line below a table; an audit that is not complete says so first."""
    stopped = [f"not complete ({found.stopped})"] if found.stopped is not None else []
    return "; ".join([*stopped, *filter(None, parts), counted(evaluations, "evaluation")])


def _memorized(found: MemorizationAudit) -> Table:
    repeats = {canary.text: canary.repeats for canary in found.canaries}
    known = sum(known for _, known, _ in found.by_repeats)
    hits = sum(hits for _, _, hits in found.by_repeats)
    texts = found.extracted
    return match_table(
        texts.found[:SHOWN],
        "repeats",
        lambda match: repeats.get(match.text),
        complete=found.stopped is None,
        digits=3,
        title=found.pattern,
        caption=_caption(
            found,
            texts.cost.evaluations,
            f"{texts.proven} of {counted(len(texts.found), 'text')} proven"
            if found.stopped is not None
            else "",
            f"{hits} of {counted(known, 'known text')} found" if known else "",
            f"{counted(found.undecided, 'known text')} cannot tell" if found.undecided else "",
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
        {
            "prompt": "left",
            "edits": "right",
            "probability": "right",
            "highest": "left",
            "most probable text": "left",
            "proven": "left",
        },
        [
            (
                one.prompt or "(none)",
                one.edits,
                bounds(one.lower, one.upper),
                found.highest(one),
                one.text or "–",
                one.proven,
            )
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
                f"{variant.right} of {variant.asked}"
                + (f", {variant.undecided} cannot tell" if variant.undecided else ""),
                f"{percent(variant.accuracy)} "
                f"{interval(100 * variant.interval_low, 100 * variant.interval_high, 0)}",
            )
            for variant in found.variants
        ],
        caption=_caption(found, found.evaluations),
    )
