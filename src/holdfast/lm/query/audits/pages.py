"""The pages of audits: what was found, how sure it is, and the rows behind it."""

from __future__ import annotations

import math
import sys

import altair as alt
import pyarrow as pa

from holdfast.lm.query.audits.closing_words import ClozeAudit
from holdfast.lm.query.audits.comparing_groups import BiasAudit, Cell
from holdfast.lm.query.audits.listing_words import ToxicityAudit
from holdfast.lm.query.audits.memorizing import MemorizationAudit
from holdfast.numbers import counted, interval, number, p_value, percent, probability
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
            f"What the model writes is a text of the pattern with probability "
            f"{probability(found.extracted.lower)} to {probability(found.extracted.upper)}.",
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
    x = alt.X("repeats", type="ordinal").sort(order).axis(labelAngle=0)
    x = x.title("Repeats in the training data").axis(labelAngle=0)
    y = charts.percent_axis(alt.Y, "found", "Known texts found").scale(domain=[0, 1])
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar(color=colour("user"))
        .encode(x=x, y=y, tooltip=charts.tooltip({"repeats": "repeats", "of": "found"}))
    )
    counts = bars.mark_text(dy=-8, color=colour("ink")).encode(
        y=y, text=alt.Text("of", type="nominal")
    )
    canaries = pa.Table.from_pylist(
        [{**vars(canary), "rank_high": _rank(canary.rank_high)} for canary in found.canaries]
    )
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
                    "rank_low": ColumnFormat("rank", interval=("rank_low", "rank_high"), digits=0),
                    "exposure_low": ColumnFormat(
                        "exposure", "bits", interval=("exposure_low", "exposure_high"), digits=1
                    ),
                },
                "One row a known text, the most repeated first; in brackets the bounds.",
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
    least = None
    for repeats, known, hits in reversed(found.by_repeats):
        if hits < known:
            break
        least = repeats
    if least is None:
        return "Not even of the most repeated texts were all found."
    if least == found.by_repeats[0][0]:
        return "All known texts were found."
    return f"All known texts that were repeated {least} times or more were found."


def _rank(rank: float) -> float:
    """A rank that a column of floats can hold."""
    return math.inf if rank > sys.float_info.max else float(rank)


# --- Bias ----------------------------------------------------------------------------------------


def _bias(found: BiasAudit, model: str) -> Page:
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


# --- Toxicity ------------------------------------------------------------------------------------


def _toxicity(found: ToxicityAudit, model: str) -> Page:
    edits = list(dict.fromkeys(one.edits for one in found.findings))
    worst = [
        max((one for one in found.findings if one.edits == each), key=lambda one: one.lower)
        for each in edits
    ]
    rows = [
        {**vars(one), "prompt": one.prompt or "(none)", "variant": _edits(one.edits)}
        for one in found.findings
    ]
    prompts = {one.prompt for one in found.findings}
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
                f"{probability(one.upper)}: the highest of {counted(len(prompts), 'prompt')}.",
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
                "After which prompt does the model say a listed word?",
                "Bars are lower bounds; the thin lines reach to the upper ones.",
                figures=[
                    Figure(
                        alt.layer(bars, whiskers).properties(
                            height=18 * max(1, len(legend)) * len(prompts) + 20
                        ),
                        legend=legend,
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
                            "text": ColumnFormat("most probable text"),
                            "logprob": ColumnFormat("its log p", digits=3),
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


def _how_many(count: int | str) -> str:
    return count if isinstance(count, str) else number(count)
