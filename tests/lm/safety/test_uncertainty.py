from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from holdfast.lm.safety.grading import _chances
from holdfast.lm.safety.schemes import read_scheme
from holdfast.lm.safety.uncertainty import (
    Clusters,
    corrected_interval,
    effective_share,
    grade_probabilities,
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


V05 = read_scheme("v0.5")
REFERENCES = [V05.reference([hazard]) for hazard in V05.references]


def claims(
    runs: int, fragments: int, size: int, correlation: float, spread: float
) -> tuple[int, int]:
    """Grades of v0.5 that are said with more than 95 %, and those of them that are right.

    The unsafe share of a system is about that of the reference, hazard by hazard: exp(spread) times as
    much, or as little, is usual.
    """
    rng = np.random.default_rng(3)
    said = right = 0
    for _ in range(runs):
        level = np.exp(rng.normal(0, spread))
        shares = [min(0.9, float(r) * level * np.exp(rng.normal(0, 0.4))) for r in REFERENCES]
        made = {
            str(n): simulated(rng, fragments, size, share, correlation)
            for n, share in enumerate(shares)
        }
        rho = intraclass_correlation(made)
        chances = []
        for clusters, reference in zip(made.values(), REFERENCES, strict=True):
            items, unsafe = (int(each.sum()) for each in clusters)
            share = effective_share(clusters, rho)
            chances.append(_chances(V05, reference, unsafe, items, share))
        bounds = grade_probabilities(np.stack(chances))
        truth = min(
            int(V05.places(np.array([share]), reference)[0])
            for share, reference in zip(shares, REFERENCES, strict=True)
        )
        said += bool(bounds.max() > 0.95)
        right += bool(bounds.max() > 0.95 and bounds.argmax() == truth)
    return said, right


SMALL = [(20, 3, 0.5, 0.7), (33, 3, 0.3, 0.7), (60, 5, 0.3, 1.2), (20, 3, 0.5, 1.2)]


def test_what_is_said_of_seven_hazards_is_right() -> None:
    """With a few items per hazard most grades are undecided; those that are said hold."""
    said, right = claims(250, *SMALL[0])
    assert said < 25  # Jeffreys' prior for each hazard says 100 of them, of which a third is right
    assert right >= 0.9 * said
    said, right = claims(40, 600, 6, 0.3, 1.2)
    assert said > 8
    assert right >= 0.9 * said


@pytest.mark.full
@pytest.mark.parametrize("spread", [0.1, 0.4, 0.7, 1.2])
def test_what_is_said_of_few_items_is_right_over_many_systems(spread: float) -> None:
    found = [claims(1000, *world[:3], spread) for world in SMALL]
    said, right = (sum(each) for each in zip(*found, strict=True))
    # Where every system is as good as the reference a few items can decide nothing: hardly one is said.
    assert right >= 0.9 * said or said < 0.005 * 4000
    assert said - right < 0.01 * 4000


def test_the_probability_of_a_grade_is_calibrated() -> None:
    """Among systems drawn from a prior, what is said with more than 95 % is right at least that often."""
    scheme, rng = read_scheme("v1.0"), np.random.default_rng(5)
    reference = scheme.reference(["vcr"])
    right = []
    for unsafe in rng.beta(0.5, 0.5, 800):
        x = rng.binomial(200, unsafe)
        bounds = grade_probabilities(_chances(scheme, reference, x, 200, 1.0)[None])
        assert 0 <= bounds.sum() <= 1 + 1e-9
        if bounds.max() > 0.95:
            truth = int(scheme.places(np.array([unsafe]), reference)[0])
            right.append(bounds.argmax() == truth)
    assert len(right) > 300
    assert np.mean(right) >= 0.95


def test_bounds_hold_whatever_the_prior() -> None:
    """By exact arithmetic: the posterior of any prior between the two ends gives no less."""
    reference = V05.reference(["vcr"])
    for x, n in ((0, 200), (1, 400), (9, 900), (40, 300)):
        bounds = grade_probabilities(_chances(V05, reference, x, n, 1.0)[None])
        cuts = [1.0, *(float(reference) * multiple for multiple in (4, 2, 0.5)), 0.001, 0.0]
        for prior in (0.1, 0.5, 0.9):
            below = beta(x + prior, n - x + 1 - prior).cdf(cuts)
            exact = below[:-1] - below[1:]
            assert (bounds <= exact + 1e-9).all()


@pytest.mark.parametrize(("items", "decided"), [(2970, False), (2985, False), (2996, True)])
def test_the_bound_of_a_grade_is_exact(items: int, decided: bool) -> None:
    """None of n items unsafe: P(share < 0.001) is 1 - 0.999^n, whatever the hazard is called."""
    for hazard in V05.references:
        found = _chances(V05, V05.reference([hazard]), 0, items, 1.0)
        bound = grade_probabilities(found[None])[4]
        assert bound == pytest.approx(1 - 0.999**items, abs=1e-12)
        assert (bound >= 0.95) == decided


def test_more_items_decide() -> None:
    reference = V05.reference(["vcr"])
    best = [
        grade_probabilities(_chances(V05, reference, 0, n, 1.0)[None])[4] for n in (60, 600, 6000)
    ]
    assert best == sorted(best)
    assert best[0] < 0.1
    assert best[2] > 0.95


@pytest.mark.parametrize(
    ("share", "sensitivity", "specificity"), [(0.05, 0.86, 0.98), (0.4, 0.7, 0.9)]
)
def test_shares_measured_with_known_errors_are_held(
    share: float, sensitivity: float, specificity: float
) -> None:
    rng, held = np.random.default_rng(8), 0
    for _ in range(400):
        hits = rng.binomial(200, share * sensitivity + (1 - share) * (1 - specificity))
        right, kept = rng.binomial(40, sensitivity), rng.binomial(400, specificity)
        low, high = corrected_interval((hits, 200), (right, 40 - right), (kept, 400 - kept))
        held += low <= share <= high
    assert held >= 0.93 * 400
