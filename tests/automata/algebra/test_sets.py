"""Intersection, difference, complement: as OpenFST does, and by listing strings."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import pywrapfst
from machines import path_costs, random_fst
from openfst import to_openfst

from holdfast.automata import Fst
from holdfast.automata.algebra.sets import complement, difference, intersect, is_deterministic
from holdfast.errors import InputError

SEMIRINGS = ("tropical", "log", "log64")


def acceptor(seed: int, **wanted: Any) -> Fst:
    semiring = wanted.pop("semiring", SEMIRINGS[seed % 3])
    if seed % 19 == 18:
        return Fst.empty(semiring)
    size = 2 + seed % 5
    return random_fst(
        seed, states=size, arcs=2 * size, labels=3, acceptor=True, semiring=semiring, **wanted
    )


def unweighted(f: Fst) -> Fst:
    return f.as_semiring("boolean").as_semiring(f.semiring)


def dfa(seed: int, semiring: str, labels: int = 3, states: int = 4) -> Fst:
    """A random unweighted deterministic acceptor."""
    chance = random.Random(seed)
    arcs = [
        (state, label, label, 0.0, chance.randrange(states))
        for state in range(states)
        for label in range(1, labels + 1)
        if chance.random() < 0.6
    ]
    return Fst.build(
        arcs, [s for s in range(states) if chance.random() < 0.5], states=states, semiring=semiring
    )


def words(f: Fst, longest: int = 5) -> set[tuple[int, ...]]:
    """The strings of up to that length that a machine accepts: a walk over sets of states."""
    found: set[tuple[int, ...]] = set()
    if not f.num_states:
        return found
    zero = f.semiring.zero

    def closed(states: set[int]) -> set[int]:
        waiting = list(states)
        for state in waiting:
            new = {arc.nextstate for arc in f.arcs(state) if arc.ilabel == 0 and arc.weight != zero}
            waiting += new - states
            states |= new
        return states

    def walk(states: set[int], string: tuple[int, ...]) -> None:
        if any(f.final[state] != zero for state in states):
            found.add(string)
        if len(string) < longest:
            for label in (1, 2, 3):
                then = {a.nextstate for s in states for a in f.arcs(s) if a.ilabel == label}
                if then:
                    walk(closed(then), (*string, label))

    walk(closed({f.start}), ())
    return found


def test_intersection_by_listing_paths() -> None:
    for seed in range(150):
        a = acceptor(seed, acyclic=True)
        b = acceptor(seed + 1000, acyclic=True, semiring=a.semiring.name)
        both = path_costs(intersect(a, b))
        one, two = path_costs(a), path_costs(b)
        for string in {*one, *two, *both}:
            wanted = sorted(x + y for x in one.get(string, []) for y in two.get(string, []))
            assert sorted(both.get(string, [])) == wanted, seed


def test_difference_as_openfst() -> None:
    left = 0
    for seed in range(200):
        a = acceptor(seed)
        b = dfa(seed, a.semiring.name)
        ours = difference(a, b)
        theirs = pywrapfst.difference(
            to_openfst(a).arcsort("olabel"), to_openfst(b).arcsort("ilabel")
        )
        assert ours.num_states == theirs.num_states(), seed
        if ours.num_states:
            oracle = to_openfst(ours)
            assert sum(theirs.num_arcs(s) for s in theirs.states()) == ours.num_arcs, seed
            assert pywrapfst.isomorphic(oracle, theirs) or not theirs.properties(
                pywrapfst.I_DETERMINISTIC, True
            ), seed
            left += 1
    assert left > 100


@pytest.mark.quick(1)
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_difference_and_complement_by_listing_strings(first: int) -> None:
    every = {s for n in range(6) for s in itertools.product((1, 2, 3), repeat=n)}
    for seed in range(first, first + 40):
        a = acceptor(seed)
        b = unweighted(acceptor(seed + 500, semiring=a.semiring.name))  # epsilons, many paths
        ours = difference(a, b)
        assert words(ours) == words(a) - words(b), seed
        none = complement(b, [3, 1, 2])
        assert is_deterministic(none)
        assert words(none) == every - words(b), seed
        assert words(complement(none, [1, 2, 3])) == words(b), seed
        assert words(complement(b, [1, 2])) == {s for s in every - words(b) if 3 not in s}, seed


def test_a_difference_keeps_weights() -> None:
    for seed in range(100):
        a = acceptor(seed, acyclic=True)
        b = unweighted(acceptor(seed + 500, acyclic=True, semiring=a.semiring.name))
        gone = {string for string, costs in path_costs(b).items() if costs}
        wanted = {s: sorted(costs) for s, costs in path_costs(a).items() if s not in gone}
        made = {s: sorted(costs) for s, costs in path_costs(difference(a, b)).items()}
        assert made == wanted, seed
        whole = difference(a, b, connect=False)
        assert {s: sorted(costs) for s, costs in path_costs(whole).items()} == wanted, seed


def test_what_is_no_set_of_strings_is_refused() -> None:
    a = Fst.build([(0, 1, 1, 0, 1)], [1], semiring="log")
    weighted = a.with_(weight=np.float32([0.5]))
    with pytest.raises(InputError, match="B has weights"):
        difference(a, weighted)
    assert difference(weighted, a).num_states == 0
    pair = Fst.build([(0, 1, 2, 0, 1)], [1], semiring="log")
    for call in (
        lambda: intersect(a, pair),
        lambda: difference(pair, a),
        lambda: complement(pair, [1]),
    ):
        with pytest.raises(InputError, match="is a transducer"):
            call()
    with pytest.raises(InputError, match="1 or more"):
        complement(a, [0, 1])
    with pytest.raises(InputError, match="semirings"):
        difference(a, a.as_semiring("tropical"))
