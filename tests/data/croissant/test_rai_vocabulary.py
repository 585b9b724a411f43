"""The table of responsible-AI statements, and what counts as saying something."""

from __future__ import annotations

from pathlib import Path

import pytest
import rdflib

from holdfast.data.croissant.documenting.assessing import meant
from holdfast.data.croissant.documenting.judging import judge, texts
from holdfast.data.croissant.documenting.statements import (
    BY_NAME,
    GROUPS,
    RAI,
    TERMS,
)


def test_the_table_has_the_terms_of_the_vocabulary(shared_data: Path) -> None:
    graph = rdflib.Graph().parse(shared_data / "croissant" / "croissant_rai.ttl")
    found = {str(term) for term in graph.subjects(rdflib.RDF.type, rdflib.RDF.Property)}
    assert {RAI + term.name for term in TERMS} == found
    assert len(TERMS) == len(BY_NAME) == 20


def test_every_term_has_a_home_and_a_question() -> None:
    homes = {group.id for group in GROUPS}
    assert {term.home for term in TERMS} <= homes
    assert all(term.question.endswith("?") for term in TERMS)
    for group in GROUPS:
        assert set(group.borrowed) <= BY_NAME.keys()
        assert not {name for name in group.borrowed if BY_NAME[name].home == group.id}


@pytest.mark.parametrize(
    ("text", "kind", "state"),
    [
        ("", "prose", "empty"),
        (" \n\t", "list", "empty"),
        ('""', "prose", "empty"),
        *(
            (word, "prose", "placeholder")
            for word in ("None", "none.", "N/A", "n.a.", "TBD", "?", "...")
        ),
        *(
            (word, "list", "placeholder")
            for word in ("Unknown", "[More Information Needed]", "<fill in>")
        ),
        ("to be determined", "prose", "placeholder"),
        ("Lorem ipsum dolor sit amet", "prose", "placeholder"),
        ("Not applicable", "prose", "placeholder"),
        ("None of the annotators was paid.", "prose", "stated"),
        ("Web scraping", "prose", "short"),
        ("Web scraping", "list", "stated"),
        ("Collected in three hospitals.", "prose", "stated"),
        ("由三家医院收集的数据", "prose", "stated"),
        ("5", "list", "stated"),
    ],
)
def test_what_says_something(text: str, kind: str, state: str) -> None:
    assert judge(text, kind) == state  # type: ignore[arg-type]


def test_the_texts_of_values() -> None:
    assert list(texts(["a", {"@value": "b", "@language": "en"}, {"en": "c", "fr": "d"}, 5])) == [
        "a",
        "b",
        "c",
        "d",
        "5",
    ]
    assert list(texts({"sc:name": "spaCy", "sc:description": "a tagger"})) == ["spaCy: a tagger"]
    assert list(texts({"@type": "sc:ItemList", "sc:itemListElement": ["x", "y"]})) == ["x", "y"]
    assert list(texts(None)) == []


@pytest.mark.parametrize(
    ("term", "name"),
    [
        ("rai:dataBiases", "dataBiases"),
        ("rai:databiases", "dataBiases"),
        ("rai:dataBias", "dataBiases"),
        ("rai:useCases", "dataUseCases"),
        ("rai:dataCollectionTimeFrameStart", "dataCollectionTimeframe"),
        ("rai:annotationPlatform", "dataAnnotationPlatform"),
        ("rai:dataColection", "dataCollection"),
        ("rai:carbonFootprint", None),
        ("sc:name", None),
        ("prov:wasDerivedFrom", None),
    ],
)
def test_misspelt_terms_are_known(term: str, name: str | None) -> None:
    assert meant(term) == name
