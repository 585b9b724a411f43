"""What to buy: plans from summaries alone, within a budget.

The buyer will train a logistic regression on what is bought. From the summaries follow the first and second
moments of any mixture of sellers (correlations between columns are the buyer's own), from these the
weights of
a ridge regression, and from its error at each of the buyer's rows the chance that the row is
classified right:

    accuracy = mean_z Phi(+-(w'(z - m) + b) / sd(z)),   sd(z)^2 = s^2 / N (1 + (z - m)' A^-1 (z - m))

A plan is made on one half of the buyer's rows; what it is expected to score is told on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.data.curation.influence import Classifier, FloatArray
from holdfast.data.curation.market import Market
from holdfast.errors import InputError
from holdfast.numbers import counted, percent
from holdfast.report.figures import bars
from holdfast.stats import wilson_interval

WEIGHT = 0.98
"""Of accuracy in the score; the rest is for the share of the budget that is kept."""
RIDGE = 4.0
"""Ridge of the squared loss that matches a logistic regression with C = 1, whose curvature is about 1/4."""
STEPS = 40
"""The largest purchase of one step is this part of the budget."""
DIMENSIONS = 96
"""Principal components of the buyer's rows that a forecast is made in."""


def score(accuracy: float, cost: float, budget: float) -> float:
    """0.98 accuracy + 0.02 of the share of the budget that is kept."""
    kept = (budget - cost) / budget if budget > 0 else 0.0
    return WEIGHT * accuracy + (1 - WEIGHT) * kept


class Forecast:
    """The accuracy that any purchase would give on some of the buyer's rows.

    Args:
        market: summaries, and the buyer's rows.
        planning: the rows whose correlations and directions are used.
    """

    def __init__(self, market: Market, planning: np.ndarray) -> None:
        x = market.x[planning]
        spread = x.std(axis=0)
        spread[spread == 0] = 1
        scaled = (x - x.mean(axis=0)) / spread
        # Correlations of few rows are noisy: half way to none at as many rows as columns.
        shrink = len(x) / (len(x) + x.shape[1])
        correlation = shrink * (scaled.T @ scaled) / len(x)
        np.fill_diagonal(correlation, 1)
        _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        self._basis = directions[:DIMENSIONS].T  # [d, k]
        self._centre = x.mean(axis=0)
        k = self._basis.shape[1]
        count = len(market.sellers)
        # Per seller: E[x], E[x x'], E[x y], E[y], in the basis; a mixture's are their weighted means.
        self._first = np.empty((count, k))
        self._second = np.empty((count, k, k))
        self._with_label = np.empty((count, k))
        self._label = np.empty(count)
        for place, seller in enumerate(market.sellers):
            summary = seller.summary
            mean, variance = summary.moments
            deviation = np.sqrt(variance)
            share = summary.label_share
            with_label = summary.correlation * deviation * np.sqrt(share * (1 - share))
            rotated = self._basis * deviation[:, None]  # D B, so that B' D R D B follows
            middle = (mean - self._centre) @ self._basis
            self._first[place] = middle
            self._second[place] = rotated.T @ correlation @ rotated + np.outer(middle, middle)
            self._with_label[place] = with_label @ self._basis + middle * share
            self._label[place] = share

    @property
    def label_covariances(self) -> FloatArray:
        """Of each seller's columns with the label, in the basis: ``[sellers, k]``."""
        return np.asarray(self._with_label - self._first * self._label[:, None])

    def project(self, x: FloatArray) -> FloatArray:
        """Rows in the basis."""
        return np.asarray((x - self._centre) @ self._basis)

    def chances(self, quantities: FloatArray, z: FloatArray, second: np.ndarray) -> FloatArray:
        """The chance that each row is classified right after a purchase.

        Args:
            quantities: rows bought of each seller.
            z: rows in the basis, ``[n, k]``.
            second: whether each has the second label.
        """
        from scipy.special import ndtr

        total = float(quantities.sum())
        if total < 1:
            return np.full(len(z), 0.5)
        share = quantities / total
        mean, label = share @ self._first, float(share @ self._label)
        covariance = np.tensordot(share, self._second, 1) - np.outer(mean, mean)
        with_label = share @ self._with_label - mean * label
        system = covariance + RIDGE / total * np.eye(len(mean))
        centred = z - mean
        solved = np.linalg.solve(system, np.column_stack([with_label, centred.T]))
        weights = solved[:, 0]
        residual = max(label * (1 - label) - float(weights @ with_label), 1e-3)
        spread = residual / total * (1 + np.einsum("nk,kn->n", centred, solved[:, 1:]))
        decision = centred @ weights + label - 0.5
        return np.asarray(ndtr(np.where(second, decision, -decision) / np.sqrt(spread)))


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
        compared: expected score of every strategy.
    """

    buys: list[dict[str, Any]]
    cost: float
    expected_score: float
    ci95: tuple[float, float]
    expected_accuracy: float
    budget: float
    strategy: str
    compared: dict[str, float]

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
        """The purchases, and what the other strategies are expected to score."""
        low, high = self.ci95
        sentence = (
            f"Buy from {counted(len(self.buys), 'seller')} for {self.cost:,.2f} of {self.budget:,.2f}: "
            f"a model trained on it is expected to classify {percent(self.expected_accuracy)} of the "
            f"buyer's rows right, score {self.expected_score:.3f} [{low:.3f}, {high:.3f}]."
            if self.buys
            else "Buy nothing: no purchase within the budget is expected to be better than guessing."
        )
        rows = pa.table(
            {name: [buy[name] for buy in self.buys] for name in ("seller", "rows", "cost")}
        )
        how = How(
            "0.98 accuracy + 0.02 (budget - cost) / budget",
            source="The score of DAM (Mazumder et al., DataPerf, NeurIPS 2023); the forecast is ours.",
            notes=(
                "Accuracy is forecast from the sellers' histograms and correlations alone, for the "
                "half of the buyer's rows that the plan did not use. The interval allows for the "
                "number of these rows, not for errors of the forecast."
            ),
        )
        strategies = [{"strategy": name, "score": value} for name, value in self.compared.items()]
        return [
            Section(
                "buys",
                "What should be bought?",
                sentence,
                [bars(strategies, "strategy", "score", "Expected score")],
                [
                    Table(
                        rows,
                        {
                            "seller": ColumnFormat("Seller"),
                            "rows": ColumnFormat("Rows"),
                            "cost": ColumnFormat("Cost", digits=2),
                        },
                        empty="Nothing.",
                    )
                ],
                how,
            )
        ]


def plan_purchase(market: Market, budget: float, strategy: str = "summary", seed: int = 0) -> Plan:
    """What to buy of each seller.

    Args:
        market: summaries and the buyer's rows; sellers' rows are not read.
        budget: never overspent.
        strategy: summary (the forecast, optimized), align (correlation like the buyer's, per price),
            single, cheapest, uniform, or random.
        seed: of the halves of the buyer's rows, and of random.

    Raises:
        InputError: an unknown strategy, a budget that is negative or no number.
    """
    if strategy not in STRATEGIES:
        raise InputError(
            "unknown strategy",
            code="unknown-name",
            place="strategy",
            found=strategy,
            expected=", ".join(STRATEGIES),
        )
    if not budget >= 0 or not np.isfinite(budget):
        raise InputError(
            "not a budget",
            code="out-of-range",
            place="budget",
            found=str(budget),
            expected="0 or more",
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(market.x))
    planning, reporting = np.sort(order[::2]), np.sort(order[1::2])
    forecast = Forecast(market, planning)
    second = market.y == np.unique(market.y)[1]
    work = _Work(
        market, budget, forecast, forecast.project(market.x[planning]), second[planning], rng
    )
    told = forecast.project(market.x[reporting])
    purchases = {name: make(work) for name, make in STRATEGIES.items()}

    def expected(quantities: FloatArray) -> tuple[float, float]:
        accuracy = float(forecast.chances(quantities, told, second[reporting]).mean())
        return accuracy, score(accuracy, work.cost(quantities), budget)

    quantities = purchases[strategy]
    accuracy, value = expected(quantities)
    cost = work.cost(quantities)
    low, high = (
        score(each, cost, budget)
        for each in wilson_interval(accuracy * len(reporting), len(reporting))
    )
    return Plan(
        buys=[
            {"seller": seller.name, "rows": int(q), "cost": float(seller.costs[int(q)])}
            for seller, q in zip(market.sellers, quantities, strict=True)
            if q
        ],
        cost=cost,
        expected_score=value,
        ci95=(low, high),
        expected_accuracy=accuracy,
        budget=budget,
        strategy=strategy,
        compared={name: expected(each)[1] for name, each in purchases.items()},
    )


@dataclass(frozen=True)
class _Work:
    """What strategies work with."""

    market: Market
    budget: float
    forecast: Forecast
    z: FloatArray
    second: np.ndarray
    rng: np.random.Generator

    def cost(self, quantities: FloatArray) -> float:
        """Of a purchase."""
        pairs = zip(self.market.sellers, quantities, strict=True)
        return float(sum(seller.costs[int(q)] for seller, q in pairs))

    def value(self, quantities: FloatArray) -> float:
        """Forecast score on the planning half."""
        chances = self.forecast.chances(quantities, self.z, self.second)
        return score(float(chances.mean()), self.cost(quantities), self.budget)

    def affordable(self, seller: int, money: float) -> int:
        """How many rows of a seller cost at most so much."""
        costs = self.market.sellers[seller].costs
        return int(np.searchsorted(costs, money, side="right")) - 1

    def none(self) -> FloatArray:
        """Nothing bought."""
        return np.zeros(len(self.market.sellers))

    def in_order(self, sellers: Sequence[int]) -> FloatArray:
        """As much as possible of the first, then of the second ..."""
        quantities, left = self.none(), self.budget
        for seller in sellers:
            quantities[seller] = self.affordable(seller, max(left, 0))
            left = self.budget - self.cost(quantities)
        return quantities


def _uniform(work: _Work) -> FloatArray:
    """The same money for every seller."""
    part = work.budget / len(work.market.sellers)
    return np.array([work.affordable(s, part) for s in range(len(work.market.sellers))], float)


def _price_per_row(work: _Work) -> FloatArray:
    return np.array([s.costs[-1] / max(s.summary.rows, 1) for s in work.market.sellers])


def _cheapest(work: _Work) -> FloatArray:
    return work.in_order(np.argsort(_price_per_row(work), kind="stable").tolist())


def _random(work: _Work) -> FloatArray:
    return work.in_order(work.rng.permutation(len(work.market.sellers)).tolist())


def _single(work: _Work) -> FloatArray:
    options = []
    for seller in range(len(work.market.sellers)):
        quantities = work.none()
        quantities[seller] = work.affordable(seller, work.budget)
        options.append(quantities)
    return max(options, key=work.value)


def _align(work: _Work) -> FloatArray:
    """Sellers whose correlations with the label are like the buyer's come first, per price of a row."""
    z = work.z - work.z.mean(axis=0)
    own = z.T @ (work.second - work.second.mean())
    theirs = work.forecast.label_covariances
    likeness = theirs @ own / (np.linalg.norm(theirs, axis=1) * np.linalg.norm(own) + 1e-12)
    worth = np.maximum(likeness, 0) / np.maximum(_price_per_row(work), 1e-12)
    return work.in_order(np.argsort(-worth, kind="stable").tolist())


def _summary(work: _Work) -> FloatArray:
    """The forecast score, climbed from the best simple plan: buy, return or exchange small amounts."""
    starts = [work.none(), *(make(work) for make in (_uniform, _cheapest, _single, _align))]
    best = max(starts, key=work.value)
    value = work.value(best)
    step = work.budget / STEPS
    while step > work.budget / (16 * STEPS):
        better = _best_neighbor(work, best, value, step)
        if better is None:
            step /= 2
        else:
            best, value = better
    return best


def _best_neighbor(
    work: _Work, quantities: FloatArray, value: float, step: float
) -> tuple[FloatArray, float] | None:
    """The best purchase that differs by one step of money with one seller, or between two."""
    sellers = range(len(quantities))
    costs = [s.costs for s in work.market.sellers]
    spent = [float(costs[s][int(quantities[s])]) for s in sellers]
    up, down = quantities.copy(), quantities.copy()
    for s in sellers:
        up[s] = work.affordable(s, spent[s] + step)
        down[s] = work.affordable(s, max(spent[s] - step, 0))
    moves = [{s: up[s]} for s in sellers] + [{s: down[s]} for s in sellers if quantities[s]]
    moves += [{a: down[a], b: up[b]} for a in sellers if quantities[a] for b in sellers if a != b]
    found: tuple[FloatArray, float] | None = None
    for move in moves:
        changed = quantities.copy()
        for seller, amount in move.items():
            changed[seller] = amount
        if (changed == quantities).all() or work.cost(changed) > work.budget:
            continue
        reached = work.value(changed)
        if reached > value + 1e-9 and (found is None or reached > found[1]):
            found = changed, reached
    return found


STRATEGIES: dict[str, Callable[[_Work], FloatArray]] = {
    "summary": _summary,
    "align": _align,
    "single": _single,
    "cheapest": _cheapest,
    "uniform": _uniform,
    "random": _random,
}


def evaluate_plan(
    market: Market, bought: Plan, x: FloatArray, y: np.ndarray, seed: int = 0
) -> float:
    """The true score of a plan: buy, train a logistic regression (C = 1), test on these rows."""
    rows, labels = market.bought(bought.quantities, seed)
    if len(np.unique(labels)) < 2:
        guess = labels[0] if len(labels) else np.unique(market.y)[0]
        return score(float((y == guess).mean()), bought.cost, bought.budget)
    accuracy = float((Classifier.fit(rows, labels, 1.0).predict(x) == y).mean())
    return score(accuracy, bought.cost, bought.budget)
