"""Batches: each composition is the one that its machines give alone."""

from __future__ import annotations

import numpy as np
import pytest
import pywrapfst
from machines import random_fst
from openfst import to_openfst
from plain_composition import compose_plainly, same_bytes

from holdfast.automata import Fst
from holdfast.automata.composition import exploring, tables
from holdfast.automata.composition.batches import compose_batch
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.filters import FilterName
from holdfast.errors import InputError, LimitError


def machines(first: int, count: int) -> list[Fst]:
    return [
        random_fst(seed, states=3 + seed % 5, arcs=12, semiring="log")
        for seed in range(first, first + count)
    ]


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ["auto", "match", "trivial"])
def test_a_batch_is_composed_one_by_one(name: FilterName) -> None:
    one, others = random_fst(7, states=20, arcs=70, semiring="log"), machines(100, 20)
    for connect in (True, False):
        left = compose_batch(one, others, connect, filter=name)
        right = compose_batch(others, one, connect, filter=name)
        both = compose_batch(others, others[::-1], connect, filter=name)
        for k, other in enumerate(others):
            mirrored = others[-1 - k]
            assert same_bytes(left[k], compose_plainly(one, other, connect, name).machine)
            assert same_bytes(right[k], compose_plainly(other, one, connect, name).machine)
            assert same_bytes(both[k], compose(other, mirrored, connect, filter=name))


@pytest.mark.parametrize(("places", "dense"), [(1 << 18, 1 << 30), (0, 1 << 30), (0, 0)])
def test_arrays_and_tables_grow_within_a_batch(
    places: int, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "FIRST_STATES", 3)
    monkeypatch.setattr(exploring, "FIRST_ARCS", 5)
    monkeypatch.setattr(tables, "SMALL_PLACES", places)
    monkeypatch.setattr(tables, "DENSE_BYTES", dense)
    # The third is large, between small ones; the fourth is the empty machine.
    others = [*machines(1, 2), random_fst(5, states=200, arcs=900, semiring="log")]
    others += [Fst.empty("log"), *machines(3, 3)]
    one = random_fst(7, states=60, arcs=200, semiring="log")
    for connect in (True, False):
        for other, found in zip(others, compose_batch(one, others, connect), strict=True):
            assert same_bytes(found, compose_plainly(one, other, connect).machine)


def test_where_the_arcs_come_from() -> None:
    one, others = random_fst(7, states=20, arcs=70, semiring="log"), machines(200, 10)
    made = compose_batch(one, others, return_arc_map=True)
    for other, (machine, arcs) in zip(others, made, strict=True):
        expected, expected_arcs = compose(one, other, return_arc_map=True)
        assert same_bytes(machine, expected)
        assert np.array_equal(arcs.a, expected_arcs.a)
        assert np.array_equal(arcs.b, expected_arcs.b)


def test_where_the_arcs_of_pairs_come_from() -> None:
    lefts, rights = machines(1, 12), machines(300, 12)
    lefts[3] = rights[0] = rights[11] = Fst.empty("log")
    made = compose_batch(lefts, rights, return_arc_map=True)
    for a, b, (machine, arcs) in zip(lefts, rights, made, strict=True):
        expected, expected_arcs = compose(a, b, return_arc_map=True)
        assert same_bytes(machine, expected)
        assert np.array_equal(arcs.a, expected_arcs.a)
        assert np.array_equal(arcs.b, expected_arcs.b)


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_batch_has_the_states_and_arcs_of_openfst(count: int) -> None:
    one = random_fst(7, states=12, arcs=40)
    others = [random_fst(seed, states=3 + seed % 5, arcs=12) for seed in range(count)]
    left = to_openfst(one).arcsort("olabel")
    for other, found in zip(others, compose_batch(one, others), strict=True):
        wanted = pywrapfst.compose(left, to_openfst(other).arcsort("ilabel"))
        arcs = sum(map(wanted.num_arcs, range(wanted.num_states())))
        assert (found.num_states, found.num_arcs) == (wanted.num_states(), arcs)


def test_nothing_and_one() -> None:
    one = random_fst(1, semiring="log")
    assert compose_batch(one, []) == []
    assert compose_batch([], one) == []
    assert same_bytes(compose_batch(one, one)[0], compose(one, one))
    assert same_bytes(compose_batch(one, [one])[0], compose(one, one))


def test_what_does_not_fit_is_refused() -> None:
    one = random_fst(1, semiring="log")
    with pytest.raises(InputError, match="2 and 3 machines"):
        compose_batch([one] * 2, [one] * 3)
    with pytest.raises(InputError, match="semirings"):
        compose_batch(one, [one, one, one.as_semiring("tropical")])


def test_a_batch_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.automata.composition.batches.available_bytes", lambda: 2)
    with pytest.raises(LimitError):
        compose_batch(random_fst(7, states=20, arcs=70, semiring="log"), machines(1, 5))
