"""The failure rate of a run and its best checkpoint interval: where they are told, and which is best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from goodput.building import ORIGIN_S, Script, recorded

from holdfast.errors import InputError
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.runs.goodput.accounting import Breakdown, breakdown


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


def test_the_rate_of_the_run_and_its_checkpoints() -> None:
    made = finished_run()
    assert made.checkpoints.count == 4
    assert made.checkpoints.interval_s == pytest.approx(10)
    assert made.checkpoints.write_s == pytest.approx(0.5)
    assert made.rate is not None
    assert (made.rate.source, made.rate.failures) == ("run", 1)
    assert made.rate.node_days == pytest.approx((30 + 28) / 86400)
    assert made.rate.per_node_day == pytest.approx(86400 / 58)
    # Garwood's interval for one event: [0.0253, 5.572].
    assert made.rate.low * 58 / 86400 == pytest.approx(0.025318, rel=1e-4)
    assert made.rate.high * 58 / 86400 == pytest.approx(5.571643, rel=1e-4)


def long_run(failures: int, hours: float) -> Breakdown:
    """Attempts of the same length, each with one checkpoint in its middle; the last one ends well."""
    lived = 3600 * hours / (failures + 1)
    scripts = []
    for number in range(failures + 1):
        end = "clean" if number == failures else "none"
        script = Script(attempt=number, start_s=number * (lived + 10), end=end)
        for place in range(10):
            at = place * lived / 10
            script.span("step", at, at + lived / 10 - 5, step=10 * number + place)
            if place == 4:
                script.span(
                    "checkpoint", at + lived / 10 - 5, at + lived / 10, step=10 * number + 4
                )
        scripts.append(script)
    return told(*scripts)


@pytest.mark.parametrize(
    ("failures", "hours", "advice"),
    [(2, 1.1, True), (2, 0.9, False), (1, 30.0, False), (0, 30.0, False), (9, 10.0, True)],
)
def test_a_run_that_is_too_short_for_advice_gets_none(
    failures: int, hours: float, advice: bool
) -> None:
    made = long_run(failures, hours)
    assert made.interruptions == failures
    assert (made.best is not None) == advice
    assert (made.to_dict()["best_interval_s"] is not None) == advice


def test_a_short_run_with_a_rate_from_elsewhere_gets_advice() -> None:
    assert finished_run().best is None
    assert finished_run(rate_per_node_day=20.0).best is not None


def test_best_interval_is_the_best_of_all() -> None:
    for rate in (20.0, 1489.0, 15_000.0):
        best = finished_run(rate_per_node_day=rate).best
        grid = [2 * 1.001**k for k in range(6000)]
        ettr = [expected_ettr(1, rate, dt, init_s=3, write_s=0.5, queue_s=4) for dt in grid]
        assert best is not None
        assert best.interval_s == pytest.approx(grid[int(np.argmax(ettr))], rel=2e-3)
        assert best.steps == round(best.interval_s / 2)


def test_savings_are_those_of_the_exact_form_where_failures_are_rare() -> None:
    rate = 2.0
    best = finished_run(rate_per_node_day=rate).best
    assert best is not None
    ettrs = [expected_ettr(1, rate, dt, init_s=0, write_s=0.5) for dt in (10, best.interval_s)]
    assert best.saved_s == pytest.approx(44 / ettrs[0] - 44 / ettrs[1], rel=0.02)


def test_no_interval_is_shorter_than_a_step() -> None:
    best = finished_run(rate_per_node_day=1e5).best
    assert best is not None
    assert best.interval_s == pytest.approx(2)
    free = Script().steps(1, 4, 0, 2.0).at("published", 4, step=2).at("published", 8, step=4)
    made = told(free, rate_per_node_day=1.0)  # writes that cost nothing: as often as possible
    assert (made.checkpoints.write_s, made.checkpoints.interval_s) == (0, pytest.approx(4))
    assert made.best is not None
    assert made.best.interval_s == pytest.approx(2)


def test_no_interval_is_shorter_than_the_time_in_the_background() -> None:
    script = Script(end="clean").steps(1, 20, 0, 1.0).span("checkpoint", 20, 20.001, step=20)
    script.at("published", 27, step=20, background_s=7.0)
    best = told(script, rate_per_node_day=5000.0).best
    assert best is not None
    assert best.interval_s == pytest.approx(7)


def test_rate_that_is_given() -> None:
    made = finished_run(rate_per_node_day=0.5)
    assert made.rate is not None
    assert (made.rate.per_node_day, made.rate.source, made.rate.failures) == (0.5, "given", None)
    assert made.best is not None
    assert made.best.ci95_s == (made.best.interval_s, made.best.interval_s)


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate_per_node_day"):
        finished_run(rate_per_node_day=rate)


def test_rate_of_the_fleet(tmp_path: Path) -> None:
    outages = tmp_path / "outages.csv"
    outages.write_text(
        "node,start,end,cause\n"
        + "".join(f"n{k},2026-01-0{k}T00:00:00Z,2026-01-0{k}T06:00:00Z,gpu\n" for k in (1, 2, 3, 9))
    )
    made = finished_run(fleet=outages)
    assert made.rate is not None
    assert (made.rate.source, made.rate.failures) == ("fleet", 4)
    assert made.rate.per_node_day == pytest.approx(4 / made.rate.node_days)  # type: ignore[operator]
    assert made.best is not None
    assert made.best.ci95_s[0] < made.best.interval_s


def test_a_run_without_checkpoints_gets_no_interval() -> None:
    made = told(Script(end="clean").steps(1, 10, 0, 1.0), rate_per_node_day=1000.0)
    assert made.checkpoints.interval_s is None
    assert made.best is None
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


@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e9])
def test_no_rate_overflows(rate: float) -> None:
    best = finished_run(rate_per_node_day=rate).best
    assert (best is None) == (rate == 0)
    assert best is None or 2 <= best.interval_s < float("inf")
