"""Failures and node-days of a log, counted again by loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import incidents_by_loops, node_days
from logs import Attempt, Check, Log, names, stamp
from test_attribution import infrastructure_by_loops
from test_losses import SIZES

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast.errors import InputError
from holdfast.fleet.outage_log import outage_failures
from holdfast.fleet.timeline import failure_trend, rate_over_time
from holdfast.stats import poisson_interval


@pytest.mark.parametrize("min_gpus", [0, 7, 8, 16])
def test_counts_by_size(random_fleet: RandomFleet, min_gpus: int) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    ended = [max(a.gpu_count for a in each) for each in incidents_by_loops(rows)]
    failed = [gpus for gpus in ended if gpus > min_gpus]
    days = node_days(rows, 0, min_gpus)
    answer = fleet.mttf(log, min_gpus=min_gpus)
    model = answer.model
    assert model.failures_ == len(failed) > 0
    attempts = [a for a, _, _ in infrastructure_by_loops(rows)]
    if not min_gpus:
        apart = [a for a in attempts if not a.gpu_count]
        assert answer.failed_attempts <= len(attempts) <= answer.failed_attempts + len(apart)
    assert model.clusters_ <= model.failures_ <= answer.failed_attempts
    # A failure within its first second ran for less than that: half a second is counted.
    assert model.node_days_ == pytest.approx(days.total(), rel=1e-6)
    for bucket in model.buckets_:
        low, high = bucket.gpus_min, bucket.gpus_max or 0
        assert high in {top for _, top in SIZES}
        assert bucket.failures == sum(low <= gpus <= high for gpus in failed)
        expected = sum(n for (_, gpus), n in days.items() if low <= gpus <= high)
        assert bucket.node_days == pytest.approx(expected, rel=1e-6)
    assert sum(bucket.failures for bucket in model.buckets_) == len(failed)


def test_the_threshold_is_more_than_not_at_least(tmp_path: Path) -> None:
    nodes = names(17)
    log = Log(
        [
            Attempt(1, nodes[:16], 0, 86_400, "NODE_FAIL"),  # 128 GPUs
            Attempt(2, names(40)[20:37], 0, 86_400, "NODE_FAIL"),  # 136 GPUs
            Attempt(3, ("m1",), 0, 86_400, "NODE_FAIL"),
        ]
    ).open(tmp_path)
    assert fleet.mttf(log).min_gpus == 128
    assert fleet.mttf(log).model.failures_ == 1
    assert fleet.mttf(log).model.node_days_ == pytest.approx(17)
    assert fleet.mttf(log, min_gpus=127).model.failures_ == 2
    assert fleet.mttf(log, min_gpus=0).model.node_days_ == pytest.approx(34)


def test_the_rate_is_per_node_day_of_work_not_of_the_calendar(tmp_path: Path) -> None:
    """Ten nodes that worked one day of ten, one failure: 1 in 10 node-days, not in 100."""
    nodes = names(10)
    log = Log(
        [
            Attempt(1, nodes, 0, 86_400, "NODE_FAIL"),
            Attempt(2, nodes[:1], 9 * 86_400, 9 * 86_400 + 1),
        ]
    ).open(tmp_path)
    model = fleet.mttf(log, min_gpus=0).model
    assert model.rate_per_1000_node_days_ == pytest.approx(100, rel=1e-4)
    low, high = model.ci95_
    assert (low, high) == pytest.approx([1000 * x for x in poisson_interval(1, model.node_days_)])


def test_no_failure_gives_an_upper_bound(tmp_path: Path) -> None:
    log = Log([Attempt(1, names(100), 0, 86_400)]).open(tmp_path)
    answer = fleet.mttf(log, project=[800]).to_dict()
    assert (answer["failures"], answer["rate_per_1000_node_days"]) == (0, 0)
    # The vector of 0 failures in 100 node-days: an MTTF of at least 27.1085 days.
    assert answer["ci95"] == pytest.approx([0, 1000 / 27.1085], rel=1e-5)
    (projection,) = answer["projections"]
    assert projection["mttf_hours"] is None
    assert projection["ci95"] == [pytest.approx(27.1085 * 24 / 100, rel=1e-5), None]


def test_nothing_of_that_size(random_fleet: RandomFleet) -> None:
    assert fleet.mttf(random_fleet.log).min_gpus == 0  # the default falls back to every attempt
    with pytest.raises(InputError) as caught:
        fleet.mttf(random_fleet.log, min_gpus=128)
    assert caught.value.code == "no-data"
    assert "48 GPUs" in str(caught.value.found)


def failure_log(folder: Path, rows: list[tuple[str, int, int | None]]) -> Path:
    path = folder / "failures.csv"
    lines = [f"{node},{stamp(a)},{'' if b is None else stamp(b)},hardware" for node, a, b in rows]
    path.write_text("\n".join(["node,start,end,cause", *lines]) + "\n")
    return path


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    day = 86_400
    rows = [
        ("n1", 0, day),
        ("n2", 2 * day, 3 * day),
        ("n2", int(2.5 * day), 4 * day),  # reports overlap: n2 is down for two days, not for 2.5
        ("n3", 9 * day, None),  # not over: down until the log's end
        ("n1", 9 * day, 10 * day),
    ]
    answer = fleet.mttf(failure_log(tmp_path, rows))
    assert (answer.source, answer.model.failures_) == ("node_outages", 4)
    assert answer.model.node_days_ == pytest.approx(3 * 10 - 1 - 2 - 1 - 1)


def test_a_node_that_is_down_does_not_fail(tmp_path: Path) -> None:
    """Reports that overlap are one failure, with its first named cause; the next one begins at its end."""
    path = tmp_path / "failures.csv"
    path.write_text(
        "node,start,end,cause\n"
        "n1,1767571200,1767830400,\n"  # three days
        "n1,1767600000,1767607200,memory\n"
        "n1,1767800000,1767900000,nvlink\n"  # from inside on to a little later
        "n1,1767850000,1767850000,power\n"
        "n1,1767900000,1767910000,disk\n"
        "n2,1767571200,1767571200,power\n"
        "n2,1767571200,1767571200,power supply\n"
    )
    fleet.ingest([path], tmp_path / "store", nodes=5)
    log = fleet.open(tmp_path / "store")
    found = log.rows(f"SELECT * FROM {outage_failures(log)} ORDER BY node, stop_s")
    assert [(row["node"], row["stop_s"], row["label"], row["down_s"]) for row in found] == [
        ("n1", 1767571200, "memory", 328_800),
        ("n1", 1767900000, "disk", 10_000),
        ("n2", 1767571200, "power", 0),
    ]
    assert fleet.mttf(log).model.failures_ == 3


def test_a_window_on_a_log_of_node_failures(tmp_path: Path) -> None:
    """An outage that began before the window is no failure in it, and its node is not up."""
    day = 86_400
    rows: list[tuple[str, int, int | None]] = [
        ("n1", 0, 4 * day),
        ("n2", 5 * day, 6 * day),
        ("n2", 9 * day, 10 * day),
    ]
    log = fleet.open(failure_log(tmp_path, rows), since="8d")
    model = fleet.mttf(log).model
    assert model.failures_ == 2
    assert model.node_days_ == pytest.approx(2 * 8 - 2 - 1 - 1)


def test_the_trend_takes_the_same_counts(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    frame, unit = rate_over_time(log, 0)
    counted = [ended for ended in incidents_by_loops(rows) if any(a.gpu_count for a in ended)]
    assert sum(row["failures"] for row in frame) == len(counted)
    drift = failure_trend(frame, unit)
    last = max(a.end or 0 for a in rows.attempts)
    ends_the_log = any(a.end == last for ended in counted for a in ended)
    assert drift.failures == fleet.mttf(log, min_gpus=0).model.clusters_ - ends_the_log
    assert drift.p_value is not None
    assert 0 <= drift.p_value <= 1


def test_a_node_that_does_not_boot_is_a_node_failure(tmp_path: Path) -> None:
    """Two logs that differ in the state alone have the same figures."""
    nodes = ("n1", "n2")
    found = []
    for state in ("NODE_FAIL", "BOOT_FAIL"):
        attempts = [Attempt(k, nodes, k * 9000, k * 9000 + 4000, state) for k in range(6)]
        attempts += [Attempt(90 + k, (nodes[k % 2],), k * 9000, k * 9000, state) for k in range(4)]
        attempts += [Attempt(99, ("n3",), None, 50_000, state, submit=0, runtime_s=0)]
        attempts += [Attempt(80, ("n4",), None, None, state, submit=0)]
        attempts += [Attempt(100 + k, nodes, k * 9000 + 5000, k * 9000 + 8000) for k in range(6)]
        checks = [Check(4000 - 5, "n1", "xid 79")]
        log = Log(attempts, checks).open(tmp_path / state)
        signals = fleet.lemons(log).nodes.to_pydict()
        loss = fleet.goodput(log).to_dict()
        status = fleet.status(log)
        assert f"{state} is" in status.sections()[0].sentence
        doubts = [each.text for each in fleet.mttf(log).unknowns()]
        found.append((signals, loss, fleet.mttf(log).to_dict(), status.gpu_hours, doubts))
    assert found[0] == found[1]
    assert found[0][1]["failures"] == 11
