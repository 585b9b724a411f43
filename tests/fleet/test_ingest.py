"""From logs to a store: each attempt once, whatever is given how often, in what order, however cut."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import textwrap
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logs import Attempt, Log, names

import holdfast.fleet as fleet
from holdfast.errors import InputError, StoreError
from holdfast.fleet import ingest_attempts
from holdfast.fleet.ingestion import ingest
from holdfast.fleet.store import Store

HEADER = "Cluster|JobID|JobIDRaw|State|Submit|Start|End|NNodes|NodeList|AllocTRES|Reason"


def rows(store: Path, table: str = "attempts") -> list[dict[str, Any]]:
    found = pa.concat_tables([pq.read_table(file) for file in Store.open(store).files(table)])
    return sorted(found.to_pylist(), key=repr)


def content(store: Path) -> list[dict[str, Any]]:
    """Everything that a reader of the store can see, whatever the files are called."""
    tables = ("attempts", "nodes", "health", "node_outages", "controller_events", "qos", "rejects")
    return [{name: rows(store, name)} for name in tables]


def log(folder: Path, name: str, *lines: str, header: str = HEADER) -> Path:
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def clock(second: int) -> str:
    return f"2026-01-01T{second // 3600:02}:{second % 3600 // 60:02}:{second % 60:02}"


def line(
    job: int, state: str, submit: int, start: int, end: int | None, reason: str = "None"
) -> str:
    until = "Unknown" if end is None else clock(end)
    tres = "cpu=8,gres/gpu=8,node=1"
    return "|".join(
        ["c", str(job), str(job), state, clock(submit), clock(start), until, "1", f"n{job % 4}", tres,
         reason]
    )  # fmt: skip


# --- The testbed ---------------------------------------------------------------------------------


def test_the_testbed_has_its_truth(testbed: Path, tmp_path: Path) -> None:
    result = ingest([testbed / "sacct_D_all.psv.gz"], tmp_path / "s").to_dict()
    assert {key: result[key] for key in ("attempts", "attempts_recovered", "jobs", "rejected")} == {
        "attempts": 613, "attempts_recovered": 2, "jobs": 555, "rejected": 0,
    }  # fmt: skip
    assert result["steps_skipped"] == 859
    assert result["nodes"] == 16
    assert result["duplicates_flag"] == "present"
    assert result["time_range"] == ["2026-11-20T10:49:20Z", "2026-11-20T11:04:36Z"]
    assert json.loads(json.dumps(result)) == result
    recorded = [row for row in rows(tmp_path / "s") if not row["recovered"]]
    gpu_s: Counter[str] = Counter()
    for row in recorded:
        gpu_s[row["state"]] += (row["gpus"] or 0) * (row["runtime_s"] or 0)
    assert gpu_s["NODE_FAIL"] == 30012
    assert gpu_s["FAILED"] == 10122
    assert gpu_s["TIMEOUT"] == 3297
    assert gpu_s["PREEMPTED"] == 2685
    assert gpu_s["RESIZING"] == 64
    assert gpu_s["COMPLETED"] == 33568 - 2 * 2 * 8  # two resized jobs, not counted twice
    loop = sorted((row["attempt"], row["state"]) for row in recorded if row["job_id"] == "93")
    assert loop == [(n, "NODE_FAIL") for n in range(1, 10)] + [(10, "COMPLETED")]


def test_lost_attempts_come_back_with_the_nodes_that_failed(testbed: Path, tmp_path: Path) -> None:
    starts = [
        json.loads(each) for each in (testbed / "truth_starts.jsonl").read_text().splitlines()
    ]
    first = {job: next(s["nodes"] for s in starts if s["jobid"] == job) for job in (212, 447)}
    alone, more = tmp_path / "alone", tmp_path / "more"
    ingest([testbed / "sacct_D_all.psv.gz"], alone)
    found = [row for row in rows(alone) if row["recovered"]]
    assert {row["job_id_raw"]: row["state"] for row in found} == {
        212: "NODE_FAIL",
        447: "NODE_FAIL",
    }
    assert [row["nodes"] for row in found] == [[], []]  # accounting does not know them
    ingest([testbed / "sacctmgr_events.txt"], alone)
    ingest([testbed / "sacct_D_all.psv.gz", testbed / "sacctmgr_events.txt"], more)
    assert content(alone) == content(more)
    found = [row for row in rows(more) if row["recovered"]]
    assert {row["job_id_raw"]: row["nodes"] for row in found} == {
        job: [node] for job, node in first.items()
    }
    assert {row["failed_node"] for row in found} == set(first.values())
    chains = [row for row in rows(more) if row["job_id"] in ("212", "447")]
    assert Counter((row["attempt"], row["recovered"]) for row in chains) == {
        (1, True): 2,
        (2, False): 2,
    }


@pytest.mark.quick(4)
@pytest.mark.parametrize("said", ["n3", "N3", "n3.cluster.example.org"])
@pytest.mark.parametrize("steps", ["n[5-6]", "n[3-4]"])
def test_an_attempt_is_lost_between_two_that_keep_their_submit(
    tmp_path: Path, said: str, steps: str
) -> None:
    """The step belongs to the next row of its job; the outage that comes later ends what was lost."""
    log, outages = tmp_path / "sacct.psv", tmp_path / "events.txt"
    lines = [HEADER]
    for state, start, end, nodes in (
        ("NODE_FAIL", "01:00", "02:00", "n[3-4]"),
        ("NODE_FAIL", "05:00", "06:00", "n[5-6]"),
        ("COMPLETED", "07:00", "09:00", "n[7-8]"),
    ):
        day = "2026-01-05T"
        times = f"{day}00:00:00|{day}{start}:00|{day}{end}:00"
        lines.append(f"c|7|7|{state}|{times}|2|{nodes}|gres/gpu=16|None")
        if start == "05:00":
            times = f"|{day}03:00:00|{day}05:30:00"
            lines.append(f"c|7.0|7.0|{state}|{times}|2|{steps}|gres/gpu=16|None")
    log.write_text("\n".join(lines) + "\n")
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    times = "2026-01-05T04:00:00|2026-01-05T08:00:00"
    outages.write_text(f"{header}c|{said}|{times}|DOWN|Not responding|root(0)\n")
    for source, end in ((log, 5), (outages, 4)):
        result = ingest([source], tmp_path / "store")
        assert (result.attempts, result.attempts_recovered) == (4, 1)
        found = sorted(rows(tmp_path / "store"), key=lambda row: row["start_s"])
        begin = found[0]["submit_s"]
        hours = [((r["start_s"] - begin) // 3600, (r["end_s"] - begin) // 3600) for r in found]
        assert hours == [(1, 2), (3, end), (5, 6), (7, 9)]
        assert [(r["attempt"], r["recovered"]) for r in found] == [
            *((1, False), (2, True), (3, False), (4, False))
        ]
    assert (found[1]["state"], found[1]["failed_node"]) == ("NODE_FAIL", "n3")


def test_without_an_outage_in_the_time_it_was_no_node_failure(
    testbed: Path, tmp_path: Path
) -> None:
    events = (testbed / "sacctmgr_events.txt").read_text().splitlines(keepends=True)
    calm = tmp_path / "events.txt"
    calm.write_text("".join(each for each in events if "node01|" not in each))
    ingest([testbed / "sacct_D_all.psv.gz", calm], tmp_path / "s")
    found = {row["job_id"]: row["state"] for row in rows(tmp_path / "s") if row["recovered"]}
    assert found == {"212": "REQUEUED", "447": "NODE_FAIL"}


def test_a_log_without_duplicates_is_recognised(testbed: Path, tmp_path: Path) -> None:
    flags = {}
    for name in (
        "sacct_all.psv.gz",
        "sacct_D_all.psv.gz",
        "sacct_D.json.gz",
        "sacct_D_epoch.psv.gz",
    ):
        flags[name] = ingest([testbed / name], tmp_path / name).duplicates_flag
    assert flags.pop("sacct_all.psv.gz") == "missing"
    assert set(flags.values()) == {"present"}


def test_no_requeue_at_all_leaves_the_question_open(tmp_path: Path) -> None:
    lines = [line(n, "COMPLETED", n, n + 5, n + 60) for n in range(1, 50)]
    waited = line(50, "COMPLETED", 50, 900, 960, "BeginTime")  # sbatch --begin: submitted in order
    path = log(tmp_path, "a.psv", *lines, waited)
    assert ingest([path], tmp_path / "s").duplicates_flag == "unknown"
    late = line(51, "COMPLETED", 500, 900, 960, "BeginTime")  # requeued: later than its successors
    after = line(52, "COMPLETED", 52, 60, 70)
    path = log(tmp_path, "b.psv", *lines, late, after)
    assert ingest([path], tmp_path / "t").duplicates_flag == "missing"


def test_the_whole_folder_is_one_log(testbed: Path, tmp_path: Path) -> None:
    result = ingest([testbed], tmp_path / "s")
    assert (result.attempts, result.attempts_recovered, result.health_events) == (613, 2, 59)
    assert {Path(each).name for each in result.not_recognised} >= {"README.md", "squeue.txt"}
    found = rows(tmp_path / "s")
    assert len(found) == 613
    # Each column from the source that has it: codes and exclusions from the text.
    assert sum(row["exit_code"] is not None for row in found if not row["recovered"]) == 611
    assert any(row["excluded_nodes"] for row in found)
    assert {row["cluster"] for row in found} == {"atlas"}


# --- Each attempt once ---------------------------------------------------------------------------


def test_the_order_of_sources_does_not_matter(testbed: Path, tmp_path: Path) -> None:
    names = ["sacct_D_all.psv.gz", "sacct_all.psv.gz", "sacctmgr_events.txt"]
    ingest([testbed / name for name in names], tmp_path / "a")
    for name in (names[1], names[0], names[2]):
        ingest([testbed / name], tmp_path / "b")
    for name in reversed(names):
        ingest([testbed / name], tmp_path / "c")
    want = content(tmp_path / "a")
    assert content(tmp_path / "b") == want
    assert content(tmp_path / "c") == want


def test_the_same_log_again_changes_nothing(testbed: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    first = ingest([testbed / "sacct_D_all.psv.gz"], store)
    manifest = (store / "store.json").read_bytes()
    again = ingest([testbed / "sacct_D_all.psv.gz"], store)
    assert again.already_known == [str(testbed / "sacct_D_all.psv.gz")]
    assert (store / "store.json").read_bytes() == manifest
    assert {**again.to_dict(), "already_known": []} == first.to_dict()


def test_a_second_log_of_the_same_days_adds_only_what_is_new(tmp_path: Path) -> None:
    store = tmp_path / "s"
    monday = [line(1, "COMPLETED", 0, 10, 100), line(2, "RUNNING", 0, 20, None)]
    tuesday = [line(1, "COMPLETED", 0, 10, 100), line(2, "NODE_FAIL", 0, 20, 200),
               line(2, "COMPLETED", 200, 300, 400), line(3, "PENDING", 350, 350, None)]  # fmt: skip
    ingest([log(tmp_path, "mon.psv", *monday)], store)
    result = ingest([log(tmp_path, "tue.psv", *tuesday)], store)
    assert (result.attempts, result.jobs) == (4, 3)
    chain = [
        (row["attempt"], row["state"], row["end_s"]) for row in rows(store) if row["job_id"] == "2"
    ]
    begin = int(datetime.fromisoformat("2026-01-01T00:00:00+00:00").timestamp())
    assert sorted(chain) == [(1, "NODE_FAIL", begin + 200), (2, "COMPLETED", begin + 400)]
    # The older log once more, in another file: what has ended stays ended.
    older = log(tmp_path, "copy.psv", *reversed(monday))
    assert ingest([older], store).attempts == 4
    assert Counter(row["state"] for row in rows(store)) == {
        "COMPLETED": 2,
        "NODE_FAIL": 1,
        "PENDING": 1,
    }


def test_files_in_which_nothing_changes_stay(tmp_path: Path) -> None:
    store = tmp_path / "s"
    ingest([log(tmp_path, "a.psv", line(1, "COMPLETED", 50, 60, 100))], store)
    (before,) = Store.open(store).files("attempts")
    ingest([log(tmp_path, "b.psv", line(2, "COMPLETED", 0, 10, 100))], store)
    assert before in Store.open(store).files("attempts")
    # An earlier attempt of job 1 turns up: its row is the second one now.
    ingest([log(tmp_path, "c.psv", line(1, "NODE_FAIL", 0, 10, 50))], store)
    assert before not in Store.open(store).files("attempts")
    found = [(row["job_id"], row["attempt"], row["state"]) for row in rows(store)]
    assert sorted(found) == [("1", 1, "NODE_FAIL"), ("1", 2, "COMPLETED"), ("2", 1, "COMPLETED")]


def test_files_that_are_moved_into_the_store_are_those_that_are_written_anew(
    testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files that were staged become the store's, unless a row of theirs changes."""
    requeued = [line(1, "NODE_FAIL", 0, 10, 50), line(1, "COMPLETED", 50, 60, 100)]
    apart = [requeued[1], line(2, "COMPLETED", 0, 10, 100), requeued[0]]
    again = [line(3, "RUNNING", 0, 10, None), line(2, "COMPLETED", 0, 10, 100)]
    sources = [
        [testbed / "sacct_D_all.psv.gz"],
        [log(tmp_path, "a.psv", *requeued, *apart, *again)],
    ]
    sources += [
        [log(tmp_path, f"{n}.psv", *some)] for n, some in enumerate((requeued, apart, again))
    ]
    for place, source in enumerate([*sources, [each for some in sources[2:] for each in some]]):
        stores = [tmp_path / f"{kind}-{place}" for kind in ("new", "moved")]
        results = []
        for store, small in zip(stores, (50_000, 0), strict=True):
            monkeypatch.setattr(ingest_attempts, "_SMALL_ROWS", small)
            results.append({**ingest(source, store).to_dict(), "store": ""})
        assert results[0] == results[1]
        assert content(stores[0]) == content(stores[1])


def test_a_cluster_that_one_log_does_not_name_is_the_one_that_others_name(tmp_path: Path) -> None:
    store = tmp_path / "s"
    full = line(1, "COMPLETED", 0, 10, 100)
    bare = full.removeprefix("c|")
    header = HEADER.removeprefix("Cluster|")
    ingest([log(tmp_path, "bare.psv", bare, header=header)], store)
    result = ingest([log(tmp_path, "full.psv", full)], store)
    assert result.attempts == 1
    assert [row["cluster"] for row in rows(store)] == ["c"]
    assert ingest([log(tmp_path, "more.psv", bare, bare, header=header)], store).attempts == 1


def test_two_clusters_may_have_the_same_job_numbers(tmp_path: Path) -> None:
    one = line(1, "COMPLETED", 0, 10, 100)
    other = "d" + one.removeprefix("c")
    assert ingest([log(tmp_path, "a.psv", one, other)], tmp_path / "s").jobs == 2


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))]
)
def test_executions_are_counted_as_by_hand(tmp_path: Path, seed: int) -> None:
    """Numbers, resized runtimes and the flag, against loops over random jobs in three logs."""
    rng = random.Random(seed)
    jobs: dict[int, list[tuple[int, int, int, str, str]]] = {}
    for job in range(1, 30):
        rows_of_job = jobs.setdefault(job, [])
        for execution in range(rng.choice([1, 1, 1, 1, 2, 3])):
            before = rows_of_job[-1] if execution else None
            submit = 40 * job + 700 * execution + rng.choice([0, 0, 900])
            if before and submit <= before[0]:
                continue
            resized = before is not None and before[3] == "RESIZING" and rng.random() < 0.7
            start = before[1] if before and resized else submit + rng.randrange(1, 50)
            end = max(start, before[2] if before else 0) + rng.randrange(1, 300)
            state = rng.choice(["COMPLETED", "FAILED", "NODE_FAIL", "RESIZING"])
            rows_of_job.append((submit, start, end, state, rng.choice(["None", "BeginTime"])))
    want = set()
    shown = hidden = 0
    for job, own in jobs.items():
        for place, (submit, start, end, state, _) in enumerate(own):
            again = place > 0 and own[place - 1][3] == "RESIZING" and own[place - 1][1] == start
            runtime = max(end - own[place - 1][2], 0) if again else end - start
            want.add((job, place + 1, state, runtime, submit))
        executions = [row for row in own if row[3] != "RESIZING"]
        shown += len(executions) > 1
        late = any(row[0] < own[0][0] for other in jobs if other > job for row in jobs[other])
        hidden += len(own) == len(executions) == 1 and own[0][4] == "BeginTime" and late
    lines = [
        line(job, state, submit, start, end, reason)
        for job, own in jobs.items()
        for submit, start, end, state, reason in own
    ]
    rng.shuffle(lines)
    for part in range(3):
        path = log(tmp_path, f"{part}.psv", *lines[part::3], *rng.sample(lines, 5))
        flag = ingest([path], tmp_path / "s").duplicates_flag
    begin = int(datetime.fromisoformat("2026-01-01T00:00:00+00:00").timestamp())
    names = ("job_id_raw", "attempt", "state", "runtime_s", "submit_s")
    found = {tuple(row[name] for name in names) for row in rows(tmp_path / "s")}
    assert found == {(*row[:4], row[4] + begin) for row in want}
    assert flag == (
        "unknown" if not shown + hidden else "present" if shown >= hidden else "missing"
    )


# --- Interruptions -------------------------------------------------------------------------------


def test_an_interrupted_ingest_leaves_the_store_as_it_was(
    testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = testbed / "sacct_D_all.psv.gz", tmp_path / "s"
    ingest([testbed / "health_events.jsonl"], store)
    before = content(store)

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.fleet.ingestion.commit", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest([source], store)
    assert content(store) == before
    # What a killed one leaves is cleared by the next.
    (store / ".staging" / "left").mkdir(parents=True)
    (store / "attempts" / "0009-000.parquet").write_bytes(b"")
    assert ingest([source], store).attempts == 613
    assert not (store / ".staging").exists()
    assert set((store / "attempts").iterdir()) == set(Store.open(store).files("attempts"))


def test_a_full_disk_leaves_the_store_as_it_was(
    testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s"
    ingest([testbed / "sacct_all.psv.gz"], store)
    before, files = content(store), sorted(store.rglob("*.parquet"))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for target in (
        "holdfast.fleet.ingest_staging.store_writer",
        "holdfast.fleet.ingest_commit.sync",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, full)
            with pytest.raises(StoreError, match=r"is as it was before(.|\n)*No space left"):
                ingest([testbed / "sacct_D_all.psv.gz"], store)
        assert content(store) == before
        assert sorted(store.rglob("*.parquet")) == files
    assert ingest([testbed / "sacct_D_all.psv.gz"], store).attempts == 613


def test_a_write_that_fails_in_the_kernel_is_an_error_of_the_store(
    testbed: Path, tmp_path: Path
) -> None:
    """A real refusal by the operating system: files may grow to 8 KiB only."""
    program = textwrap.dedent(
        """
        import resource, signal, sys
        from holdfast.errors import StoreError
        from holdfast.fleet.ingestion import ingest

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
        try:
            ingest([sys.argv[1]], sys.argv[2])
        except StoreError as error:
            print(error)
        """
    )
    command = [
        sys.executable,
        "-c",
        program,
        str(testbed / "sacct_D_all.psv.gz"),
        str(tmp_path / "s"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "could not be written" in done.stdout
    assert not (tmp_path / "s" / "store.json").exists()
    assert ingest([testbed / "sacct_D_all.psv.gz"], tmp_path / "s").attempts == 613


def test_two_writers_do_not_meet(testbed: Path, tmp_path: Path) -> None:
    import fcntl

    store = tmp_path / "s"
    store.mkdir()
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another ingest"):
            ingest([testbed / "sacct_all.psv.gz"], store)


# --- Bad input -----------------------------------------------------------------------------------


def test_too_many_rejects_refuse_the_log_and_leave_a_file(tmp_path: Path) -> None:
    store = tmp_path / "s"
    ingest([log(tmp_path, "good.psv", line(1, "COMPLETED", 0, 10, 100))], store)
    before = content(store)
    lines = [line(n, "COMPLETED", 0, 10, 100) for n in range(1, 99)]
    bad = log(tmp_path, "bad.psv", *lines, "c|cut|off", "c|7|7|WELL|x|y|z|1|n|t|None")
    with pytest.raises(InputError, match="2 of 100 records cannot be used") as caught:
        ingest([bad], store)
    assert "line 100: 3 fields, expected 11" in str(caught.value)
    file = tmp_path / "s.rejects.csv"
    assert str(file) in str(caught.value)
    assert "WELL" in file.read_text()
    assert content(store) == before
    result = ingest([bad], store, max_reject_share=0.02)
    assert (result.attempts, result.rejected) == (98, 2)
    assert [row["line"] for row in rows(store, "rejects")] == [100, 101]


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("empty.psv", b"", "empty-input"),
        ("blank.psv", b"\n\n \n", "empty-input"),
        ("photo.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(500), "unknown-format"),
        ("prose.txt", b"Dear all,\nthe cluster is down.\n", "unknown-format"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, name: str, data: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        ingest([path], tmp_path / "s")
    assert (caught.value.code, caught.value.path) == (code, str(path))
    assert not (tmp_path / "s").exists()


def test_other_mistakes_have_an_answer(testbed: Path, tmp_path: Path) -> None:
    source = testbed / "sacct_all.psv.gz"
    for given, options, code in (
        (tmp_path / "none.psv", {}, "not-found"),
        (source, {"format": "sact"}, "unknown-name"),
        (source, {"timezone": "Berlin"}, "unknown-name"),
    ):
        with pytest.raises(InputError) as caught:
            ingest([given], tmp_path / "s", **options)
        assert caught.value.code == code
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="not empty and is not a store"):
        ingest([source], tmp_path / "mine")
    with pytest.raises(InputError):
        ingest([tmp_path / "mine"], tmp_path / "s")


def test_a_log_without_rows_makes_an_empty_store(tmp_path: Path) -> None:
    result = ingest([log(tmp_path, "a.psv")], tmp_path / "s")
    assert (result.attempts, result.time_range, result.duplicates_flag) == (0, None, "unknown")
    assert rows(tmp_path / "s") == []


def test_a_column_map_reads_what_no_format_recognises(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    table = folder / "ours.csv"
    table.write_text("id,who,st,b,e,n\n7,ann,Failed,2026-01-01T00:00:00,2026-01-01T01:00:00,n1\n")
    columns = tmp_path / "map.toml"
    columns.write_text(
        'table = "attempts"\n[columns]\njob_id = "id"\nuser = "who"\nstate = "st"\n'
        'start_s = "b"\nend_s = "e"\nnodes = "n"\n[values.state]\nFailed = "FAILED"\n'
    )
    for place, source in enumerate((table, folder)):
        result = ingest([source], tmp_path / f"store{place}", column_map=columns)
        assert (result.attempts, result.sources[0]["format"]) == (1, "mapped")


def test_two_logs_that_disagree_on_a_state_are_told(tmp_path: Path) -> None:
    """The first wins, and an ingest of a third log does not forget it; every answer is doubtful."""
    store = tmp_path / "store"
    for number, state in enumerate(("FAILED", "COMPLETED")):
        folder = tmp_path / str(number)
        log = Log([Attempt(1, names(1), 0, 60, state), Attempt(2, names(1), 60, 90)])
        found = fleet.ingest(log.write(folder), store)
        assert found.state_conflicts == number
        assert [each.doubt for each in found.unknowns()] == [True] * number
    found = fleet.ingest(Log([Attempt(3, names(1), 90, 99)]).write(tmp_path / "2"), store)
    assert found.state_conflicts == 1
    assert set(fleet.status(store).to_dict()["by_count"]) == {"FAILED", "COMPLETED"}
    (doubt,) = found.unknowns()
    for answer in (fleet.report(store), fleet.goodput(store), fleet.lemons(store)):
        assert doubt in answer.unknowns()
    page = fleet.report(store).page()
    assert doubt in page.unknowns
