"""`compose` against OpenFST, against the plain breadth-first search, and against paths joined by hand."""

from __future__ import annotations

import numpy as np
import pytest
import pywrapfst
from machines import composed, path_costs, random_fst
from openfst import from_openfst, to_openfst
from plain_composition import compose_plainly, same_bytes

from holdfast.automata import Fst, SymbolTable
from holdfast.automata.composition import exploring, matching, tables
from holdfast.automata.composition.composing import compose
from holdfast.errors import InputError, LimitError

FILTERS = ("sequence", "alt_sequence", "match", "trivial", "null")


def pairs_of_machines(count, **given):
    for seed in range(count):
        yield (
            random_fst(seed, epsilons=0.3, **given),
            random_fst(seed + 10_000, epsilons=0.3, **given),
        )


@pytest.mark.parametrize("filter", FILTERS)
def test_states_and_arcs_are_as_many_as_in_openfst(filter):
    isomorphic = 0
    for a, b in pairs_of_machines(150):
        wanted = pywrapfst.compose(
            to_openfst(a).arcsort("olabel"),
            to_openfst(b).arcsort("ilabel"),
            compose_filter=filter,
        )
        found = compose(a, b, filter=filter)
        assert (found.num_states, found.num_arcs) == (
            wanted.num_states(),
            from_openfst(wanted).num_arcs,
        )
        isomorphic += pywrapfst.isomorphic(to_openfst(found), wanted)
    # OpenFST only decides it where no two arcs of a state are alike but in where they lead.
    assert isomorphic > 100


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.full)])
def test_random_machines_are_composed_as_by_openfst(count):
    """States, arcs with their labels and weights, and final weights; also isomorphic where it can tell."""
    isomorphic = 0
    for seed in range(count):
        given = {"states": 2 + seed % 7, "arcs": 3 + seed % 23, "labels": 1 + seed % 4}
        a, b = (random_fst(seed + more, epsilons=0.25, **given) for more in (0, 100_000))
        peer = pywrapfst.compose(to_openfst(a).arcsort("olabel"), to_openfst(b).arcsort("ilabel"))
        found, wanted = compose(a, b), from_openfst(peer)
        assert found.num_states == wanted.num_states
        assert arc_values(found) == arc_values(wanted)
        assert sorted(found.finals.values()) == sorted(wanted.finals.values())
        isomorphic += pywrapfst.isomorphic(to_openfst(found), peer)
    assert isomorphic > count // 2


def arc_values(machine: Fst) -> list[tuple[int, int, float]]:
    return sorted((arc.ilabel, arc.olabel, arc.weight) for arc in machine.arcs())


@pytest.mark.parametrize("filter", ["auto", "alt_sequence", "match"])
def test_no_path_is_lost_and_none_is_doubled(filter):
    for a, b in pairs_of_machines(150, acyclic=True, semiring="log"):
        wanted = composed(a, b)
        found = path_costs(compose(a, b, filter=filter))
        assert {key: sorted(costs) for key, costs in found.items()} == {
            key: sorted(costs) for key, costs in wanted.items()
        }


def test_the_trivial_filter_doubles_paths():
    a = Fst.build([(0, 1, 0, 0.0, 1)], [1], semiring="log")
    b = Fst.build([(0, 0, 2, 0.0, 1)], [1], semiring="log")
    assert len(path_costs(compose(a, b))[(1,), (2,)]) == 1
    assert len(path_costs(compose(a, b, filter="trivial"))[(1,), (2,)]) == 3


@pytest.fixture(params=["usual", "dense", "hashed"])
def small_steps(request, monkeypatch):
    """Arrays and tables so small that few states take every path."""
    monkeypatch.setattr(exploring, "FIRST_STATES", 3)
    monkeypatch.setattr(exploring, "FIRST_ARCS", 5)
    if request.param == "hashed":
        monkeypatch.setattr(tables, "DENSE_BYTES", 0)
    if request.param == "usual":  # hashed first, dense when there are some states
        monkeypatch.setattr(tables, "SMALL_PLACES", 0)


@pytest.fixture(scope="module")
def composed_plainly():
    """(a, b, connect, filter, what the plain search makes of them); slow, so once for all tables."""
    found = []
    for turn, (states, labels) in enumerate([(6, 3), (6, 200), (40, 4), (40, 90), (40, 1000)]):
        for seed in range(4):
            given = {"states": states, "arcs": 3 * states, "labels": labels, "epsilons": 0.3}
            a, b = random_fst(seed, **given), random_fst(seed + 100, **given)
            # Fewer inner labels, so that many match.
            fewer = [
                np.where(x > 0, (x - 1) % 70 * (labels // 70 + 1) + 1, 0)
                for x in (a.olabel, b.ilabel)
            ]
            a, b = (
                a.with_(olabel=fewer[0].astype(np.int32)),
                b.with_(ilabel=fewer[1].astype(np.int32)),
            )
            filter = FILTERS[(turn + seed) % 3]
            found += [
                (a, b, connect, filter, compose_plainly(a, b, connect, filter))
                for connect in (True, False)
            ]
    return found


def test_the_answer_is_that_of_the_plain_search(small_steps, composed_plainly):
    for a, b, connect, filter, wanted in composed_plainly:
        found, arc_map = compose(a, b, connect, filter=filter, return_arc_map=True)
        assert same_bytes(wanted.machine, found)
        assert arc_map.a.tolist() == wanted.arc_a
        assert arc_map.b.tolist() == wanted.arc_b


@pytest.mark.parametrize("semiring", ["tropical", "log", "log64", "probability", "boolean"])
def test_an_arc_is_made_of_the_arcs_it_comes_from(semiring):
    a = random_fst(1, states=8, arcs=40, semiring=semiring)
    b = random_fst(2, states=8, arcs=40, semiring=semiring)
    found, (from_a, from_b) = compose(a, b, return_arc_map=True)
    assert found.num_arcs > 100
    one = np.array(a.semiring.one, a.weight.dtype)

    def taken(values, arcs, otherwise):
        return np.where(arcs < 0, otherwise, values[arcs])

    left, right = taken(a.weight, from_a, one), taken(b.weight, from_b, one)
    product = left + right if a.semiring.is_negative_log else left * right
    assert np.array_equal(found.weight, product)
    assert np.array_equal(found.ilabel, taken(a.ilabel, from_a, 0))
    assert np.array_equal(found.olabel, taken(b.olabel, from_b, 0))
    assert np.array_equal(taken(a.olabel, from_a, 0), taken(b.ilabel, from_b, 0))


def test_large_graphs_are_the_same_bytes_for_every_table(monkeypatch):
    a, b = random_graph(1, 300, 10, 20), random_graph(2, 300, 10, 20)
    one = compose(a, b)
    assert one.num_arcs > 300_000
    monkeypatch.setattr(tables, "DENSE_BYTES", 0)
    assert same_bytes(one, compose(a, b))


def random_graph(seed: int, states: int, degree: int, labels: int) -> Fst:
    """The benchmark's random graph: no epsilons, every state with as many arcs."""
    chance = np.random.default_rng(seed)
    arcs = states * degree
    final = np.full(states, np.inf, np.float32)
    final[::7] = 0
    tropical = Fst.empty("tropical").semiring
    return Fst(
        np.arange(states + 1) * degree,
        chance.integers(1, labels + 1, arcs, np.int32),
        chance.integers(1, labels + 1, arcs, np.int32),
        chance.integers(0, states, arcs, np.int32),
        (chance.integers(1, 33, arcs) / 8).astype(np.float32),
        final,
        0,
        tropical,
    )


def test_machines_that_are_hardly_any():
    none, lonely = Fst.empty(semiring="log"), Fst.build([], [0], semiring="log")
    dead, loop = (
        Fst.build([], {}, states=1, semiring="log"),
        Fst.build([(0, 0, 0, 1.0, 0)], [0], semiring="log"),
    )
    for a, b in ((none, none), (none, loop), (loop, none), (dead, loop), (loop, dead)):
        found = compose(a, b)
        assert (found.num_states, found.num_arcs, found.start) == (0, 0, -1)
    assert compose(lonely, lonely).finals == {0: 0.0}
    assert compose(lonely, loop).num_arcs == 1
    assert compose(loop, loop).num_states == 2
    assert compose(loop, loop, False).num_arcs == 3
    assert compose(dead, loop, False).num_states == 1


def test_symbols_and_semirings_must_agree():
    words, phones = SymbolTable.of(["a", "b"]), SymbolTable.of(["a", "c"])
    a = Fst.build([(0, 1, 1, 0.0, 1)], [1], isymbols=phones, osymbols=words, semiring="log")
    b = Fst.build([(0, 1, 1, 0.0, 1)], [1], isymbols=words, osymbols=phones, semiring="log")
    found = compose(a, b)
    assert found.isymbols == phones
    assert found.osymbols == phones
    fewer, tropical = a.with_(osymbols=SymbolTable.of(["a"])), b.as_semiring("tropical")
    for pair, place, values in (
        ((a, b.with_(isymbols=phones)), "label 2", "'b' and 'c'"),
        ((fewer, b), "label 2", "None and 'b'"),
        ((a, tropical), None, "log and tropical"),
    ):
        with pytest.raises(InputError) as refused:
            compose(*pair)
        error = refused.value
        assert (error.code, error.place, error.found) == ("conflict", place, values)


def test_limits_are_kept():
    a, b = random_graph(1, 100, 10, 20), random_graph(2, 100, 10, 20)
    whole = compose(a, b, False)
    assert same_bytes(whole, compose(a, b, False, max_states=whole.num_states))
    with pytest.raises(LimitError, match="9,000 states"):
        compose(a, b, max_states=9_000)
    with pytest.raises(LimitError, match=r"allowed: 500\.0 kB"):
        compose(a, b, memory_bytes=500_000)
    enough = int(2.5 * whole.nbytes)
    assert same_bytes(whole, compose(a, b, False, memory_bytes=enough))


def test_a_huge_product_is_refused_before_it_is_written():
    a = Fst.build([(0, 1, 1, 0.0, 0)] * 3000, [0], semiring="log")
    with pytest.raises(LimitError, match="does not fit into memory"):
        compose(a, a, memory_bytes=100_000_000)


def test_few_states_of_a_huge_product_need_little_memory():
    # 10^10 pairs of states, of which a line of 10^5 is reached.
    count = 100_000
    line = Fst.build([(s, 1, 1, 0.0, s + 1) for s in range(count)], [count], semiring="log")
    found = compose(line, line, memory_bytes=20_000_000)
    assert found.num_states == count + 1


def test_where_addresses_are_limited_arrays_grow_step_by_step(monkeypatch):
    a = random_fst(1, states=100, arcs=1500, labels=3)
    b = random_fst(2, states=100, arcs=1500, labels=3)
    whole = compose(a, b, False, return_arc_map=True)
    monkeypatch.setattr("resource.getrlimit", lambda _: (10**12, 10**12))
    stepwise = compose(a, b, False, return_arc_map=True)
    assert same_bytes(whole[0], stepwise[0])
    assert all((x == y).all() for x, y in zip(whole[1], stepwise[1], strict=True))


def test_the_limit_of_addresses_limits_memory(monkeypatch):
    a, b = (random_fst(seed, states=50, arcs=900) for seed in (1, 2))
    compose(a, b)  # what the system said of free memory is remembered; the limit must not be
    monkeypatch.setattr("resource.getrlimit", lambda _: (1, 1))
    with pytest.raises(LimitError) as refused:
        compose(a, b)
    assert refused.value.allowed == "0 B"


def test_machines_that_a_key_cannot_hold_are_refused(monkeypatch):
    a = random_fst(1, states=5, arcs=20)
    monkeypatch.setattr(matching, "MOST_STATES", 4)
    with pytest.raises(LimitError, match="5 states"):
        compose(a, a)


def test_a_result_that_32_bits_cannot_number_is_refused(monkeypatch):
    a = random_fst(1, states=5, arcs=40, epsilons=0)
    whole = compose(a, a, connect=False)
    monkeypatch.setattr(exploring, "MOST_RESULT", whole.num_states)
    assert compose(a, a, connect=False).num_states == whole.num_states
    monkeypatch.setattr(exploring, "MOST_RESULT", whole.num_states - 1)
    with pytest.raises(LimitError, match="too many states"):
        compose(a, a, connect=False)
