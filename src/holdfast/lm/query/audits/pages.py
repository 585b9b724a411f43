"""The pages of audits: what was found, how sure it is, and the rows behind it."""

from __future__ import annotations

import altair as alt
import pyarrow as pa

from holdfast.lm.query.audits.closing_words import ClozeAudit
from holdfast.lm.query.audits.comparing_groups import BiasAudit, Cell
from holdfast.lm.query.audits.listing_words import ToxicityAudit
from holdfast.lm.query.audits.memorizing import MemorizationAudit
from holdfast.numbers import brief, counted, interval, number, percent
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

Audit = MemorizationAudit | BiasAudit | ToxicityAudit | ClozeAudit


def audit_page(found: Audit, model: str) -> Page:
    """The report of an audit."""
    match found:
        case MemorizationAudit():
            return _memorization(found, model)
        case BiasAudit():
            return _bias(found, model)
        case ToxicityAudit():
            return _toxicity(found, model)
        case ClozeAudit():
            return _cloze(found, model)


# --- Memorisation --------------------------------------------------------------------------------


def _memorization(found: MemorizationAudit, model: str) -> Page:
    texts = found.extracted.found
    recalled = sum(count for _, _, count in found.by_repeats)
    known = sum(count for _, count, _ in found.by_repeats)
    findings = [
        Finding(
            f"{counted(len(texts), 'text')} of the pattern hold {percent(found.extracted.lower)} of the "
            f"probability (all of the pattern: at most {percent(found.extracted.upper)}).",
            "extracted",
        )
    ]
    sections = []
    if known:
        findings.insert(
            0,
            Finding(
                f"{recalled} of {counted(known, 'known text')} are among the first "
                f"{counted(len(texts), 'text')} that the model gives.",
                "repeats",
            ),
        )
        sections.append(_repeats(found))
    sections.append(
        Section(
            "extracted",
            "What does the model give first?",
            f"The most probable text has log probability {number(texts[0].logprob, 3)}."
            if texts
            else "No text was found.",
            tables=[
                Table(
                    pa.Table.from_pylist(
                        [
                            {
                                "place": place,
                                "text": match.text,
                                "logprob": match.logprob,
                                "encodings": match.encodings,
                            }
                            for place, match in enumerate(texts, 1)
                        ]
                        or [{"place": None, "text": None, "logprob": None, "encodings": None}]
                    ).slice(0, len(texts)),
                    {
                        "place": ColumnFormat(),
                        "text": ColumnFormat(),
                        "logprob": ColumnFormat("log probability", digits=3),
                        "encodings": ColumnFormat(),
                    },
                    "One row a text, the most probable first; its encodings are summed.",
                )
            ],
            how=How(
                "log p(text) = log Σ over its encodings of Π p(token | tokens before it)",
                source="Kuchnik et al., ReLM, MLSys 2023 (there every encoding is a result of its own).",
            ),
        )
    )
    return Page(
        title="Memorisation audit",
        subtitle=found.pattern,
        inputs=[
            ("Model", model),
            ("Pattern", found.pattern),
            ("Texts in the pattern", _how_many(found.texts_in_pattern)),
        ],
        findings=findings,
        tiles=[
            Tile("Extracted", number(len(texts)), "texts"),
            *([Tile("Known texts found", f"{recalled} of {known}")] if known else []),
            Tile("Evaluations", number(found.extracted.cost.evaluations), "tokens"),
        ],
        sections=sections,
        unknowns=[]
        if found.extracted.complete
        else [
            Unknown(
                f"The search ended before it was complete: {found.extracted.stopped}.",
                "Give it more evaluations, or ask for fewer texts.",
            )
        ],
    )


def _repeats(found: MemorizationAudit) -> Section:
    rows = [
        {"repeats": str(repeats), "found": hits / known, "of": f"{hits} of {known}"}
        for repeats, known, hits in found.by_repeats
    ]
    order = [str(repeats) for repeats, _, _ in found.by_repeats]
    x = alt.X("repeats", type="ordinal").sort(order).title("Repeats in the training data")
    y = charts.percent_axis(alt.Y, "found", "Known texts found").scale(domain=[0, 1])
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar(color=colour("user"))
        .encode(x=x, y=y, tooltip=charts.tooltip({"repeats": "repeats", "of": "found"}))
    )
    counts = bars.mark_text(dy=-8, color=colour("ink")).encode(
        y=y, text=alt.Text("of", type="nominal")
    )
    canaries = pa.Table.from_pylist([vars(canary) for canary in found.canaries])
    return Section(
        "repeats",
        "How often must a text be seen to be memorised?",
        _from_repeats(found),
        figures=[Figure(alt.layer(bars, counts).properties(height=220))],
        tables=[
            Table(
                canaries,
                {
                    "text": ColumnFormat(),
                    "repeats": ColumnFormat(),
                    "logprob": ColumnFormat("log probability", digits=3),
                    "rank_low": ColumnFormat("rank, at best"),
                    "rank_high": ColumnFormat("rank, at worst", digits=0),
                    "exposure_low": ColumnFormat("exposure, at least", "bits", digits=1),
                    "exposure_high": ColumnFormat("exposure, at most", "bits", digits=1),
                },
                "One row a known text, the most repeated first.",
            )
        ],
        how=How(
            "exposure = log2(texts in the pattern) − log2(rank)",
            source="Carlini et al., The Secret Sharer, USENIX Security 2019.",
            notes="The rank of a text that was not extracted is bounded: it comes after those that were, "
            "and the mass that is left holds no more texts as probable as it.",
        ),
    )


def _from_repeats(found: MemorizationAudit) -> str:
    whole = [repeats for repeats, known, hits in found.by_repeats if hits == known]
    if not whole:
        return "At no number of repeats were all known texts found."
    return f"All known texts that were repeated {min(whole)} times were found."


# --- Bias ----------------------------------------------------------------------------------------


def _bias(found: BiasAudit, model: str) -> Page:
    far = max(found.cells, key=lambda cell: abs(cell.share_of_outcome - 1 / len(found.groups)))
    verdict = "depends" if found.p < 0.05 else "was not seen to depend"
    rows = [vars(cell) for cell in found.cells]
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
                f"The group {verdict} on the outcome: chi-square {number(found.statistic, 1)} with "
                f"{counted(found.freedom, 'degree')} of freedom, p = {brief(found.p)}, "
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
            Tile("Chi-square", number(found.statistic, 1), note=f"p = {brief(found.p)}"),
            Tile("Samples", number(found.samples), note=f"{number(found.effective, 0)} effective"),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "groups",
                "Which group goes with which outcome?",
                f"“{far.outcome}” is the outcome that depends most on the group.",
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
                            "bound_low": ColumnFormat("exact share, at least", "%"),
                            "bound_high": ColumnFormat("exact share, at most", "%"),
                            "samples": ColumnFormat("effective samples", digits=0),
                            "lower": ColumnFormat("probability, at least"),
                            "upper": ColumnFormat("probability, at most"),
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
    x = alt.X("outcome", type="nominal").sort(list(found.outcomes)).title(None).axis(labelAngle=-30)
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
    return f"{interval(100 * cell.interval_low, 100 * cell.interval_high, 0)} %"


# --- Toxicity ------------------------------------------------------------------------------------


def _toxicity(found: ToxicityAudit, model: str) -> Page:
    worst = max(found.findings, key=lambda one: one.lower)
    rows = [
        {**vars(one), "prompt": one.prompt or "(none)", "variant": _edits(one.edits)}
        for one in found.findings
    ]
    legend = dict(
        zip(
            dict.fromkeys(_edits(one.edits) for one in found.findings),
            ("user", "system"),
            strict=False,
        )
    )
    y = alt.Y("prompt", type="nominal").sort(None).title(None).axis(labelLimit=260)
    x = alt.X("lower", type="quantitative").scale(zero=True)
    x = x.title("Probability that a listed word comes next")
    base = alt.Chart(charts.data(rows)).encode(
        y=y,
        yOffset=alt.YOffset("variant", type="nominal", sort=list(legend)),
        tooltip=charts.tooltip(
            {
                "prompt": "prompt",
                "variant": "asked",
                "lower": ("at least", ".3g"),
                "upper": ("at most", ".3g"),
                "text": "most probable",
            }
        ),
    )
    bars = base.mark_bar().encode(x=x, color=charts.meaning_colour("variant", legend))
    whiskers = base.mark_rule(color=colour("ink"), strokeWidth=1.5).encode(
        x=charts.same_axis(x, "lower"), x2="upper:Q"
    )
    return Page(
        title="Toxicity audit",
        subtitle=f"{counted(found.words, 'word')} of the user's list",
        inputs=[("Model", model), ("Words", number(found.words))],
        findings=[
            Finding(
                f"After “{worst.prompt or 'nothing'}” ({_edits(worst.edits)}) a listed word comes next "
                f"with probability {brief(worst.lower)} to {brief(worst.upper)}, the highest of all.",
                "prompts",
            )
        ],
        tiles=[Tile("Evaluations", number(found.evaluations), "tokens")],
        sections=[
            Section(
                "prompts",
                "After which prompt does the model say a listed word?",
                "Bars are lower bounds; the thin lines reach to the upper ones.",
                figures=[
                    Figure(alt.layer(bars, whiskers).properties(height=alt.Step(18)), legend=legend)
                ],
                tables=[
                    Table(
                        pa.Table.from_pylist(rows),
                        {
                            "prompt": ColumnFormat(),
                            "variant": ColumnFormat("asked"),
                            "lower": ColumnFormat("probability, at least"),
                            "upper": ColumnFormat("probability, at most"),
                            "text": ColumnFormat("most probable text"),
                            "logprob": ColumnFormat("its log probability", digits=3),
                        },
                        "One row a prompt and number of edits.",
                    )
                ],
                how=How("P(what follows the prompt starts with a word of the list)"),
            )
        ],
    )


def _edits(edits: int) -> str:
    return f"within {counted(edits, 'edit')}" if edits else "as listed"


# --- Cloze ---------------------------------------------------------------------------------------


def _cloze(found: ClozeAudit, model: str) -> Page:
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
                f"{interval(100 * best.interval_low, 100 * best.interval_high, 0)} % right when asked for "
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
                figures=[Figure(alt.layer(bars, whiskers).properties(height=alt.Step(30)))],
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


def _how_many(count: int | str) -> str:
    return count if isinstance(count, str) else number(count)
