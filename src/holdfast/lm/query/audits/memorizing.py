"""Memorisation: the texts of a pattern that a model gives first, and how exposed the known ones are."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import Watch, search
from holdfast.lm.query.audits.templates import Known, Memorization, ask, escape
from holdfast.lm.query.compiling import language_of
from holdfast.lm.query.regex.operations import count_strings
from holdfast.lm.query.results import Count, Matches


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
    """At worst; equal to `rank_low` for a text that was extracted. The mass that is left holds no more
    texts as probable as this one."""
    exposure_low: float | None
    """Bits; None in an infinite language."""
    exposure_high: float | None


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
        watch: called while the search goes on.

    Raises:
        InputError: if the query cannot be compiled.
    """
    query = ask(template, regex=template.regex, prefix=template.prefix)
    language = language_of(query)
    size = count_strings(language)
    extracted = search(model, query, template.n, watch=watch)
    places = {match.text: place for place, match in enumerate(extracted.found, 1)}
    known = [one for one in template.known if language.accepts(one.text)]
    canaries = []
    for one in sorted(known, key=lambda one: (-one.repeats, one.text)):
        alone = ask(template, regex=escape(one.text), prefix=template.prefix)
        scored = search(model, alone, 1).found
        logprob = scored[0].logprob if scored else -math.inf
        canaries.append(_canary(one, logprob, places.get(one.text), extracted, size))
    total = len(known)
    recall = []
    if total:
        hits = 0
        wanted = {one.text for one in known}
        for place, match in enumerate(extracted.found, 1):
            hits += match.text in wanted
            recall.append((place, hits / total))
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for one in known:
        counts[one.repeats][0] += 1
        counts[one.repeats][1] += one.text in places
    return MemorizationAudit(
        pattern=template.regex,
        texts_in_pattern=size,
        extracted=extracted,
        canaries=tuple(canaries),
        recall=tuple(recall),
        by_repeats=tuple(
            (repeats, texts, found) for repeats, (texts, found) in sorted(counts.items())
        ),
    )


def _canary(
    one: Known, logprob: float, place: int | None, extracted: Matches, size: Count
) -> Canary:
    """Rank and exposure of a known text: exact if it was extracted, else within bounds."""
    low: int
    high: float
    if place is not None:
        low, high = place, place
    else:
        low = len(extracted.found) + 1
        left = max(0.0, extracted.upper - extracted.lower)
        high = low + left / math.exp(logprob) if logprob > -700 else math.inf
        high = min(high, size) if isinstance(size, int) else high
    exposures: tuple[float | None, float | None] = (None, None)
    if isinstance(size, int):
        exposures = (math.log2(size) - math.log2(high), math.log2(size) - math.log2(low))
    return Canary(one.text, one.repeats, logprob, low, high, *exposures)
