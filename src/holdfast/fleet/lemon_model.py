"""Which nodes to pull, on what evidence, and what it gains.

Two answers, kept apart. The rule of Kokolis et al. (arXiv 2410.21680v2): a node is a lemon if enough of
seven signals exceed a quantile of the fleet. And a test that knows the exposure, with shrunk rates:
see `lemon_statistics`, which has the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.lemon_statistics import (
    BlameExposure,
    FloatArray,
    blame_p_values,
    gamma_prior,
    shrink,
    split_p_values,
)
from holdfast.fleet.node_signals import SIGNALS
from holdfast.stats import benjamini_hochberg

DAYS_PER_MONTH = 30.0
FOUND = ("lemons", "not_separable", "rule_lemons", "missing_signals")
# The paper does not print its thresholds: a lemon exceeds this quantile of the fleet in so many signals.
QUANTILE = 0.99
SIGNALS_NEEDED = 2
LEAST_BLAME = 0.5  # Of a kind of nodes without a failure: their rate is low, not zero


class LemonDetector:
    """Finds the nodes that fail more than their share, and says what pulling each would gain.

    Args:
        alpha: false discovery rate of `lemons_`.

    Attributes:
        nodes_: one row per node, highest shrunk rate first. Columns: node, kind, node_days,
            failures (blame), expected_failures, p_value, q_value, shrunk_rate,
            shrunk_rate_low, shrunk_rate_high (95 % credible), raw_rate and usual_rate (of all nodes of
            its kind), all rates per 1,000 node-days,
            failures_avoided_per_month (by running its work on average nodes of its kind),
            fleet_rate_change (of all clusters, relative, negative is better), rule_signals (signals above
            threshold), and the signals given.
        lemons_: names of nodes with q < alpha, in the order of `nodes_`, without the confounded and
            without those that one job alone blames.
        not_separable_: groups of nodes with q < alpha that failed in the same attempts. At least one
            node of each is not in `lemons_`: its failures without one of the others are no more than
            chance explains (p >= alpha).
        rule_lemons_: names of nodes that meet the rule, in the order of `nodes_`.
        fleet_rate_per_1000_node_days_: blame over node-days of all nodes.
        priors_: (a, b) of the Gamma prior of blame and node-days over `BlameExposure.blame_scale`, of
            each cluster; None where the nodes do not differ.
        thresholds_: value that each given signal must exceed.
        missing_signals_: signals of the rule that were not given.
    """

    def __init__(self, alpha: float = 0.05) -> None:
        if not 0 < alpha < 1:
            raise InputError(
                "alpha is not a false discovery rate", code="invalid-value", found=repr(alpha)
            )
        self.alpha = alpha

    def fit(
        self,
        nodes: Sequence[str],
        node_days: npt.ArrayLike,
        failures: npt.ArrayLike,
        *,
        known_failures: npt.ArrayLike | None = None,
        exposure: BlameExposure | None = None,
        kinds: npt.ArrayLike | None = None,
        jobs: npt.ArrayLike | None = None,
        signals: Mapping[str, npt.ArrayLike] | None = None,
        p_values_without: Callable[[int, Sequence[int]], Mapping[int, float]] | None = None,
        window_days: npt.ArrayLike = 28.0,
        clusters: Sequence[str] | None = None,
    ) -> Self:
        """Test, shrink and rank the nodes. All arrays are parallel to `nodes`, shape (n,).

        With `known_failures` and `exposure`, blame that is shared in large jobs is tested by its own
        small variance and each job size against its own failure rate. Without them the test takes
        one rate for all sizes and sees little in shared blame.

        Args:
            nodes: names, each once.
            node_days: sum over the node's attempts of their duration in days.
            failures: blame: 1 for each failure known to be this node's (also any failure of an
                attempt on this node alone), 1/n for each other failure of an n-node attempt.
            known_failures: how many of them have blame 1.
            exposure: node-days and failures by size of attempt.
            kinds: a number for each kind of node, such as its GPUs: nodes are held against their like.
            jobs: different jobs among them: one may fail by itself, on whatever node. Not given: each
                failure is of another.
            signals: any of the seven `SIGNALS`.
            p_values_without: the p-values of those of some nodes (places) that share failures with a
                node (place), on the failures that do not blame it: `Evidence.p_values_without`. Without
                it, nodes that always run together are blamed together.
            window_days: days that the data span, of all nodes or of each.
            clusters: that of each node: rates, and what a pull avoids, are those beside its own nodes.
                Not given: all are of one.

        Raises:
            InputError: columns that differ in length, negative values, blame without node-days.
        """
        names = np.asarray(nodes, dtype=object)
        days = _column("node_days", node_days, names.size)
        blame = _column("failures", failures, names.size)
        if (blame[days == 0] > 0).any():
            raise InputError(
                "a node has failures but no node-days",
                code="invalid-value",
                found=str(names[(days == 0) & (blame > 0)][0]),
                remedy="take failures and node-days from the same attempts",
            )
        # 1. Test: is the blame of a node more than its share of the exposure explains? p-values, [n].
        if known_failures is None or exposure is None:
            p_value = blame_p_values(blame, days)
            expected = float(blame.sum()) * days / max(float(days.sum()), 1e-300)
        else:
            known = _column("known_failures", known_failures, names.size)
            p_value = split_p_values(blame, known, exposure)
            expected = exposure.shares @ (exposure.known_failures + exposure.shared_failures)
        total_days = float(days.sum())
        self.fleet_rate_per_1000_node_days_ = (
            1000 * float(blame.sum()) / total_days if total_days else 0.0
        )
        # 2. Rates, and what pulling each node would avoid: in each cluster by itself.
        of_kind = np.ones(names.size) if kinds is None else _column("kinds", kinds, names.size)
        own = np.array(clusters or [""] * names.size)
        usual, shrunk, low, high, avoided = np.zeros((5, names.size))
        self.priors_ = []
        for mine in (own == each for each in np.unique(own)):
            scale = 1.0 if exposure is None else exposure.scale_of(mine)
            rates, prior = _rates(days[mine], blame[mine], of_kind[mine], scale)
            usual[mine], shrunk[mine], low[mine], high[mine], avoided[mine] = rates
            self.priors_.append(prior)
        # 3. Many nodes are tested: false discoveries are held at alpha.
        q_value = np.ones(days.shape)
        q_value[days > 0] = benjamini_hochberg(p_value[days > 0])
        # 4. The rule of the paper, beside the test: signals above the quantile of the fleet, [n].
        above, self.thresholds_, self.missing_signals_ = self._signals_above(signals, names.size)
        table = {
            "node": names.astype(str),
            "kind": of_kind,
            "node_days": days,
            "failures": blame,
            "expected_failures": expected,
            "p_value": p_value,
            "q_value": q_value,
            "shrunk_rate": shrunk,
            "shrunk_rate_low": low,
            "shrunk_rate_high": high,
            "usual_rate": usual,
            "raw_rate": 1000 * np.divide(blame, days, out=np.zeros(days.shape), where=days > 0),
            "failures_avoided_per_month": avoided * DAYS_PER_MONTH / np.asarray(window_days),
            "fleet_rate_change": -avoided / (float(blame.sum()) or 1.0),
            "rule_signals": above,
        }
        for name, values in (signals or {}).items():
            table[name] = _column(name, values, names.size)
        # Ties in the shrunk rate (all of it, where nodes do not differ) go to the smaller p-value.
        order = np.lexsort((names.astype(str), p_value, -shrunk))
        self.nodes_ = pa.table(table).take(pa.array(order))
        # 5. Verdicts. A job that fails alone on one node may be the reason, and nodes that failed together
        # only may cover for each other: neither is named.
        lemon = q_value < self.alpha
        if jobs is not None:
            lemon &= _column("jobs", jobs, names.size) > 1
        by_rule = (above >= SIGNALS_NEEDED)[order]
        suspects = order[lemon[order]].tolist()
        others = self._confounded(suspects, p_values_without)
        self.lemons_ = [names[place] for place in suspects if place not in others]
        groups = {tuple(sorted(names[[place, *shared]])) for place, shared in others.items()}
        self.not_separable_ = [list(group) for group in sorted(groups)]
        self.rule_lemons_ = names[order][by_rule].tolist()
        return self

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet lemons``."""
        details = {*SIGNALS, "expected_failures", "p_value"}
        inner = {*details, "raw_rate", "usual_rate", "kind", "rule_signals"}
        plain = set(self.nodes_.column_names) - inner
        rows = [[*row.items()] for row in self.nodes_.to_pylist()]
        return {
            **{name: getattr(self, f"{name}_") for name in FOUND},
            "alpha": self.alpha,
            "fleet_rate_per_1000_node_days": self.fleet_rate_per_1000_node_days_,
            "nodes": [
                {
                    **{name: value for name, value in row if name in plain},
                    "evidence": {name: value for name, value in row if name in details},
                }
                for row in rows
            ],
        }

    def _confounded(
        self,
        suspects: list[int],
        p_values_without: Callable[[int, Sequence[int]], Mapping[int, float]] | None,
    ) -> dict[int, list[int]]:
        """The suspects that only failures shared with other suspects make suspect, with those others.

        Failures of others, left out, leave a p-value where it is or lower it.
        """
        if p_values_without is None:
            return {}
        left = {other: p_values_without(other, suspects) for other in suspects}
        shared = {
            place: [other for other in suspects if left[other].get(place, 0.0) >= self.alpha]
            for place in suspects
        }
        return {place: others for place, others in shared.items() if others}

    def _signals_above(
        self, signals: Mapping[str, npt.ArrayLike] | None, count: int
    ) -> tuple[npt.NDArray[np.int64], dict[str, float], list[str]]:
        """Signals above threshold per node, the thresholds, and the rule's signals not given."""
        given = signals or {}
        above = np.zeros(count, dtype=np.int64)
        thresholds = {}
        for name in SIGNALS:
            if name in given and count:
                values = _column(name, given[name], count)
                # A measured value, not one between two: a signal that is 0 almost everywhere has
                # the threshold 0, and a node must exceed it.
                thresholds[name] = float(np.quantile(values, QUANTILE, method="lower"))
                above += values > thresholds[name]
        missing = [name for name in SIGNALS if name not in given]
        return above, thresholds, missing


def _rates(
    days: FloatArray, blame: FloatArray, kinds: FloatArray, scale: float
) -> tuple[FloatArray, tuple[float, float] | None]:
    """Of the nodes of one cluster: usual and shrunk rates with ends, failures avoided; and the prior."""
    total_days = float(days.sum())
    fleet = float(blame.sum()) / total_days if total_days > 0 else 0.0
    # 1. Exposure in days of a usual node, then blame shrunk to the fleet by a gamma prior, [n].
    # A day of a node whose kind fails twice as often as the fleet counts as two.
    usual = np.ones(days.size)
    for kind in np.unique(kinds):
        mine = kinds == kind
        if fleet and (used := float(days[mine].sum())):
            usual[mine] = (float(blame[mine].sum()) or LEAST_BLAME) / used / fleet
    exposure_days = days * usual
    prior = gamma_prior(blame / scale, exposure_days / scale)
    rates = shrink(blame / scale, exposure_days / scale, prior)
    # 2. Pulling a node hands its work to the others, which fail at their own shrunk rate.
    failing = rates[0] * exposure_days  # failures over the window
    left_days = exposure_days.sum() - exposure_days
    left = failing.sum() - failing
    others = np.where(left_days > 0, left / np.where(left_days > 0, left_days, 1.0), fleet)
    shrunk = [1000 * usual * rate for rate in rates]
    return np.array([1000 * fleet * usual, *shrunk, failing - others * exposure_days]), prior


def _column(name: str, values: npt.ArrayLike, count: int) -> FloatArray:
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (count,):
        raise InputError(f"{name} does not fit the {count} nodes", code="conflict")
    if not (np.isfinite(column).all() and (column >= 0).all()):
        raise InputError(f"{name} is missing or negative for a node", code="invalid-value")
    return column
