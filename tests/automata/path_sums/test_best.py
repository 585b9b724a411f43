"""Best paths, against OpenFST and against every path listed."""

from __future__ import annotations

import itertools
import math
import pathlib

import numpy as np
import pytest
import pywrapfst
from machines import path_costs, random_fst
from openfst import from_openfst, to_openfst
from plain_paths import arc_paths

from holdfast.automata import SEMIRINGS, Fst, SymbolTable, string_fst
from holdfast.automata.path_sums.best import paths, prune, shortest_path
from holdfast.automata.path_sums.distances import shortest_distance, state_distances
from holdfast.automata.path_sums.path import Path
from holdfast.errors import InputError, LimitError

NAMES = ["tropical", "log", "log64", "probability", "boolean"]


def some_machine(seed: int) -> Fst:
    return random_fst(
        seed,
        states=1 + seed % 9,
        arcs=(seed * 7) % 30,
        acyclic=seed % 3 == 0,
        acceptor=seed % 2 == 0,
    )


def listed_costs(f: Fst) -> list[float]:
    return sorted(cost for costs in path_costs(f).values() for cost in costs)


def test_n_best_costs_are_those_of_openfst() -> None:
    for seed in range(200):
        f = some_machine(seed)
        theirs = to_openfst(f)
        for n in (1, 2, 10, 40):
            expected = listed_costs(from_openfst(pywrapfst.shortestpath(theirs, nshortest=n)))
            assert listed_costs(shortest_path(f, n)) == expected, (seed, n)


@pytest.mark.quick(2)
@pytest.mark.parametrize("first", range(7))
def test_n_best_strings_are_those_of_openfst(first: int) -> None:
    for seed in range(first, 200, 7):
        f = some_machine(seed)
        theirs = to_openfst(f).project("input").rmepsilon()
        for n in (1, 3, 20):
            best = pywrapfst.shortestpath(theirs, nshortest=n, unique=True)
            expected = listed_costs(from_openfst(best))
            found = path_costs(shortest_path(f, n, unique=True))
            assert len({left for left, _ in found}) == sum(map(len, found.values())), (seed, n)
            assert sorted(itertools.chain(*found.values())) == expected, (seed, n)


def test_the_best_path_of_each_string_is_taken() -> None:
    for seed in range(0, 200, 3):
        f = some_machine(seed)
        best: dict[tuple[int, ...], float] = {}
        for (left, _), costs in path_costs(f).items():
            best[left] = min(best.get(left, math.inf), *costs)
        everything = path_costs(shortest_path(f, 10_000, unique=True))
        assert {left: costs[0] for (left, _), costs in everything.items()} == best, seed
        there = path_costs(f)
        assert all(costs[0] in there[strings] for strings, costs in everything.items())


def test_all_paths_come_in_order_of_cost_each_once() -> None:
    for seed in range(0, 300, 3):
        f = some_machine(seed)
        expected = arc_paths(f, 99)
        found = list(paths(f))
        assert {path.arcs: path.weight for path in found} == expected, seed
        assert len(found) == len(expected)
        assert [path.weight for path in found] == sorted(expected.values())
        by_strings: dict[object, list[float]] = {}
        for path in found:
            by_strings.setdefault((path.ilabels, path.olabels), []).append(path.weight)
        assert by_strings == {strings: sorted(costs) for strings, costs in path_costs(f).items()}
        assert [path.weight for path in paths(f, 7)] == sorted(expected.values())[:7]
        assert list(paths(f, 0)) == []


def test_the_paths_of_a_cyclic_machine_have_no_end() -> None:
    for seed in range(100):
        f = random_fst(seed, states=4, arcs=8)
        found = list(paths(f, 30))
        longest = max((len(path.arcs) for path in found), default=0)
        if longest > 9:
            continue
        expected = arc_paths(f, longest + 2)  # no arc costs nothing: longer ones cost more
        costs = sorted(expected.values())[:30]
        assert [path.weight for path in found][: len(costs)] == costs, seed
        assert len({path.arcs for path in found}) == len(found)


def test_cycles_that_cost_nothing_end() -> None:
    arcs = [(0, 0, 0, 0.0, 0), (0, 1, 1, 0.0, 1), (1, 0, 0, 0.0, 0), (1, 2, 2, 1.0, 2)]
    f = Fst.build(arcs, {2: 0.5}, semiring="tropical")
    assert [path.weight for path in paths(f, 50)] == [1.5] * 50
    assert next(paths(f)).arcs == (1, 3)
    strings = path_costs(shortest_path(f, 3, unique=True))
    assert set(strings) == {((1,) * k + (2,), (1,) * k + (2,)) for k in (1, 2, 3)}
    assert shortest_path(f).num_arcs == 2


def test_many_equal_paths_need_no_work_for_a_few() -> None:
    """2 to the 400 paths, all at one cost, and a cycle at every state."""
    length = 400
    arcs = [(s, label, label, 0.0, s + 1) for s in range(length) for label in (1, 2)]
    f = Fst.build(arcs, [length], semiring="tropical")
    assert listed_costs(shortest_path(f, 5)) == [0.0] * 5
    assert len(path_costs(shortest_path(f, 5, unique=True))) == 5
    loops = [(s, 3, 3, 0.0, s) for s in range(length)]
    f = Fst.build(arcs + loops, [length], semiring="tropical")
    assert listed_costs(shortest_path(f, 5)) == [0.0] * 5
    assert len(path_costs(shortest_path(f, 5, unique=True))) == 5


@pytest.mark.parametrize("loop", [0.0, 1e-30, 1e-17])
def test_cycles_that_cost_next_to_nothing_end(loop: float) -> None:
    arcs = [(0, 1, 1, loop, 0), (0, 2, 2, 700.0, 1), (1, 3, 3, loop, 2), (2, 4, 4, loop, 1)]
    f = Fst.build(arcs, {2: 300.0}, semiring="log64")
    assert [path.weight for path in paths(f, 20)] == [1000.0] * 20
    assert shortest_path(f).num_arcs == 2
    assert len(path_costs(shortest_path(f, 20, unique=True))) == 20


def test_few_strings_on_many_paths() -> None:
    length = 12
    arcs = [(s, 1, 1 + c, c / 4, s + 1) for s in range(length) for c in range(3)]
    f = Fst.build([*arcs, (0, 2, 1, 40.0, length)], [length], semiring="tropical")
    found = path_costs(shortest_path(f, 5, unique=True))
    assert found == {((1,) * length, (1,) * length): [0.0], ((2,), (1,)): [40.0]}


@pytest.mark.full
def test_a_million_states_beside_openfst(tmp_path: pathlib.Path) -> None:
    chance = np.random.default_rng(7)
    states, degree = 1_000_000, 4
    source = np.repeat(np.arange(states - 1), degree)
    target = np.minimum(source + chance.integers(1, 200, len(source)), states - 1)
    final = np.full(states, np.inf, np.float32)
    final[-1] = 0.0
    label = chance.integers(1, 1000, len(source), np.int32)
    offsets = np.append(np.arange(states) * degree, len(source))
    weight = (chance.integers(8, 64, len(source)) / 8).astype(np.float32)
    ring = SEMIRINGS["tropical"]
    f = Fst(offsets, label, label, target.astype(np.int32), weight, final, 0, ring)
    f.write(tmp_path / "f.fst")
    theirs = pywrapfst.Fst.read(str(tmp_path / "f.fst"))
    for reverse in (False, True):
        distances = pywrapfst.shortestdistance(theirs, reverse=reverse)
        expected = [float(str(one).replace("Infinity", "inf")) for one in distances]
        assert state_distances(f, reverse).tolist() == expected
    for n in (1, 100):
        best = from_openfst(pywrapfst.shortestpath(theirs, nshortest=n))
        assert [path.weight for path in paths(best)] == [path.weight for path in paths(f, n)]
    pruned, expected_pruned = prune(f, 2.0), pywrapfst.prune(theirs, weight=2.0)
    assert pruned.num_states == expected_pruned.num_states()


def test_negative_costs_are_fine_and_negative_cycles_are_named() -> None:
    arcs = [(0, 1, 1, -2.0, 1), (1, 2, 2, 1.0, 2), (0, 3, 3, -1.5, 2), (2, 4, 4, 0.5, 0)]
    f = Fst.build(arcs, [2], semiring="tropical")
    with pytest.raises(InputError, match=r"sum diverges in component \{0, 1, 2\}"):
        shortest_path(f)
    f = f.with_(weight=f.weight + np.array([0, 0, 0, 1.25], np.float32))
    assert [path.weight for path in paths(f, 3)] == [-1.5, -1.25, -1.0]
    apart = Fst.build(
        [(0, 1, 1, 1.0, 1), (2, 1, 1, -1.0, 2), (2, 1, 1, 0.0, 1)], [1], semiring="log"
    )
    assert listed_costs(shortest_path(apart)) == [1.0]


@pytest.mark.parametrize("semiring", NAMES)
def test_paths_of_every_semiring(semiring: str) -> None:
    for seed in range(30):
        f = random_fst(seed, states=6, arcs=9, acyclic=True, semiring=semiring)
        found = list(paths(f))
        best = shortest_path(f, len(found) + 1)
        assert best.semiring is f.semiring
        assert len(list(paths(best))) == len(found)
        assert [path.weight for path in paths(best)] == [path.weight for path in found]
        total = f.semiring.zero
        if semiring == "probability":
            total = math.fsum(path.weight for path in found)
            assert [path.weight for path in found] == pytest.approx(
                sorted((path.weight for path in found), reverse=True)
            )
        elif semiring in ("log", "log64"):
            total = -math.log(math.fsum(math.exp(-path.weight) for path in found) or 1e-300)
            total = total if found else math.inf
        elif found:
            total = found[0].weight
        assert shortest_distance(f) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("semiring", NAMES)
def test_machines_with_few_paths_or_none(semiring: str, unique: bool) -> None:
    for f in (
        Fst.empty(semiring),
        Fst.build([(0, 1, 1, 1.0, 0)], {}, semiring=semiring),
    ):
        assert shortest_path(f, 3, unique).num_states == 0
        assert list(paths(f)) == []
    symbols = SymbolTable.of(["a", "b"])
    one = Fst.build([(0, 0, 2, 1.0, 1)], [0, 1], semiring=semiring, isymbols=symbols)
    best = shortest_path(one, 3, unique)
    assert best.isymbols is symbols
    assert (best.num_states, best.num_arcs) == ((1, 0) if unique else (2, 1))
    assert best.finals[0] == one.semiring.one


def test_a_path_shows_its_symbols() -> None:
    symbols = SymbolTable.of(["a", "b"])
    arcs = [(0, 1, 2, 0.5, 1), (1, 0, 9, 0.25, 2), (2, 2, 0, 0.0, 3)]
    f = Fst.build(arcs, {3: 1.0}, semiring="tropical", isymbols=symbols, osymbols=symbols)
    (path,) = paths(f)
    assert path == Path((1, 2), (2, 9), 1.75, (0, 1, 2))
    assert (path.input(f), path.output(f)) == ("a b", "b 9")


def test_a_number_of_paths_is_asked_for() -> None:
    f = Fst.build([], [0], states=1, semiring="log")
    with pytest.raises(InputError, match="number of paths"):
        shortest_path(f, 0)
    with pytest.raises(InputError, match="number of paths"):
        list(paths(f, -1))


def test_paths_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = Fst.build([(0, label, label, 1.0, 0) for label in (1, 2)], [0], semiring="tropical")
    long = string_fst([1] * 5000, semiring="tropical")
    monkeypatch.setattr("holdfast.automata.path_sums.best_first.available_bytes", lambda: 400_000)
    for f, n in ((loops, 10**5), (loops, 10**15), (long, 1)):
        with pytest.raises(LimitError):
            shortest_path(f, n)
    assert shortest_path(loops, 100).num_arcs > 100
