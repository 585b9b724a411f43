"""Events that end at the end of a word: what follows continues no word, or the text ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import mass
from holdfast.lm.query.audits.templates import Template, ask
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import CLOSED

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
    if boundary is not None or not model.tokenizer.ends:
        return queries
    try:
        compile_query(queries[0], model.tokenizer)
    except InputError as error:
        if error.code != "no-match":
            raise
        queries = []  # no token holds a character that ends a word
    return [*queries, ask(template, regex=text, prefix=prefix, eos=True, **changed)]


def bound_all(
    model: LanguageModel, queries: Sequence[Query], tol: float
) -> tuple[float, float, str | None]:
    """Bounds of the probability of disjoint events together, and why they are wide, if they are."""
    found = [mass(model, query, tol / len(queries)) for query in queries]
    stops = [one.stopped for one in found if one.stopped not in CLOSED]
    upper = min(1.0, sum(one.upper for one in found))
    return sum(one.lower for one in found), upper, stops[0] if stops else None
