"""Reachability, components, orders and trimming, beside OpenFST and networkx."""

from __future__ import annotations

from collections.abc import Iterator

import networkx
import numpy as np
import pytest
import pywrapfst
from machines import random_fst
from openfst import to_openfst

from holdfast.automata import Fst
from holdfast.automata.structure import (
    accessible,
    coaccessible,
    connect,
    incoming,
    is_acyclic,
    is_connected,
    strong_components,
    topological_order,
)

EMPTY = Fst.empty("tropical")
NO_FINALS = Fst.build([(0, 1, 1, 0, 1)], [], semiring="log")


def machines() -> Iterator[Fst]:
    """Small and middling, sparse and dense, with and without cycles and finals."""
    yield EMPTY
    yield NO_FINALS
    yield Fst.build([], [0], semiring="log")
    yield Fst.build([(0, 0, 0, 1, 0)], [0], semiring="log")
    for seed in range(300):
        states = 1 + seed % 40
        f = random_fst(
            seed,
            states=states,
            arcs=seed * 7 % (3 * states),
            acyclic=seed % 3 == 0,
            finals=(0.0, 0.05, 0.4)[seed % 3],
            semiring=("tropical", "log", "log64")[seed % 3],
        )
        # Any state may be the start, and the last one need not be final.
        yield f.with_(start=seed * 5 % states)
        yield f.with_(start=seed % states, final=np.roll(f.final, seed))
        yield f.with_(final=np.full(states, np.inf, f.final.dtype))


def graph(f: Fst) -> networkx.MultiDiGraph:
    made = networkx.MultiDiGraph()
    made.add_nodes_from(range(f.num_states))
    made.add_edges_from((arc.source, arc.nextstate) for arc in f.arcs())
    return made


def test_reachable_states_are_those_of_networkx() -> None:
    for f in machines():
        if f is EMPTY:
            continue
        g = graph(f)
        from_start = {f.start} | networkx.descendants(g, f.start)
        to_final = set(f.finals).union(*(networkx.ancestors(g, s) for s in f.finals))
        assert set(np.flatnonzero(accessible(f)).tolist()) == from_start
        assert set(np.flatnonzero(coaccessible(f)).tolist()) == to_final


def test_properties_are_those_of_openfst() -> None:
    seen = set()
    for f in machines():
        oracle = to_openfst(f)
        told = [
            oracle.properties(bit, True) == bit
            for bit in (pywrapfst.ACYCLIC, pywrapfst.ACCESSIBLE, pywrapfst.COACCESSIBLE)
        ]
        assert [is_acyclic(f), bool(accessible(f).all()), bool(coaccessible(f).all())] == told
        assert is_connected(f) == (told[1] and told[2])
        seen.add(tuple(told))
    assert len(seen) >= 6


def test_connect_is_openfsts() -> None:
    emptied = shrunk = 0
    for f in machines():
        ours, theirs = connect(f), to_openfst(f).connect()
        # The text is compared: numbers of states and the order of arcs, too.
        assert to_openfst(ours).print() == theirs.print()
        assert ours.num_states == theirs.num_states()
        assert ours.start == theirs.start()
        assert is_connected(ours)
        assert (ours is f) == is_connected(f)
        emptied += ours.num_states == 0
        shrunk += 0 < ours.num_states < f.num_states
    assert emptied > 50
    assert shrunk > 100


@pytest.mark.parametrize("descending", [False, True])
def test_long_chains_need_no_stack_and_no_square_of_sweeps(descending: bool) -> None:
    # Ascending, one sweep settles it; descending, every sweep would find one state.
    count = 200_000
    at = np.arange(count - 1)
    source, target = (at + 1, at) if descending else (at, at + 1)
    degree = np.bincount(source, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(degree)])
    label = np.ones(count - 1, np.int32)
    final = np.full(count, np.inf, np.float32)
    final[0 if descending else -1] = 0
    chain = NO_FINALS.with_(
        offsets=offsets,
        ilabel=label,
        olabel=label,
        nextstate=target.astype(np.int32),
        weight=label.astype(np.float32),
        final=final,
        start=count - 1 if descending else 0,
    ).checked()
    assert is_connected(chain)
    assert connect(chain) is chain
    order = topological_order(chain)
    assert order is not None
    np.testing.assert_array_equal(order, np.arange(count)[:: -1 if descending else 1])
    found = strong_components(chain)
    assert found.number == count
    np.testing.assert_array_equal(found.of, order)


def test_components_are_those_of_networkx_in_topological_order() -> None:
    several = 0
    for f in machines():
        of, found = strong_components(f)
        ours = {frozenset(np.flatnonzero(of == number).tolist()) for number in range(found)}
        assert ours == {frozenset(c) for c in networkx.strongly_connected_components(graph(f))}
        assert np.all(of[f.source] <= of[f.nextstate])
        several += 1 < found < f.num_states
    assert several > 100


def test_every_arc_leads_to_a_later_state() -> None:
    cyclic = 0
    for f in machines():
        order = topological_order(f)
        if order is None:
            assert not networkx.is_directed_acyclic_graph(graph(f))
            cyclic += 1
            continue
        place = np.argsort(order)
        np.testing.assert_array_equal(order[place], np.arange(f.num_states))
        assert np.all(place[f.source] < place[f.nextstate])
        if np.all(f.source < f.nextstate):
            np.testing.assert_array_equal(order, np.arange(f.num_states))
    assert cyclic > 100


def test_incoming_arcs_are_the_arcs_by_target() -> None:
    for f in machines():
        offsets, arc = incoming(f)
        for state in range(f.num_states):
            entering = arc[offsets[state] : offsets[state + 1]]
            np.testing.assert_array_equal(entering, np.flatnonzero(f.nextstate == state))
