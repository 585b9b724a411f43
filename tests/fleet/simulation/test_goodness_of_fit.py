"""A scenario beside its log: figures by plain loops, ranges by the formula, verdicts by construction."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from invoking import invoke
from scipy import stats

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast import progress
from holdfast.errors import InputError
from holdfast.fleet import Assumptions, FleetLog
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import BUCKET_TOPS
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.calibration import Calibration, calibrate
from holdfast.fleet.simulation.goodness_of_fit import (
    BY_SIZE,
    BY_STATE,
    FAILURES,
    JOBS,
    UTILISATION,
    WAITS,
    GoodnessOfFit,
    _replica,
    compared,
    figures,
    goodness_of_fit,
    prediction,
)
from holdfast.fleet.simulation.replicas import Task
from holdfast.fleet.simulation.scenario import parse, scenario
from holdfast.fleet.simulation.simulated_log import simulate


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> FleetLog:
    progress.set_quiet(True)
    store = tmp_path_factory.mktemp("fit") / "store"
    simulate("small", store, days=20, seed=11)
    return fleet.open(store, assumptions=Assumptions(write_s=60))


@pytest.fixture(scope="module")
def made(log: FleetLog) -> Calibration:
    return calibrate(log)


@pytest.fixture(scope="module")
def fit(log: FleetLog, made: Calibration) -> GoodnessOfFit:
    return goodness_of_fit(log, made.scenario, made.days, replicas=3, processes=1)


def test_the_range_is_that_of_one_more_replica() -> None:
    values = [3.0, 4.0, 8.0, 5.0]
    low, high = prediction(values, False)
    half = stats.t.ppf(0.95, 3) * np.std(values, ddof=1) * math.sqrt(1.25)
    assert (low, high) == pytest.approx((max(5 - half, 0.0), 5 + half))
    low, high = prediction(values, True)
    assert (low + 1) * (high + 1) == pytest.approx(stats.gmean(np.array(values) + 1) ** 2)


def test_the_range_holds_nine_of_ten() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.normal(100, 5, (2_000, 5))
    inside = 0
    for row in drawn:
        low, high = prediction(row[:4], False)
        inside += low <= row[4] <= high
    assert inside == pytest.approx(1_800, abs=4 * math.sqrt(180))


def test_verdicts() -> None:
    failed = (BY_STATE[0], "FAILED")
    replicas = [{(FAILURES, ""): 100.0 + i, failed: 0.2 + i / 1e4} for i in range(8)]

    def verdicts(real: dict[tuple[str, str], float]) -> list[str]:
        return [row["verdict"] for row in compared(real, replicas)]

    assert verdicts({(FAILURES, ""): 103.0, failed: 0.2003}) == ["fits", "fits"]
    # What the log or every simulation lacks counts as none.
    assert verdicts({(BY_STATE[0], "TIMEOUT"): 0.3}) == ["off", "off", "off"]
    wait = (WAITS[0], "1 GPU")
    assert [row["verdict"] for row in compared({wait: 5.0}, [{wait: 5.0}, {}, {}])] == ["unknown"]


def test_figures_by_plain_loops(random_fleet: RandomFleet) -> None:
    log = random_fleet.log
    days = (log.end_s - log.begin_s) / 86_400
    small = scenario("small")
    found = figures(log, small, days, False)
    victims = set(log.frame(preemptions(log))["key"])
    failed = set(log.frame(infrastructure_failures(log))["key"])
    rows = [row for row in log.frame(log.executions).to_dict("records") if row["gpus"] > 0]
    hours = [row["runtime_s"] * row["gpus"] / 3600 for row in rows]
    ends = ["PREEMPTED" if row["key"] in victims else row["state"] for row in rows]
    for state, count in Counter(ends).items():
        assert found[BY_STATE[0], state] == pytest.approx(count / len(rows))
        time = sum(h for h, end in zip(hours, ends, strict=True) if end == state)
        assert found[BY_STATE[1], state] == pytest.approx(time / sum(hours))
    tops = [next(top for top in BUCKET_TOPS if row["gpus"] <= top) for row in rows]
    jobs = {top: {r["run"] for r, t in zip(rows, tops, strict=True) if t == top} for top in tops}
    total = sum(len(each) for each in jobs.values())
    assert found[BY_SIZE[0], "1 GPU"] == pytest.approx(len(jobs[1]) / total)
    eights = sum(h for h, top in zip(hours, tops, strict=True) if top == 8)
    assert found[BY_SIZE[1], "2–8 GPUs"] == pytest.approx(eights / sum(hours))
    assert found[UTILISATION, ""] == pytest.approx(sum(hours) / (16 * 8 * days * 24))
    assert found[FAILURES, ""] == sum(row["key"] in failed for row in rows)
    waits = [
        max(row["start_s"] - row["eligible_s"], 0)
        for row, top in zip(rows, tops, strict=True)
        if top == 8
    ]
    assert found[WAITS[0], "2–8 GPUs"] == pytest.approx(np.quantile(waits, 0.5))


def test_a_calibrated_scenario_behaves_like_its_log(fit: GoodnessOfFit) -> None:
    told = fit.figures.num_rows - fit.count("unknown")
    assert told > 25
    # Figures depend on each other, so allow twice what independent ones would do by chance.
    assert fit.count("off") <= 2 * stats.binom.ppf(0.95, told, 0.1)
    assert {row["metric"] for row in fit.figures.to_pylist() if not row["of"]} >= {
        UTILISATION,
        FAILURES,
    }


def test_another_scenario_does_not(made: Calibration, fit: GoodnessOfFit) -> None:
    wrong = replace(
        made.scenario,
        workload=replace(made.scenario.workload, jobs_per_day=95.0),
        failures=replace(made.scenario.failures, rate_per_node_day=1.0),
    )
    task = Task(wrong, made.days, 99)
    found = _replica(task, assumptions=Assumptions(write_s=60))
    for name in (FAILURES, JOBS):
        row = next(row for row in fit.figures.to_pylist() if row["metric"] == name)
        assert not row["low"] <= found[name, ""] <= row["high"]


def test_too_few_replicas(log: FleetLog, made: Calibration) -> None:
    with pytest.raises(InputError) as caught:
        goodness_of_fit(log, made.scenario, made.days, replicas=2)
    assert caught.value.code == "no-data"


def test_the_command(
    log: FleetLog,
    made: Calibration,
    fit: GoodnessOfFit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, object] = {}

    def known(*_: object, **given: object) -> GoodnessOfFit:
        asked.update(given)
        return fit

    monkeypatch.setattr("holdfast.fleet.simulation.goodness_of_fit.goodness_of_fit", known)
    store = str(log.store.path)
    file = tmp_path / "mine.toml"
    given = ["calibrate", store, "--write", "60s", "--quiet"]
    done = invoke(*given, "-o", str(file), "--replicas", "8", "--json")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert set(data) == {
        *("scenario", "days", "estimates", "assumed", "notes", "fit", "output", "html"),
    }
    assert asked == {"replicas": 8, "seed": 1, "processes": None}
    assert data["fit"]["fits"] == fit.count("fits")
    assert parse(file.read_text()) == parse(data["scenario"]) == made.scenario
    nowhere = invoke(*given, "-o", str(tmp_path / "no" / "x.toml"))
    assert isinstance(nowhere.exception, InputError)
