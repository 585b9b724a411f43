"""The benchmark of the simulator runs, says which peers are absent, and is rendered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fleet_simulate
import render
from fleet_simulate_steps import batch, batch_workload, gang, monte_carlo
from measuring import CommandFailed


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("benchmark")
    options = {
        "peers": folder / "nothing",
        "preset": "small",
        "days": 2,
        "repeats": 1,
        "jobs": 60,
        "processors": 8,
        "gang-nodes": 4,
        "gang-runs": 1,
        "replicas": 5,
        "replica-count": 2,
        "replica-days": 0.5,
        "result": folder / "result.json",
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    fleet_simulate.main(arguments)
    return json.loads(options["result"].read_text(encoding="utf-8"))


@pytest.mark.full
def test_results_without_peers(result: dict, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Absent, not compared: AIReSim, AccaSim, CQSim." in result["notes"]
    assert [row["peer"] for row in result["comparisons"]] == ["on one"]
    assert result["figures"]["answers"]["history"]["events"] > 500
    assert set(result["versions"]) == {"holdfast", "numba", "numpy"}


@pytest.mark.full
def test_the_page_has_every_limit(result: dict) -> None:
    page = render._section(result)
    assert "| events a second, with scheduling |" in page
    assert "at least 500,000 1/s" in page
    assert "store written | " in page
    assert page.count("| kept |") + page.count("| **missed** |") == 4


def test_limits_are_judged_from_their_own_side() -> None:
    row = {"what": "speed", "value": 700_000, "unit": "1/s", "limit": 500_000}
    assert render._limit(row).endswith("| **missed** |")
    assert render._limit(row | {"least": True}).endswith("| at least 500,000 1/s | kept |")
    assert render._limit(row | {"limit": None}) == "| speed | 700,000 1/s | | |"


@pytest.mark.full
def test_batch_writes_the_start_of_every_job(tmp_path: Path) -> None:
    starts = tmp_path / "starts.csv"
    answer = batch("easy", jobs=50, processors=8, load=0.8, seed=2, starts=str(starts))
    assert answer["events"] == 150
    rows = np.loadtxt(starts, delimiter=",", dtype=np.int64)
    assert (rows[:, 0] == np.arange(1, 51)).all()
    assert (rows[:, 1] >= batch_workload(50, 8, 0.8, 2).submit).all()


def test_other_schedules_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("1,5\n2,9\n")
    (tmp_path / "theirs").write_text("2,9\n1,5\n")
    fleet_simulate._same_starts(tmp_path / "ours", tmp_path / "theirs", "peer")
    (tmp_path / "theirs").write_text("2,9\n1,6\n")
    with pytest.raises(CommandFailed, match="another schedule"):
        fleet_simulate._same_starts(tmp_path / "ours", tmp_path / "theirs", "peer")


@pytest.mark.full
def test_a_gang_fails_and_ends_as_its_rates_say() -> None:
    answer = gang(
        nodes=50,
        spare=8,
        rate_per_node_day=0.02,
        productive_days=30,
        init_s=1200,
        repair_s=600,
        runs=20,
    )
    # One failure a day of running: 30 days and the recoveries of 20 minutes.
    assert answer["failures"] == pytest.approx(30, rel=0.15)
    assert answer["days"] == pytest.approx(30 * (1 + 1200 / 86_400), rel=0.01)


def test_monte_carlo_knows_its_error() -> None:
    answer = monte_carlo(replicas=20, nodes=100, rate_per_node_day=6.5e-3)
    assert answer["ci95"][0] < answer["ettr"] < answer["ci95"][1]
