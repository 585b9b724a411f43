"""Sums over paths, against OpenFST, against linear algebra and against every path listed."""

from __future__ import annotations

import heapq
import math

import numpy as np
import numpy.typing as npt
import pytest
import pywrapfst
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from machines import costs, random_fst
from openfst import to_openfst

from holdfast.automata import Fst
from holdfast.automata.path_sums import distances as module
from holdfast.automata.path_sums import sparse_lu
from holdfast.automata.path_sums import system_kernels as systems
from holdfast.automata.path_sums.distances import (
    forward_score,
    shortest_distance,
    state_distances,
)
from holdfast.automata.path_sums.relaxation_kernels import heap_pop, heap_push
from holdfast.errors import InputError

SEEDS = range(150)


def some_machine(seed: int, semiring: str) -> Fst:
    return random_fst(
        seed,
        states=1 + seed % 11,
        arcs=(seed * 7) % 32,
        semiring=semiring,
        acyclic=seed % 3 == 0,
    )


def from_linear_algebra(f: Fst, reverse: bool) -> tuple[float, npt.NDArray[np.float64]]:
    """The spectral radius of the arcs' probabilities, and the sums as the solution of x = A x + b."""
    weight, final = f.weight.astype(float), f.final.astype(float)
    if f.semiring.is_negative_log:
        weight, final = np.exp(-weight), np.exp(-final)
    arcs = np.zeros((f.num_states, f.num_states))
    np.add.at(arcs, (f.source, f.nextstate), weight)
    radius = float(np.abs(np.linalg.eigvals(arcs)).max()) if f.num_states < 100 else math.nan
    ends = final if reverse else np.eye(f.num_states)[f.start]
    system = np.eye(f.num_states) - (arcs if reverse else arcs.T)
    return radius, np.linalg.solve(system, ends)


@pytest.mark.parametrize("reverse", [False, True])
def test_tropical_sums_are_those_of_openfst(reverse: bool) -> None:
    for seed in SEEDS:
        f = some_machine(seed, "tropical")
        theirs = [
            float(str(one).replace("Infinity", "inf"))
            for one in pywrapfst.shortestdistance(to_openfst(f), reverse=reverse)
        ]
        theirs += [math.inf] * (f.num_states - len(theirs))
        assert state_distances(f, reverse).tolist() == theirs, seed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("semiring", ["log", "log64", "probability"])
def test_sums_are_the_solution_of_the_linear_system(semiring: str, reverse: bool) -> None:
    summed = diverged = 0
    for seed in SEEDS:
        f = some_machine(seed, semiring)
        radius, expected = from_linear_algebra(f, reverse)
        try:
            found = state_distances(f, reverse)
        except InputError:
            assert radius >= 1 - 1e-12, seed
            diverged += 1
            continue
        if radius < 1:  # else the cycle that diverges is not on the way
            found = np.exp(-found) if f.semiring.is_negative_log else found
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=str(seed))
            summed += 1
    assert summed > 100
    assert diverged or semiring == "probability"


def test_openfst_sums_logarithms_alike() -> None:
    compared = 0
    for seed in SEEDS:
        f = some_machine(seed, "log64")
        try:
            ours = state_distances(f)
        except InputError:
            continue
        if from_linear_algebra(f, False)[0] > 0.9:
            continue  # theirs stops when the sum grows slowly
        theirs = [
            float(str(one).replace("Infinity", "inf"))
            for one in pywrapfst.shortestdistance(to_openfst(f), delta=1e-9)
        ]
        theirs += [math.inf] * (f.num_states - len(theirs))
        np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=str(seed))
        compared += 1
    assert compared > 80


def test_totals_are_those_of_all_paths_listed() -> None:
    for seed in SEEDS:
        f = random_fst(seed, states=6, arcs=10, acyclic=True, semiring="log")
        expected = costs(f)
        assert shortest_distance(f) == pytest.approx(expected, rel=1e-12), seed
        assert forward_score(f) == pytest.approx(-expected, rel=1e-12)
        chances = f.as_semiring("probability")
        assert -math.log(shortest_distance(chances) or 1e-300) == pytest.approx(
            min(expected, -math.log(1e-300)), rel=1e-12
        )
        assert shortest_distance(f.as_semiring("boolean")) == float(expected < math.inf)


def ring(size: int, cost: float, semiring: str = "log64") -> Fst:
    """A cycle of states 0, 1, ..., each arc at the same cost; the last state is final."""
    arcs = [(s, 1, 1, cost, (s + 1) % size) for s in range(size)]
    return Fst.build(arcs, [size - 1], semiring=semiring)


@pytest.mark.parametrize("size", [1, 2, 33, 600, 5000])
def test_a_ring_sums_to_a_geometric_series(size: int) -> None:
    for cost in (1e-6, 0.1, 3.0, 700.0):
        round_trip = math.log(-math.expm1(-cost * size))
        expected = np.arange(size) * cost + round_trip
        np.testing.assert_allclose(state_distances(ring(size, cost)), expected, rtol=1e-9)
        expected = expected[::-1]
        np.testing.assert_allclose(state_distances(ring(size, cost), True), expected, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 33, 600])
@pytest.mark.parametrize(("cost", "semiring"), [(0.0, "log"), (-0.5, "log64"), (-0.5, "tropical")])
def test_a_ring_that_diverges_is_named(size: int, cost: float, semiring: str) -> None:
    states = "0" if size == 1 else "0, 1"
    with pytest.raises(InputError, match=rf"sum diverges in component {{{states}\b"):
        state_distances(ring(size, cost, semiring))
    with pytest.raises(InputError, match=r"sum diverges in component"):
        shortest_distance(ring(size, cost, semiring))


def test_a_probability_of_one_around_diverges() -> None:
    arcs = [(0, 1, 1, 0.5, 1), (1, 1, 1, 0.5, 0), (0, 1, 1, 0.5, 0), (1, 2, 2, 0.5, 1)]
    with pytest.raises(InputError, match=r"component \{0, 1\}"):
        shortest_distance(Fst.build(arcs, {1: 1.0}, semiring="probability"))


@pytest.mark.parametrize("semiring", ["tropical", "log", "probability", "boolean"])
def test_cycles_on_no_path_do_not_count(semiring: str) -> None:
    gain, one = (-1.0, 0.0) if semiring in ("tropical", "log") else (2.0, 1.0)
    gain, one = (1.0, 1.0) if semiring == "boolean" else (gain, one)
    zero = 0.0 if semiring in ("probability", "boolean") else math.inf
    arcs = [
        (0, 1, 1, one, 1),
        (0, 1, 1, one, 2),  # a way into a cycle that leads nowhere
        (2, 1, 1, gain, 2),
        (3, 1, 1, gain, 3),  # a cycle that nothing leads to
        (3, 1, 1, one, 1),
        (1, 1, 1, zero, 4),  # arcs of weight zero lead nowhere
        (4, 1, 1, gain, 4),
        (4, 1, 1, zero, 1),
    ]
    f = Fst.build(arcs, {1: one}, semiring=semiring)
    assert shortest_distance(f) == one


def test_zero_cost_cycles_and_negative_costs_are_fine() -> None:
    arcs = [
        (0, 1, 1, 123456.7, 1),
        (1, 1, 1, 0.1, 2),  # around at no cost, which rounding hides
        (2, 1, 1, 0.1, 3),
        (3, 1, 1, -0.2, 1),
        (3, 1, 1, -5.0, 4),
        (4, 1, 1, 4.95, 1),
    ]
    f = Fst.build(arcs, [4], semiring="tropical")
    assert shortest_distance(f) == pytest.approx(123451.9, rel=1e-6)


def bellman_ford(f: Fst) -> list[float] | None:
    """Least costs in the plainest way; None if a cycle has a negative cost."""
    least = [math.inf] * f.num_states
    least[f.start] = 0.0
    for _ in range(f.num_states):
        before = list(least)
        for arc in f.arcs():
            least[arc.nextstate] = min(least[arc.nextstate], least[arc.source] + arc.weight)
        if before == least:
            return least
    return None


def test_negative_costs_against_plain_bellman_ford() -> None:
    cycles = sums = 0
    for seed in range(300):
        f = random_fst(seed, states=2 + seed % 8, arcs=(seed * 5) % 24)
        f = f.with_(weight=(f.weight - 1.2).astype(np.float32))
        expected = bellman_ford(f)
        if expected is None:
            cycles += 1
            with pytest.raises(InputError, match="negative cost"):
                state_distances(f)
        else:
            sums += 1
            np.testing.assert_allclose(state_distances(f), expected, rtol=1e-12, atol=1e-12)
    assert cycles > 50
    assert sums > 50


def strongly_connected(size: int, degree: int, radius: float, seed: int) -> Fst:
    """Random arcs and a ring, with the spectral radius given; states in random order."""
    chance = np.random.default_rng(seed)
    source = np.repeat(np.arange(size), degree)
    target = chance.integers(0, size, size * degree)
    target[::degree] = np.arange(1, size + 1) % size
    weight = chance.random(size * degree) + 0.01
    matrix = scipy.sparse.csr_array((weight, (source, target)), (size, size))
    vector = np.ones(size)
    for _ in range(200):  # the power method: a random graph mixes fast
        vector = matrix @ vector
        vector /= np.abs(vector).max()
    weight *= radius / np.median((matrix @ vector) / vector)
    names = chance.permutation(size).tolist()
    arcs = [
        (names[here], 1, 1, cost, names[to])
        for here, to, cost in zip(source, target, weight.tolist(), strict=True)
    ]
    return Fst.build(arcs, {0: 1.0}, semiring="probability")


@pytest.mark.parametrize("size", [40, 200])
@pytest.mark.parametrize("semiring", ["probability", "log64"])
def test_large_components_are_solved_as_precisely_as_they_allow(size: int, semiring: str) -> None:
    for radius in (0.3, 0.9, 0.999, 1 - 1e-6):
        f = strongly_connected(size, 4, radius, size)
        _, expected = from_linear_algebra(f, False)
        found = state_distances(f.as_semiring(semiring))
        found = np.exp(-found) if semiring == "log64" else found
        np.testing.assert_allclose(found, expected, rtol=1e-14 / (1 - radius) + 1e-12)
    for radius in (1 + 1e-7, 1.2, 3.0):
        with pytest.raises(InputError, match="spectral radius"):
            state_distances(strongly_connected(size, 4, radius, size).as_semiring(semiring))


@pytest.mark.parametrize("semiring", ["probability", "log64"])
def test_what_sweeps_do_not_decide_a_sparse_decomposition_does(
    semiring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk along a strip mixes slowly."""
    length, width = 250, 3
    decomposed = []
    monkeypatch.setattr(
        module, "solve", lambda *given: decomposed.append(True) or sparse_lu.solve(*given)
    )
    arcs = [
        (row * width + column, 1, 1, 0.29, (row + down) * width + column + right)
        for row in range(length)
        for column in range(width)
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
        if row + down in range(length) and column + right in range(width)
    ]
    f = Fst.build(arcs, {length * width - 1: 1.0}, semiring="probability")
    _, expected = from_linear_algebra(f, False)
    found = state_distances(f.as_semiring(semiring))
    found = np.exp(-found) if semiring == "log64" else found
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert decomposed
    with pytest.raises(InputError, match="diverges"):
        state_distances(f.with_(weight=f.weight * 1.02).as_semiring(semiring))


def test_the_ways_to_solve_a_system_agree() -> None:
    for seed in range(60):
        chance = np.random.default_rng(seed)
        size = 2 + seed % 12
        dense = chance.random((size, size)) * (chance.random((size, size)) < 0.5)
        dense += 0.05 * np.roll(np.eye(size), 1, 1)
        dense *= chance.choice([0.5, 0.95, 1.05]) / np.abs(np.linalg.eigvals(dense)).max()
        b = chance.random(size)
        sparse_form = scipy.sparse.csr_array(dense)
        system = (
            sparse_form.indptr.astype(np.int64), sparse_form.indices.astype(np.int64), sparse_form.data
        )  # fmt: skip
        diverges = np.abs(np.linalg.eigvals(dense)).max() > 1
        status, swept = systems.sweep(*system, b)
        eliminated = b.copy()
        assert systems.eliminate(*system, eliminated) == (not diverges), seed
        assert status == (systems.DIVERGES if diverges else systems.SOLVED), seed
        if not diverges:
            expected = np.linalg.solve(np.eye(size) - dense, b)
            np.testing.assert_allclose(eliminated, expected, rtol=1e-11)
            np.testing.assert_allclose(swept, expected, rtol=1e-11)


def test_costs_that_no_exponential_holds() -> None:
    arcs = [(0, 1, 1, 900.0, 1), (1, 1, 1, 800.0, 2), (2, 1, 1, -750.0, 1)]
    f = Fst.build(arcs, [2], semiring="log64")
    assert shortest_distance(f) == pytest.approx(1700.0 + math.log1p(-math.exp(-50.0)), rel=1e-15)
    gains = f.with_(weight=f.weight - np.array([0.0, 0.0, 50.0]))
    with pytest.raises(InputError, match=r"component \{1, 2\}"):
        shortest_distance(gains)


@pytest.mark.parametrize("semiring", ["tropical", "log", "log64", "probability", "boolean"])
def test_machines_without_paths(semiring: str) -> None:
    empty = Fst.empty(semiring)
    zero = empty.semiring.zero
    assert len(state_distances(empty)) == len(state_distances(empty, True)) == 0
    assert shortest_distance(empty) == zero
    one = empty.semiring.one
    no_finals = Fst.build([(0, 1, 1, one, 1), (1, 0, 0, one, 1)][:1], {}, semiring=semiring)
    assert shortest_distance(no_finals) == zero
    assert forward_score(no_finals) == -math.inf
    assert state_distances(no_finals, True).tolist() == [zero, zero]
    assert state_distances(no_finals).tolist() == [one, one]
    only_start = Fst.build([], [0], states=1, semiring=semiring)
    assert shortest_distance(only_start) == one
    assert forward_score(only_start) == 0.0


@given(st.lists(st.integers(0, 20), max_size=60), st.data())
def test_the_heap_gives_the_least_key_then_the_least_item(
    keys: list[int], data: st.DataObject
) -> None:
    heap_keys, items = np.empty(len(keys)), np.empty(len(keys), np.int64)
    waiting: list[tuple[float, int]] = []
    for item, key in enumerate(keys):
        heap_push(heap_keys, items, len(waiting), float(key), item)
        heapq.heappush(waiting, (key, item))
        if data.draw(st.booleans()):
            assert heap_pop(heap_keys, items, len(waiting)) == heapq.heappop(waiting)
    while waiting:
        assert heap_pop(heap_keys, items, len(waiting)) == heapq.heappop(waiting)
