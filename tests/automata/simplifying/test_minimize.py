"""Minimization: OpenFST's numbers of states, Moore's partition, and what strings cost before and after."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
import pywrapfst
from hypothesis import given
from hypothesis import strategies as st
from machines import random_fst
from openfst import to_openfst
from string_costs import furthest, string_costs

from holdfast.automata import Fst
from holdfast.automata.simplifying.minimization import DELTA, minimize
from holdfast.automata.simplifying.pushing import push
from holdfast.automata.simplifying.subsets.determinizing import determinize
from holdfast.automata.structure import connect
from holdfast.errors import InputError


def deterministic(seed: int, *, states: int, labels: int = 3, ring: str = "tropical") -> Fst:
    """A random deterministic acceptor with cycles; weights are multiples of 1/8."""
    chance = random.Random(seed)

    def weight() -> float:
        return {"boolean": 1.0, "probability": chance.randint(1, 8) / 64}.get(
            ring, chance.randint(1, 16) / 8
        )

    arcs = [
        (state, label, label, weight(), chance.randrange(states))
        for state in range(states)
        for label in range(1, labels + 1)
        if chance.random() < 0.7
    ]
    finals = {state: weight() for state in range(states) if chance.random() < 0.3}
    return connect(Fst.build(arcs, finals, states=states, semiring=ring))


def blown_up(machine: Fst, seed: int, times: int = 4) -> Fst:
    """The same language and weights with every state several times, each with weights pushed elsewhere."""
    if not machine.num_states:
        return machine
    chance = random.Random(seed)
    shift = [[chance.randint(0, 8) / 8 for _ in range(times)] for _ in range(machine.num_states)]
    shift[machine.start] = [0.0, *shift[machine.start][1:]]
    if not machine.semiring.is_negative_log:
        shift = [[0.0] * times for _ in shift]
    arcs = []
    for arc in machine.arcs():
        for copy in range(times):
            target = chance.randrange(times)
            weight = arc.weight - shift[arc.source][copy] + shift[arc.nextstate][target]
            source = arc.source * times + copy
            arcs.append((source, arc.ilabel, arc.olabel, weight, arc.nextstate * times + target))
    finals = {
        state * times + copy: weight - shift[state][copy]
        for state, weight in machine.finals.items()
        for copy in range(times)
    }
    count = machine.num_states * times
    start = machine.start * times
    return Fst.build(arcs, finals, start=start, states=count, semiring=machine.semiring)


def openfst_states(machine: Fst) -> int:
    """The states of OpenFST's answer when weights are pushed exactly, rounded, and a part of the label.

    OpenFST's own pushing stops when sums change by less than its delta, so that over cycles in the log
    semiring alike states come out different. Where it is exact its `minimize` must say the same.
    """
    pushed = push(machine, remove_total=True)
    if not pushed.num_states:
        return 0
    rounded = [np.floor(part * 512 + 0.3) / 512 for part in (pushed.weight, pushed.final)]
    peer = to_openfst(pushed.with_(weight=rounded[0], final=rounded[1]))
    if machine.semiring.name == "tropical":
        whole = peer.copy()
        whole.minimize(delta=DELTA)
    encoder = pywrapfst.EncodeMapper(peer.arc_type(), encode_labels=True, encode_weights=True)
    peer.encode(encoder)
    peer.minimize()
    peer.decode(encoder)
    if machine.semiring.name == "tropical":
        assert whole.num_states() == peer.num_states()
    return int(peer.num_states())


@pytest.mark.quick(1)
@pytest.mark.parametrize("ring", ["tropical", "log", "log64"])
def test_numbers_of_states_are_those_of_openfst(ring: str) -> None:
    smaller = 0
    for seed in range(120):
        whole = deterministic(seed, states=2 + seed % 7, ring=ring)
        if ring != "tropical":  # so that sums over cycles are finite
            whole = whole.with_(weight=whole.weight + 2)
        if not whole.num_states:
            continue
        given = blown_up(whole, seed)
        made = minimize(given)
        assert made.num_states == openfst_states(given), seed
        assert made.num_states <= whole.num_states
        assert furthest(string_costs(given, 4), string_costs(made, 4)) < 1e-4
        smaller += made.num_states < given.num_states
    assert smaller > 60


@pytest.mark.parametrize("ring", ["tropical", "log"])
def test_acyclic_machines_agree_with_openfst(ring: str) -> None:
    for seed in range(200):
        given = determinize(
            random_fst(
                seed,
                states=8,
                arcs=18,
                labels=2,
                acceptor=True,
                acyclic=True,
                epsilons=0,
                semiring=ring,
            )
        )
        made = minimize(given)
        assert made.num_states == openfst_states(given)
        assert furthest(string_costs(given, 6), string_costs(made, 6)) < 1e-4


@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 4))
def test_boolean_machines_get_the_partition_of_moore(seed: int, states: int, labels: int) -> None:
    given = deterministic(seed, states=states, labels=labels, ring="boolean")
    made = minimize(given)
    if not given.num_states:
        assert not made.num_states
        return
    # Moore's algorithm: a state is told by its kind and those of its successors, until nothing changes.
    kind = {state: (bool(given.final[state]),) for state in range(given.num_states)}
    while True:
        told = {
            state: (
                kind[state],
                tuple(sorted((a.ilabel, kind[a.nextstate]) for a in given.arcs(state))),
            )
            for state in kind
        }
        names = {one: number for number, one in enumerate(sorted(set(told.values()), key=repr))}
        following = {state: (names[told[state]],) for state in kind}
        if len(set(following.values())) == len(set(kind.values())):
            break
        kind = following
    assert made.num_states == len(set(kind.values()))


@given(st.integers(0, 10**6), st.sampled_from(["tropical", "log", "probability", "boolean"]))
def test_minimal_machines_stay_as_they_are(seed: int, ring: str) -> None:
    once = minimize(blown_up(deterministic(seed, states=5, ring=ring), seed))
    again = minimize(once)
    assert again is once
    assert again.num_states == 0 or again.start == 0


@pytest.mark.parametrize("ring", ["boolean", "probability", "tropical", "log64"])
def test_strings_keep_their_costs(ring: str) -> None:
    for seed in range(60):
        given = blown_up(deterministic(seed, states=6, ring=ring), seed)
        assert furthest(string_costs(given, 4), string_costs(minimize(given), 4)) < 1e-5


def test_transducers_merge_states_with_the_same_outputs() -> None:
    arcs = [(0, 1, 4, 1, 1), (0, 2, 5, 2, 2), (1, 3, 6, 1, 3), (2, 3, 6, 2, 3)]
    made = minimize(Fst.build(arcs, [3], semiring="tropical"))
    assert made.num_states == 3
    assert [tuple(arc) for arc in made.arcs()] == [
        (0, 1, 4, 1.0, 1),
        (0, 2, 5, 3.0, 1),
        (1, 3, 6, 1.0, 2),
    ]
    arcs[3] = (2, 3, 7, 2, 3)
    assert minimize(Fst.build(arcs, [3], semiring="tropical")).num_states == 4
    for seed in range(150):
        given = determinize(
            random_fst(seed, states=8, arcs=18, labels=2, acyclic=True, semiring="log"),
            encode_labels=True,
        )
        made = minimize(given)
        assert furthest(string_costs(given, 6), string_costs(made, 6)) < 1e-4
        pairs = defaultdict(set)
        for arc in made.arcs():
            key = arc.ilabel, arc.olabel
            assert key not in pairs[arc.source]
            pairs[arc.source].add(key)


def test_noise_does_not_keep_states_apart() -> None:
    chance = np.random.default_rng(3)
    for seed in range(20):
        whole = deterministic(seed, states=6)
        given = blown_up(whole, seed, times=8)
        noisy = given.with_(
            weight=given.weight + chance.normal(0, 1e-6, given.num_arcs).astype(np.float32)
        )
        assert minimize(noisy).num_states == minimize(given).num_states


def test_what_is_not_deterministic_is_refused() -> None:
    twice = Fst.build([(0, 1, 1, 0, 1), (0, 1, 1, 0, 2), (2, 1, 1, 0, 1)], [1], semiring="log")
    with pytest.raises(InputError, match="only a deterministic machine") as refused:
        minimize(twice)
    assert refused.value.place is not None
    assert "state 0" in refused.value.place
    assert "determinize" in str(refused.value.remedy)
    negative = Fst.build([(0, 1, 1, -1, 0)], [0], semiring="tropical")
    with pytest.raises(InputError, match="diverges"):
        minimize(negative)


def test_nothing_and_next_to_nothing() -> None:
    assert minimize(Fst.empty(semiring="log")).num_states == 0
    assert minimize(Fst.build([(0, 1, 1, 0, 1)], [], semiring="log")).num_states == 0
    assert minimize(Fst.build([], {0: 3.0}, semiring="log")).finals == {0: 3.0}
    loop = minimize(
        Fst.build([(0, 1, 1, 2.0, 1), (1, 1, 1, 2.0, 0)], {0: 1.0, 1: 1.0}, semiring="log")
    )
    assert [tuple(arc) for arc in loop.arcs()] == [(0, 1, 1, 2.0, 0)]


def test_openfst_minimizes_no_further() -> None:
    for seed in range(60):
        made = minimize(blown_up(deterministic(seed, states=6), seed))
        if made.num_states:
            assert openfst_states(made) == made.num_states
            assert pywrapfst.randequivalent(
                to_openfst(made), to_openfst(deterministic(seed, states=6)), npath=30, seed=seed
            )
