"""The statistics behind lemon nodes: tests that know the exposure.

**The null.** Every node has the same hazard. A failure of an n-node attempt whose bad node is known
blames it with 1, else each of the n nodes with 1/n. That is the score: the log-likelihood's derivative
by the hazard of a node is its blame minus its expected blame, so near the null no statistic has more
power. The p-value of blame B adds two independent parts.

- Known blame M: a failure of an attempt of c nodes falls on node i with its share of the node-days in
  such attempts. Given the fleet's counts, M is a sum of independent indicators, with a tail at most
  that of the binomial with their mean probability (Hoeffding 1956); exact where shares are equal. No
  estimated rate enters: for one size it is the exact test of one Poisson mean against the rest of the
  fleet (Przyborowski and Wilenski 1940).
- Shared blame D: attempts of c nodes give a jump of 1/c, on average L_c = (their failures) * c * (the
  node's share of the node-days in them) times. Chernoff's bound for this compound Poisson sum is
  P(D >= x) <= exp(min over s >= 0 of sum_c L_c (e^{s/c} - 1) - s x).

So p = sum over j < B of P(M = j) bound(D >= B - j), plus P(M >= B): never too small for a node's hazard,
and exact when all blame is known and of one size. A failure rate that differs between job sizes is no
sign of a lemon and does not become one, as each size is held against its own exposure.

**Without that detail**, B with share p of the fleet's n failures is held against I_p(B, n - B + 1), the
binomial tail continued to fractions. It takes every term of the blame as 1, the largest variance there
is; this is the gamma method of Fay and Feuer (1997), conservative for fractions.

**Rates** are shrunk to those of the fleet by a gamma prior (empirical Bayes), fitted to all nodes. False
discoveries are in `holdfast.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from holdfast.stats import FloatArray, poisson_interval

LEAST_LOG = -745.0  # The exponential of less is zero
NO_SPREAD = (
    1e4  # A Gamma shape beyond it (rates within 1 % of each other) is called one common rate
)


def blame_p_values(blame: FloatArray, node_days: FloatArray) -> FloatArray:
    """Upper-tail p-values of blame by its share of the node-days alone: I_p(B, n - B + 1), shape (n,).

    For whole B the exact binomial tail; between whole numbers its continuation, conservative.
    """
    total = float(blame.sum())
    days = float(node_days.sum())
    if total == 0 or days == 0:
        return np.ones(blame.shape)
    return _binomial_tail(blame, total, node_days / days)


@dataclass(frozen=True)
class BlameExposure:
    """Where blame could have come from, by size of attempt, and by kind of node.

    Nodes of another kind may fail at another rate, so no blame of one falls on the other: each kind has
    sizes of its own. Sizes may be classes.
    """

    # Nodes of an attempt, shape (k,); of a class the smallest, which keeps the test conservative.
    sizes: npt.NDArray[np.int64]
    node_days: FloatArray  # Node-days of each node in attempts of each size, shape (n, k)
    # The fleet's failures whose node is known (every one of size 1), shape (k,).
    known_failures: FloatArray
    shared_failures: FloatArray  # The fleet's other failures, shape (k,)
    # Where attempts share nodes, days that count each attempt, shape (n, k); else as `node_days`
    attempt_days: FloatArray | None = None

    @classmethod
    def of_classes(
        cls,
        sizes: npt.NDArray[np.int64],
        days: Sequence[FloatArray],
        sure: FloatArray,
        shared: FloatArray,
    ) -> Self:
        """From `node_days`, and `attempt_days` or nothing, and failures of each class, shape (k,).

        A class with failures but no time (its attempts failed at once) joins the next smaller class
        that ran, else the next larger: a larger jump is conservative.
        """
        ran = days[0].sum(axis=0) > 0
        for empty in np.flatnonzero(~ran & (sure + shared > 0)):
            homes = np.flatnonzero(ran & ((sizes > 1) | (shared[empty] == 0)))
            if homes.size:
                below = homes[homes < empty]
                home = below[-1] if below.size else homes[0]
                for each in (sure, shared):
                    each[home], each[empty] = each[home] + each[empty], 0.0
        return cls(sizes, days[0], sure, shared, *days[1:])

    def scale_of(self, nodes: npt.NDArray[np.bool_]) -> float:
        """`blame_scale` of the sizes in which some nodes ran."""
        ran = self.node_days[nodes].any(axis=0)
        known, shared = self.known_failures[ran], self.shared_failures[ran]
        own = replace(self, sizes=self.sizes[ran], known_failures=known, shared_failures=shared)
        return own.blame_scale

    @property
    def blame_scale(self) -> float:
        """Sum of blame^2 / sum of blame: the variance of a node's blame over its mean.

        1 where every failure has a known node. Shared blame comes in small parts, so it scatters less
        than a count of the same size; divided by the scale it scatters like one (quasi-Poisson).
        """
        total = float(self.known_failures.sum() + self.shared_failures.sum())
        squares = float(self.known_failures.sum() + (self.shared_failures / self.sizes).sum())
        return squares / total if total > 0 else 1.0

    @property
    def shares(self) -> FloatArray:
        """Each node's share of the node-days of each size, shape (n, k).

        Failures of nodes follow the time in use, those of jobs the time of each job. Where jobs share
        nodes the two differ; a mixture of both lies between, and the larger keeps the test valid.
        """
        shares = np.zeros(self.node_days.shape)
        for days in (self.node_days, self.attempt_days):
            if days is not None:
                total = days.sum(axis=0)
                shares = np.maximum(shares, days / np.where(total > 0, total, 1.0))
        return shares


@dataclass(frozen=True)
class Evidence:
    """Failures and whom they blame, beside the exposure, by class of size: 1, 2-3, 4-7, 8-15 ... nodes.

    Each kind of node has classes of its own.
    """

    sizes: npt.NDArray[np.int64]  # Of the classes, shape (k,)
    cells: npt.NDArray[np.int64]  # Of the rows of exposure: node * k + class
    days: Sequence[FloatArray]  # `BlameExposure.node_days`, and `attempt_days` or nothing
    # Columns of the rows of blame, shape (f,): failure, node, class, what it adds to the node's blame, and
    # that again if the failure is known to be the node's, else 0
    rows: Sequence[npt.NDArray[Any]]

    @classmethod
    def from_rows(
        cls, kinds: npt.ArrayLike, used: Sequence[npt.ArrayLike], blamed: Sequence[npt.ArrayLike]
    ) -> Self:
        """Sort long tables into classes. Nodes are named by their places, 0 .. n - 1.

        Args:
            kinds: a number for each kind of node, shape (n,).
            used: columns of exposure, shape (m,): node, nodes of the attempts, `days`.
            blamed: columns, shape (f,): failure, node, nodes of the attempt, blame, whether it is known.
        """
        place, size, *days = map(np.asarray, used)
        failure, node, failed, blame, known = map(np.asarray, blamed)
        of_kinds, kind = np.unique(kinds, return_inverse=True)
        powers = [np.frexp(each.astype(np.float64))[1] - 1 for each in (size, failed)]
        count = 1 + max(int(each.max(initial=0)) for each in powers)
        column, classes = (
            each + count * kind[of] for of, each in zip((place, node), powers, strict=True)
        )
        sizes = np.tile(2 ** np.arange(count), of_kinds.size)
        cells = place * sizes.size + column
        shaped = [summed(cells, each, (len(kind), sizes.size)) for each in days]
        return cls(sizes, cells, shaped, [failure, node, classes, blame, blame * known])

    def first(self, rows: int, days: FloatArray) -> Self:
        """The first rows of blame, beside other days."""
        return replace(self, days=[days], rows=[each[:rows] for each in self.rows])

    def _sums(self, chosen: Any = slice(None)) -> list[FloatArray]:
        """Of some rows: blame of each node and the known part of it, that of each class and the rest."""
        _, place, classes, blame, known = (each[chosen] for each in self.rows)
        of_nodes = [summed(place, each, (len(self.days[0]),)) for each in (blame, known)]
        parts = (known, blame - known)
        return of_nodes + [summed(classes, each, self.sizes.shape) for each in parts]

    @cached_property
    def sums(self) -> list[FloatArray]:
        """Blame of each node and the known part of it, shape (n,); known and shared by class, (k,)."""
        return self._sums()

    @cached_property
    def exposure(self) -> BlameExposure:
        """Node-days and failures by size of attempt."""
        return BlameExposure.of_classes(self.sizes, self.days, *self.sums[2:])

    def p_values_without(self, place: int, suspects: Sequence[int]) -> dict[int, float]:
        """Of the suspects that share failures with a node, on the failures that do not blame it."""
        failure, places = self.rows[:2]
        named = np.zeros(failure.max(initial=0) + 1, bool)
        named[failure[places == place]] = True
        mine = np.flatnonzero(named[failure])
        blamed = {*places[mine].tolist()} - {place}
        sharing = [each for each in suspects if each in blamed]
        if not sharing:
            return {}
        left = [of - part for of, part in zip(self.sums, self._sums(mine), strict=True)]
        exposure = BlameExposure.of_classes(self.sizes, self.days, *left[2:])
        p_values = split_p_values(left[0], left[1], exposure, sharing)
        return dict(zip(sharing, p_values.tolist(), strict=True))


def split_p_values(
    blame: FloatArray,
    known_failures: FloatArray,
    exposure: BlameExposure,
    rows: slice | Sequence[int] = slice(None),
) -> FloatArray:
    """Upper-tail p-values of known plus shared blame, shape (n,).

    Args:
        blame: 1 per known failure, 1/c per other failure of a c-node attempt, shape (n,).
        known_failures: the whole part of it with blame 1, shape (n,).
        exposure: by size of attempt.
        rows: places of the nodes to test; all of them by default.
    """
    from scipy.special import gammaln, xlog1py, xlogy

    # P(blame >= observed) = sum over how many of the known failures fall on the node: the equation on top.
    total = float(known_failures.sum())
    shares, blame = exposure.shares[rows], blame[rows]
    share = shares @ exposure.known_failures / max(total, 1.0)
    jump = 1 / exposure.sizes
    jumps = shares * (exposure.shared_failures * exposure.sizes)
    p_value = _binomial_tail(np.ceil(blame - 1e-9), total, share)
    # A row for each node and each part of its blame that may be known, j = 0 .. B - 1
    parts = np.minimum(np.ceil(blame), total + 1).astype(np.int64)
    at = np.repeat(np.arange(blame.size), parts)
    j = np.arange(at.size) - np.repeat(parts.cumsum() - parts, parts)
    ways = gammaln(total + 1) - gammaln(j + 1) - gammaln(total - j + 1)
    log_pmf = ways + xlogy(j, share[at]) + xlog1py(total - j, -share[at])
    left = blame[at] - j
    counts = (left > 1e-9) & (log_pmf > LEAST_LOG)
    at = at[counts]
    log_p = log_pmf[counts] + _log_chernoff(left[counts], jumps[at], jump)
    return np.minimum(p_value + np.bincount(at, np.exp(log_p), blame.size), 1.0)


def summed(at: npt.ArrayLike, weights: npt.ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Sums of weights by place, in an array of some shape."""
    sums = np.asarray(np.bincount(at, weights, math.prod(shape)), np.float64)
    return sums.reshape(shape)


def _binomial_tail(count: FloatArray, total: float, share: FloatArray) -> FloatArray:
    """P(Binomial(total, share) >= count), continued to fractions; 1 at 0, 0 above the total."""
    from scipy.special import betainc

    inside = (count > 0) & (count <= total * (1 + 1e-12))
    left = np.where(inside, np.maximum(total - count, 0.0), 0.0)
    tail = betainc(np.where(inside, count, 1.0), left + 1, share)
    return np.where(inside, tail, np.where(count > 0, 0.0, 1.0))


def _log_chernoff(at_least: FloatArray, jumps: FloatArray, jump: FloatArray) -> FloatArray:
    """Log of Chernoff's bound on P(D >= at_least), D with Poisson(jumps) many jumps of each height.

    Args:
        at_least: shape (m,), above zero.
        jumps: mean number of each, shape (m, k).
        jump: heights, shape (k,).
    """
    mean = jumps @ jump
    possible = (mean > 0) & (at_least > mean)
    safe = np.where(mean > 0, mean, 1.0)
    steepest = float(jump.max(initial=0.0))
    # The best s solves log sum_c L_c h_c e^{s h_c} = log x. It lies right of this start, Newton's
    # method jumps past it and comes back; any s >= 0 gives a valid bound, the best one the sharpest.
    s = np.where(possible, np.log(np.where(possible, at_least, safe) / safe), 0.0) / steepest
    for _ in range(10):
        terms = jumps * jump * np.exp(np.outer(s, jump))
        slope = terms.sum(axis=1)
        safe_slope = np.where(possible, slope, 1.0)
        relative = np.where(possible, (terms @ jump) / safe_slope, 1.0)
        step = np.where(possible, np.log(safe_slope / at_least) / relative, 0.0)
        s = np.clip(s - step, 0.0, 500.0 / steepest)
    exponent = (jumps * np.expm1(np.outer(s, jump))).sum(axis=1) - s * at_least
    return np.where(possible, np.minimum(exponent, 0.0), np.where(mean > 0, 0.0, -np.inf))


# --- Shrinkage of rates --------------------------------------------------------------------------


def gamma_prior(counts: FloatArray, exposure: FloatArray) -> tuple[float, float] | None:
    """Gamma(a, b) of units' rates by maximum marginal likelihood; None if they do not differ.

    The marginal of count B in exposure T is
    Gamma(a + B) / Gamma(a) * b^a T^B / (b + T)^(a + B) up to a constant (negative binomial). For a
    given a the best b is the root of sum (aT - bB) / (b + T), which decreases in b.

    Args:
        counts: of each unit, shape (n,); parts of events may be counted.
        exposure: of each unit, shape (n,); those without any are left out.
    """
    from scipy.special import gammaln

    used = exposure > 0
    count, days = counts[used], exposure[used]
    if count.sum() == 0 or count.size < 2:
        return None

    ratio = days.sum() / count.sum()  # b / a, where the search for the next b begins

    def best_b(a: float) -> float:
        # The sum is convex too, so Newton's method from the left of the root converges upwards; a
        # step from the right may fall below zero and is cut short.
        nonlocal ratio
        b = a * ratio
        for _ in range(100):
            value = ((a * days - b * count) / (b + days)).sum()
            slope = -(days * (count + a) / (b + days) ** 2).sum()
            following = max(b - value / slope, b / 10)
            if abs(following - b) <= 1e-12 * b:
                break
            b = following
        ratio = b / a
        return float(b)

    @cache  # each step of the search has one point of the last
    def likelihood(log_a: float) -> float:
        a = math.exp(log_a)
        b = best_b(a)
        # T^B is constant in (a, b); b^a / (b + T)^a through log1p, which large a needs
        terms = gammaln(a + count) - gammaln(a) - count * np.log(b + days)
        return float((terms - a * np.log1p(days / b)).sum())

    grid = np.linspace(math.log(1e-4), math.log(10 * NO_SPREAD), 42)
    top = int(np.argmax([*map(likelihood, grid)]))
    low, high = grid[max(top - 1, 0)], grid[min(top + 1, grid.size - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        step = golden * (high - low)
        left, right = high - step, low + step
        if likelihood(round(left, 12)) > likelihood(round(right, 12)):
            high = right
        else:
            low = left
    a = math.exp((low + high) / 2)
    return None if a > NO_SPREAD else (a, best_b(a))


def shrink(
    counts: FloatArray, exposure: FloatArray, prior: tuple[float, float] | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean and 95 % credible interval of each unit's rate, each shape (n,).

    Gamma(a + B, b + T) has the mean (a + B) / (b + T). Without a prior every unit has the common
    rate, with its exact interval.

    Args:
        counts: of each unit, shape (n,).
        exposure: of each unit, shape (n,).
        prior: (a, b) as `gamma_prior` fits it.
    """
    if prior is None:
        total, days = float(counts.sum()), float(exposure.sum())
        rate = total / days if days > 0 else 0.0
        low, high = poisson_interval(total, days) if days > 0 else (0.0, 0.0)
        one = np.ones(counts.shape)
        return rate * one, low * one, high * one
    from scipy.special import gammaincinv

    a, b = prior
    shape, inverse_scale = a + counts, b + exposure
    low_tail, high_tail = (
        np.asarray(gammaincinv(shape, tail) / inverse_scale) for tail in (0.025, 0.975)
    )
    return shape / inverse_scale, low_tail, high_tail
