"""Cloze: does the model find the word that ends a passage (as LAMBADA asks)?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex as library

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model, search
from holdfast.lm.query.audits.templates import Cloze, Item, ask, escape
from holdfast.lm.query.audits.word_ends import (
    CLOSE,
    NO_WORD,
    WORD_CHARACTER,
    bound_all,
    ending_queries,
)
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.tokenizers.tokenizer import Tokenizer
from holdfast.stats import wilson_interval

MOST_WORDS = 200
"""Maximum number of word prefixes examined for one answer."""


@dataclass(frozen=True)
class Variant:
    """One way to ask, over all passages."""

    name: str
    """``any word, that ends``; ``words of the context``; ``… that end``; ``… no stop words``."""
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
    """For each passage: its answer, and that of each variant."""
    evaluations: int
    stopped: str | None = None
    """Why some answer is not proven to be the most probable word; None if all are."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "variants": [vars(variant) for variant in self.variants],
            "answers": list(self.answers),
            "evaluations": self.evaluations,
            "complete": self.stopped is None,
            "stopped": self.stopped,
        }


def audit_cloze(model: LanguageModel, template: Cloze) -> ClozeAudit:
    """The most probable last word of every passage, under restrictions that grow from variant to variant.

    A word's probability is that of the complete word: a character that ends a word, or the end of the
    text, follows. So a part of a word never wins over the word.

    Raises:
        InputError: if a query cannot be compiled.
    """
    check_model(model)
    began = model.cost.evaluations
    right: dict[str, int] = {}
    answers = []
    stops = set()
    for item in template.items:
        said = {"answer": item.answer}
        for name, words, boundary in _variants(template, item):
            said[name], stopped = _best_word(model, template, item, words, boundary)
            stops |= {stopped} if stopped else set()
            right[name] = right.get(name, 0) + (said[name] == item.answer)
        answers.append(said)
    asked = len(template.items)
    return ClozeAudit(
        tuple(
            Variant(name, hits, asked, hits / asked, *wilson_interval(hits, asked))
            for name, hits in right.items()
        ),
        tuple(answers),
        model.cost.evaluations - began,
        ", ".join(sorted(stops)) or None,
    )


def _variants(template: Cloze, item: Item) -> Iterator[tuple[str, str, str | None]]:
    """(name, words, what must follow: None for the end of the word) of each variant, the freest first."""
    seen = sorted(set(_words(compile_regex(template.word), item.context)))
    words = "|".join(map(escape, seen)) or template.word
    stop_words = {word.casefold() for word in template.stop_words}
    kept = "|".join(escape(word) for word in seen if word.casefold() not in stop_words) or words
    yield "any word, that ends", template.word, None
    yield "words of the context", words, None
    yield "… that end", words, template.end
    if template.stop_words:
        yield "… no stop words", kept, template.end


def _best_word(
    model: LanguageModel, template: Cloze, item: Item, words: str, boundary: str | None
) -> tuple[str, str | None]:
    """The most probable word after a context, and why that is not proven; None if it is.

    Words come in the order of the probability that a token ends where they end, whatever follows. That is
    at least the probability that such a word is whole, unless one token spells the end of a word and what
    follows it. So once the best whole word has more than the next word has in that order, it is the best.
    """
    start = escape(item.context)
    query = ask(template, regex=f"{start} ({words})", prefix=start, eos=False)
    begins = search(model, query, MOST_WORDS)
    best, least, most = "", 0.0, 0.0  # the best whole word, its bounds
    rival = seen = (
        0.0  # the most that another word can have; the least that those looked at have together
    )
    stopped: str | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a search that is not complete is reported below
        for match in begins:
            if math.exp(match.logprob_upper) <= least:
                break
            word = match.text[len(item.context) + 1 :]
            whole = f"{start} {escape(word)}"
            tol = CLOSE * math.exp(match.logprob)
            queries = ending_queries(model, template, whole, start, boundary)
            lower, upper, why = bound_all(model, queries, tol)
            stopped, seen = why or stopped, seen + lower
            if lower > least:
                rival = max(rival, most)
                best, least, most = word, lower, upper
            else:
                rival = max(rival, upper)
        else:
            found = begins.result()
            if not found.complete or len(found.found) == MOST_WORDS:
                stopped = found.stopped or f"more than {MOST_WORDS} beginnings of words"
    if rival > least:
        stopped = stopped or "two words within their bounds"
    if stopped is None and _crosses(model.tokenizer, boundary or NO_WORD):
        # The order says nothing of words that end inside a token: all words together bound them.
        queries = ending_queries(model, template, f"{start} ({words})", start, boundary)
        _, every, _ = bound_all(model, queries, CLOSE * least)
        if every - seen > least:
            stopped = "tokens that span the end of a word"
    return best, stopped


def _crosses(tokenizer: Tokenizer, boundary: str) -> bool:
    """Whether some token holds the end of a word and what follows it."""
    spans = library.compile(rf"{WORD_CHARACTER}(?:{boundary})")
    return any(piece and spans.search(piece.decode(errors="ignore")) for piece in tokenizer.pieces)


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
