"""Descriptions in files: encodings, folders, web pages, places, and writing them."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.document.reading import (
    parse_document,
    read_anything,
    read_document,
    read_metadata,
)
from holdfast.data.croissant.document.vocabulary import RECOMMENDED_CONTEXT
from holdfast.data.croissant.document.writing import render_json, write_json
from holdfast.errors import HoldfastError, InputError

TEXT = (
    '{\n  "@type": "sc:Dataset",\r\n  "name": "Größe 🥐",\r  "recordSet": [{"name": "name"}]\n}\n'
)


def test_places_are_lines_and_columns_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_bytes(TEXT.encode())
    document = read_document(file)
    assert document.path == file
    assert document.text == TEXT
    assert document.syntax == ()
    assert document.place("") == (1, 1)
    assert document.place("/name") == (3, 11)
    assert document.place("/name", key=True) == (3, 3)
    assert document.place("/recordSet") == (4, 16)
    assert document.place("/recordSet/0/name") == (4, 26)  # not the name of the dataset
    assert document.place("/recordSet/0/name", key=True) == (4, 18)
    assert document.place("/recordSet/0/field/3") == (4, 17)
    assert document.place("/name") == (3, 11)
    assert document.place("") == (1, 1)
    assert read_metadata(file).name == "Größe 🥐"


@pytest.mark.parametrize(
    ("encoded", "kinds"),
    [
        (TEXT.encode(), []),
        (codecs.BOM_UTF8 + TEXT.encode(), ["bom"]),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), ["encoding"]),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), ["encoding"]),
        (TEXT.encode("utf-16-le"), ["encoding"]),
        (TEXT.encode("utf-32"), ["encoding"]),
    ],
    ids=["utf-8", "bom", "utf-16-le", "utf-16-be", "utf-16 unmarked", "utf-32"],
)
def test_encodings(encoded: bytes, kinds: list[str]) -> None:
    document = parse_document(encoded, "d.json")
    assert [slip.kind for slip in document.syntax] == kinds
    assert document.text == TEXT
    assert document.place("/recordSet/0/name") == (4, 26)


def test_bytes_that_are_not_utf_8_are_told_with_their_place() -> None:
    data = codecs.BOM_UTF8 + '{"ö": "'.encode() + b'\xff\xfe", "b": "\xe9"}'
    document = parse_document(data, "d.json")
    assert [(slip.kind, slip.offset) for slip in document.syntax] == [
        ("bom", 0),
        ("not-utf-8", 7),
    ]
    assert "ff fe (byte 11 of the file)" in document.syntax[1].message
    assert data[11:13] == b"\xff\xfe"
    assert document.value == {"ö": "\ufffd\ufffd", "b": "\ufffd"}


@given(st.binary(max_size=80))
def test_any_bytes_are_read_to_their_end(data: bytes) -> None:
    document = parse_document(data, "d.json")
    for slip in document.syntax:
        assert 0 <= slip.offset <= len(document.text)
        assert slip.message
    assert document.terms is not None


def folder_of(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["croissant__json", "metadata__json", "other__json", "x__jsonld"])
def test_the_description_of_a_folder(name: str, tmp_path: Path) -> None:
    files = {name: '{"@context": {}, "name": "it"}', "data__json": '[{"a": 1}]'}
    assert read_metadata(folder_of(tmp_path, **files)).name == "it"


def test_the_usual_names_come_before_others(tmp_path: Path) -> None:
    files = {"metadata__json": '{"name": "it"}', "a__json": '{"@context": {}}'}
    assert read_document(folder_of(tmp_path, **files)).path.name == "metadata.json"


def test_data_may_be_called_like_a_description(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, metadata__json='{"rows": 3}', croissant__json='{"@context": {}}')
    assert read_document(folder).path.name == "croissant.json"


def test_a_folder_with_several_descriptions_is_refused(tmp_path: Path) -> None:
    text = '{"@context": {}}'
    with pytest.raises(
        InputError, match=r"more than one description\n  found: croissant.json, metadata.json"
    ):
        read_document(folder_of(tmp_path, metadata__json=text, croissant__json=text, a__json=text))
    (tmp_path / "metadata.json").unlink()
    (tmp_path / "croissant.json").unlink()
    with pytest.raises(InputError, match=r"found: a.json, b.json"):
        read_document(folder_of(tmp_path, a__json=text, b__json=text, c__txt=text))


def test_a_folder_or_file_without_a_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no description"):
        read_document(folder_of(tmp_path, data__json="[1]"))
    with pytest.raises(InputError, match="cannot be read"):
        read_document(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1, column 1: the file holds no description\n  found: the text is empty"),
        ("[1, 2]", "line 1, column 1: the file holds no description\n  found: \\[1, 2\\]"),
        ('"text"', 'line 1, column 1: .*\n  found: "text"'),
        ("id,name\n1,x\n", "line 1, column 1: .*\n  found: 'i' found where a value"),
        ("\n\n  [1,\n   ", "line 4, column 4: .*\n  found: the text ends inside the array"),
        ("<html><body>Sign in</body></html>", "line 1, column 1: .*\n  found: this is a web page"),
    ],
)
def test_what_is_no_object_is_refused(text: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(InputError, match=place):
        read_document(file)


def test_a_truncated_description_is_opened_for_its_checks_and_refused_by_all_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "d.json"
    file.write_text(TEXT[:70])
    document = read_anything(file)
    assert document.value["name"] == "Größe 🥐"
    assert document.syntax[-1].kind == "truncated"
    assert document.syntax[-1].offset == 66
    with pytest.raises(InputError) as refused:
        read_document(file)
    assert refused.value.code == "invalid-syntax"


PAGE = """<!DOCTYPE html>
<html><head>
<!-- <script type="application/ld+json">{"@type": "sc:Dataset", "name": "a comment"}</script> -->
<script>var x = '{"@type": "Dataset"}';</script>
<script type="application/ld+json">{"@context": "https://schema.org", "@type": "WebPage"}</script>
<SCRIPT async type='application/ld+json; profile="http://mlcommons.org/croissant/1.1"'>
  {"@context": "https://schema.org",
   "@type": "Dataset", "name": "it", "name": "twice"}
</SCRIPT>
</head><body>{"@type": "Dataset"}</body></html>
"""


def test_a_web_page_that_carries_a_description(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE)
    document = read_document(file)
    assert document.value == {"@context": "https://schema.org", "@type": "Dataset", "name": "twice"}
    assert document.place("/name") == (8, 46)
    assert PAGE[document.offset("/name") :].startswith('"twice"')
    assert [slip.kind for slip in document.syntax] == ["duplicate-key"]
    assert document.text == PAGE


def test_a_web_page_of_another_kind_of_thing_is_still_read() -> None:
    text = '<script type="application/ld+json">{"@type": "WebPage"}'
    assert parse_document(text.encode(), "p.html").value == {"@type": "WebPage"}


@pytest.mark.parametrize(
    "junk", ["<script ", "<!--", '<script type="application/ld+json">', "</script", "<"]
)
def test_hostile_pages_take_little_time(junk: str) -> None:
    document = parse_document(("<" + junk * 20_000).encode(), "p.html")
    assert document.syntax


JSON_TREE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.text(max_size=8) | st.sampled_from(["@context", "name", "recordSet"]), JSON_TREE
    )
)
def test_what_is_written_reads_back(value: dict[str, Any]) -> None:
    text = render_json(value)
    assert json.loads(text) == value
    assert parse_document(text.encode(), "d.json").value == value
    assert all(line == line.rstrip(" ") for line in text.split("\n"))
    assert render_json(json.loads(text)) == text


def test_the_layout_of_the_standard(tmp_path: Path) -> None:
    value = {
        "recordSet": [{"name": "r", "@id": "r"}],
        "distribution": [],
        "url": "u",
        "name": "n",
        "@type": "sc:Dataset",
        "@context": RECOMMENDED_CONTEXT,
        "score": float("nan"),
    }
    file = tmp_path / "d.json"
    write_json(value, file)
    text = file.read_text(encoding="utf-8")
    keys = ["@context", "@type", "name", "url", "score", "distribution", "recordSet"]
    assert list(json.loads(text)) == keys
    assert text.startswith('{\n  "@context": {\n    "@language": "en",\n    "@vocab"')
    assert text.endswith(
        '  "recordSet": [\n    {\n      "name": "r",\n      "@id": "r"\n    }\n  ]\n}\n'
    )
    assert '"score": null' in text


def test_odd_names_of_files_can_be_written(tmp_path: Path) -> None:
    write_json({"name": "a\udcff", "é": 1}, tmp_path / "d.json")
    assert (tmp_path / "d.json").read_bytes() == '{\n  "name": "a\\udcff",\n  "é": 1\n}\n'.encode()


def test_a_description_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="cannot be written"):
        write_json({}, tmp_path / "missing" / "d.json")
