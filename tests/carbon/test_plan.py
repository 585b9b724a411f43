"""Plans against closed forms, CVXPY's own formulation, and an independent linear program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from holdfast.carbon.comparing import BASELINES, best_baseline, compare
from holdfast.carbon.formats import read_signal
from holdfast.carbon.planning import Plan, fairness, plan
from holdfast.carbon.policies import Window, efficient, fair, part_of
from holdfast.carbon.problems import aligned
from holdfast.carbon.rolling_horizon import recent_days, rolling
from holdfast.carbon.signals import FloatArray, Signal
from holdfast.carbon.workloads import (
    FEATURES,
    Load,
    Workload,
    WorkloadSpec,
    lost_throughput,
    read_load,
    segments,
)
from holdfast.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "carbon"
WATTS = ((98, 0.518), (122, 0.694), (147, 0.847), (172, 0.912), (196, 0.95), (208, 0.981), (220, 1))
WEIGHTS = {"backlog_jobs": 0.02, "squared": 0.05, "curtailed_jobs": 0.3, "backlog_late": 0.06}
# % CO2 cut of 100 MW, by a linear program of HiGHS: flex, cap -> (area: day, week).
REDUCTIONS = {
    (0.1, 125): {"CISO": (3.04, 3.28), "ERCO": (1.22, 1.99), "PJM": (0.43, 0.66)},
    (0.4, 125): {"CISO": (5.41, 6.37), "ERCO": (2.65, 4.22), "PJM": (0.83, 1.30)},
    (0.4, 200): {"CISO": (12.14, 13.11), "ERCO": (4.87, 7.96), "PJM": (1.70, 2.65)},
}


def signal_of(values: Any, start_s: int = 0) -> Signal:
    return Signal(np.asarray(values, float), start_s, "marginal")


def constant(hours: int, power: float = 100.0, **spec: Any) -> Load:
    return Load((Workload("site", np.full(hours, power), WorkloadSpec(**spec)),))


def mixture(hours: int) -> tuple[Workload, ...]:
    day = np.sin(2 * np.pi * np.arange(hours) / 24)
    specs = {
        "batch": (
            np.full(hours, 30.0),
            WorkloadSpec(max_power=45, jobs=900, slo_h=6, weights=WEIGHTS),
        ),
        "etl": (
            12 + 4 * day,
            WorkloadSpec(jobs=300, weights={"backlog_energy": 1.0, "squared": 0.2}),
        ),
        "web": (
            25 - 6 * day,
            WorkloadSpec("online", flex=0.2, curve=[(0, 0), (0.05, 0), (0.1, 10), (0.2, 60)]),
        ),
        "training": (np.full(hours, 20.0), WorkloadSpec("training", jobs=64, curve=list(WATTS))),
    }
    return tuple(Workload(name, power, spec) for name, (power, spec) in specs.items())


def window(hours: int = 24, cap: float | None = None, seed: int = 0) -> Window:
    grams = np.random.default_rng(seed).uniform(100, 500, hours)
    parts = tuple(part_of(each, slice(0, hours), 0.4) for each in mixture(hours))
    return Window(parts, grams, 0, None if cap is None else np.full(hours, cap))


def closed_form(grams: FloatArray, power: float, flex: float, cap: float) -> float:
    """Saved share of one window: a fractional knapsack, the cleanest hours filled first."""
    left = flex * power * len(grams)
    used = np.full(len(grams), (1 - flex) * power)
    for hour in np.argsort(grams):
        used[hour] += min(left, cap - used[hour])
        left -= used[hour] - (1 - flex) * power
    return 1 - float(used @ grams) / (power * float(grams.sum()))


@pytest.mark.parametrize("flex_cap", REDUCTIONS)
@pytest.mark.parametrize(
    "area", ["CISO", *(pytest.param(n, marks=pytest.mark.full) for n in ("ERCO", "PJM"))]
)
def test_reductions_of_an_independent_linear_program(
    area: str, flex_cap: tuple[float, float], shared_data: Path
) -> None:
    path = shared_data / "carbon" / "eia930_2022" / f"{area}_2022_hourly.csv"
    signal, (flex, cap) = read_signal(path), flex_cap
    for days, expected in zip((1, 7), REDUCTIONS[flex_cap][area], strict=True):
        made = plan(constant(8760), signal, flex=flex, cap=cap, window_s=days * 86400)
        assert 100 * made.saved_share == pytest.approx(expected, abs=0.01)
        assert made.gap <= 1e-6
        assert made.hours_left_out == 8760 % (24 * days)
        assert made.after.sum() == pytest.approx(
            made.before.sum(), rel=1e-12
        )  # shifted, not dropped


@pytest.mark.parametrize(("flex", "cap"), REDUCTIONS)
@pytest.mark.parametrize("hours", [24, 168])
def test_fractional_knapsack(flex: float, cap: float, hours: int) -> None:
    signal = read_signal(EXAMPLES / "CISO_2022-05.csv")
    made = plan(constant(336), signal, flex=flex, cap=cap, window_s=3600 * hours)
    blocks = signal.interpolated().values.reshape(-1, hours)
    shares = [closed_form(block, 100.0, flex, cap) for block in blocks]
    assert made.saved_share == pytest.approx(
        np.average(shares, weights=blocks.sum(axis=1)), rel=1e-9
    )
    assert made.gap <= 1e-6
    assert made.after.max() <= cap + 1e-6
    assert made.after.min() >= (1 - flex) * 100 - 1e-9


def test_quadratic_penalty_in_closed_form() -> None:
    # min sum a_t d^2 / 2 - p g d, sum d = 0: d = (p g - m) / a with m such that d sums to zero.
    hours, price = 12, 2e-4
    grams = np.random.default_rng(3).uniform(200, 400, hours)
    load = constant(hours, jobs=50, weights={"squared": 0.01})
    made = plan(
        load, signal_of(grams), flex=1.0, cap=200, window_s=3600 * hours, strength=1000 * price
    )
    a = 2 * 0.01 * (hours - np.arange(hours)) * 50 / 100
    m = (price * grams / a).sum() / (1 / a).sum()
    d = (price * grams - m) / a
    assert np.abs(d).max() < 100  # no limit binds, so the formula holds
    assert made.before[0] - made.after[0] == pytest.approx(d, abs=1e-5)
    assert made.penalty == pytest.approx((a * d * d / 2).sum(), rel=1e-6)
    assert made.gap <= 1e-6


def oracle(window: Window, price: float, limit: float | None = None) -> float:
    """The optimum as CVXPY finds it from the formulas of the documentation."""
    total, constraints, used = 0, [], 0
    for part, workload in zip(window.parts, mixture(len(window.grams)), strict=True):
        d, spec, mean = cp.Variable(len(part.power)), workload.spec, workload.power.mean()
        cost, owed = 0, 0
        if spec.kind == "batch":
            constraints.append(cp.sum(d) == 0)
            rate, sums = spec.jobs / mean, cp.cumsum(d)
            w = {name: spec.weights.get(name, 0.0) for name in ("backlog_energy", *WEIGHTS)}
            late = (
                cp.sum(cp.pos(rate * sums[: len(part.power) - spec.slo_h]))
                if w["backlog_late"]
                else 0
            )
            cost = (
                w["backlog_jobs"] * cp.sum(cp.pos(rate * sums))
                + w["backlog_energy"] * cp.sum(cp.pos(sums))
                + w["squared"] * cp.sum(cp.cumsum(rate * cp.square(d)))
                + w["curtailed_jobs"] * cp.sum(rate * cp.pos(d))
                + w["backlog_late"] * late
            )
        else:
            points = list(spec.curve)
            if spec.kind == "training":
                points = [(1 - w / 220, 1 - y) for w, y in reversed(WATTS)]
                points = [p for p in points if p[0] != 1 - 196 / 220]  # above the hull
            x = cp.multiply(1 / part.power, d)
            pieces = [
                y0 + (y1 - y0) / (x1 - x0) * (x - x0) for (x0, y0), (x1, y1) in pairwise(points)
            ]
            lost = cp.sum(cp.maximum(0, *pieces))
            cost = lost * (spec.jobs if spec.kind == "training" else 1.0)
            owed = lost * mean if spec.kind == "training" else 0
        constraints += [d >= part.low, d <= part.high]
        used = used + part.power - d
        if limit is not None:
            constraints.append(cost <= limit * part.entitlement)
        cut = window.grams @ d - window.later * owed
        total = total + (cost if limit is None else 0) - price * cut
    if window.limit is not None:
        constraints.append(used <= window.limit)
    return float(cp.Problem(cp.Minimize(total), constraints).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("cap", [None, 95.0])
@pytest.mark.parametrize("price", [0.02, 0.2])
def test_efficient_is_what_cvxpy_finds(price: float, cap: float | None) -> None:
    [found], expected = efficient([window(cap=cap)], price), oracle(window(cap=cap), price)
    assert found.objective == pytest.approx(expected, rel=1e-6)
    assert found.bound <= expected + 1e-6 * abs(expected)  # a bound from below, and a tight one
    assert found.objective - found.bound <= 1e-6 * abs(found.objective)
    if cap is not None:
        used = window().total - np.sum(found.d, axis=0)
        assert used.max() <= cap + 1e-6


def test_fair_is_what_cvxpy_finds() -> None:
    at, limit = window(), 0.2
    [found] = fair([at], limit)
    assert found.objective == pytest.approx(oracle(at, 1.0, limit), rel=1e-5)
    assert found.objective - found.bound <= 1e-5 * abs(found.objective)
    for part, d in zip(at.parts, found.d, strict=True):
        assert part.penalty.value(d) <= limit * part.entitlement * (1 + 1e-5)


def test_two_identical_workloads_are_treated_alike() -> None:
    spec = WorkloadSpec(jobs=50, weights={"squared": 0.02, "backlog_jobs": 0.01})
    pair = tuple(Workload(name, np.full(24, 50.0), spec) for name in "ab")
    signal = signal_of(np.random.default_rng(2).uniform(100, 500, 24))
    for policy, strength in (("efficient", 100.0), ("fair", 0.5)):
        options: dict[str, Any] = {"policy": policy, "strength": strength, "cap": 150.0}
        made = plan(Load(pair), signal, **options)
        assert made.penalty > 0
        assert made.after[0] == pytest.approx(made.after[1], abs=1e-3)
        assert made.jain == pytest.approx(1.0, abs=1e-5)


def test_fairness_by_hand() -> None:
    assert fairness(np.array([3.0, 1.0]), np.array([1.0, 1.0])) == pytest.approx(16 / 20)
    assert fairness(np.zeros(2), np.ones(2)) is None


def test_training_that_is_put_off_is_charged_later() -> None:
    load = constant(4, 10.0, kind="training", curve=[(50, 0.6), (100, 1.0)])
    made = plan(load, signal_of([400, 100, 100, 100]), flex=0.5, strength=1e9, window_s=4 * 3600)
    # Half the power loses 40 % of the throughput: 4 of 10 MWh come back at the mean of 175 g/kWh.
    assert made.before[0] - made.after[0] == pytest.approx([5, 0, 0, 0], abs=1e-6)
    assert made.mwh_owed[0] == pytest.approx(4.0)
    assert made.kg_before - made.kg_after == pytest.approx(5 * 400 - 4 * 175)


def test_measured_throughput_stays_on_its_hull() -> None:
    hull = lost_throughput(WATTS)
    assert hull[0] == (0.0, 0.0)
    assert hull[-1] == (pytest.approx(1 - 98 / 220), pytest.approx(0.482))
    slopes = np.diff([y for _, y in hull]) / np.diff([x for x, _ in hull])
    assert (np.diff(slopes) > 0).all()
    for watts, rate in WATTS:
        at = np.interp(1 - watts / 220, *zip(*hull, strict=True))
        assert at <= 1 - rate + 1e-12
    assert segments([(0, 0), (1, 1), (2, 3)]) == [(0, 1), (1, 1)]


def refusal(**options: Any) -> InputError:
    load = options.pop("load", None) or constant(24)
    signal = options.pop("signal", None) or signal_of(np.arange(24.0) + 100)
    with pytest.raises(InputError) as caught:
        plan(load, signal, **options)
    return caught.value


def test_infeasible_limits_say_which_when_and_by_how_much() -> None:
    error = refusal(cap=50.0)
    assert error.code == "infeasible"
    assert error.place is not None
    assert error.place.startswith("1970-01-01T")
    assert error.found is not None
    assert error.found.startswith("1200 MWh")  # 24 h x 50 MW: the energy does not fit
    load = Load((Workload("web", np.r_[np.full(23, 10.0), 100.0]),))
    error = refusal(load=load, cap=50.0)
    assert (error.code, error.place) == ("infeasible", "1970-01-01T23:00:00Z")
    error = refusal(load=constant(24, max_power=90.0))
    assert (error.code, error.place) == ("infeasible", "site, max_power")


FALLING = {"kind": "online", "curve": [(0, 0), (0.1, 2), (0.2, 3)]}
ONE_POWER = {"kind": "training", "curve": [(100, 0.5)]}


@pytest.mark.parametrize(
    ("options", "code", "place"),
    [
        ({"window_s": 5400.0}, "out-of-range", "--window"),
        ({"window_s": 7 * 86400.0}, "out-of-range", "--window"),
        ({"load": Load(mixture(24), 3600 * 100)}, "no-match", None),
        ({"load": Load(mixture(24))}, "missing-key", "--strength"),
        ({"load": constant(24, **FALLING), "strength": 1.0}, "not-convex", "curve at 0.1"),
        ({"load": constant(24, **ONE_POWER), "strength": 1.0}, "invalid-value", "curve"),
    ],
)
def test_refused(options: dict[str, Any], code: str, place: str | None) -> None:
    error = refusal(**options)
    assert (error.code, error.place) == (code, place)


def test_hours_without_power() -> None:
    power = np.r_[np.zeros(6), np.full(18, 40.0)]
    grams = np.r_[np.full(6, 50.0), np.full(18, 500.0)]
    load = Load((Workload("etl", power, WorkloadSpec(jobs=9, weights={"backlog_jobs": 0.1})),))
    made = plan(load, signal_of(grams), strength=1e6, flex=0.5, cap=100)
    assert made.after.sum() == pytest.approx(720)
    assert made.after[0, :6].sum() == pytest.approx(0.5 * 720)  # work moves into empty hours
    assert np.isfinite(made.penalty)


def test_the_forecast_sees_the_past_only_and_loses_little() -> None:
    signal = read_signal(EXAMPLES / "CISO_2022-05.csv")
    load = read_load(EXAMPLES / "load.csv", penalties=EXAMPLES / "penalties.toml")
    seen: list[int] = []

    def forecast(known: FloatArray, hours: int) -> FloatArray:
        seen.append(len(known))
        return recent_days(known, hours)

    made = rolling(load, signal, strength=60.0, forecast=forecast)
    assert seen == list(range(0, 336, 24))
    assert made.extra["kept_share"] >= 0.8  # the first day has no past; a year: the benchmark
    assert made.extra["regret"] >= 0
    batch = made.names.index("batch")
    assert made.after[batch].sum() == pytest.approx(
        made.before[batch].sum()
    )  # nothing is left over
    assert made.gap <= 1e-6
    perfect = rolling(
        load, signal, strength=60.0, forecast=lambda k, n: _truth(signal)[len(k) :][:n]
    )
    assert perfect.extra["kept_share"] == pytest.approx(1.0)
    assert perfect.extra["regret"] == pytest.approx(0.0, abs=1e-6)
    assert perfect.saved_share == pytest.approx(made.extra["saved_share_oracle"])


def test_of_a_cut_that_does_not_pay_no_share_is_kept() -> None:
    load = constant(72, weights={"curtailed_jobs": 1e3})
    made = rolling(load, read_signal(EXAMPLES / "CISO_2022-05.csv"), strength=1e-3)
    assert made.saved_share == pytest.approx(0.0, abs=1e-9)
    assert made.extra["kept_share"] is None


def _truth(signal: Signal) -> FloatArray:
    return signal.interpolated().values


def test_recent_days_by_hand() -> None:
    known = np.r_[np.zeros(24), np.arange(24.0)]  # level 5.75 above the mean of both days
    assert recent_days(known, 30)[:24] == pytest.approx(np.arange(24.0) / 2 + 5.75)
    assert recent_days(np.array([2.0, 4.0]), 3) == pytest.approx(3.0)


@pytest.mark.full
def test_all_policies_at_the_same_total_penalty() -> None:
    hours = 24
    signal = read_signal(EXAMPLES / "CISO_2022-05.csv")
    made = compare(Load(mixture(hours)), signal, levels=(0.4,))
    rows = {row["policy"]: row for row in made.rows}
    assert set(rows) == {"efficient", "fair", *BASELINES}
    best = rows["efficient"]["saved_share"]
    for row in rows.values():
        assert row["penalty"] <= rows["efficient"]["penalty"] * 1.002
        assert row["saved_share"] <= best * 1.001  # the optimum is one
        assert row["equal_penalty"] == (row["penalty"] >= 0.998 * rows["efficient"]["penalty"])
    assert rows["fair"]["jain"] > rows["efficient"]["jain"]


def test_baselines_conserve_energy_and_respect_the_cap() -> None:
    problem = aligned(Load(mixture(48)), read_signal(EXAMPLES / "CISO_2022-05.csv"))
    windows = problem.windows(86400.0, 0.4, problem.limit(110.0))
    for name in BASELINES:
        d = best_baseline(windows, name, 1e12)
        moved = 0.0
        for at, group in zip(windows, d, strict=True):
            for part, each in zip(at.parts, group, strict=True):
                assert abs(each.sum()) < 1e-6 or not part.conserves
                assert (each <= part.high + 1e-9).all()
                moved += float(np.abs(each).sum())
            assert (at.total - np.sum(group, axis=0)).max() <= 110 + 1e-6
        assert moved > 0


def test_saved_answer_and_page() -> None:
    signal = read_signal(EXAMPLES / "CISO_2022-05.csv")
    load = read_load(EXAMPLES / "load.csv", penalties=EXAMPLES / "penalties.toml")
    made: Plan = plan(load, signal, strength=60.0)
    document = made.document()
    assert document["data"]["notes"] == ["1 hour without a value interpolated."]
    assert [section["id"] for section in document["sections"]] == ["power", "site", "workloads"]
    shares = [row["kg_cut"] for row in made.by_workload.to_pylist()]
    assert sum(shares) == pytest.approx(made.kg_before - made.kg_after)


def test_weights_that_differ_by_powers_of_ten_do_not_stop_short() -> None:
    """No feasible plan, such as a baseline's, saves more at the same penalty."""
    hours = 72
    rng = np.random.default_rng(0)
    heavy = {"backlog_jobs": 0.18, "curtailed_jobs": 1.73}
    specs = [WorkloadSpec(jobs=1e6, max_power=60.0, scale=s, weights=heavy) for s in (1e-3, 4e-3)]
    load = Load(tuple(Workload(f"w{n}", np.full(hours, 40.0), s) for n, s in enumerate(specs)))
    grams = 700 + 30 * np.sin(np.arange(hours) / 4) + rng.normal(0, 5, hours)
    made = plan(load, signal_of(grams), strength=1e4)
    assert made.gap < 1e-9


def random_load(seed: int, squares: bool) -> tuple[Load, Signal, float]:
    """Work of every kind whose weights lie between 1e-4 and 1e4, a signal, and a strength."""
    rng, hours = np.random.default_rng(seed), 48
    day = np.sin(2 * np.pi * np.arange(hours) / 24)
    weights, scale = 10 ** rng.uniform(-4, 4, (3, 5)), 10 ** rng.uniform(-4, 4)
    batch = [
        WorkloadSpec(
            jobs=300,
            max_power=60.0 if n else None,
            slo_h=12,
            weights={
                k: float(w) for k, w in zip(FEATURES, row, strict=True) if squares or k != "squared"
            },
        )
        for n, row in enumerate(weights)
    ]
    knots = np.array([0.0, 0.05, 0.1, 0.2])
    latency = np.cumsum(np.r_[0.0, np.diff(knots) * np.sort(10 ** rng.uniform(-4, 4, 3))])
    online = WorkloadSpec("online", flex=0.2, curve=list(zip(knots, latency, strict=True)))
    training = WorkloadSpec("training", jobs=64, curve=list(WATTS), scale=scale)
    workloads = [Workload(f"batch {n}", 30 + 9 * day, spec) for n, spec in enumerate(batch)]
    workloads += [
        Workload("web", 25 - 6 * day, online),
        Workload("ai", np.full(hours, 20.0), training),
    ]
    return Load(tuple(workloads)), signal_of(rng.uniform(100, 500, hours)), 10 ** rng.uniform(-1, 5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("policy", ["efficient", "fair"])
def test_gaps_with_weights_over_eight_powers_of_ten(policy: Any, squares: bool) -> None:
    for seed in range(8):
        load, signal, strength = random_load(seed, squares)
        strength *= 1.0 if policy == "efficient" else 1e-3
        cap = None if seed % 2 else 0.95 * float(sum(w.power for w in load.workloads).max())
        if policy == "fair":
            cap = None  # no plan keeps some of these limits below a cap
        made = plan(load, signal, policy=policy, strength=strength, cap=cap)
        assert made.gap <= 1e-6, seed


def test_a_steep_penalty_does_not_disturb_the_plan_of_other_work() -> None:
    """A penalty that nothing pays for moves nothing, beside one that is free."""
    grams = np.random.default_rng(4).uniform(100, 500, 24)
    steep = WorkloadSpec(jobs=100, weights={"squared": 1e4, "backlog_jobs": 1e4})
    free = WorkloadSpec(jobs=100, weights={"backlog_jobs": 1e-4})
    pair = Load(
        (Workload("steep", np.full(24, 50.0), steep), Workload("free", np.full(24, 50.0), free))
    )
    made = plan(pair, signal_of(grams), strength=1.0)
    alone = plan(Load(pair.workloads[1:]), signal_of(grams), strength=1.0)
    assert made.after[1] == pytest.approx(alone.after[0], abs=1e-5)
    assert made.after[0] == pytest.approx(50, abs=1e-4)
    assert made.gap <= 1e-7


def test_a_plan_that_is_not_proven_says_so() -> None:
    made = plan(constant(24), signal_of(np.arange(24.0) + 100), cap=125)
    loose = replace(made, bound=made.bound - 1e-3 * abs(made.objective))
    assert "1e-06" in made.headline
    assert "stopped short" in loose.headline
    assert loose.gap == pytest.approx(1e-3)


def test_headroom_that_is_free_is_used_at_any_level() -> None:
    curve = [(0.0, 0.0), (0.1, 0.0), (0.2, 5.0)]
    web = Workload("web", np.full(24, 50.0), WorkloadSpec("online", flex=0.2, curve=curve))
    made = compare(Load((web,)), signal_of(np.arange(24.0) + 300), levels=(0.1,))
    own = made.rows[0]
    # 10 % are free, 20 % the most; levels count from what is free on.
    assert (made.free_share, own["saved_share"]) == pytest.approx((0.1, 0.11))
    rows = {row["policy"]: row for row in made.rows}
    assert (
        rows["no signal"]["beyond_free"] > 0.9 * own["beyond_free"]
    )  # where nothing is moved in time
    assert all(row["saved_share"] >= 0.1 - 1e-9 for row in made.rows)


def test_limits_of_fairness_that_a_cap_contradicts_are_named() -> None:
    load, signal, _ = random_load(7, squares=False)
    error = refusal(load=load, signal=signal, policy="fair", strength=1e-6, cap=90.0)
    assert error.code == "infeasible"
    assert error.expected is not None
    assert "penalty" in error.expected
