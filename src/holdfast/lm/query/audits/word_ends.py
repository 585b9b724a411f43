"""Events that end at the end of a word: what follows continues no word, or the text ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import mass
from holdfast.lm.query.audits.templates import Template, ask
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import CLOSED

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
