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

False discoveries and the shrinkage of rates are in `holdfast.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from holdfast.stats import FloatArray


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
    def from_rows(
        cls,
        nodes: Sequence[str],
        *,
        kinds: npt.ArrayLike | None = None,
        node: npt.ArrayLike,
        size: npt.ArrayLike,
        node_days: npt.ArrayLike,
        attempt_days: npt.ArrayLike | None = None,
        failure_node: npt.ArrayLike = (),
        failure_size: npt.ArrayLike,
        failure_blame: npt.ArrayLike,
        failure_known: npt.ArrayLike,
    ) -> Self:
        """Collect long tables into classes of size 1, 2-3, 4-7, 8-15 ... of each kind.

        A class with failures but no time (its attempts failed at once) joins the next smaller class
        that ran, else the next larger: a larger jump is conservative.

        Args:
            nodes: names, in the order of the detector's, shape (n,).
            kinds: a number for each kind, shape (n,); None: all nodes are of one.
            node: of each row of exposure, shape (m,), all in `nodes`.
            size: nodes of the attempts of that row, shape (m,).
            node_days: that the node spent in them, shape (m,).
            attempt_days: the same where overlapping attempts count each, shape (m,).
            failure_node: whom each row of blame blames, shape (f,); needed if there are several kinds.
            failure_size: nodes of the failed attempt, of each row of blame, shape (f,).
            failure_blame: what the row adds to one node's blame, shape (f,).
            failure_known: whether it is a whole failure known to be the node's, shape (f,).
        """
        at = {name: i for i, name in enumerate(nodes)}
        row, blamed = (
            np.array([at[name] for name in np.asarray(each, dtype=object)], dtype=np.int64)
            for each in (node, failure_node)
        )
        # 1. The class of size of each row of exposure [m] and of blame [f]; kinds follow each other.
        column = _size_class(size)
        failed = _size_class(failure_size)
        sizes = 2 ** np.arange(int(max(column.max(initial=0), failed.max(initial=0))) + 1)
        if kinds is not None:
            of_kinds, kind = np.unique(kinds, return_inverse=True)
            column += sizes.size * kind[row]
            failed += sizes.size * kind[blamed]
            sizes = np.tile(sizes, of_kinds.size)
        classes = sizes.size
        # 2. Days of each node in each class, [n, k]; failures of each class, [k].
        days, each = np.zeros((2, len(at), classes))
        np.add.at(days, (row, column), np.asarray(node_days, dtype=np.float64))
        if attempt_days is not None:
            np.add.at(each, (row, column), np.asarray(attempt_days, dtype=np.float64))
        blame = np.asarray(failure_blame, np.float64)
        whole = np.asarray(failure_known, dtype=bool)
        known = np.zeros(classes)
        shared = np.zeros(classes)
        np.add.at(known, failed[whole], blame[whole])
        np.add.at(shared, failed[~whole], blame[~whole])
        # 3. Failures of a class without time join a class that ran, so that no failure is left out.
        ran = days.sum(axis=0) > 0
        for empty in np.flatnonzero(~ran & (known + shared > 0)):
            homes = np.flatnonzero(ran & ((sizes > 1) | (shared[empty] == 0)))
            if homes.size:
                below = homes[homes < empty]
                home = below[-1] if below.size else homes[0]
                known[home], known[empty] = known[home] + known[empty], 0.0
                shared[home], shared[empty] = shared[home] + shared[empty], 0.0
        return cls(sizes, days, known, shared, None if attempt_days is None else each)

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


def split_p_values(
    blame: FloatArray, known_failures: FloatArray, exposure: BlameExposure
) -> FloatArray:
    """Upper-tail p-values of known plus shared blame, shape (n,).

    Args:
        blame: 1 per known failure, 1/c per other failure of a c-node attempt, shape (n,).
        known_failures: the whole part of it with blame 1, shape (n,).
        exposure: by size of attempt.
    """
    from scipy.special import gammaln, xlog1py, xlogy

    # P(blame >= observed) = sum over how many of the known failures fall on the node: the equation on top.
    total = float(known_failures.sum())
    shares = exposure.shares
    share = shares @ exposure.known_failures / max(total, 1.0)
    jump = 1 / exposure.sizes
    jumps = shares * (exposure.shared_failures * exposure.sizes)
    p_value = _binomial_tail(np.ceil(blame - 1e-9), total, share)
    for j in range(math.ceil(float(blame.max(initial=0.0)))):
        if j > total:
            break
        ways = float(gammaln(total + 1) - gammaln(j + 1) - gammaln(total - j + 1))
        log_pmf = ways + xlogy(j, share) + xlog1py(total - j, -share)
        left = blame - j
        open_ = left > 1e-9
        log_bound = np.zeros(blame.shape)
        log_bound[open_] = _log_chernoff(left[open_], jumps[open_], jump)
        p_value += np.where(open_, np.exp(log_pmf + log_bound), 0.0)
    return np.minimum(p_value, 1.0)


def _size_class(size: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """0 for 1 node, 1 for 2-3, 2 for 4-7 ..."""
    return np.asarray(np.frexp(np.asarray(size, dtype=np.float64))[1] - 1, dtype=np.int64)


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
