"""The model that is built from a description, in every version and spelling."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from respelling import Respelling, without_places

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Field, Metadata, Node, Source
from holdfast.data.croissant.document.reading import parse_document
from holdfast.data.croissant.document.vocabulary import CONTEXTS

FILES = sorted((Path(__file__).parents[4] / "shared" / "data" / "croissant").rglob("*.json"))


def built(value: Any) -> Metadata:
    return build(parse_document(json.dumps(value).encode(), "metadata.json"))


def dataset(**parts: Any) -> dict[str, Any]:
    return {"@context": CONTEXTS["1.1"], "@type": "sc:Dataset", **parts}


def field(identity: str, **parts: Any) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": identity, **parts}


def records(*fields: dict[str, Any], identity: str = "r", **parts: Any) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": identity, "field": list(fields), **parts}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def fields_in(parts: Any) -> int:
    return sum(
        1 + fields_in(part.get("subField", [])) + fields_in(part.get("annotation", []))
        for part in listed(parts)
    )


def nodes_of(node: Any) -> list[Node]:
    """Every node of a model."""
    found = [node] if isinstance(node, Node) else []
    inner = (
        vars(node).values() if isinstance(node, Node) else node if isinstance(node, tuple) else ()
    )
    for part in inner:
        found += nodes_of(part)
    return found


def at(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def test_every_file_of_the_suite_has_its_parts(shared_data: Path) -> None:
    assert len(FILES) >= 100
    for file in FILES:
        value = json.loads(file.read_text(encoding="utf-8"))
        metadata = built(value)
        resources = value.get("distribution", [])
        sets = [part for part in resources if part["@type"].endswith("FileSet")]
        names = [part.get("@id") or part["name"] for part in sets]
        assert [part.id for part in metadata.file_sets] == names
        assert len(metadata.file_objects) == len(resources) - len(sets)
        assert len(metadata.record_sets) == len(value.get("recordSet", []))
        count = sum(
            fields_in(part.get("field", [])) + fields_in(part.get("annotation", []))
            for part in value.get("recordSet", [])
        )
        assert len(list(metadata.fields())) == count
        assert metadata.name == value.get("name")
        said = [text[-3:] for text in listed(value.get("conformsTo", [])) if "mlcommons" in text]
        assert metadata.version == max(said, default="0.8" if "0.8" in file.parts else "1.0")
        for node in nodes_of(metadata):
            assert isinstance(at(value, node.at), dict | str)
            for pointer in node.written.values():
                at(value, pointer)


def test_what_is_named_is_found_in_every_valid_file_of_the_suite(shared_data: Path) -> None:
    for file in FILES:
        if "datasets" not in file.parts:
            continue
        metadata = built(json.loads(file.read_text(encoding="utf-8")))
        sources = [node for node in nodes_of(metadata) if isinstance(node, Source)]
        assert all(source.kind != "unknown" for source in sources), file
        ids = {part.id for _, part in metadata.fields()}
        known = {part.id for part in (*metadata.file_objects, *metadata.file_sets)}
        for part in (*metadata.file_objects, *metadata.file_sets):
            assert {inner.target for inner in part.contained_in} <= known
        for part in metadata.record_sets:
            assert set(part.key) <= ids or not part.fields or "image_test" in str(file), file
        for _, one in metadata.fields():
            assert one.data_types or one.sub_fields, (file, one.id)


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    "file", FILES[::4], ids=[f"{f.parts[-3]}-{f.parts[-2]}-{f.stem}" for f in FILES[::4]]
)
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_spelling_builds_the_same(file: Path, data: Any) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    respelt = Respelling(data.draw, value).document()
    assert without_places(built(respelt)) == without_places(built(value))


def test_expanded_json_ld_builds_the_same() -> None:
    schema, cr = "http://schema.org/", "http://mlcommons.org/croissant/"
    expanded = [
        {
            "@id": "http://d.example/",
            "@type": [schema + "Dataset"],
            schema + "name": [{"@value": "N", "@language": "en"}],
            schema + "distribution": [
                {
                    "@id": "f",
                    "@type": [cr + "FileObject"],
                    schema + "contentUrl": [{"@value": "a.csv"}],
                    schema + "encodingFormat": [{"@value": "text/csv"}],
                }
            ],
            cr + "recordSet": [
                {
                    "@id": "r",
                    "@type": [cr + "RecordSet"],
                    cr + "data": [{"@type": "@json", "@value": [{"r/x": 1}]}],
                    cr + "field": [
                        {
                            "@id": "r/x",
                            "@type": [cr + "Field"],
                            cr + "dataType": [{"@id": schema + "Integer"}],
                            cr + "isArray": [{"@value": True}],
                            cr + "source": [{cr + "fileObject": [{"@id": "f"}]}],
                        }
                    ],
                }
            ],
        }
    ]
    metadata = built(expanded)
    assert metadata.name == "N"
    assert metadata.file_objects[0].content_url == "a.csv"
    assert metadata.record_sets[0].data == ({"r/x": 1},)
    part = metadata.record_sets[0].fields[0]
    assert (part.data_types, part.is_array, part.short) == (("sc:Integer",), True, "x")
    assert part.source is not None
    assert (part.source.target, part.source.kind, part.source.property_name) == (
        "f",
        "file_object",
        "fileObject",
    )


def test_a_flattened_graph_builds_the_same_as_a_nested_one() -> None:
    source = {"fileObject": {"@id": "f"}, "extract": {"column": "a"}}
    nested = dataset(
        distribution=[{"@id": "f", "@type": "cr:FileObject", "contentUrl": "a.csv"}],
        recordSet=[records(field("r/x", source=source), field("r/y", source={"@id": "r/x"}))],
    )
    flat = {
        "@context": CONTEXTS["1.1"],
        "@graph": [
            {"@id": "f", "@type": "cr:FileObject", "contentUrl": "a.csv"},
            {"@id": "_:s", "fileObject": {"@id": "f"}, "extract": {"@id": "_:e"}},
            {"@id": "_:e", "column": "a"},
            field("r/x", source={"@id": "_:s"}),
            field("r/y", source={"@id": "r/x"}),
            {"@id": "r", "@type": "cr:RecordSet", "field": [{"@id": "r/x"}, {"@id": "r/y"}]},
            {"@type": "sc:Dataset", "distribution": {"@id": "f"}, "recordSet": {"@id": "r"}},
        ],
    }
    one, two = built(nested), built(flat)
    assert one.file_objects[0].content_url == two.file_objects[0].content_url == "a.csv"
    for metadata in (one, two):
        first, second = metadata.record_sets[0].fields
        assert first.source is not None
        assert first.source.extract is not None
        assert (first.source.target, first.source.extract.column) == ("f", "a")
        assert second.source is not None
        assert (second.source.target, second.source.kind) == ("r/x", "field")


SOURCES: list[tuple[Any, str, str, str]] = [
    ("f", "f", "file_object", "@id"),
    ({"@id": "f"}, "f", "file_object", "@id"),
    ({"@id": "o/k"}, "o/k", "field", "@id"),
    ({"fileObject": {"@id": "f"}}, "f", "file_object", "fileObject"),
    ({"fileObject": "f"}, "f", "file_object", "fileObject"),
    ({"fileSet": {"@id": "s"}}, "s", "file_set", "fileSet"),
    ({"fileObject": {"@id": "s"}}, "s", "file_set", "fileObject"),
    ({"distribution": {"@id": "s"}}, "s", "file_set", "distribution"),
    ({"recordSet": {"@id": "o"}}, "o", "record_set", "recordSet"),
    ({"field": {"@id": "o/k"}}, "o/k", "field", "field"),
    ({"field": "o/k"}, "o/k", "field", "field"),
    (
        {"@type": "cr:DataSource", "@id": "here", "fileObject": {"@id": "f"}},
        "f",
        "file_object",
        "fileObject",
    ),
    ({"@id": "f", "extract": {"column": "c"}}, "f", "file_object", "@id"),
    ({"fileObject": {"@id": "gone"}}, "gone", "unknown", "fileObject"),
    ({"fileObject": {}}, "", "unknown", "fileObject"),
    ({"extract": {"column": "c"}}, "", "unknown", ""),
    ([{"@id": "o/k"}, {"@id": "f"}], "o/k", "field", "@id"),
]


@pytest.mark.parametrize(
    ("source", "target", "kind", "said"), SOURCES, ids=[str(case[0])[:50] for case in SOURCES]
)
@pytest.mark.parametrize("property", ["source", "references"])
def test_sources_and_references_in_all_their_forms(
    source: Any, target: str, kind: str, said: str, property: str
) -> None:
    value = dataset(
        distribution=[
            {"@id": "f", "@type": "cr:FileObject"},
            {"@id": "s", "@type": "cr:FileSet"},
        ],
        recordSet=[
            records(field("o/k"), identity="o"),
            records(field("r/x", **{property: source})),
        ],
    )
    part = built(value).record_sets[1].fields[0]
    found = part.source if property == "source" else part.references[0]
    assert found is not None
    assert (found.target, found.kind, found.property_name) == (target, kind, said)


def test_extracts_and_transforms() -> None:
    source = {
        "fileSet": {"@id": "s"},
        "extract": {"fileProperty": "cr:fullpath"},
        "transform": [
            {"regex": "(a)"},
            {"separator": ","},
            {"delimiter": ";"},
            {"replace": "a/b"},
            {"jsonPath": "$.x"},
            {"format": "yyyy"},
            {"samplingRate": "8000"},
            {"readLines": True, "unArchive": "https://schema.org/True"},
        ],
        "format": "%Y",
        "samplingRate": 22050,
    }
    part = built(dataset(recordSet=[records(field("r/x", source=source))])).record_sets[0].fields[0]
    found = part.source
    assert found is not None
    assert found.extract is not None
    assert (found.format, found.sampling_rate, found.extract.file_property) == (
        "%Y",
        22050,
        "fullpath",
    )
    steps = found.transforms
    assert [step.regex for step in steps] == ["(a)", *[None] * 7]
    assert [step.separator for step in steps[:3]] == [None, ",", ";"]
    assert (steps[3].replace, steps[4].json_path, steps[5].format) == ("a/b", "$.x", "yyyy")
    assert (steps[6].sampling_rate, steps[7].read_lines, steps[7].un_archive) == (8000, True, True)
    assert steps[1].where("cr:separator") == "/recordSet/0/field/0/source/transform/1/separator"
    assert steps[1].where("cr:regex") == "/recordSet/0/field/0/source/transform/1"


@pytest.mark.parametrize(("own", "expected"), [({}, "%Y"), ({"format": "%m"}, "%m")])
def test_a_format_beside_the_source_is_the_source_s_where_it_has_none(
    own: Any, expected: str
) -> None:
    value = dataset(recordSet=[records(field("r/x", source={"@id": "f", **own}, format="%Y"))])
    part = built(value).record_sets[0].fields[0]
    assert part.source is not None
    assert part.source.format == expected


@pytest.mark.parametrize(
    ("written", "shape"),
    [
        ("-1,3", (-1, 3)),
        ("(-1,)", (-1,)),
        ("(2, 3)", (2, 3)),
        ("[4]", (4,)),
        ("-1", (-1,)),
        ([-1, 3], (-1, 3)),
        (5, (5,)),
        ("", None),
        ("a,b", None),
        ({}, None),
        (True, None),
        ("9" * 5000, None),
    ],
)
def test_shapes(written: Any, shape: Any) -> None:
    value = dataset(recordSet=[records(field("r/x", isArray=True, arrayShape=written))])
    assert built(value).record_sets[0].fields[0].array_shape == shape


@pytest.mark.parametrize(
    ("contained", "targets"),
    [
        ("z", ["z"]),
        ({"@id": "z"}, ["z"]),
        ([{"@id": "z"}, {"@id": "y"}], ["z", "y"]),
        (["z", "y"], ["z", "y"]),
        (
            {
                "@type": "cr:DataSource",
                "fileObject": {"@id": "z"},
                "transform": {"unArchive": True},
            },
            ["z"],
        ),
        ({"fileSet": {"@id": "y"}}, ["y"]),
        ({"@id": "gone"}, ["gone"]),
        ({}, []),
    ],
)
def test_containers_in_all_their_forms(contained: Any, targets: list[str]) -> None:
    value = dataset(
        distribution=[
            {"@id": "z", "@type": "cr:FileObject"},
            {"@id": "y", "@type": "cr:FileSet"},
            {"@id": "f", "@type": "cr:FileSet", "containedIn": contained},
        ]
    )
    found = built(value).resource("f").contained_in
    assert [inner.target for inner in found] == targets
    if isinstance(contained, dict) and "transform" in contained:
        assert found[0].transforms[0].un_archive


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"@id": "r/x"}, ("r/x",)),
        ("r/x", ("r/x",)),
        ({"@id": "x"}, ("r/x",)),
        ([{"@id": "y"}, {"@id": "r/x"}], ("r/y", "r/x")),
        ("label", ("r/z",)),
        ({"@id": "gone"}, ("gone",)),
    ],
)
def test_keys(key: Any, expected: tuple[str, ...]) -> None:
    parts = (field("r/x"), field("r/y"), field("r/z", name="label"))
    assert built(dataset(recordSet=[records(*parts, key=key)])).record_sets[0].key == expected


def test_names_are_ids_in_version_0_8(shared_data: Path) -> None:
    value = json.loads(
        (shared_data / "croissant" / "datasets" / "0.8" / "movielens" / "metadata.json").read_text()
    )
    metadata = built(value)
    joined = metadata.record_set("movies_with_ratings_with_tags")
    ratings = joined.field("ratings")
    assert (ratings.id, ratings.key, ratings.short) == (
        f"{joined.id}/ratings",
        "ratings",
        "ratings",
    )
    rating = ratings.sub_fields[1]
    assert rating.id == f"{joined.id}/ratings/rating"
    assert (rating.key, rating.short, rating.data_types, rating.inherited) == (
        "rating",
        "rating",
        ("sc:Float",),
        True,
    )
    assert rating.source is not None
    assert (rating.source.target, rating.source.kind, rating.source.property_name) == (
        "ratings/rating",
        "field",
        "field",
    )
    parent = ratings.parent_field
    assert parent is not None
    assert parent.source is not None
    assert parent.references is not None
    assert (parent.source.target, parent.references.target) == (
        "ratings/movie_id",
        "movies/movie_id",
    )
    assert joined.key == (f"{joined.id}/movie_id",)
    assert metadata.resource("ratings-table").contained_in[0].target == "ml-25m-archive"
    assert joined.field("movie_genres").data_types == ("sc:Text",)


def test_ids_and_names() -> None:
    value = dataset(
        distribution=[{"@type": "cr:FileObject", "name": "only-name"}, {"@type": "cr:FileSet"}],
        recordSet=[
            records(
                field("users/email"),
                {"@type": "cr:Field", "name": "age"},
                {"@type": "cr:Field", "name": "users/count"},
                field("elsewhere/x"),
                field("users/gps", subField=[field("users/lat"), field("users/gps/lon")]),
                {"@type": "cr:Field"},
                identity="users",
            )
        ],
    )
    metadata = built(value)
    assert metadata.file_objects[0].id == "only-name"
    assert metadata.file_sets[0].id == "/distribution/1"
    parts = metadata.record_sets[0].fields
    ids = [part.id for part in parts]
    assert ids == [
        "users/email",
        "users/age",
        "users/count",
        "elsewhere/x",
        "users/gps",
        "/recordSet/0/field/5",
    ]
    assert [part.short for part in parts][:5] == ["email", "age", "count", "elsewhere/x", "gps"]
    assert [part.short for part in parts[4].sub_fields] == ["lat", "lon"]
    assert all(part.key == part.id for part in parts)


def test_short_names_stay_apart() -> None:
    parts = (
        built(dataset(recordSet=[records(field("r/x"), field("x"), field("q"))]))
        .record_sets[0]
        .fields
    )
    assert [part.short for part in parts] == ["x", "x", "q"] or len(
        {part.short for part in parts}
    ) == 3


def test_two_spellings_of_one_id_meet() -> None:
    value = dataset(
        distribution=[{"@id": "http://d.example/files/a", "@type": "cr:FileObject"}],
        recordSet=[
            records(
                field("r/x", source={"fileObject": {"@id": "ex:a"}}), field("y", source="files/a")
            )
        ],
    )
    value["@context"] = {
        **CONTEXTS["1.1"],
        "ex": "http://d.example/files/",
        "@base": "http://d.example/",
    }
    for part in built(value).record_sets[0].fields:
        assert part.source is not None
        assert (part.source.target, part.source.kind) == ("http://d.example/files/a", "file_object")


def test_types_are_inherited_along_chains_and_cycles_are_harmless() -> None:
    metadata = built(
        dataset(
            recordSet=[
                records(
                    field("r/a", dataType="sc:Date"),
                    field("r/b", source={"field": {"@id": "r/a"}}),
                    field("r/c", source={"@id": "r/b"}),
                    field("r/d", source={"@id": "r/e"}),
                    field("r/e", source={"@id": "r/d"}),
                    field("r/f", source={"@id": "r/f"}),
                    field("r/g", references={"@id": "r/c"}),
                )
            ]
        )
    )
    types = {
        part.short: (part.data_types, part.inherited) for part in metadata.record_sets[0].fields
    }
    assert types["a"] == (("sc:Date",), False)
    assert types["b"] == types["c"] == types["g"] == (("sc:Date",), True)
    assert types["d"] == types["e"] == types["f"] == ((), False)


def test_fields_that_contain_each_other_have_one_place_each() -> None:
    graph = {
        "@context": CONTEXTS["1.1"],
        "@graph": [
            {"@type": "sc:Dataset", "recordSet": {"@id": "r"}},
            {"@id": "r", "@type": "cr:RecordSet", "field": [{"@id": "r/a"}, {"@id": "r/b"}]},
            field("r/a", subField={"@id": "r/b"}),
            field("r/b", subField={"@id": "r/a"}),
        ],
    }
    assert {part.id for _, part in built(graph).fields()} == {"r/a", "r/b"}


def test_inline_records_constants_and_examples() -> None:
    one = {"r/x": 1}
    for data, expected in (
        (one, (one,)),
        ([one, one], (one, one)),
        ([], ()),
        (json.dumps([one]), (one,)),
    ):
        assert built(dataset(recordSet=[records(data=data)])).record_sets[0].data == expected
    for data in (None, "{"):
        assert built(dataset(recordSet=[records(data=data)])).record_sets[0].data is None
    assert built(dataset(recordSet=[records()])).record_sets[0].data is None
    parts = built(
        dataset(
            recordSet=[
                records(
                    field("r/a", value={"@id": "kept"}),
                    field("r/b", value=None),
                    field("r/c"),
                    examples=[{"@value": 1}],
                )
            ]
        )
    ).record_sets[0]
    assert [(part.value, part.has_value) for part in parts.fields] == [
        ({"@id": "kept"}, True),
        (None, True),
        (None, False),
    ]
    assert parts.examples == [{"@value": 1}]


def test_the_dataset_itself() -> None:
    metadata = built(
        dataset(
            **{
                "conformsTo": [
                    "http://mlcommons.org/croissant/1.0",
                    {"@id": "http://mlcommons.org/croissant/1.1"},
                ],
                "name": [
                    {"@value": "fr", "@language": "fr"},
                    {"@value": "english", "@language": "en"},
                ],
                "description": 7,
                "url": {"@id": "http://d.example"},
                "license": ["https://l.example", {"@type": "CreativeWork", "name": "L"}],
                "creator": {"@type": "Person", "name": "P"},
                "keywords": [
                    "a",
                    {"@type": "DefinedTerm", "name": "b"},
                    {"@id": "http://k.example"},
                ],
                "version": 1.0,
                "isLiveDataset": "true",
                "citeAs": "me",
                "rai:dataBiases": ["x", "y"],
                "inLanguage": "en",
                "prov:wasDerivedFrom": {"@id": "http://o.example"},
            }
        )
    )
    assert metadata.version == "1.1"
    assert metadata.conforms_to == (
        "http://mlcommons.org/croissant/1.0",
        "http://mlcommons.org/croissant/1.1",
    )
    assert (metadata.name, metadata.description, metadata.url) == (
        "english",
        None,
        "http://d.example",
    )
    assert metadata.licenses == ("https://l.example", {"@type": "CreativeWork", "name": "L"})
    assert metadata.creators == ({"@type": "Person", "name": "P"},)
    assert metadata.keywords == ("a", "b", "http://k.example")
    assert (metadata.dataset_version, metadata.is_live, metadata.cite_as) == ("1.0", True, "me")
    assert metadata.properties == {
        "rai:dataBiases": ("x", "y"),
        "sc:inLanguage": ("en",),
        "prov:wasDerivedFrom": ({"@id": "http://o.example"},),
    }


@pytest.mark.parametrize(
    ("conforms", "version"),
    [
        ("http://mlcommons.org/croissant/1.1", "1.1"),
        ("https://mlcommons.org/croissant/1.0/", "1.0"),
        ("http://mlcommons.org/croissant/1.10", "1.1"),
        ("http://mlcommons.org/croissant/RAI/1.0", "1.0"),
        ("http://mlcommons.org/croissant/0.8", "0.8"),
        ("something", "1.0"),
        (None, "1.0"),
    ],
)
def test_versions(conforms: Any, version: str) -> None:
    assert built(dataset(conformsTo=conforms)).version == version


WORDS = (
    *("@id", "@type", "@value", "@language", "@context", "@graph", "@list", "@set", "@container"),
    *(
        "name",
        "field",
        "recordSet",
        "subField",
        "distribution",
        "source",
        "references",
        "fileObject",
    ),
    *(
        "extract",
        "transform",
        "containedIn",
        "key",
        "data",
        "dataType",
        "parentField",
        "annotation",
    ),
    *("arrayShape", "samplingRate", "value", "keywords", "conformsTo", "sc:name", "cr:key"),
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(
        ["", "r", "r/x", "f", "@id", "sc:Text", "cr:Field", "_:b", "http://[", "a:b:c", "-1,3"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JUNK)
def test_nothing_that_is_written_raises(value: Any) -> None:
    for document in (
        value,
        {"@context": CONTEXTS["1.1"], "recordSet": value, "distribution": value},
    ):
        parsed = parse_document(json.dumps(document).encode(), "m.json")
        build(parsed)
        assert parsed.syntax is not None


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.skipif(not FILES, reason="no shared data")
@given(
    st.sampled_from([file for file in FILES if file.stat().st_size < 20_000] or [Path()]),
    JUNK,
    st.data(),
)
def test_no_change_of_a_description_raises(file: Path, junk: Any, data: Any) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    changed = copy.deepcopy(value)
    node: Any = changed
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if (
            not isinstance(node[key], dict | list)
            or not node[key]
            or data.draw(st.integers(0, 3)) == 0
        ):
            node[key] = junk
            break
        node = node[key]
    metadata = built(changed)
    assert all(isinstance(part, Field) for _, part in metadata.fields())
