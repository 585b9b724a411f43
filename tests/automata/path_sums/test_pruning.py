"""Pruning, against OpenFST and against every path listed."""

from __future__ import annotations

import math

import pytest
import pywrapfst
from machines import path_costs, random_fst
from openfst import to_openfst

from holdfast.automata import Fst
from holdfast.automata.path_sums.best import prune
from holdfast.automata.structure import connect
from holdfast.errors import InputError


def test_what_is_left_is_what_openfst_leaves() -> None:
    for seed in range(200):
        f = random_fst(seed, states=1 + seed % 12, arcs=(seed * 7) % 40, acyclic=seed % 3 == 0)
        for threshold in (0.0, 0.5, 2.0, 5.0):
            ours = prune(f, threshold)
            theirs = pywrapfst.prune(to_openfst(f), weight=threshold)
            found = sorted((arc.ilabel, arc.olabel, arc.weight) for arc in ours.arcs())
            expected = sorted(
                (arc.ilabel, arc.olabel, float(str(arc.weight)))
                for state in theirs.states()
                for arc in theirs.arcs(state)
            )
            assert found == expected, (seed, threshold)
            assert ours.num_states == theirs.num_states()


@pytest.mark.parametrize("semiring", ["tropical", "log", "log64"])
def test_all_paths_within_the_threshold_are_kept(semiring: str) -> None:
    for seed in range(100):
        f = random_fst(seed, states=7, arcs=12, acyclic=True, semiring=semiring)
        whole = {(s, c) for s, costs in path_costs(f).items() for c in costs}
        best = min((cost for _, cost in whole), default=math.inf)
        for threshold in (0.0, 1.0, 3.0):
            left = {(s, c) for s, costs in path_costs(prune(f, threshold)).items() for c in costs}
            assert {one for one in whole if one[1] <= best + threshold} <= left <= whole


def test_probabilities_and_yes_or_no() -> None:
    arcs = [(0, 1, 1, 0.5, 1), (0, 2, 2, 0.25, 1), (0, 3, 3, 0.01, 1)]
    f = Fst.build(arcs, {1: 1.0}, semiring="probability")
    assert prune(f, math.log(2) + 1e-9).num_arcs == 2
    assert prune(f, math.log(2) - 1e-9).num_arcs == 1
    assert prune(f.as_semiring("boolean"), 0.0).num_arcs == 3


def test_at_most_so_many_states_the_best() -> None:
    for seed in range(100):
        f = random_fst(seed, states=10, arcs=30)
        for most in (1, 3, 6, 10):
            left = prune(f, math.inf, max_states=most)
            assert left.num_states <= most
    chain = [(s, 1, 1, 1.0, s + 1) for s in range(4)] + [(0, 1, 1, 0.5, 5), (5, 1, 1, 0.5, 4)]
    f = Fst.build(chain, [4], semiring="log")
    assert prune(f, math.inf, max_states=3).num_arcs == 2
    assert prune(f, math.inf, max_states=2).num_states == 0
    assert prune(f, 100.0, max_states=6).num_arcs == 6


def test_no_threshold_keeps_what_lies_on_a_path() -> None:
    for seed in range(50):
        f = random_fst(seed, states=8, arcs=12)
        kept, expected = prune(f, math.inf), connect(f)
        assert (kept.num_states, kept.num_arcs) == (expected.num_states, expected.num_arcs)
    assert prune(Fst.empty("log"), 1.0).num_states == 0
    assert prune(Fst.build([(0, 1, 1, 1.0, 1)], {}, semiring="log"), 1.0).num_states == 0


def test_arguments_that_are_none() -> None:
    f = Fst.build([], [0], states=1, semiring="log")
    for threshold in (-1.0, math.nan):
        with pytest.raises(InputError, match="invalid threshold"):
            prune(f, threshold)
    with pytest.raises(InputError, match="number of states"):
        prune(f, 1.0, max_states=0)
