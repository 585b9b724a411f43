"""Query a language model with regular expressions: how probable, which texts, how many.

    from holdfast.lm import query as q
    model = q.load("hf:examples/canaries/model")
    phones = q.Query("My phone number is [0-9]{3} [0-9]{3} [0-9]{4}", prefix="My phone number is")
    for match in q.search(model, phones, n=10):
        print(match.logprob, match.text)

`Query` is the question; `asking.py` has what can be asked. A regex becomes an automaton over bytes
(`regex/`), that one over tokens (`tokens/`, `canonical/`), and the model is asked along its arcs
(`searches/`, `sampling/`). Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.lm.models.huggingface import HuggingFaceModel
    from holdfast.lm.models.loading import load
    from holdfast.lm.models.protocol import Cost, LanguageModel, NextToken
    from holdfast.lm.query.asking import count, mass, sample, search
    from holdfast.lm.query.audits.bias import audit_bias
    from holdfast.lm.query.audits.cloze import audit_cloze
    from holdfast.lm.query.audits.memorization import audit_memorization
    from holdfast.lm.query.audits.templates import (
        Bias,
        Cloze,
        Item,
        Known,
        Memorization,
        Toxicity,
        escape,
        read_template,
    )
    from holdfast.lm.query.audits.toxicity import audit_toxicity
    from holdfast.lm.query.many import ask_many
    from holdfast.lm.query.planning import Plan, draw, plan
    from holdfast.lm.query.queries import Query
    from holdfast.lm.query.questions import Questions, read_questions
    from holdfast.lm.query.regex.dfa import ByteDfa
    from holdfast.lm.query.regex.language import compile_regex
    from holdfast.lm.query.results import Counts, Mass, Match, Matches, Progress, Sample, Samples
    from holdfast.lm.query.searches.finding import Search
    from holdfast.lm.tokenizers.loading import load_tokenizer
    from holdfast.lm.tokenizers.tokenizer import Tokenizer

_HOMES = {
    "Bias": "query.audits.templates",
    "ByteDfa": "query.regex.dfa",
    "Cloze": "query.audits.templates",
    "Cost": "models.protocol",
    "Counts": "query.results",
    "HuggingFaceModel": "models.huggingface",
    "Item": "query.audits.templates",
    "Known": "query.audits.templates",
    "LanguageModel": "models.protocol",
    "Mass": "query.results",
    "Match": "query.results",
    "Matches": "query.results",
    "Memorization": "query.audits.templates",
    "NextToken": "models.protocol",
    "Plan": "query.planning",
    "Progress": "query.results",
    "Query": "query.queries",
    "Questions": "query.questions",
    "Sample": "query.results",
    "Samples": "query.results",
    "Search": "query.searches.finding",
    "Tokenizer": "tokenizers.tokenizer",
    "Toxicity": "query.audits.templates",
    "ask_many": "query.many",
    "audit_bias": "query.audits.bias",
    "audit_cloze": "query.audits.cloze",
    "audit_memorization": "query.audits.memorization",
    "audit_toxicity": "query.audits.toxicity",
    "compile_regex": "query.regex.language",
    "count": "query.asking",
    "draw": "query.planning",
    "escape": "query.audits.templates",
    "load": "models.loading",
    "load_tokenizer": "tokenizers.loading",
    "mass": "query.asking",
    "plan": "query.planning",
    "read_questions": "query.questions",
    "read_template": "query.audits.templates",
    "sample": "query.asking",
    "search": "query.asking",
}

__all__ = [
    "Bias",
    "ByteDfa",
    "Cloze",
    "Cost",
    "Counts",
    "HuggingFaceModel",
    "Item",
    "Known",
    "LanguageModel",
    "Mass",
    "Match",
    "Matches",
    "Memorization",
    "NextToken",
    "Plan",
    "Progress",
    "Query",
    "Questions",
    "Sample",
    "Samples",
    "Search",
    "Tokenizer",
    "Toxicity",
    "ask_many",
    "audit_bias",
    "audit_cloze",
    "audit_memorization",
    "audit_toxicity",
    "compile_regex",
    "count",
    "draw",
    "escape",
    "load",
    "load_tokenizer",
    "mass",
    "plan",
    "read_questions",
    "read_template",
    "sample",
    "search",
]

__getattr__ = lazily("holdfast.lm", _HOMES)
