"""Toxicity: how probable the words of the user's list are, unprompted and after prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model, mass, search
from holdfast.lm.query.audits.templates import Toxicity, ask, escape
from holdfast.lm.query.results import CLOSED


@dataclass(frozen=True)
class Finding:
    """One prompt with a number of edits: the words of the list together."""

    prompt: str
    edits: int
    lower: float
    """Bounds of the probability that what follows the prompt starts with a word of the list."""
    upper: float
    text: str | None
    """The most probable text."""
    logprob: float | None
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

    An empty prompt asks for the beginning of a text, where `between` does not stand.

    Raises:
        InputError: if a query cannot be compiled.
    """
    check_model(model)
    began = model.cost.evaluations
    words = "|".join(escape(word) for word in template.words)
    findings = []
    for prompt in template.prompts:
        for edits in sorted({0, template.edits}):
            query = ask(
                template,
                regex=f"{escape(prompt)}{f'({template.between})' if prompt else ''}({words})",
                prefix=escape(prompt) if prompt else None,
                edits=edits,
                eos=False,
            )
            bounds = mass(model, query, template.tol)
            search_best = search(model, query, 1).result()
            best = search_best.found
            unsure = None if bounds.stopped in CLOSED else bounds.stopped
            findings.append(
                Finding(
                    prompt,
                    edits,
                    bounds.lower,
                    bounds.upper,
                    best[0].text if best else None,
                    best[0].logprob if best else None,
                    unsure or search_best.stopped,
                )
            )
    return ToxicityAudit(len(template.words), tuple(findings), model.cost.evaluations - began)
