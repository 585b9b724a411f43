"""Rates, trends against published vectors, scipy's distributions, enumeration and lifelines."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from holdfast.errors import InputError
from holdfast.fleet.failure_model import FailureModel, dispersion_test
from holdfast.fleet.timeline import drift, trend
from holdfast.stats import poisson_interval


@pytest.mark.parametrize(
    ("failures", "node_days", "low", "high"),
    [
        (10, 1538.46, "83.656", "320.821"),
        (1, 1000.0, "179.480", "39497.89"),
        (0, 100.0, "27.1085", None),
    ],
)
def test_published_intervals(failures, node_days, low, high):
    model = FailureModel().fit(failures, node_days)
    found_low, found_high = model.mttf_node_days_ci95_
    assert f"{found_low:.{len(low.split('.')[1])}f}" == low
    if high is None:
        assert found_high is None
        assert model.mttf_node_days_ is None
        assert model.rate_per_1000_node_days_ == 0
        assert model.ci95_ == (0, pytest.approx(1000 / 27.1085, rel=1e-5))
    else:
        assert f"{found_high:.{len(high.split('.')[1])}f}" == high


def test_published_projections():
    model = FailureModel().fit(650, 100_000)
    hours = {gpus: model.mttf_hours(gpus) for gpus in (16384, 131072, 100_000, 1024)}
    assert f"{hours[16384][0]:.2f}" == "1.80"
    assert f"{hours[131072][0]:.3f}" == "0.225"
    assert f"{hours[100_000][0]:.3f}" == "0.295"
    assert f"{hours[1024][0]:.1f}" == "28.8"
    for value, low, high in hours.values():
        assert low < value < high
    # The measured points of the paper, which do not lie on that line.
    one_node = FailureModel().fit(10_000, 477_000)  # MTTF 47.7 days of 8 GPUs
    assert f"{one_node.rate_per_1000_node_days_:.2f}" == "20.96"
    large = FailureModel().fit(24_000, 24_000 * 7.9 / 24 * 128)  # 7.9 h at 1,024 GPUs
    assert f"{large.rate_per_1000_node_days_:.2f}" == "23.73"
    assert large.mttf_hours(1024)[0] == pytest.approx(7.9)


def test_no_failures_projects_a_bound():
    value, low, high = FailureModel().fit(0, 100).mttf_hours(1024)
    assert (value, high) == (None, None)
    assert low == pytest.approx(27.1085 / 128 * 24, rel=1e-5)
    assert FailureModel().fit(10, 100).mttf_hours(3) == FailureModel().fit(10, 100).mttf_hours(8)


def buckets(failures, node_days):
    low = [2**k * 8 for k in range(len(failures))]
    high = [*(edge - 1 for edge in low[1:]), None]
    return FailureModel().fit_buckets(low, high, failures, node_days)


def test_contract_of_the_command():
    model = buckets([3, 40, 0], [1000.0, 2000.0, 0.0])
    answer = json.loads(json.dumps(model.to_dict([16384]), allow_nan=False))
    assert answer["failures"] == 43
    assert answer["rate_per_1000_node_days"] == pytest.approx(43 / 3)
    assert answer["buckets"][1] == {
        "gpus_min": 16,
        "gpus_max": 31,
        "failures": 40,
        "node_days": 2000.0,
        "rate_per_1000_node_days": 20.0,
        "ci95": pytest.approx([1000 * bound for bound in poisson_interval(40, 2000)]),
    }
    assert answer["buckets"][2]["rate_per_1000_node_days"] is None
    assert set(answer["projections"][0]) == {"gpus", "mttf_hours", "ci95"}
    assert answer["dispersion"]["p_value"] < 0.01
    assert "does not hold" in answer["independence"]
    assert "16-31 GPUs fail 20.0 times" in answer["independence"]
    calm = json.loads(json.dumps(buckets([0], [10.0]).to_dict([8]), allow_nan=False))
    assert calm["dispersion"]["p_value"] is None
    assert calm["projections"][0]["mttf_hours"] is None
    assert "cannot be tested" in calm["independence"]
    assert "fits all job sizes" in buckets([10, 10], [100.0, 100.0]).independence_


def test_dispersion_is_scipys_chi_square():
    counts, days = [30, 55, 20, 80], np.array([100.0, 130.0, 90.0, 200.0])
    found = dispersion_test(counts, days)
    peer = stats.chisquare(counts, sum(counts) * days / days.sum())
    assert found.method == "chi-square"
    assert found.statistic == pytest.approx(peer.statistic)
    assert found.p_value == pytest.approx(peer.pvalue)


def test_dispersion_of_few_failures_by_enumeration():
    counts, days = np.array([4, 0, 1]), np.array([10.0, 40.0, 30.0])
    share = days / days.sum()

    def statistic(table):
        return (((table - 5 * share) ** 2) / (5 * share)).sum()

    exact = sum(
        stats.multinomial.pmf(table, 5, share)
        for table in itertools.product(range(6), repeat=3)
        if sum(table) == 5 and statistic(np.array(table)) >= statistic(counts) - 1e-9
    )
    found = dispersion_test(counts, days)
    assert found.method == "Monte Carlo multinomial"
    assert found.statistic == pytest.approx(statistic(counts))
    assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_bad_counts_are_refused():
    with pytest.raises(InputError, match="no node-days"):
        FailureModel().fit(0, 0.0)
    with pytest.raises(InputError, match="without exposure"):
        FailureModel().fit(1, 0.0)
    for bad in (-1, 0.5, math.nan):
        with pytest.raises(InputError, match="whole number"):
            FailureModel().fit(bad, 10.0)
    with pytest.raises(InputError, match="exposure"):
        FailureModel().fit(1, math.inf)
    with pytest.raises(InputError, match="length"):
        FailureModel().fit_buckets([8], [None], [1, 2], [3.0, 4.0])
    with pytest.raises(InputError, match="length"):
        FailureModel().fit_buckets([8], [None, None], [1, 2], [3.0, 4.0])
    with pytest.raises(InputError, match="at least one GPU"):
        FailureModel().fit(1, 10.0).mttf_hours(0)


def test_trend_of_two_months_is_the_binomial_test():
    # With two months S is the count of the second: the exact test and Clopper-Pearson's interval.
    days = np.array([100.0, 150.0])
    found = trend([4, 5], [6, 21], days)
    peer = stats.binomtest(21, 27, 0.6, alternative="two-sided")
    tails = [stats.binomtest(21, 27, 0.6, alternative=side).pvalue for side in ("less", "greater")]
    assert found.p_value == pytest.approx(2 * min(tails))
    assert found.rate_ratio == pytest.approx(21 / 150 / (6 / 100))
    interval = peer.proportion_ci(method="exact")
    odds = [p / (1 - p) * 100 / 150 for p in (interval.low, interval.high)]
    assert found.ci95 == pytest.approx(odds, rel=1e-6)


def test_exact_trend_against_enumeration():
    month, counts, days = np.array([0, 1, 3]), np.array([1, 2, 4]), np.array([3.0, 5.0, 4.0])
    share = days / days.sum()
    observed = int(month @ counts)
    below = above = 0.0
    for table in itertools.product(range(8), repeat=3):
        if sum(table) == 7:
            chance = stats.multinomial.pmf(table, 7, share)
            below += chance * (month @ table <= observed)
            above += chance * (month @ table >= observed)
    assert trend(month, counts, days).p_value == pytest.approx(2 * min(below, above))


def test_trend_coverage_and_large_counts():
    rng = np.random.default_rng(3)
    days = np.linspace(800, 1500, 12)
    truth = 1.08
    rate = 0.006 * truth ** np.arange(12)
    covered = 0
    for _ in range(100):
        found = trend(np.arange(12), rng.poisson(rate * days), days)
        covered += found.ci95[0] <= truth <= found.ci95[1]
    assert covered >= 90  # an exact interval covers at least 95 %: P(below 90 of 100) < 0.02
    large = trend(np.arange(12), rng.poisson(rate * days * 300), days * 300)
    assert large.method.startswith("normal")
    assert large.rate_ratio == pytest.approx(truth, rel=0.01)
    assert large.p_value < 1e-10
    assert "rises" in drift(large)


def test_both_methods_of_the_trend_agree(monkeypatch):
    counts, days = [200, 230, 210, 260, 280], [1000.0] * 5
    exact = trend(range(5), counts, days)
    monkeypatch.setattr("holdfast.fleet.timeline.EXACT_UP_TO", 0)
    normal = trend(range(5), counts, days)
    assert exact.method == "exact conditional"
    assert exact.rate_ratio == normal.rate_ratio
    assert exact.ci95 == pytest.approx(normal.ci95, rel=2e-3)
    assert exact.p_value == pytest.approx(normal.p_value, rel=0.1)


def test_trend_at_the_ends():
    nothing = trend([0, 1], [0, 0], [10.0, 10.0])
    assert nothing.p_value is None
    assert nothing.verdict == "unknown"
    assert trend([0, 1], [3, 0], [10.0, 0.0]).bins == 1
    first = trend([0, 1, 2], [9, 0, 0], [10.0, 10.0, 10.0])
    assert first.rate_ratio == 0
    assert first.ci95[0] == 0
    assert first.ci95[1] < 1
    assert first.verdict == "falls"
    last = trend([0, 1, 2], [0, 0, 9], [10.0, 10.0, 10.0])
    assert json.loads(json.dumps(last.to_dict(), allow_nan=False))["ci95"][1] is None
    scattered = trend(range(6), [10, 90, 15, 80, 5, 95], [100.0] * 6)
    assert scattered.dispersion_p_value < 1e-6
    assert "scatter more" in drift(scattered)
    assert last.verdict == "rises"
    # All three of three in one bin of three: p = 2/27, so no trend could have been seen.
    assert trend([0, 1, 2], [1, 1, 1], [10.0] * 3).verdict == "unknown"
    assert trend([0, 1, 2], [2, 2, 1], [10.0] * 3).verdict == "none"
