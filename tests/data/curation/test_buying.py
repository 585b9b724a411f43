"""What to buy: prices by exact fractions, summaries by pandas, forecasts by models that are trained."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import points
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from command_line import answer
from holdfast.data.curation import Market, Price, Seller, Summary, evaluate_plan, plan_purchase
from holdfast.data.curation.buying import BLIND, RIDGE, Forecast, score

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "market"


def rows(
    n: int, noise: float = 0.0, seed: int = 0, d: int = 4, shift: float = 0.7
) -> tuple[Any, Any]:
    """Two overlapping classes; a share of the labels is wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, d)) + shift * np.where(y[:, None] == 1, 1, -1)
    return x, np.where(rng.random(n) < noise, 1 - y, y)


def market_of(prices: dict[str, Price], noises: Any, n: int = 100, seed: int = 0) -> Market:
    sellers = [
        Seller(name, price, Summary.of(*rows(n, noise, seed + k)))
        for k, ((name, price), noise) in enumerate(zip(prices.items(), noises, strict=True))
    ]
    return Market(sellers, *rows(120, seed=seed + 99))


# --- Prices ----------------------------------------------------------------------------------------

halves = st.integers(0, 400).map(lambda n: n / 2)


@given(st.integers(1, 60), halves, halves, st.integers(1, 4))
def test_prices_are_those_of_exact_fractions(rows: int, top: float, fee: float, power: int) -> None:
    exact = {
        "linear": lambda q: Fraction(top) * q / rows,
        "convex": lambda q: Fraction(top) * Fraction(q, rows) ** power,
        "setup": lambda q: (Fraction(top) * q / rows + Fraction(fee)) * (q > 0),
    }
    for kind, of in exact.items():
        table = Price(kind, top, fee, power).table(rows)  # type: ignore[arg-type]
        assert table == pytest.approx([float(of(q)) for q in range(rows + 1)], rel=1e-12)
        assert (np.diff(table) >= 0).all()


@given(
    st.integers(1, 50),
    st.dictionaries(st.sampled_from([1, 2, 3, 5, 7]), halves, max_size=4),
    halves,
)
def test_tiers_are_summed_row_by_row(rows: int, later: dict[int, float], first: float) -> None:
    tiers = ((0.0, first), *((eighth / 8, later[eighth]) for eighth in sorted(later)))
    spent, table = 0.0, [0.0]
    for row in range(rows):  # the price of the tier that the share sold so far has reached
        spent += next(price for at, price in reversed(tiers) if Fraction(row, rows) >= Fraction(at))
        table.append(spent)
    assert Price("tiered", tiers=tiers).table(rows) == pytest.approx(table)


# --- Summaries -------------------------------------------------------------------------------------


@given(st.integers(0, 2**16), st.integers(2, 80), st.sampled_from([1e-30, 1.0, 1e30]))
def test_a_summary_is_that_of_pandas(seed: int, n: int, unit: float) -> None:
    x, y = points(n, 3, 2, seed)
    x *= unit
    shown, frame = Summary.of(x, y), pd.DataFrame(x)
    assert shown.label_share == pytest.approx(y.mean())
    assert shown.correlation == pytest.approx(frame.corrwith(pd.Series(y)).to_numpy(), abs=1e-9)
    for column in range(3):
        cut = pd.cut(frame[column], shown.edges[column], include_lowest=True, right=False)
        inner = cut.value_counts(sort=False).to_numpy()
        inner[-1] += n - inner.sum()  # the largest belongs to the last bin
        assert shown.counts[column].tolist() == inner.tolist()
        assert shown.edges[column][[0, -1]].tolist() == [x[:, column].min(), x[:, column].max()]
    sample = {tuple(row) for row in shown.sample_x}
    assert len(sample) == min(5, n)
    assert sample <= {tuple(row) for row in x}


def test_moments_of_even_bins_are_exact() -> None:
    """Rows at the middles of their bins: the mean is theirs, the variance w^2 / 12 more than theirs."""
    middles = np.arange(10) + 0.5
    counts = np.array([1, 4, 0, 2, 7, 7, 0, 3, 1, 5.0])
    shown = Summary(
        30, np.arange(11.0)[None], counts[None], np.zeros(1), 0.5, np.zeros((0, 1)), np.zeros(0)
    )
    mean, variance = shown.moments
    assert mean == pytest.approx([np.average(middles, weights=counts)])
    spread = np.average((middles - mean) ** 2, weights=counts)
    assert variance == pytest.approx([spread + 1 / 12])


def test_rows_are_delivered_without_replacement(tmp_path: Path) -> None:
    x, y = rows(40)
    other = rows(30, seed=1)
    sold = {"a": (x, y, Price(top=4)), "b": (*other, Price(top=3))}
    market = Market.build(tmp_path / "m", sold, rows(20, seed=2))
    got, labels = market.bought({"a": 25, "b": 0}, seed=3)
    pairs = {(*row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)}
    delivered = [(*row, label) for row, label in zip(got.tolist(), labels.tolist(), strict=True)]
    assert len(set(delivered)) == 25
    assert set(delivered) <= pairs
    # The rest of a purchase: the rows of a smaller one are the first of it.
    assert market.bought({"a": 10}, 3)[0].tolist() == got[:10].tolist()
    assert market.bought({"a": 10}, 4)[0].tolist() != got[:10].tolist()
    everything = market.bought({"a": 99, "b": 99})[0]
    assert len(everything) == 70
    assert [len(part) for part in market.bought({})] == [0, 0]
    again = Market.read(tmp_path / "m")
    assert [s.costs.tolist() for s in again.sellers] == [s.costs.tolist() for s in market.sellers]


# --- Forecasts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20, 60, 150])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_forecast_is_the_mean_accuracy_of_models_that_are_trained(
    count: int, noise: float
) -> None:
    """Draw the rows, train scikit-learn's logistic regression, test: again and again."""
    x, y = rows(150, noise, 1)
    buyer = rows(400, 0.0, 2)
    market = Market([Seller("s", Price(top=1), Summary.of(x, y))], *buyer)
    forecast = Forecast(market, np.arange(0, 400, 2))
    unseen = slice(1, None, 2)
    z, second = forecast.project(buyer[0][unseen]), buyer[1][unseen] == 1
    expected = float(forecast.accuracies(np.array([[count]]), z, second)[0])
    rng, trained = np.random.default_rng(3), []
    for _ in range(1 if count == 150 else 12):
        drawn = rng.permutation(150)[:count]
        model = LogisticRegression(C=1.0).fit(x[drawn], y[drawn])
        trained.append(model.score(buyer[0][unseen], second))
    assert expected == pytest.approx(np.mean(trained), abs=0.03)


def test_a_forecast_of_all_rows_from_the_equations() -> None:
    """k = ridge / N + k / N sum v / (v + k) by SciPy; then two normal classes along w = c / (v + k)."""
    x, y = rows(60, 0.1, 4)
    seller = Seller("s", Price(top=1), Summary.of(x, y))
    buyer, label = rows(200, seed=5)
    # 1. Moments of the seller in the principal axes of the buyer's rows.
    mean, variance = seller.summary.moments
    deviation, share = np.sqrt(variance), seller.summary.label_share
    axes = np.linalg.eigh(np.cov(buyer.T, bias=True))[1]
    likely = deviation[:, None] * np.corrcoef(buyer.T) * deviation  # its covariance
    v = np.diag(axes.T @ likely @ axes)
    c = axes.T @ (seller.summary.correlation * deviation * np.sqrt(share * (1 - share)))
    # 2. The effective ridge of all 60 rows, and the weights.
    k = brentq(lambda k: RIDGE / 60 + k / 60 * (v / (v + k)).sum() - k, 1e-9, 1e3)
    decision = (buyer - mean) @ axes @ (c / (v + k)) + share - 0.5
    # 3. Normal classes with one spread; nothing is left to chance where all rows are bought.
    sides = decision[label == 0], decision[label == 1]
    spread = np.sqrt(sum(len(side) * side.var() for side in sides) / 200)
    right = norm.cdf(-sides[0].mean() / spread), norm.cdf(sides[1].mean() / spread)
    expected = np.average(right, weights=[len(side) for side in sides])
    forecast = Forecast(Market([seller], buyer, label), np.arange(200))
    z = forecast.project(buyer)
    found = forecast.accuracies(np.array([[60.0]]), z, label == 1)
    assert found == pytest.approx([expected], abs=1e-4)
    assert forecast.accuracies(np.array([[59.0]]), z, label == 1) < found


# --- Plans -----------------------------------------------------------------------------------------

PRICES = {"a": Price(top=40), "b": Price("setup", top=10, fee=15), "c": Price("convex", top=60)}
NOISES = (0.0, 0.1, 0.3)


def planning(market: Market, seed: int) -> Any:
    """The half of the buyer's rows that a plan is made on: every second row of each class."""
    order = np.random.default_rng(seed).permutation(len(market.x))
    return np.sort(order[np.argsort(market.y[order], kind="stable")][::2])


@pytest.mark.parametrize("budget", [10.0, 45.0, 200.0])
def test_align_buys_by_likeness_per_price(budget: float) -> None:
    """The cosine of covariances with the label, a seller's beside the buyer's: one after another."""
    market = market_of(PRICES, NOISES)
    half = planning(market, 0)
    own = np.cov(market.x[half].T, market.y[half], bias=True)[-1, :-1]
    worth = {}
    for seller in market.sellers:
        shown = seller.summary
        theirs = shown.correlation * np.sqrt(shown.moments[1])
        cosine = theirs @ own / np.linalg.norm(theirs) / np.linalg.norm(own)
        worth[seller.name] = max(cosine, 0) / (seller.costs[-1] / 100)
    expected, left = {}, budget
    for seller in sorted(market.sellers, key=lambda seller: -worth[seller.name]):
        most = max(q for q, cost in enumerate(seller.costs) if cost <= left)
        expected[seller.name] = most
        left -= seller.costs[most]
    bought = plan_purchase(market, budget, "align").quantities
    assert bought == {name: q for name, q in expected.items() if q}


def test_summary_is_nearly_the_best_of_all_mixtures() -> None:
    """Every mixture of two sellers on a grid, forecast as the plan forecasts: none is much better."""
    market = market_of({"a": Price(top=30), "b": Price(top=12)}, (0.0, 0.15), 60)
    made = plan_purchase(market, 20, "summary", seed=1)
    half = planning(market, 1)
    forecast = Forecast(market, half)
    z, second = forecast.project(market.x[half]), market.y[half] == 1

    def value(q: Any) -> float:
        cost = sum(s.costs[n] for s, n in zip(market.sellers, q, strict=True))
        accuracy = float(forecast.accuracies(np.array([q], float), z, second, True)[0])
        return score(accuracy, cost, 20) if cost <= 20 else -1

    best = max(map(value, product(range(0, 61, 3), repeat=2)))
    assert value([made.quantities.get(name, 0) for name in "ab"]) >= best - 2e-3


@pytest.mark.parametrize("strategy", BLIND)
def test_names_orders_and_axes_change_no_plan(strategy: Any) -> None:
    market = market_of(PRICES, NOISES)
    made = plan_purchase(market, 25, strategy)
    renamed = [replace(s, name=f"{s.name} \u6f22") for s in market.sellers]
    backwards = plan_purchase(replace(market, sellers=market.sellers[::-1]), 25, strategy)
    assert backwards.quantities == {k: made.quantities[k] for k in reversed(made.quantities)}
    assert plan_purchase(replace(market, sellers=renamed), 25, strategy).quantities == {
        f"{name} \u6f22": q for name, q in made.quantities.items()
    }
    for y in (market.y > 0, np.array(["no", "yes"])[market.y], market.y * 1.0):
        assert plan_purchase(replace(market, y=y), 25, strategy).to_dict() == made.to_dict()
    # In another unit of money.
    cents = [
        replace(s, price=replace(s.price, top=64 * s.price.top, fee=64 * s.price.fee))
        for s in market.sellers
    ]
    dear = plan_purchase(replace(market, sellers=cents), 64 * 25, strategy)
    assert dear.quantities == made.quantities
    assert dear.expected_score == pytest.approx(made.expected_score)


def test_where_zero_is_changes_no_plan() -> None:
    x, y = rows(100, 0.1, 3)
    buyer, labels = rows(120, 0.0, 4)
    made = []
    for move in (lambda a: a, lambda a: a + 2.0**12, lambda a: -a):
        market = Market([Seller("s", Price(top=9), Summary.of(move(x), y))], move(buyer), labels)
        made.append(plan_purchase(market, 5))
    for other in made[1:]:
        assert other.quantities == made[0].quantities
        assert other.expected_accuracy == pytest.approx(made[0].expected_accuracy, abs=1e-6)


def test_the_true_score_is_that_of_scikit_learn(tmp_path: Path) -> None:
    sold = {"a": (*rows(60, 0.0, 1), Price(top=30)), "b": (*rows(60, 0.4, 2), Price(top=1))}
    market = Market.build(tmp_path / "m", sold, rows(80, seed=3))
    made = plan_purchase(market, 20)
    x, y = rows(500, seed=4)
    bought, labels = market.bought(made.quantities)
    ones = [np.c_[each, np.ones(len(each))] for each in (bought, x)]
    model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-9).fit(ones[0], labels)
    expected = 0.98 * model.score(ones[1], y) + 0.02 * (20 - made.cost) / 20
    assert evaluate_plan(market, made, x, y) == pytest.approx(expected, abs=1e-9)
    nothing = plan_purchase(market, 0)
    assert evaluate_plan(market, nothing, x, y) == pytest.approx(0.98 * (y == 0).mean())


def test_the_command_plans_as_the_function_does(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("data", "curation", "market", "plan", EXAMPLE)
    for strategy in ("single", "probe", "align"):
        printed = answer(capsys, *words, "--budget", "50", "--strategy", strategy, "--seed", "3")
        made = plan_purchase(Market.read(EXAMPLE), 50, strategy, 3)
        expected = json.loads(json.dumps(made.to_dict(), default=str))
        assert {key: printed[key] for key in expected} == expected
    for budget in ("-1", "nan", "much"):
        error = answer(capsys, *words, "--budget", budget, code=2)
        assert error["code"] in ("usage", "out-of-range")
    assert (
        answer(capsys, *words[:4], EXAMPLE / "rows", "--budget", "1", code=2)["code"] == "not-found"
    )
