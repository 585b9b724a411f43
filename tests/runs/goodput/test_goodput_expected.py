"""The expected ETTR of a run: what is put into the model, what comes out, and which interval is best."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from goodput.building import ORIGIN_S, Script, recorded

from holdfast.errors import InputError
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.runs.goodput.accounting import Breakdown, breakdown
from holdfast.runs.goodput.expected import Expected


def told(*scripts: Script, **options: object) -> Breakdown:
    return breakdown(recorded(scripts), now_s=ORIGIN_S + 1e7, **options)  # type: ignore[arg-type]


def attempt(number: int, start: float, first: int, *, end: str = "none", extra: int = 0) -> Script:
    """Initialisation of 3 s; then five steps of 2 s and a checkpoint of 0.5 s, twice; then steps."""
    script = Script(attempt=number, start_s=start, lived_s=1, ready=2, end=end)
    script.resumed_from = first - 1 if number else None
    at = 2.0
    for group in range(2):
        script.steps(first + 5 * group, 5, at, 2.0)
        at += 10.5
        script.span("checkpoint", at - 0.5, at, step=first + 5 * group + 4)
    return script.steps(first + 10, extra, at, 2.0)


def finished_run(**options: object) -> Breakdown:
    """Two attempts: 24 s of wall time with 3 replayed steps after it, a gap of 4 s, the rest."""
    first = attempt(0, 0, 1, extra=3)  # 1 .. 13, lives 1 + 2 + 21 + 6 = 30 s
    first.submitted_s = -5.0
    return told(first, attempt(1, 34, 11, end="clean", extra=2), **options)


def test_what_is_put_into_the_model() -> None:
    made = finished_run()
    held = made.expected
    assert made.checkpoints.count == 4
    assert made.checkpoints.interval_s == held.interval_s == pytest.approx(10)
    assert made.checkpoints.write_s == held.write_s == pytest.approx(0.5)
    assert held.restarts.init_s == pytest.approx(3)
    assert held.restarts.queue_s == pytest.approx(4)
    assert held.restarts.first_queue_s == pytest.approx(5)
    assert held.nodes == 1
    assert held.rate is not None
    assert (held.rate.source, held.rate.failures) == ("run", 1)
    assert held.rate.node_days == pytest.approx((30 + 28) / 86400)
    assert held.rate.per_node_day == pytest.approx(86400 / 58)
    # Garwood's interval for one event: [0.0253, 5.572].
    assert held.rate.low * 58 / 86400 == pytest.approx(0.025318, rel=1e-4)
    assert held.rate.high * 58 / 86400 == pytest.approx(5.571643, rel=1e-4)
    assert held.productive_s == pytest.approx(2 * 22)


def test_a_run_that_is_done_is_held_against_the_finite_form() -> None:
    held = finished_run().expected
    assert held.form == "exact_finite"
    rate = 86400 / 58
    finite = expected_ettr(
        1, rate, 10, init_s=3, write_s=0.5, queue_s=4, productive_s=44, form="exact_finite"
    )
    assert held.ettr == pytest.approx(44 / (44 / finite - 4 + 5))
    assert held.low is not None
    assert held.high is not None
    assert held.low < held.ettr < held.high


def test_a_run_that_was_cut_off_is_held_against_the_long_run() -> None:
    made = told(attempt(0, 0, 1, extra=3), attempt(1, 34, 11, extra=2))
    rate = 2 * 86400 / 58
    assert made.expected.form == "exact"
    assert made.expected.ettr == pytest.approx(
        expected_ettr(1, rate, 10, init_s=3, write_s=0.5, queue_s=4)
    )


def simulated_wall(
    held: Expected, rate_per_s: float, interval: float, rng: np.random.Generator
) -> float:
    """One run of the model, start by start."""
    restarts = held.restarts
    wall, done, first = 0.0, 0.0, True
    while True:
        wall += restarts.first_queue_s if first else restarts.queue_s
        first = False
        left = rng.exponential(1 / rate_per_s)
        if left < restarts.init_s:
            wall += left
            continue
        wall, left = wall + restarts.init_s, left - restarts.init_s
        while True:
            need = min(interval, held.productive_s - done) + held.write_s
            if left < need:
                wall += left
                break
            wall, left = wall + need, left - need
            done += need - held.write_s
            if held.productive_s - done < 1e-9:
                return wall


def test_expected_wall_time_is_that_of_simulated_runs() -> None:
    held = finished_run().expected
    assert held.ettr is not None
    rng = np.random.default_rng(5)
    walls = np.array([simulated_wall(held, 1 / 58, 10.0, rng) for _ in range(20_000)])
    error = walls.std() / math.sqrt(walls.size)
    assert walls.mean() == pytest.approx(held.productive_s / held.ettr, abs=4 * error)
    assert error < 0.01 * walls.mean()


def test_best_interval_is_the_best_of_all() -> None:
    for rate in (20.0, 1489.0, 15_000.0):
        held = finished_run(rate_per_node_day=rate).expected
        grid = [2 * 1.001**k for k in range(6000)]
        long_run = [expected_ettr(1, rate, dt, init_s=3, write_s=0.5, queue_s=4) for dt in grid]
        best = min(grid[int(np.argmax(long_run))], 44)
        assert held.best_interval_s == pytest.approx(best, rel=2e-3)
        assert held.best_interval_steps == round(best / 2)
        assert held.ettr is not None
        assert held.best_interval_ettr is not None
        saved = 44 / held.ettr - 44 / held.best_interval_ettr
        assert held.saved_s == pytest.approx(max(saved, 0), abs=1e-9)
        assert held.saved_gpu_hours == pytest.approx((held.saved_s or 0) / 3600)


def test_no_interval_is_shorter_than_a_step() -> None:
    held = finished_run(rate_per_node_day=1e5).expected
    assert held.best_interval_s == pytest.approx(2)
    free = Script().steps(1, 4, 0, 2.0).at("published", 4, step=2).at("published", 8, step=4)
    made = told(free)  # writes that cost nothing: as often as possible
    assert (made.checkpoints.write_s, made.checkpoints.interval_s) == (0, pytest.approx(4))
    assert made.expected.best_interval_s == pytest.approx(2)


def test_no_interval_is_shorter_than_the_time_in_the_background() -> None:
    script = Script(end="clean").steps(1, 20, 0, 1.0).span("checkpoint", 20, 20.001, step=20)
    script.at("published", 27, step=20, background_s=7.0)
    assert told(script, rate_per_node_day=5000.0).expected.best_interval_s == pytest.approx(7)


def test_without_failures_there_is_a_bound_and_no_best_interval() -> None:
    made = told(attempt(0, 0, 1, end="clean"))
    held = made.expected
    assert held.ettr == pytest.approx(20 / (3 + 21))
    assert held.high == held.ettr
    assert held.low is not None
    assert held.low < held.ettr
    assert held.rate is not None
    assert held.rate.high == pytest.approx(3.688879 * 86400 / 24, rel=1e-6)
    assert (held.best_interval_s, held.saved_s) == (None, None)
    assert held.best_interval_low_s is not None


def test_rate_that_is_given() -> None:
    held = finished_run(rate_per_node_day=0.5).expected
    assert held.rate is not None
    assert (held.rate.per_node_day, held.rate.source, held.rate.failures) == (0.5, "given", None)
    assert held.low == held.ettr == held.high


def test_rate_that_makes_no_sense() -> None:
    with pytest.raises(InputError, match="rate_per_node_day"):
        finished_run(rate_per_node_day=-1.0)


def test_rate_of_the_fleet(tmp_path: Path) -> None:
    outages = tmp_path / "outages.csv"
    outages.write_text(
        "node,start,end,cause\n"
        + "".join(f"n{k},2026-01-0{k}T00:00:00Z,2026-01-0{k}T06:00:00Z,gpu\n" for k in (1, 2, 3, 9))
    )
    held = finished_run(fleet=outages).expected
    assert held.rate is not None
    assert (held.rate.source, held.rate.failures) == ("fleet", 4)
    assert held.rate.per_node_day == pytest.approx(4 / held.rate.node_days)  # type: ignore[operator]


def test_other_losses_slow_the_model_down() -> None:
    busy = Script(ready=0, end="clean", lived_s=1)
    for k in range(10):
        busy.span("data_wait", 4 * k, 4 * k + 1).span("step", 4 * k + 1, 4 * k + 4, step=k)
        busy.span("checkpoint", 4 * k + 4, 4 * k + 4)
    held = told(busy, rate_per_node_day=2000.0).expected
    assert held.progress_share == pytest.approx(0.75)
    slow = expected_ettr(1, 2000, 3 / 0.75, init_s=1, productive_s=30 / 0.75, form="exact_finite")
    assert held.with_other_losses == pytest.approx(0.75 * slow)
    assert held.ettr is not None
    assert held.with_other_losses is not None
    assert held.with_other_losses < held.ettr


def test_stalls_lengthen_what_a_failure_costs_and_do_not_slow_the_steps() -> None:
    hung = Script().steps(1, 10, 0, 1.0).at("alive", 40)
    held = told(hung, Script(attempt=1, start_s=45, end="clean").steps(11, 10, 0, 1.0)).expected
    assert held.restarts.stalled_s == pytest.approx(30)
    assert held.progress_share == pytest.approx(1)
    assert held.ettr is not None
    assert held.with_other_losses is not None
    assert held.with_other_losses < held.ettr


def test_a_run_without_checkpoints_writes_one_at_its_end() -> None:
    made = told(Script(end="clean").steps(1, 10, 0, 1.0), rate_per_node_day=1000.0)
    assert made.checkpoints.interval_s is None
    assert made.expected.interval_s == pytest.approx(10)
    assert any("no checkpoint was recorded" in remark for remark in made.remarks)


def test_checkpoints_without_a_step_between_are_one() -> None:
    script = Script(end="clean").steps(1, 5, 0, 1.0)
    script.span("checkpoint", 5, 6, step=5).span("checkpoint", 6, 8, step=5)
    script.steps(6, 3, 8, 1.0).span("checkpoint", 11, 12, step=8)
    made = told(script)
    assert (made.checkpoints.count, made.checkpoints.write_s) == (2, pytest.approx(2))
    assert made.checkpoints.interval_s == pytest.approx((5 + 3) / 2)


def test_background_time_and_complete_checkpoints() -> None:
    script = Script(end="clean").steps(1, 4, 0, 1.0).span("checkpoint", 4, 4.5, step=4)
    script.at("published", 6, step=4, background_s=1.5).at(
        "published", 6.1, step=4, background_s=2.5
    )
    made = told(script).checkpoints
    assert (made.background_s, made.published, made.last_published_step) == (2.0, 1, 4)


def test_no_rate_overflows() -> None:
    for rate in (0.0, 1e-9, 1e9):
        held = finished_run(rate_per_node_day=rate).expected
        assert held.ettr is not None
        assert 0 <= held.ettr <= 1
