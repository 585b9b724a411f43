"""OpenFST's text against OpenFST, and against itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import pywrapfst
from hypothesis import given
from hypothesis import strategies as st
from machines import random_fst
from openfst import ARC_TYPES, from_openfst, to_openfst
from same_machine import assert_same

from holdfast.automata import SEMIRINGS, Fst, SymbolTable
from holdfast.automata.formats import openfst_text, tokens
from holdfast.automata.formats.openfst_text import parse, render
from holdfast.errors import InputError

LETTERS = SymbolTable.of(["a", "b", "ç", "日本"])


def compiled(text: str, **options: Any) -> Any:
    compiler = pywrapfst.Compiler(**options)
    compiler.write(text)
    return compiler.compile()


def machine(seed: int) -> Fst:
    names = list(SEMIRINGS)
    made = random_fst(
        seed, states=seed % 7 + 1, arcs=seed % 23, semiring=names[seed % 5], acceptor=seed % 4 == 0
    )
    return made.with_(start=seed % made.num_states)


def test_what_is_written_is_read_again() -> None:
    for seed in range(200):
        f = machine(seed)
        assert_same(parse(render(f), f.semiring), f)
        if f.is_acceptor:
            assert_same(parse(render(f, True), f.semiring, acceptor=True), f)


def test_openfst_writes_the_same_text() -> None:
    for seed in range(200):
        f = machine(seed)
        if f.semiring.name in ARC_TYPES:
            assert render(f) == to_openfst(f).print()
            if f.is_acceptor:
                assert render(f, acceptor=True) == to_openfst(f).print(acceptor=True)


def test_openfst_reads_the_same_machine() -> None:
    for seed in range(200):
        f = machine(seed)
        if f.semiring.name not in ARC_TYPES:
            continue
        text = render(f)
        options = {"arc_type": f.semiring.arc_type}
        kept = compiled(text, **options, keep_state_numbering=True)
        assert pywrapfst.equal(to_openfst(parse(text, f.semiring)), kept)
        numbered = compiled(text, **options)
        assert pywrapfst.equal(to_openfst(parse(text, f.semiring, renumber=True)), numbered)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \t\n",
        "0\n",
        "3 1 1 2 0.5\n1 2 3 4\n5 0.25\n",
        "5\n0 1 1 1\n",  # a final state may come first
        "2 Infinity\n0 1 1 1\n1 0.5",
        "0 1 1 1 -0\n1 -0.0\n",
        "0 1 1 1 1e-3\n1 1E3\n",
        "0 1 1 1 +1.\n1 .5\n",
        "0 1 1 1 Infinity\n1 1.5e+2",
        "0 1 1 1 1e-60\n1\n",  # less than float32 can hold
        "0 1 1 1 1e60\n1\n",
        "\n\n 0   1\t1  2\t\n\n1\n",
        "0 1 1 1 3\n1\n1 4\n0\n",  # the last final weight counts
        "1 0 2 1\n1 0 1 2\n0 1 3 3\n1 0 1 1\n0\n",
        "007 1 1 1\n1\n",
    ],
)
def test_semantics_of_the_columns(text: str) -> None:
    found = parse(text, "tropical", renumber=True)
    assert_same(found, from_openfst(compiled(text)))
    if text:
        kept = compiled(text, keep_state_numbering=True)
        assert_same(parse(text, "tropical"), from_openfst(kept))


def test_acceptors_have_one_label() -> None:
    text = "0 1 5\n1 2 6 0.5\n2\n"
    found = parse(text, "tropical", acceptor=True)
    assert_same(found, from_openfst(compiled(text, acceptor=True)))
    assert render(found, True) == "0\t1\t5\n1\t2\t6\t0.5\n2\n"


def test_symbols() -> None:
    text = "0\t1\ta\t日本\t0.5\n1\t2\tç\t<eps>\n2\n"
    f = parse(text, isymbols=LETTERS, osymbols=LETTERS)
    assert list(zip(f.ilabel.tolist(), f.olabel.tolist(), strict=True)) == [(1, 4), (3, 0)]
    assert render(f) == text
    table = pywrapfst.SymbolTable()
    for label, symbol in LETTERS:
        table.add_symbol(symbol, label)
    oracle = compiled(text, isymbols=table, osymbols=table)
    assert pywrapfst.equal(oracle, to_openfst(f))
    assert oracle.print(isymbols=table, osymbols=table) == text


def test_symbols_of_an_acceptor_stand_for_both_sides() -> None:
    f = parse("0 1 b\n1\n", isymbols=LETTERS, acceptor=True)
    assert f.osymbols == LETTERS
    assert render(f) == "0\t1\tb\tb\n1\n"


def test_windows_line_ends() -> None:
    assert_same(parse("0 1 1 1\r\n1\r\n"), parse("0 1 1 1\n1\n"))


@given(
    st.lists(st.floats(width=32, allow_nan=False).filter(lambda x: x != -np.inf), min_size=1),
    st.sampled_from(["tropical", "log"]),
)
def test_float32_survives(weights: list[float], semiring: str) -> None:
    f = Fst.build([(0, 1, 1, weight, 0) for weight in weights], {0: 0.1}, semiring=semiring)
    again = parse(render(f), semiring)
    assert again.weight.tobytes() == f.weight.tobytes() or np.array_equal(again.weight, f.weight)
    assert np.array_equal(
        from_openfst_text(render(f), f.semiring.arc_type), f.weight.astype(np.float64)
    )


@given(st.lists(st.floats(allow_nan=False).filter(lambda x: x != -np.inf), min_size=1))
def test_float64_survives(weights: list[float]) -> None:
    f = Fst.build([(0, 1, 1, weight, 0) for weight in weights], [0], semiring="log64")
    assert np.array_equal(parse(render(f), "log64").weight, f.weight)


def from_openfst_text(text: str, arc_type: str) -> list[float]:
    """The weights that OpenFST reads in a text, from its binary form: it prints only six digits."""
    from holdfast.automata.formats.openfst_binary import decode

    return decode(compiled(text, arc_type=arc_type).write_to_string(), "x").weight.tolist()


@given(st.text("0123 \t\n-.eabInfity\x0b\r", max_size=40), st.sampled_from(list(SEMIRINGS)))
def test_any_text_is_a_machine_or_a_clear_error(text: str, semiring: str) -> None:
    found = outcome(text, semiring)
    if isinstance(found, InputError):
        assert found.place is not None or "numbers of states" in str(found.expected)
    else:
        assert_same(parse(render(found), semiring), found)


def outcome(text: str, semiring: str) -> Fst | InputError:
    try:
        return parse(text, semiring)
    except InputError as error:
        return error


@pytest.mark.parametrize(
    ("text", "place", "found", "expected"),
    [
        ("0 1 1 1\n\n0 1\t1 1 1 1\n", "line 3", "6 columns", "source destination ilabel olabel"),
        ("0 1 1 1\n0 1 1\n", "line 2", "3 columns", "ilabel olabel"),
        ("0 1 1 1\na 1 1 1\n", "line 2", "'a'", "whole number from 0"),
        ("0 1 1 1\n-1 1 1 1\n", "line 2", "'-1'", "whole number from 0"),
        ("0 1 1 1\n0 x 1 1\n", "line 2", "'x'", "whole number from 0"),
        ("0 1 1 1\n0 1 -4 1\n", "line 2", "'-4'", "whole number from 0"),
        ("0 1 1 1\n0 1 1 b\n", "line 2", "'b'", "whole number from 0"),
        ("0 1 3000000000 1\n", "line 1", "'3000000000'", "2147483646"),
        ("0 1 99999999999999999999999 1\n", "line 1", "99999999", "2147483646"),
        ("0 1 1_0 1\n", "line 1", "'1_0'", "whole number"),
        ("0 1 1.0 1\n", "line 1", "'1.0'", "whole number"),
        ("0 1 1 1 x\n", "line 1", "'x'", "a number, or Infinity"),
        ("0 1 1 1\n1 nan\n", "line 2", "'nan'", "a number, or Infinity"),
        ("0 1 1 1 NaN\n", "line 1", "'NaN'", "a number, or Infinity"),
        ("0 1 1 1 -Infinity\n", "line 1", "'-Infinity'", "a number, or Infinity"),
        ("0 1 1 1 1_0\n", "line 1", "'1_0'", "a number, or Infinity"),
    ],
)
def test_errors_name_line_found_and_expected(
    text: str, place: str, found: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "tropical", path="bad.txt")
    error = caught.value
    assert (error.path, error.place) == ("bad.txt", place)
    assert found in str(error.found)
    assert expected in str(error.expected)


def test_negative_probabilities() -> None:
    with pytest.raises(InputError, match="line 2") as caught:
        parse("0 1 1 1 0.5\n1 -0.5\n", "probability")
    assert caught.value.found == "-0.5"


def test_unknown_symbols() -> None:
    with pytest.raises(InputError, match="line 2") as caught:
        parse("0 1 a a\n0 1 a z\n", isymbols=LETTERS, osymbols=LETTERS)
    assert caught.value.found == "'z'"
    assert "one of the 5 symbols" in str(caught.value.expected)


def test_labels_without_symbols() -> None:
    with pytest.raises(InputError, match="no symbol"):
        render(Fst.build([(0, 9, 1, 0, 0)], [0], isymbols=LETTERS, semiring="log"))
    with pytest.raises(InputError, match="no symbol"):
        render(Fst.build([(0, 9, 1, 0, 0)], [0], isymbols=SymbolTable({}), semiring="log"))


def test_a_transducer_is_not_written_as_an_acceptor() -> None:
    with pytest.raises(InputError, match="is a transducer"):
        render(Fst.build([(0, 1, 2, 0, 0)], [0], semiring="log"), acceptor=True)


def test_large_gaps_between_states() -> None:
    with pytest.raises(InputError, match="do not occur") as caught:
        parse("0 2000000000 1 1\n")
    assert "renumber" in str(caught.value.remedy)
    assert parse("0 2000000000 1 1\n", renumber=True).num_states == 2


def test_the_machine_without_states() -> None:
    assert render(Fst.empty("tropical")) == ""
    assert_same(parse(""), Fst.empty("tropical"))


def test_texts_are_read_and_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [render(machine(seed)) for seed in range(0, 60, 5)]
    whole = [parse(text, "tropical") for text in texts]
    for size in (1, 30):
        monkeypatch.setattr(openfst_text, "parts", partial(tokens.parts, size=size))
        monkeypatch.setattr(openfst_text, "_PART", size)
        for text, f in zip(texts, whole, strict=True):
            assert_same(parse(text, "tropical"), f)
            assert render(f) == render(parse(text, "tropical"))
            assert_same(parse(render(f), "tropical"), f)
        with pytest.raises(InputError) as caught:
            parse("0 1 1 1\n\n\r\n0 1 1 1\n0 1 1\n")
        assert caught.value.place == "line 5"
