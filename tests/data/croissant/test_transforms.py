"""Transforms and casts against Python: re, json, datetime, and values worked out by hand."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

import duckdb
import pytest
from croissant_local_files import field, shared_connection, step
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonpath_ng.ext.parser import parse

from holdfast.data.croissant.document.model import Source
from holdfast.data.croissant.scanning.columns import Column
from holdfast.data.croissant.scanning.json_paths import all_matches, steps_of
from holdfast.data.croissant.scanning.transforms import value_sql
from holdfast.data.croissant.scanning.types import arrow_of, arrow_type, duckdb_type
from holdfast.errors import InputError

UTC = dt.timezone.utc  # noqa: UP017 (Python 3.11's name for it is an alias)


def value(
    given_value: Any,
    type_of_it: str,
    *data_types: str,
    transforms: tuple[Any, ...] = (),
    format: str | None = None,
    lenient: bool = False,
    **more: Any,
) -> Any:
    """What becomes of one value; the engine's type is the one that was announced."""
    part = field("f", *data_types, transforms=transforms, format=format, **more)
    assert isinstance(part.source, Source)
    made = value_sql(Column("x", type_of_it), part, part.source)
    if lenient:
        made = Column(f"TRY({made.sql})", made.type)
    connection = shared_connection()
    relation = connection.execute(
        f"SELECT {made.sql} AS v, typeof({made.sql}) FROM (SELECT CAST(? AS {type_of_it}) AS x)",
        [given_value],
    )
    found, kind = relation.fetchall()[0]
    assert kind.replace('"', "") == made.type.replace('"', "")
    return found


# Text as numbers, booleans, dates -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "data_type", "expected"),
    [
        ("12", "sc:Integer", 12),
        (" 12 ", "sc:Integer", 12),
        ("3.0", "sc:Integer", 3),
        ("1e3", "sc:Integer", 1000),
        ("9007199254740993", "sc:Integer", 9007199254740993),
        ("NA", "sc:Integer", None),
        ("  ", "sc:Integer", None),
        ("255", "cr:UInt8", 255),
        ("18446744073709551615", "cr:UInt64", 2**64 - 1),
        ("-128", "cr:Int8", -128),
        ("0.5", "sc:Float", 0.5),
        ("nan", "sc:Float", None),
        ("0.1", "sc:Number", 0.1),
        ("0.5", "cr:Float32", 0.5),
        ("0.5", "cr:Float16", 0.5),
        ("TRUE", "sc:Boolean", True),
        ("f", "sc:Boolean", False),
        ("1", "sc:Boolean", True),
        ("no", "sc:Boolean", False),
        ("n/a", "sc:Boolean", None),
        ("NA", "sc:Text", "NA"),
        ("NA", "sc:URL", "NA"),
        ("2020-01-02", "sc:Date", dt.date(2020, 1, 2)),
        ("2020-01-02T00:00:00", "sc:Date", dt.date(2020, 1, 2)),
        ("null", "sc:Date", None),
        ("2020-01-02", "sc:DateTime", dt.datetime(2020, 1, 2)),
        ("2020-01-02 10:00:00.25", "sc:DateTime", dt.datetime(2020, 1, 2, 10, 0, 0, 250000)),
        ("23:59:01", "sc:Time", dt.time(23, 59, 1)),
        ("0 1 2 3.5", "cr:BoundingBox", (0.0, 1.0, 2.0, 3.5)),
        ("[0, 1, 2, 3.5]", "cr:BoundingBox", (0.0, 1.0, 2.0, 3.5)),
        ("NA", "cr:BoundingBox", None),
        ("0 1 2 3", "cr:SegmentationMask", [(0.0, 1.0), (2.0, 3.0)]),
        ("[]", "cr:SegmentationMask", []),
        ("x", "wd:Q5", "x"),
    ],
)
def test_text_becomes_what_is_declared(text, data_type, expected):
    assert value(text, "VARCHAR", data_type) == expected
    assert value(json.dumps(text), "JSON", data_type) == expected
    assert value(text.encode(), "BLOB", data_type) == expected


@pytest.mark.parametrize(
    ("given_value", "kind", "data_type"),
    [
        ("3.5", "VARCHAR", "sc:Integer"),
        ("15e-1", "VARCHAR", "sc:Integer"),
        ("1e-9", "VARCHAR", "sc:Integer"),
        ("abc", "VARCHAR", "sc:Integer"),
        ("9223372036854775808", "VARCHAR", "sc:Integer"),
        ("256", "VARCHAR", "cr:UInt8"),
        ("-1", "VARCHAR", "cr:UInt8"),
        ("1,5", "VARCHAR", "sc:Float"),
        ("maybe", "VARCHAR", "sc:Boolean"),
        ("2", "VARCHAR", "sc:Boolean"),
        ("2020-01-02 10:00", "VARCHAR", "sc:Date"),
        ("2020-13-01", "VARCHAR", "sc:Date"),
        ("05/06/2020", "VARCHAR", "sc:DateTime"),
        ("25:00:00", "VARCHAR", "sc:Time"),
        ("1 2 3", "VARCHAR", "cr:BoundingBox"),
        ("1 2 x 3", "VARCHAR", "cr:BoundingBox"),
        ("[]", "VARCHAR", "cr:BoundingBox"),
        ("1 2 3", "VARCHAR", "cr:SegmentationMask"),
        (b"\xff", "BLOB", "sc:Text"),
        (3.5, "DOUBLE", "sc:Integer"),
        (2, "INTEGER", "sc:Boolean"),
        (300, "INTEGER", "cr:Int8"),
        ('{"a": 1}', "JSON", "sc:Integer"),
    ],
)
def test_what_does_not_fit_fails_and_is_null_where_that_is_asked(given_value, kind, data_type):
    with pytest.raises(duckdb.Error):
        value(given_value, kind, data_type)
    assert value(given_value, kind, data_type, lenient=True) is None


@pytest.mark.parametrize(
    ("given_value", "kind", "data_type", "expected"),
    [
        (4.0, "DOUBLE", "sc:Integer", 4),
        (float("nan"), "DOUBLE", "sc:Integer", None),
        (True, "BOOLEAN", "sc:Integer", 1),
        (1, "INTEGER", "sc:Boolean", True),
        (3, "INTEGER", "sc:Float", 3.0),
        (3, "INTEGER", "sc:Text", "3"),
        (dt.datetime(2020, 1, 2, 3), "TIMESTAMP", "sc:Date", dt.datetime(2020, 1, 2, 3)),
        (dt.date(2020, 1, 2), "DATE", "sc:DateTime", dt.datetime(2020, 1, 2)),
        ([1, 2], "INTEGER[]", "sc:Text", ["1", "2"]),
        ({"bytes": b"x", "path": "p"}, "STRUCT(bytes BLOB, path VARCHAR)", "sc:ImageObject", b"x"),
        (b"\xff", "BLOB", "sc:AudioObject", b"\xff"),
        ([1, 2, 3, 4], "INTEGER[]", "cr:BoundingBox", (1.0, 2.0, 3.0, 4.0)),
        ([[1, 2], [3, 4]], "INTEGER[][]", "cr:SegmentationMask", [(1.0, 2.0), (3.0, 4.0)]),
        ([1, 2, 3, 4], "INTEGER[]", "cr:SegmentationMask", [(1.0, 2.0), (3.0, 4.0)]),
    ],
)
def test_columns_with_types(given_value, kind, data_type, expected):
    assert value(given_value, kind, data_type) == expected


@pytest.mark.parametrize(
    ("kind", "data_type"),
    [
        ("VARCHAR", "sc:ImageObject"),
        ("TIMESTAMP", "sc:Integer"),
        ("STRUCT(a INTEGER)", "sc:Float"),
        ("INTEGER", "sc:DateTime"),
        ("TIMESTAMP", "sc:Time"),
        ("INTEGER", "cr:BoundingBox"),
    ],
)
def test_types_that_can_become_nothing_of_the_kind(kind, data_type):
    with pytest.raises(InputError, match="r/f"):
        value(None, kind, data_type)


# Arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "kind", "shape", "expected"),
    [
        ([1, 2, 3], "INTEGER[]", None, [1.0, 2.0, 3.0]),
        ([1, 2, 3], "INTEGER[]", (3,), (1.0, 2.0, 3.0)),
        ([1, 2, 3, 4], "INTEGER[]", (2, 2), ((1.0, 2.0), (3.0, 4.0))),
        ([1, 2, 3, 4], "INTEGER[]", (-1, 2), [(1.0, 2.0), (3.0, 4.0)]),
        ([[1], [2, 3]], "INTEGER[][]", (-1, -1), [[1.0], [2.0, 3.0]]),
        ("[[1, 2], [3, 4]]", "JSON", (2, 2), ((1.0, 2.0), (3.0, 4.0))),
        ('["1", null]', "JSON", (-1,), [1.0, None]),
        ("[1, 2]", "VARCHAR", (2,), (1.0, 2.0)),
        ("null", "JSON", (2,), None),
        (None, "INTEGER[]", (3,), None),
    ],
)
def test_arrays(given_value, kind, shape, expected):
    assert value(given_value, kind, "sc:Float", is_array=True, array_shape=shape) == expected


@pytest.mark.parametrize(
    ("given_value", "kind", "shape"),
    [
        ([1, 2], "INTEGER[]", (3,)),
        ([1, 2, 3], "INTEGER[]", (-1, 2)),
        ([[1, 2], [3]], "INTEGER[][]", (-1, 2)),
        ("3", "JSON", (-1,)),
    ],
)
def test_arrays_of_another_size_fail(given_value, kind, shape):
    with pytest.raises(duckdb.Error):
        value(given_value, kind, "sc:Float", is_array=True, array_shape=shape)


def test_an_array_of_single_values_is_refused():
    with pytest.raises(InputError, match="isArray"):
        value(1, "INTEGER", "sc:Float", is_array=True)


@pytest.mark.parametrize(
    ("data_types", "more", "duck", "arrow"),
    [
        (("cr:Float16",), {}, "FLOAT", "halffloat"),
        (("cr:BoundingBox",), {"is_array": True, "array_shape": (4,)}, "DOUBLE[4]", None),
        (("cr:BoundingBox",), {"repeated": True}, "DOUBLE[4][]", None),
        (("cr:BoundingBox",), {"is_array": True, "array_shape": (-1, 4)}, "DOUBLE[4][]", None),
        (("cr:SegmentationMask",), {"is_array": True, "array_shape": (-1, 2)}, "DOUBLE[2][]", None),
        (("cr:SegmentationMask",), {"repeated": True}, "DOUBLE[2][][]", None),
        (("cr:SegmentationMask", "sc:ImageObject"), {}, "BLOB", "binary"),
        (("sc:Integer",), {"is_array": True, "array_shape": (2, -1, 3)}, "BIGINT[3][][2]", None),
        (("sc:Date",), {"format": "%Y-%m-%d %H:%M"}, "TIMESTAMP", "timestamp[us]"),
        (("sc:Date",), {"format": "dd.MM.yyyy"}, "DATE", "date32[day]"),
        (
            ("sc:DateTime",),
            {"format": "yyyy-MM-dd HH:mm:ssX"},
            "TIMESTAMP WITH TIME ZONE",
            "timestamp[us, tz=UTC]",
        ),
        (("cr:Split", "sc:Text"), {}, "VARCHAR", "string"),
    ],
)
def test_types_of_fields(data_types, more, duck, arrow):
    part = field("f", *data_types, **more)
    assert duckdb_type(part) == duck
    assert arrow_type(part) == (arrow_of(duck) if arrow != "halffloat" else arrow_type(part))
    assert arrow is None or str(arrow_type(part)) == arrow


# Transforms -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    pattern=st.sampled_from(
        [
            r"a(b*)",
            r"(a|b)+c?",
            r"(?:x(a)|y(b))?",
            r".*/(train|test)/.*",
            r"a(b)?",
            r"([^/]*)\.jpg",
            r"(?i)(AB)",
        ]
    ),
    text=st.one_of(
        st.text("abcxy/", max_size=8), st.sampled_from(["d/train/1.jpg", "1.jpg", "", "aB"])
    ),
)
def test_regex_is_pythons_match(pattern, text):
    match = re.match(pattern, text)
    expected = (
        next((group for group in match.groups() if group is not None), None) if match else None
    )
    assert value(text, "VARCHAR", "sc:Text", transforms=(step(regex=pattern),)) == expected


@settings(max_examples=100, deadline=None)
@given(text=st.text("ab/\n\\.", max_size=10))
def test_replace_is_pythons_sub(text):
    for written, pattern, replacement in [
        ("a/x", "a", "x"),
        (r"a\/b/\/", "a/b", "/"),
        (r"\n/<eos>", r"\n", "<eos>"),
        (r"(a)(b)/\2\1", r"(a)(b)", r"\2\1"),
        (r"\./", r"\.", ""),
        (r"a/b/c", "a", "b/c"),
    ]:
        assert value(text, "VARCHAR", "sc:Text", transforms=(step(replace=written),)) == re.sub(
            pattern, replacement, text
        )


@settings(max_examples=100, deadline=None)
@given(text=st.text("ab|,\r\n", max_size=12))
def test_separator_and_lines(text):
    split = value(text, "VARCHAR", "sc:Text", transforms=(step(separator="|"),), repeated=True)
    assert split == text.split("|")
    lines = value(text, "VARCHAR", "sc:Text", transforms=(step(read_lines=True),), repeated=True)
    assert lines == [line.decode() for line in text.encode().splitlines()]


def test_transforms_in_order_and_elementwise():
    steps = (step(separator="|"), step(regex=r"(\d+)"), step(replace="1/9"))
    assert value("1a|b|21", "VARCHAR", "sc:Integer", transforms=steps, repeated=True) == [
        9,
        None,
        29,
    ]
    # Not declared as a list: kept as one all the same.
    assert value("1|2", "VARCHAR", "sc:Integer", transforms=steps[:1]) == [1, 2]


@pytest.mark.parametrize(
    "changed", [{"regex": "b"}, {"regex": "(?=a)(b)"}, {"regex": "(a"}, {"replace": "a"}]
)
def test_transforms_that_cannot_be_carried_out(changed):
    with pytest.raises(InputError, match="r/f"):
        value("a", "VARCHAR", "sc:Text", transforms=(step(**changed),))


# JSONPaths ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c d"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["", "x", "é"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)
PATHS = st.lists(
    st.sampled_from([".a", ".b", "['c d']", "[0]", "[1]", "[*]", "..a", "..b"]),
    min_size=1,
    max_size=4,
).map(lambda steps: "$" + "".join(steps))


@pytest.mark.examples(60)
@settings(max_examples=400, deadline=None)
@given(document=VALUES, path=PATHS)
def test_paths_find_what_jsonpath_ng_finds(document, path):
    steps = steps_of(path)
    query = f"SELECT {all_matches('x', steps)} FROM (SELECT CAST(? AS JSON) AS x)"
    found = shared_connection().execute(query, [json.dumps(document)]).fetchall()[0][0]
    assert [json.loads(text) for text in found] == [
        match.value for match in parse(path).find(document)
    ]


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("bytes", ("bytes",)),
        ("$", ()),
        ("a.b[0]", ("a", "b", 0)),
        ("$['a b'][*]", ("a b", None)),
        ("$.Q-Type", ("Q-Type",)),
        ("$.a.*", ("a", None)),
    ],
)
def test_steps_of_paths(path, steps):
    assert steps_of(path) == steps


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.a[[", "'[['"),
        ("$.a[?(@.b > 1)].c", "'[?(@.b > 1)].c'"),
        ("$.a[0:2]", "'[0:2]'"),
        (".a", "'.a'"),
    ],
)
def test_text_that_is_no_path_is_refused_from_where_it_ends(path, found):
    with pytest.raises(InputError) as told:
        steps_of(path)
    assert (told.value.code, told.value.found) == ("invalid-syntax", found)


@pytest.mark.parametrize(
    ("given_value", "kind", "path", "more", "expected"),
    [
        ({"a": {"b": 1}}, "STRUCT(a STRUCT(b INTEGER))", "$.a.b", {}, 1),
        ([{"a": 1}, None], "STRUCT(a INTEGER)[]", "a", {"repeated": True}, [1, None]),
        ({"a": [{"b": 1}, {"b": 2}]}, "STRUCT(a STRUCT(b INTEGER)[])", "a[1].b", {}, 2),
        (
            {"a": [{"b": 1}, {"b": 2}]},
            "STRUCT(a STRUCT(b INTEGER)[])",
            "a.b",
            {"repeated": True},
            [1, 2],
        ),
        ([5, 6], "INTEGER[]", "$[*]", {}, 5),
        ({"key": ["k"], "value": [[7]]}, "MAP(VARCHAR, INTEGER[])", "k", {"repeated": True}, [7]),
        ('{"a": [{"b": 3}]}', "JSON", "$.a[*].b", {}, 3),
        ('{"a": [{"b": 3}]}', "VARCHAR", "$..b", {}, 3),
        ('[{"b": 3}, {}]', "JSON", "b", {"repeated": True}, [3, None]),
        ('{"a": [{"b": 3}, {"b": 4}]}', "JSON", "$.a[*].b", {"repeated": True}, [3, 4]),
        ('[{"b": 3}, {"b": [4, 5]}]', "VARCHAR", "$[*].b", {"repeated": True}, [3, 4, 5]),
        ('{"a": []}', "JSON", "$.a[*].b", {"repeated": True}, []),
        (None, "JSON", "$.a[*].b", {"repeated": True}, None),
        (
            {"a": [{"b": 1}, {"b": 2}]},
            "STRUCT(a STRUCT(b INTEGER)[])",
            "$.a[*].b",
            {"repeated": True},
            [1, 2],
        ),
        ('{"a": null}', "JSON", "a", {}, None),
        ('{"a": 1}', "JSON", "b", {}, None),
    ],
)
def test_json_path_in_values(given_value, kind, path, more, expected):
    assert (
        value(given_value, kind, "sc:Integer", transforms=(step(json_path=path),), **more)
        == expected
    )


def test_members_that_the_type_lacks_are_named():
    with pytest.raises(InputError, match="did you mean 'width'"):
        value(None, "STRUCT(width INTEGER)", "sc:Integer", transforms=(step(json_path="widht"),))
    with pytest.raises(InputError, match=r"not a supported JSONPath"):
        value(None, "JSON", "sc:Integer", transforms=(step(json_path="$.a[?(@.b > 1)]"),))
