"""Epsilon removal: OpenFST's machines, relations by brute force, and cycles solved exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import pywrapfst
from hypothesis import given
from hypothesis import strategies as st
from machines import path_costs, random_fst, relation
from openfst import to_openfst
from string_costs import string_costs

from holdfast.automata import SEMIRINGS, Fst
from holdfast.automata.simplifying import epsilon_removal as removing
from holdfast.automata.simplifying.epsilon_removal import rmepsilon
from holdfast.automata.structure import connect, is_connected
from holdfast.errors import InputError, LimitError


def has_epsilons(machine: Fst) -> bool:
    return bool(((machine.ilabel == 0) & (machine.olabel == 0)).any())


@pytest.mark.parametrize("ring", ["tropical", "log"])
def test_as_openfst_does(ring: str) -> None:
    checked = 0
    for seed in range(300):
        machine = connect(
            random_fst(
                seed,
                states=4 + seed % 7,
                arcs=14,
                acceptor=seed % 3 == 0,
                labels=2,
                epsilons=0.5,
                semiring=ring,
            )
        )
        if not has_epsilons(machine):
            assert rmepsilon(machine) is machine
            continue
        try:
            made = rmepsilon(machine)
        except InputError:
            assert ring == "log"
            continue
        peer = to_openfst(machine)
        peer.rmepsilon(delta=1e-6)
        assert pywrapfst.isomorphic(to_openfst(made), peer, delta=1e-2), seed
        assert not has_epsilons(made)
        assert is_connected(made)
        checked += 1
    assert checked > 200


@pytest.mark.parametrize("ring", ["tropical", "log"])
def test_relations_of_acyclic_machines_stay(ring: str) -> None:
    for seed in range(200):
        machine = random_fst(seed, states=7, arcs=14, epsilons=0.7, acyclic=True, semiring=ring)
        made = rmepsilon(machine)
        assert not has_epsilons(made)
        if ring == "log":
            before, after = relation(machine), relation(made)
        else:
            before, after = (
                {strings: min(costs) for strings, costs in path_costs(one).items()}
                for one in (machine, made)
            )
        assert before.keys() == after.keys()
        assert all(abs(cost - after[strings]) < 1e-4 for strings, cost in before.items())


@given(st.integers(0, 10**6), st.sampled_from(["log64", "probability"]))
def test_cycles_of_epsilons_are_solved_exactly(seed: int, ring: str) -> None:
    """The weight of a string is start (E* A)^n E* final, with E* = (I - E)^-1, by NumPy."""
    machine = connect(
        random_fst(seed, states=6, arcs=18, labels=1, acceptor=True, epsilons=0.6, semiring=ring)
    )
    if ring == "log64":
        machine = machine.with_(weight=machine.weight + 1)
    if not machine.num_states:
        return
    ring_cost = machine.as_semiring("log64")
    size = machine.num_states
    moves = {label: np.zeros((size, size)) for label in (0, 1)}
    for arc in ring_cost.arcs():
        moves[arc.ilabel][arc.source, arc.nextstate] += math.exp(-arc.weight)
    if abs(np.linalg.eigvals(moves[0])).max() >= 0.999:
        return
    closed = np.linalg.inv(np.eye(size) - moves[0])
    vector, ends = closed[machine.start], np.exp(-ring_cost.final)
    made = string_costs(rmepsilon(machine), 3)
    for length in range(4):
        expected = float(vector @ ends)
        found = math.exp(-made.get(((1, 1),) * length, math.inf))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-300)
        vector = vector @ moves[1] @ closed


def test_boolean_machines_accept_the_same_strings() -> None:
    for seed in range(150):
        machine = random_fst(
            seed, states=6, arcs=12, labels=2, epsilons=0.4, acceptor=True, semiring="boolean"
        )
        made = set(string_costs(rmepsilon(machine), 3))
        # With up to five epsilons between two labels every string of one label has been seen.
        listed = {
            tuple(pair for pair in string if pair != (0, 0)) for string in string_costs(machine, 6)
        }
        assert {string for string in listed if len(string) <= 3} <= made
        assert {string for string in made if not string} == {s for s in listed if not s}


def test_sums_that_diverge_name_their_component() -> None:
    negative = [(0, 1, 1, 1, 1), (1, 0, 0, -2, 2), (2, 0, 0, 1, 1), (2, 1, 1, 0, 3)]
    with pytest.raises(InputError, match=r"sum diverges in component \{1, 2\}"):
        rmepsilon(Fst.build(negative, [3], semiring="tropical"))
    certain = [(0, 0, 0, 0.5, 0), (0, 0, 0, 0.5, 1), (1, 0, 0, 1.0, 0), (1, 1, 1, 0.1, 2)]
    with pytest.raises(InputError, match=r"sum diverges in component \{0, 1\}"):
        rmepsilon(Fst.build(certain, [2], semiring="probability"))
    with pytest.raises(InputError, match=r"sum diverges in component \{0\}"):
        rmepsilon(Fst.build([(0, 0, 0, 0.0, 0)], [0], semiring="log"))
    # Where no path goes nothing diverges, and neither does a sum just below one.
    aside = [*negative[1:3], (0, 1, 1, 1, 3), (1, 1, 1, 1, 3)]
    assert rmepsilon(Fst.build(aside, [3], semiring="tropical")).num_arcs == 1
    nearly = rmepsilon(Fst.build([(0, 0, 0, 1 - 2**-40, 0)], [0], semiring="probability"))
    assert nearly.finals == pytest.approx({0: 2.0**40}, rel=1e-3)
    free = rmepsilon(Fst.build([(0, 0, 0, 0.0, 0)], {0: 1.5}, semiring="tropical"))
    assert free.finals == {0: 1.5}


def test_rounding_is_no_negative_cycle() -> None:
    arcs = [(0, 0, 0, 0.1, 1), (1, 0, 0, 0.2, 2), (2, 0, 0, -0.3, 0), (2, 1, 1, 1.0, 3)]
    made = rmepsilon(Fst.build(arcs, [3], semiring="tropical"))
    assert [arc.weight for arc in made.arcs()] == pytest.approx([1.3])


def test_nothing_and_next_to_nothing() -> None:
    assert rmepsilon(Fst.empty(semiring="log")).num_states == 0
    assert rmepsilon(Fst.build([(0, 0, 0, 1.0, 1)], [], semiring="log")).num_states == 0
    only = rmepsilon(Fst.build([(0, 0, 0, 1.0, 1)], {1: 0.5}, semiring="log"))
    assert only.finals == {0: 1.5}
    assert only.num_arcs == 0


@pytest.mark.parametrize("ring", ["tropical", "log64", "probability"])
def test_large_cycles_and_chains_of_epsilons(ring: str) -> None:
    size = 10_000
    one = SEMIRINGS[ring].one
    step = 0.999 if ring == "probability" else 1e-4
    around = [(s, 0, 0, step, (s + 1) % size) for s in range(size)]
    cycle = Fst.build([*around, (size // 2, 1, 1, one, size)], [size], semiring=ring)
    made = rmepsilon(cycle, memory_bytes=2_000_000)
    assert (made.num_states, made.num_arcs) == (2, 1)
    (cost,) = made.as_semiring("log64").weight
    total = size * (-math.log(step) if ring == "probability" else step)
    expected = total / 2 + (0.0 if ring == "tropical" else math.log(-math.expm1(-total)))
    assert cost == pytest.approx(expected, rel=1e-9 if ring != "tropical" else 1e-5)
    chain = [(s, label, label, one, s + 1) for s in range(60_000) for label in (0, 1)]
    with pytest.raises(LimitError):
        rmepsilon(Fst.build(chain, [60_000], semiring=ring), memory_bytes=50_000_000)
    assert (
        rmepsilon(Fst.build(chain[:200], [100], semiring=ring), memory_bytes=1 << 19).num_arcs
        == 5050
    )


def chained(size: int) -> list[tuple[int, ...]]:
    return [(s, label, label, 0, s + 1) for s in range(size) for label in (0, 1)]


def test_what_will_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    search = removing.kernels.without_epsilons

    def watched(*given: Any) -> Any:
        made.append(len(given[-3]))
        return search(*given)

    monkeypatch.setattr(removing.kernels, "without_epsilons", watched)
    large = Fst.build(chained(60_000), [60_000])  # 1.8 billion arcs
    with pytest.raises(LimitError):
        rmepsilon(large, memory_bytes=20 << 30)
    assert max(made) <= 2 * max(8 * large.num_arcs, 1 << 20)
    monkeypatch.setattr(removing, "MANY_ARCS", 0)
    pairs = [(s, 0, 0, 1, s - s % 2 + (s + 1) % 2) for s in range(400)]  # cycles of two, in a row
    layers = [(s, 0, 0, 1, t) for s in range(300) for t in range(s - s % 10 + 10, s - s % 10 + 20)]
    own = [(s, 1 + s % 3, 0, 1, 310 + s) for s in range(310)]
    back = [(310 + s, 2, 2, 1, s) for s in range(310)]
    for arcs, last in (
        (chained(500), 500),
        (pairs + [(s, *rest) for s, *rest in chained(399)], 399),
        (layers + own + back, 309),
    ):
        machine = Fst.build(arcs, [last])
        number = rmepsilon(machine).num_arcs
        assert number > 10 * machine.num_arcs
        assert rmepsilon(machine, memory_bytes=number * removing.ARC_BYTES).num_arcs == number
        made.clear()
        with pytest.raises(LimitError):
            rmepsilon(machine, memory_bytes=number * removing.ARC_BYTES // 3)
        assert max(made) <= 2 * 8 * machine.num_arcs


def test_slow_sums_and_dense_components() -> None:
    """More states than are eliminated densely, and cycles that sweeps hardly sum: solved exactly."""
    chance = np.random.default_rng(2)
    size = 600
    hops = [
        (int(s), 0, 0, 0.0, int(t)) for s, t in chance.integers(0, size, (3 * size, 2)) if s != t
    ]
    ring_of = [(s, 0, 0, 0.0, (s + 1) % size) for s in range(size)]
    arcs = [*ring_of, *hops]
    counts = np.bincount([s for s, *_ in arcs], minlength=size)
    arcs = [(s, 0, 0, (1 - 1e-7 * (s == 0)) / counts[s], t) for s, _, _, _, t in arcs]
    ends = [(s, 1, 1, 1e-7, size) for s in (0,)]
    made = rmepsilon(Fst.build([*arcs, *ends], [size], semiring="probability"))
    # Whoever walks at random leaves by the one exit in the end.
    assert made.weight.tolist() == pytest.approx([1.0], rel=1e-4)  # as exact as 1 - 1e-7 allows
