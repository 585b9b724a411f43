"""Toxicity: how probable the words of the user's list are, unprompted and after prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model
from holdfast.lm.query.audits.templates import Toxicity, ask, escape
from holdfast.lm.query.audits.word_ends import NO_WORD, bound_all, ending_queries, most_probable

_CANDIDATES = 10
"""Texts of which the most probable one is chosen."""


@dataclass(frozen=True)
class Finding:
    """One prompt with a number of edits: the words of the list together."""

    prompt: str
    edits: int
    lower: float
    """Bounds of the probability that what follows the prompt is a word of the list, which ends there."""
    upper: float
    text: str | None
    """The most probable text: of those few that most probably begin what follows."""
    logprob: float | None
    """Of the text with the end of its word, at least."""
    proven: str
    """``yes``: no other text is more probable; or ``cannot tell``."""
    stopped: str | None = None
    """Why the bounds are wide; None if they are within the tolerance."""


@dataclass(frozen=True)
class ToxicityAudit:
    """Every prompt, with and without edits."""

    words: int
    findings: tuple[Finding, ...]
    evaluations: int

    @property
    def stopped(self) -> str | None:
        """Why some finding is not complete; None if all are."""
        return ", ".join(sorted({one.stopped for one in self.findings if one.stopped})) or None

    def highest(self, one: Finding) -> str:
        """``yes``, ``no`` or ``cannot tell``: whether the words are nowhere more probable, edits alike."""
        others = [other for other in self.findings if other.edits == one.edits and other != one]
        if all(other.upper <= one.lower for other in others):
            return "yes"
        return "no" if any(other.lower > one.upper for other in others) else "cannot tell"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "words": self.words,
            "complete": self.stopped is None,
            "stopped": self.stopped,
            "findings": [{**vars(one), "highest": self.highest(one)} for one in self.findings],
            "evaluations": self.evaluations,
        }


def audit_toxicity(model: LanguageModel, template: Toxicity) -> ToxicityAudit:
    """Bounds of the probability of a list of words after every prompt, and the most probable text.

    A word ends where a character follows that continues no word, or the text ends: ``ass`` is not in
    ``assembly``. The beginning of a listed word is no edit of it: ``as`` is not ``ass``. An empty prompt
    asks for the beginning of a text, where `between` does not stand.

    Raises:
        InputError: if a query cannot be compiled.
    """
    check_model(model)
    began = model.cost.evaluations
    words = "|".join(escape(word) for word in template.words)
    findings = []
    for prompt in template.prompts:
        start = escape(prompt)
        text = f"{start}{f'({template.between})' if prompt else ''}({words})"
        for edits in sorted({0, template.edits}):
            settings = {"edits": edits, "exclude": _excluded(template, start, edits)}
            queries = ending_queries(model, template, text, start or None, **settings)
            lower, upper, unsure = bound_all(model, queries, template.tol)
            begins = ask(template, regex=text, prefix=start or None, eos=False, **settings)
            best = most_probable(model, template, begins, _CANDIDATES)
            logprob = math.log(best.least) if best.least else None
            proven = "cannot tell" if best.unproven else "yes"
            findings.append(
                Finding(prompt, edits, lower, upper, best.text or None, logprob, proven, unsure)
            )
    return ToxicityAudit(len(template.words), tuple(findings), model.cost.evaluations - began)


def _excluded(template: Toxicity, start: str, edits: int) -> str | None:
    """Pattern of texts that are not meant: those of the template, the prompt alone, beginnings of words."""
    own = template.query.get("exclude")
    parts = [f"({own}){NO_WORD}*"] if own is not None else []
    if edits:
        listed = {word.casefold() for word in template.words}
        beginnings = {word[:size] for word in template.words for size in range(1, len(word))}
        harmless = sorted(word for word in beginnings if word.casefold() not in listed)
        parts.append(f"{start}{NO_WORD}*({'|'.join(['', *map(escape, harmless)])}){NO_WORD}*")
    return "|".join(parts) or None
