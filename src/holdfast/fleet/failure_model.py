"""The failure rate of a fleet with exact intervals, by job size, and the MTTF it implies.

Kokolis et al., arXiv 2410.21680v2: nodes in series that each fail r_f times a node-day give a job of N
nodes an MTTF of 1 / (N r_f). The interval is Garwood's (1936, Biometrika 28): n failures in T node-days
have a rate in [chi2(a/2; 2n), chi2(1 - a/2; 2n + 2)] / 2T, which is exact for a Poisson count. Failures
that come in clusters (`holdfast.fleet.incidents`) have Fay and Feuer's interval instead, which is Garwood's
where each cluster is one failure (`weighted_poisson_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.numbers import brief
from holdfast.plain import plain
from holdfast.stats import FloatArray

SMALL_EXPECTED_COUNT = 5.0  # below it the chi-square distribution of the statistic is not trusted
MONTE_CARLO_TABLES, FEWEST_TABLES, MOST_CELLS = 20_000, 999, 20_000_000
SEED = 20241
_RATE = ("rate_per_1000_node_days", "ci95")
MTTF = ("mttf_node_days", "mttf_node_days_ci95")
FITTED = ("failures", "clusters", "node_days", *_RATE, *MTTF)


def weighted_poisson_interval(weights: npt.ArrayLike, exposure: float = 1.0) -> tuple[float, float]:
    """95 % interval of the rate of events that come in independent clusters, per unit of exposure.

    The gamma interval of a weighted sum of Poisson counts (Fay and Feuer 1997, Statistics in Medicine
    16): with y the sum of the weights, v of their squares and m the largest,
    [v/2y chi2(0.025; 2y^2/v), (v + m^2)/2(y + m) chi2(0.975; 2(y + m)^2/(v + m^2))] / T.
    Where every weight is 1 it is `holdfast.stats.poisson_interval`.

    Args:
        weights: events in each cluster, shape (n,).
        exposure: T, above zero.
    """
    from scipy.special import gammaincinv

    sizes = np.asarray(weights, dtype=np.float64)
    total, squares, most = float(sizes.sum()), float((sizes**2).sum()), float(sizes.max(initial=0))

    def end(total: float, squares: float, tail: float) -> float:
        return squares / total * float(gammaincinv(total**2 / squares, tail)) / exposure

    most = most or 1.0
    low = end(total, squares, 0.025) if total > 0 else 0.0
    return low, end(total + most, squares + most**2, 0.975)


@dataclass(frozen=True)
class RateBucket:
    """The failure rate of the jobs of one size."""

    gpus_min: int
    gpus_max: int | None  # Largest job of the bucket; None: no limit
    failures: int
    node_days: float
    rate_per_1000_node_days: float | None  # None where nothing ran
    ci95: tuple[float, float] | None  # Interval of the rate, per 1,000 node-days


@dataclass(frozen=True)
class Dispersion:
    """Test of one common rate: the counts against the exposure, given their total."""

    # Pearson's sum of (observed - expected)^2 / expected; None with fewer than two buckets.
    statistic: float | None
    p_value: float | None
    degrees_of_freedom: int
    method: str  # "chi-square", or "Monte Carlo multinomial" where an expected count is below 5
    # Variance over mean of the counts, 1 where one rate explains them: statistic / degrees of freedom
    variance_over_mean: float | None = None
    between: str = "job sizes"  # or "nodes"


class FailureModel:
    """Rate of infrastructure failures per node-day, and what it means for a job of N nodes.

    r_f = failures / node-days; MTTF(N) = 1 / (N r_f) if nodes fail independently and any failure ends
    the job. Whether that holds is tested by `fit_buckets`.

    Attributes:
        failures_: count, 0 or more.
        clusters_: independent events behind them.
        node_days_: exposure in node-days.
        rate_per_1000_node_days_: 1000 r_f.
        ci95_: its exact interval (Garwood 1936); with no failures (0, upper bound).
        mttf_node_days_: 1 / r_f, None with no failures.
        mttf_node_days_ci95_: its interval; the upper end is None (without bound) with no failures.
        buckets_: list of `RateBucket`, after `fit_buckets`, else empty.
        dispersion_: `Dispersion` over the buckets, None before `fit_buckets`.

    Example:
        >>> model = FailureModel().fit(failures=10, node_days=1538.46)
        >>> round(model.rate_per_1000_node_days_, 2)
        6.5
        >>> round(model.mttf_hours(16384)[0], 2)
        1.8
    """

    def __init__(self) -> None:
        self.buckets_: list[RateBucket] = []
        self.dispersion_: Dispersion | None = None

    def fit(self, failures: int, node_days: float, clusters: npt.ArrayLike | None = None) -> Self:
        """Fit the rate to one count and its exposure.

        Args:
            failures: count.
            node_days: exposure.
            clusters: failures of each independent event, shape (n,); None: each is one.

        Raises:
            InputError: a negative or fractional count, or no exposure.
        """
        count, exposure = checked_counts([failures], [node_days])
        if exposure[0] == 0:
            raise InputError(
                "no node-days to take a rate of",
                code="no-data",
                remedy="lower the minimum number of GPUs, or widen the time range",
            )
        self.failures_, self.node_days_ = int(count[0]), float(exposure[0])
        weights = np.ones(self.failures_) if clusters is None else np.asarray(clusters)
        if weights.sum() != self.failures_:
            raise InputError(
                "the clusters do not add up to the failures",
                code="conflict",
                found=f"{weights.sum():g} of {self.failures_}",
            )
        self.clusters_ = int(weights.size)
        low, high = weighted_poisson_interval(weights, self.node_days_)
        self.rate_per_1000_node_days_ = 1000 * self.failures_ / self.node_days_
        self.ci95_ = (1000 * low, 1000 * high)
        self.mttf_node_days_ = self.node_days_ / self.failures_ if self.failures_ else None
        self.mttf_node_days_ci95_ = (1 / high, 1 / low if low > 0 else None)
        return self

    def fit_buckets(
        self,
        gpus_min: npt.ArrayLike,
        gpus_max: Sequence[int | None],
        failures: npt.ArrayLike,
        node_days: npt.ArrayLike,
        clusters: Sequence[npt.ArrayLike] | None = None,
    ) -> Self:
        """Fit a rate per bucket of job sizes and test whether one rate explains them all.

        Fits the pooled rate to the sums too, unless `fit` has been called before. The four arguments
        are parallel, one entry a bucket; `gpus_max` is inclusive, None for no limit. `clusters` has the
        failures of each independent event in each bucket; None: each failure is one.

        Raises:
            InputError: failures where nothing ran, a negative or fractional count.
        """
        counts, exposure = checked_counts(failures, node_days)
        smallest = np.asarray(gpus_min, dtype=np.int64)
        if not smallest.shape == counts.shape == (len(gpus_max),):
            raise InputError("the columns of the buckets differ in length", code="conflict")
        self.buckets_ = []
        weights = clusters or [np.ones(int(count)) for count in counts]
        columns = (smallest, gpus_max, counts, exposure, weights)
        for low, high, count, days, each in zip(*columns, strict=True):
            rate = interval = None
            if days > 0:
                rate = 1000 * float(count) / float(days)
                interval = weighted_poisson_interval(each, float(days) / 1000)
            bucket = RateBucket(int(low), high, int(count), float(days), rate, interval)
            self.buckets_.append(bucket)
        every = np.concatenate([np.zeros(0), *map(np.asarray, weights)])
        self.dispersion_ = dispersion_test(counts, exposure, every)
        if not hasattr(self, "failures_"):
            self.fit(int(counts.sum()), float(exposure.sum()), every)
        return self

    def mttf_hours(
        self, gpus: int, gpus_per_node: int = 8
    ) -> tuple[float | None, float, float | None]:
        """MTTF of a job on so many GPUs, hours, with its 95 % interval: (value, low, high).

        A job takes whole nodes. With no failures only the lower end is known: (None, low, None).
        """
        if gpus < 1 or gpus_per_node < 1:
            raise InputError(
                "a job has at least one GPU",
                code="invalid-value",
                found=f"{gpus} / {gpus_per_node}",
            )
        hours = 24 / math.ceil(gpus / gpus_per_node)
        low, high = self.mttf_node_days_ci95_
        value, high = (each and each * hours for each in (self.mttf_node_days_, high))
        return value, low * hours, high

    @property
    def independence_(self) -> str:
        """Whether "independent nodes in series" fits the buckets, in words."""
        test = self.dispersion_
        if test is None or test.p_value is None or test.statistic is None:
            need = "it takes failures and two or more job sizes"
            if test is not None and test.between == "nodes":
                need = (
                    "it takes failures and the number of all nodes, also of those that never failed"
                )
            return f"Whether nodes fail independently cannot be tested: {need}."
        numbers = f"{test.method}, statistic {test.statistic:.1f}, p = {test.p_value:.2g}"
        if test.between == "nodes":
            return self._between_nodes(test, numbers)
        if test.p_value >= 0.05:
            return f"One failure rate per node-day fits all job sizes ({numbers})."
        ran = [bucket for bucket in self.buckets_ if bucket.rate_per_1000_node_days is not None]
        ran.sort(key=lambda bucket: bucket.rate_per_1000_node_days or 0.0)
        least = ran[0]
        most = ran[-1]
        return (
            f'"Independent nodes in series" does not hold ({numbers}): jobs of {_size(most)} fail '
            f"{brief(most.rate_per_1000_node_days)} times per 1,000 node-days, those of {_size(least)} "
            f"{brief(least.rate_per_1000_node_days)} times. Use the rate of the size in question; the "
            "1/N line from another size misleads."
        )

    def _between_nodes(self, test: Dispersion, numbers: str) -> str:
        index = f"the variance of their failures is {brief(test.variance_over_mean)} times the mean"
        if test.p_value is not None and test.p_value < 0.05:
            return (
                f"Nodes do not fail alike: {index} ({numbers}). The interval takes each node's failures "
                "as one event, and the rate of an average node is that of few."
            )
        return f"No sign that some nodes fail more than others: {index} ({numbers})."

    def to_dict(self, project: Sequence[int] = (), gpus_per_node: int = 8) -> dict[str, Any]:
        """The JSON of ``holdfast fleet mttf``; bounds that do not exist are null."""
        hours = [(gpus, *self.mttf_hours(gpus, gpus_per_node)) for gpus in project]
        projections = [{"gpus": n, "mttf_hours": v, "ci95": [*ends]} for n, v, *ends in hours]
        test = self.dispersion_ or Dispersion(None, None, 0, "none: no buckets")
        return {
            **{name: plain(getattr(self, f"{name}_")) for name in FITTED},
            "buckets": [plain(bucket) for bucket in self.buckets_],
            "dispersion": plain(test),
            "independence": self.independence_,
            "projections": projections,
        }


def dispersion_test(
    failures: npt.ArrayLike, exposure: npt.ArrayLike, clusters: npt.ArrayLike | None = None
) -> Dispersion:
    """Test that counts follow their exposure: X^2 = sum (O - E)^2 / E with E = total * share.

    Given their total, Poisson counts of one common rate are multinomial with the shares of the
    exposure. X^2 is then chi-square with k - 1 degrees of freedom if every E is at least 5; else its
    p-value is (1 + #{X^2 simulated >= X^2}) / (1 + tables) over multinomial tables (fixed seed). What
    comes in clusters falls together: the tables deal out clusters, and the chi-square is that of X^2
    over sum w^2 / sum w (quasi-Poisson).

    Args:
        failures: counts, shape (k,).
        exposure: in any unit, shape (k,); entries without exposure are left out.
        clusters: failures of each independent event, w, shape (n,); None: each is one.
    """
    counts, days = checked_counts(failures, exposure)
    counts, days = counts[days > 0], days[days > 0]
    total = counts.sum()
    freedom = max(int(counts.size) - 1, 0)
    if not freedom or total == 0:
        return Dispersion(None, None, freedom, "none: too little data")
    weights = np.ones(int(total)) if clusters is None else np.asarray(clusters, np.float64)
    share = days / days.sum()
    expected = total * share
    statistic = float(((counts - expected) ** 2 / expected).sum())
    index = statistic / freedom
    scale = float((weights**2).sum() / weights.sum())
    if expected.min() >= SMALL_EXPECTED_COUNT * scale:
        from scipy.special import chdtrc

        p_value = float(chdtrc(freedom, statistic / scale))
        return Dispersion(statistic, p_value, freedom, "chi-square", index)
    rng = np.random.default_rng(SEED)
    tables = min(max(MOST_CELLS // counts.size, FEWEST_TABLES), MONTE_CARLO_TABLES)
    sizes, of_size = np.unique(weights, return_counts=True)
    as_extreme = 0
    for left in range(tables, 0, -1000):  # a few at a time: there may be many nodes
        dealt = np.zeros((min(left, 1000), counts.size))
        for size, count in zip(sizes, of_size, strict=True):
            dealt += size * rng.multinomial(int(count), share, size=len(dealt))
        simulated = ((dealt - expected) ** 2 / expected).sum(axis=1)
        as_extreme += int((simulated >= statistic * (1 - 1e-9)).sum())
    p_value = (1 + as_extreme) / (1 + tables)
    return Dispersion(statistic, p_value, freedom, "Monte Carlo multinomial", index)


def checked_counts(
    failures: npt.ArrayLike, exposure: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Counts and exposures as float arrays of one length; InputError where they make no sense."""
    counts = np.asarray(failures, dtype=np.float64)
    days = np.asarray(exposure, dtype=np.float64)
    if counts.shape != days.shape or counts.ndim != 1:
        raise InputError("failures and exposure differ in length", code="conflict")
    whole = np.isfinite(counts) & (counts >= 0) & (counts == np.floor(counts))
    for good, problem in (
        (whole, "a count of failures is not a whole number"),
        (np.isfinite(days) & (days >= 0), "an exposure is not a finite number, zero or more"),
        ((days > 0) | (counts == 0), "failures without exposure: a failed attempt has node-days"),
    ):
        if not good.all():
            raise InputError(
                problem,
                code="invalid-value",
                found=f"{counts[~good][0]:g} failures in {days[~good][0]:g} node-days",
            )
    return counts, days


def _size(bucket: RateBucket) -> str:
    if bucket.gpus_max is None:
        return f"{bucket.gpus_min:,} GPUs and more"
    if bucket.gpus_max == bucket.gpus_min:
        return f"{bucket.gpus_min:,} GPU" + ("s" if bucket.gpus_min != 1 else "")
    return f"{bucket.gpus_min:,}-{bucket.gpus_max:,} GPUs"
