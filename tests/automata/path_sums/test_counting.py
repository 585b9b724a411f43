"""Numbers of paths, against every path listed and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import random_fst
from plain_paths import path_lengths

from holdfast.automata import Fst
from holdfast.automata.path_sums import counting
from holdfast.automata.path_sums import enumeration_kernels as kernels
from holdfast.automata.path_sums.counting import count_paths, number_of
from holdfast.errors import InputError


def test_counts_are_those_of_all_paths_listed() -> None:
    for seed in range(120):
        f = random_fst(seed, states=1 + seed % 9, arcs=(seed * 7) % 30, acyclic=True)
        lengths = path_lengths(f, 99)
        assert count_paths(f) == len(lengths), seed
        for bound in range(10):
            expected = sum(length <= bound for length in lengths)
            assert count_paths(f, bound) == expected, (seed, bound)


def test_counts_of_bounded_length_in_machines_with_cycles() -> None:
    for seed in range(80):
        f = random_fst(seed, states=2 + seed % 7, arcs=(seed * 7) % 20)
        for bound in range(6):
            assert count_paths(f, bound) == len(path_lengths(f, bound)), (seed, bound)


def segments(length: int, choices: int) -> Fst:
    """A chain in which every step has several choices."""
    arcs = [(s, 1 + c, 1, 0.0, s + 1) for s in range(length) for c in range(choices)]
    return Fst.build(arcs, [length], semiring="boolean").with_(
        weight=np.ones(length * choices, np.float32)
    )


@pytest.mark.parametrize("length", [1, 38, 39, 40, 61, 62, 63, 500])
def test_numbers_of_any_size_are_exact(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f = segments(length, 3)
    assert count_paths(f) == 3**length
    assert count_paths(f, length) == 3**length
    assert count_paths(f, length - 1) == 0
    loop = Fst.build([(0, label, label, 0.0, 0) for label in (1, 2, 3)], [0], semiring="log")
    assert count_paths(loop, length) == (3 ** (length + 1) - 1) // 2
    monkeypatch.setattr(counting, "TABLE_BYTES", 0)
    assert count_paths(f) == 3**length


def test_counting_in_integers_and_in_limbs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [random_fst(seed, states=60, arcs=3000, acyclic=True) for seed in range(20)]
    expected = [count_paths(f) for f in machines]
    assert max(expected) > 2**62
    monkeypatch.setattr(counting, "TABLE_BYTES", 0)
    assert [count_paths(f) for f in machines] == expected


def test_only_what_lies_on_paths_counts() -> None:
    arcs = [(0, 1, 1, 1.0, 1), (0, 1, 1, 1.0, 2), (2, 0, 0, 0.0, 2), (3, 1, 1, 1.0, 3)]
    f = Fst.build([*arcs, (3, 1, 1, 1.0, 1), (1, 1, 1, math.inf, 0)], [1], semiring="log")
    assert count_paths(f) == 1
    assert count_paths(Fst.empty(semiring="log")) == 0
    assert count_paths(Fst.build([(0, 1, 1, 1.0, 0)], {}, semiring="log")) == 0
    assert count_paths(Fst.build([], [0], states=1, semiring="log")) == 1


def test_infinitely_many_paths_are_named() -> None:
    f = Fst.build(
        [(0, 1, 1, 1.0, 1), (1, 0, 0, 1.0, 2), (2, 0, 0, 1.0, 1), (2, 1, 1, 1.0, 3)],
        [3],
        semiring="log",
    )
    with pytest.raises(InputError, match=r"(?s)infinitely many.*\{1, 2\}.*max_length"):
        count_paths(f)
    with pytest.raises(InputError, match=r"infinitely many"):
        count_paths(Fst.build([(0, 1, 1, 1.0, 0)], [0], semiring="log"))
    with pytest.raises(InputError, match="max_length"):
        count_paths(f, -1)


@given(st.lists(st.integers(0, 2**200), min_size=2, max_size=2))
def test_limbs_add_and_subtract_as_integers_do(numbers: list[int]) -> None:
    big, small = sorted(numbers, reverse=True)
    limbs = [
        np.array([(one >> (62 * k)) & (2**62 - 1) for k in range(5)], np.int64)
        for one in (big, small)
    ]
    total = limbs[0].copy()
    kernels.add_to(total, limbs[1])
    assert number_of(total) == big + small
    rest = limbs[0].copy()
    assert kernels.take_from(rest, limbs[1])
    assert number_of(rest) == big - small
    rest = limbs[1].copy()
    assert kernels.take_from(rest, limbs[0]) == (big == small)
    assert number_of(rest) == (0 if big == small else small)
