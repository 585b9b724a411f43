"""holdfast and a script in pandas, written apart, give the same answers on the same log."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fleet_pandas
from fleet_log import Truth, write_log
from holdfast import fleet

ROUNDING = 1e-9


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("log")
    truth = write_log(
        folder,
        15_000,
        200,
        20_000,
        seed=11,
        rate_per_node_day=0.05,
        lemon_share=0.02,
        nasty_share=0,
    )
    return folder, truth


@pytest.fixture(scope="module")
def ours(log: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> fleet.FleetLog:
    store = tmp_path_factory.mktemp("store") / "store"
    files = [log[0] / name for name in ("sacct.psv", "health.jsonl", "scontrol_nodes.txt")]
    fleet.ingest(files, store)
    return fleet.open(store)


@pytest.fixture(scope="module")
def theirs(log: tuple[Path, Truth]) -> dict[str, object]:
    return fleet_pandas.answer(log[0])


def test_status(ours: fleet.FleetLog, theirs: dict[str, object], log: tuple[Path, Truth]) -> None:
    answer = fleet.status(ours).to_dict()
    assert answer["by_count"] == pytest.approx(theirs["by_count"], rel=ROUNDING)
    # Until when a running attempt is counted is each one's own choice.
    hours = {state: share for state, share in answer["by_gpu_time"].items() if state != "RUNNING"}
    assert hours == pytest.approx(
        {key: theirs["by_gpu_time"].get(key, 0.0) for key in hours}, rel=1e-4
    )
    total = sum(log[1].states.values())
    assert answer["by_count"] == pytest.approx({k: n / total for k, n in log[1].states.items()})


def test_failure_rate(ours: fleet.FleetLog, theirs: dict[str, object]) -> None:
    answer = fleet.mttf(ours, min_gpus=128).to_dict()
    for key in ("failures", "node_days", "rate_per_1000_node_days"):
        assert answer[key] == pytest.approx(theirs[key], rel=ROUNDING), key
    # Some of the failures come together: theirs takes each as independent of the others.
    low, high = theirs["ci95"]  # type: ignore[misc]
    assert answer["ci95"][0] <= low < high <= answer["ci95"][1]


def test_failures_are_the_injected_ones(ours: fleet.FleetLog, log: tuple[Path, Truth]) -> None:
    answer = fleet.mttf(ours, min_gpus=0).to_dict()
    # A user's own failure next to a critical check of another attempt on the node is counted, too.
    assert log[1].failures <= answer["failures"] <= log[1].failures * 1.05


def test_goodput(ours: fleet.FleetLog, theirs: dict[str, object]) -> None:
    answer, expected = fleet.goodput(ours).to_dict(), theirs["goodput"]
    assert math.isclose(answer["total"], expected["total"], rel_tol=1e-4)  # running attempts
    assert math.isclose(answer["lost_first_order"], expected["lost_first_order"], rel_tol=ROUNDING)


def test_lemons(ours: fleet.FleetLog, log: tuple[Path, Truth]) -> None:
    assert set(fleet.lemons(ours).to_dict()["lemons"]) == set(log[1].lemons)
