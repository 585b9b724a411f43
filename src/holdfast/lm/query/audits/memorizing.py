"""Memorisation: the texts of a pattern that a model gives first, and how exposed the known ones are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import Watch, search
from holdfast.lm.query.audits.templates import Known, Memorization, ask, escape
from holdfast.lm.query.compiling import compile_query, language_of
from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.operations import count_strings, is_prefix_free
from holdfast.lm.query.results import Count, Matches, readable
from holdfast.lm.query.searching.finding import search_compiled

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
class MemorizationAudit:
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

    @property
    def stopped(self) -> str | None:
        """Why the audit is not complete; None if it is."""
        return self.extracted.stopped

    @property
    def undecided(self) -> int:
        """Known texts of which the search cannot tell whether they are among the most probable."""
        return sum(canary.among == "cannot tell" for canary in self.canaries)

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
