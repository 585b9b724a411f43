"""Lemons against scipy's tests, brute force, conjugate closed forms and simulated fleets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from exposures import exposure as rows_of_exposure
from scipy import stats

from holdfast.errors import InputError
from holdfast.fleet.lemon_model import LemonDetector
from holdfast.fleet.lemon_statistics import (
    BlameExposure,
    blame_p_values,
    split_p_values,
)
from holdfast.fleet.node_signals import SIGNALS
from holdfast.stats import benjamini_hochberg


def names(count: int) -> list[str]:
    return [f"n{i:04d}" for i in range(count)]


def test_whole_blame_is_the_exact_binomial_test():
    blame, days = np.array([0.0, 3, 1, 7]), np.array([10.0, 20, 30, 15])
    expected = [
        stats.binomtest(int(k), 11, d / 75, alternative="greater").pvalue
        for k, d in zip(blame, days, strict=True)
    ]
    np.testing.assert_allclose(blame_p_values(blame, days), expected)
    alone = BlameExposure(np.array([1]), days[:, None], np.array([11.0]), np.array([0.0]))
    np.testing.assert_allclose(split_p_values(blame, blame, alone), expected)
    # many nodes: the Poisson test with the fleet's rate is its limit
    many_days = np.ones(100_000)
    many = np.zeros(100_000)
    many[:1000] = 1
    many[0] = 4
    assert blame_p_values(many, many_days)[0] == pytest.approx(
        stats.poisson.sf(3, many.sum() / 100_000), rel=0.01
    )


def test_no_failures_and_no_nodes():
    calm = LemonDetector().fit(names(3), [1.0, 2.0, 0.0], [0, 0, 0])
    assert calm.lemons_ == []
    assert calm.nodes_["q_value"].to_pylist() == [1, 1, 1]
    assert calm.nodes_["shrunk_rate"].to_pylist() == [0, 0, 0]
    assert calm.priors_ == [None]
    empty = LemonDetector().fit([], [], [], signals={"tickets": []})
    assert empty.lemons_ == []
    json.dumps([calm.to_dict(), empty.to_dict()], allow_nan=False)


def test_equal_hazard_with_unequal_exposure_flags_no_more_than_the_rate():
    rng = np.random.default_rng(1)
    with_discovery = 0
    for seed in range(200):
        days = 28 * rng.lognormal(0, 1.5, 2000).clip(0.001, 50)  # five orders of magnitude
        blame = rng.poisson(6.5e-3 * days).astype(float)
        flagged = benjamini_hochberg(blame_p_values(blame, days)) < 0.05
        with_discovery += bool(flagged.any())
        if seed < 4:
            detector = LemonDetector().fit(names(2000), days, blame)
            assert set(detector.lemons_) == set(np.array(names(2000))[flagged])
    # Under the null the share of fleets with any discovery is the false discovery rate:
    # P(more than 18 of 200 | 0.05) < 0.005.
    assert with_discovery <= 18


def test_lemons_are_found():
    rng = np.random.default_rng(2)
    found = right = 0
    for _ in range(10):
        days = rng.uniform(40, 90, 2000)
        rate = np.full(2000, 6.5e-3)
        truth = rng.choice(2000, 24, replace=False)
        rate[truth] *= 20
        detector = LemonDetector().fit(names(2000), days, rng.poisson(rate * days))
        lemons = {int(name[1:]) for name in detector.lemons_}
        found += len(lemons)
        right += len(lemons & set(truth.tolist()))
        top = [int(name[1:]) for name in detector.nodes_["node"].to_pylist()[:20]]
        assert len(set(top) & set(truth.tolist())) >= 18
    assert right / found > 0.85
    assert right / 240 > 0.85


SIZES = 2 ** np.arange(7)


class Fleet:
    """Attempts of 1 to 64 nodes on a fleet in which half of the nodes do no small ones."""

    def __init__(self, seed: int, hazard: np.ndarray, named_share: float, attempts: int) -> None:
        rng = np.random.default_rng(seed)
        count = hazard.size
        self.by_size = np.zeros((count, 7))
        self.known_by_size, self.shared_by_size = np.zeros((2, 7))
        self.known, self.blame = np.zeros((2, count))
        for _ in range(attempts):
            kind = rng.integers(0, 7)
            size = int(SIZES[kind])
            nodes = rng.choice(count // 2 if size <= 4 else count, size, replace=False)
            duration = rng.exponential(1.0)
            self.by_size[nodes, kind] += duration
            if rng.random() < -math.expm1(-hazard[nodes].sum() * duration):
                bad = rng.choice(nodes, p=hazard[nodes] / hazard[nodes].sum())
                if size == 1 or rng.random() < named_share:
                    self.known[bad] += 1
                    self.blame[bad] += 1
                    self.known_by_size[kind] += 1
                else:
                    self.blame[nodes] += 1 / size
                    self.shared_by_size[kind] += 1
        self.days = self.by_size.sum(axis=1)
        self.exposure = BlameExposure(SIZES, self.by_size, self.known_by_size, self.shared_by_size)


def test_tail_of_shared_blame_against_its_exact_distribution():
    # One size only: the blame of a node is a binomial count over 4, and Chernoff's bound on a
    # Poisson tail is known to lie within a factor sqrt(2 pi k) above it.
    days = np.array([[10.0], [20.0], [30.0], [40.0], [60.0]])
    exposure = BlameExposure(np.array([4]), days, np.array([0.0]), np.array([10.0]))
    touched = np.array([9.0, 4, 8, 9, 10])
    p_value = split_p_values(touched / 4, np.zeros(5), exposure)
    exact = stats.poisson.sf(touched - 1, 40 * days[:, 0] / 160)
    assert (p_value >= exact).all()
    assert (p_value <= np.minimum(exact * np.sqrt(2 * np.pi * touched) * 1.3, 1)).all()


def test_classes_of_sizes_are_conservative():
    fleet = Fleet(3, np.full(128, 0.01), 0.3, 400)
    exact = split_p_values(fleet.blame, fleet.known, fleet.exposure)
    joined = np.add.reduceat  # 2, 4, 8 ... 64 as one class with the smallest size
    coarse = BlameExposure(
        np.array([1, 2]),
        joined(fleet.by_size, [0, 1], axis=1),
        joined(fleet.known_by_size, [0, 1]),
        joined(fleet.shared_by_size, [0, 1]),
    )
    # The expected blame differs a little (its rate is pooled), so compare the bulk.
    worse = split_p_values(fleet.blame, fleet.known, coarse)
    assert np.median(worse) >= np.median(exact)
    assert (worse < 0.05).sum() <= (exact < 0.05).sum()


@pytest.mark.parametrize("named_share", [0.0, 0.5])
def test_shared_blame_keeps_its_error_rate(named_share):
    small = plain_small = total = discoveries = 0
    for seed in range(40):
        fleet = Fleet(seed, np.full(128, 0.01), named_share, 400)
        split = split_p_values(fleet.blame, fleet.known, fleet.exposure)
        plain = blame_p_values(fleet.blame, fleet.days)
        for level in (0.001, 0.01, 0.05):
            assert (plain < level).mean() <= level + 4 * math.sqrt(level / 128)
            assert (split < level).mean() <= level + 4 * math.sqrt(level / 128)
        small += int((split < 0.01).sum())
        plain_small += int((plain < 0.01).sum())
        total += split.size
        discoveries += bool((benjamini_hochberg(split) < 0.05).any())
    assert small / total <= 0.01
    assert plain_small / total <= 0.01
    assert discoveries <= 6  # P(more than 6 of 40 | 0.05) < 0.005


def test_exposure_collected_from_rows():
    exposure = rows_of_exposure(
        ["a", "b"],
        node=["b", "a", "b", "a", "b"],
        size=[1, 2, 3, 8, 8],
        node_days=[5.0, 1.0, 2.0, 4.0, 4.0],
        failure_size=[1, 3, 9, 9, 16, 16],
        failure_blame=[1.0, 1.0, 1 / 9, 1 / 9, 1 / 16, 1 / 16],
        failure_known=[True, True, False, False, False, False],
    )
    assert exposure.sizes.tolist() == [1, 2, 4, 8, 16]
    assert exposure.node_days.tolist() == [[0, 1, 0, 4, 0], [5, 2, 0, 4, 0]]
    assert exposure.known_failures.tolist() == [1, 1, 0, 0, 0]
    # 16 nodes failed at once, so nothing ran that long: held against the class below.
    assert exposure.shared_failures == pytest.approx([0, 0, 0, 2 / 9 + 1 / 8, 0])


def test_a_lemon_that_only_works_in_large_jobs_is_seen_through_its_split():
    hazard = np.full(128, 0.002)
    hazard[100] = 0.2  # in the half without small attempts; its failures are never named
    fleet = Fleet(5, hazard, 0.0, 3000)
    detector = LemonDetector().fit(
        names(128),
        fleet.days,
        fleet.blame,
        known_failures=fleet.known,
        exposure=fleet.exposure,
    )
    assert detector.lemons_ == ["n0100"]
    plain = LemonDetector().fit(names(128), fleet.days, fleet.blame)
    assert plain.lemons_ == []  # the tail that knows nothing of the sizes cannot tell


def test_nodes_that_do_not_differ_share_one_rate():
    # Less scatter than Poisson counts have: no sign of unequal nodes.
    detector = LemonDetector().fit(names(50), np.full(50, 100.0), np.tile([1, 2], 25))
    assert detector.priors_ == [None]
    assert set(detector.nodes_["shrunk_rate"].to_pylist()) == {15.0}
    assert detector.lemons_ == []
    assert detector.nodes_["failures"].to_pylist()[:25] == [2] * 25  # ties go to the p-value


def test_the_injected_lemons_of_the_testbed_lead(testbed):
    truth = json.loads((testbed / "truth_summary.json").read_text())
    nodes = [f"node{i:02d}" for i in range(1, 17)]
    counts = [truth["by_node"].get(node, 0) for node in nodes]
    detector = LemonDetector().fit(nodes, np.full(16, 0.011), counts, window_days=0.011)
    assert set(detector.nodes_["node"].to_pylist()[:2]) == set(truth["lemons"])
    # 6 of 26 failures on one of 16 nodes: p = P(Binomial(26, 1/16) >= 6), times 16 for the first.
    p_value = stats.binom.sf(5, 26, 1 / 16)
    top = detector.nodes_.to_pylist()[0]
    assert (top["node"], top["p_value"]) == ("node05", pytest.approx(p_value))
    assert top["q_value"] == pytest.approx(16 * p_value)
    assert detector.lemons_ == []  # honest: 26 failures are few
    assert 0.05 < top["q_value"] < 0.15
    rates = detector.nodes_["shrunk_rate"].to_numpy()
    raw = detector.nodes_["raw_rate"].to_numpy()
    assert (np.diff(rates) <= 0).all()
    assert rates.max() < raw.max()
    assert rates.min() > raw.min()


def test_gain_of_pulling_a_node():
    days = np.full(100, 30.0)
    blame = np.concatenate([[40.0], np.full(99, 1.0)])
    detector = LemonDetector().fit(names(100), days, blame, window_days=60)
    top = detector.nodes_.to_pylist()[0]
    shrunk = detector.nodes_["shrunk_rate"].to_numpy() / 1000
    avoided = (shrunk[0] - shrunk[1:].mean()) * 30 * 30 / 60
    assert top["failures_avoided_per_month"] == pytest.approx(avoided)
    assert top["fleet_rate_change"] == pytest.approx(-avoided * 2 / 139)
    assert detector.lemons_ == ["n0000"]


def test_rule_of_the_seven_signals():
    count = 200
    rng = np.random.default_rng(4)
    signals = {name: rng.poisson(1.0, count).astype(float) for name in [*SIGNALS][:6]}
    signals["tickets"] = np.zeros(count)
    for name in ("tickets", "out_count", "xid_cnt"):
        signals[name][17] = 30
    signals["xid_cnt"][18] = 40
    detector = LemonDetector().fit(names(count), np.ones(count), np.zeros(count), signals=signals)
    assert detector.rule_lemons_ == ["n0017"]
    assert detector.lemons_ == []
    assert detector.missing_signals_ == ["single_node_node_failure_rate"]
    assert detector.thresholds_["tickets"] == 0
    for name in [*SIGNALS][:6]:
        above = (signals[name] > detector.thresholds_[name]).sum()
        assert above <= 2  # at most 1 % of the nodes exceed the 0.99 quantile
    answer = json.loads(json.dumps(detector.to_dict(), allow_nan=False))
    assert answer["nodes"][0]["evidence"]["tickets"] == 0
    assert {"node", "node_days", "failures", "q_value", "shrunk_rate", "evidence"} <= set(
        answer["nodes"][0]
    )


def test_bad_columns_are_refused():
    for arguments, message in (
        ((["a", "b"], [1], [0, 0]), "node_days"),
        ((["a", "b"], [1, 1], [0, -1]), "failures"),
        ((["a", "b"], [0, 1], [1, 0]), "no node-days"),
    ):
        with pytest.raises(InputError, match=message):
            LemonDetector().fit(*arguments)


def test_shared_blame_still_ranks_the_nodes():
    # Every failure is of a 16-node attempt and nothing names its node; four nodes are 15 times worse.
    generator = np.random.default_rng(3)
    nodes, size = 200, 16
    rate = np.full(nodes, 2e-3)
    rate[:4] *= 15
    blame, days, failures = np.zeros(nodes), np.zeros(nodes), 0
    for _ in range(6000):
        part = generator.choice(nodes, size, replace=False)
        lasted = generator.exponential(1.0)
        days[part] += lasted
        if generator.random() < 1 - math.exp(-rate[part].sum() * lasted):
            blame[part] += 1 / size
            failures += 1
    names = [f"n{place}" for place in range(nodes)]
    exposure = rows_of_exposure(
        names,
        node=names,
        size=[size] * nodes,
        node_days=days,
        failure_size=[size] * size * failures,
        failure_blame=[1 / size] * size * failures,
        failure_known=[False] * size * failures,
    )
    assert exposure.blame_scale == pytest.approx(1 / size)
    detector = LemonDetector().fit(
        names, days, blame, known_failures=np.zeros(nodes), exposure=exposure
    )
    assert detector.priors_ != [None]  # unscaled, shared blame looks as if no two nodes differed
    worst = detector.nodes_.slice(0, 3).to_pylist()
    assert {row["node"] for row in worst} <= {"n0", "n1", "n2", "n3"}
    assert all(row["fleet_rate_change"] < 0 for row in worst)
    assert worst[0]["shrunk_rate"] > detector.fleet_rate_per_1000_node_days_


def test_what_the_lemons_of_two_clusters_avoid_is_a_share_of_all_failures() -> None:
    nodes = [f"{cluster}:n{i}" for cluster in "ab" for i in range(10)]
    detector = LemonDetector().fit(
        nodes,
        failures=[40.0, *9 * [0.0], 20.0, *9 * [0.0]],
        node_days=20 * [60.0],
        clusters=[name[0] for name in nodes],
    )
    change = dict(
        zip(
            *(detector.nodes_[name].to_pylist() for name in ("node", "fleet_rate_change")),
            strict=True,
        )
    )
    # Shrinkage aside, 40 and 20 of 60 failures.
    assert change["a:n0"] == pytest.approx(-40 / 60, abs=0.03)
    assert change["b:n0"] == pytest.approx(-20 / 60, abs=0.03)
