"""The findings: their numbers are those of the results, and every kind of log gets sentences."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from logs import Attempt, Check, Log

import holdfast.fleet as fleet
from conftest import TESTBED_WINDOWS
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.summary import findings
from holdfast.fleet.wording import brief_interval, drift, probability
from holdfast.numbers import brief, duration, percent

HOUR = 3600
COMPRESSED = replace(TESTBED_WINDOWS, checkpoint_interval_s=20, init_s=1, write_s=1, long_run_s=30)


def sentences(log: FleetLog) -> list[str]:
    found = findings(Analysis(log))
    texts = [f"{each.lead} {each.text}".strip() for each in found]
    for text in texts:
        assert text.endswith("."), text
        assert not re.search(r"nan|None|∞|inf\b|\b1 [a-z]+s\b|  ", text), text
        assert not re.search(r"\d%", text), "a space stands before a percent sign"
    return texts


def test_the_numbers_are_those_of_the_results(testbed_store_told: Path) -> None:
    log = fleet.open(testbed_store_told, assumptions=COMPRESSED)
    analysis = Analysis(log)
    loss, lemons, loop, rate, unexplained, ettr = sentences(log)

    goodput = analysis.goodput
    assert loss.startswith(f"{brief(goodput.lost_gpu_hours)} GPU-hours were lost since 2026-11-20")
    assert f"to {goodput.failures} infrastructure failures" in loss
    assert percent(goodput.lost_gpu_hours / goodput.total_gpu_hours) in loss
    assert percent(goodput.lost_second_order / goodput.lost_gpu_hours) in loss

    assert analysis.lemons.lemons == ["node05"]
    assert lemons.startswith("Pull node05 (")
    row = next(r for r in analysis.lemons.nodes.to_pylist() if r["node"] == "node05")
    assert probability("q", row["q_value"]) in lemons
    assert percent(-row["fleet_rate_change"]) in lemons

    worst = goodput.crash_loops.iloc[0]
    assert loop.startswith(f"Job {worst['job_id']} looped: {worst['requeues']} requeues")
    assert f"{worst['preempted']} attempts preempted" in loop

    assert analysis.mttf is not None
    model = analysis.mttf.model
    text = f"{brief(model.rate_per_1000_node_days_)} {brief_interval(*model.ci95_)}"
    assert text in rate
    assert f"fails every {duration(model.mttf_node_days_ * 86_400 / 16)}" in rate  # type: ignore[operator]

    none, failures = analysis.unattributed
    assert unexplained.startswith(f"{none} of {failures} failures ({percent(none / failures)})")
    assert analysis.expected_ettr is not None
    assert f"{percent(analysis.expected_ettr, 1)} [" in ettr


def test_hidden_attempts_come_first(testbed: Path, tmp_path: Path) -> None:
    fleet.ingest([testbed / "sacct_all.psv.gz"], tmp_path / "store")
    first = sentences(fleet.open(tmp_path / "store"))[0]
    assert first.startswith("This log was written without sacct -D")
    assert "too low" in first


def test_no_failure_is_a_finding_and_an_upper_bound(tmp_path: Path) -> None:
    week = [Attempt(job, ("n1", "n2"), 0, 7 * 24 * HOUR) for job in (1, 2)]
    texts = sentences(Log(week).open(tmp_path))
    assert texts[0].startswith("Nothing to do: no infrastructure failure in 5,376 GPU-hours since")
    assert texts[1] == "Pull no node: no node failed."
    # 3.6889 failures are the upper 95 % bound of none; 2 jobs of 2 nodes for 7 days are 28 node-days.
    assert f"at most {1000 * 3.6889 / 28:.0f} failures per 1,000 node-days" in texts[2]
    assert "runs at least 3 d 19 h between failures" in texts[2]


def test_without_health_events_no_cause_is_claimed(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, HOUR, "NODE_FAIL"), Attempt(2, ("n2",), 0, HOUR)])
    texts = sentences(log.open(tmp_path))
    assert "No failure has a cause: the store has no health events" in " ".join(texts)
    assert "its 1 failure." in " ".join(texts)


def test_a_log_without_gpus_speaks_of_nodes(tmp_path: Path) -> None:
    log = Log(
        [
            Attempt(1, ("n1", "n2"), 0, 50 * HOUR, "NODE_FAIL", gpus=0),
            Attempt(2, ("n1", "n2"), 51 * HOUR, 99 * HOUR, gpus=0),
        ]
    )
    texts = sentences(log.open(tmp_path))
    assert texts[0].startswith("1 infrastructure failure since 2026-01-05")
    assert any("a job on 2 nodes fails every" in text for text in texts)
    assert not any("on 16 GPUs" in text for text in texts)


def test_only_pending_attempts(tmp_path: Path) -> None:
    log = Log([Attempt(1, (), None, None, "PENDING", gpus=8, submit=0)])
    assert sentences(log.open(tmp_path))


def test_an_empty_window_names_the_end_of_the_log(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, HOUR)]).open(tmp_path, since="2030-01-01")
    (only,) = sentences(log)
    assert only.startswith(
        "No attempt was alive after 2030-01-01 00:00 UTC: the log ends 2026-01-05"
    )


def test_a_log_of_node_failures(tmp_path: Path) -> None:
    rows = [
        f"node{place % 4},2025-0{1 + place}-01T00:00:00,2025-0{1 + place}-01T06:00:00,{cause}"
        for place, cause in enumerate(("disk", "disk", "memory", "disk", "gpu", "disk"))
    ]
    source = tmp_path / "failures.csv"
    source.write_text("\n".join(["node,start,end,cause", *rows]) + "\n")
    fleet.ingest([source], tmp_path / "store")
    texts = sentences(fleet.open(tmp_path / "store"))
    assert texts[0].startswith("6 node failures on 4 nodes since 2025-01-01 00:00 UTC, 1 d 12 h")
    assert "disk, 67 %" in texts[0]
    # 151.25 days from first start to last end, 4 nodes, less the 36 hours of repair.
    assert f"{brief(1000 * 6 / (4 * 151.25 - 1.5))} [" in texts[2]


@pytest.mark.parametrize("unit", ["month", "minute", "10 minutes"])
def test_the_trend_names_its_bin(testbed_log_told: FleetLog, unit: str) -> None:
    text = drift(replace(Analysis(testbed_log_told).trend, unit=unit))
    assert f"{'in' if unit[0].isdigit() else 'a'} {unit} [" in text


def test_a_new_check_is_told(tmp_path: Path) -> None:
    day = 24 * HOUR
    attempts = [Attempt(job, ("n1",), job * day, (job + 1) * day - 60) for job in range(20)]
    attempts[15] = Attempt(15, ("n1",), 15 * day, 15 * day + HOUR, "FAILED", exit_code="1:0")
    checks = [Check(15 * day + HOUR - 30 + 60 * k, "n1", "check nvlink") for k in range(12)]
    text = " ".join(sentences(Log(attempts, checks).open(tmp_path)))
    assert "1 health check was introduced" in text
