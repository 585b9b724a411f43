"""Programs and windows against HiGHS, OSQP, and every plan on a grid."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from holdfast.carbon.planning import plan
from holdfast.carbon.policies import Window, efficient, fair, part_of
from holdfast.carbon.program import Program
from holdfast.carbon.rolling_horizon import rolling
from holdfast.carbon.signals import Signal
from holdfast.carbon.workloads import FEATURES, Load, Workload, WorkloadSpec

# --- The solver and its bound -----------------------------------------------------------------------


def random_program(seed: int, scale: float) -> tuple[Program, Any]:
    """Variables in boxes, some equalities and inequalities; and the same as matrices."""
    rng = np.random.default_rng(seed)
    n, rows = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    low, high = -rng.uniform(0, 2, n), rng.uniform(0, 2, n)
    a, one = rng.normal(size=(rows, n)).round(2), rng.normal(size=n).round(2)
    right, cost = rng.normal(size=rows), scale * rng.normal(size=n)
    program = Program()
    x = program.bounded(low, high)
    for row, limit in zip(a, right, strict=True):
        program.at_most.add(limit, (np.zeros(n), x, row))
    program.equal.add(0.1, (np.zeros(n), x, one))
    program.cost(x, cost)
    return program, (a, right, one, low, high, cost)


@given(st.integers(0, 2**20), st.sampled_from([1e-4, 1.0, 1e6]))
@pytest.mark.examples(20)
def test_linear_programs_are_those_of_highs(seed: int, scale: float) -> None:
    program, (a, right, one, low, high, cost) = random_program(seed, scale)
    bounds = list(zip(low, high, strict=True))
    expected = linprog(cost, a, right, one[None], [0.1], bounds)
    found = program.solve()
    assert (found is None) == (expected.status == 2)
    if found is None:
        return
    assert cost @ found.x == pytest.approx(expected.fun, abs=1e-7 * scale)
    bound = found.bound(float(cost @ found.x))
    assert bound <= expected.fun + 1e-12 * scale  # no feasible x is below it
    assert bound == pytest.approx(expected.fun, abs=1e-6 * scale)
    # And it is a bound whatever is known of the objective, such as that of a corner far away.
    assert found.bound(float(np.abs(cost) @ np.maximum(-low, high))) <= expected.fun + 1e-12 * scale


@pytest.mark.parametrize("seed", range(4))
def test_quadratic_programs_are_those_of_osqp(seed: int) -> None:
    program, (a, right, one, low, high, cost) = random_program(10 + seed, 1.0)
    squares = np.random.default_rng(seed).uniform(0, 3, len(cost)) * (np.arange(len(cost)) % 2)
    program.square(np.arange(len(cost)), squares)
    x = cp.Variable(len(cost))
    value = cost @ x + cp.sum(cp.multiply(squares / 2, cp.square(x)))
    limits = [a @ x <= right, one @ x == 0.1, x >= low, x <= high]
    expected = cp.Problem(cp.Minimize(value), limits).solve(
        solver=cp.OSQP, eps_abs=1e-9, eps_rel=1e-9, max_iter=200_000
    )
    found = program.solve()
    assert (found is None) == (not np.isfinite(expected))
    if found is not None:
        reached = float(cost @ found.x + squares @ found.x**2 / 2)
        assert reached == pytest.approx(expected, abs=1e-6)
        assert found.bound(reached) == pytest.approx(expected, abs=1e-6)


# --- Every plan of three hours ----------------------------------------------------------------------

GRID = np.linspace(-1, 1, 161)
PLANS = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
PLANS = np.c_[PLANS, -PLANS.sum(axis=1)]
"""Curtailments of three hours whose sum is zero, in shares of the power."""


def by_table(weights: dict[str, float], rate: float, slo_h: int, d: Any) -> Any:
    """The penalties of docs/carbon.md, feature by feature, hour by hour: [plan]."""
    total, put_off, jobs, square = np.zeros(len(d)), 0.0, 0.0, 0.0
    for hour in range(d.shape[1]):
        put_off, jobs = put_off + d[:, hour], jobs + rate * d[:, hour]
        square = square + rate * d[:, hour] ** 2
        total += weights.get("backlog_energy", 0) * np.maximum(put_off, 0)
        total += weights.get("backlog_jobs", 0) * np.maximum(jobs, 0)
        total += weights.get("curtailed_jobs", 0) * np.maximum(rate * d[:, hour], 0)
        total += weights.get("squared", 0) * square
        if hour < d.shape[1] - slo_h:  # followed by so many more hours
            total += weights.get("backlog_late", 0) * np.maximum(jobs, 0)
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ["efficient", "fair"])
def test_no_plan_on_a_grid_is_better(policy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = {name: float(w) for name, w in zip(FEATURES, 3 * rng.random(5), strict=True)}
    weights = {name: w for name, w in weights.items() if rng.random() < 0.6}
    power, grams = np.full(3, 10.0), rng.uniform(100, 500, 3)
    spec = WorkloadSpec(jobs=20.0, slo_h=1, weights=weights, max_power=14.0)
    part = part_of(Workload("w", power, spec), slice(0, 3), 0.5)
    d = 10 * PLANS
    d = d[((d <= 5) & (d >= -4)).all(axis=1)]
    penalties, cuts = by_table(weights, 2.0, 1, d), d @ grams
    for plan_d, value in zip(d[::997], penalties[::997], strict=True):
        assert part.penalty.value(plan_d) == pytest.approx(value)
    window, strength = Window((part,), grams, 0), 0.05 + 0.2 * seed
    if policy == "efficient":
        [found] = efficient([window], strength)
        best = float((penalties - strength * cuts).min())
        [value] = by_table(weights, 2.0, 1, found.d[0][None]) - strength * found.d[0] @ grams
    else:
        [found] = fair([window], strength)
        best = -float(cuts[penalties <= strength * 30].max())
        value = -found.d[0] @ grams
        assert by_table(weights, 2.0, 1, found.d[0][None])[0] <= strength * 30 * (1 + 1e-6) + 1e-9
    assert found.objective == pytest.approx(value, abs=1e-6 * max(abs(value), 1))
    assert value <= best + 1e-6  # at least as good as any on the grid,
    assert best - value <= 0.125 * 3 * 600 * max(strength, 1)  # and the grid is fine
    assert found.bound <= value + 1e-9
    assert found.bound == pytest.approx(value, rel=1e-5, abs=1e-6)


@given(st.integers(0, 2**16), st.floats(0.001, 1.0))
def test_what_pays_in_every_hour_alike_by_trying_all(seed: int, price: float) -> None:
    """A signal that never changes: the best share of an hour's power, of a thousand."""
    rng = np.random.default_rng(seed)
    knots = np.r_[0.0, np.sort(rng.uniform(0.02, 0.4, 3))]
    rises = np.r_[0.0, np.cumsum(np.diff(knots) * np.sort(rng.uniform(0, 90, 3)))]
    spec = WorkloadSpec("online", flex=0.4, curve=list(zip(knots, rises, strict=True)))
    power = rng.uniform(1, 9, 5)
    part = part_of(Workload("w", power, spec), slice(0, 5), 0.4)
    grams = rng.uniform(100, 500, 5)
    [found] = Window((part,), grams, 0).without_signal(price)
    shares = np.linspace(0, part.high[0] / power[0], 1001)
    for hour in range(5):
        costs = np.interp(shares, knots, rises)

        def value(share: Any) -> Any:
            return np.interp(share, knots, rises) - price * grams.mean() * share * power[hour]  # noqa: B023

        assert value(found[hour] / power[hour]) <= value(shares).min() + 1e-9
        assert costs[0] == 0
    [free] = Window((part,), grams, 0).without_signal(0.0)
    assert np.interp(free / power, knots, rises) == pytest.approx(0, abs=1e-6)


# --- Plans that are made anew every day --------------------------------------------------------------


def test_a_rolling_plan_is_a_chain_of_linear_programs() -> None:
    """HiGHS, horizon by horizon: what a day puts off is due by the end of the next one."""
    rng = np.random.default_rng(6)
    hours, flex, cap = 120, 0.3, 70.0
    power = rng.uniform(35, 50, hours)
    grams = rng.uniform(100, 500, hours)

    def guess(known: Any, count: int) -> Any:  # of which one plan is the best
        return np.random.default_rng(len(known)).uniform(100, 500, count)

    load, signal = Load((Workload("w", power),)), Signal(grams, 0, "marginal")
    made = rolling(load, signal, flex=flex, cap=cap, forecast=guess)
    for name in ("plan", "oracle"):
        due, used = 0.0, []
        for first in range(0, hours, 24):
            last = min(first + 48, hours)
            known = grams[:first], last - first
            seen = guess(*known) if name == "plan" else grams[first:last]
            bounds = [(p - cap, flex * p) for p in power[first:last]]
            found = linprog(-seen, A_eq=np.ones((1, last - first)), b_eq=[-due], bounds=bounds)
            assert found.success
            due += found.x[:24].sum()
            used += found.x[:24].tolist()
        saved = float(grams @ used / (grams @ power))
        if name == "plan":
            assert made.saved_share == pytest.approx(saved, abs=1e-6)
            assert made.after.sum() == pytest.approx(power.sum())
        else:
            assert made.extra["saved_share_oracle"] == pytest.approx(saved, abs=1e-6)
    assert (made.after[0] <= cap + 1e-6).all()
    assert (made.after[0] >= (1 - flex) * power - 1e-6).all()


@given(st.integers(0, 2**16), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_of_power_and_signal_change_no_share(seed: int, mw: float, unit: float) -> None:
    rng = np.random.default_rng(seed)
    power, grams = rng.uniform(5, 9, (2, 24)), rng.uniform(100, 500, 24)

    def saved(power: Any, grams: Any, cap: float) -> float:
        load = Load(tuple(Workload(f"{n}", each) for n, each in enumerate(power)))
        made = plan(load, Signal(grams, 0, "marginal"), cap=cap)
        assert made.gap <= 1e-6
        return made.saved_share

    expected = saved(power, grams, 20.0)
    assert saved(mw * power, unit * grams, mw * 20.0) == pytest.approx(expected, rel=1e-6)
    assert saved(power[::-1], grams, 20.0) == pytest.approx(expected, rel=1e-6)
    assert saved(power[:, ::-1], grams[::-1], 20.0) == pytest.approx(expected, rel=1e-6)
    # A workload in two halves is the same site.
    halves = np.concatenate([power / 2, power / 2])
    assert saved(halves, grams, 20.0) == pytest.approx(expected, rel=1e-6)
