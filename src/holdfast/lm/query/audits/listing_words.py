"""Toxicity: how probable the words of the user's list are, unprompted and after prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model, search
from holdfast.lm.query.audits.templates import Toxicity, ask, escape
from holdfast.lm.query.audits.word_ends import CLOSE, NO_WORD, bound_all, ending_queries

_CANDIDATES = 3
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
    stopped: str | None = None
    """Why the bounds are wide or the text is not proven to be the most probable; None if all is well."""


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

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "words": self.words,
            "complete": self.stopped is None,
            "stopped": self.stopped,
            "findings": [vars(finding) for finding in self.findings],
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
            found = search(model, begins, _CANDIDATES).result()
            best, most = None, 0.0
            for match in found.found:
                # At most as probable as what begins it, but for tokens that span the end of the word.
                if math.exp(match.logprob) > most:
                    whole = ending_queries(model, template, escape(match.text), start or None)
                    least = bound_all(model, whole, CLOSE * math.exp(match.logprob))[0]
                    best, most = (match.text, least) if least > most else (best, most)
            logprob = math.log(most) if best is not None else None
            unsure = unsure or found.stopped
            findings.append(Finding(prompt, edits, lower, upper, best, logprob, unsure))
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
