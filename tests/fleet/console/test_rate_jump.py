"""When the rate alert is raised, and that a new health check does not raise it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counting import node_use
from logs import BASE, Attempt, Check, Log, names, random_log

from holdfast.fleet import Assumptions
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.rate_jump import DRIFT, THRESHOLD, RateJump, rate_jump
from holdfast.fleet.incidents import incidents
from holdfast.stats import poisson_interval

DAY = 86_400
NODES = names(17)  # 136 GPUs: above the threshold of job size


def fleet_log(failures: dict[int, tuple[str, str | None]], days: int = 60) -> Log:
    """One 17-node attempt an hour; those that fail: hour -> (state, check or None)."""
    log = Log(nodes=dict.fromkeys(NODES, 8))
    for hour in range(24 * days):
        state, check = failures.get(hour, ("COMPLETED", None))
        end = 3600 * (hour + 1)
        log.attempts.append(Attempt(hour + 1, NODES, end - 3600, end, state))
        if check is not None:
            log.checks.append(Check(end - 60, NODES[hour % 17], check))
    return log


def jump_of(log: Log, folder: Path, **assumed: float) -> RateJump:
    found = rate_jump(Analysis(log.open(folder, Assumptions(**assumed))))  # type: ignore[arg-type]
    assert found is not None
    return found


def spread(first_day: int, last_day: int, every_hours: int) -> range:
    return range(24 * first_day, 24 * last_day, every_hours)


@pytest.mark.parametrize(("rate", "failures"), [(1.0, 1_000), (2.0, 25), (3.0, 15)])
def test_run_lengths_are_the_documented_ones(rate: float, failures: float) -> None:
    """Failures until the alarm, false at rate 1, in the mean of many simulated fleets at once."""
    rng = np.random.default_rng(11)
    value, count = np.zeros(2_000), np.zeros(2_000)
    running = np.ones(2_000, bool)
    while running.any():
        value = np.maximum(value - DRIFT * rng.exponential(1 / rate, 2_000), 0) + 1
        count += running
        running &= value < THRESHOLD
    error = count.std() / 2_000**0.5
    assert abs(count.mean() - failures) < max(4 * error, 0.5)


def test_a_steady_rate_raises_nothing(tmp_path: Path) -> None:
    jump = jump_of(fleet_log(dict.fromkeys(spread(0, 60, 36), ("NODE_FAIL", None))), tmp_path)
    assert jump.statistic < THRESHOLD
    assert jump.set_aside == 0
    # Sixty days: the last 28 are watched, the 32 before them are the baseline.
    assert jump.watched_node_days == pytest.approx(28 * 17)
    assert jump.baseline_node_days == pytest.approx(32 * 17)
    assert jump.watched_begin_s == BASE + 32 * DAY
    upper = poisson_interval(jump.baseline_failures, 32 * 17)[1]
    assert jump.in_control_per_node_day == pytest.approx(upper)


def test_a_jump_is_found(tmp_path: Path) -> None:
    before = dict.fromkeys(spread(0, 50, 36), ("NODE_FAIL", None))
    after = dict.fromkeys(spread(50, 60, 6), ("NODE_FAIL", None))
    jump = jump_of(fleet_log({**before, **after}), tmp_path)
    assert jump.statistic >= THRESHOLD


def test_a_jump_from_no_failure_at_all_is_found(tmp_path: Path) -> None:
    log = fleet_log(dict.fromkeys(spread(55, 60, 6), ("NODE_FAIL", None)))
    for hour in spread(0, 60, 6):  # small jobs do not count
        end = 3600 * (hour + 1)
        log.attempts.append(Attempt(90_000 + hour, NODES[:1], end - 3600, end, "NODE_FAIL"))
    jump = jump_of(log, tmp_path)
    assert jump.statistic >= THRESHOLD
    assert (jump.baseline_failures, jump.watched_failures) == (0, 20)


def test_a_new_check_by_itself_raises_nothing(tmp_path: Path) -> None:
    """The same failures as in `test_a_jump_is_found`, but only a check that is new shows them."""
    before = dict.fromkeys(spread(0, 50, 36), ("NODE_FAIL", None))
    after = dict.fromkeys(spread(50, 60, 6), ("FAILED", "check nvlink"))
    jump = jump_of(fleet_log({**before, **after}), tmp_path)
    assert jump.statistic < THRESHOLD
    assert jump.new_checks == ("check nvlink",)
    assert jump.set_aside == len(set(after))
    assert jump.watched_failures == sum(hour >= 24 * 32 for hour in set(before) - set(after))


def test_a_check_that_was_there_before_does_raise_it(tmp_path: Path) -> None:
    before = dict.fromkeys(spread(0, 50, 36), ("FAILED", "check nvlink"))
    after = dict.fromkeys(spread(50, 60, 6), ("FAILED", "check nvlink"))
    jump = jump_of(fleet_log({**before, **after}), tmp_path)
    assert jump.statistic >= THRESHOLD
    assert jump.new_checks == ()


def test_a_failure_that_an_old_check_shows_too_counts(tmp_path: Path) -> None:
    before = dict.fromkeys(spread(0, 50, 36), ("FAILED", "check nvlink"))
    after = dict.fromkeys(spread(50, 60, 6), ("FAILED", "check nvlink"))
    log = fleet_log({**before, **after})
    for hour in after:
        log.checks.append(Check(3600 * (hour + 1) - 30, NODES[hour % 17], "check iblink"))
    jump = jump_of(log, tmp_path)
    assert jump.new_checks == ("check iblink",)
    assert jump.set_aside == 0
    assert jump.statistic >= THRESHOLD


def test_node_failures_that_no_check_shows_raise_it_whatever_is_new(tmp_path: Path) -> None:
    before = dict.fromkeys(spread(0, 50, 36), ("NODE_FAIL", None))
    after = dict.fromkeys(spread(50, 60, 6), ("NODE_FAIL", None))
    new = dict.fromkeys(range(24 * 50 + 1, 24 * 60, 12), ("FAILED", "check mount"))
    jump = jump_of(fleet_log({**before, **after, **new}), tmp_path)
    assert jump.set_aside == len(new)
    assert jump.statistic >= THRESHOLD


def test_an_xid_never_seen_before_is_no_new_check(tmp_path: Path) -> None:
    before = dict.fromkeys(spread(0, 50, 36), ("FAILED", "xid 79"))
    after = dict.fromkeys(spread(50, 60, 6), ("FAILED", "xid 74"))
    jump = jump_of(fleet_log({**before, **after}), tmp_path)
    assert jump.new_checks == ()
    assert jump.statistic >= THRESHOLD


def test_nothing_ran(tmp_path: Path) -> None:
    log = Log([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)])
    assert rate_jump(Analysis(log.open(tmp_path))) is None


def test_counts_and_exposure_by_loops(tmp_path: Path) -> None:
    """All numbers of a log without rhyme or reason, by loops over its rows."""
    rows = random_log(1)
    log = rows.open(tmp_path)
    analysis = Analysis(log)
    jump = rate_jump(analysis)
    assert jump is not None
    spans = [each for spans in node_use(rows).values() for each in spans]
    first, last = log.begin_s - BASE, log.end_s - BASE
    middle = (first + last) / 2
    assert jump.watched_begin_s - BASE == pytest.approx(middle)
    assert analysis.min_gpus == 0

    def node_days(low: float, high: float) -> float:
        return sum(max(0.0, min(high, end) - max(low, begin)) for begin, end in spans) / DAY

    assert jump.baseline_node_days == pytest.approx(node_days(first, middle))
    assert jump.watched_node_days == pytest.approx(node_days(middle, last))
    clusters = log.rows(f"SELECT min(stop_s) AS s FROM {incidents(log)} GROUP BY cluster")
    failed = [row["s"] - BASE for row in clusters]
    late = sorted(first_s for first_s in failed if first_s >= middle)
    assert jump.watched_failures + jump.set_aside == len(late)
    assert jump.set_aside == 0
    assert jump.baseline_failures == len(failed) - len(late)
    # By its other definition: the largest surplus of failures over any time that ends now.
    allowed = DRIFT * jump.in_control_per_node_day
    surplus = [sum(f >= t for f in late) - allowed * node_days(t, last) for t in late]
    assert jump.statistic == pytest.approx(max(0.0, *surplus), abs=1e-6)
