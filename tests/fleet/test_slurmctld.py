from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.slurmctld import SLURMCTLD


def truth(testbed: Path, name: str) -> list[dict[str, Any]]:
    lines = (testbed / f"truth_{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture(scope="module")
def events(testbed: Path) -> list[dict[str, Any]]:
    tables = read(SLURMCTLD, testbed / "slurmctld.log.gz")
    assert rejected(tables) == []
    return tables["controller_events"].to_pylist()


def test_signalled_preemptions(testbed: Path, events: list[dict[str, Any]]) -> None:
    found = Counter(
        (round(row["time_s"], 3), row["job_id_raw"], row["preemptor_raw"])
        for row in events
        if row["event"] == "preempt"
    )
    expected = Counter(
        (round(seconds(row["time"]), 3), row["victim"], row["preemptor"])
        for row in truth(testbed, "preemptions")
        if row["event"] == "signalled"
    )
    assert found == expected
    assert found.total() == 86


def test_requeued_preemptions(testbed: Path, events: list[dict[str, Any]]) -> None:
    ends = [row for row in events if row["event"] in ("preempt_requeue", "preempt_kill")]
    found = Counter(row["job_id_raw"] for row in ends)
    expected = Counter(
        row["victim"] for row in truth(testbed, "preemptions") if row["event"] == "requeued"
    )
    assert found == expected
    assert Counter(row["event"] for row in ends) == {"preempt_requeue": 17, "preempt_kill": 2}


def test_failed_nodes(testbed: Path, events: list[dict[str, Any]]) -> None:
    found = {
        (round(row["time_s"], 3), row["job_id"], row["node"])
        for row in events
        if row["event"] == "node_fail"
    }
    expected = {
        (round(seconds(time), 3), text.partition("JobId=")[2].split("(")[0].split()[0], row["node"])
        for row in truth(testbed, "failures")
        for time, text in row["slurm_log"]
    }
    assert len(expected) > 26
    assert expected <= found


def test_array_tasks_and_unknown_preemptors(events: list[dict[str, Any]]) -> None:
    by_job = {(row["event"], row["job_id"]): row for row in reversed(events)}
    assert by_job["preempt", "76_3"]["job_id_raw"] == 85
    assert ("54", "163_2", 163) in {
        (row["job_id"], row["preemptor"], row["preemptor_raw"]) for row in events
    }
    assert by_job["preempt_requeue", "186"]["preemptor"] is None
    assert by_job["node_fail", "31"]["node"] == "node02"


def test_the_start_of_the_controller_is_a_fact(testbed: Path) -> None:
    batches = list(SLURMCTLD.read(testbed / "slurmctld.log.gz", ReadOptions()))
    facts = {"slurm_version": "22.05.8", "cluster": "atlas", "local_times": 1}
    assert batches[0].facts == facts


def test_zones_and_cut_lines(tmp_path: Path) -> None:
    path = tmp_path / "slurmctld.log"
    path.write_text(
        "[2026-07-01T12:00:00] slurmctld version 23.11.4 started on cluster x\n"
        "[2026-07-01T12:00:00] requeue job JobId=98+0(98) due to failure of node n1\n"
        "[2026-07-01T12:00:00.250+00:00] Killing JobId=7 on failed node n2\n"
        "[2026-07-01T12:00:01.000] requeue job JobId= due to failure of node\n"
        "garbage due to failure of node n3\n"
        "[2026-07-01T12:00:02.000] preempted JobId=5 has been kil"  # the end is cut off
    )
    tables = read(SLURMCTLD, path, ReadOptions(timezone=ZoneInfo("Europe/Berlin")))
    ten = datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp()
    table = tables["controller_events"].sort_by("time_s")
    assert rows(table, "time_s", "event", "job_id", "job_id_raw", "node") == [
        (ten, "node_fail", "98+0", 98, "n1"),
        (ten + 2, "preempt_kill", "5", 5, None),
        (ten + 7200.25, "node_fail", "7", 7, "n2"),
    ]
    assert rejected(tables) == [
        (4, "not a whole line of node_fail"),
        (5, "not a whole line of node_fail"),
    ]


JOBS = st.tuples(
    st.integers(1, 10**9), st.none() | st.tuples(st.integers(0, 9999), st.integers(1, 10**9))
)


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(JOBS, JOBS, st.integers(0, 2 * 10**12), st.integers(0, 3600))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    victim: tuple[int, tuple[int, int] | None],
    preemptor: tuple[int, tuple[int, int] | None],
    milliseconds: int,
    grace: int,
) -> None:
    def written(job: tuple[int, tuple[int, int] | None]) -> tuple[str, str, int]:
        number, task = job
        if task is None:
            return f"JobId={number}", str(number), number
        return f"JobId={number}_{task[0]}({task[1]})", f"{number}_{task[0]}", task[1]

    milliseconds = max(milliseconds, 10**12)
    stamp = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    (a, a_id, a_raw), (b, b_id, b_raw) = written(victim), written(preemptor)
    path = tmp_path_factory.mktemp("log") / "slurmctld.log"
    path.write_text(
        f"[{stamp}.{milliseconds % 1000:03}] debug:  setting {grace} sec preemption grace time for {a} "
        f"to reclaim resources for {b}\n"
    )
    table = read(SLURMCTLD, path)["controller_events"]
    assert rows(table, "event", "job_id", "job_id_raw", "preemptor", "preemptor_raw", "time_s") == [
        ("preempt", a_id, a_raw, b_id, b_raw, pytest.approx(milliseconds / 1000, abs=1e-6))
    ]
