"""Determinization: OpenFST's numbers of states, what strings cost before and after, and every refusal."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
import pywrapfst
from hypothesis import given
from hypothesis import strategies as st
from machines import path_costs, random_fst, relation
from openfst import from_openfst, to_openfst
from string_costs import furthest, string_costs

from holdfast.automata import SEMIRINGS, Fst, string_fst
from holdfast.automata.algebra.equality import cost_of_strings
from holdfast.automata.simplifying.alphabets import alphabet_of
from holdfast.automata.simplifying.subsets.determinizing import DELTA, determinize
from holdfast.automata.structure import connect
from holdfast.errors import InputError, LimitError


def is_deterministic(machine: Fst, pairs: bool = False) -> bool:
    keys = [(arc.source, arc.ilabel, arc.olabel * pairs) for arc in machine.arcs()]
    return len(keys) == len(set(keys))


def best_relation(machine: Fst) -> dict[object, float]:
    """What a machine means in its own semiring."""
    if machine.semiring.is_idempotent:
        return {strings: min(costs) for strings, costs in path_costs(machine).items()}
    return relation(machine)


@pytest.mark.parametrize("ring", ["tropical", "log"])
def test_acceptors_get_the_states_that_openfst_gives_them(ring: str) -> None:
    checked = 0
    for seed in range(300):
        given = random_fst(
            seed, states=6, arcs=11, acceptor=True, semiring=ring, acyclic=True, epsilons=0.1
        )
        made = determinize(given)
        peer = pywrapfst.determinize(to_openfst(connect(given)), delta=DELTA)
        assert made.num_states == peer.num_states(), seed
        assert made.num_arcs == sum(peer.num_arcs(state) for state in peer.states()), seed
        assert is_deterministic(made)
        assert furthest(string_costs(given, 5), string_costs(made, 5)) < 1e-4
        checked += made.num_states < given.num_states or made.num_arcs > given.num_arcs
    assert checked > 30


def test_cyclic_acceptors_that_can_be_determinized_agree_with_openfst() -> None:
    refused = 0
    for seed in range(300):
        given = random_fst(seed, states=6, arcs=9, acceptor=True, epsilons=0)
        try:
            made = determinize(given, max_states=500)
        except LimitError:
            refused += 1
            continue
        peer = pywrapfst.determinize(to_openfst(connect(given)), delta=DELTA)
        assert made.num_states == peer.num_states()
        assert pywrapfst.isomorphic(to_openfst(made), peer, delta=1e-4)
        assert furthest(string_costs(given, 5), string_costs(made, 5)) < 1e-4
    assert 0 < refused < 50


@pytest.mark.parametrize("ring", ["log", "log64", "probability"])
def test_cyclic_sums_keep_what_strings_cost(ring: str) -> None:
    checked = 0
    for seed in range(150):
        given = random_fst(seed, states=5, arcs=8, acceptor=True, semiring=ring, epsilons=0)
        try:
            made = determinize(given, max_states=300)
        except LimitError:
            continue
        checked += 1
        assert furthest(string_costs(given, 5), string_costs(made, 5)) < 5 * DELTA
    assert checked > 100


def with_classes(machine: Fst, seed: int) -> Fst:
    """Every arc with a range of bytes for its label, as a class of characters makes them."""
    chance = random.Random(seed)
    arcs = []
    for arc in machine.arcs():
        first = chance.randrange(1, 250)
        last = chance.choice([first, first + 5, 256])
        arcs += [(arc.source, b, b, 1.0, arc.nextstate) for b in range(first, last + 1)]
    return Fst.build(arcs, machine.finals, states=machine.num_states, semiring="boolean")


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_boolean_machines_get_the_subsets_of_python_sets(seed: int, labels: int) -> None:
    size = 20 if labels else 9
    given = random_fst(
        seed,
        states=8 if labels else 5,
        arcs=size,
        labels=labels or 1,
        acceptor=True,
        semiring="boolean",
        epsilons=0,
    )
    given = connect(given if labels else with_classes(given, seed))
    made = determinize(given)
    if not given.num_states:
        assert not made.num_states
        return
    if is_deterministic(given):
        assert made is given
        return
    # The subset construction with Python's sets.
    targets: dict[tuple[int, int], set[int]] = defaultdict(set)
    for arc in given.arcs():
        targets[arc.source, arc.ilabel].add(arc.nextstate)
    number = {frozenset([given.start]): 0}
    waiting = list(number)
    arcs = []
    for subset in waiting:
        for label in sorted({label for state, label in targets if state in subset}):
            reached = frozenset().union(*(targets.get((state, label), ()) for state in subset))
            if reached not in number:
                number[reached] = len(number)
                waiting.append(reached)
            arcs.append((number[subset], label, label, 1.0, number[reached]))
    finals = {number[s] for s in number if any(given.final[state] for state in s)}
    assert [tuple(arc) for arc in made.arcs()] == arcs
    assert set(made.finals) == finals


def test_functional_transducers_keep_their_relation() -> None:
    functional = 0
    for seed in range(500):
        given = random_fst(
            seed, states=6, arcs=9, labels=4, semiring="log", acyclic=True, epsilons=0.1
        )
        before = relation(given)
        outputs = defaultdict(set)
        for arcs in _paths_with_epsilons(given):
            outputs[tuple(arc.ilabel for arc in arcs)].add(
                tuple(arc.olabel for arc in arcs if arc.olabel)
            )
        if any(len(all_of) > 1 for all_of in outputs.values()):
            with pytest.raises(InputError, match="two outputs for one input"):
                determinize(given)
            continue
        functional += 1
        made = determinize(given)
        after = relation(made)
        assert before.keys() == after.keys()
        assert all(abs(cost - after[strings]) < 1e-4 for strings, cost in before.items())
    assert functional > 300


def _paths_with_epsilons(machine: Fst):  # type: ignore[no-untyped-def]
    waiting = [(machine.start, ())] if machine.num_states else []
    while waiting:
        state, arcs = waiting.pop()
        if state in machine.finals:
            yield arcs
        waiting += [(arc.nextstate, (*arcs, arc)) for arc in machine.arcs(state)]


def test_output_is_owed_until_the_input_decides() -> None:
    # a c -> x y, a d -> x z: x can be given at once; a e -> w cannot, so nothing is.
    arcs = [(0, 1, 24, 0, 1), (1, 3, 25, 0, 3), (0, 1, 24, 0, 2), (2, 4, 26, 0, 3)]
    early = determinize(Fst.build(arcs, [3], semiring="tropical"))
    assert [tuple(arc)[1:3] for arc in early.arcs()] == [(1, 24), (3, 25), (4, 26)]
    late = determinize(
        Fst.build([*arcs, (0, 1, 23, 0, 4), (4, 5, 0, 0, 3)], [3], semiring="tropical")
    )
    assert {pair: sum(costs) for pair, costs in path_costs(late).items()} == {
        ((1, 3), (24, 25)): 0.0,
        ((1, 4), (24, 26)): 0.0,
        ((1, 5), (23,)): 0.0,
    }
    assert [arc.olabel for arc in late.arcs(0)] == [0]
    # a -> x and a b -> x y z: the last state owes labels when the string is over.
    ends = determinize(
        Fst.build([(0, 1, 7, 1.5, 1), (0, 1, 0, 0.5, 2), (2, 2, 8, 0, 1)], [1], semiring="log")
    )
    assert {pair: sum(costs) for pair, costs in path_costs(ends).items()} == pytest.approx(
        {((1,), (7,)): 1.5, ((1, 2), (8,)): 0.5}
    )


def test_cyclic_functional_transducers_agree_with_openfst() -> None:
    """Two branches that read the same labels, told apart by the last one."""
    for seed in range(60):
        chance = np.random.default_rng(seed)
        loop, branches = [], 2
        for branch in range(branches):
            state = 1 + branch
            out = int(chance.integers(1, 4))
            loop += [(0, 1, out, 0.5, state), (state, 1, 0, 0.25, state)]
            loop.append((state, 2 + branch, int(chance.integers(0, 4)), 0.125, 3))
        given = Fst.build([*loop, (3, 5, 5, 1, 0)], [3], semiring="tropical")
        made = determinize(given)
        peer = from_openfst(pywrapfst.determinize(to_openfst(given), delta=DELTA))
        assert is_deterministic(made)
        assert pywrapfst.randequivalent(to_openfst(made), to_openfst(given), npath=20, seed=1)
        assert {s for s, _ in relation(_cut(made))} == {s for s, _ in relation(_cut(peer))}


def _cut(machine: Fst) -> Fst:
    """Without the arc that goes round, and without self-loops: acyclic."""
    return Fst.build(
        [arc for arc in machine.arcs() if arc.ilabel != 5 and arc.source != arc.nextstate],
        machine.finals,
        states=machine.num_states,
        start=machine.start,
        semiring="tropical",
    )


def test_encoded_labels_determinize_any_transducer() -> None:
    for seed in range(200):
        given = random_fst(seed, states=6, arcs=12, labels=2, semiring="log", acyclic=True)
        made = determinize(given, encode_labels=True)
        assert is_deterministic(made, pairs=True)
        assert furthest(string_costs(given, 5), string_costs(made, 5)) < 1e-4


def test_strings_of_a_cycle_cost_what_they_did() -> None:
    """Residuals that are merged must not add up along a long string."""
    chance = random.Random(7)
    given = [
        Fst.build(
            [(0, 1, 1, 0.5595, 0), (0, 1, 1, 0.631, 1), (1, 1, 1, 1.0007, 1)],
            {0: 0.7932, 1: 2.9786},
            semiring="log64",
        )
    ]
    given += [
        random_fst(seed, states=3, arcs=6, labels=1, acceptor=True, semiring="log64", epsilons=0)
        for seed in range(20)
    ]
    compared = 0
    for f in given:
        f = f.with_(weight=f.weight + chance.random() / 3)
        try:
            made = determinize(f, max_states=2000)
        except LimitError:
            continue
        for length in (60, 200, 1000):
            string = (1,) * length
            cost = cost_of_strings(f, string, string)
            assert cost_of_strings(made, string, string) == pytest.approx(cost, rel=1e-4), length
            compared += cost < np.inf
    assert compared > 20, compared


def test_deterministic_machines_come_back_whatever_their_size() -> None:
    long = string_fst([1, 2] * 600_000, semiring="log64")
    assert determinize(long) is long
    assert determinize(long, 5) is long
    for seed in range(40):
        made = determinize(random_fst(seed, acceptor=True, acyclic=True))
        assert determinize(made) is made
        two = random_fst(seed, acyclic=True)
        pairs = determinize(two, encode_labels=True)
        assert determinize(pairs, encode_labels=True) is pairs


def test_memory_bounds_the_construction() -> None:
    # The last letter but 17 is a 1: 2 ** 18 subsets.
    last = [(s, label, label, 1.0, s + 1) for s in range(1, 18) for label in (1, 2)]
    begin = [(0, 1, 1, 1.0, 0), (0, 2, 2, 1.0, 0), (0, 1, 1, 1.0, 1)]
    given = Fst.build([*begin, *last], [18], semiring="boolean")
    with pytest.raises(LimitError) as refused:
        determinize(given, memory_bytes=8_000_000)
    assert refused.value.allowed == "8.0 MB"
    assert determinize(given).num_states == 1 << 18
    with pytest.raises(InputError) as invalid:
        determinize(given, delta=0.0)
    assert invalid.value.code == "out-of-range"


def test_twins_that_differ_stop_at_the_limit() -> None:
    arcs = [(0, 1, 1, 1, 1), (0, 1, 1, 1, 2), (1, 2, 2, 1, 1), (2, 2, 2, 2, 2)]
    ends = [(1, 3, 3, 0, 3), (2, 4, 4, 0, 3)]
    given = Fst.build([*arcs, *ends], [3], semiring="tropical")
    before = given.weight.copy()
    with pytest.raises(LimitError, match="twins property") as refused:
        determinize(given, max_states=100)
    assert "more than 100 states, from 4" in refused.value.needed
    assert np.array_equal(given.weight, before)
    lagging = Fst.build(
        [(0, 1, 0, 0, 1), (0, 1, 0, 0, 2), (1, 2, 7, 0, 1), (2, 2, 8, 0, 2), *ends],
        [3],
        semiring="log",
    )
    with pytest.raises(LimitError, match="lags too far"):
        determinize(lagging)


def test_arrays_of_states_and_of_arcs_grow_at_once() -> None:
    """Two arcs more than states: both arrays must reach one length in one step."""
    arcs = [(0, 2, 2, 0.5, 0), (0, 1, 1, 1.5, 1), (1, 1, 1, 1.0, 0), (1, 2, 2, 1.5, 1)]
    f = Fst.build([*arcs, (1, 1, 1, 1.5, 1), (1, 2, 2, 1.0, 0)], {0: 0.5}, semiring="log64")
    with pytest.raises(LimitError):
        determinize(f, max_states=4000)


def test_noise_in_the_weights_adds_no_states() -> None:
    rounds = [0.1, 0.2, 0.3, 0.7]
    arcs = [(0, 1, 1, 0.1, 1), (0, 1, 1, 0.3, 5)]
    for branch in (0, 4):
        for at, cost in enumerate(rounds):
            here, there = 1 + branch + at, 1 + branch + (at + 1) % 4
            noise = 6e-8 if branch else 0.0
            arcs.append((here, 1, 1, cost + noise, there))
    made = determinize(Fst.build(arcs, {1: 0.0, 6: 0.1}, semiring="tropical"), max_states=10_000)
    assert (
        made.num_states < 10_000
    )  # a drift of 6e-8 a step would never come back to an exact residual


def test_labels_that_no_arc_tells_apart_are_one_group() -> None:
    label = np.array([5, 9, 5, 9, 7, 7], np.int32)
    source = np.array([0, 0, 1, 1, 0, 1], np.int32)
    target = np.array([1, 1, 2, 2, 1, 3], np.int32)
    made = alphabet_of(label, source, target, np.zeros(6, np.int64))
    assert made.labels.tolist() == [5, 7, 9]
    assert made.group.tolist() == [0, 1, 0]
    assert made.representatives.tolist() == [True, False, True, False, True, True]
    entered, weight = np.array([4, 5, 6], np.int32), np.array([0.5, 1.5, 2.5])
    arcs = made.expanded(np.array([0, 1, 3]), np.array([0, 1, 0], np.int32), entered, weight)
    assert arcs.offsets.tolist() == [0, 2, 5]
    assert arcs.label.tolist() == [5, 9, 5, 7, 9]
    assert arcs.nextstate.tolist() == [4, 4, 6, 5, 6]
    assert arcs.weight.tolist() == [0.5, 0.5, 2.5, 1.5, 2.5]
    assert arcs.origin.tolist() == [0, 0, 2, 1, 2]


def test_high_labels_and_nothing_at_all() -> None:
    high = 2**31 - 1
    made = determinize(
        Fst.build([(0, high, high, 1, 1), (0, high, high, 2, 1)], [1], semiring="log")
    )
    assert [(arc.ilabel, arc.nextstate) for arc in made.arcs()] == [(high, 1)]
    assert determinize(Fst.empty(semiring="log")).num_states == 0
    assert determinize(Fst.build([(0, 1, 1, 1, 1)], [], semiring="log")).num_states == 0
    alone = determinize(Fst.build([], {0: 2.5}, semiring="log"))
    assert alone.finals == {0: 2.5}
    zero = Fst.build([(0, 1, 1, 0.0, 1), (0, 1, 1, 0.5, 1)], [0, 1], semiring="probability")
    assert [arc.weight for arc in determinize(zero).arcs()] == [0.5]


@pytest.mark.parametrize("ring", ["tropical", "log", "boolean", "probability"])
def test_what_only_arcs_of_weight_zero_lead_to_is_left_out(ring: str) -> None:
    zero, one = SEMIRINGS[ring].zero, SEMIRINGS[ring].one
    blocked = Fst.build([(0, 1, 1, one, 1), (1, 2, 2, zero, 2)], [2], semiring=ring)
    assert determinize(blocked).num_states == 0
    partly = Fst.build(
        [(0, 1, 1, one, 1), (0, 1, 1, one, 2), (1, 2, 2, zero, 2)], [2], semiring=ring
    )
    assert determinize(partly).num_states == 2
