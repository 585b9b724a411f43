"""Scenarios fitted to logs: what was injected is found again, and what a log lacks is said."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from logs import Attempt, Log, Outage, names
from scipy import stats

import holdfast.fleet as fleet
from conftest import TESTBED_WINDOWS
from holdfast import progress
from holdfast.errors import InputError
from holdfast.fleet import Assumptions, FleetLog
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.simulation.calibrated_failures import two_kinds, uniform_range
from holdfast.fleet.simulation.calibrated_machines import fold
from holdfast.fleet.simulation.calibrated_workload import merged_sizes
from holdfast.fleet.simulation.calibration import Calibration, calibrate
from holdfast.fleet.simulation.estimates import Estimate, rounded, wrapped
from holdfast.fleet.simulation.scenario import (
    Cluster,
    Component,
    End,
    Lemons,
    Scenario,
    Size,
    parse,
    scenario,
)
from holdfast.fleet.simulation.simulated_log import simulate

H = 3600
TESTBED_ASSUMED = replace(TESTBED_WINDOWS, checkpoint_interval_s=60, init_s=1)


def simulated(of: Scenario, folder: Path, days: float, seed: int) -> FleetLog:
    """A simulated log, opened under the assumptions that its scenario fulfils."""
    progress.set_quiet(True)
    simulate(of, folder, days=days, seed=seed)
    assumed = Assumptions(
        checkpoint_interval_s=of.checkpoint.interval_s,
        write_s=of.checkpoint.write_s,
        init_s=of.checkpoint.init_s,
    )
    return fleet.open(folder, assumptions=assumed)


def injected(of: Scenario) -> dict[str, float]:
    """What was injected, by the key under which it must be found again with an interval."""
    truth = {
        "workload.jobs_per_day": of.workload.jobs_per_day,
        "workload.short_limits": of.workload.short_limits,
        "failures.rate_per_node_day": of.failures.rate_per_node_day,
        "scheduler.preempt_after": of.scheduler.preempt_after_s,
        "scheduler.requeue_delay": of.scheduler.requeue_delay_s,
    }
    total = sum(size.share for size in of.workload.sizes)
    for place, size in enumerate(of.workload.sizes):
        key = f"workload.sizes[{place}]"
        truth |= {f"{key}.share": size.share / total, f"{key}.hours": size.hours}
        truth[f"{key}.spread"] = size.spread
    for place, end in enumerate(of.workload.ends):
        key = f"workload.ends[{place}]"
        truth |= {f"{key}.scale_hours": end.scale_hours, f"{key}.shape": end.shape}
    return truth


def missed(made: Calibration, truth: dict[str, float]) -> dict[str, tuple[float, ...]]:
    """Keys whose 95 % interval does not hold the truth."""
    found = {each.key: each for each in made.estimates}
    wrong = {}
    for key, value in truth.items():
        each = found[key]
        assert each.interval is not None, key
        low, high = each.interval
        if not low * (1 - 1e-3) <= value <= high * (1 + 1e-3):  # values are rounded to be read
            wrong[key] = (value, low, high)
    return wrong


def most_misses(keys: int) -> int:
    """More intervals of 95 % than this miss with a probability below one in a thousand."""
    return int(stats.binom.isf(1e-3, keys, 0.05))


# --- Closing the loop ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> FleetLog:
    return simulated(scenario("small"), tmp_path_factory.mktemp("loop") / "small", 60, 100)


@pytest.fixture(scope="module")
def small(small_log: FleetLog) -> Calibration:
    return calibrate(small_log)


def test_what_was_injected_is_found_again(small: Calibration) -> None:
    of = scenario("small")
    truth = injected(of)
    assert len(missed(small, truth)) <= most_misses(len(truth)), missed(small, truth)
    made = small.scenario
    assert made.cluster == replace(of.cluster, names="node[01-16]", nodes_per_pod=16)
    assert made.qos == of.qos
    assert made.scheduler.grace_s == 600
    assert made.scheduler.time_limit_s == 7 * 86_400
    assert [size.gpus for size in made.workload.sizes] == [1, 4, 8, 32, 64]
    assert made.workload.sizes[4].qos == {"high": 1.0}
    assert made.workload.users == 12
    correlation = np.corrcoef(made.workload.hour_weights, of.workload.hour_weights)[0, 1]
    assert correlation > 0.9
    assert max(made.workload.day_weights[5:]) < 0.85 < 1 < min(made.workload.day_weights[:5])
    assert 60 * 50 < made.repair.fast_min_s < made.repair.fast_max_s < 60 * 200
    assert 0.7 * 86_400 < made.repair.slow_min_s < made.repair.slow_max_s < 3.3 * 86_400


def test_injected_components_and_lemons(small: Calibration, small_log: FleetLog) -> None:
    failures = small.scenario.failures
    parts = {each.name: each for each in failures.components}
    assert set(parts) == {"GPU memory error", "InfiniBand link", "unattributed"}
    # With n failures a share has a standard error of at most 0.5 / sqrt(n).
    n = len(small_log.arrow(infrastructure_failures(small_log)))
    assert parts["GPU memory error"].share == pytest.approx(0.5, abs=3 * 0.5 / math.sqrt(n))
    assert parts["GPU memory error"].check == "gpu_ecc"
    assert parts["GPU memory error"].xid == 48
    assert parts["unattributed"].high == 0
    truth = pd.read_json(small_log.store.path / "truth.json", typ="series")["lemons"]
    assert list(failures.lemons.nodes) == truth
    assert failures.lemons.nodes[truth[0]] > 2


def test_other_parameters_are_followed(tmp_path: Path) -> None:
    base = scenario("small")
    other = replace(
        base,
        cluster=replace(base.cluster, nodes=30, gpus_per_node=4, nodes_per_pod=10),
        workload=replace(
            base.workload,
            jobs_per_day=400,
            sizes=(
                Size(1, 0.6, 0.7, 0.9, {"low": 1.0}),
                Size(2, 0.2, 3.0, 1.5, {"low": 0.5, "normal": 0.5}),
                Size(16, 0.2, 1.2, 0.6, {"high": 1.0}),
            ),
            ends=(
                End("FAILED", 6.0, 0.8),
                End("CANCELLED", 40.0, 1.0),
                End("OUT_OF_MEMORY", 60.0, 0.7),
                End("REQUEUED", 30.0, 1.3),
            ),
            hour_weights=(1.0,) * 24,
            short_limits=0.05,
        ),
        scheduler=replace(base.scheduler, preempt_after_s=1800, requeue_delay_s=60),
        failures=replace(base.failures, rate_per_node_day=0.2, lemons=Lemons()),
        checkpoint=replace(base.checkpoint, interval_s=1200, write_s=0, init_s=60),
    )
    made = calibrate(simulated(other, tmp_path / "store", 30, 7))
    truth = injected(other)
    assert len(missed(made, truth)) <= most_misses(len(truth)), missed(made, truth)
    assert made.scenario.cluster.nodes == 30
    assert made.scenario.cluster.gpus_per_node == 4
    assert [each.state for each in made.scenario.workload.ends] == [
        each.state for each in other.workload.ends
    ]
    assert not made.scenario.failures.lemons.nodes


@pytest.mark.full
def test_intervals_cover_over_many_seeds(tmp_path: Path) -> None:
    of = scenario("small")
    truth = injected(of)
    wrong = 0
    for seed in range(20):
        made = calibrate(simulated(of, tmp_path / str(seed), 45, 500 + seed))
        wrong += len(missed(made, truth))
    assert wrong <= most_misses(20 * len(truth))


# --- The file ------------------------------------------------------------------------------------


def test_the_file_reads_back_to_the_same_scenario(small: Calibration) -> None:
    text = small.to_toml()
    assert parse(text) == small.scenario
    lines = text.splitlines()
    at = lines.index(f"jobs_per_day = {small.scenario.workload.jobs_per_day!r}")
    assert lines[at - 1].startswith("#")
    assert "at 95 %, n = " in lines[at - 1]
    at = next(i for i, line in enumerate(lines) if line.startswith("nodes_per_pod"))
    assert lines[at - 1].startswith("# assumed:")
    # Every key stands once, below what is known of it.
    for each in small.estimates:
        assert each.comment().split(":")[0].split(",")[0][:20] in text


def test_comments_cannot_be_broken_out_of() -> None:
    lines = wrapped(Estimate("cluster.nodes", "a\nname = 'evil'\x1b[0m", 4).comment())
    assert all(line.startswith("#") and line.isprintable() for line in lines)


def test_json_says_what_is_estimated_and_what_is_assumed(small: Calibration) -> None:
    data = small.to_dict()
    assert {each["key"] for each in data["assumed"]} >= {
        "scheduler.policy",
        "scheduler.interval",
        "cluster.nodes_per_rack",
        "checkpoint.interval",
    }
    assert not {each["key"] for each in data["assumed"]} & {
        each["key"] for each in data["estimates"]
    }
    assert parse(data["scenario"]) == small.scenario
    assert all(each["why"] for each in data["assumed"])


# --- Logs that lack something --------------------------------------------------------------------


def test_the_testbed(testbed_store: Path) -> None:
    made = calibrate(fleet.open(testbed_store, assumptions=TESTBED_ASSUMED))
    of = made.scenario
    assert of.cluster.names == "node[01-16]"
    assert [each.name for each in of.qos] == ["low", "normal", "high"]
    found = {each.key: each for each in made.estimates}
    low, high = found["scheduler.preempt_after"].interval or (0, 0)
    assert low <= 10 <= high  # PreemptExemptTime of its slurm.conf
    assert of.scheduler.grace_s == 8  # of the class of most victims
    assert of.scheduler.requeue_delay_s == 21  # cred_expire + 1
    assert of.scheduler.time_limit_s == 300
    assert set(of.failures.lemons.nodes) <= {"node05", "node16"}
    assert made.days == pytest.approx(15 / 60 / 24, rel=0.1)
    assert of.workload.hour_weights == (1.0,) * 24
    assert found["workload.hour_weights"].estimated is False
    assert parse(made.to_toml()) == of
    # Nothing that is assumed is longer than a typical attempt of compressed time.
    assert of.detection.heartbeat_s < 30
    assert of.scheduler.interval_s < 3


@pytest.mark.parametrize("write_s", [30.0, 300.0])
def test_work_that_checkpoints_leave_no_time_for_is_refused(
    write_s: float, testbed_log: FleetLog
) -> None:
    assumed = replace(testbed_log.assumptions, write_s=write_s)
    with pytest.raises(InputError) as caught:
        calibrate(FleetLog(testbed_log.store, assumed))
    assert caught.value.code == "no-data"
    assert caught.value.found


def test_accounting_alone(testbed: Path, tmp_path: Path) -> None:
    """No health events, no qos table, no outages, no inventory."""
    fleet.ingest([testbed / "sacct_D_all.psv.gz"], tmp_path / "store")
    made = calibrate(fleet.open(tmp_path / "store", assumptions=TESTBED_ASSUMED))
    of = made.scenario
    assert of.cluster.nodes == 16
    assert of.cluster.gpus_per_node == 8
    assert [each.name for each in of.qos] == ["low", "normal", "high"]
    assert [each.name for each in of.failures.components] == ["unattributed"]
    assert of.failures.components[0].high == 0
    assert any("no health events" in note for note in made.remarks)
    assert {"repair", "scheduler.grace"} <= {e.key for e in made.estimates if not e.estimated}
    assert parse(made.to_toml()) == of


def test_a_log_of_node_failures_is_no_log_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "failures.csv"
    path.write_text(
        "node,start,end,cause\n"
        + "".join(f"n{i},2024-01-0{i}T00:00:00,2024-01-0{i}T05:00:00,disk\n" for i in range(1, 6))
    )
    fleet.ingest([path], tmp_path / "store")
    with pytest.raises(InputError, match="no attempt ended") as caught:
        calibrate(tmp_path / "store")
    assert "a log of nodes only" in str(caught.value)
    assert "sacct" in str(caught.value)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("attempts", "problem", "found"),
    [
        ([Attempt(1, names(1), 0, None, "RUNNING", runtime_s=50)], "no attempt ended", "1 attempt"),
        ([Attempt(i, names(1), 60 * i, 60 * i + 40) for i in range(9)], "too short", "jobs"),
        (
            [
                Attempt(i, names(1), 60 * i, 60 * i + 40, "FAILED", exit_code="1:0")
                for i in range(90)
            ],
            "too short",
            "0 of them completed",
        ),
        (
            [Attempt(i, names(1), 60 * i, 60 * i + 40, gpus=0) for i in range(90)],
            "too short",
            "asked for GPUs",
        ),
    ],
)
def test_too_short_logs_say_what_is_missing(
    attempts: list[Attempt], problem: str, found: str, tmp_path: Path
) -> None:
    log = Log(attempts).open(tmp_path)
    with pytest.raises(InputError, match=problem) as caught:
        calibrate(log)
    assert found in str(caught.value)
    assert "expected: " in str(caught.value)


# --- The parts -----------------------------------------------------------------------------------


def test_one_event_that_ends_many_attempts_is_one_failure(tmp_path: Path) -> None:
    nodes = names(8)
    attempts = []
    for day in range(30):
        for slot in range(8):  # eight one-GPU jobs share each failing node
            job = 100 * day + slot
            attempts.append(
                Attempt(
                    job, (nodes[day % 8],), day * 86_400, day * 86_400 + 7200, "NODE_FAIL", gpus=1
                )
            )
        attempts.append(Attempt(100 * day + 50, nodes, day * 86_400 + 9000, day * 86_400 + 80_000))
    log = Log(
        attempts,
        outages=[Outage(nodes[d % 8], d * 86_400 + 7200, d * 86_400 + 9000) for d in range(30)],
        nodes=dict.fromkeys(nodes, 8),
    ).open(tmp_path)
    made = calibrate(log)
    rate = next(e for e in made.estimates if e.key == "failures.rate_per_node_day")
    assert rate.n == 30
    assert rate.interval is not None
    # 240 attempts, but 30 incidents.
    relative = rate.interval[1] / (rate.value or math.nan)
    assert relative == pytest.approx(stats.chi2.ppf(0.975, 62) / 2 / 30, rel=1e-3)
    assert made.scenario.failures.components == (
        Component("unattributed", 1.0, "node_down", high=0.0, permanent=0.0),
    )
    assert made.scenario.repair.fast_min_s == made.scenario.repair.fast_max_s == 1800


def test_rare_sizes_go_to_the_nearest_power_of_two() -> None:
    gpus = np.array([1] * 500 + [3] * 2 + [7] * 3 + [6] * 40 + [24] * 2 + [96] + [1000] + [40] * 50)
    short, long = np.full(gpus.size, 10.0), np.where(gpus == 96, 1e5, 10.0)
    short[gpus > 90] = 0.1
    cluster = Cluster(100, 8)
    merged = merged_sizes(gpus, short, cluster)
    assert sorted(set(merged.tolist())) == [1, 4, 6, 8, 32, 40, 128, 512]
    # A size with much of the GPU time stays what it is.
    assert 96 in merged_sizes(gpus, long, cluster).tolist()
    assert merged_sizes(np.array([800] * 2), np.zeros(2), cluster).max() <= 800


def test_repairs_of_two_kinds() -> None:
    rng = np.random.default_rng(8)
    fast, slow = rng.uniform(3600, 10_800, 90), rng.uniform(86_400, 3 * 86_400, 10)
    split = two_kinds(np.concatenate([fast, slow]))
    assert fast.max() < split < slow.min()
    assert two_kinds(fast) == math.inf
    assert two_kinds(np.full(20, 60.0)) == math.inf
    low, high = uniform_range(rng.uniform(3600, 10_800, 20_000))
    assert low == pytest.approx(3600, rel=0.03)
    assert high == pytest.approx(10_800, rel=0.02)


def test_names_fold_only_where_they_read_back() -> None:
    assert fold([f"gpu-{i:03d}" for i in range(1, 17)]) == "gpu-[001-016]"
    assert fold(["b", "a"]) == "a,b"
    assert fold(["a b", "c"]) == ""


def test_small_numbers() -> None:
    assert rounded(0.00654321) == 0.006543
    assert rounded(0.0) == 0.0
