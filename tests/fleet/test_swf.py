from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.swf import SWF

START = 1_000_000_000
HEADER = f"; Version: 2.2\n; UnixStartTime: {START}\n; MaxNodes: 10\n; MaxProcs: 80\n;\n"
COLUMNS = ("job_id", "state", "submit_s", "start_s", "end_s", "node_count", "cpus")


def record(**fields: int) -> str:
    order = [
        "job",
        "submit",
        "wait",
        "run",
        "procs",
        "cpu",
        "mem",
        "asked_procs",
        "asked_time",
        "asked_mem",
        "status",
        "user",
        "group",
        "program",
        "queue",
        "partition",
        "before",
        "think",
    ]
    return " ".join(str(fields.get(name, -1)) for name in order)


def test_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(
        HEADER
        + record(
            job=1, submit=0, wait=10, run=100, procs=16, asked_time=3600, status=1, user=7, queue=2
        )
        + "\n  "
        + record(job=2, submit=5, wait=0, run=50, asked_procs=9, status=0)
        + "\n"
        + record(job=3, submit=9, wait=20, run=0, asked_procs=8, status=5)
        + "\n"
        + "4 5 6\n"
        + record(job=5, submit=9, wait=-1, run=-1, status=-1)
        + "\n"
    )
    tables = read(SWF, path, ReadOptions(gpus_per_node=4, cluster="kth"))
    attempts = tables["attempts"]
    assert rows(attempts, *COLUMNS) == [
        ("1", "COMPLETED", START, START + 10, START + 110, 2, 16),
        ("2", "FAILED", START + 5, START + 5, START + 55, 2, 9),
        ("3", "CANCELLED", START + 9, None, None, 1, 8),
        ("5", "UNKNOWN", START + 9, None, None, None, None),
    ]
    assert rows(attempts, "gpus", "user", "qos", "time_limit_s", "nodes", "cluster")[0] == (
        8,
        "7",
        "2",
        3600,
        [],
        "kth",
    )
    assert rejected(tables) == [(9, "not 18 numbers")]


def test_of_a_job_in_parts_the_summary_counts(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(
        HEADER
        + "\n".join(
            [
                record(job=1, submit=100, wait=10, run=500, procs=8, status=1),
                record(job=1, submit=100, wait=10, run=200, procs=8, status=2),
                record(job=1, wait=40, run=300, procs=8, status=3),
                record(job=2, submit=120, wait=0, run=10, procs=8, status=1),
            ]
        )
        + "\n"
    )
    assert rows(read(SWF, path)["attempts"], *COLUMNS[:5]) == [
        ("1", "COMPLETED", START + 100, START + 110, START + 610),
        ("2", "COMPLETED", START + 120, START + 120, START + 130),
    ]


def test_no_start_time(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("; Version: 2.2\n" + record(job=1) + "\n")
    with pytest.raises(InputError, match="UnixStartTime"):
        list(SWF.read(path, ReadOptions()))


JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 10**8),
        "wait": st.integers(0, 10**6),
        "run": st.integers(1, 10**6),
        "procs": st.integers(1, 80),
        "status": st.sampled_from([0, 1, 5]),
    }
)


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(st.lists(JOB, min_size=1, max_size=8))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, jobs: list[dict[str, int]]) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    lines = [record(job=number, **job) for number, job in enumerate(jobs, 1)]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    state = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED"}
    assert rows(read(SWF, path)["attempts"], *COLUMNS) == [
        (
            str(number),
            state[job["status"]],
            START + job["submit"],
            START + job["submit"] + job["wait"],
            START + job["submit"] + job["wait"] + job["run"],
            -(-job["procs"] // 8),
            job["procs"],
        )
        for number, job in enumerate(jobs, 1)
    ]
