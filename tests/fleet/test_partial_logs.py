"""Logs that show a part of what happened: from the middle on, some states, drains that were planned."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoking import invoke
from logs import BASE, COLUMNS, Attempt, Check, Log, Outage, names

import holdfast.fleet as fleet
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import clock_lag, infrastructure_failures
from holdfast.fleet.gaps import doubts, one_sided, other_nodes

HOUR, DAY = 3600, 86_400
DAYS = 40


def gangs(
    seed: int, count: int, length: int, mean: float, state: str = "NODE_FAIL"
) -> list[Attempt]:
    """Gangs of two nodes that run jobs of one length, again after each failure; `mean` time to failure."""
    rng = random.Random(seed)
    found = []
    for gang in range(count):
        at, left = 0, length
        while at < DAYS * DAY:
            until = int(rng.expovariate(1 / mean)) + 1
            end = at + min(until, left)
            ends = state if until < left else "COMPLETED"
            left = left - until if until < left else length
            if end > DAYS * DAY:
                end, ends = DAYS * DAY, "RUNNING"
            nodes = names(2 * count)[2 * gang : 2 * gang + 2]
            found.append(Attempt(len(found) + 1 + 1000 * gang, nodes, at, end, ends))
            at = end + 60
    return [
        replace(each, end=None, runtime_s=each.ran_s) if each.state == "RUNNING" else each
        for each in found
    ]


def listed(attempts: Sequence[Attempt], since: int) -> list[Attempt]:
    """What ``sacct -S`` lists: all that ran at a time or later, each with its real start."""
    return [each for each in attempts if each.stop >= since]


def first_end(attempts: Sequence[Attempt]) -> int:
    return min(each.end for each in attempts if each.end is not None)


def node_days(attempts: Sequence[Attempt], begin: int) -> float:
    """Of attempts on two nodes each, from a time on."""
    return sum(2 * max(each.stop - max(each.start or 0, begin), 0) for each in attempts) / DAY


# --- From the middle on ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def part_of_a_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Attempt], FleetLog]:
    part = listed(gangs(1, 40, 9 * DAY, 8 * DAY), (DAYS - 7) * DAY)
    return part, Log(part).open(tmp_path_factory.mktemp("part"))


def test_what_ran_before_the_first_end_is_no_exposure(
    part_of_a_log: tuple[list[Attempt], FleetLog],
) -> None:
    part, log = part_of_a_log
    first = first_end(part)
    [cut] = log.cut_off
    running = [first - each.start for each in part if each.start is not None and each.start < first]
    assert cut == {
        "own": "c",
        "first_s": BASE + first,
        "running": len(running),
        "longest_s": max(running),
        "at_once": False,
    }
    days = node_days(part, first + 1)
    failed = sum(each.state == "NODE_FAIL" and each.stop > first for each in part)
    found = fleet.mttf(log).model
    assert (found.failures_, found.node_days_) == (failed, pytest.approx(days))
    analysis = Analysis(log)
    assert analysis.goodput.total_hours == pytest.approx(8 * 24 * days)
    assert sum(analysis.lemons.nodes["node_days"].to_pylist()) == pytest.approx(days)
    assert analysis.trend.verdict != "rises"
    assert any("-S" in each.remedy for each in doubts(log))
    # A window of the user's own goes on from there
    again = fleet.open(log.store, since="1d")
    assert fleet.mttf(again).model.node_days_ < found.node_days_


# Clusters that begin with their log
WHOLE = {
    "all jobs of one length, at once": gangs(2, 40, 9 * DAY, 1e9),
    "one moment ends all": [
        Attempt(k, (f"n{k}",), k * HOUR, 60 * HOUR, "CANCELLED") for k in range(50)
    ],
    "one long job, then short ones": [
        Attempt(0, ("n0",), 0, 9 * DAY),
        *(Attempt(k, ("n1",), k * HOUR, k * HOUR + 60) for k in range(220, 300)),
    ],
    "whole": gangs(1, 40, 9 * DAY, 8 * DAY),
    "no end": [Attempt(1, ("n1",), 0, None, "RUNNING", runtime_s=DAY)],
}


def test_each_cluster_of_a_store_begins_for_itself(tmp_path: Path) -> None:
    part = listed(gangs(3, 40, 9 * DAY, 8 * DAY), (DAYS - 5) * DAY)
    files = []
    for name, attempts in (*WHOLE.items(), ("part", part)):
        [file] = Log(attempts).write(tmp_path / name)
        file.write_text(file.read_text().replace("|c|", f"|{name}|"))
        files.append(file)
    fleet.ingest(files, tmp_path / "s", timezone="UTC")
    log = fleet.open(tmp_path / "s")
    assert [row["own"] for row in log.cut_off] == ["part"]
    assert log.begin_s == BASE
    days = dict.fromkeys([*WHOLE, "part"], 0.0)
    for row in log.rows(f"SELECT cluster, sum(node_days) AS n FROM {log.executions} GROUP BY 1"):
        days[row["cluster"]] = row["n"]
    assert days["whole"] == pytest.approx(node_days(WHOLE["whole"], 0))
    assert days["part"] == pytest.approx(node_days(part, first_end(part) + 1))


def test_jobs_that_all_began_at_once_leave_a_doubt(tmp_path: Path) -> None:
    """A new cluster with long jobs, or a log from the middle on: what failed may be missing, or not."""
    work = [Attempt(k, (name,), 0, 40 * DAY) for k, name in enumerate(names(100), 1)]
    work += [
        Attempt(1000 + k, (f"n{k:03d}",), (41 + k) * DAY, (42 + k) * DAY - HOUR, "NODE_FAIL")
        for k in range(8)
    ]
    log = Log(work).open(tmp_path)
    assert (log.cut_off, len(log.late_ends), log.begin_s) == ([], 1, BASE)
    assert Analysis(log).trend.verdict == "unknown"
    assert any(each.doubt for each in doubts(log))


def test_an_earlier_part_completes_the_log(tmp_path: Path) -> None:
    every = gangs(1, 40, 9 * DAY, 8 * DAY)
    [late] = Log(listed(every, (DAYS - 7) * DAY)).write(tmp_path / "late")
    [early] = Log([each for each in every if each.stop < (DAYS - 5) * DAY]).write(
        tmp_path / "early"
    )
    fleet.ingest([late], tmp_path / "s", timezone="UTC")
    assert fleet.open(tmp_path / "s").cut_off
    fleet.ingest([early], tmp_path / "s", timezone="UTC")
    assert not fleet.open(tmp_path / "s").cut_off


def test_runs_that_began_before_are_no_measured_ettr(
    part_of_a_log: tuple[list[Attempt], FleetLog],
) -> None:
    part, log = part_of_a_log
    first = first_end(part)
    long = [each for each in part if (each.start or 0) > first and each.ran_s >= DAY]
    assert fleet.measured_ettr(log).runs == len(long)


# --- Some states only --------------------------------------------------------------------------------

HEALTHY = [
    Check(DAY * d, node, "check iblink", result="ok") for node in names(4) for d in range(100)
]


def of_states(count: int, *states: str) -> list[Attempt]:
    return [
        Attempt(
            k + 1, (names(4)[k % 4],), k * 6 * HOUR, (k + 3) * 6 * HOUR, states[k % len(states)]
        )
        for k in range(count)
    ]


def verdicts(log: Any) -> tuple[Any, ...]:
    report = fleet.report(log)
    facts = report.to_dict()
    return (
        fleet.goodput(log).verdict,
        facts["mttf"]["verdict"],
        facts["trend"]["verdict"],
        fleet.lemons(log).verdict,
        facts["ettr"]["expected"],
        any(each.doubt for each in report.unknowns()),
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("count", "states"),
    [
        (80, ["COMPLETED"]),
        (20, ["NODE_FAIL"]),
        (80, ["NODE_FAIL", "FAILED", "CANCELLED"]),
    ],
)
def test_states_that_no_fleet_lacks(tmp_path: Path, count: int, states: list[str]) -> None:
    log = Log(of_states(count, *states), HEALTHY).open(tmp_path)
    assert verdicts(log) == ("unknown", "unknown", "unknown", "unknown", None, True)
    assert fleet.mttf(log).to_dict()["rate_per_1000_node_days"] is None
    assert fleet.lemons(log).lemons == []
    assert all(each.value is None for each in fleet.goodput(log).values()[1:])
    refused = invoke("ettr", log.store.path, "--nodes", "10", "--checkpoint", "1h")
    assert refused.exit_code == 2


def test_nothing_has_ended(tmp_path: Path) -> None:
    going = [Attempt(k, (f"n{k}",), 0, None, "RUNNING", runtime_s=9 * DAY) for k in range(20)]
    assert one_sided(Log(going).open(tmp_path))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("count", "states"),
    [
        (12, ["COMPLETED"]),
        (3, ["NODE_FAIL"]),
        (100, ["COMPLETED", "CANCELLED"]),
        (100, ["COMPLETED", "NODE_FAIL"]),
    ],
)
def test_states_of_a_fleet(tmp_path: Path, count: int, states: list[str]) -> None:
    assert not one_sided(Log(of_states(count, *states)).open(tmp_path))


def test_requeues_of_one_job_are_one_witness(tmp_path: Path) -> None:
    """A job in a crash loop, alone in its log, is no filter."""
    again = [
        Attempt(7, names(2), k * HOUR, k * HOUR + 600, "NODE_FAIL", submit=k * HOUR - 1)
        for k in range(1, 30)
    ]
    assert not one_sided(Log(again).open(tmp_path))


# --- Drains that were planned --------------------------------------------------------------------------


PLANNED = [
    ("DRAIN", "firmware upgrade", 1, 0),
    ("IDLE+DRAIN", "rack move", 8, 0),
    ("DRAIN", "bad dimm", 1, 1),
    ("DOWN", "maintenance", 8, 8),
    ("DRAIN", "maintenance", 8, 0),
    ("MAINT", "rack move", 8, 0),
    ("DRAIN", "NHC: check_hw_ib: no IB link", 8, 8),
    ("DOWN*+DRAIN", "rack move", 8, 8),
    ("FAIL", "rack move", 8, 8),
    ("NOT_RESPONDING", "", 8, 8),
]


def test_who_ended_a_requeued_attempt(tmp_path: Path) -> None:
    """Every job is requeued as its node goes out of service; a person may have planned it."""
    log = Log()
    for case, (state, reason, count, _) in enumerate(PLANNED):
        at = (10 + 24 * case) * HOUR
        nodes = [f"c{case}{name}" for name in names(8)]
        for job, node in enumerate(nodes, 100 * case):
            ended = Attempt(job, (node,), at - 10 * HOUR, at, "REQUEUED")
            log.attempts += [ended, replace(ended, start=at + 60, end=at + HOUR, submit=at)]
            log.attempts[-1] = replace(log.attempts[-1], state="COMPLETED")
        log.outages += [Outage(node, at, at + HOUR, state, reason) for node in nodes[:count]]
    opened = log.open(tmp_path)
    found = Counter(
        int(row["job_id"]) // 100
        for row in opened.rows(f"SELECT job_id FROM {infrastructure_failures(opened)}")
    )
    assert [found[case] for case in range(len(PLANNED))] == [each[-1] for each in PLANNED]


# --- What contradicts a filter -------------------------------------------------------------------------


def one_after_the_other(state: str, pause: int = 60) -> list[Attempt]:
    """Two slots of three nodes, a new job as the one before it ends; every ninth ends with a node."""
    return [
        Attempt(
            100 * slot + k,
            names(6)[3 * slot : 3 * slot + 3],
            k * 6 * HOUR,
            (k + 1) * 6 * HOUR - pause,
            "NODE_FAIL" if k % 9 == 8 else state,
        )
        for slot in range(2)
        for k in range(63)
    ]


@pytest.mark.quick(1)
@pytest.mark.parametrize("state", ["CANCELLED", "DEADLINE"])
@pytest.mark.parametrize(
    ("kept", "pause", "hidden"),
    [
        (1, 60, False),
        (3, 60, True),  # a third is missing, as if others had completed
        (1, -3 * HOUR, True),  # on shared nodes a gap would not show
    ],
)
def test_nodes_that_are_never_free_hide_no_attempt(
    tmp_path: Path, state: str, kept: int, pause: int, hidden: bool
) -> None:
    work = one_after_the_other(state, pause)
    rest = [each for each in work if kept == 1 or each.job % kept]
    assert bool(one_sided(Log(rest).open(tmp_path))) == hidden


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "other",
    [
        Attempt(999, ("n000",), 600 * HOUR, None, "RUNNING", runtime_s=HOUR),
        Attempt(999, (), None, None, "PENDING", submit=600 * HOUR),
        Attempt(999, (), None, 600 * HOUR, "CANCELLED", submit=590 * HOUR),
    ],
    ids=lambda each: each.state,
)
def test_a_list_of_completed_jobs_has_no_other_row(tmp_path: Path, other: Attempt) -> None:
    work = of_states(100, "COMPLETED")
    assert not one_sided(Log([*work, other]).open(tmp_path))


# --- A window ------------------------------------------------------------------------------------------


def test_a_quiet_window_forgets_neither_clocks_nor_states(tmp_path: Path) -> None:
    work = [
        Attempt(k, (names(4)[k % 4],), k * HOUR, (k + 2) * HOUR, "FAILED" if k < 9 else "COMPLETED")
        for k in range(200)
    ]
    checks = [
        Check(each.stop - 30, each.nodes[0], "check iblink") for each in work if each.job < 9
    ] + [Check(199 * HOUR, "n001", "check iblink")]
    store = Log([*work, Attempt(300, ("n003",), 195 * HOUR, 198 * HOUR, "FAILED")], checks).store(
        tmp_path
    )
    assert not list(doubts(fleet.open(store)))
    assert not list(doubts(fleet.open(store, since="12h")))
    # The other way round: clocks that differ do so in a quiet window too
    late = Log(work, [replace(each, time=each.time + 5 * HOUR) for each in checks[:9]])
    window = fleet.open(late.store(tmp_path / "late"), since="12h")
    assert clock_lag(window) == clock_lag(fleet.open(tmp_path / "late" / "store"))
    assert clock_lag(window) is not None


# --- Nodes that are not told ------------------------------------------------------------------------------


def gangs_and_more(nodes: str) -> list[dict[str, str]]:
    """Gangs of four whole nodes; every tenth fails. `nodes`: how their list reads."""
    rows = [
        Attempt(
            k, names(4) if k % 2 else ("n009",), k * DAY, (k + 1) * DAY - HOUR,
            "NODE_FAIL" if k % 20 == 1 else "COMPLETED",
        ).fields()
        for k in range(60)
    ]  # fmt: skip
    for row in rows:
        if "," in row["NodeList"]:
            row["NodeList"] = nodes
    return rows


def stored_rows(rows: Sequence[dict[str, str]], folder: Path, absent: Sequence[str]) -> Any:
    folder.mkdir(exist_ok=True)
    columns = [name for name in COLUMNS if name not in absent]
    lines = ["|".join(columns), *("|".join(row[name] for name in columns) for row in rows)]
    (folder / "log.psv").write_text("\n".join(lines) + "\n")
    fleet.ingest([folder / "log.psv"], folder / "s", timezone="UTC")
    return fleet.open(folder / "s")


def test_a_failure_counts_with_the_time_of_its_nodes(tmp_path: Path) -> None:
    rows = gangs_and_more("n[000,001,00+")
    read = stored_rows(rows, tmp_path / "tres", ["NNodes"])
    assert read.unsized == 0
    rows = [{**row, "AllocTRES": row["AllocTRES"].rpartition(",")[0]} for row in rows]
    sized = stored_rows(rows, tmp_path / "gpus", ["NNodes"])
    assert sized.unsized == 30
    for log in (read, sized):
        model = fleet.mttf(log).model
        assert (model.failures_, model.node_days_) == (3, pytest.approx((30 * 4 + 30) * 23 / 24))
    # Too few GPUs for a node: neither the failure nor its time
    rows = [{**row, "AllocTRES": row["AllocTRES"].replace("gpu=32", "gpu=3")} for row in rows]
    few = stored_rows(rows, tmp_path / "few", ["NNodes"])
    found = fleet.mttf(few)
    assert (found.model.failures_, found.model.node_days_) == (0, pytest.approx(30 * 23 / 24))
    assert few.unsized == 30
    assert any(each.doubt for each in doubts(few))


@pytest.mark.quick(1)
@pytest.mark.parametrize(("sizes", "expected"), [([8, 16], (1 / 3, 2 / 3)), ([8, 8], (0,))])
def test_two_kinds_of_nodes_are_named(
    tmp_path: Path, sizes: list[int], expected: tuple[float, ...]
) -> None:
    work = [
        Attempt(k, names(8)[2 * (k % 4) : 2 * (k % 4) + 2], k * HOUR, (k + 2) * HOUR, gpus=gpus)
        for k, gpus in enumerate(sizes * 10)
    ]
    assert other_nodes(Log(work).open(tmp_path)) in map(pytest.approx, expected)


def test_parts_of_one_attempt_are_a_doubt(tmp_path: Path) -> None:
    """What `sacct --truncate` makes of three jobs at the end of its window; others are requeued."""
    parts = [
        Attempt(k, (names(4)[k],), start, end, "NODE_FAIL", submit=0)
        for k in range(3)
        for start, end in [(k * HOUR, 48 * HOUR), (48 * HOUR, (60 + k) * HOUR)]
    ]
    again = [
        Attempt(9, ("n003",), start * HOUR, (start + 5) * HOUR, "NODE_FAIL", submit=0)
        for start in (2, 7, 12)
    ]
    log = Log([*parts, *again, Attempt(10, ("n004",), 0, 60 * HOUR)]).open(tmp_path)
    assert log.cut_up == 3
    assert any(each.doubt for each in doubts(log))


# --- What runs, and since when is not said --------------------------------------------------------------


def test_a_running_attempt_without_a_time_is_a_doubt(tmp_path: Path) -> None:
    columns = [name for name in COLUMNS if name != "ElapsedRaw"]
    old = Attempt(1, ("n001",), 0, None, "RUNNING", runtime_s=60)
    later = [Attempt(k, ("n002",), k * DAY, k * DAY + HOUR) for k in range(2, 30)]
    fleet.ingest(Log([old]).write(tmp_path / "old", columns), tmp_path / "s", timezone="UTC")
    fleet.ingest(Log(later).write(tmp_path / "new", columns), tmp_path / "s", timezone="UTC")
    assert any(each.doubt for each in doubts(fleet.open(tmp_path / "s")))
