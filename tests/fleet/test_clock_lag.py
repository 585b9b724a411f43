"""Health events whose clock is hours off the log's are said, with the likely zone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from logs import Attempt, Check, Log, random_log

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import clock_lag
from holdfast.fleet.fleet_report import FleetReport

HOUR = 3600


def shifted(hours: float, tmp_path: Path) -> Analysis:
    """Twelve node failures at odd times, each 30 s after a check whose clock is so many hours ahead."""
    ends = [10 * HOUR * i + 137 * i for i in range(1, 13)]
    attempts = [
        Attempt(i, (f"n{i % 3}",), end - HOUR, end, "NODE_FAIL") for i, end in enumerate(ends, 1)
    ]
    checks = [
        Check(end - 30 + hours * HOUR, f"n{i % 3}", "check nvlink") for i, end in enumerate(ends, 1)
    ]
    return Analysis(Log(attempts, checks).open(tmp_path))


@pytest.mark.quick(2)
@pytest.mark.parametrize("hours", [-9, -1, 2, 5.5])
def test_a_shifted_clock_is_found(tmp_path: Path, hours: float) -> None:
    analysis = shifted(hours, tmp_path)
    lag = clock_lag(analysis.log)
    assert lag is not None
    assert (lag.lag_s, lag.matched, lag.failures, lag.matched_now) == (hours * HOUR, 12, 12, 0)
    told = next(each for each in FleetReport(analysis).unknowns() if "clock" in each.text)
    assert "--timezone" in told.remedy
    assert f"UTC{-hours:+g}" in told.remedy


def test_clocks_that_agree(tmp_path: Path) -> None:
    assert clock_lag(shifted(0, tmp_path).log) is None


def test_checks_at_random_times_are_no_lag(tmp_path: Path) -> None:
    rows = random_log(3, jobs=60)
    rows = replace(
        rows, checks=[replace(each, time=i * 977.0) for i, each in enumerate(rows.checks)]
    )
    assert clock_lag(rows.open(tmp_path)) is None
