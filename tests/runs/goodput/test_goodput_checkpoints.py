"""The checkpoints of a run: their interval, and what they cost."""

from __future__ import annotations

import pytest
from goodput.building import ORIGIN_S, Script, recorded

from holdfast.runs.goodput.accounting import Breakdown, breakdown


def told(*scripts: Script) -> Breakdown:
    return breakdown(recorded(scripts), now_s=ORIGIN_S + 1e7)


def test_over_several_attempts() -> None:
    """Two attempts, each of two checkpoints of 0.5 s after 10 s of steps."""
    scripts = [
        Script(attempt=number, start_s=34 * number, ready=2, end=end)
        for number, end in enumerate(("none", "clean"))
    ]
    for script in scripts:
        for at in (2.0, 12.5):
            script.steps(1 + int(at), 5, at, 2.0).span("checkpoint", at + 10, at + 10.5)
    made = told(*scripts).checkpoints
    assert made.count == 4
    assert made.interval_s == pytest.approx(10)
    assert made.write_s == pytest.approx(0.5)


def test_writes_that_cost_nothing() -> None:
    free = Script().steps(1, 4, 0, 2.0).at("published", 4, step=2).at("published", 8, step=4)
    made = told(free).checkpoints
    assert (made.write_s, made.interval_s) == (0, pytest.approx(4))


def test_a_run_without_checkpoints_gets_no_interval() -> None:
    made = told(Script(end="clean").steps(1, 10, 0, 1.0))
    assert made.checkpoints.interval_s is None
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
