"""`sacct --json`: every version at hand, and agreement with the text of the same cluster."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.formats import detect, sacct_json, sacct_text
from holdfast.fleet.formats.batch import ReadOptions

# What the JSON of 22.05 cannot say: no DBIndex, no submit line, and SUCCESS for whatever a signal
# did not end, whatever its exit code.
NOT_IN_22_05 = {"db_index", "excluded_nodes", "exit_code", "exit_signal"}


def attempts(path: Path) -> list[dict[str, Any]]:
    batches = detect(path).read(path, ReadOptions())
    return pa.concat_tables([batch.tables["attempts"] for batch in batches]).to_pylist()


def test_json_and_text_of_one_cluster_agree_column_by_column(testbed: Path) -> None:
    def keyed(name: str) -> dict[Any, dict[str, Any]]:
        return {(row["job_id_raw"], row["submit_s"]): row for row in attempts(testbed / name)}

    text, parsed = keyed("sacct_D_all.psv.gz"), keyed("sacct_D.json.gz")
    assert len(text) == len(parsed) == 611
    for key, row in text.items():
        for column, value in row.items():
            if column in NOT_IN_22_05 and parsed[key][column] in (None, []):
                continue
            if column == "runtime_s" and row["state"] == "RUNNING":
                assert 0 <= parsed[key][column] - value <= 2  # printed one after the other
            else:
                assert parsed[key][column] == value, (key, column)


def test_steps_of_the_testbed_are_counted(testbed: Path) -> None:
    batches = list(sacct_json.read(testbed / "sacct_D.json.gz", ReadOptions()))
    assert sum(batch.steps for batch in batches) == 859
    early = pa.concat_tables([batch.tables["steps"] for batch in batches])
    assert sorted(early["job_id"].to_pylist()) == ["212", "447"]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (
            "slurm_21_8_8.json",
            {"job_id": "55978384", "state": "REQUEUED", "gpus": 1, "cpus": 4, "nodes": ["cdr896"],
             "start_s": 1673275023, "end_s": 1673369386, "runtime_s": 86301,
             "time_limit_s": 86400, "priority": 1314155},
        ),
        (
            "slurm_22_5_9.json",
            {"job_id": "20247445_100", "state": "FAILED", "gpus": 16, "exit_code": None,
             "nodes": ["ng30103", "ng30203", "ng30706", "ng30707"], "node_count": 4},
        ),
        (
            "slurm_23_2_6.json",
            {"job_id": "4", "state": "RUNNING", "gpus": 2, "end_s": None, "time_limit_s": 432000,
             "runtime_s": 83853331, "priority": 499522},
        ),
        (
            "slurm_23_11_5.json",
            {"job_id": "4", "state": "RUNNING", "gpus": 2, "end_s": None, "runtime_s": 102228976},
        ),
    ],
)  # fmt: skip
def test_every_version_of_the_shape(shared_data: Path, name: str, want: dict[str, Any]) -> None:
    (row,) = attempts(shared_data / "fleet" / "sarc" / name)
    assert {column: row[column] for column in want} == want


def test_slurm_25_with_flags_and_unset_numbers(shared_data: Path) -> None:
    folder = shared_data / "fleet" / "sarc"
    rows = {
        name: attempts(next(folder.glob(f"{name}_*"))) for name in ("fromage", "mila", "raisin")
    }
    assert {name: len(each) for name, each in rows.items()} == {
        "fromage": 13,
        "mila": 8,
        "raisin": 7,
    }
    assert rows["fromage"][0]["restarts"] == 0
    # A job that was cancelled before it began has start 0 and an end of its elapsed seconds.
    cancelled = next(row for row in rows["raisin"] if row["job_id"] == "6")
    assert (cancelled["start_s"], cancelled["end_s"]) == (None, None)
    assert cancelled["runtime_s"] is None
    failed = [row for row in rows["fromage"] if row["state"] == "FAILED"]
    assert failed
    assert {(row["exit_code"], row["exit_signal"]) for row in failed} == {(1, 0)}


def job(**changes: Any) -> dict[str, Any]:
    unset = {"set": False, "infinite": False, "number": 0}
    return {
        "job_id": 7,
        "cluster": "c",
        "association": {"user": "u"},
        "array": {"job_id": 0, "task_id": unset, "task": ""},
        "het": {"job_id": 0, "job_offset": unset},
        "state": {"current": ["NODE_FAIL", "REQUEUED"], "reason": "None"},
        "time": {"start": 1_700_000_000, "end": 1_700_000_060, "submission": 1_699_999_000,
                 "limit": {"set": False, "infinite": True, "number": 0}, "elapsed": 60},
        "exit_code": {"status": ["SIGNALED"], "return_code": unset,
                      "signal": {"id": {"set": True, "infinite": False, "number": 15}}},
        "nodes": "n[1-2]",
        "restart_cnt": 3,
        "failed_node": "n2",
        "submit_line": "sbatch -x n9 a.sh",
        "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "id": 1, "count": 4}]},
        "steps": [],
        **changes,
    }  # fmt: skip


def write(folder: Path, jobs: list[Any], text: str | None = None) -> Path:
    path = folder / "sacct.json"
    path.write_text(text or json.dumps({"meta": {"slurm": {}}, "jobs": jobs, "errors": []}))
    return path


def test_flags_restarts_and_the_failed_node(tmp_path: Path) -> None:
    (row,) = attempts(write(tmp_path, [job()]))
    assert row["state"] == "NODE_FAIL"
    assert (row["restarts"], row["failed_node"], row["excluded_nodes"]) == (3, "n2", ["n9"])
    assert (row["exit_code"], row["exit_signal"], row["sigterm"]) == (0, 15, True)
    assert (row["time_limit_s"], row["gpus"], row["nodes"]) == (None, 4, ["n1", "n2"])


def test_array_and_heterogeneous_ids(tmp_path: Path) -> None:
    jobs = [
        job(array={"job_id": 5, "task_id": {"set": True, "infinite": False, "number": 0}}),
        job(array={"job_id": 5, "task_id": None, "task": "4-9",
                   "limits": {"max": {"running": {"tasks": 2}}}}),
        job(het={"job_id": 6, "job_offset": {"set": True, "infinite": False, "number": 1}}),
    ]  # fmt: skip
    rows = attempts(write(tmp_path, jobs))
    assert [row["job_id"] for row in rows] == ["5_0", "5_[4-9%2]", "6+1"]


def test_a_start_that_never_came(tmp_path: Path) -> None:
    """slurmrestd 25.11 gives NO_VAL as the start of a job that was cancelled while it waited."""
    at = 1_762_796_066
    time = {"start": 4_294_967_294, "end": at, "eligible": at, "submission": at, "elapsed": 0}
    (row,) = attempts(
        write(
            tmp_path,
            [
                job(
                    state={"current": ["CANCELLED"]},
                    time=time,
                    nodes="None assigned",
                    failed_node="",
                )
            ],
        )
    )
    assert (row["state"], row["start_s"], row["ran"]) == ("CANCELLED", None, False)
    assert row["submit_s"] == at
    store = fleet.ingest([tmp_path / "sacct.json"], tmp_path / "store")
    assert (store.attempts, store.rejected) == (1, 0)


def test_jobs_without_number_or_state_are_rejects(tmp_path: Path) -> None:
    path = write(tmp_path, [job(), job(job_id=None), job(state={"current": "WELL"}), "text"])
    (batch,) = sacct_json.read(path, ReadOptions())
    assert len(batch.tables["attempts"]) == 1
    rejects = batch.tables["rejects"].to_pylist()
    assert [row["line"] for row in rejects] == [2, 3, 4]
    assert [row["reason"] for row in rejects] == [
        "the job has no number",
        "the state is {'current': 'WELL'}",
        "the job has no number",
    ]


def test_broken_json_names_the_last_good_job(tmp_path: Path) -> None:
    whole = json.dumps({"jobs": [job(), job()]})
    path = write(tmp_path, [], whole[:-40])
    with pytest.raises(InputError, match="after job 1: the JSON is broken or cut off"):
        list(sacct_json.read(path, ReadOptions()))


def test_the_json_of_squeue_is_another_format(tmp_path: Path) -> None:
    text = json.dumps({"meta": {}, "jobs": [{"job_id": 1, "job_state": ["RUNNING"]}]})
    assert not sacct_json.sniff(text.encode(), tmp_path)
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(json.dumps({"meta": {}, "jobs": [job()]}).encode()))
    assert detect(packed).name == "sacct-json"


def test_both_readers_give_one_schema(testbed: Path) -> None:
    one = next(sacct_json.read(testbed / "sacct_D.json.gz", ReadOptions()))
    other = next(sacct_text.read(testbed / "sacct_D_all.psv.gz", ReadOptions()))
    for name in ("attempts", "steps", "rejects"):
        assert one.tables[name].schema == other.tables[name].schema
