"""Job simulation against brute force and ticks; penalty fits out of fold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.carbon.fitting import (
    Jobs,
    features,
    fit_penalty,
    read_jobs,
    simulate,
    usage,
)
from holdfast.carbon.signals import FloatArray
from holdfast.carbon.workloads import FEATURES, batch_penalty, read_penalties
from holdfast.errors import InputError


def random_jobs(count: int, hours: float, seed: int) -> Jobs:
    random = np.random.default_rng(seed)
    # Whole minutes, so that ticks of a minute see the same times.
    arrival = np.sort(random.integers(0, int(60 * hours), count)) / 60
    return Jobs(arrival, random.integers(5, 300, count) / 60, random.integers(1, 9, count))


def by_ticks(jobs: Jobs, limits: FloatArray, slack: float) -> FloatArray:
    """Earliest due date first, minute by minute."""
    starts = np.full(len(jobs), np.nan)
    due = jobs.arrival_h + jobs.length_h + slack
    minute = 0
    while np.isnan(starts).any():
        now = minute / 60
        limit = limits[minute // 60] if minute // 60 < len(limits) else np.inf
        ends = starts + jobs.length_h
        used = jobs.cpus[(starts <= now) & (ends > now + 1e-9)].sum()
        waiting = np.flatnonzero(np.isnan(starts) & (jobs.arrival_h <= now + 1e-9))
        for job in waiting[np.lexsort((waiting, due[waiting]))]:
            if used + jobs.cpus[job] > limit:
                break
            starts[job], used = now, used + jobs.cpus[job]
        minute += 1
    return starts


@pytest.mark.parametrize("seed", range(4))
def test_earliest_due_date_against_ticks(seed: int) -> None:
    jobs = random_jobs(60, 12, seed)
    limits = np.random.default_rng(seed).uniform(9, 30, 18)
    assert simulate(jobs, limits, slack_h=3) == pytest.approx(by_ticks(jobs, limits, 3))


def test_without_a_limit_jobs_start_when_they_arrive() -> None:
    jobs = random_jobs(50, 10, 9)
    assert simulate(jobs, np.zeros(0)) == pytest.approx(jobs.arrival_h)
    late = simulate(jobs, np.zeros(20))
    assert (late == 20).all()  # nothing runs for 20 hours, then everything


def test_usage_is_conserved_and_right_in_every_hour() -> None:
    jobs = random_jobs(40, 10, 3)
    found = usage(jobs.arrival_h, jobs, 0, 30)
    minutes = np.zeros(30 * 60)
    for start, length, cpus in zip(60 * jobs.arrival_h, 60 * jobs.length_h, jobs.cpus, strict=True):
        minutes[round(start) : round(start + length)] += cpus
    assert found == pytest.approx(minutes.reshape(30, 60).mean(axis=1))
    running = usage(jobs.arrival_h, jobs, 0, 30, count=True)
    assert running.sum() == pytest.approx(jobs.length_h.sum())


def test_features_by_hand() -> None:
    d, jobs, power = (
        np.array([2.0, -1.0, -1.0]),
        np.array([4.0, 4.0, 4.0]),
        np.array([8.0, 8.0, 8.0]),
    )
    # J d / U: 1, -1/2, -1/2; running sums 1, 1/2, 0; of d: 2, 1, 0; of J d^2 / U: 2, 5/2, 3.
    expected = [1.5, 3.0, 7.5, 1.0, 1.0]
    assert features(d, jobs, power, slo_h=2) == pytest.approx(expected)
    for name, value in zip(FEATURES, expected, strict=True):  # the same terms, as a plan has them
        assert batch_penalty({name: 1.0}, 0.5, 3, 2).value(d) == pytest.approx(value)
    assert features(d, np.zeros(3), np.zeros(3), 2)[1] == pytest.approx(3.0)  # U = 0


def test_a_fit_knows_its_error_on_time_that_it_has_not_seen(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    count, hours = 6000, 24 * 7 * 12
    arrival = np.sort(random.uniform(0, hours, count))
    jobs = Jobs(arrival, random.exponential(3.0, count) + 0.1, random.integers(1, 5, count))
    made = fit_penalty(jobs, samples=80, output=tmp_path / "p.json", name="etl")
    assert 0.5 < made.r2 < 1
    error = np.abs(made.true - made.predicted)
    assert made.mae == pytest.approx(error.mean())
    explained = 1 - (error**2).sum() / ((made.true - made.true.mean()) ** 2).sum()
    assert made.r2 == pytest.approx(explained)
    assert min(made.weights.values()) >= 0  # convex
    spec = read_penalties(tmp_path / "p.json", ["etl"])["etl"]
    assert spec.weights == {name: value for name, value in made.weights.items() if value}
    assert made.document()["values"][0]["name"] == "r2_out_of_fold"
    with pytest.raises(InputError) as caught:
        fit_penalty(jobs.chosen(jobs.arrival_h < 24 * 20), samples=60)
    assert caught.value.code == "no-data"


@pytest.mark.full
def test_the_fit_on_a_real_trace(shared_data: Path) -> None:
    jobs = read_jobs(shared_data / "carbon" / "gaia" / "azure-100k.csv")
    assert len(jobs) == 99_988
    made = fit_penalty(jobs, samples=120)
    assert made.r2 > 0.6


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("arrival_time,length\n1,2\n", "missing-column", "line 1"),
        ("arrival_time,length,cpus\n1,-2,1\n", "invalid-value", "line 2, length"),
        ("arrival_time,length,cpus\n1,2,0\n", "invalid-value", "line 2, cpus"),
        ("arrival_time,length,cpus\n1,2,x\n", "invalid-value", "line 2"),
        ("arrival_time,length,cpus\n", "empty-input", None),
    ],
)
def test_bad_traces(text: str, code: str, place: str | None, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_jobs(path)
    assert (caught.value.code, caught.value.place) == (code, place)


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ({"gone": {}}, "no-match", "workloads.gone"),
        ({"a": {"weights": {"waiting": 1.0}}}, "unknown-name", "workloads.a"),
        ({"a": {"weights": {"backlog_jobs": -1.0}}}, "not-convex", "workloads.a"),
        ({"a": {"kind": "online"}}, "missing-key", "workloads.a.curve"),
        ({"a": {"flexibility": 1}}, "unknown-key", "workloads.a.flexibility"),
    ],
)
def test_bad_penalties(content: object, code: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"workloads": content}))
    with pytest.raises(InputError) as caught:
        read_penalties(path, ["a"])
    assert (caught.value.code, caught.value.place) == (code, place)
