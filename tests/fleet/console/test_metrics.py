"""What Prometheus reads is what the analyses say, in the form that Prometheus wants."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from logs import Attempt, Check, Log, names
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import holdfast.fleet as fleet
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.metrics import Values, exposition, measure
from holdfast.fleet.console.watching import WatchStatus

DAY = 86_400
IN_HOURS_AND_DAYS = ("_hours", "_days")
"""The names that the metrics are known by; promtool would have seconds."""


def families(text: bytes) -> dict[str, Metric]:
    """By name, as the client's own parser reads them."""
    found = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def values(text: bytes, name: str) -> dict[tuple[str, ...], float]:
    """Sample values of a metric by its labels' values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in families(text).values()
        for sample in family.samples
        if sample.name == name
    }


def single(text: bytes, name: str) -> float:
    ((_, value),) = values(text, name).items()
    return value


@pytest.fixture(scope="module")
def measures(testbed_log: FleetLog) -> dict[str, Values]:
    return measure(Analysis(testbed_log))


@pytest.fixture(scope="module")
def text(measures: dict[str, Values]) -> bytes:
    return exposition(measures, WatchStatus(1.5, 12, problems=("a.psv: unreadable",)))


def test_names_types_and_help(text: bytes) -> None:
    found = families(text)
    assert len(found) > 30
    for family in found.values():
        assert family.name.startswith("holdfast_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert "job" not in sample.labels  # Prometheus puts its own there
            assert not math.isnan(sample.value)


def test_the_metrics_that_were_promised(text: bytes) -> None:
    promised = {
        "holdfast_node_failures": ["cause", "domain"],
        "holdfast_failure_rate_per_node_day": [],
        "holdfast_failure_rate_per_node_day_lower": [],
        "holdfast_failure_rate_per_node_day_upper": [],
        "holdfast_mttf_hours": ["gpus"],
        "holdfast_ettr": ["gpus"],
        "holdfast_goodput_lost_gpu_hours": ["order"],
        "holdfast_lemon_score": ["node"],
        "holdfast_unattributed_share": [],
        "holdfast_store_rejected_records": [],
    }
    samples = [s for family in families(text).values() for s in family.samples]
    for name, labels in promised.items():
        if name == "holdfast_ettr":  # no run of the testbed lasted a day
            assert not any(s.name == name for s in samples)
            assert "# TYPE holdfast_ettr gauge" in text.decode()
            continue
        assert {tuple(s.labels) for s in samples if s.name == name} == {tuple(labels)}, name


def test_the_figures_are_those_of_the_analyses(text: bytes, testbed_log: FleetLog) -> None:
    lost = fleet.goodput(testbed_log)
    assert values(text, "holdfast_goodput_lost_gpu_hours") == {
        ("first",): pytest.approx(lost.lost_first_order),
        ("second",): pytest.approx(lost.lost_second_order),
    }
    by_cause = {cause: n for (cause, _), n in values(text, "holdfast_node_failures").items()}
    expected = lost.by_cause.to_pylist()
    assert by_cause == {row["cause"]: row["failures"] for row in expected if row["failures"]}
    rate = Analysis(testbed_log).mttf
    assert rate is not None
    low, high = rate.model.ci95_
    assert single(text, "holdfast_failure_rate_per_node_day_lower") == pytest.approx(low / 1000)
    assert single(text, "holdfast_failure_rate_per_node_day_upper") == pytest.approx(high / 1000)
    for (gpus,), hours in values(text, "holdfast_mttf_hours").items():
        assert hours == pytest.approx(rate.model.mttf_hours(int(gpus), 8)[0])
    worst = lost.crash_loops.to_pylist()[0]
    assert values(text, "holdfast_crash_loop_requeues")[worst["job_id"],] == worst["requeues"]
    lemon = {node for (node,), yes in values(text, "holdfast_lemon").items() if yes}
    assert lemon == set(fleet.lemons(testbed_log).lemons)
    assert single(text, "holdfast_store_attempts") == 613
    assert single(text, "holdfast_watch_problems") == 1
    assert single(text, "holdfast_watch_rows_total") == 12


def test_the_domains_are_the_taxonomys(text: bytes) -> None:
    by_label = dict(values(text, "holdfast_node_failures").keys())
    assert by_label["PCIe"] == "hardware"
    assert by_label["Filesystem mount"] == "system,hardware"
    assert by_label["unattributed"] == "unknown"


def test_a_failure_moves_to_its_cause_when_the_store_learns_more(tmp_path: Path) -> None:
    nodes = names(17)
    attempts = [
        Attempt(1, nodes, 0, DAY, "NODE_FAIL"),
        Attempt(2, nodes, 0, 40 * DAY, "NODE_FAIL"),
        Attempt(3, nodes, 0, 45 * DAY),
    ]
    store = Log(attempts, [Check(DAY - 30, nodes[0], "check nvlink")]).store(tmp_path / "a")
    before = exposition(measure(Analysis(fleet.open(store))))
    assert values(before, "holdfast_node_failures") == {
        ("NVLink", "hardware"): 1,
        ("unattributed", "unknown"): 1,
    }
    assert single(before, "holdfast_unattributed_share") == 0.5
    assert single(before, "holdfast_recent_failures") == 1
    assert single(before, "holdfast_recent_unattributed_failures") == 1
    later = Log(attempts, [Check(40 * DAY - 30, nodes[3], "check nvlink")])
    fleet.ingest(later.write(tmp_path / "b"), store)
    after = exposition(measure(Analysis(fleet.open(store))))
    assert values(after, "holdfast_node_failures") == {
        ("NVLink", "hardware"): 2,
        ("unattributed", "unknown"): 0,
    }
    assert single(after, "holdfast_unattributed_share") == 0


def test_no_failures_give_bounds_and_no_estimate(tmp_path: Path) -> None:
    log = Log([Attempt(1, names(17), 0, 10 * DAY)], nodes=dict.fromkeys(names(17), 8))
    text = exposition(measure(Analysis(log.open(tmp_path))))
    assert single(text, "holdfast_failure_rate_per_node_day") == 0
    assert single(text, "holdfast_failure_rate_per_node_day_upper") == pytest.approx(
        -math.log(0.025) / 170
    )
    assert values(text, "holdfast_mttf_hours") == {}
    assert set(values(text, "holdfast_mttf_hours_upper").values()) == {math.inf}
    assert values(text, "holdfast_unattributed_share") == {}
    assert single(text, "holdfast_ettr_runs") == 1
    assert 0.99 < single(text, "holdfast_ettr") <= 1


def test_a_store_in_which_nothing_ran(tmp_path: Path) -> None:
    log = Log([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)])
    text = exposition(measure(Analysis(log.open(tmp_path))))
    assert values(text, "holdfast_failure_rate_per_node_day") == {}
    assert single(text, "holdfast_gpu_hours") == 0


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    (tmp_path / "failures.csv").write_text(
        "node,start,end,cause\n"
        "n1,2026-01-05T00:00:00Z,2026-01-05T02:00:00Z,memory\n"
        "n2,2026-02-05T00:00:00Z,2026-02-05T02:00:00Z,\n"
        "n1,2026-03-05T00:00:00Z,2026-03-05T02:00:00Z,memory\n"
    )
    text = exposition(measure(Analysis(fleet.open(tmp_path / "failures.csv"))))
    assert values(text, "holdfast_node_failures") == {
        ("memory", "unknown"): 2,
        ("unattributed", "unknown"): 1,
    }
    assert single(text, "holdfast_failure_rate_per_node_day") > 0


def test_labels_with_odd_characters_come_through() -> None:
    odd = 'no"de\\1\n{}'
    text = exposition({"lemon_score": {(odd,): 2.0}})
    assert values(text, "holdfast_lemon_score") == {(odd,): 2.0}


def lint(text: bytes) -> Iterable[str]:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool (Debian package prometheus)")
    run = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
    return (run.stdout + run.stderr).decode().splitlines()


def test_promtool_has_nothing_to_say_but_that_hours_are_no_seconds(text: bytes) -> None:
    for line in lint(text):
        name, _, complaint = line.partition(" ")
        assert complaint.startswith('use base unit "seconds"'), line
        assert any(unit in name for unit in IN_HOURS_AND_DAYS), line
