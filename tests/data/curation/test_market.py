"""Plans from summaries: within the budget, blind to what is sold, and near what then happens."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.curation import Market, Price, Seller, Summary, evaluate_plan, plan_purchase
from holdfast.data.curation.buying import BLIND
from holdfast.errors import InputError


def rows(n: int, noise: float, seed: int, d: int = 6) -> tuple[Any, Any]:
    """Two overlapping classes; a share of the labels is wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, d)) + 0.6 * np.where(y[:, None] == 1, 1, -1)
    wrong = rng.random(n) < noise
    return x, np.where(wrong, 1 - y, y)


SOLD = {
    "good": (*rows(150, 0.0, 1), Price(top=60)),
    "dear": (*rows(150, 0.0, 2), Price(top=600)),
    "noisy": (*rows(150, 0.5, 3), Price(top=10)),
    "flipped": (*rows(150, 1.0, 4), Price(top=10)),
    "fee": (*rows(80, 0.1, 5), Price("setup", top=20, fee=30)),
}


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return Market.build(tmp_path_factory.mktemp("market") / "m", SOLD, rows(200, 0.0, 6))


def test_a_plan_buys_what_teaches_and_the_forecast_is_near(market: Market) -> None:
    made = plan_purchase(market, 50, "summary")
    bought = made.quantities
    assert "good" in bought
    assert not {"noisy", "flipped"} & set(bought)
    x, y = rows(4000, 0.0, 7)
    true = evaluate_plan(market, made, x, y)
    assert made.expected_score == pytest.approx(true, abs=0.03)
    assert made.expected_score >= max(made.compared.values()) - 0.01
    assert made.ci95[0] < made.expected_score < made.ci95[1]
    assert [row["budget"] for row in made.frontier] == [12.5, 25, 37.5, 50]
    assert made.frontier[-1]["expected_accuracy"] == made.expected_accuracy
    assert all(row["cost"] <= row["budget"] for row in made.frontier)
    assert made.frontier[0]["expected_accuracy"] < made.expected_accuracy
    worst = plan_purchase(market, 50, "uniform")
    assert evaluate_plan(market, worst, x, y) < true - 0.2


def test_a_plan_is_blind_to_the_rows_for_sale(market: Market, tmp_path: Path) -> None:
    assert market.folder is not None
    copied = tmp_path / "m"
    shutil.copytree(market.folder, copied)
    for file in (copied / "rows").iterdir():
        file.write_bytes(b"poisoned")
    assert plan_purchase(Market.read(copied), 50).to_dict() == plan_purchase(market, 50).to_dict()


prices = st.one_of(
    st.builds(Price, st.just("linear"), st.floats(0, 200)),
    st.builds(Price, st.just("setup"), st.floats(0, 100), st.floats(0, 100)),
    st.builds(Price, st.just("convex"), st.floats(0, 200), power=st.floats(1, 4)),
    st.builds(
        Price,
        st.just("tiered"),
        tiers=st.tuples(
            st.tuples(st.just(0.0), st.floats(0, 3)), st.tuples(st.just(0.5), st.floats(0, 3))
        ),
    ),
)


@given(st.lists(prices, min_size=1, max_size=4), st.floats(0, 300), st.integers(0, 99))
@settings(max_examples=15)
def test_no_strategy_ever_overspends(terms: list[Price], budget: float, seed: int) -> None:
    sellers = [
        Seller(f"s{n}", price, Summary.of(*rows(30, 0.1 * n, seed + n, 3)))
        for n, price in enumerate(terms)
    ]
    market = Market(sellers, *rows(40, 0, seed, 3))
    for strategy in BLIND:
        made = plan_purchase(market, budget, strategy, seed)
        assert made.cost <= budget * (1 + 1e-9)
        costs = {seller.name: seller.costs for seller in sellers}
        assert made.cost == pytest.approx(
            sum(costs[buy["seller"]][buy["rows"]] for buy in made.buys)
        )


def test_prices_that_fall_or_are_no_numbers_are_refused() -> None:
    shown = Summary.of(*rows(3, 0, 0))
    fees = Price("tiered", tiers=((0.5, 1),)), Price("tiered")
    for wrong in (Price(top=-1), Price(top=float("nan")), *fees):
        with pytest.raises(InputError) as refused:
            _ = Seller("s", wrong, shown).costs
        assert refused.value.code == "invalid-value"
    for wrong, place in (
        (Price("convex", top=60, power=0.5), "power"),
        (Price("convex", top=60, power=-1), "power"),
        (Price("tiered", tiers=((0, 1.0), (50, 0.5))), "tiers"),  # rows in place of shares
        (Price("tiered", tiers=((0, 1.0), (1, 0.5))), "tiers"),
    ):
        with pytest.raises(InputError) as refused:
            wrong.table(100)
        assert refused.value.place == place
    with pytest.raises(InputError) as refused:
        Price("auction").table(3)  # type: ignore[arg-type]
    assert refused.value.code == "unknown-name"


def test_markets_that_cannot_be_read_are_refused(market: Market, tmp_path: Path) -> None:
    def broken(change: Any) -> str:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(market.folder, folder)  # type: ignore[arg-type]
        change(folder)
        with pytest.raises(InputError) as refused:
            Market.read(folder)
        return refused.value.code

    assert broken(lambda m: (m / "market.json").unlink()) == "not-found"
    assert broken(lambda m: (m / "market.json").write_text("{")) == "invalid-syntax"
    assert broken(lambda m: (m / "market.json").write_text("{}")) == "missing-key"
    assert broken(lambda m: (m / "market.json").write_text('{"sellers": []}')) == "empty-input"
    assert broken(lambda m: (m / "market.json").write_text('{"sellers": [{}]}')) == "missing-key"

    def auction(m: Path) -> None:
        text = (m / "market.json").read_text()
        (m / "market.json").write_text(text.replace('"setup"', '"auction"'))

    assert broken(auction) == "unknown-name"
    assert broken(lambda m: (m / "buyer.npz").write_bytes(b"")) == "unknown-format"
    assert broken(lambda m: (m / "summaries" / "fee.npz").unlink()) == "not-found"

    def changed(key: str, value: Any) -> str:
        def change(m: Path) -> None:
            with np.load(m / "summaries" / "fee.npz") as shown:
                arrays = dict(shown) | {key: value}
            np.savez(
                m / "summaries" / "fee.npz", **{k: v for k, v in arrays.items() if v is not None}
            )

        return broken(change)

    assert changed("correlation", None) == "missing-key"
    assert changed("correlation", np.full(6, np.nan)) == "invalid-value"
    assert changed("edges", np.zeros((6, 3))) == "invalid-value"
    assert changed("counts", np.ones((6, 10))) == "conflict"  # 10 rows, not 80
    assert changed("label_share", 2.0) == "out-of-range"
    assert changed("label_share", np.nan) == "invalid-value"
    assert changed("correlation", np.full(6, 100.0)) == "out-of-range"
    assert changed("edges", np.tile(np.arange(11.0)[::-1], (6, 1))) == "conflict"
    assert changed("edges", np.tile(np.arange(11) * 1e200, (6, 1))) == "out-of-range"
    assert changed("sample_x", np.full((5, 6), 99.0)) == "conflict"  # no row of the histograms
    assert changed("sample_x", np.full((5, 2), 0.0)) == "invalid-value"

    def listed(name: str, value: Any) -> Any:
        def change(m: Path) -> None:
            listing = json.loads((m / "market.json").read_text())
            listing["sellers"][0][name] = value
            (m / "market.json").write_text(json.dumps(listing))

        return change

    for name in ("../summaries/fee", "a/b", "/etc/passwd"):
        assert broken(listed("name", name)) == "invalid-value"
    assert broken(listed("rows", 10**12)) == "out-of-range"
    with pytest.raises(InputError) as refused:
        Market(market.sellers, rows(20, 0, 0)[0], np.arange(20) == 0)
    assert refused.value.code == "unsupported"
    for budget in (-1.0, float("nan")):
        with pytest.raises(InputError) as refused:
            plan_purchase(market, budget)
        assert refused.value.code == "out-of-range"


def test_a_seller_with_one_class_is_named(tmp_path: Path) -> None:
    x, y = rows(30, 0, 0)
    with pytest.raises(InputError) as refused:
        Market.build(tmp_path / "m", {"one": (x[y == 1], y[y == 1], Price(top=1))}, (x, y))
    assert (refused.value.code, refused.value.place) == ("no-data", "one")
    half = np.where(np.arange(30) == 4, np.nan, y)
    with pytest.raises(InputError) as refused:
        Market.build(tmp_path / "n", {"two": (x, half, Price(top=1))}, (x, y))
    assert (refused.value.code, refused.value.place) == ("invalid-value", "two, row 4")


def test_nothing_is_bought_without_money(market: Market) -> None:
    made = plan_purchase(market, 0)
    assert (made.buys, made.cost, made.expected_accuracy) == ([], 0, 0.5)


def test_a_purchase_pays_or_does_not_or_nobody_can_tell(market: Market) -> None:
    assert plan_purchase(market, 50).unknown == []  # surely better than guessing
    noise = [seller for seller in market.sellers if seller.name == "flipped"]
    nothing = plan_purchase(Market(noise, market.x, market.y), 50)
    assert (nothing.buys, nothing.unknown) == ([], [])
    few = plan_purchase(Market(market.sellers, market.x[:8], market.y[:8]), 50)
    assert few.buys
    assert [part.doubt for part in few.unknown] == [True]


def test_probes_leave_a_seller_that_does_not_hold_its_claim(tmp_path: Path) -> None:
    """The best claim of all is a lie: labels of that seller are coin tosses."""
    honest = Market.build(tmp_path / "m", SOLD, rows(200, 0.0, 6))
    liar = honest.sellers[2]
    shown = replace(liar.summary, correlation=honest.sellers[0].summary.correlation * 1.2)
    sellers = [replace(liar, summary=shown) if s is liar else s for s in honest.sellers]
    market = Market(sellers, honest.x, honest.y, honest.folder)
    x, y = rows(4000, 0.0, 7)
    blind, probed = plan_purchase(market, 60), plan_purchase(market, 60, "probe")
    assert (blind.doubted, list(blind.quantities)) == (None, ["noisy"])
    assert (probed.doubted, set(probed.quantities)) == (["noisy"], {"noisy", "good"})
    assert probed.cost <= 60
    assert evaluate_plan(market, probed, x, y) > evaluate_plan(market, blind, x, y) + 0.2
    # Where nobody lies, a probe costs nothing.
    same, single = (plan_purchase(honest, 60, name) for name in ("probe", "single"))
    assert (same.quantities, same.doubted, same.unknown) == (single.quantities, [], [])
    # What fits into the probe of a small budget cannot test a claim.
    few = plan_purchase(market, 1, "probe")
    assert (few.doubted, len(few.unknown), few.unknown[0].doubt) == ([], 1, True)
    with pytest.raises(InputError) as refused:
        plan_purchase(Market(market.sellers, market.x, market.y), 60, "probe")
    assert refused.value.code == "no-data"


LIES = [0.0, 1.0, -1.0, 0.5, 2.0, 1e9, 1e30, 1e60, 1e200, -1e308, float("inf"), float("nan")]


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(100))
def test_no_summary_hangs_or_crashes_a_plan(seed: int) -> None:
    """100 summaries each: any numbers in any place; a plan within the budget, or a refusal."""
    rng = np.random.default_rng(seed)
    honest = [Seller(f"s{n}", Price(top=9), Summary.of(*rows(30, 0.1, n, 3))) for n in range(3)]
    buyer = rows(40, 0, seed, 3)

    def late(*_: object) -> None:
        raise AssertionError("a plan takes too long")

    before = signal.signal(signal.SIGVTALRM, late)
    try:
        for _ in range(100):
            seller = honest[0]
            shown = {
                name: np.array(getattr(seller.summary, name), float)
                for name in ("edges", "counts", "correlation", "label_share", "sample_x")
            }
            for name in rng.choice(list(shown), rng.integers(1, 3)):
                flat = np.ravel(shown[name]).copy()
                places = rng.random(flat.size) < rng.choice([0.1, 1.0])
                flat[places] = rng.choice(LIES, places.sum()) * rng.choice([1.0, 1e-3])
                shown[name] = np.sort(flat) if rng.random() < 0.2 else flat
                shown[name] = shown[name].reshape(np.shape(getattr(seller.summary, name)))
            signal.setitimer(signal.ITIMER_VIRTUAL, 20)  # CPU seconds
            try:
                lie = replace(seller.summary, **shown)
                market = Market([replace(seller, summary=lie), *honest[1:]], *buyer)
                made = plan_purchase(market, 10, "summary", seed)
            except InputError:
                continue
            assert made.cost <= 10
            assert np.isfinite(made.expected_score)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
