"""Cloze: does the model find the word that ends a passage (as LAMBADA asks)?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import search
from holdfast.lm.query.audits.intervals import wilson
from holdfast.lm.query.audits.templates import Cloze, Item, ask, escape
from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex

FREE = ("any word", "words of the context")
"""Variants that demand no end of the word."""


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
    end = compile_regex(template.end)
    for item in template.items:
        said = {"answer": item.answer}
        for name, query in _variants(template, item):
            found = search(model, query, 1).found
            text = found[0].text.removeprefix(item.context).removeprefix(" ") if found else ""
            said[name] = text if name in FREE else _without(end, text)
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
    seen = sorted(set(_words(compile_regex(template.word), item.context)))
    words = "|".join(map(escape, seen)) or template.word
    stop_words = {word.casefold() for word in template.stop_words}
    kept = "|".join(escape(word) for word in seen if word.casefold() not in stop_words) or words

    def query(then: str) -> Query:
        return ask(template, regex=f"{start} {then}", prefix=start, eos=False)

    yield "any word", query(f"({template.word})")
    yield "words of the context", query(f"({words})")
    yield "… that end", query(f"({words})({template.end})")
    if template.stop_words:
        yield "… no stop words", query(f"({kept})({template.end})")


def _words(word: ByteDfa, text: str) -> Iterator[str]:
    """The words that stand in a text: from the left, each as long as can be."""
    content = text.encode()
    start = 0
    while start < len(content):
        longest = start
        state = 0 if word.num_states else DEAD
        for place in range(start, len(content)):
            state = word.step(state, content[place : place + 1])
            if state == DEAD:
                break
            if word.final[state]:
                longest = place + 1
        if longest > start:
            yield content[start:longest].decode()
        start = max(longest, start + 1)


def _without(end: ByteDfa, text: str) -> str:
    """A text without the longest end that it has."""
    for place in range(len(text)):
        if end.accepts(text[place:]):
            return text[:place]
    return text
