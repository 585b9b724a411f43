"""Whatever stands in the file, validation ends, says where, and raises nothing but `InputError`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from good_description import GOOD, OLD, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.reading import parse_document, read_document
from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.rules.context import Context, cycles
from holdfast.data.croissant.rules.table import RULES
from holdfast.errors import InputError

SMALL = settings(max_examples=60, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=600, suppress_health_check=list(HealthCheck))

KEYS = st.sampled_from(
    [
        "@context",
        "@type",
        "@id",
        "@value",
        "@language",
        "@graph",
        "@list",
        "name",
        "description",
        "url",
        "distribution",
        "recordSet",
        "field",
        "key",
        "data",
        "source",
        "fileObject",
        "fileSet",
        "extract",
        "transform",
        "column",
        "regex",
        "jsonPath",
        "format",
        "dataType",
        "references",
        "subField",
        "parentField",
        "isArray",
        "arrayShape",
        "containedIn",
        "contentUrl",
        "includes",
        "sha256",
        "annotation",
        "value",
        "examples",
    ]
) | st.text(max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", " ", "cr:Field", "sc:Dataset", "sc:Text", "users", "users/id", "(", "../x", "%", "'"]
    )
    | st.text(max_size=8)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


def run_all(text: str) -> int:
    """Every rule over a text; how many findings there are, each of them at a place that is there."""
    document = parse_document(text.encode("utf-8", "surrogatepass"), "metadata.json")
    context = Context(document, build(document))
    number = 0
    for rule in RULES.values():
        for breach in rule.check(context):
            line, column = document.place(breach.at, key=breach.key)
            assert line >= 1
            assert column >= 1
            assert breach.message
            number += 1
    return number


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way] if way else []
    steps = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, inner in steps:
        found += places(inner, (*way, step))
    return found


def mutated(base: Any, data: st.DataObject) -> Any:
    """A description in which one to three nodes were dropped, replaced, doubled or put elsewhere."""
    document = copy.deepcopy(base)
    for _ in range(data.draw(st.integers(1, 3))):
        ways = places(document)
        if not ways:
            break
        *way, last = data.draw(st.sampled_from(ways))
        node = document
        for step in way:
            node = node[step]
        kind = data.draw(st.sampled_from(["drop", "replace", "double", "nest", "copy"]))
        if kind == "drop":
            del node[last]
        elif kind == "replace":
            node[last] = data.draw(ANYTHING)
        elif kind == "double":
            node[last] = [node[last], copy.deepcopy(node[last])]
        elif kind == "nest":
            node[last] = {data.draw(KEYS): node[last]}
        else:
            *other, end = data.draw(st.sampled_from(ways))
            source = document
            try:
                for step in other:
                    source = source[step]
                node[last] = copy.deepcopy(source[end])
            except (KeyError, IndexError, TypeError):
                continue
    return document


@SMALL
@given(ANYTHING)
def test_any_json(value: Any) -> None:
    run_all(json.dumps(value))


@SMALL
@given(st.dictionaries(KEYS, ANYTHING, max_size=8))
def test_any_object_that_says_it_is_a_dataset(value: dict[str, Any]) -> None:
    run_all(json.dumps({"@context": GOOD["@context"], "@type": "sc:Dataset"} | value))


@SMALL
@given(st.sampled_from([GOOD, OLD]), st.data())
def test_any_mutation_of_the_good_descriptions(base: Any, data: st.DataObject) -> None:
    run_all(written(mutated(base, data)))


@SMALL
@given(st.text(max_size=60) | st.integers(0, 9000).map(lambda end: written(GOOD)[:end]))
def test_any_text(text: str) -> None:
    run_all(text)


@pytest.mark.full
@MANY
@given(st.data())
def test_any_mutation_of_the_suite(shared_data: Path, data: st.DataObject) -> None:
    paths = sorted((shared_data / "croissant").glob("*/*/*/*.json"))
    path = data.draw(st.sampled_from([path for path in paths if path.stat().st_size < 40_000]))
    base = json.loads(path.read_text(encoding="utf-8"))
    run_all(json.dumps(mutated(base, data), indent=1))


@pytest.mark.parametrize("data", [None, "full"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("CR001", 1, 1, "the text is empty")),
        (" \n\t\n", ("CR001", 1, 1, "the text is empty")),
        ("[]", ("CR101", 1, 1, "[] found where an object with a dataset is expected")),
        ("\n 3", ("CR101", 2, 2, "3 found where an object with a dataset is expected")),
        ("null", ("CR101", 1, 1, "null found where an object with a dataset is expected")),
        ('"x"', ("CR101", 1, 1, '"x" found where an object with a dataset is expected')),
        ("[1]", ("CR101", 1, 1, "[1] found where an object with a dataset is expected")),
        ("words", ("CR001", 1, 1, "'w' found where a value is expected")),
        ("<p>", ("CR001", 1, 1, "this is a web page without a script of type application/ld+json")),
    ],
)
def test_what_is_no_description_is_found_so(
    tmp_path: Path, text: str, expected: tuple[str, int, int, str], data: Any
) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(text, encoding="utf-8")
    validation = validate(path, data=data)
    [found] = validation.problems
    assert (found.code, found.line, found.column, found.message) == expected
    assert found.pointer == ""
    assert not validation.valid
    with pytest.raises(InputError):
        read_document(path)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        validate(tmp_path / "missing.json")


def test_deep_and_wide_descriptions_end(tmp_path: Path) -> None:
    deep: Any = {"@type": "cr:Field", "@id": "x"}
    for _ in range(400):
        deep = {"@type": "cr:Field", "subField": deep}
    assert run_all(
        written(GOOD | {"recordSet": [{"@type": "cr:RecordSet", "@id": "r", "field": deep}]})
    )
    wide = [{"@type": "cr:FileObject", "@id": "x", "containedIn": {"@id": "x"}}] * 300
    assert run_all(written(GOOD | {"distribution": wide}))


@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefgh"), max_size=3))
)
def test_circles_are_circles(edges: dict[str, list[str]]) -> None:
    import networkx as nx

    graph = nx.DiGraph([(a, b) for a, ends in edges.items() for b in ends if b in edges])
    graph.add_nodes_from(edges)
    found = cycles(edges)
    for circle in found:
        for a, b in zip(circle, (*circle[1:], circle[0]), strict=True):
            assert b in edges[a]
    assert bool(found) == (not nx.is_directed_acyclic_graph(graph))
    nodes = [node for circle in found for node in circle]
    assert len(nodes) == len(set(nodes))
