"""Probabilities, against the sum over all states of all nodes and links."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_pairs import Cluster, names, until_told

from holdfast.errors import InputError
from holdfast.runs.pairing.beliefs import Tally, infer
from holdfast.runs.pairing.model import PairModel

MODEL = PairModel()


def _enumerated(
    tallies: list[Tally], model: PairModel
) -> tuple[dict[str, float], dict[tuple[str, ...], tuple[float, float]]]:
    """P(bad) of nodes, and P(link bad), P(nothing bad) of sets: every state of everything, one by one."""
    nodes = sorted({node for tally in tallies for node in tally.nodes})
    prior = {"good": 1 - model.faulty - model.intermittent, "faulty": model.faulty}
    prior["flaky"] = model.intermittent
    between = {"good": 1 - model.link_faulty - model.link_intermittent}
    between |= {"faulty": model.link_faulty, "flaky": model.link_intermittent}
    bad: dict[str, float] = dict.fromkeys(nodes, 0.0)
    link = {tally.nodes: [0.0, 0.0] for tally in tallies}
    total = 0.0
    for states in itertools.product(prior, repeat=len(nodes)):
        state = dict(zip(nodes, states, strict=True))
        weight = math.prod(prior[name] for name in states)
        parts: dict[tuple[str, ...], dict[str, float]] = {}
        for tally in tallies:
            members = [state[node] for node in tally.nodes]
            parts[tally.nodes] = {}
            for how, share in between.items():
                everything = [*members, how]
                passes = 0.0
                if "faulty" not in everything:
                    flaky = everything.count("flaky")
                    passes = (1 - model.chance) * (1 - model.failing_share) ** flaky
                seen = passes**tally.passed * (1 - passes) ** tally.failed
                parts[tally.nodes][how] = share * seen
            weight *= sum(parts[tally.nodes].values())
        total += weight
        for node in nodes:
            bad[node] += weight * (state[node] != "good")
        for tally in tallies:
            part = parts[tally.nodes]
            if (whole := sum(part.values())) > 0:
                link[tally.nodes][0] += weight * (1 - part["good"] / whole)
                clean = all(state[node] == "good" for node in tally.nodes)
                link[tally.nodes][1] += weight * clean * part["good"] / whole
    return (
        {node: share / total for node, share in bad.items()},
        {key: (pair[0] / total, pair[1] / total) for key, pair in link.items()},
    )


@st.composite
def _tallies(draw: st.DrawFn) -> list[Tally]:
    nodes = names(draw(st.integers(2, 5)))
    sets = [group for size in (2, 3) for group in itertools.combinations(nodes, size)]
    chosen = draw(st.lists(st.sampled_from(sets), min_size=1, max_size=6, unique=True))
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)
    return [Tally(group, *draw(counts)) for group in chosen]


@settings(max_examples=60, deadline=None)
@given(_tallies(), st.sampled_from([MODEL, PairModel(0.2, 0.1, 0.3, 0.05, 0.02, 0.03)]))
def test_exact(tallies: list[Tally], model: PairModel) -> None:
    found = infer(tallies, model)
    nodes, sets = _enumerated(tallies, model)
    assert {node: belief.bad for node, belief in found.nodes.items()} == pytest.approx(nodes)
    for key, belief in found.sets.items():
        assert (belief.link, belief.chance) == pytest.approx(sets[key], abs=1e-9)
    assert set(found.sets) == {tally.nodes for tally in tallies if tally.failed}


def test_an_untested_node_keeps_its_prior() -> None:
    found = infer([], MODEL, ["a"])
    assert found.nodes["a"].faulty == pytest.approx(MODEL.faulty)
    assert found.nodes["a"].intermittent == pytest.approx(MODEL.intermittent)


def test_many_results_of_one_pair_do_not_underflow() -> None:
    found = infer([Tally(("a", "b"), 2000, 2000), Tally(("a", "c"), 5000, 0)], MODEL)
    assert found.nodes["b"].bad + found.sets[("a", "b")].link == pytest.approx(1, abs=1e-6)
    assert np.isfinite([belief.bad for belief in found.nodes.values()]).all()


def test_a_piece_too_entangled_has_no_probabilities() -> None:
    nodes = names(14)
    tallies = [Tally(pair, 0, 1) for pair in itertools.combinations(nodes, 2)]
    apart = Tally(("x", "y"), 0, 1)
    found = infer([*tallies, apart], MODEL)
    assert set(found.nodes) == {"x", "y"}
    assert set(found.sets) == {("x", "y")}


def test_probabilities_are_calibrated() -> None:
    """Clusters drawn from the model itself: of nodes said to be bad with p, a share p is."""
    import random

    model = PairModel(0.08, 0.04, 0.5, 0.01, 0.01, 0.01)
    said: list[float] = []
    true: list[bool] = []
    for seed in range(150):
        draw = random.Random(seed)
        nodes = names(16)
        kinds = draw.choices(("good", "bad", "flaky"), (0.88, 0.08, 0.04), k=16)
        faulty = {node for node, kind in zip(nodes, kinds, strict=True) if kind == "bad"}
        flaky = {node: 0.5 for node, kind in zip(nodes, kinds, strict=True) if kind == "flaky"}
        dead = {
            frozenset(pair) for pair in itertools.combinations(nodes, 2) if draw.random() < 0.01
        }
        cluster = Cluster(faulty, flaky, dead, chance=0.01, seed=seed)
        found = until_told(nodes, cluster.fails, triples=False, most_rounds=60)
        tallies: dict[tuple[str, ...], list[int]] = {}
        for row in found.results:
            tallies.setdefault(tuple(sorted(row.nodes)), [0, 0])[row.failed] += 1
        beliefs = infer([Tally(key, *counts) for key, counts in tallies.items()], model)
        for node, belief in beliefs.nodes.items():
            said.append(belief.bad)
            true.append(node in faulty or node in flaky)
    shares, truth = np.array(said), np.array(true)
    for low, high in ((0, 0.1), (0.1, 0.9), (0.9, 1.01)):
        among = (shares >= low) & (shares < high)
        expected, got = shares[among].mean(), truth[among].mean()
        error = 3 * math.sqrt(max(expected * (1 - expected), 1e-4) / among.sum())
        assert abs(expected - got) < error + 0.03, (low, expected, got, among.sum())


@pytest.mark.parametrize(
    "wrong", [{"faulty": 0.0}, {"chance": 1.0}, {"faulty": 0.7, "intermittent": 0.4}]
)
def test_impossible_assumptions_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        PairModel(**wrong)
