"""Symbol tables in text and binary, against OpenFST's."""

from __future__ import annotations

from pathlib import Path

import pytest
import pywrapfst
from hypothesis import given
from hypothesis import strategies as st

from holdfast.automata import SymbolTable
from holdfast.automata.formats.fields import Fields
from holdfast.automata.formats.symbol_tables import (
    decode_symbols,
    encode_symbols,
    parse_symbols,
    read_symbols,
    render_symbols,
    write_symbols,
)
from holdfast.errors import InputError

SPACES = " \t\n\r"
TABLES = st.dictionaries(
    st.integers(0, 2**31 - 3),
    st.text(st.characters(exclude_characters=SPACES, exclude_categories=["Cs"]), min_size=1),
).map(lambda made: {label: made[label] for label in made if _first(made, label)})


def _first(made: dict[int, str], label: int) -> bool:
    return next(other for other in made if made[other] == made[label]) == label


@given(TABLES)
def test_text_and_binary_hold_any_table(symbols: dict[int, str]) -> None:
    table = SymbolTable(symbols, "a name")
    assert list(parse_symbols(render_symbols(table))) == list(table)
    fields = Fields(encode_symbols(table), "x")
    again = decode_symbols(fields)
    assert list(again) == list(table)
    assert again.name == "a name"
    assert fields.at == len(fields.data)


@given(st.dictionaries(st.integers(0, 999), st.text(max_size=3), max_size=9))
def test_any_symbols_in_binary(symbols: dict[int, str]) -> None:
    assert dict(decode_symbols(Fields(encode_symbols(SymbolTable(symbols)), "x"))) == symbols


def test_openfst_reads_and_writes_the_same(tmp_path: Path) -> None:
    table = SymbolTable({0: "<eps>", 1: "a", 7: "日本", 3: "#0"}, "letters")
    ours, theirs = tmp_path / "ours.syms", tmp_path / "theirs.syms"
    write_symbols(table, ours)
    read = pywrapfst.SymbolTable.read(str(ours))
    assert dict(read) == dict(table)
    assert read.name() == "letters"
    assert read.available_key() == 8
    read.write(str(theirs))
    assert read_symbols(theirs) == table
    write_symbols(SymbolTable.of("abc"), ours)
    pywrapfst.SymbolTable.read(str(ours)).write(str(theirs))
    assert theirs.read_bytes() == ours.read_bytes()
    write_symbols(table, ours)
    text = tmp_path / "ours.txt"
    write_symbols(table, text)
    assert dict(pywrapfst.SymbolTable.read_text(str(text))) == dict(table)
    read.write_text(str(theirs))
    assert read_symbols(theirs) == table


def test_every_truncation_is_told() -> None:
    data = encode_symbols(SymbolTable.of("abc"))
    for size in range(len(data)):
        with pytest.raises(InputError) as caught:
            decode_symbols(Fields(data[:size], "cut.syms"))
        assert caught.value.path == "cut.syms"
        assert str(caught.value.place).startswith("byte ")


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("a 1\nb\n", "line 2", "1 columns"),
        ("a 1\nb c 2\n", "line 2", "3 columns"),
        ("a 1\nb x\n", "line 2", "'x'"),
        ("a 1\nb -1\n", "line 2", "'-1'"),
        ("a 1\nb 2\nc 1\n", "line 3", "'c' with label 1"),
        ("a 1\nb 2\n\na 3\n", "line 4", "'a' with label 3"),
    ],
)
def test_errors_in_text(text: str, place: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_symbols(text, "bad.txt")
    assert (caught.value.path, caught.value.place) == ("bad.txt", place)
    assert found in str(caught.value.found)


@pytest.mark.parametrize("symbol", ["", "a b", "a\tb", "a\n"])
def test_symbols_that_text_cannot_hold(symbol: str) -> None:
    with pytest.raises(InputError, match="label 4"):
        render_symbols(SymbolTable({4: symbol}))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\xff\xfe\x00", "byte 0"),
        (b"a 1\n\x00", "byte 4"),
        (encode_symbols(SymbolTable.of("ab")) + b"!", "data after"),
        (encode_symbols(SymbolTable({1: "a"})).replace(b"a", b"\xff"), "not UTF-8"),
        (encode_symbols(SymbolTable({-5: "a"})), "repeated label"),
    ],
)
def test_errors_in_files(tmp_path: Path, data: bytes, match: str) -> None:
    file = tmp_path / "bad"
    file.write_bytes(data)
    with pytest.raises(InputError, match=match):
        read_symbols(file)
