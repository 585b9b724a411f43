"""ETTR against the published vectors, Lambert's W, a step-by-step simulation and brute-force search."""

from __future__ import annotations

import dataclasses
import inspect
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from holdfast.errors import InputError
from holdfast.fleet import ettr_monte_carlo
from holdfast.fleet.checkpoint_interval import (
    daly_interval,
    optimal_checkpoint_interval,
    young_interval,
)
from holdfast.fleet.ettr_forms import (
    EttrParameters,
    ettr,
    expected_ettr,
    long_run_ettr,
    optimal_ettr,
)
from holdfast.fleet.ettr_monte_carlo import monte_carlo_ettr
from holdfast.fleet.ettr_solve import solve

MINUTE = 60.0


def in_minutes(nodes, rate, dt, u0=5.0, w=0.0, q=0.0, productive=None):
    return EttrParameters(
        nodes,
        rate,
        dt * MINUTE,
        u0 * MINUTE,
        w * MINUTE,
        q * MINUTE,
        None if productive is None else productive * MINUTE,
    )


def result_of(p: EttrParameters):
    return ettr(
        p.nodes,
        p.rate_per_node_day,
        p.checkpoint_interval_s,
        init_s=p.init_s,
        write_s=p.write_s,
        queue_s=p.queue_s,
        productive_s=p.productive_s,
    )


@pytest.mark.parametrize(
    ("parameters", "v2", "exact"),
    [
        (in_minutes(2000, 6.5e-3, 60), 0.6840, 0.7202),
        (in_minutes(2000, 6.5e-3, 5), 0.9323, 0.9345),
        (in_minutes(1000, 6.5e-3, 30, q=1), 0.9056, 0.9089),
        (in_minutes(12500, 2.34e-3, 2, u0=2), 0.9391, 0.9408),
        (in_minutes(1500, 6.5e-3, 38.431, w=5), 0.7398, 0.7358),
    ],
)
def test_published_vectors(parameters, v2, exact):
    result = result_of(parameters)
    assert result.v2 is not None
    assert round(result.v2, 4) == v2
    assert round(result.exact, 4) == exact


def test_published_optima():
    five = result_of(in_minutes(1500, 6.5e-3, 60, w=5)).to_dict()
    assert round(five["young_checkpoint_minutes"], 3) == 38.431
    assert round(five["optimal_checkpoint_minutes"], 3) == 35.172
    assert round(five["optimal_ettr"], 5) == 0.73649
    ten_seconds = result_of(in_minutes(1500, 6.5e-3, 60, w=1 / 6)).to_dict()
    assert round(ten_seconds["optimal_checkpoint_minutes"], 3) == 6.906
    assert round(ten_seconds["optimal_ettr"], 5) == 0.92151


def test_full_form_of_a_week():
    result = result_of(in_minutes(128, 6.5e-3, 60, w=5, q=10, productive=10080))
    assert result.full is not None
    assert f"{result.full:.5f}" == "0.89800"
    # The whole run by the exact model pays the same first start, and full is its first order.
    assert result.exact_finite == pytest.approx(result.full, abs=2e-3)
    assert result.exact_finite < result.exact
    assert result.recommended == result.exact_finite


def test_contract_of_the_command():
    answer = ettr(2000, 6.5e-3, 3600).to_dict()
    assert list(answer) == [
        "v2",
        "full",
        "exact",
        "young_checkpoint_minutes",
        "optimal_checkpoint_minutes",
        "optimal_ettr",
        "assumptions",
    ]
    assert answer["assumptions"]["init_minutes"] == 5
    # Without a write time there is no best interval: null, not an interval of 0.
    assert answer["young_checkpoint_minutes"] is None
    assert answer["optimal_checkpoint_minutes"] is None
    assert answer["assumptions"]["daly_checkpoint_minutes"] is None
    assert answer["optimal_ettr"] == pytest.approx(math.exp(-2000 * 6.5e-3 / 1440 * 5))
    assert any("--write" in note for note in answer["assumptions"]["notes"])
    assert any("0.32" in note for note in answer["assumptions"]["notes"])


def test_no_failures():
    result = ettr(2000, 0.0, 3600, write_s=60)
    assert result.exact == pytest.approx(60 / 61)
    assert result.v2 == pytest.approx(60 / 61)
    assert result.young_interval_s is None
    assert result.daly_interval_s is None
    assert result.optimal_interval_s is None
    assert result.optimal_ettr == 1
    finite = expected_ettr(
        2000, 0.0, 3600, write_s=60, queue_s=100, productive_s=9000, form="exact_finite"
    )
    assert finite == pytest.approx(9000 / (100 + 300 + 9000 + 3 * 60))
    tiny = expected_ettr(
        2000, 1e-300, 3600, write_s=60, queue_s=100, productive_s=9000, form="exact_finite"
    )
    assert tiny == pytest.approx(finite)


@given(
    nodes=st.floats(1, 1e6),
    rate=st.floats(0, 1e3),
    interval=st.floats(1e-3, 1e7),
    init=st.floats(0, 1e6),
    write=st.floats(0, 1e6),
    queue=st.floats(0, 1e7),
    productive=st.none() | st.floats(1, 1e8),
)
def test_never_outside_zero_to_one(nodes, rate, interval, init, write, queue, productive):
    result = ettr(
        nodes,
        rate,
        interval,
        init_s=init,
        write_s=write,
        queue_s=queue,
        productive_s=productive,
    )
    for value in (result.v2, result.full, result.exact, result.exact_finite, result.optimal_ettr):
        assert value is None or 0 <= value <= 1
    assert result.exact <= result.optimal_ettr * (1 + 1e-9)


def test_outside_the_range_of_the_first_order_forms():
    result = ettr(100_000, 6.5e-3, 3600)
    assert result.v2 is None
    assert result.full is None
    assert 0 < result.exact < 0.1
    assert any("not given" in note for note in result.notes)
    with pytest.raises(InputError, match="outside its range"):
        expected_ettr(100_000, 6.5e-3, 3600, form="v2")
    assert expected_ettr(10_000_000, 1.0, 36000) == pytest.approx(0, abs=1e-100)


def test_finite_run_tends_to_the_long_run():
    setting = {"init_s": 300.0, "write_s": 60.0, "queue_s": 120.0}
    long_run = expected_ettr(2000, 6.5e-3, 1800, **setting)
    for factor, tolerance in ((10, 0.05), (1000, 5e-4), (100_000, 5e-6)):
        finite = expected_ettr(
            2000, 6.5e-3, 1800, **setting, productive_s=1800.0 * factor, form="exact_finite"
        )
        assert finite == pytest.approx(long_run, abs=tolerance)
        assert finite < long_run


def test_finite_run_of_one_interval_in_closed_form():
    # One interval from submission: V = q e^{Lt} + (e^{Lt} - 1)/L with t = u0 + R + w.
    rate, t, queue = 2000 * 6.5e-3 / 86400, 300 + 1000 + 60, 120
    wall = queue * math.exp(rate * t) + math.expm1(rate * t) / rate
    value = expected_ettr(
        2000,
        6.5e-3,
        1800,
        write_s=60,
        queue_s=120,
        productive_s=1000,
        form="exact_finite",
    )
    assert value == pytest.approx(1000 / wall, rel=1e-12)


def walk_one_run(rng: random.Random, p: EttrParameters) -> float:
    """Wall time of one run, phase by phase, with the clock of the failures running in each."""
    assert p.productive_s is not None
    wall, saved = 0.0, 0.0
    while True:
        wall += p.queue_s
        until_failure = rng.expovariate(p.failures_per_s)
        running = p.init_s
        while running <= until_failure and saved < p.productive_s:
            step = min(p.checkpoint_interval_s, p.productive_s - saved)
            running += step + p.write_s
            if running <= until_failure:
                saved += step
        if saved >= p.productive_s:
            return wall + running
        wall += until_failure


@pytest.mark.parametrize(
    "p",
    [
        in_minutes(2000, 6.5e-3, 60, productive=1000),
        in_minutes(1500, 6.5e-3, 35, w=5, q=3, productive=500),
        in_minutes(4000, 6.5e-3, 45, u0=20, w=2, q=7, productive=130),
        in_minutes(3000, 6.5e-3, 60, w=1, q=2, productive=20),
    ],
)
def test_finite_form_and_simulation_against_a_walk(p):
    rng = random.Random(7)
    walls = np.array([walk_one_run(rng, p) for _ in range(3000)])
    standard_error = walls.std(ddof=1) / math.sqrt(walls.size)
    exact_wall = p.productive_s / result_of(p).exact_finite
    assert abs(walls.mean() - exact_wall) < 4 * standard_error
    simulated = monte_carlo_ettr(p, replicas=20_000, seed=3)
    assert abs(simulated.ettr - result_of(p).exact_finite) < 4 * simulated.standard_error


@pytest.mark.parametrize(
    "p",
    [
        in_minutes(2000, 6.5e-3, 60),
        in_minutes(1000, 6.5e-3, 30, q=1),
        in_minutes(12500, 2.34e-3, 2, u0=2),
        in_minutes(1500, 6.5e-3, 38.431, w=5),
        in_minutes(10000, 6.5e-3, 60, u0=15, w=3, q=20),
        in_minutes(16, 6.5e-3, 240, w=10, q=60),
    ],
)
def test_exact_against_monte_carlo(p):
    simulated = monte_carlo_ettr(p, replicas=200_000, seed=11)
    assert abs(simulated.ettr - result_of(p).exact) < 4 * simulated.standard_error
    assert simulated.standard_error < 0.005
    assert simulated.ci95[0] <= simulated.ettr <= simulated.ci95[1]


def test_simulation_without_failures_and_without_end(monkeypatch):
    calm = monte_carlo_ettr(EttrParameters(10, 0.0, 600, write_s=60))
    assert (calm.ettr, calm.standard_error) == (pytest.approx(600 / 660), 0)
    monkeypatch.setattr(ettr_monte_carlo, "MOST_DRAWS", 1_000_000)
    with pytest.raises(InputError, match="do not end"):
        monte_carlo_ettr(EttrParameters(1e6, 1.0, 36000, productive_s=360000.0), replicas=20_000)


@given(rate=st.floats(1e-6, 1e2), write=st.floats(1e-3, 1e5))
def test_optimum_is_lamberts(rate, write):
    load = rate / 86400 * write
    optimum = optimal_checkpoint_interval(1, rate, write_s=write)
    assert optimum is not None
    # Next to the branch point scipy's W has about half of the digits.
    lambert = 1 + lambertw(-math.exp(-1 - load)).real
    assert optimum * rate / 86400 == pytest.approx(lambert, rel=1e-5, abs=1e-7)
    # x = 1 - e^{-(x + c)} to full precision
    x = optimum * rate / 86400
    assert -math.expm1(-(x + load)) == pytest.approx(x, rel=1e-12)


def test_optimum_by_search():
    nodes, rate, write, queue = 1500, 6.5e-3, 300.0, 60.0
    optimum = optimal_checkpoint_interval(nodes, rate, write_s=write)
    found = minimize_scalar(
        lambda dt: -expected_ettr(nodes, rate, dt, write_s=write, queue_s=queue),
        bounds=(10, 20_000),
        method="bounded",
        options={"xatol": 1e-6},
    )
    assert optimum == pytest.approx(found.x, rel=1e-5)
    assert optimal_ettr(nodes, rate, write_s=write, queue_s=queue) == pytest.approx(-found.fun)


def test_youngs_and_dalys_intervals_are_the_small_write_limits():
    exact = optimal_checkpoint_interval(1000, 6.5e-3, write_s=0.01)
    assert young_interval(1000, 6.5e-3, write_s=0.01) == pytest.approx(exact, rel=1e-3)
    for write in (0.01, 10.0, 300.0):
        exact = optimal_checkpoint_interval(1000, 6.5e-3, write_s=write)
        assert daly_interval(1000, 6.5e-3, write_s=write) == pytest.approx(exact, rel=1e-3)
    mtbf = 86400 / 6.5
    assert daly_interval(1000, 6.5e-3, write_s=3 * mtbf) == pytest.approx(mtbf)


def test_array_form_agrees_with_the_formula():
    rate = np.array([1e-6, 1e-4, 1e-2])[:, None]
    dt = np.array([60.0, 600.0, 3600.0])[None, :]
    u0, w, q = 300.0, 20.0, 45.0
    formula = dt / ((1 / rate + q) * np.exp(rate * u0) * (np.exp(rate * (dt + w)) - 1))
    np.testing.assert_allclose(long_run_ettr(rate, dt, u0, w, q), formula, rtol=1e-9)


@pytest.mark.parametrize("for_", ["checkpoint", "rate", "write", "init", "queue", "nodes"])
def test_solve_gives_the_edges_of_the_target(for_):
    setting = {
        "nodes": 1000,
        "rate_per_node_day": 6.5e-3,
        "checkpoint_interval_s": 900.0,
        "init_s": 200.0,
        "write_s": 20.0,
        "queue_s": 30.0,
    }
    answer = solve(for_, 0.9, **setting)
    name = answer.solved_for

    def value(x):
        return expected_ettr(**{**setting, name: x})

    assert answer.best_ettr >= 0.9
    assert answer.high is not None
    if for_ == "nodes":
        assert value(answer.high) >= 0.9 > value(answer.high + 1)
        return
    assert value(answer.high) == pytest.approx(0.9, abs=1e-9)
    if for_ == "checkpoint":
        assert value(answer.low) == pytest.approx(0.9, abs=1e-9)
        assert value(answer.best) == pytest.approx(answer.best_ettr)
        around = [value(answer.best * factor) for factor in (0.9, 1.1)]
        assert max(around) < answer.best_ettr
    else:
        assert answer.low == 0


def test_solve_says_what_is_reachable():
    with pytest.raises(InputError) as caught:
        solve("checkpoint", 0.9, nodes=1500, rate_per_node_day=6.5e-3, write_s=300)
    assert "0.736494" in str(caught.value)
    assert "2110" in str(caught.value)  # the best interval, 35.17 minutes
    with pytest.raises(InputError, match="writes"):
        solve("rate", 0.95, nodes=10, checkpoint_interval_s=900, write_s=300)
    with pytest.raises(InputError) as caught:
        solve("checkpoint", nodes=10)
    assert (caught.value.code, caught.value.found) == ("missing-key", "no rate_per_node_day")
    with pytest.raises(InputError, match="target"):
        solve("checkpoint", 1.2, nodes=10, rate_per_node_day=1e-3)
    with pytest.raises(InputError, match="solved for"):
        solve("color", nodes=10)


def test_solve_at_the_ends():
    free = solve("checkpoint", nodes=1000, rate_per_node_day=6.5e-3)
    assert free.low == 0
    assert free.best is None
    any_queue = solve(
        "queue", nodes=10, rate_per_node_day=0.0, checkpoint_interval_s=600.0, write_s=6.0
    )
    assert any_queue.high is None
    never = solve("checkpoint", nodes=10, rate_per_node_day=0.0, write_s=60.0)
    assert never.high is None
    assert never.low == pytest.approx(540)  # dt/(dt + 60) = 0.9
    week = solve(
        "rate",
        nodes=128,
        checkpoint_interval_s=3600.0,
        write_s=60,
        productive_s=7 * 86400.0,
    )
    assert week.form == "exact_finite"
    assert expected_ettr(
        128,
        week.high,
        3600,
        write_s=60,
        productive_s=7 * 86400.0,
        form="exact_finite",
    ) == pytest.approx(0.9)


def test_nonsense_is_refused():
    for bad in (
        {"nodes": 0},
        {"nodes": math.nan},
        {"nodes": 1e308},
        {"rate_per_node_day": -1.0},
        {"checkpoint_interval_s": 0.0},
        {"write_s": math.inf},
        {"productive_s": 0.0},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            EttrParameters(
                **{
                    "nodes": 1,
                    "rate_per_node_day": 1e-3,
                    "checkpoint_interval_s": 60.0,
                    **bad,
                }
            )
    with pytest.raises(InputError, match="productive"):
        expected_ettr(10, 1e-3, 60, form="exact_finite")
    with pytest.raises(InputError, match="unknown form"):
        expected_ettr(10, 1e-3, 60, form="v3")


@pytest.mark.parametrize("function", [ettr, expected_ettr, solve])
def test_every_parameter_of_a_job_is_in_the_signature(function):
    spelled = inspect.signature(function).parameters
    assert not [each for each in spelled.values() if each.kind is each.VAR_KEYWORD]
    assert {field.name for field in dataclasses.fields(EttrParameters)} <= set(spelled)
