"""The report of a memorization audit."""

from __future__ import annotations

import math
import sys

import pyarrow as pa

from holdfast.lm.query.audits.memorizing import MemorizationAudit
from holdfast.lm.query.pages import incomplete
from holdfast.numbers import counted, number, probability
from holdfast.report import (
    ColumnFormat,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    figures,
)

UNMATCHED = 20
"""Known texts listed that the pattern does not match."""


def memorization_page(found: MemorizationAudit, model: str) -> Page:
    """The report of the audit."""
    texts = found.extracted.found
    recalled = sum(count for _, _, count in found.by_repeats)
    known = sum(count for _, count, _ in found.by_repeats)
    findings = [
        Finding(
            f"The extracted texts have probability {probability(found.extracted.lower)}; all texts of the "
            f"pattern have at most {probability(found.extracted.upper)}.",
            "extracted",
        )
    ]
    sections = []
    if found.unmatched:
        findings.append(
            Finding(
                f"The pattern does not match {counted(len(found.unmatched), 'known text')}: "
                "the audit says nothing about them.",
                "extracted",
            )
        )
    if known:
        findings.insert(
            0,
            Finding(
                f"{recalled} of {counted(known, 'known text')} are among the "
                f"{counted(len(texts), 'text')} extracted.",
                "repeats",
            ),
        )
        sections.append(_repeats(found))
    sections.append(
        Section(
            "extracted",
            "Extracted texts",
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
                                "proven": "yes" if match.proven else "no",
                            }
                            for place, match in enumerate(texts, 1)
                        ]
                        or [{"place": 0, "text": "", "logprob": 0.0, "proven": ""}]
                    ).slice(0, len(texts)),
                    {
                        "place": ColumnFormat(),
                        "text": ColumnFormat(),
                        "logprob": ColumnFormat("log probability", digits=3),
                        "proven": ColumnFormat(),
                    },
                    "One row per text, the most probable first; its encodings are summed. "
                    "Texts that are not proven follow, in the order of what was found.",
                )
            ],
            how=How(
                "log p(text) = log Σ over its encodings of Π p(token | tokens before it)",
                source="Kuchnik et al., ReLM, MLSys 2023 (there each encoding is a separate result).",
            ),
        )
    )
    return Page(
        title="Memorization audit",
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
        unknowns=incomplete(found.stopped)
        + [
            Unknown(f"The pattern does not match the known text “{text}”.", "Check the regex.")
            for text in found.unmatched[:UNMATCHED]
        ],
    )


def _repeats(found: MemorizationAudit) -> Section:
    rows = [
        {"repeats": f"{repeats} ({hits} of {known})", "found": 100 * hits / known}
        for repeats, known, hits in found.by_repeats
    ]
    canaries = pa.Table.from_pylist(
        [{**vars(canary), "rank_high": _rank(canary.rank_high)} for canary in found.canaries]
    )
    return Section(
        "repeats",
        "Memorization by repeats",
        _from_repeats(found),
        figures=[
            figures.bars(
                rows,
                "repeats",
                "found",
                "Known texts found (%)",
                label_title="Repeats in the training data",
            )
        ],
        tables=[
            Table(
                canaries,
                {
                    "text": ColumnFormat(),
                    "repeats": ColumnFormat(),
                    "among": ColumnFormat("among the most probable"),
                    "logprob": ColumnFormat("log probability", digits=3),
                    "rank_low": ColumnFormat("rank", interval=("rank_low", "rank_high"), digits=0),
                    "exposure_low": ColumnFormat(
                        "exposure", "bits", interval=("exposure_low", "exposure_high"), digits=1
                    ),
                },
                "One row per known text, the most repeated first; in brackets the bounds.",
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
    if found.undecided:
        return (
            f"Whether {counted(found.undecided, 'known text')} not found (or not proven) are among the "
            "most probable, the search cannot tell."
        )
    least = None
    for repeats, known, hits in reversed(found.by_repeats):
        if hits < known:
            break
        least = repeats
    if least is None:
        return "Not even the most repeated texts were all found."
    if least == found.by_repeats[0][0]:
        return "All known texts were found."
    return f"All known texts that were repeated {least} times or more were found."


def _rank(rank: float) -> float:
    """A rank that a column of floats can hold."""
    return math.inf if rank > sys.float_info.max else float(rank)


def _how_many(count: int | str) -> str:
    return count if isinstance(count, str) else number(count)
