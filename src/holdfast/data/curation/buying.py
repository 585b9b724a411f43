"""What to buy: plans from summaries alone, within a budget.

The buyer will train a logistic regression on what is bought. Where few rows have many columns it is nearly
a ridge regression; its weights follow from the means, variances and label covariances c of the mixture
that is bought, in the principal axes of the buyer's rows:

    w = c / (variance + k),   k = ridge / N + k / N sum_j variance_j / (variance_j + k)

k is the effective ridge of N rows (Hastie et al., "Surprises in high-dimensional ridgeless least squares",
2022). The accuracy is that of two normal classes with the means and the spread that w'z has on the buyer's
rows, and the noise of a sample of a seller's rows, which is none where all are bought. Plans are compared
with more noise, because the highest of many forecasts is too high.

A plan is made on one half of the buyer's rows; what it is expected to score is forecast on the other.

Sellers may claim what their rows do not hold. The strategy `probe` buys a quarter from the best seller
first, and turns to the next one where these rows contradict the claim: the covariance of the label with
the columns, in the direction that the claim itself gives, is tested one-sided (t-test on the products,
Bonferroni over the sellers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.data.curation.choices import bounded, one_of, within
from holdfast.data.curation.influence_scores import Classifier, FloatArray
from holdfast.data.curation.market import Market
from holdfast.numbers import counted, percent
from holdfast.report.figures import lines
from holdfast.stats import wilson_interval

WEIGHT = 0.98
"""Weight of accuracy in the score; the rest is the weight of the unspent share of the budget."""
RIDGE = 4.0
"""Ridge of the squared loss that matches a logistic regression with C = 1, whose curvature is about 1/4."""
STEPS = (40, 80, 160, 320)
"""Parts of the budget that change hands in one step, one size after another."""
ROUNDS = 8
"""Iterations of the fixed point of the effective ridge."""
PROBED = 0.25
"""Share of the money at hand that a probe costs at most."""
LEAST_PROBE = 8
"""Rows of a seller that say something about its claim, at least."""
DOUBT = 0.05
"""Chance that some honest seller of a market is doubted."""
FRONTIER = (0.25, 0.5, 0.75)
"""Shares of the budget that plans are also made for."""
_BUY = [("seller", pa.string()), ("rows", pa.int64()), ("cost", pa.float64())]


def score(accuracy: float, cost: float, budget: float) -> float:
    """0.98 times the accuracy plus 0.02 times the unspent share of the budget."""
    kept = (budget - cost) / budget if budget > 0 else 0.0
    return WEIGHT * accuracy + (1 - WEIGHT) * kept


class Forecast:
    """The accuracy that any purchase would give on some of the buyer's rows.

    Args:
        market: summaries, and the buyer's rows.
        planning: the rows whose covariances are used.
    """

    def __init__(self, market: Market, planning: np.ndarray) -> None:
        x = market.x[planning]
        self._centre = x.mean(axis=0)
        spread = x.std(axis=0)
        scaled = (x - self._centre) / np.where(spread > 0, spread, 1)
        correlation = scaled.T @ scaled / len(x)
        # All moments are in the principal axes of the buyer's rows, without covariances between axes.
        # Per seller: E[z], E[z^2], E[z y], E[y]; a mixture's are their weighted means.
        self._axes = np.linalg.eigh(correlation * spread[:, None] * spread)[1]
        shape = (len(market.sellers), x.shape[1])
        self._first, self._second, self._with_label = (np.empty(shape) for _ in range(3))
        self._label = np.array([seller.summary.label_share for seller in market.sellers])
        self._rows = np.array([seller.summary.rows for seller in market.sellers], float)
        for place, seller in enumerate(market.sellers):
            mean, variance = seller.summary.moments
            deviation, share = np.sqrt(variance), self._label[place]
            middle = self.project(mean)
            axes = self._axes * deviation[:, None]
            covariance = seller.summary.correlation * deviation * np.sqrt(share * (1 - share))
            self._first[place] = middle
            self._second[place] = np.einsum("ij,ij->j", axes, correlation @ axes) + middle**2
            self._with_label[place] = covariance @ self._axes + middle * share

    @property
    def label_covariances(self) -> FloatArray:
        """Covariances of each seller's columns with the label, in principal axes: ``[sellers, d]``."""
        return np.asarray(self._with_label - self._first * self._label[:, None])

    def project(self, x: FloatArray) -> FloatArray:
        """Rows in the principal axes."""
        return np.asarray((x - self._centre) @ self._axes)

    def accuracies(
        self, purchases: FloatArray, z: FloatArray, second: np.ndarray, cautious: bool = False
    ) -> FloatArray:
        """The accuracy after each of several purchases ``[p]``.

        Args:
            purchases: rows bought of each seller, ``[p, sellers]``.
            z: rows in the principal axes, ``[n, d]``.
            second: whether each has the second label.
            cautious: the noise of the weights is that of ridge regression before the rows are seen: plans
                that are chosen for the highest forecast then rely less on few rows.
        """
        from scipy.special import ndtr

        total = np.maximum(purchases.sum(axis=1, keepdims=True), 1)
        share = purchases / total
        mean, label = share @ self._first, share @ self._label
        variance = share @ self._second - mean**2
        with_label = share @ self._with_label - mean * label[:, None]
        ridge = RIDGE / total
        for _ in range(ROUNDS):  # to the fixed point, from below
            degrees = (variance / (variance + ridge)).sum(axis=1, keepdims=True)
            ridge = (RIDGE + ridge * degrees) / total
        gain = 1 / (variance + ridge)
        weights = gain * with_label  # [p, d]
        decision = weights @ z.T + (label - 0.5 - (weights * mean).sum(axis=1))[:, None]  # [p, n]
        residual = np.maximum(label * (1 - label) - (weights * with_label).sum(axis=1), 1e-3)
        distance = (z**2).mean(axis=0) - 2 * mean * z.mean(axis=0) + mean**2
        # A sample without replacement: no noise where all of a seller's rows are bought.
        drawn, deviation = 1 - (share * purchases / self._rows).sum(axis=1), gain**2 * variance
        if cautious:
            drawn, deviation = 1.0, gain
        noise = residual * drawn / total[:, 0] * (1 + (deviation * distance).sum(axis=1))
        sides = [decision[:, ~second], decision[:, second]]
        spread = np.sqrt(sum(side.shape[1] * side.var(axis=1) for side in sides) / len(z) + noise)
        right = [ndtr(-sides[0].mean(axis=1) / spread), ndtr(sides[1].mean(axis=1) / spread)]
        accuracy = right[0] * (~second).mean() + right[1] * second.mean()
        return np.where(purchases.sum(axis=1) < 1, 0.5, accuracy)


@dataclass(frozen=True)
class Plan(Answer):
    """What to buy.

    Args:
        buys: rows ``{"seller", "rows", "cost"}``.
        cost: of all.
        expected_score: 0.98 accuracy + 0.02 of the share of the budget that is kept, forecast on
            buyer's rows that the plan did not see.
        ci95: its interval; it allows for the number of those rows, not for errors of the forecast's model.
        expected_accuracy: the accuracy in it.
        budget: what may be spent.
        strategy: how the plan was made.
        compared: expected score of every strategy that reads no rows, and of this one.
        doubted: sellers whose probed rows do not hold what their summary claims: they are paid for, and
            not to be trained on; None: nobody was probed.
        frontier: rows ``{"budget", "cost", "expected_score", "expected_accuracy", "ci95"}``: what this
            strategy would do with a quarter, a half ... of the budget.
        unknown: what the summaries and the buyer's rows do not tell.
    """

    buys: list[dict[str, Any]]
    cost: float
    expected_score: float
    ci95: tuple[float, float]
    expected_accuracy: float
    budget: float
    strategy: str
    compared: dict[str, float]
    doubted: list[str] | None
    frontier: list[dict[str, Any]]
    unknown: list[Unknown]

    def unknowns(self) -> list[Unknown]:
        """What could not be determined."""
        return self.unknown

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "What to buy"

    @property
    def quantities(self) -> dict[str, int]:
        """Rows by seller."""
        return {buy["seller"]: buy["rows"] for buy in self.buys}

    def values(self) -> list[Value]:
        """Score and cost."""
        return [
            Value("expected_score", self.expected_score, ci95=self.ci95, better="higher"),
            Value("cost", self.cost, better="lower"),
        ]

    def sections(self) -> list[Section]:
        """The purchases, what other strategies are expected to score, and what other budgets bring."""
        low, high = self.ci95
        sentence = (
            f"Buy from {counted(len(self.buys), 'seller')} for {self.cost:,.2f} of {self.budget:,.2f}: "
            f"a model trained on it is expected to classify {percent(self.expected_accuracy)} of the "
            f"buyer's rows right, score {self.expected_score:.3f} [{low:.3f}, {high:.3f}]."
            if self.buys
            else "Buy nothing: no purchase within the budget is expected to be better than guessing."
        )
        how = How(
            "0.98 accuracy + 0.02 (budget - cost) / budget",
            source="The score of DAM (Mazumder et al., DataPerf, NeurIPS 2023); the forecast is ours.",
            notes="Accuracy is forecast from the sellers' histograms and correlations alone, for the "
            "half of the buyer's rows that the plan did not use. The interval allows for the number of "
            "these rows, not for errors of the forecast.",
        )
        money = ColumnFormat(digits=2)
        buys = pa.Table.from_pylist(self.buys, pa.schema(_BUY))
        rows = bounded(self.frontier)
        columns = {
            "budget": money,
            "cost": money,
            "expected_accuracy": ColumnFormat(unit="%", digits=1),
            "expected_score": ColumnFormat(digits=3, interval=("low", "high")),
        }
        tables = [
            Table(buys, {"seller": ColumnFormat(), "rows": ColumnFormat(), "cost": money}),
            Table(pa.Table.from_pylist(rows), columns, "Plans for smaller budgets."),
        ]
        if self.doubted:
            sentence += f" Probed rows do not hold what {', '.join(self.doubted)} claimed."
        figure = lines(
            rows, "budget", "expected_score", "Budget", "Score", low="low", high="high", zero=False
        )
        return [Section("buys", "What should be bought?", sentence, [figure], tables, how)]


def plan_purchase(market: Market, budget: float, strategy: str = "single", seed: int = 0) -> Plan:
    """What to buy of each seller.

    Args:
        market: summaries and the buyer's rows; sellers' rows are not read, but for the strategy probe.
        budget: never overspent.
        strategy: single (the seller with the best forecast), summary (the forecast of mixtures,
            optimized), probe (single, but a quarter first, and the next best seller where these rows
            do not hold what was claimed), align (correlation like the buyer's, per price), or
            uniform (the same money for each).
        seed: of the halves of the buyer's rows, and of probes.

    Raises:
        InputError: an unknown strategy, a budget that is not a number of 0 or more, probes in a market
            that has no rows to deliver.
    """
    one_of("strategy", strategy, STRATEGIES)
    within("budget", budget, 0)
    order = np.random.default_rng(seed).permutation(len(market.x))
    order = order[np.argsort(market.y[order], kind="stable")]  # every second row of each class
    planning, reporting = np.sort(order[::2]), np.sort(order[1::2])
    forecast = Forecast(market, planning)
    second = market.y == np.unique(market.y)[1]
    z = forecast.project(market.x[planning])
    work = _Work(market, budget, forecast, z, second[planning], seed)
    unseen = forecast.project(market.x[reporting])

    doubted, untested = _probed(work)[1:] if strategy == "probe" else ([], None)

    def expected(quantities: FloatArray, budget: float) -> dict[str, Any]:
        trained = work.change(dict.fromkeys(doubted, 0), quantities)
        accuracy = float(forecast.accuracies(trained[None], unseen, second[reporting])[0])
        cost = work.cost(quantities)
        interval = wilson_interval(accuracy * len(reporting), len(reporting))
        return {
            "budget": budget,
            "cost": cost,
            "expected_score": score(accuracy, cost, budget),
            "expected_accuracy": accuracy,
            "ci95": tuple(score(end, cost, budget) for end in interval),
        }

    purchases = {
        name: make(work) for name, make in STRATEGIES.items() if name in (strategy, *BLIND)
    }
    quantities = purchases[strategy]
    best = expected(quantities, budget)
    unknown = []
    if quantities.any() and best["ci95"][0] <= score(0.5, 0.0, budget):
        text = "Whether the purchase is better than guessing and keeping the money."
        unknown.append(Unknown(text, "label more of your own rows", doubt=True))
    if untested is not None:
        text = (
            f"Whether the rows of {market.sellers[untested].name} hold what it claims: too few fit."
        )
        unknown.append(
            Unknown(text, f"a probe needs {LEAST_PROBE} rows: raise the budget", doubt=True)
        )
    parts = [share * budget for share in FRONTIER]
    smaller = [expected(STRATEGIES[strategy](replace(work, budget=part)), part) for part in parts]
    return Plan(
        buys=[
            {"seller": seller.name, "rows": int(q), "cost": float(seller.costs[int(q)])}
            for seller, q in zip(market.sellers, quantities, strict=True)
            if q
        ],
        **best,
        strategy=strategy,
        compared={
            name: expected(each, budget)["expected_score"] for name, each in purchases.items()
        },
        doubted=[market.sellers[s].name for s in doubted] if strategy == "probe" else None,
        frontier=[*smaller, best],
        unknown=unknown,
    )


@dataclass(frozen=True)
class _Work:
    """What strategies work with."""

    market: Market
    budget: float
    forecast: Forecast
    z: FloatArray
    second: np.ndarray
    seed: int

    def cost(self, quantities: FloatArray) -> float:
        """Cost of a purchase."""
        pairs = zip(self.market.sellers, quantities, strict=True)
        return float(sum(seller.costs[int(q)] for seller, q in pairs))

    def values(self, purchases: Sequence[FloatArray]) -> FloatArray:
        """Forecast scores on the planning half; -1 for what is not affordable or has none ``[p]``."""
        cost = np.array([self.cost(quantities) for quantities in purchases])
        accuracies = self.forecast.accuracies(np.array(purchases), self.z, self.second, True)
        scores = [score(*pair, self.budget) for pair in zip(accuracies, cost, strict=True)]
        return np.where((cost > self.budget) | np.isnan(scores), -1, scores)

    def best(self, purchases: Sequence[FloatArray]) -> tuple[FloatArray, float]:
        """The one with the highest score, and its score."""
        scores = self.values(purchases)
        place = int(scores.argmax())
        return purchases[place], float(scores[place])

    def affordable(self, seller: int, money: float) -> int:
        """How many rows of a seller cost at most so much."""
        costs = self.market.sellers[seller].costs
        return int(np.searchsorted(costs, money, side="right")) - 1

    def change(self, rows: Mapping[int, int], purchase: FloatArray | None = None) -> FloatArray:
        """A purchase (None: of nothing) with other numbers of rows of some sellers."""
        changed = np.zeros(len(self.market.sellers)) if purchase is None else purchase.copy()
        changed[list(rows)] = list(rows.values())
        return changed

    def in_order(self, sellers: Sequence[int]) -> FloatArray:
        """As much as possible of the first, then of the second ..."""
        quantities, left = self.change({}), self.budget
        for seller in sellers:
            quantities[seller] = self.affordable(seller, max(left, 0))
            left = self.budget - self.cost(quantities)
        return quantities


def _uniform(work: _Work) -> FloatArray:
    """The same money for every seller."""
    part = work.budget / len(work.market.sellers)
    return np.array([work.affordable(s, part) for s in range(len(work.market.sellers))], float)


def _single(work: _Work, doubted: Sequence[int] = ()) -> FloatArray:
    sellers = [s for s in range(len(work.market.sellers)) if s not in doubted]
    plans = [work.change({s: work.affordable(s, work.budget)}) for s in sellers]
    return work.best([work.change({}), *plans])[0]  # or nothing, where that is better


def _probed(work: _Work) -> tuple[FloatArray, list[int], int | None]:
    """What is bought, the sellers that were doubted, and one that too few rows could test.

    As `_single`, but a part first; where it does not hold what was claimed, the next best seller. Rows of
    doubted sellers are paid for and not trained on.
    """
    probes, doubted = work.change({}), list[int]()
    while True:
        # 1. The best seller for the money that is left.
        left = replace(work, budget=work.budget - work.cost(probes))
        best = _single(left, doubted)
        if not best.any():
            return probes, doubted, None
        # 2. Its probe is a part of the purchase: nothing is lost where it holds.
        seller = int(best.argmax())
        count = min(left.affordable(seller, PROBED * left.budget), int(best[seller]))
        if count < LEAST_PROBE or _holds(work, seller, count):
            return probes + best, doubted, seller if count < LEAST_PROBE else None
        doubted.append(seller)
        probes = work.change({seller: count}, probes)


def _holds(work: _Work, seller: int, count: int) -> bool:
    """Whether so many rows may have the covariance with the label that their seller claims."""
    from scipy.special import stdtrit

    claim = work.market.sellers[seller].summary
    x, y = work.market.bought({work.market.sellers[seller].name: count}, work.seed)
    # One column: the rows in the direction of the claim, each column in its standard deviations.
    deviation = np.sqrt(claim.moments[1])
    column = x @ (claim.correlation / np.where(deviation > 0, deviation, 1))  # [count]
    label = y == np.unique(work.market.y)[1]
    products = (column - column.mean()) * (label - label.mean()) * count / (count - 1)
    share = claim.label_share
    claimed = float((claim.correlation**2).sum() * np.sqrt(share * (1 - share)))
    least = float(stdtrit(count - 1, 1 - DOUBT / len(work.market.sellers)))
    missing = claimed - float(products.mean())
    return missing <= least * float(products.std(ddof=1)) / math.sqrt(count)


def _align(work: _Work) -> FloatArray:
    """Sellers whose correlations with the label are like the buyer's come first, per price of a row."""
    z = work.z - work.z.mean(axis=0)
    own = z.T @ (work.second - work.second.mean())
    theirs = work.forecast.label_covariances
    likeness = theirs @ own / (np.linalg.norm(theirs, axis=1) * np.linalg.norm(own) + 1e-12)
    price = np.array([seller.costs[-1] / seller.summary.rows for seller in work.market.sellers])
    worth = np.maximum(likeness, 0) / np.maximum(price, 1e-12)
    return work.in_order(np.argsort(-worth, kind="stable").tolist())


def _summary(work: _Work) -> FloatArray:
    """The forecast score, climbed from the best simple plan: buy, return or exchange small amounts."""
    starts = [work.change({}), *(make(work) for make in (_uniform, _single, _align))]
    best, value = work.best(starts)
    for parts in STEPS:
        while True:
            found, reached = work.best(_neighbors(work, best, work.budget / parts))
            if reached <= value + 1e-9:
                break
            best, value = found, reached
    return best


def _neighbors(work: _Work, purchase: FloatArray, step: float) -> list[FloatArray]:
    """Purchases that differ by one step of money with one seller, or between two."""
    sellers = range(len(purchase))
    spent = [float(work.market.sellers[s].costs[int(purchase[s])]) for s in sellers]
    more = {s: work.affordable(s, spent[s] + step) for s in sellers}
    less = {s: work.affordable(s, max(spent[s] - step, 0)) for s in sellers if purchase[s]}
    moves = [{s: more[s]} for s in sellers] + [{s: less[s]} for s in less]
    moves += [{a: less[a], b: more[b]} for a in less for b in sellers if a != b]
    return [work.change(move, purchase) for move in moves]


STRATEGIES: dict[str, Callable[[_Work], FloatArray]] = {
    "single": _single,
    "summary": _summary,
    "probe": lambda work: _probed(work)[0],
    "align": _align,
    "uniform": _uniform,
}

BLIND = tuple(name for name in STRATEGIES if name != "probe")
"""Strategies that read no row for sale."""


def evaluate_plan(
    market: Market, bought: Plan, x: FloatArray, y: np.ndarray, seed: int = 0
) -> float:
    """The true score of a plan: buy, train a logistic regression (C = 1), test on these rows."""
    doubted = dict.fromkeys(bought.doubted or (), 0)
    rows, labels = market.bought(bought.quantities | doubted, seed)
    if len(np.unique(labels)) < 2:
        guess = labels[0] if len(labels) else np.unique(market.y)[0]
        return score(float((y == guess).mean()), bought.cost, bought.budget)
    accuracy = float((Classifier.fit(rows, labels, 1.0).predict(x) == y).mean())
    return score(accuracy, bought.cost, bought.budget)
