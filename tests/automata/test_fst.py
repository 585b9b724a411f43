"""The struct of arrays: built, looked at, sorted, read in another semiring, and refused."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from machines import random_fst

from holdfast.automata import SEMIRINGS, Fst, Semiring, SymbolTable, compose, reverse
from holdfast.automata import _kernels as sorting
from holdfast.automata import structure_kernels as graph
from holdfast.automata._kernels import Kernel, announce_compilation, plus, times
from holdfast.automata.formats import _kernels as files
from holdfast.automata.formats.openfst_records import vector_words
from holdfast.automata.semirings import semiring_of
from holdfast.errors import InputError


def test_arcs_keep_their_order_within_a_state() -> None:
    arcs = [(1, 5, 6, 0.5, 0), (0, 3, 4, 1.0, 1), (1, 1, 2, 0.25, 1), (0, 1, 1, 2.0, 0)]
    machine = Fst.build(arcs, {1: 0.75}, semiring="tropical")
    assert [tuple(arc) for arc in machine.arcs()] == [arcs[1], arcs[3], arcs[0], arcs[2]]
    assert machine.offsets.tolist() == [0, 2, 4]
    assert machine.source.tolist() == [0, 0, 1, 1]
    assert (machine.num_states, machine.num_arcs, machine.finals) == (2, 4, {1: 0.75})


@pytest.mark.parametrize("seed", range(10))
def test_views_are_stable_sorts_of_each_state(seed: int) -> None:
    # More than 32 arcs a state take the other of the two sorts.
    machine = random_fst(seed, states=4, arcs=20 if seed % 2 else 300, labels=9)
    for view, label in ((machine.by_ilabel, "ilabel"), (machine.by_olabel, "olabel")):
        for state in range(machine.num_states):
            begin, end = machine.offsets[state], machine.offsets[state + 1]
            wanted = sorted(range(begin, end), key=lambda arc: getattr(machine, label)[arc])
            assert view.arc[begin:end].tolist() == wanted
            assert view.epsilons[state] == sum(getattr(machine, label)[begin:end] == 0)
        assert np.array_equal(view.label, getattr(machine, label)[view.arc])
        assert np.array_equal(view.nextstate, machine.nextstate[view.arc])
        assert np.array_equal(view.weight, machine.weight[view.arc])


def test_a_sorted_machine_is_not_copied() -> None:
    machine = Fst.build([(0, 1, 9, 0.0, 0), (0, 2, 3, 0.0, 0)], [0], semiring="log")
    assert machine.by_ilabel.nextstate is machine.nextstate
    assert machine.by_olabel.label.tolist() == [3, 9]


@pytest.mark.parametrize("ring", SEMIRINGS.values(), ids=lambda ring: ring.name)
def test_the_laws_of_a_semiring_hold(ring: Semiring) -> None:
    values = [
        ring.zero,
        ring.one,
        *((1.0,) if ring.name == "boolean" else (0.25, 1.5, 40.0, 0.125)),
    ]
    for x in values:
        assert plus(ring.code, x, ring.zero) == plus(ring.code, ring.zero, x) == x
        assert times(ring.code, x, ring.one) == times(ring.code, ring.one, x) == x
        assert times(ring.code, x, ring.zero) == times(ring.code, ring.zero, x) == ring.zero
        for y in values:
            assert plus(ring.code, x, y) == plus(ring.code, y, x)
            for z in values:
                left = times(ring.code, x, plus(ring.code, y, z))
                right = plus(ring.code, times(ring.code, x, y), times(ring.code, x, z))
                assert left == pytest.approx(right, rel=1e-12)


def test_a_sum_of_logs_is_the_log_of_the_sum() -> None:
    for x, y in ((0.0, 0.0), (3.0, 700.0), (-5.0, 2.0), (1e4, 1e4 + 1)):
        wanted = min(x, y) - math.log(math.exp(min(x, y) - x) + math.exp(min(x, y) - y))
        assert plus(SEMIRINGS["log"].code, x, y) == pytest.approx(wanted, abs=1e-12)


def test_a_semiring_answers_to_openfsts_name() -> None:
    assert semiring_of("standard") is SEMIRINGS["tropical"]
    with pytest.raises(InputError, match="log64"):
        semiring_of("viterbi")


def test_weights_keep_their_meaning_in_another_semiring() -> None:
    machine = random_fst(4, semiring="log64")
    as_probability = machine.as_semiring("probability")
    assert as_probability.weight == pytest.approx(np.exp(-machine.weight))
    assert as_probability.finals.keys() == machine.finals.keys()
    assert as_probability.as_semiring("log64").weight == pytest.approx(machine.weight)
    assert machine.as_semiring("tropical").weight.dtype == np.float32
    as_boolean = machine.as_semiring("boolean")
    assert set(as_boolean.weight.tolist()) == {1.0}
    assert as_boolean.as_semiring("tropical").finals == dict.fromkeys(machine.finals, 0.0)
    sure = Fst.build([(0, 1, 1, 1.0, 0)], [0], semiring="probability").as_semiring("log64")
    assert not np.signbit([*sure.weight, *sure.final]).any()


@pytest.mark.parametrize(
    ("arcs", "finals", "named"),
    [
        ([(0, -1, 1, 0.0, 0)], [0], ["ilabel", "arc 0 of state 0", "-1"]),
        ([(0, 1, 1, 0.0, 0), (0, 1, -7, 0.0, 0)], [0], ["olabel", "arc 1 of state 0", "-7"]),
        ([(0, 1, 1, math.nan, 0)], [0], ["arc 0", "nan", "log semiring"]),
        ([(0, 1, 1, -math.inf, 0)], [0], ["-inf"]),
        ([(0, 1, 1, 0.0, 0)], {0: math.nan}, ["final weight of state 0", "nan"]),
        ([(-3, 1, 1, 0.0, 0)], [0], ["state -3"]),
        ([(0, 1, 1, 0.0, -2)], [0], ["nextstate", "-2"]),
        ([(0, 1, 1, 0.0, 0)], [-1], ["state -1"]),
    ],
)
def test_what_is_no_machine_is_refused(
    arcs: list[tuple[int, ...]], finals: list[int] | dict[int, float], named: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        Fst.build(arcs, finals, semiring="log")
    assert all(part in str(refused.value) for part in named), str(refused.value)


def test_a_start_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="start state"):
        Fst.build([(0, 1, 1, 0.0, 0)], [0], start=3, states=2, semiring="log")
    for states in (-3, -1, 0):
        with pytest.raises(InputError):
            Fst.build([], [], states=states, semiring="log")
    with pytest.raises(InputError, match="probability"):
        Fst.build([(0, 1, 1, -0.5, 0)], [0], semiring="probability")


def test_the_machine_without_states_is_one() -> None:
    empty = Fst.empty("tropical")
    assert (empty.num_states, empty.num_arcs, empty.start, empty.finals) == (0, 0, -1, {})
    assert empty.checked() is empty
    assert len(empty.by_ilabel.label) == 0


def test_symbols_are_found_both_ways() -> None:
    table = SymbolTable.of(["yes", "no"], "answers")
    assert list(table) == [(0, "<eps>"), (1, "yes"), (2, "no")]
    assert (table.label("no"), table.symbol(1), table.symbol(9), len(table)) == (2, "yes", "9", 3)
    with pytest.raises(InputError, match="answers"):
        table.label("maybe")


@pytest.mark.parametrize(
    ("arc", "problem"),
    [
        ((0, 2**32 + 1, 1, 0.0, 1), "invalid ilabel"),
        ((0, 1, 1.5, 0.0, 1), "invalid olabel"),
        ((0, 1, 1, 0.0, 2**33), "invalid nextstate"),
        ((0.5, 1, 1, 0.0, 1), "invalid source"),
        ((0, 1, 1), "five numbers"),
        ((0, "a", 1, 0.0, 1), "five numbers"),
        (None, "five numbers"),
    ],
)
def test_what_is_no_arc_is_refused_by_its_place(arc: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        Fst.build([(0, 1, 1, 0.0, 1), arc], [1], semiring="log")
    assert (caught.value.place or "").startswith("arc 1")


def test_arrays_are_read_only_and_nobody_elses() -> None:
    weight = np.zeros(1, np.float32)
    given = Fst([0, 1], [1], [1], [0], weight, np.zeros(1, np.float32), 0, SEMIRINGS["tropical"])
    weight[0] = 5.0
    for f in (given, given.with_(start=0), random_fst(3), compose(given, given), reverse(given)):
        arrays = (f.offsets, f.ilabel, f.olabel, f.nextstate, f.weight, f.final, f.source)
        for array in (*arrays, *f.by_ilabel, *f.by_olabel):
            with pytest.raises(ValueError, match="read-only"):
                array[:1] = 0
    assert given.weight.tolist() == [0.0]
    assert weight.flags.writeable
    assert given.with_(weight=given.weight).weight is given.weight


VALID = {
    "offsets": [0, 1, 2],
    "ilabel": [1, 2],
    "olabel": [0, 2],
    "nextstate": [1, 1],
    "weight": [0.5, 0.0],
    "final": [math.inf, 0.0],
    "start": 0,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offsets", [0, 1]),
        ("offsets", []),
        ("offsets", [1, 1, 2]),
        ("offsets", [0, 3, 2]),
        ("offsets", [0, -1, 2]),
        ("offsets", [0, 1, 3]),
        ("offsets", [[0, 1, 2]]),
        ("ilabel", [1]),
        ("ilabel", [1, -1]),
        ("ilabel", [1, 2**31]),
        ("olabel", [1.5, 1]),
        ("olabel", [1, 2, 3]),
        ("nextstate", [1, 700_000_000]),
        ("nextstate", [1, 2]),
        ("nextstate", [-1, 1]),
        ("weight", [math.nan, 0]),
        ("weight", [0, -math.inf]),
        ("weight", [0]),
        ("final", [0.0, math.nan]),
        ("final", [0.0]),
        ("start", 2),
        ("start", -1),
    ],
)
def test_arrays_that_are_no_machine_are_refused(name: str, value: Any) -> None:
    ring = SEMIRINGS["tropical"]
    valid = Fst(**VALID, semiring=ring)
    for refused in (
        lambda: Fst(**{**VALID, name: value}, semiring=ring),
        lambda: valid.with_(**{name: value}),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        assert caught.value.code == "invalid-value"


@pytest.mark.parametrize(
    "copied", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy, copy.copy]
)
def test_a_copy_is_as_locked_as_the_machine(copied):
    f = random_fst(3).with_(isymbols=SymbolTable.of("abc"))
    _ = f.source, f.by_ilabel
    made = copied(f)
    arrays = (made.offsets, made.ilabel, made.olabel, made.nextstate, made.weight, made.final)
    for array in (*arrays, made.source, *made.by_ilabel, *made.by_olabel):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert made.to_text() == f.to_text()
    assert (made.start, made.semiring, made.isymbols) == (f.start, f.semiring, f.isymbols)


def test_kernels_give_the_same_interpreted_and_compiled() -> None:
    for seed in range(20):
        f = random_fst(seed, states=9, arcs=4 * (seed % 8))
        final = f.final != np.inf
        for kernel, arguments in (
            (sorting.counting_order, (f.nextstate, f.num_states)),
            (sorting.order_by_label, (f.offsets, f.ilabel)),
            (sorting.is_sorted, (f.offsets, f.ilabel)),
            (sorting.zeros_by_state, (f.offsets, f.ilabel)),
            (sorting.sources_of_arcs, (f.offsets, f.num_arcs)),
            (graph.accessible, (f.offsets, f.nextstate, f.start)),
            (graph.coaccessible, (f.offsets, f.nextstate, final)),
            (graph.strong_components, (f.offsets, f.nextstate)),
            (graph.topological_order, (f.offsets, f.nextstate)),
            (graph.subgraph, (f.offsets, f.nextstate, final)),
            (files.label_facts, (f.offsets, f.ilabel)),
            (files.records, (vector_words(f), f.num_states, 3, 4)),
        ):
            left, right = (call(*arguments) for call in (kernel.function, kernel))
            for x, y in zip(
                *((v if isinstance(v, tuple) else (v,)) for v in (left, right)), strict=True
            ):
                np.testing.assert_array_equal(x, y, kernel.__name__)
                assert getattr(x, "dtype", None) == getattr(y, "dtype", None), kernel.__name__


def _one_more(x: int) -> int:
    return x + 1


def test_a_compilation_is_announced_where_the_cache_lacks_it(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    announced = []
    for count in (1, 1):  # an empty folder; the folder that holds the kernel
        announce_compilation(lambda: announced.append("compiling"))
        assert Kernel(_one_more, small_uncompiled=False)(1) == 2
        assert len(announced) == count
