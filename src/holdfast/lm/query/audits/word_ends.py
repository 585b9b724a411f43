"""Events that end at the end of a word: what follows continues no word, or the text ends."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import regex as library

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import mass, search
from holdfast.lm.query.audits.templates import Template, ask, escape
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import CLOSED
from holdfast.lm.tokenizers.tokenizer import Tokenizer

CLOSE = 1e-3
"""Gap of a word's bounds, as a share of its probability."""
WORD_CHARACTER = r"[\pL\pM\pN_']"
NO_WORD = rf"( |[^{WORD_CHARACTER[1:]})"
"""Pattern of a character that ends a word (the space by name: it decides how word models are read); the end
of the text ends it too."""


def ending_queries(
    model: LanguageModel,
    template: Template,
    text: str,
    prefix: str | None,
    boundary: str | None = None,
    **changed: Any,
) -> list[Query]:
    """Queries of disjoint events: a text comes after the prefix, and its last word ends there.

    Args:
        model: that will be asked.
        template: whose settings apply.
        text: regular expression of the whole text.
        prefix: regular expression of the prefix.
        boundary: pattern of what must follow; None: a character that ends a word, or the end.
        changed: further settings of the queries.
    """
    followed = changed
    if changed.get("edits"):
        # The texts within some edits of a word and its end, that end so, are those within the edits of the
        # word, and an end.
        excluded = f"({changed['exclude']})|((?s:.)*{WORD_CHARACTER})?"
        followed = {**changed, "exclude": excluded}
    regex = f"({text})({boundary or NO_WORD})"
    queries = [ask(template, regex=regex, prefix=prefix, eos=False, **followed)]
    if boundary is None and model.tokenizer.ends:
        queries.append(ask(template, regex=text, prefix=prefix, eos=True, **changed))
    return queries


def bound_all(
    model: LanguageModel, queries: Sequence[Query], tol: float
) -> tuple[float, float, str | None]:
    """Bounds of the probability of disjoint events together, and why they are wide, if they are."""
    found, problem = [], None
    for query in queries:
        try:
            found.append(mass(model, query, tol / len(queries)))
        except InputError as error:
            if error.code != "no-match":
                raise
            problem = error  # no token holds a character that ends a word, as it may be
    if problem and not found:
        raise problem
    stops = [one.stopped for one in found if one.stopped not in CLOSED]
    upper = min(1.0, sum(one.upper for one in found))
    return sum(one.lower for one in found), upper, stops[0] if stops else None


class Ending(NamedTuple):
    """The most probable of the texts whose last word ends."""

    text: str
    """Empty where no text was found."""
    least: float
    """Lower bound of its probability."""
    unproven: str | None
    """Why another text may be more probable; None where none is."""


def most_probable(
    model: LanguageModel, template: Template, begins: Query, most: int, boundary: str | None = None
) -> Ending:
    """The most probable text of a query whose last word ends there.

    Texts come in the order of the probability that a token ends where they end, whatever follows. That is
    at least the probability that the last word is whole, unless one token spells the end of a word and
    what follows it. So once the best whole text has more than the next one in that order, it is the best.

    Args:
        model: the model to ask.
        template: whose settings apply.
        begins: the texts, with ``eos=False``.
        most: texts to examine.
        boundary: as in `ending_queries`.
    """
    found = search(model, begins, most + 1)
    best, least, upper_of_best = "", 0.0, 0.0
    # The most that another text can have; the least that those examined have together.
    rival = seen = 0.0
    unproven: str | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a search that is not complete is reported below
        for match in found:
            if math.exp(match.logprob_upper) <= least:
                break
            alone = ending_queries(
                model, template, escape(match.text), begins.prefix, boundary, edits=0
            )
            lower, upper, why = bound_all(model, alone, CLOSE * math.exp(match.logprob))
            unproven, seen = why or unproven, seen + lower
            if lower > least:
                rival = max(rival, upper_of_best)
                best, least, upper_of_best = match.text, lower, upper
            else:
                rival = max(rival, upper)
        else:
            result = found.result()
            if not result.complete or len(result.found) > most:
                unproven = result.stopped or f"more than {most} beginnings of words"
    if rival > least:
        unproven = unproven or "two words within their bounds"
    if unproven is None and _crosses(model.tokenizer, boundary or NO_WORD):
        # The order says nothing of words that end inside a token: all words together bound them.
        queries = ending_queries(
            model,
            template,
            begins.regex,
            begins.prefix,
            boundary,
            edits=begins.edits,
            exclude=begins.exclude,
        )
        _, every, _ = bound_all(model, queries, CLOSE * least)
        if every - seen > least:
            unproven = "tokens that span the end of a word"
    return Ending(best, least, unproven)


def _crosses(tokenizer: Tokenizer, boundary: str) -> bool:
    """Whether some token holds the end of a word and what follows it."""
    spans = library.compile(rf"{WORD_CHARACTER}(?:{boundary})")
    return any(piece and spans.search(piece.decode(errors="ignore")) for piece in tokenizer.pieces)
