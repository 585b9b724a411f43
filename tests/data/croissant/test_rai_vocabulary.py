"""The table of responsible-AI statements, and what counts as saying something."""

from __future__ import annotations

from pathlib import Path

import pytest
import rdflib

from holdfast.data.croissant.cards.rai_statements import is_answer, texts
from holdfast.data.croissant.cards.statements import (
    BY_NAME,
    GROUPS,
    TERMS,
)
from holdfast.data.croissant.document.vocabulary import PREFIXES


def test_the_table_has_the_terms_of_the_vocabulary(shared_data: Path) -> None:
    graph = rdflib.Graph().parse(shared_data / "croissant" / "croissant_rai.ttl")
    found = {str(term) for term in graph.subjects(rdflib.RDF.type, rdflib.RDF.Property)}
    assert {PREFIXES["rai"] + term.name for term in TERMS} == found
    assert len(TERMS) == len(BY_NAME) == 20


def test_every_term_has_a_home_and_a_question() -> None:
    homes = {group.id for group in GROUPS}
    assert {term.home for term in TERMS} <= homes
    assert all(term.question.endswith("?") for term in TERMS)
    for group in GROUPS:
        assert set(group.borrowed) <= BY_NAME.keys()
        assert not {name for name in group.borrowed if BY_NAME[name].home == group.id}


@pytest.mark.parametrize(
    "text",
    [
        *("", " \n\t", '""', "None", "none.", "N/A", "n.a.", "TBD", "?", "...", "Unknown", "to do"),
        *("[More Information Needed]", "to be determined", "Not applicable"),
    ],
)
def test_a_placeholder_is_no_answer(text: str) -> None:
    assert not is_answer(text)


@pytest.mark.parametrize(
    "text", ["None of the annotators was paid.", "Web scraping", "5", "由三家医院收集的数据"]
)
def test_what_says_something(text: str) -> None:
    assert is_answer(text)


def test_the_texts_of_values() -> None:
    assert list(texts(["a", {"@value": "b", "@language": "en"}, {"en": "c", "fr": "d"}, 5])) == [
        "a",
        "b",
        "c",
        "d",
        "5",
    ]
    assert list(texts({"sc:name": "spaCy", "sc:description": "a tagger"})) == ["spaCy"]
    assert list(texts({"@type": "sc:ItemList", "sc:itemListElement": ["x", "y"]})) == ["x", "y"]
    assert list(texts(None)) == []
