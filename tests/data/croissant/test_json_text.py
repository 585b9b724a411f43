"""The position-keeping JSON reader, against json.loads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.document.json_text import MAX_DEPTH, parse
from holdfast.data.croissant.document.slips import Lines, escaped, tokens

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=25,
)


def pointers(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Every pointer of a value and what it leads to."""
    found = [(at, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += pointers(inner, f"{at}/{escaped(key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += pointers(inner, f"{at}/{index}")
    return found


def check_places(text: str) -> None:
    """Every pointer's offset is where its value (and its key) can be read again by json."""
    expected = json.loads(text)
    parsed = parse(text)
    assert parsed.slips == ()
    assert parsed.value == expected
    decoder = json.JSONDecoder()
    for pointer, value in pointers(expected):
        assert decoder.raw_decode(text, parsed.offset(pointer))[0] == value
        keys = tokens(pointer)
        if keys:
            parent = pointer[: pointer.rindex("/")]
            at = parsed.offset(pointer, key=True)
            inside = decoder.raw_decode(text, parsed.offset(parent))[0]
            if isinstance(inside, dict):
                assert decoder.raw_decode(text, at)[0] == keys[-1]
            else:
                assert at == parsed.offset(pointer)


@given(JSON, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_values_and_places_are_those_of_json(value: Any, indent: Any, ascii_only: bool) -> None:
    check_places(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


@given(JSON)
def test_the_types_of_values_are_those_of_json(value: Any) -> None:
    text = json.dumps(value)
    assert repr(parse(text).value) == repr(json.loads(text))


@given(st.text(alphabet="{}[]:,\"'\\ \nab01.-+eEtrufalsn/*#\x00\ufeff\ud7ff", max_size=60))
def test_any_text_is_read_to_its_end(text: str) -> None:
    parsed = parse(text)
    try:
        expected = json.loads(text)
    except ValueError:
        assert parsed.slips
    else:
        duplicate = any(slip.kind == "duplicate-key" for slip in parsed.slips)
        assert repr(parsed.value) == repr(expected)
        assert not parsed.slips or duplicate or "e" in text.lower()
    for slip in parsed.slips:
        assert 0 <= slip.offset <= len(text)
        parsed.offset(slip.at)


@given(JSON, st.data())
def test_every_prefix_of_a_document_is_read_as_far_as_it_goes(value: Any, data: Any) -> None:
    text = json.dumps({"outer": value})
    cut = data.draw(st.integers(1, len(text) - 1))
    parsed = parse(text[:cut])
    assert parsed.slips
    assert isinstance(parsed.value, dict)
    assert parsed.slips[-1].kind in ("truncated", "syntax")
    assert parsed.slips[-1].offset <= cut


def test_every_file_of_the_suite(shared_data: Path) -> None:
    files = sorted((shared_data / "croissant").rglob("*.json"))
    assert len(files) >= 100
    for file in files:
        check_places(file.read_text(encoding="utf-8"))


SLIPS = [
    ('{"a":1,}', {"a": 1}, [("syntax", 7)]),
    ("[1,2,]", [1, 2], [("syntax", 5)]),
    ('{"a":1 "b":2}', {"a": 1}, [("syntax", 7)]),
    ("[1 2]", [1], [("syntax", 3)]),
    ("[1,,2]", [1], [("syntax", 3)]),
    ('{"a" 1}', {}, [("syntax", 5)]),
    ('{"a":}', {}, [("syntax", 5)]),
    ('{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}, [("duplicate-key", 13)]),
    ('{"a":1,"\\u0061":2}', {"a": 2}, [("duplicate-key", 7)]),
    ("{'a':1}", {}, [("syntax", 1)]),
    ("{a:1}", {}, [("syntax", 1)]),
    ("[01]", [0], [("syntax", 2)]),
    ("[+1]", [], [("syntax", 1)]),
    ("[1.]", [1], [("syntax", 2)]),
    ("[1e999]", [math.inf], [("number", 1)]),
    ("[True]", [], [("syntax", 1)]),
    ("[Infinity, -Infinity]", [math.inf, -math.inf], [("not-finite", 1), ("not-finite", 11)]),
    ('{"a": 1 // one\n}', {"a": 1}, [("syntax", 8)]),
    ('{"a": "x\ty"}', {}, [("syntax", 8)]),
    ('["\\x41"]', [], [("syntax", 2)]),
    ('["\\ud800"]', ["\ufffd"], [("lone-surrogate", 1)]),
    ('["open', [], [("truncated", 1)]),
    ("{}\u00a0", {}, [("extra", 2)]),
    ('{"a":1}\n{"b":2}', {"a": 1}, [("extra", 8)]),
    ("[1}", [1], [("syntax", 2)]),
    ('{"a":[1,{"b":2', {"a": [1, {"b": 2}]}, [("truncated", 14)]),
    ('{"a":', {}, [("truncated", 5)]),
    ("", None, [("empty", 0)]),
    (" \n", None, [("empty", 0)]),
    ("@", None, [("syntax", 0)]),
]


@pytest.mark.parametrize(("text", "value", "slips"), SLIPS, ids=[text for text, _, _ in SLIPS])
def test_mistakes_have_their_places(text: str, value: Any, slips: list[tuple[str, int]]) -> None:
    parsed = parse(text)
    assert parsed.value == value
    assert [(slip.kind, slip.offset) for slip in parsed.slips] == slips


def test_the_first_mistake_of_syntax_is_the_last_one_that_is_told() -> None:
    parsed = parse('{"a": 1,\n "a": NaN,\n "b": {"c": \'x\',},\n "d": [1 2]\n')
    assert [(slip.kind, slip.at) for slip in parsed.slips] == [
        ("duplicate-key", "/a"),
        ("not-finite", "/a"),
        ("syntax", "/b/c"),
    ]
    assert parsed.value.keys() == {"a", "b"}


def test_the_first_place_of_a_key_that_stands_twice_is_told() -> None:
    slip = parse('{\n  "a": 1,\n  "a": 2}').slips[0]
    assert (slip.at, slip.offset) == ("/a", 14)
    assert "line 2, column 3" in slip.message


def test_the_same_key_in_another_object_is_no_slip() -> None:
    text = '{"a": {"a": 1}, "b": {"a": 2}}'
    check_places(text)
    assert parse(text).offset("/b/a") == text.index("2")


def test_a_place_that_is_not_there_is_that_of_its_parent() -> None:
    parsed = parse('{"a": [1, {"b": 2}]}')
    assert parsed.offset("/a/1/zzz/3") == parsed.offset("/a/1")
    assert parsed.offset("/a/7") == parsed.offset("/a")
    assert parsed.offset("/a/x", key=True) == parsed.offset("/a", key=True)
    assert parsed.offset("/nothing") == 0


@pytest.mark.parametrize("bracket", ["[", '{"a":', '[{"a":'])
def test_nesting_that_would_exhaust_the_stack_is_a_slip(bracket: str) -> None:
    text = bracket * 100_000
    assert [slip.kind for slip in parse(text).slips] == ["too-deep"]
    closed = "[" * 100_000 + "]" * 100_000
    assert [slip.kind for slip in parse(f'{{"x": {closed}, "y": 1}}').slips] == ["too-deep"]


def test_nesting_up_to_the_limit_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse(text).slips == ()
    assert parse(f"[{text}]").slips[0].kind == "too-deep"


@pytest.mark.parametrize(
    "junk",
    [
        *("}", '"\n', "[}", '"a" "b" '),
        *(
            pytest.param(j, marks=pytest.mark.full)
            for j in (",", "'", "]", ":", "/*", "\\", "{]", "\x00")
        ),
    ],
)
def test_much_junk_takes_little_time_and_few_slips(junk: str) -> None:
    for before in ("", "[", '{"a":', "[" * (MAX_DEPTH - 1)):
        parsed = parse(before + junk * 40_000)
        assert len(parsed.slips) == 1


def test_a_number_too_long_to_read_is_a_slip() -> None:
    parsed = parse("[" + "9" * 5000 + "]")
    assert parsed.value == [None]
    assert parsed.slips[0].kind == "number"


@given(st.text(alphabet="ab\n\r\u2028\U0001f950", max_size=40))
def test_lines_and_columns(text: str) -> None:
    lines = Lines(text)
    whole = text.replace("\r\n", " \n").replace("\r", "\n")  # a line break is one place wide here
    for offset in range(len(text) + 1):
        before = whole[:offset]
        assert lines.place(offset) == (
            before.count("\n") + 1,
            offset - (before.rfind("\n") + 1) + 1,
        )
