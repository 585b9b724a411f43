"""The drawn jobs against the laws that the scenario states."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from holdfast.fleet.simulation.records import Records, State
from holdfast.fleet.simulation.scenario import End, Scenario, Size, Workload, scenario
from holdfast.fleet.simulation.workload import DAY_MS, HOUR_MS, draw_jobs

DAYS = 70.0


def with_workload(**changes: object) -> Scenario:
    small = scenario("small")
    return dataclasses.replace(small, workload=dataclasses.replace(small.workload, **changes))


@pytest.fixture(scope="module")
def jobs() -> Records:
    return draw_jobs(with_workload(jobs_per_day=2_000.0), DAYS, 3)


def test_arrivals_follow_the_hours_and_the_days(jobs: Records) -> None:
    workload = scenario("small").workload
    hour = jobs.submit_ms // HOUR_MS % 24
    day = jobs.submit_ms // DAY_MS % 7  # the scenario begins on a Monday
    for counted, weights in (
        (np.bincount(hour, minlength=24), workload.hour_weights),
        (np.bincount(day, minlength=7), workload.day_weights),
    ):
        expected = np.array(weights) / sum(weights) * len(jobs.gpus)
        assert stats.chisquare(counted, expected).pvalue > 1e-3
    assert abs(len(jobs.gpus) - 2_000 * DAYS) < 4 * (2_000 * DAYS) ** 0.5
    assert (np.diff(jobs.submit_ms) >= 0).all()
    assert (jobs.submit_ms < DAYS * DAY_MS).all()


def test_sizes_and_classes_have_their_shares(jobs: Records) -> None:
    small = scenario("small")
    names = [each.name for each in small.qos]
    sizes = small.workload.sizes
    counted = [int((jobs.gpus == size.gpus).sum()) for size in sizes]
    shares = np.array([size.share for size in sizes])
    assert stats.chisquare(counted, shares / shares.sum() * len(jobs.gpus)).pvalue > 1e-3
    for size, count in zip(sizes, counted, strict=True):
        share = np.array([size.qos.get(name, 0.0) for name in names])
        seen = np.bincount(jobs.qos[jobs.gpus == size.gpus], minlength=len(names))
        assert (seen[share == 0] == 0).all()
        kept = share > 0
        if kept.sum() > 1:
            expected = share[kept] / share.sum() * count
            assert stats.chisquare(seen[kept], expected).pvalue > 1e-3


def test_work_is_lognormal_with_the_stated_mean() -> None:
    only = with_workload(jobs_per_day=2_000.0, ends=(), sizes=(Size(8, 1.0, 2.5, 0.9),))
    hours = draw_jobs(only, 10, 4).work_ms / HOUR_MS
    law = stats.lognorm(0.9, scale=2.5 * np.exp(-(0.9**2) / 2))
    assert stats.kstest(hours, law.cdf).pvalue > 1e-3


def test_jobs_end_by_the_first_hazard() -> None:
    ends = (End("FAILED", 3.0, 0.6), End("CANCELLED", 5.0), End("REQUEUED", 0.1))
    sizes = (Size(8, 1.0, 2.0, 0.0),)
    made = draw_jobs(with_workload(jobs_per_day=4_000.0, ends=ends, sizes=sizes), 10, 5)
    hours = made.work_ms / HOUR_MS
    completed = made.end_state == State.COMPLETED
    assert (hours[completed] == 2.0).all()
    survival = np.exp(-((2.0 / 3.0) ** 0.6) - 2.0 / 5.0)  # of both hazards; a requeue ends no job
    spread = (survival * (1 - survival) / len(hours)) ** 0.5
    assert abs(completed.mean() - survival) < 4 * spread
    assert set(np.unique(made.end_state)) == {State.COMPLETED, State.FAILED, State.CANCELLED}


def test_limits_cover_the_work_except_where_they_are_to_be_short() -> None:
    made = draw_jobs(with_workload(jobs_per_day=4_000.0, short_limits=0.1, ends=()), 10, 6)
    checkpoint = scenario("small").checkpoint
    stretch = 1 + checkpoint.write_s / checkpoint.interval_s
    needed = checkpoint.init_s * 1e3 + made.work_ms * stretch
    longest = scenario("small").scheduler.time_limit_s * 1e3
    short = made.limit_ms < np.minimum(needed, longest)
    assert abs(short.mean() - 0.1) < 4 * (0.09 / len(short)) ** 0.5
    assert (made.limit_ms <= longest).all()


def test_a_job_keeps_its_numbers_when_others_change() -> None:
    """What the common random numbers of a what-if rest on."""
    before = draw_jobs(with_workload(jobs_per_day=500.0), 5, 9)
    after = draw_jobs(with_workload(jobs_per_day=900.0), 5, 9)
    rows = len(before.gpus)
    for name in ("gpus", "work_ms", "limit_ms", "qos", "user", "end_state"):
        assert (getattr(after, name)[:rows] == getattr(before, name)).all()


def test_a_workload_without_a_day_shape_is_a_plain_poisson_process() -> None:
    even = with_workload(
        jobs_per_day=3_000.0,
        hour_weights=Workload().hour_weights,
        day_weights=Workload().day_weights,
    )
    gaps = np.diff(draw_jobs(even, 20, 8).submit_ms) / 1e3
    # Whole seconds: the gap between two floors differs from the gap by less than a second.
    assert gaps.mean() == pytest.approx(86_400 / 3_000, rel=4 / len(gaps) ** 0.5)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
