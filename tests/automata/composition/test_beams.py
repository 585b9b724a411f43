"""Pruned composition: all of it with an infinite beam, and what a beam may and may not cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from machines import path_costs, random_fst
from plain_beams import depths, reachable, search
from plain_composition import PlainComposition, compose_plainly, same_bytes

from holdfast.automata import Fst
from holdfast.automata.algebra.rational import closure
from holdfast.automata.algebra.strings import linear_emissions, trie
from holdfast.automata.composition.beams import compose_pruned
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.path_sums.distances import shortest_distance
from holdfast.errors import InputError, LimitError

FILTERS: tuple[FilterName, ...] = ("auto", "alt_sequence", "match", "trivial", "null")
EVERYTHING = math.inf


def pair(seed: int, **wanted: Any) -> tuple[Fst, Fst]:
    made = []
    for side in (0, 1):
        size = 1 + (seed + side) % 7
        semiring = ("tropical", "log", "log64", "probability")[seed % 4]
        one = random_fst(
            2 * seed + side, states=size, arcs=2 * size, epsilons=0.3, semiring=semiring, **wanted
        )
        made.append(Fst.empty(semiring) if (seed + side) % 17 == 16 else one)
    return made[0], made[1]


def emissions(seed: int, frames: int = 6, labels: int = 3) -> Fst:
    scores = np.random.default_rng(seed).normal(size=(frames, labels))
    return linear_emissions(
        scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), semiring="log64"
    )


def without_ties(machine: Fst, seed: int) -> Fst:
    noise = np.random.default_rng(seed).random(machine.num_arcs)
    return machine.with_(weight=machine.weight + noise)


def test_an_infinite_beam_is_composition_bit_for_bit() -> None:
    for seed in range(400):
        a, b = pair(seed)
        for connect in (True, False):
            wanted = compose_plainly(a, b, connect, FILTERS[seed % 5])
            made, arc_map = compose_pruned(
                a, b, EVERYTHING, connect=connect, filter=FILTERS[seed % 5], return_arc_map=True
            )
            assert same_bytes(made, wanted.machine), (seed, connect)
            assert arc_map.a.tolist() == wanted.arc_a, (seed, connect)
            assert arc_map.b.tolist() == wanted.arc_b, (seed, connect)


def test_a_beam_keeps_what_the_plain_search_keeps() -> None:
    """Scores over time, lattices, and machines with cycles, against machines with epsilons."""
    smaller = 0
    for seed in range(300):
        b = random_fst(seed, states=6, arcs=16, labels=3, epsilons=0.3, semiring="log64")
        b = without_ties(b, seed)
        if seed % 3 == 0:
            a = emissions(seed)
        else:
            a = random_fst(seed + 1000, states=6, arcs=12, acyclic=seed % 3 == 1, semiring="log64")
            a = without_ties(a, seed + 1000)
        exact = compose_plainly(a, b, connect=False)
        beam = (0.0, 0.5, 1.5, 4.0, EVERYTHING)[seed % 5]
        most = (1, 2, 3, 5, EVERYTHING)[seed // 5 % 5]
        wanted = reachable(exact, search(a, exact, beam, most).kept)
        made, arc_map = compose_pruned(
            a,
            b,
            beam,
            max_active=None if most == EVERYTHING else int(most),
            connect=False,
            return_arc_map=True,
        )
        assert made.num_states == len(wanted), seed
        arcs = [arc for arc in exact.machine.arcs() if {arc.source, arc.nextstate} <= wanted]
        assert made.num_arcs == len(arcs), seed
        assert sorted(made.weight.tolist()) == sorted(arc.weight for arc in arcs), seed
        weights = np.where(arc_map.a >= 0, a.weight[arc_map.a], 0)
        weights += np.where(arc_map.b >= 0, b.weight[arc_map.b], 0)
        assert np.array_equal(weights, made.weight), seed
        smaller += made.num_states < len(exact.states)
    assert smaller > 150


def best(costs: dict[Any, list[float]]) -> float:
    return min((cost for some in costs.values() for cost in some), default=math.inf)


def test_the_best_path_is_found_if_the_beam_is_as_wide_as_its_worst_state() -> None:
    found = lost = 0
    for seed in range(300):
        b = random_fst(
            seed, states=6, arcs=16, labels=3, epsilons=0.3, acyclic=True, semiring="log64"
        )
        b = without_ties(b, seed)
        a = without_ties(random_fst(seed + 1, states=5, arcs=14, acyclic=True, semiring="log64"), 1)
        exact = compose_plainly(a, b, connect=False)
        wanted = best(path_costs(exact.machine))
        if wanted == math.inf:
            continue
        everything = search(a, exact, EVERYTHING, EVERYTHING)
        worst = worst_deficit(a, exact, everything.cost, everything.best, wanted)
        for beam in (worst + 1e-9, worst / 2, 0.0):
            kept = path_costs(compose_pruned(a, b, beam))
            assert best(kept) >= wanted - 1e-9
            if beam >= worst:
                assert best(kept) == pytest.approx(wanted)
                found += 1
            else:
                lost += best(kept) > wanted + 1e-9
    assert found > 100
    assert lost > 10  # a narrow beam does lose it: the width matters


def worst_deficit(
    a: Fst, exact: PlainComposition, cost: list[float], lowest: dict[int, float], wanted: float
) -> float:
    """How much worse than the best of its frontier the best path gets, followed backwards."""
    depth = depths(a)
    finals = exact.machine.finals
    state = min(finals, key=lambda s: cost[s] + finals[s])
    assert cost[state] + finals[state] == pytest.approx(wanted)
    arcs = list(exact.machine.arcs())
    worst = 0.0
    while True:
        worst = max(worst, cost[state] - lowest[depth[exact.states[state][0]]])
        if state == 0:
            return worst
        state = next(
            arc.source
            for arc in arcs
            if arc.nextstate == state and cost[arc.source] + arc.weight == cost[state]
        )


def test_a_random_lexicon_is_searched_with_a_small_part_of_its_states() -> None:
    chance = np.random.default_rng(5)
    sounds = [chance.integers(1, 21, chance.integers(2, 6)) for _ in range(60)]
    lexicon = closure(trie(sounds, outputs=range(1, 61), semiring="tropical"))
    said = np.concatenate([sounds[word] for word in (7, 21, 4, 33, 58, 12)])
    scores = chance.normal(size=(len(said), 20))
    scores[np.arange(len(said)), said - 1] += 4
    a = linear_emissions(scores, semiring="tropical")
    exact = compose(a, lexicon)
    small = compose_pruned(a, lexicon, 6.0, max_active=20)
    assert 0 < small.num_states < exact.num_states / 2
    assert shortest_distance(small) == shortest_distance(exact)
    wide = compose_pruned(a, lexicon, EVERYTHING)
    assert same_bytes(wide, exact)


def test_equal_states_are_kept_in_order_of_discovery() -> None:
    a = Fst.build([(0, 1, 1, 0, 1), (1, 1, 1, 0, 2)], [2], semiring="tropical")
    b = Fst.build(
        [(0, 1, word, 1, word) for word in (1, 2, 3)] + [(w, 1, 0, 1, 4) for w in (1, 2, 3)],
        [4],
        semiring="tropical",
    )
    assert set(path_costs(compose_pruned(a, b, 10, max_active=2))) == {
        ((1, 1), (1,)),
        ((1, 1), (2,)),
    }


def test_bad_input_and_limits() -> None:
    a = emissions(1)
    looped = Fst.build([(0, 0, 1, -1, 1), (1, 0, 0, 0.5, 0)], [1], semiring="log64")
    with pytest.raises(InputError, match="negative cost"):
        compose_pruned(a, looped, EVERYTHING)
    words = Fst.build([(0, k, k, 1, 0) for k in (1, 2, 3)], [0], semiring="log64")
    with pytest.raises(InputError, match="0 or more"):
        compose_pruned(a, words, math.nan)
    with pytest.raises(InputError, match="1 or more"):
        compose_pruned(a, words, 1, max_active=0)
    with pytest.raises(InputError, match="semirings"):
        compose_pruned(a, words.as_semiring("log"), 1)
    with pytest.raises(LimitError, match="max_states"):
        compose_pruned(a, words, EVERYTHING, max_states=3)
    assert compose_pruned(a, words, EVERYTHING, max_states=7).num_states == 7
