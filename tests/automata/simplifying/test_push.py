"""Pushing: OpenFST's machines, sums of one at every state, and paths that keep their weights."""

from __future__ import annotations

import numpy as np
import pytest
import pywrapfst
from machines import random_fst
from openfst import to_openfst
from string_costs import furthest, string_costs

from holdfast.automata import Fst
from holdfast.automata.path_sums.distances import shortest_distance
from holdfast.automata.simplifying.pushing import push
from holdfast.automata.structure import connect
from holdfast.errors import InputError

RINGS = ["tropical", "log", "log64", "probability", "boolean"]


def lighter(machine: Fst) -> Fst:
    """With arcs so light that sums over all cycles are finite."""
    if machine.semiring.is_negative_log and not machine.semiring.is_idempotent:
        return machine.with_(weight=machine.weight + 3)
    return machine


@pytest.mark.parametrize("ring", ["tropical", "log", "log64"])
@pytest.mark.parametrize("remove_total", [False, True])
def test_pushed_to_the_start_as_openfst_does(ring: str, remove_total: bool) -> None:
    for seed in range(150):
        given = lighter(random_fst(seed, states=3 + seed % 6, arcs=12, semiring=ring))
        made = push(given, remove_total=remove_total)
        peer = pywrapfst.push(
            to_openfst(connect(given)),
            push_weights=True,
            reweight_type="to_initial",
            remove_total_weight=remove_total,
            delta=1e-7,
        )
        if remove_total and peer.num_states() > made.num_states:
            # OpenFST has made its new start state by then, and leaves it there with a weight of one.
            peer.set_start(next(iter(peer.arcs(peer.start()))).nextstate)
            peer.connect()
        assert pywrapfst.isomorphic(to_openfst(made), peer, delta=1e-3), seed


def test_pushed_to_the_end_as_openfst_does() -> None:
    for seed in range(150):
        given = random_fst(seed, states=3 + seed % 6, arcs=12)
        peer = pywrapfst.push(
            to_openfst(connect(given)), push_weights=True, reweight_type="to_final"
        )
        assert pywrapfst.isomorphic(to_openfst(push(given, "final")), peer, delta=1e-3)


@pytest.mark.quick(3)
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("to", ["initial", "final"])
def test_paths_keep_their_weights(ring: str, to: str) -> None:
    for seed in range(80):
        given = lighter(random_fst(seed, states=4, arcs=7, semiring=ring, acyclic=seed % 2 == 0))
        made = push(given, to)  # type: ignore[arg-type]
        before, after = string_costs(given, 4), string_costs(made, 5)
        # A new start state shows as an epsilon in front.
        if made.num_states > connect(given).num_states:
            after = {string[1:]: cost for string, cost in after.items()}
        else:
            after = {string: cost for string, cost in after.items() if len(string) <= 4}
        assert furthest(before, after) < 1e-4
        if made.num_states and ring != "boolean":
            assert shortest_distance(made) == pytest.approx(shortest_distance(given), abs=1e-4)


@pytest.mark.parametrize("ring", ["log64", "probability", "tropical"])
def test_what_leaves_a_state_sums_to_one(ring: str) -> None:
    for seed in range(80):
        given = lighter(random_fst(seed, states=6, arcs=12, semiring=ring))
        made = push(given, remove_total=True)
        if not made.num_states:
            continue
        weights = made.with_(semiring=made.semiring).weight
        reduce = np.minimum if ring == "tropical" else np.add
        one = np.exp(-weights) if ring == "log64" else weights
        ends = np.exp(-made.final) if ring == "log64" else made.final
        total = ends.copy()
        reduce.at(total, made.source, one)
        assert total == pytest.approx(np.full(len(total), made.semiring.one, float), abs=1e-6) or (
            ring == "log64" and total == pytest.approx(np.ones(len(total)), abs=1e-9)
        )


def test_bad_requests() -> None:
    with pytest.raises(InputError, match="invalid direction"):
        push(Fst.empty(semiring="log"), "middle")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="diverges"):
        push(Fst.build([(0, 1, 1, -1.0, 0)], [0], semiring="log"))
    assert push(Fst.empty(semiring="log")).num_states == 0
    assert push(Fst.build([(0, 1, 1, 0.0, 1)], [], semiring="log")).num_states == 0
