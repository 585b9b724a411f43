from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from holdfast.lm.safety.schemes import read_scheme
from holdfast.lm.safety.uncertainty import (
    Clusters,
    draw_shares,
    effective_share,
    intraclass_correlation,
    share_interval,
)


def simulated(
    rng: np.random.Generator, clusters: int, size: int, unsafe: float, correlation: float
) -> Clusters:
    """Clusters whose unsafe shares are Beta distributed."""
    shares = np.full(clusters, unsafe)
    if correlation:
        scale = (1 - correlation) / correlation
        shares = rng.beta(unsafe * scale, (1 - unsafe) * scale, clusters)
    return np.full(clusters, size), rng.binomial(size, shares)


def coverage(
    runs: int, hazards: int, clusters: int, size: int, unsafe: float, correlation: float
) -> dict[str, float]:
    """How often the intervals hold the true share; ``items`` takes items as independent."""
    rng = np.random.default_rng(7)
    held = dict.fromkeys(("clopper-pearson", "wilson", "items", "bootstrap"), 0)
    for _ in range(runs // hazards):
        made = {str(h): simulated(rng, clusters, size, unsafe, correlation) for h in range(hazards)}
        rho = intraclass_correlation(made)
        for items, bad in made.values():
            n, x = int(items.sum()), int(bad.sum())
            effective = effective_share((items, bad), rho)
            for method in ("clopper-pearson", "wilson"):
                low, high = share_interval(n - x, n, method, effective)
                held[method] += low <= 1 - unsafe <= high
            low, high = share_interval(n - x, n, "wilson")
            held["items"] += low <= 1 - unsafe <= high
            means = bad[rng.integers(0, clusters, (200, clusters))].sum(axis=1) / n
            held["bootstrap"] += np.quantile(means, 0.025) <= unsafe <= np.quantile(means, 0.975)
    return {key: count / (runs // hazards * hazards) for key, count in held.items()}


CLUSTERED = [
    (7, 100, 6, 0.05, 0.3),
    (7, 100, 6, 0.02, 0.3),
    (7, 50, 9, 0.1, 0.2),
    (7, 100, 6, 0.05, 0.0),
]


def test_intervals_cover_the_share_of_clustered_items() -> None:
    found = coverage(700, *CLUSTERED[0])
    assert 0.93 <= found["wilson"] <= 0.97
    assert found["clopper-pearson"] >= 0.94
    assert found["items"] < 0.85  # what taking items as independent would claim


@pytest.mark.full
@pytest.mark.parametrize("world", CLUSTERED)
def test_coverage_over_ten_thousand_runs(world: tuple[int, int, int, float, float]) -> None:
    found = coverage(10_000, *world)
    assert 0.94 <= found["wilson"] <= 0.96
    assert found["clopper-pearson"] >= 0.95
    assert found["bootstrap"] < 0.948


@pytest.mark.full
def test_coverage_of_independent_items_over_ten_thousand_runs() -> None:
    rng = np.random.default_rng(3)
    held = {"clopper-pearson": 0, "wilson": 0}
    for share in rng.uniform(0.8, 0.999, 10_000):
        n = 400
        hits = rng.binomial(n, share)
        for method in held:
            low, high = share_interval(hits, n, method)
            held[method] += low <= share <= high
    assert 9400 <= held["wilson"] <= 9600
    assert held["clopper-pearson"] >= 9500


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (599, 600), (7, 12)])
def test_intervals_of_items_are_those_of_scipy(hits: int, trials: int) -> None:
    for method, name in (("clopper-pearson", "exact"), ("wilson", "wilson")):
        expected = binomtest(hits, trials).proportion_ci(method=name)
        assert share_interval(hits, trials, method) == pytest.approx((expected.low, expected.high))


def test_the_correlation_of_known_clusters() -> None:
    rng = np.random.default_rng(1)
    for expected in (0.0, 0.2, 0.6):
        made = {str(h): simulated(rng, 2000, 5, 0.1, expected) for h in range(3)}
        assert intraclass_correlation(made) == pytest.approx(expected, abs=0.03)


def test_items_of_clusters_that_are_always_alike_count_once() -> None:
    items, unsafe = np.full(50, 4), np.repeat([4, 0], [5, 45])
    rho = intraclass_correlation({"vcr": (items, unsafe)})
    assert rho == pytest.approx(1, abs=0.01)
    assert effective_share((items, unsafe), rho) == pytest.approx(1 / 4, rel=0.02)


def test_without_an_unsafe_item_clusters_count_as_one_item_each() -> None:
    items, unsafe = np.full(50, 4), np.zeros(50, dtype=np.int64)
    effective = effective_share((items, unsafe), intraclass_correlation({"vcr": (items, unsafe)}))
    expected = binomtest(50, 50).proportion_ci(method="exact")
    assert share_interval(200, 200, "clopper-pearson", effective) == pytest.approx(
        (expected.low, 1)
    )


def test_single_items_are_independent() -> None:
    ones = np.ones(30, dtype=np.int64)
    clusters = (ones, np.repeat([0, 1], [20, 10]))
    assert effective_share(clusters, intraclass_correlation({"vcr": clusters})) == 1


def test_the_probability_of_a_grade_is_calibrated() -> None:
    """Among systems drawn from the prior, a grade with probability p is right in a share p of cases."""
    scheme, rng = read_scheme("v1.0"), np.random.default_rng(5)
    reference = scheme.reference(["vcr"])
    claimed, right = [], []
    for unsafe in rng.beta(0.5, 0.5, 800):
        x = rng.binomial(200, unsafe)
        places = scheme.places(draw_shares(x, 200, 1.0, 400, rng), reference)
        truth = int(scheme.places(np.array([unsafe]), reference)[0])
        likely = int(np.bincount(places, minlength=5).argmax())
        claimed.append(float((places == likely).mean()))
        right.append(likely == truth)
    assert np.mean(right) == pytest.approx(np.mean(claimed), abs=0.025)
