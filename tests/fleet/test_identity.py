"""The same jobs in any format, zone, order or number of files are the same store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from same_jobs import Job, as_json, text

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.store import Store

HOUR = 3600
SUMMER = int(datetime(2026, 3, 8, 5, tzinfo=ZoneInfo("UTC")).timestamp())  # New York: clocks go on
WINTER = int(
    datetime(2026, 10, 25, 0, 30, tzinfo=ZoneInfo("UTC")).timestamp()
)  # Berlin: an hour twice

Rows = list[dict[str, Any]]


def stored(folder: Path, *, but: Sequence[str] = ("db_index",)) -> Rows:
    """The attempts of a store by value, in an order of their own."""
    tables = [pq.read_table(file) for file in Store.open(folder).files("attempts")]
    rows = pa.concat_tables(tables).drop_columns(list(but)).to_pylist()
    return sorted(rows, key=lambda row: (row["job_id"], row["submit_s"], row["start_s"] or 0))


def busy_days(begin: int = SUMMER - 40 * HOUR, each_s: int = 3 * HOUR) -> list[Job]:
    """Plain, array, heterogeneous, requeued, running and waiting jobs, and a job number used again.

    Job 401 was requeued without a new Submit.
    """
    jobs = []
    for i in range(24):
        at = begin + i * each_s + 37 * i * i
        jobs.append(
            Job(100 + i, at, at + 61 + i, at + 4000 + 131 * i, index=i + 1, user=f"u{i % 3}")
        )
    at = begin + 5 * each_s
    jobs += [
        Job(201, at, at + 5, at + 905, "FAILED", 31, array=(200, 1)),
        Job(202, at, at + 9, at + 1209, "COMPLETED", 32, array=(200, 2)),
        Job(301, at + 7, at + 70, at + 770, index=33, het=(301, 0), nodes=("n1", "n2")),
        Job(302, at + 7, at + 70, at + 771, index=34, het=(301, 1), nodes=("n3",)),
        Job(400, at, at + 30, at + 1030, "NODE_FAIL", 35, ("n4", "n5")),
        Job(400, at + 1030, at + 1200, at + 9999, "COMPLETED", 36, ("n6", "n7")),
        Job(401, at, at + 50, at + 2050, "REQUEUED", 40, ("n8", "n9")),
        Job(401, at, at + 2050, at + 2950, "NODE_FAIL", 41, ("n8", "n9")),
        Job(401, at, at + 3950, None, "RUNNING", 42, ("n8", "n10")),
        Job(500, at + 86_400, at + 86_500, None, "RUNNING", 37),
        Job(501, at + 86_400, None, None, "PENDING", 38),
        Job(
            103,
            at + 90 * 86_400 + 17,
            at + 90 * 86_400 + 50,
            at + 90 * 86_400 + 99,
            index=39,
            user="x",
        ),
    ]
    return jobs


_FORMS = {
    "text": text,
    "no index": lambda jobs, path, zone: text(jobs, path, zone, without=["DBIndex"]),
    "delimiter": lambda jobs, path, zone: text(jobs, path, zone, delimiter="^_^"),
    "epoch": lambda jobs, path, zone: text(jobs, path, None),
    "json": lambda jobs, path, zone: as_json(jobs, path),
    "json, no index": lambda jobs, path, zone: as_json(jobs, path, index=False),
}
_SAYS_WHEN = ("epoch", "json", "json, no index")
_FOLDERS = count()


@pytest.mark.examples(6)
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    zone=st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Europe/London"]),
    files=st.lists(
        st.tuples(
            st.sampled_from([*_FORMS]), st.integers(0, 12), st.integers(20, 36), st.booleans()
        ),
        min_size=1,
        max_size=3,
    ),
    stated=st.booleans(),
    one_call=st.booleans(),
)
def test_the_same_jobs_are_the_same_store(
    tmp_path: Path, zone: str, files: list[tuple[str, int, int, bool]], stated: bool, one_call: bool
) -> None:
    jobs = busy_days()
    folder = tmp_path / str(next(_FOLDERS))
    folder.mkdir()
    fleet.ingest([text(jobs, folder / "all.psv", None)], folder / "expected")
    # Every job is in the first file, that says when unless the zone is stated; the others have parts.
    paths = [_FORMS["json" if not stated else "text"](jobs, folder / "0", zone)]
    for place, (form, low, high, backwards) in enumerate(files, 1):
        part = jobs[low:high][:: -1 if backwards else 1]
        paths.append(_FORMS[form](part, folder / str(place), zone))
    for call in [paths[::-1]] if one_call else [[path] for path in paths]:
        fleet.ingest(call, folder / "store", timezone=zone if stated else None)
    assert stored(folder / "store") == stored(folder / "expected")


def test_what_says_when_settles_the_zone(tmp_path: Path) -> None:
    jobs = busy_days()
    local = text(jobs, tmp_path / "local.psv", "America/New_York")
    said = as_json(jobs[:11] + jobs[12:], tmp_path / "said.json")  # on both sides of the change
    result = fleet.ingest([local, said], tmp_path / "store")
    assert (result.attempts, result.inferred[0].count("America/New_York")) == (len(jobs), 1)
    assert Store.open(tmp_path / "store").facts["timezone"] == "America/New_York"


@pytest.mark.parametrize("shared", [1, 3])
def test_a_few_jobs_in_common_do_not_stay_doubled(tmp_path: Path, shared: int) -> None:
    jobs = busy_days()
    local = text(jobs[:shared], tmp_path / "local.psv", "Asia/Kolkata")
    fleet.ingest([local, as_json(jobs, tmp_path / "said.json")], tmp_path / "store")
    fleet.ingest([text(jobs, tmp_path / "all.psv", None)], tmp_path / "expected")
    assert stored(tmp_path / "store") == stored(tmp_path / "expected")


def test_a_zone_that_is_told_for_one_season_only_is_asked_for(tmp_path: Path) -> None:
    jobs = busy_days()
    said = as_json(jobs[:6], tmp_path / "said.json")  # in winter: New York, or Bogota
    local = text(jobs, tmp_path / "local.psv", "America/New_York")
    assert _refused(lambda: fleet.ingest([local, said], tmp_path / "store")) == str(local)
    assert not (tmp_path / "store" / "store.json").exists()


def _refused(call: Callable[[], object], *names: str) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.code == "conflict"
    assert "--timezone" in (caught.value.remedy or "")
    for name in names:
        assert name in str(caught.value)
    return str(caught.value.path)


def test_what_nothing_settles_is_refused(tmp_path: Path) -> None:
    jobs = busy_days()
    berlin = text(jobs, tmp_path / "berlin.psv", "Europe/Berlin")
    utc = text(jobs[2:7], tmp_path / "utc.psv", "UTC")
    said = as_json(jobs, tmp_path / "said.json")
    # Two that say nothing; which is wrong, the tz database tells: both may be, the later one is named.
    _refused(lambda: fleet.ingest([utc, berlin], tmp_path / "a"), "utc.psv", "berlin.psv", "1 h")
    # A stated zone against times that say when.
    wrong = lambda: fleet.ingest([berlin, said], tmp_path / "b", timezone="Asia/Tokyo")  # noqa: E731
    assert _refused(wrong, "said.json", "Europe/Berlin") == str(berlin)
    # A store is not changed.
    fleet.ingest([berlin], tmp_path / "c")
    before = stored(tmp_path / "c")
    _refused(lambda: fleet.ingest([said], tmp_path / "c"), "new store")
    # The same file in a second zone, and the same log grown by a job.
    _refused(lambda: fleet.ingest([berlin], tmp_path / "c", timezone="Europe/Berlin"), "new store")
    more = text(
        [*jobs, Job(900, SUMMER, SUMMER + 9, SUMMER + 99)], tmp_path / "more", "Europe/Berlin"
    )
    _refused(lambda: fleet.ingest([more], tmp_path / "c", timezone="Europe/Berlin"), "new store")
    assert stored(tmp_path / "c") == before
    # "UTC" by default and "UTC" stated are one way to read it.
    assert fleet.ingest([berlin], tmp_path / "c", timezone="UTC").already_known == [str(berlin)]


def test_attempts_of_one_job_number_are_no_shift(tmp_path: Path) -> None:
    """Requeued on the hour, used again after a wrap, started by cron: two logs of other days."""
    base = SUMMER + 50 * 86_400
    hourly = [
        Job(7, base + i * HOUR, base + i * HOUR + 1, base + i * HOUR + 13 + i) for i in range(10)
    ]
    first = [
        *hourly[:5],
        Job(8, base, base + 5, base + 900, "NODE_FAIL", nodes=("n1",)),
        Job(9, base, base + 1, base + 50),
    ]
    second = [
        *hourly[5:],
        Job(8, base + HOUR, base + HOUR + 5, base + HOUR + 900, "COMPLETED"),
        Job(9, base + 2 * HOUR, base + 2 * HOUR + 1, base + 2 * HOUR + 50, user="other"),
    ]
    one, two = (
        text(first, tmp_path / "1", without=["DBIndex"]),
        text(second, tmp_path / "2", without=["DBIndex"]),
    )
    assert fleet.ingest([one, two], tmp_path / "store").attempts == len(first) + len(second)


@pytest.mark.parametrize("one_call", [True, False])
def test_attempts_that_keep_their_submit(tmp_path: Path, one_call: bool) -> None:
    """Hourly attempts in the logs of three days, read in any order; each is in two of the logs."""
    each = [
        Job(7, SUMMER, SUMMER + i * HOUR, SUMMER + (i + 1) * HOUR, "NODE_FAIL") for i in range(3)
    ]
    waiting = Job(7, SUMMER, None, None, "PENDING")
    left = Job(7, SUMMER, None, SUMMER + 9 * HOUR, "CANCELLED")
    going = replace(each[2], end=None, state="RUNNING", elapsed=60)
    logs = [[each[1], going], [waiting, *each], [each[0], each[2], left]]
    paths = [
        text(jobs, tmp_path / str(place), without=["DBIndex"]) for place, jobs in enumerate(logs)
    ]
    for call in [paths] if one_call else [[path] for path in paths]:
        found = fleet.ingest(call, tmp_path / "store")
    rows = stored(tmp_path / "store", but=["db_index"])
    assert [(row["state"], row["start_s"], row["attempt"]) for row in rows if row["start_s"]] == [
        ("NODE_FAIL", job.start, number) for number, job in enumerate(each, 1)
    ]
    assert (len(rows), len({row["key"] for row in rows})) == (4, 4)
    assert (found.duplicates_flag, found.state_conflicts) == ("present", 0)


@pytest.mark.parametrize("one_call", [True, False])
def test_a_number_that_several_jobs_had(tmp_path: Path, one_call: bool) -> None:
    """Of another user, another name, a year later; no requeue that was renamed, or whose log has gaps."""
    day = 24 * HOUR
    begin = SUMMER - 900 * day

    def job(raw: int, days: float, state: str = "NODE_FAIL", **other: Any) -> Job:
        at = begin + int(days * day)
        return Job(raw, at, at, at + 20 * HOUR, state, nodes=tuple("abc"), **other)

    at = begin + 20 * HOUR
    logs = [
        [job(7, 0), job(7, 400, user="bo"), job(8, 0), job(9, 0, user="bo")],
        [
            job(7, 800, user="bo"),
            job(8, 400, name="cfd"),
            Job(9, at, at, at + 9, user="bo", name="renamed"),
        ],
        [job(9, 9, user="bo", name="renamed"), Job(8, begin - 5, None, begin - 1, "CANCELLED")],
    ]
    calls = [
        text(logs[0], tmp_path / "0", without=["DBIndex"]),
        as_json(logs[1], tmp_path / "1", index=False),
        text(logs[2], tmp_path / "2", without=["DBIndex"]),
    ]
    for call in [calls] if one_call else [[path] for path in calls[::-1]]:
        found = fleet.ingest(call, tmp_path / "store", timezone="UTC")
    rows = stored(tmp_path / "store")
    assert [(row["job_id"], row["reuse"], row["attempt"]) for row in rows] == [
        *(("7", None, 1), ("7", 1, 1), ("7", 2, 1)),
        *(("8", None, 1), ("8", None, 2), ("8", 1, 1)),
        *(("9", None, 1), ("9", None, 2), ("9", None, 3)),
    ]
    assert (found.attempts, found.jobs, found.duplicates_flag) == (9, 6, "present")
    log = fleet.open(tmp_path / "store")
    assert log.value(f"SELECT count(DISTINCT run) FROM {log.attempts}") == 6
    assert max(row["job_runtime_s"] for row in rows if row["job_id"] != "9") == 20 * HOUR
    explained = fleet.attribute(log, "7")
    assert [(each["reuse"], each["attempt"]) for each in explained.attempts] == [
        *((0, 1), (1, 1), (2, 1)),
    ]
    # Without the requeue no job shows a second attempt: whether some are hidden is not known.
    path = text(logs[0] + logs[1][:2], tmp_path / "3")
    assert fleet.ingest([path], tmp_path / "new").duplicates_flag == "unknown"


def test_a_start_that_moves_and_an_attempt_in_the_hour_that_comes_twice(tmp_path: Path) -> None:
    booting = Job(8, SUMMER, SUMMER + 60, None, "RUNNING")
    booted = Job(8, SUMMER, SUMMER + 360, SUMMER + 4000)  # its nodes were powered up first
    late = Job(9, WINTER - HOUR, WINTER + HOUR + 60, WINTER + HOUR + 1200)
    local = text([booting, late], tmp_path / "local", "Europe/Berlin", without=["DBIndex"])
    said = as_json([booted, late], tmp_path / "said", index=False)
    for path in (local, said):
        fleet.ingest([path], tmp_path / "store", timezone="Europe/Berlin")
    found = [(row["start_s"], row["end_s"]) for row in stored(tmp_path / "store")]
    assert found == [(job.start, job.end) for job in (booted, late)]


def test_two_clusters_have_the_same_numbers(tmp_path: Path) -> None:
    jobs = busy_days()
    other = text(
        [replace(job, user="z", submit=job.submit - 7) for job in jobs], tmp_path / "other.psv"
    )
    other.write_text(other.read_text().replace("|c|", "|d|"))
    local = text(jobs[:5], tmp_path / "local.psv", "Asia/Kolkata")
    said = as_json(jobs, tmp_path / "said.json")
    assert fleet.ingest([other, local, said], tmp_path / "store").attempts == 2 * len(jobs)


def test_a_db_index_decides(tmp_path: Path) -> None:
    at = SUMMER
    one = [Job(7, at, at + 1, at + 13, index=1)]
    two = [Job(7, at + HOUR, at + HOUR + 1, at + HOUR + 13, index=2)]  # by cron, an hour later
    paths = [text(one, tmp_path / "1"), text(two, tmp_path / "2")]
    assert fleet.ingest(paths, tmp_path / "store").attempts == 2
    same = [Job(7, at + HOUR, at + HOUR + 1, None, "RUNNING", index=1)]
    paths[1] = text(same, tmp_path / "3")
    _refused(lambda: fleet.ingest(paths, tmp_path / "other"))


def test_submitted_in_the_hour_that_comes_twice(tmp_path: Path) -> None:
    jobs = [
        Job(1, WINTER, WINTER + 2 * HOUR, WINTER + 3 * HOUR, index=1),
        Job(2, WINTER + HOUR, WINTER + 3 * HOUR, WINTER + 5 * HOUR, index=2),
    ]
    local = text(jobs, tmp_path / "local.psv", "Europe/Berlin")
    said = as_json(jobs, tmp_path / "said.json")
    for place, paths in enumerate(([local, said], [said, local])):
        store = tmp_path / str(place)
        for path in paths:
            fleet.ingest([path], store, timezone="Europe/Berlin")
        assert [row["submit_s"] for row in stored(store)] == [job.submit for job in jobs]


@pytest.mark.quick(4)
@pytest.mark.parametrize("stated", ["Cluster", "association", "both", "neither"])
@pytest.mark.parametrize("text_first", [True, False])
def test_a_cluster_that_one_source_does_not_state(
    tmp_path: Path, stated: str, text_first: bool
) -> None:
    """Text and JSON of the same jobs; the cluster is in a column, in `association`, or nowhere."""
    named = stated in ("Cluster", "both")
    header = "JobID|JobIDRaw|User|State|Submit|Start|End|NNodes|NodeList|AllocTRES"
    lines, jobs = [header + ("|Cluster" if named else "")], []
    for number in range(3):
        begin = 1_740_823_200 + 3600 * number
        at = [f"{datetime.fromtimestamp(begin + s, UTC):%Y-%m-%dT%H:%M:%S}" for s in (0, 9, 999)]
        row = [f"{number + 7}", f"{number + 7}", "ana", "NODE_FAIL", *at, "1", "n1", "gres/gpu=8"]
        lines.append("|".join([*row, *(["atlas"] if named else [])]))
        association = {"user": "ana"}
        if stated in ("association", "both"):
            association["cluster"] = "atlas"
        times = {"submission": begin, "eligible": begin, "start": begin + 9, "end": begin + 999}
        jobs.append(
            {"job_id": number + 7, "association": association, "nodes": "n1", "time": times}
            | {"state": {"current": ["NODE_FAIL"], "reason": "None"}, "allocation_nodes": 1}
        )
    (tmp_path / "a.psv").write_text("\n".join(lines) + "\n")
    version = {"Slurm": {"version": {"major": 23, "micro": 6, "minor": 2}}}
    (tmp_path / "a.json").write_text(json.dumps({"meta": version, "jobs": jobs}))
    names = ["a.psv", "a.json"] if text_first else ["a.json", "a.psv"]
    found = fleet.ingest([tmp_path / name for name in names], tmp_path / "store")
    assert (found.attempts, found.jobs) == (3, 3)
    assert fleet.goodput(tmp_path / "store").to_dict()["failures"] == 3
