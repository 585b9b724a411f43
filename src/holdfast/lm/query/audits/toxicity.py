"""Toxicity: how probable the words of the user's list are, unprompted and after prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast import answer
from holdfast.answer import ColumnFormat, How, Section, Table, Value, measured
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model
from holdfast.lm.query.audits.templates import Toxicity, ask, escape
from holdfast.lm.query.audits.word_ends import NO_WORD, bound_all, ending_queries, most_probable
from holdfast.lm.query.results import QueryAnswer
from holdfast.numbers import counted, number, probability
from holdfast.report import figures

_HIGHEST = {
    "yes": "the highest",
    "cannot tell": "the highest lower bound (the bounds cannot tell which is the highest)",
}
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
class ToxicityAudit(QueryAnswer):
    """Every prompt, with and without edits."""

    words: int
    prompts: tuple[Finding, ...]
    evaluations: int
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Toxicity audit"

    @property
    def stopped(self) -> str | None:
        """Why some finding is not complete; None if all are."""
        return ", ".join(sorted({one.stopped for one in self.prompts if one.stopped})) or None

    def highest(self, one: Finding) -> str:
        """``yes``, ``no`` or ``cannot tell``: whether the words are nowhere more probable, edits alike."""
        others = [other for other in self.prompts if other.edits == one.edits and other != one]
        if all(other.upper <= one.lower for other in others):
            return "yes"
        return "no" if any(other.lower > one.upper for other in others) else "cannot tell"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "words": self.words,
            "complete": self.stopped is None,
            "stopped": self.stopped,
            "findings": [{**vars(one), "highest": self.highest(one)} for one in self.prompts],
            "evaluations": self.evaluations,
        }

    def _worst(self) -> list[Finding]:
        """The prompt with the highest lower bound, for each number of edits."""
        return [
            max((one for one in self.prompts if one.edits == edits), key=lambda one: one.lower)
            for edits in dict.fromkeys(one.edits for one in self.prompts)
        ]

    def values(self) -> Sequence[Value]:
        """The highest lower bounds."""
        return [
            *(
                Value(
                    f"highest_within_{one.edits}_edits",
                    one.lower,
                    ci95=(one.lower, one.upper),
                    better="lower",
                    how="bounds that always hold",
                )
                for one in self._worst()
            ),
            *measured(self, words="", evaluations="tokens, lower"),
        ]

    def findings(self) -> Sequence[answer.Finding]:
        """The highest of each number of edits."""
        prompts = counted(len({one.prompt for one in self.prompts}), "prompt")
        return [
            answer.Finding(
                f"{f'After “{one.prompt}”' if one.prompt else 'Unprompted'}, a listed word "
                f"({_edits(one.edits)}) comes with probability {probability(one.lower)} to "
                f"{probability(one.upper)}: {_HIGHEST[self.highest(one)]} of {prompts}.",
                "prompts",
            )
            for one in self._worst()
        ]

    def sections(self) -> Sequence[Section]:
        """Every prompt."""
        rows = [
            {
                **vars(one),
                "prompt": one.prompt or "(none)",
                "variant": _edits(one.edits),
                "highest": self.highest(one),
            }
            for one in self.prompts
        ]
        drawn = figures.intervals(
            [{**row, "asked": f"{row['prompt']} ({row['variant']})"} for row in rows],
            "asked",
            "lower",
            "lower",
            "upper",
            "Probability that a listed word comes next",
        )
        columns = {
            "prompt": ColumnFormat(),
            "variant": ColumnFormat("asked"),
            "lower": ColumnFormat("probability", interval=("lower", "upper")),
            "highest": ColumnFormat("highest of the prompts"),
            "text": ColumnFormat("most probable text"),
            "proven": ColumnFormat("proven to be"),
            "logprob": ColumnFormat("its log p", digits=3, detail=True),
        }
        table = Table(
            pa.Table.from_pylist(rows), columns, "One row per prompt and number of edits."
        )
        how = How("P(the text after the prompt is a word of the list, which ends there)")
        sentence = "Points are lower bounds; the lines reach to the upper ones."
        return [Section("prompts", "Listed words by prompt", sentence, [drawn], [table], how)]


def _edits(edits: int) -> str:
    return f"within {counted(edits, 'edit')}" if edits else "as listed"


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
    inputs = (
        ("Model", model.name),
        ("Words", number(len(template.words))),
        ("Prompts", number(len(template.prompts))),
    )
    spent = model.cost.evaluations - began
    return ToxicityAudit(len(template.words), tuple(findings), spent, inputs)


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
