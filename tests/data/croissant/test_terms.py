"""Terms and contexts, against rdflib."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rdflib import Graph
from rdflib.namespace import RDF, SDO
from rdflib.term import Literal, URIRef

from holdfast.data.croissant.document.contexts import Context
from holdfast.data.croissant.document.reading import Document, parse_document
from holdfast.data.croissant.document.schema_org import SCHEMA_TERMS
from holdfast.data.croissant.document.terms import Terms, Thing, Value, term_of
from holdfast.data.croissant.document.vocabulary import (
    BY_NAME,
    CONTEXTS,
    ENCODING_FORMATS,
    RAI_TERMS,
    SHARED_NAMES,
    TERMS,
    canonical,
    expanded,
    format_of,
)

# rdflib's JSON-LD reader uses what rdflib deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")

BASE = "http://base.example/"


def document_of(value: Any) -> Document:
    return parse_document(json.dumps(value).encode(), "metadata.json")


def rdf_nodes(document: dict[str, Any]) -> dict[str, Any]:
    """Every node that is named, and the unnamed ones at the top, as sets of what rdflib says of them."""
    graph = Graph()
    graph.parse(data=json.dumps(document), format="json-ld", publicID=BASE)

    def tree(node: Any) -> Any:
        if isinstance(node, Literal):
            if node.datatype == RDF.JSON:
                return ("json", json.dumps(json.loads(node), sort_keys=True))
            return ("text", str(node), node.language)
        if isinstance(node, URIRef):
            return ("iri", str(node))
        return frozenset((str(p), tree(o)) for p, o in graph.predicate_objects(node))

    inner = set(graph.objects())
    named: dict[str, Any] = {"": set()}
    for subject in set(graph.subjects()):
        if isinstance(subject, URIRef):
            named[str(subject)] = frozenset(
                (str(p), tree(o)) for p, o in graph.predicate_objects(subject)
            )
        elif subject not in inner:
            named[""].add(tree(subject))
    return named


def our_nodes(terms: Terms) -> dict[str, Any]:
    """The same from our things, by what the context alone says."""
    named: dict[str, Any] = {"": set()}

    def leaf(value: Value, kind: str | None, context: Context) -> Any:
        if kind == "@json":
            return ("json", json.dumps(value.value, sort_keys=True))
        if kind == "@vocab":
            return ("iri", context.iri(value.value))
        if isinstance(value.value, bool):
            return ("text", str(value.value).lower(), None)
        if isinstance(value.value, str):
            return ("text", value.value, value.language)
        return ("text", str(value.value), None)

    def tree(thing: Thing) -> Any:
        pairs = {
            (str(RDF.type), ("iri", thing.context.iri(name) or thing.context.identity(name)))
            for name in thing.types_written
        }
        for entry in thing.entries:
            if entry.iri is None or entry.iri.startswith("@"):
                continue
            definition = thing.context.definitions.get(entry.key)
            for value in entry.values:
                kind = definition.type if definition else None
                object_ = tree(value.thing) if value.thing else leaf(value, kind, thing.context)
                pairs.add((entry.iri, object_))
        if thing.id is None:
            return frozenset(pairs)
        iri = thing.context.identity(thing.id)
        if pairs:
            named[iri] = frozenset(pairs) | named.get(iri, frozenset())
        return ("iri", iri)

    for root in terms.roots:
        top = tree(root)
        if isinstance(top, frozenset):
            named[""].add(top)
    return named


def test_every_file_of_the_suite_means_what_rdflib_makes_of_it(shared_data: Path) -> None:
    for file in sorted((shared_data / "croissant").rglob("*.json")):
        text = file.read_text(encoding="utf-8")
        # rdflib drops ids with spaces, of which one case consists.
        value = json.loads(text.replace("ids should not contain spaces", "ids-with-spaces"))
        value["@context"]["@base"] = BASE
        value.pop("@language", None)  # which has no place on a node
        assert our_nodes(document_of(value).terms) == rdf_nodes(value), file


SPELLINGS: list[Any] = [
    {"@vocab": "http://schema.org/", "c": "http://mlcommons.org/croissant/", "felder": "c:field"},
    {
        "felder": {"@id": "c:field"},
        "c": "http://mlcommons.org/croissant/",
        "name": "sc:name",
        "sc": "http://schema.org/",
    },
    [{"@vocab": "http://schema.org/"}, {"felder": "http://mlcommons.org/croissant/field"}],
    [
        {"a": "http://a.example/"},
        {"felder": "a:b"},
        {"a": "http://mlcommons.org/croissant/", "felder": "a:field"},
    ],
    {"@vocab": "http://mlcommons.org/croissant/", "felder": "field", "name": None},
    {
        "felder": "inter",
        "inter": {"@id": "x:field"},
        "x": "http://mlcommons.org/croissant/",
        "@vocab": "http://v/",
    },
    {
        "@vocab": "http://schema.org/",
        "id": "@id",
        "type": "@type",
        "felder": "http://mlcommons.org/croissant/field",
    },
    {
        "@base": "http://other.example/x/",
        "@vocab": "http://v/#",
        "felder": {"@id": "http://f/", "@type": "@id"},
    },
    {
        "@vocab": "http://v/",
        "felder": {"@id": "http://f/", "@context": {"name": "http://inner/name"}},
    },
    {"@vocab": "http://v/", "name": {"@container": "@language"}, "felder": "http://f/"},
    {
        "@language": "de",
        "@vocab": "http://v/",
        "name": {"@id": "http://n/", "@language": "fr"},
        "felder": "http://f/",
    },
    {
        "@language": "de",
        "@vocab": "http://v/",
        "name": {"@id": "http://n/", "@language": None},
        "felder": "http://f/",
    },
]


@pytest.mark.parametrize(
    "context", SPELLINGS, ids=[json.dumps(context)[:40] for context in SPELLINGS]
)
@pytest.mark.parametrize("inner", [None, {"name": "http://second/name"}, {"felder": None}])
def test_contexts_mean_what_rdflib_makes_of_them(context: Any, inner: Any) -> None:
    field: dict[str, Any] = {
        "@id": "b",
        "name": "inside",
        "type": "http://t/",
        "other": [1, True, "x"],
    }
    value = {
        "@context": context,
        "@id": "a",
        "@type": ["T", "http://t/2"],
        "name": {"en": "one", "fr": ["deux", "trois"]} if "@container" in str(context) else "top",
        "felder": [{"@context": inner, **field} if inner else field, {"name": "nameless"}],
        "unknown:thing": {"@value": "v", "@language": "en"},
        "listed": {"@set": ["p", "q"]},
    }
    if inner and "felder" in inner:
        field["felder"] = "dropped"
    if "@container" in str(context):
        del field["name"], value["felder"][1]["name"]
        value["felder"][1]["other"] = 1
        if inner:
            value["felder"][0].pop("name")
    assert with_base(our_nodes(document_of(value).terms)) == rdf_nodes(value)


def with_base(nodes: dict[str, Any]) -> dict[str, Any]:
    """Relative ids joined with the document's address."""

    def whole(node: Any) -> Any:
        if isinstance(node, frozenset | set):
            return type(node)(whole(item) for item in node)
        if (
            isinstance(node, tuple)
            and node[0] == "iri"
            and "://" not in node[1]
            and ":" not in node[1]
        ):
            return ("iri", BASE + node[1])
        if isinstance(node, tuple) and isinstance(node[1], frozenset | tuple):
            return (node[0], whole(node[1]))
        return node

    return {
        (key if not key or ":" in key else BASE + key): whole(node) for key, node in nodes.items()
    }


def test_terms_that_the_context_leaves_to_schema_org_are_known_by_name() -> None:
    terms = document_of(
        {
            "@context": {"@language": "en", "@vocab": "http://schema.org/"},
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.1",
            "distribution": {"@type": "cr:FileObject", "@id": "f", "containedIn": {"@id": "g"}},
            "recordSet": {
                "field": {"dataType": "sc:Text", "value": 3, "source": {"fileObject": {"@id": "f"}}}
            },
            "dataBiases": "many",
            "creator": {"@type": "Person", "value": 1, "name": "A"},
        }
    ).terms
    found = {
        entry.key: (entry.term, entry.iri)
        for thing in terms.everything()
        for entry in thing.entries
    }
    assert found["recordSet"] == ("cr:recordSet", "http://schema.org/recordSet")
    assert found["conformsTo"][0] == "dct:conformsTo"
    assert found["containedIn"][0] == "cr:containedIn"
    assert found["dataBiases"][0] == "rai:dataBiases"
    assert found["distribution"][0] == "sc:distribution"
    assert terms.dataset is not None
    assert terms.dataset.types == ("sc:Dataset",)
    values = [
        entry.term
        for thing in terms.everything()
        for entry in thing.entries
        if entry.key == "value"
    ]
    assert values == ["cr:value", "sc:value"]  # a person's value is schema.org's


def test_a_document_without_a_context_is_read_by_the_recommended_one() -> None:
    terms = document_of(
        {"@type": "sc:Dataset", "recordSet": [{"field": []}], "rai:dataBiases": "x"}
    ).terms
    assert not terms.declared
    assert [entry.term for entry in terms.dataset.entries] == ["cr:recordSet", "rai:dataBiases"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "address",
    [
        "https://schema.org/",
        "http://schema.org",
        "https://schema.org/docs/jsonldcontext.jsonld",
        "http://mlcommons.org/croissant/1.0",
        "https://mlcommons.org/croissant/1.1",
    ],
)
def test_well_known_contexts_need_no_network(address: str) -> None:
    document = document_of({"@context": address, "@type": "Dataset", "name": "n", "recordSet": []})
    assert document.syntax == ()
    assert [entry.term for entry in document.terms.dataset.entries] == ["sc:name", "cr:recordSet"]  # type: ignore[union-attr]
    assert document.terms.dataset.types == ("sc:Dataset",)  # type: ignore[union-attr]


def test_other_remote_contexts_are_slips_in_their_place() -> None:
    text = (
        '{\n  "@context": [\n    "https://schema.org",\n    "https://example.org/c.jsonld"\n  ]\n}'
    )
    slip = parse_document(text.encode(), "m.json").syntax[0]
    assert (slip.kind, slip.at, slip.offset) == (
        "remote-context",
        "/@context/1",
        text.index('"https://ex'),
    )


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/",
        "http://mlcommons.org/other",
        "https://example.org/croissant",
        "https://schema.org/x",
        "x",
    ],
)
def test_contexts_elsewhere_are_not_known(address: str) -> None:
    assert [slip.kind for slip in document_of({"@context": address}).syntax] == ["remote-context"]


@pytest.mark.parametrize(
    ("context", "places"),
    [
        ({"a": "b:x", "b": "a:y"}, ["a"]),
        ({"a": 3}, ["a"]),
        ({"a": {"@id": 4}}, ["a"]),
        (17, [""]),
        ({"@vocab": 3}, ["@vocab"]),
        ([[["x"]]], ["0/0/0"]),
        ({"@base": 1}, ["@base"]),
        ({"@base": "http://[", "@language": "x"}, []),
        ({f"t{i}": f"t{i + 1}:x" for i in range(50)}, []),
        ({"a": "a"}, []),
        ({"a": "undeclared:b"}, []),
        ({"a": {"@type": 7, "@container": 8}}, []),
        (None, []),
    ],
)
def test_contexts_that_mean_nothing_do_not_stop_anything(context: Any, places: list[str]) -> None:
    document = document_of({"@context": context, "a": 1, "t0": 2, "name": "x"})
    pointers = [f"/@context/{place}".rstrip("/") for place in places]
    assert [(slip.kind[-7:], slip.at) for slip in document.syntax] == [
        ("context", at) for at in pointers
    ]
    assert document.terms.dataset is not None
    assert document.terms.dataset.entry("sc:name") is not None


def test_definitions_that_lean_on_many_others_do_not_exhaust_the_stack() -> None:
    context = {f"t{i}": f"t{i + 1}:x" for i in range(5000)}
    assert {slip.kind for slip in document_of({"@context": context, "t0": 2}).syntax} <= {"context"}


GRAPH = {
    "@context": CONTEXTS["1.1"],
    "@graph": [
        {"@id": "org", "@type": "sc:Organization", "name": "O"},
        {"@id": "ds", "@type": "sc:Dataset", "distribution": {"@id": "f"}},
        {"@id": "f", "@type": "cr:FileObject"},
    ],
}


def test_the_dataset_of_a_graph() -> None:
    terms = document_of(GRAPH).terms
    assert terms.dataset is not None
    assert (terms.dataset.at, terms.dataset.id) == ("/@graph/1", "ds")
    reference = next(terms.dataset.inner())
    assert terms.resolve(reference).at == "/@graph/2"
    assert our_nodes(terms).keys() == {"", "org", "ds", "f"}


def test_data_is_never_read_as_terms() -> None:
    records = [{"@id": "x", "name": {"@value": 1}, "nested": [{"@type": "y"}]}]
    terms = document_of(
        {
            "@context": {"@vocab": "http://schema.org/"},
            "recordSet": {"data": records, "examples": records},
        }
    ).terms
    assert [thing.at for thing in terms.everything()] == ["", "/recordSet"]
    assert next(terms.dataset.inner()).entry("cr:data").values[0].value == records  # type: ignore[union-attr]


def test_deep_documents_do_not_exhaust_the_stack() -> None:
    text = '{"@context":{"@vocab":"http://schema.org/"},"field":' + '{"subField":[' * 5000
    assert parse_document(text.encode(), "m.json").terms.dataset is not None


def test_names_are_those_of_their_vocabularies(shared_data: Path) -> None:
    turtle = Graph().parse(shared_data / "croissant" / "croissant_rai.ttl", format="turtle")
    rai = {str(subject) for subject in turtle.subjects(RDF.type, RDF.Property)}
    assert {expanded(term) for term in RAI_TERMS} == rai
    core = Graph().parse(shared_data / "croissant" / "croissant.ttl", format="turtle")
    known = {term for terms in TERMS.values() for term in terms}
    declared = {canonical(str(s)) for s in core.subjects(RDF.type, RDF.Property)}
    assert declared - known == {"cr:content"}  # of which no version of the format speaks
    schema_org = set(SDO.__annotations__)
    newer = {
        "displayLocation",
        "digitalSourceType",
        "funding",
        "grant",
        "owner",
        "measurementMethod",
    }
    assert {term[3:] for term in SCHEMA_TERMS} - schema_org <= newer | {"variablesMeasured"}
    assert {name for name in BY_NAME if name in schema_org} == SHARED_NAMES


def test_every_property_of_a_file_may_stand_where_the_vocabulary_says(shared_data: Path) -> None:
    core = Graph().parse(shared_data / "croissant" / "croissant.ttl", format="turtle")
    kinds = {
        "sc:Dataset": "dataset",
        "cr:FileObject": "file_object",
        "cr:FileSet": "file_set",
        "cr:RecordSet": "record_set",
        "cr:Field": "field",
        "cr:DataSource": "source",
        "cr:Extract": "extract",
        "cr:Transform": "transform",
    }
    for term, domain in core.subject_objects(SDO.domainIncludes):
        if canonical(str(term)) != "cr:content":
            assert canonical(str(term)) in TERMS[kinds[canonical(str(domain))]]


@pytest.mark.parametrize(("version", "folder"), [("0.8", "0.8"), ("1.0", "1.0")])
def test_recommended_contexts_are_those_of_the_suite(
    version: str, folder: str, shared_data: Path
) -> None:
    file = shared_data / "croissant" / "datasets" / folder / "recipes" / "minimal.json"
    written = json.loads(file.read_text())["@context"]
    assert dict(CONTEXTS[version]) == written  # type: ignore[index]


def test_spellings_of_types_and_formats() -> None:
    context = Context().extended(
        {"@vocab": "http://schema.org/", "S": "https://schema.org/"}, "", lambda *_: None
    )
    for spelling in (
        "Text",
        "sc:Text",
        "S:Text",
        "http://schema.org/Text",
        "https://schema.org/Text",
    ):
        assert term_of(spelling, context) == "sc:Text"
    assert (
        term_of("wd:Q5", context) == term_of("https://www.wikidata.org/wiki/Q5", context) == "wd:Q5"
    )
    assert term_of("http://example.org/Q5", context) == "http://example.org/Q5"
    parquet = (
        "application/x-parquet",
        "application/vnd.apache.parquet",
        "Application/Parquet; v=2",
    )
    assert {format_of(media) for media in parquet} == {"parquet"}
    assert format_of("application/nothing") is None
    assert all(media == media.lower() for media in ENCODING_FORMATS)
