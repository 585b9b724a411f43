"""JSON and JSON Lines against json and jsonpath-ng."""

from __future__ import annotations

import gzip
import json

import duckdb
import made_datasets
import pytest
from croissant_local_files import (
    column,
    connect,
    field,
    file_property,
    json_path,
    members_of,
    rows_of,
    scan_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonpath_ng.ext.parser import parse

from holdfast.errors import InputError

JSON, LINES = ["application/json"], ["application/jsonlines"]
TEXTS = st.text('aé"\\\n ', max_size=4)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), TEXTS)
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "A"]), SCALARS, max_size=3), min_size=1, max_size=6
)
COCO = {
    "info": {"version": "1.0"},
    "images": [{"id": 1, "w": 5}, {"id": 2}],
    "annotations": [
        {"id": 7, "image_id": 1, "bbox": [1, 2, 3, 4]},
        {"id": 8, "image_id": 2, "bbox": [1, 2, 3, 4.5]},
    ],
}


def as_text(value):
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def write(path, value):
    path.write_text(json.dumps(value))
    return members_of(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(records=RECORDS, layout=st.sampled_from(["array", "lines", "packed"]))
def test_records_by_column(tmp_path, records, layout):
    text = (
        json.dumps(records, indent=1)
        if layout == "array"
        else "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    )
    path = tmp_path / "records"
    path.write_bytes(gzip.compress(text.encode()) if layout == "packed" else text.encode())
    wanted = [name for name in ("a", "b") if any(name in record for record in records)]
    if not wanted:
        return
    found = rows_of(
        members_of(path),
        JSON if layout == "array" else LINES,
        *(field(name, "sc:Text", extract=column(name)) for name in wanted),
        field("line", "sc:Integer", extract=file_property("lineNumbers")),
    )
    assert found == [
        (*(as_text(record.get(name)) for name in wanted), place)
        for place, record in enumerate(records)
    ]


def test_types_that_change_along_the_file(tmp_path):
    records = [{"a": 1}] * 30_000 + [{"a": "2"}, {"a": 3.0}, {"b": [4, 5]}]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    found = rows_of(
        members_of(path),
        LINES,
        field("a", "sc:Integer", extract=column("a")),
        field("b", "sc:Integer", extract=column("b"), repeated=True),  # only in the last record
    )
    assert len(found) == 30_003
    assert found[-3:] == [(2, None), (3, None), (None, [4, 5])]


def test_the_list_of_an_object_that_has_the_columns(tmp_path):
    members = write(tmp_path / "coco.json", COCO)
    names = [("id", "sc:Integer"), ("image_id", "sc:Integer"), ("bbox", "cr:BoundingBox")]
    assert rows_of(
        members, JSON, *(field(name, kind, extract=column(name)) for name, kind in names)
    ) == [
        (7, 1, (1.0, 2.0, 3.0, 4.0)),
        (8, 2, (1.0, 2.0, 3.0, 4.5)),
    ]
    with pytest.raises(InputError, match="'images', 'annotations' all have them"):
        scan_of(connect(), members, JSON, column("id"))
    with pytest.raises(InputError, match="'images' lacks 'bbox'"):
        scan_of(connect(), members, JSON, column("w"), column("bbox"))
    single = write(tmp_path / "one.json", {"name": "x", "tags": ["a"]})
    assert rows_of(single, JSON, field("name", extract=column("name"))) == [("x",)]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["$.images[*].id", "$.images[*].w"], [("1", "5"), ("2", None)]),
        (["$.annotations[*].id", "$.annotations[*].bbox[0]"], [("7", "1"), ("8", "1")]),
        (["$.images[*].id", "$.annotations[*].id"], [("1", "7"), ("2", "8")]),
        (["$..image_id"], [("1",), ("2",)]),
        (["$..image_id", "$.annotations[*].id"], [("1", "7"), ("2", "8")]),
        (
            ["$.annotations[*].bbox[*]"],
            [("1",), ("2",), ("3",), ("4",), ("1",), ("2",), ("3",), ("4.5",)],
        ),
        (["info.version"], [("1.0",)]),
    ],
)
def test_json_paths_are_zipped(tmp_path, paths, expected):
    members = write(tmp_path / "coco.json", COCO)
    fields = [field(f"f{place}", extract=json_path(path)) for place, path in enumerate(paths)]
    assert rows_of(members, JSON, *fields) == expected
    twice = rows_of(
        [*members, *members], JSON, *fields, field("file", extract=file_property("filename"))
    )
    assert twice == [(*row, "coco.json") for row in expected] * 2


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    records=RECORDS,
    path=st.sampled_from(["$[*].a", "$..a", "$[0].a", "$[*].b.a", "$[*]['a']"]),
)
def test_one_path_finds_what_jsonpath_ng_finds(tmp_path, records, path):
    members = write(tmp_path / "r.json", records)
    matches = [match.value for match in parse(path).find(records)]
    if not matches:
        with pytest.raises(InputError) as caught:
            rows_of(members, JSON, field("f", extract=json_path(path)))
        assert caught.value.code == "missing-key"
        return
    found = [row[0] for row in rows_of(members, JSON, field("f", extract=json_path(path)))]
    expected = [as_text(value) for value in matches]
    if path.startswith("$[*]"):  # records that lack it are kept, as null
        assert [value for value in found if value is not None] == [
            value for value in expected if value is not None
        ]
        assert len(found) == len(records)
    elif path == "$[0].a":
        assert found == (expected or [None])
    else:
        assert found == expected


EVENTS = st.lists(
    st.fixed_dictionaries({}, optional={"k": TEXTS, "v": st.integers(0, 9)}), max_size=3
)
LOGS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9)}, optional={"events": EVENTS, "tags": EVENTS}),
    min_size=1,
    max_size=5,
)


@pytest.mark.examples(12)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(logs=LOGS, layout=st.sampled_from(["lines", "array", "inside"]))
def test_a_list_may_lie_below_the_record(tmp_path, logs, layout):
    """What each record holds, found by hand; the other fields say what a record is."""
    logs = [{"id": 0, "events": [{"k": ""}], "tags": [{"v": 1}]}, *logs]
    stem = {"lines": "$.", "array": "$[*].", "inside": "$.logs[*]."}[layout]
    path = tmp_path / "t.json"
    if layout == "lines":
        path.write_text("".join(json.dumps(log) + "\n" for log in logs))
    else:
        path.write_text(json.dumps(logs if layout == "array" else {"logs": logs}))
    found = rows_of(
        members_of(path),
        LINES if layout == "lines" else JSON,
        field("id", "sc:Integer", extract=json_path(f"{stem}id")),
        field("k", "sc:Text", extract=json_path(f"{stem}events[*].k"), repeated=True),
        field("v", "sc:Integer", extract=json_path(f"{stem}tags[*]['v']"), repeated=True),
    )
    assert found == [
        (
            log["id"],
            [event["k"] for event in log.get("events", []) if "k" in event],
            [tag["v"] for tag in log.get("tags", []) if "v" in tag],
        )
        for log in logs
    ]


def test_lists_of_different_lengths_name_both_paths(tmp_path):
    members = write(tmp_path / "coco.json", COCO)
    fields = [
        field("a", extract=json_path("$.images[*].id")),
        field("b", extract=json_path("$..w")),
    ]
    with pytest.raises(duckdb.Error, match=r"\$\.images\[\*\]\.id finds 2 values, \$\.\.w finds 1"):
        rows_of(members, JSON, *fields)


def test_paths_on_lines(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"a": [1, 2]}\n{"a": [3]}\n{}\n')
    assert rows_of(members_of(path), LINES, field("a", extract=json_path("$.a[*]"))) == [
        ("1",),
        ("2",),
        ("3",),
    ]


@pytest.mark.parametrize("text", ['[{"a": 1},', '[{"a": 1}, {"a"', '{"a": [1}', ""])
def test_files_that_break_off(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises((InputError, duckdb.Error)):
        rows_of(members_of(path), JSON, field("a", extract=column("a")))


def test_a_member_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"caption": "x"}\n')
    with pytest.raises(InputError, match="did you mean 'caption'"):
        scan_of(connect(), members_of(path), LINES, column("captions"))


@pytest.mark.parametrize("text", ["", "\n"])
def test_json_lines_without_a_line_have_every_column_and_no_record(tmp_path, text):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    assert rows_of(members_of(path), LINES, field("a", "sc:Integer", extract=column("a"))) == []


@pytest.mark.parametrize("names", [["a"], ["A"], ["a", "A"], ["A", "a", "b"]])
def test_names_that_differ_in_case(tmp_path, names):
    path = tmp_path / "t.jsonl"
    records = [{"a": 1, "A": 2, "b": 3}, {"A": 5, "a": 4}, {"a": 6}, {"A": 7}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = [field(f"{name}{name}", "sc:Integer", extract=column(name)) for name in names]
    assert rows_of(members_of(path), LINES, *fields) == [
        tuple(record.get(name) for name in names) for record in records
    ]


def test_json_lines_under_the_name_of_json(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert rows_of(members_of(path), JSON, field("a", "sc:Integer", extract=column("a"))) == [
        (1,),
        (2,),
    ]


def test_columns_and_paths_do_not_go_together(tmp_path):
    members = write(tmp_path / "coco.json", COCO)
    with pytest.raises(InputError, match="both by column and by JSONPath"):
        scan_of(connect(), members, JSON, column("id"), json_path("$.images[*].id"))


IMAGES = '{"images": [{"x": 1}]}'


@pytest.mark.parametrize(
    ("path", "files", "expected"),
    [
        ("$.nope[*].x", [IMAGES], "missing-key"),
        ("$.images[*].nope", [IMAGES], "missing-key"),
        ("$.images[*].nope", ['{"images": []}'], []),
        ("$.images[*].x", ['{"images": []}', IMAGES], ["1"]),
        ("$.images[*].x", [IMAGES, '{"other": [{"x": 1}]}'], "missing-key"),
        ("$.images[*].x", ['{"other": [{"x": 1}]}', IMAGES], "missing-key"),
        ("$.images[*].x", ['{"images": [{}, {"x": 2}]}'], [None, "2"]),
        ("$.x", ['{"x": 1}', '{"y": 2}'], ["1", None]),
        ("$.nope", [IMAGES], "missing-key"),
        ("$..nope", [IMAGES], "missing-key"),
        ("$[*].y", ['[{"x": 1}]'], "missing-key"),
        ("$[*].y", ["[]"], []),
        ("$[*].y[*].z", ['[{"x": 1}]'], "missing-key"),
        ("$[*].y[*].z", ['[{"x": 1}, {"y": []}]'], []),
        ("$.images.*.x", [IMAGES], ["1"]),
        ("$.images[?(@.x > 1)].x", [IMAGES], "invalid-syntax"),
        ("$.images[0:2].x", [IMAGES], "invalid-syntax"),
        ("$.x", ['{"x": 1, "x": 2}'], "duplicate"),
        ("$.m.x", ['{"m": {"x": 1, "x": 2}}'], "duplicate"),
        ("$.m[*].x", ['{"m": 1, "m": [{"x": 2}]}'], "duplicate"),
        ("$.m[*].x", ['{"m": [{"x": 1}, {"x": 2, "x": 3}]}'], "duplicate"),
        ("$[*].x", ['[{"x": 1}, {"x": 2, "x": 3}]'], "duplicate"),
    ],
)
def test_paths_that_lead_nowhere_or_to_two_things(tmp_path, path, files, expected):
    members = []
    for number, text in enumerate(files):
        members.append(tmp_path / f"{number}.json")
        members[-1].write_text(text)
    resource = {"@type": "cr:FileSet", "@id": "d", "name": "d", "includes": "*[0-9].json"}
    source = {"fileSet": {"@id": "d"}, "extract": {"jsonPath": path}}
    made = made_datasets.record_set("r", made_datasets.field("r/v", "sc:Text", source))
    resource["encodingFormat"] = "application/json"
    with made_datasets.described(tmp_path, [resource], [made]) as dataset:
        if isinstance(expected, list):
            assert [row["r/v"] for row in dataset.records()] == expected
            return
        with pytest.raises(InputError) as caught:
            list(dataset.records())
        assert caught.value.code == expected


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("names", [["x"], ["x", "X"]])
def test_columns_of_a_record_with_a_key_twice(tmp_path, suffix, names):
    path = tmp_path / f"t.{suffix}"
    record = '{"x": 1, "X": 0, "x": 2}'
    path.write_text(record + "\n" if suffix == "jsonl" else f"[{record}]")
    fields = [
        made_datasets.field(f"r/{n}", "sc:Text", made_datasets.column(path.name, name))
        for n, name in enumerate(names)
    ]
    resource = made_datasets.file_object(path.name)
    made = made_datasets.record_set("r", *fields)
    with (
        made_datasets.described(tmp_path, [resource], [made]) as dataset,
        pytest.raises(InputError) as caught,
    ):
        list(dataset.records())
    assert caught.value.code == "duplicate"


TWICE = '{"x": 1, "x": 2}'


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a[*].b[*].c", '{"a": [{"b": [{"c": 1}], "b": [{"c": 2}]}]}'),
        ("$.a[*].b[*].x", f'{{"a": [{{"b": [{TWICE}]}}]}}'),
        ("$.a[*].b.x", f'{{"a": [{{"b": {TWICE}}}]}}'),
        ("$.a[*].x", '{"a": {"m": {"x": 1}, "m": {"x": 2}}}'),
        ("$..x", f'{{"a": [{TWICE}]}}'),
        ("$.a.*.x", f'{{"a": {{"m": {TWICE}}}}}'),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_a_path_through_a_key_twice(tmp_path, path, text, suffix):
    name = f"t.{suffix}"
    field = made_datasets.field("r/v", "sc:Integer", {"fileObject": {"@id": name}})
    field["source"]["extract"] = {"jsonPath": path}
    resource = made_datasets.file_object(name)
    made = made_datasets.record_set("r", field)
    (tmp_path / name).write_text(f"{text}\n")
    with (
        made_datasets.described(tmp_path, [resource], [made]) as dataset,
        pytest.raises(InputError) as caught,
    ):
        list(dataset.records())
    assert caught.value.code == "duplicate"


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("name", "text", "extract", "path"),
    [
        ("t.csv", 'a\n"{""x"":1,""x"":2}"\n', {"column": "a"}, "$.x"),
        ("t.csv", 'a\n"[{""x"":1,""x"":2}]"\n', {"column": "a"}, "$.x"),
        ("t.json", f'[{{"a": {{"y": {TWICE}}}}}]', {"column": "a"}, "$.y.x"),
        ("t.jsonl", f'{{"a": [{TWICE}]}}\n', {"column": "a"}, "$[0].x"),
        ("t.txt", TWICE, {"fileProperty": "content"}, "$..x"),
        ("t.txt", TWICE, {"fileProperty": "lines"}, "$.x"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_a_transform_through_a_key_twice(tmp_path, name, text, extract, path, many):
    (tmp_path / name).write_text(text)
    source = {"fileObject": {"@id": name}, "extract": extract, "transform": {"jsonPath": path}}
    field = made_datasets.field("r/v", "sc:Integer", source, isArray=many)
    made = made_datasets.record_set("r", field)
    resource = made_datasets.file_object(name)
    with (
        made_datasets.described(tmp_path, [resource], [made]) as dataset,
        pytest.raises(InputError) as caught,
    ):
        list(dataset.records())
    assert caught.value.code == "duplicate"


@pytest.mark.parametrize("how", ["column", "jsonPath"])
def test_integers_that_a_double_would_round(tmp_path, how):
    extract = {"column": "x"} if how == "column" else {"jsonPath": "$.x"}
    source = {"fileObject": {"@id": "t.jsonl"}, "extract": extract}
    made = made_datasets.record_set("r", made_datasets.field("r/v", "sc:Integer", source))
    resource = made_datasets.file_object("t.jsonl")
    known = {"9007199254740993": 2**53 + 1, "9007199254740991.0": 2**53 - 1, "1e3": 1000, '"7"': 7}
    rounded = ["9007199254740993.5", "9007199254740993.0", "1.2345678901234567890e19"]
    for text in (*known, *rounded):
        (tmp_path / "t.jsonl").write_text(f'{{"x": {text}}}\n')
        with made_datasets.described(tmp_path, [resource], [made]) as dataset:
            if text in known:
                assert list(dataset.records()) == [{"r/v": known[text]}]
                continue
            with pytest.raises(InputError) as caught:
                list(dataset.records())
            assert (caught.value.code, caught.value.place[:6]) == ("invalid-value", "line 1")
