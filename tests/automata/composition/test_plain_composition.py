"""The oracle itself: against OpenFST's states and arcs, and against the joined paths of both machines."""

from __future__ import annotations

import pytest
import pywrapfst
from machines import composed, path_costs, random_fst
from openfst import to_openfst
from plain_composition import compose_plainly

from holdfast.automata.composition import filters

ONE_PATH: tuple[filters.FilterName, ...] = ("sequence", "alt_sequence", "match")


@pytest.mark.parametrize("name", [*ONE_PATH, "trivial", "null"])
def test_it_has_openfsts_states_and_arcs(name: filters.FilterName) -> None:
    for seed in range(60):
        a, b = (random_fst(seed + k, semiring="log") for k in (0, 1000))
        ours = compose_plainly(a, b, filter=name).machine
        theirs = pywrapfst.compose(
            to_openfst(a).arcsort("olabel"),
            to_openfst(b).arcsort("ilabel"),
            compose_filter=name,
            connect=True,
        )
        arcs = sum(theirs.num_arcs(state) for state in theirs.states())
        assert (ours.num_states, ours.num_arcs) == (theirs.num_states(), arcs), seed


@pytest.mark.parametrize("name", ONE_PATH)
def test_it_keeps_each_joined_path_once(name: filters.FilterName) -> None:
    for seed in range(60):
        a, b = (random_fst(seed + k, acyclic=True, states=4, arcs=7) for k in (0, 1000))
        ours = path_costs(compose_plainly(a, b, filter=name).machine)
        theirs = composed(a, b)
        assert {s: sorted(c) for s, c in ours.items()} == {s: sorted(c) for s, c in theirs.items()}
