"""k2's text: what its documentation shows, and machines there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from machines import random_fst, relation
from same_machine import assert_same

from holdfast.automata import SEMIRINGS, Fst
from holdfast.automata.formats.k2_text import parse_k2, render_k2
from holdfast.errors import InputError

# "Convert acceptors" in the documentation of kaldifst, which prints the costs of the same machine.
SHOWN = "0 1 1 0.5\n0 1 2 1.5\n1 2 3 2.5\n1 3 -1 3\n2 3 -1 3.5\n3\n"


def test_the_documented_example() -> None:
    f = parse_k2(SHOWN, "tropical")
    assert [tuple(arc) for arc in f.arcs()] == [
        (0, 1, 1, -0.5, 1),
        (0, 2, 2, -1.5, 1),
        (1, 3, 3, -2.5, 2),
    ]
    assert f.finals == {1: -3.0, 2: -3.5}
    assert render_k2(f) == SHOWN


def test_aux_labels() -> None:
    text = "0 1 1 2 0.5\n0 1 2 0 1.5\n1 2 -1 -1 0\n2\n"
    f = parse_k2(text)
    assert f.olabel.tolist() == [2, 0]
    assert f.finals == {1: 0.0}
    assert render_k2(f) == text


def test_scores_may_be_left_out() -> None:
    assert_same(parse_k2("0 1 7\n1 2 -1\n2\n"), parse_k2("0 1 7 0\n1 2 -1 0\n2\n"))
    without = parse_k2("0 1 7 8\n1 2 -1 -1\n2\n", aux_labels=True)
    assert (without.olabel.tolist(), without.weight.tolist()) == ([8], [0.0])


def test_machines_there_and_back() -> None:
    for seed in range(150):
        semiring = list(SEMIRINGS)[seed % 5]
        f = random_fst(seed, states=seed % 6 + 1, arcs=seed % 13, semiring=semiring)
        again = parse_k2(render_k2(f), semiring, aux_labels=not f.is_acceptor)
        if semiring == "probability":
            np.testing.assert_allclose(again.weight, f.weight, rtol=1e-12)
            np.testing.assert_allclose(again.final, f.final, rtol=1e-12)
        else:
            assert_same(again, f)


def test_the_start_becomes_state_0() -> None:
    for seed in range(40):
        f = random_fst(seed, acyclic=True, semiring="log64")
        f = f.with_(start=seed % f.num_states)
        again = parse_k2(render_k2(f), "log64", aux_labels=True if not f.is_acceptor else None)
        assert again.start == 0
        assert relation(again) == pytest.approx(relation(f))


@pytest.mark.parametrize(
    ("semiring", "expected"),
    [
        ("tropical", 1.0),
        ("log64", -math.log(math.exp(-1) + math.exp(-2))),
        ("probability", math.exp(-1) + math.exp(-2)),
        ("boolean", 1.0),
    ],
)
def test_two_arcs_into_the_final_state_add_up(semiring: str, expected: float) -> None:
    assert parse_k2("0 1 -1 -1\n0 1 -1 -2\n1\n", semiring).finals == {0: pytest.approx(expected)}


def test_machines_that_accept_nothing() -> None:
    assert_same(parse_k2(""), Fst.empty("tropical"))
    assert_same(parse_k2("0\n"), Fst.empty("tropical"))
    assert render_k2(Fst.empty("tropical")) == ""
    assert parse_k2("0 1 5 1\n2\n").finals == {}


def test_infinite_scores() -> None:
    assert parse_k2("0 1 5 -inf\n1 2 -1 -Infinity\n2\n").weight.tolist() == [np.inf]


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("0 1 1 0.5\n", "line 1", "4 columns"),
        ("0 1\n1\n", "line 1", "2 columns"),
        ("0 1 1 1 1 1\n1\n", "line 1", "6 columns"),
        ("0 1 1\n0 1 1 1 1\n2\n", "line 1", "3 columns"),
        ("0 2 -1 0\n1 2 -1 0\n2 2 -1 0\n2\n", "line 3", "2"),
        ("0 3 1 0\n2\n", "line 1", "3"),
        ("0 1 1 0\n1\n", "line 1", "1"),
        ("0 1 -1 0\n2\n", "line 1", "1"),
        ("0 1 -2 0\n2\n", "line 1", "'-2'"),
        ("0 1 1 -1 0\n2\n", "line 1", "-1"),
        ("0 1 -1 4 0\n1\n", "line 1", "4"),
        ("0 1 1 nan\n2\n", "line 1", "'nan'"),
        ("0 1 1 inf\n2\n", "line 1", "'inf'"),
        ("0 1 1 0\nx\n", "line 2", "'x'"),
    ],
)
def test_errors_name_line_and_found(text: str, place: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_k2(text, path="bad.k2")
    assert (caught.value.path, caught.value.place) == ("bad.k2", place)
    assert caught.value.found == found


def test_a_transducer_is_not_written_as_an_acceptor() -> None:
    with pytest.raises(InputError, match="is a transducer"):
        render_k2(Fst.build([(0, 1, 2, 0, 0)], [0], semiring="log"), aux_labels=False)
