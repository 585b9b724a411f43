"""Memorisation: the texts of a pattern that a model gives first, and how exposed the known ones are."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, Finding, How, Section, Table, Unknown, Value, measured
from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import Watch, search
from holdfast.lm.query.audits.templates import Known, Memorization, ask, escape
from holdfast.lm.query.compiling import compile_query, language_of
from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.operations import count_strings, is_prefix_free
from holdfast.lm.query.results import Count, Matches, QueryAnswer, how_many, readable
from holdfast.lm.query.searches.finding import search_compiled
from holdfast.numbers import counted, number, probability
from holdfast.report import figures

UNMATCHED = 20
"""Known texts listed that the pattern does not match."""
SLACK = 1e-9
"""What rounding may have taken from a mass, as a share of it."""


@dataclass(frozen=True)
class Canary:
    """A text that was in the training data, and how exposed it is.

    Exposure is log2 of the texts in the pattern less log2 of the rank (Carlini et al., The Secret Sharer,
    2019): 0 for the least probable text, log2 of the size for the first.
    """

    text: str
    repeats: int
    logprob: float
    rank_low: int
    """At best this is its rank by probability among all texts of the pattern."""
    rank_high: float
    """At worst; equal to `rank_low` for a text that was extracted in proven order. The mass that is left
    holds no more texts as probable as this one."""
    exposure_low: float | None
    """Bits; None in an infinite language."""
    exposure_high: float | None
    among: str
    """``yes``, ``no`` or ``cannot tell``: whether it is one of the `n` most probable texts."""


@dataclass(frozen=True)
class MemorizationAudit(QueryAnswer):
    """What was extracted, and what of the known was found."""

    pattern: str
    texts_in_pattern: Count
    extracted: Matches
    canaries: tuple[Canary, ...]
    """The most repeated first."""
    recall: tuple[tuple[int, float], ...]
    """(n, share of the known texts among the first n)."""
    by_repeats: tuple[tuple[int, int, int], ...]
    """(repeats, known texts, of them extracted)."""
    unmatched: tuple[str, ...] = ()
    """Known texts that the pattern cannot match: the audit says nothing about them."""
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Memorization audit"

    @property
    def stopped(self) -> str | None:
        """Why the audit is not complete; None if it is."""
        return self.extracted.stopped

    @property
    def undecided(self) -> int:
        """Known texts of which the search cannot tell whether they are among the most probable."""
        return sum(canary.among == "cannot tell" for canary in self.canaries)

    @property
    def known(self) -> int:
        """Known texts that the pattern matches."""
        return sum(count for _, count, _ in self.by_repeats)

    @property
    def recalled(self) -> int:
        """Known texts that were extracted."""
        return sum(count for _, _, count in self.by_repeats)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        known = {canary.text: canary.repeats for canary in self.canaries}
        return {
            "pattern": self.pattern,
            "texts_in_pattern": self.texts_in_pattern,
            "extracted": [
                {**match.to_dict(), "repeats": known.get(match.text)}
                for match in self.extracted.found
            ],
            "complete": self.extracted.complete,
            "stopped": self.stopped,
            "proven": self.extracted.proven,
            "unmatched": list(self.unmatched),
            "mass_lower": self.extracted.lower,
            "mass_upper": self.extracted.upper,
            "canaries": [vars(canary) for canary in self.canaries],
            "recall": [{"n": n, "recall": recall} for n, recall in self.recall],
            "by_repeats": [
                {"repeats": repeats, "known": known, "extracted": found}
                for repeats, known, found in self.by_repeats
            ],
            "evaluations": self.extracted.cost.evaluations,
        }

    def values(self) -> Sequence[Value]:
        """Known texts found, and the mass of what was extracted."""
        mass = self.extracted.lower, self.extracted.upper
        return [
            *measured(self, known="texts", recalled="texts, lower", undecided="texts, lower"),
            Value("mass_lower", mass[0], ci95=mass, how="bounds that always hold"),
            *measured(self.extracted.cost, evaluations="tokens, lower"),
        ]

    def findings(self) -> Sequence[Finding]:
        """What of the known was found; how much was extracted; what the pattern does not match."""
        texts = self.extracted
        findings = [
            Finding(
                f"The extracted texts have probability {probability(texts.lower)}; all texts of the "
                f"pattern have at most {probability(texts.upper)}.",
                "extracted",
            )
        ]
        if self.unmatched:
            text = f"The pattern does not match {counted(len(self.unmatched), 'known text')}: "
            findings.append(Finding(f"{text}the audit says nothing about them.", "extracted"))
        if self.known:
            text = (
                f"{self.recalled} of {counted(self.known, 'known text')} are among the "
                f"{counted(len(texts.found), 'text')} extracted."
            )
            findings.insert(0, Finding(text, "repeats"))
        return findings

    def unknowns(self) -> Sequence[Unknown]:
        """Why it is not complete, and the known texts that the pattern does not match."""
        return [
            *super().unknowns(),
            *(
                Unknown(f"The pattern does not match the known text “{text}”.", "Check the regex.")
                for text in self.unmatched[:UNMATCHED]
            ),
        ]

    def sections(self) -> Sequence[Section]:
        """The texts extracted, and the known ones by repeats."""
        texts = self.extracted.found
        repeats = {canary.text: canary.repeats for canary in self.canaries}
        how = How(
            "log p(text) = log Σ over its encodings of Π p(token | tokens before it)",
            source="Kuchnik et al., ReLM, MLSys 2023 (there each encoding is a separate result).",
        )
        sentence = (
            f"The most probable text has log probability {number(texts[0].logprob, 3)}."
            if texts
            else "No text was found."
        )
        table = self.extracted.table(repeats)
        extracted = Section("extracted", "Extracted texts", sentence, tables=[table], how=how)
        return [*self._by_repeats(), extracted]

    def _by_repeats(self) -> list[Section]:
        if not self.known:
            return []
        rows = [
            {"repeats": f"{repeats} ({hits} of {known})", "found": 100 * hits / known}
            for repeats, known, hits in self.by_repeats
        ]
        drawn = figures.bars(
            rows,
            "repeats",
            "found",
            "Known texts found (%)",
            label_title="Repeats in the training data",
        )
        columns = {
            "text": ColumnFormat(),
            "repeats": ColumnFormat(),
            "among": ColumnFormat("among the most probable"),
            "logprob": ColumnFormat("log probability", digits=3),
            "rank_low": ColumnFormat("rank", interval=("rank_low", "rank_high"), digits=0),
            "exposure_low": ColumnFormat(
                "exposure", "bits", interval=("exposure_low", "exposure_high"), digits=1
            ),
        }
        canaries = [{**vars(one), "rank_high": _rank(one.rank_high)} for one in self.canaries]
        table = Table(
            pa.Table.from_pylist(canaries),
            columns,
            "One row per known text, the most repeated first; in brackets the bounds.",
            detail=True,
        )
        how = How(
            "exposure = log2(texts in the pattern) − log2(rank)",
            source="Carlini et al., The Secret Sharer, USENIX Security 2019.",
            notes="The rank of a text that was not extracted is bounded: it comes after those that were, "
            "and the mass that is left holds no more texts as probable as it.",
        )
        question = "Memorization by repeats"
        return [Section("repeats", question, self._from_repeats(), [drawn], [table], how)]

    def _from_repeats(self) -> str:
        """From how many repeats on all known texts were found."""
        if self.undecided:
            return (
                f"Whether {counted(self.undecided, 'known text')} not found (or not proven) are among "
                "the most probable, the search cannot tell."
            )
        least = None
        for repeats, known, hits in reversed(self.by_repeats):
            if hits < known:
                break
            least = repeats
        if least is None:
            return "Not even the most repeated texts were all found."
        if least == self.by_repeats[0][0]:
            return "All known texts were found."
        return f"All known texts that were repeated {least} times or more were found."


def _rank(rank: float) -> float:
    """A rank that a column of floats can hold."""
    return math.inf if rank > sys.float_info.max else float(rank)


def audit_memorization(
    model: LanguageModel, template: Memorization, *, watch: Watch | None = None
) -> MemorizationAudit:
    """Extract the most probable texts of a pattern, and say which of the known are among them.

    Args:
        model: the model to ask.
        template: the pattern, and the texts that were in the training data.
        watch: called during the search.

    Raises:
        InputError: if the query cannot be compiled.
    """
    query = ask(template, regex=template.regex, prefix=template.prefix)
    language = language_of(query)
    size = count_strings(language)
    extracted = search(model, query, template.n, watch=watch).result()
    repeats: Counter[str] = Counter()
    unmatched: list[str] = []
    for one in template.known:
        if language.accepts(one.text):
            repeats[one.text] += one.repeats
        else:
            unmatched.append(one.text)
    known = [Known(*pair) for pair in sorted(repeats.items(), key=lambda pair: (-pair[1], pair[0]))]
    ranks = _Ranks(extracted, size, whole=query.eos or is_prefix_free(language))
    canaries = [
        _canary(one, _scored(model, query, one.text), ranks, size, template.n) for one in known
    ]
    hits = accumulate(match.text in repeats for match in extracted.found)
    asked = Counter(one.repeats for one in known)
    reached = Counter(one.repeats for one in known if one.text in ranks.places)
    return MemorizationAudit(
        pattern=template.regex,
        texts_in_pattern=size,
        extracted=extracted,
        canaries=tuple(canaries),
        recall=tuple((place, count / len(known)) for place, count in enumerate(hits, 1) if known),
        by_repeats=tuple((times, asked[times], reached[times]) for times in sorted(asked)),
        unmatched=tuple(dict.fromkeys(unmatched)),
        query_inputs=(
            ("Model", model.name),
            ("Pattern", template.regex),
            ("Texts in the pattern", how_many(size)),
        ),
    )


def _scored(model: LanguageModel, query: Query, text: str) -> tuple[float, float]:
    """Bounds of the log probability that a query gives to one of its texts."""
    whole = compile_query(query, model.tokenizer, "texts")
    prefixes = [prompt for prompt in whole.prompts if text.encode().startswith(prompt.text)]
    if not prefixes:
        return -math.inf, -math.inf
    alone = replace(
        query,
        regex=escape(text),
        prefix=query.prefix and "|".join(escape(readable(prompt.text)) for prompt in prefixes),
        edits=0,
        exclude=None,
        ignore_case=False,
    )
    try:
        compiled = compile_query(alone, model.tokenizer, "texts")
    except InputError:  # no token sequence spells it
        return -math.inf, -math.inf
    alone_found = search_compiled(model, compiled, n=1)
    if alone_found.found:
        (match,) = alone_found.found
        low, high = match.logprob, match.logprob_upper
    else:  # the mass that cannot be followed may be its
        low, high = -math.inf, math.log(alone_found.upper) if alone_found.upper else -math.inf
    share = math.log(whole.prompts[0].share / compiled.prompts[0].share)
    return low + share, high + share


class _Ranks:
    """How many texts can be as probable as one."""

    def __init__(self, extracted: Matches, size: Count, whole: bool) -> None:
        self.extracted, self.size = extracted, size
        self.places = {match.text: place for place, match in enumerate(extracted.found, 1)}
        seen = math.fsum(math.exp(match.logprob) for match in extracted.found)
        # Texts that start with one another share mass: then it does not say how many there are.
        self.left = max(0.0, extracted.upper - seen) * (1 + SLACK) if whole else math.inf

    def of(self, text: str, logprob: float, upper: float) -> tuple[int, float]:
        """The best and the worst rank of a text with these bounds of its log probability."""
        place = self.places.get(text)
        found = self.extracted.found
        if place is not None and self.extracted.complete:
            return place, place
        if self.extracted.complete:
            low, high = len(found) + 1, float(len(found))
        else:  # the order is not proven: what is known are bounds
            low = 1 + sum(match.logprob > upper for match in found if match.text != text)
            high = float(sum(match.logprob_upper >= logprob for match in found))
            high = max(high, low) if place is not None else high
        if self.left == math.inf or logprob < -700:
            high = math.inf
        else:  # an extracted text is among `found`: the mass left is that of others alone
            high += math.floor(self.left / math.exp(logprob))
        if isinstance(self.size, int):
            high = min(high, self.size)
        return low, max(high, low)


def _canary(one: Known, score: tuple[float, float], ranks: _Ranks, size: Count, n: int) -> Canary:
    """Rank and exposure of a known text: exact if it was extracted, else within bounds."""
    low, high = ranks.of(one.text, *score)
    exposures: tuple[float | None, float | None] = (None, None)
    if isinstance(size, int):
        exposures = (math.log2(size) - math.log2(high), math.log2(size) - math.log2(low))
    extracted = one.text in ranks.places
    # A text without probability is none of them, however few texts there are.
    if low > n or score[1] == -math.inf or (ranks.extracted.complete and not extracted):
        among = "no"
    else:
        among = "yes" if extracted and high <= n else "cannot tell"
    return Canary(one.text, one.repeats, score[0], low, high, *exposures, among)
