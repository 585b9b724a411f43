"""What a verdict claims is so: every set of faults of small clusters, against brute force."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_pairs import Campaign, Cluster, names, until_told

from holdfast.runs.pairing.records import PairResult
from holdfast.runs.pairing.solve import solve_pairs


def _holds(found: Campaign, faults: set[str]) -> None:
    """The verdict is never wrong, and complete whenever two good nodes exist."""
    verdict = found.verdict
    nodes = {node.node for node in verdict.nodes}
    assert set(verdict.names("faulty")) <= faults
    assert faults.isdisjoint(verdict.names("good"))
    assert not verdict.contradictions
    assert not verdict.names("untested")
    if len(nodes - faults) >= 2:
        assert verdict.complete
        assert set(verdict.names("faulty")) == faults
        assert set(verdict.names("good")) == nodes - faults
    else:  # no pair can pass: nothing tells one node from another, and the verdict says so
        assert verdict.nothing_passed
        assert set(verdict.names("suspect")) == nodes


@pytest.mark.parametrize("triples", [True, False], ids=["triples", "pairs"])
@pytest.mark.parametrize(
    "count", [2, 3, 4, 5, 6, *(pytest.param(n, marks=pytest.mark.full) for n in (7, 8))]
)
def test_every_set_of_faults(count: int, triples: bool) -> None:
    nodes = names(count)
    for size in range(count + 1):
        for faults in itertools.combinations(nodes, size):
            found = until_told(nodes, Cluster(set(faults)).fails, triples=triples)
            _holds(found, set(faults))
            if size <= 1 and count % 2 == 0 and count > 2:
                assert found.rounds <= 2  # what the paper promises


@pytest.mark.examples(10)
@settings(max_examples=30, deadline=None)
@given(st.integers(9, 40), st.randoms(use_true_random=False), st.booleans())
def test_random_faults(count: int, chosen: random.Random, triples: bool) -> None:
    nodes = names(count)
    faults = set(chosen.sample(nodes, chosen.randint(0, count)))
    _holds(until_told(nodes, Cluster(faults).fails, triples=triples), faults)


def _consistent(nodes: list[str], results: list[PairResult]) -> list[set[str]]:
    """All sets of faulty nodes under which these results come out."""
    return [
        set(faults)
        for size in range(len(nodes) + 1)
        for faults in itertools.combinations(nodes, size)
        if all(set(faults).isdisjoint(row.nodes) != row.failed for row in results)
    ]


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[str], list[PairResult]]:
    """Any tests of nodes, some of which are faulty."""
    nodes = names(draw(st.integers(2, 7)))
    faults = draw(st.sets(st.sampled_from(nodes)))
    groups = st.lists(st.sampled_from(nodes), min_size=2, max_size=min(3, len(nodes)), unique=True)
    tests = draw(st.lists(groups, min_size=1, max_size=12))
    return nodes, [
        PairResult(tuple(group), "passed" if faults.isdisjoint(group) else "failed")
        for group in tests
    ]


@pytest.mark.examples(50)
@settings(max_examples=200, deadline=None)
@given(_histories())
def test_it_concludes_all_that_follows_and_no_more(
    history: tuple[list[str], list[PairResult]],
) -> None:
    nodes, results = history
    possible = _consistent(nodes, results)
    for node in solve_pairs(results, nodes=nodes).nodes:
        tested_at_all = node.passed + node.failed > 0
        surely_faulty = all(node.node in faults for faults in possible)
        surely_good = not any(node.node in faults for faults in possible)
        assert (node.state == "faulty") == surely_faulty, node
        assert (node.state == "good") == surely_good, node
        assert (node.state == "untested") == (not tested_at_all)
