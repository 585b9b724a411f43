"""Cloze: does the model find the word that ends a passage (as LAMBADA asks)?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import search
from holdfast.lm.query.audits.intervals import wilson
from holdfast.lm.query.audits.templates import Cloze, Item, ask, escape
from holdfast.lm.query.queries import Query


@dataclass(frozen=True)
class Variant:
    """One way to ask, over all passages."""

    name: str
    """``any word``; ``words of the context``; ``… that end``; ``… no stop words``."""
    right: int
    asked: int
    accuracy: float
    interval_low: float
    """95 % interval of the accuracy (Wilson)."""
    interval_high: float


@dataclass(frozen=True)
class ClozeAudit:
    """Accuracy by variant, and every answer."""

    variants: tuple[Variant, ...]
    answers: tuple[dict[str, str], ...]
    """A passage each: its answer, and what each variant said."""
    evaluations: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "variants": [vars(variant) for variant in self.variants],
            "answers": list(self.answers),
            "evaluations": self.evaluations,
        }


def audit_cloze(model: LanguageModel, template: Cloze) -> ClozeAudit:
    """The most probable last word of every passage, under restrictions that grow from variant to variant.

    Raises:
        InputError: if a query cannot be compiled.
    """
    began = model.cost.evaluations
    right: dict[str, int] = {}
    answers = []
    for item in template.items:
        said = {"answer": item.answer}
        for name, query in _variants(template, item):
            found = search(model, query, 1).found
            text = found[0].text[len(item.context) + 1 :] if found else ""
            said[name] = re.sub(f"(?:{template.end})$", "", text)
            right[name] = right.get(name, 0) + (said[name] == item.answer)
        answers.append(said)
    asked = len(template.items)
    return ClozeAudit(
        tuple(
            Variant(name, hits, asked, hits / asked, *wilson(hits / asked, asked))
            for name, hits in right.items()
        ),
        tuple(answers),
        model.cost.evaluations - began,
    )


def _variants(template: Cloze, item: Item) -> Iterator[tuple[str, Query]]:
    """(name, query) of each way to ask, the freest first."""
    start = escape(item.context)
    seen = sorted(set(re.findall(template.word, item.context)))
    words = "|".join(map(escape, seen)) or template.word
    kept = "|".join(escape(word) for word in seen if word not in template.stop_words) or words

    def query(then: str) -> Query:
        return ask(template, regex=f"{start} {then}", prefix=start, eos=False)

    yield "any word", query(f"({template.word})")
    yield "words of the context", query(f"({words})")
    yield "… that end", query(f"({words})({template.end})")
    if template.stop_words:
        yield "… no stop words", query(f"({kept})({template.end})")
