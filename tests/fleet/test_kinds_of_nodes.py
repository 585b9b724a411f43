"""Nodes of several kinds in one log: those without GPUs say nothing of those with GPUs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from exposures import exposure as rows_of_exposure
from logs import Attempt, Log, Outage

import holdfast.fleet as fleet
from holdfast.fleet import FleetLog
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.gaps import other_nodes

DAY = 86_400
SPAN_S = 40 * DAY


def lane(
    rng: random.Random, nodes: Sequence[str], gpus: int, rate: float, first_job: int
) -> tuple[list[Attempt], list[Outage]]:
    """Jobs of all the nodes, one after the other; each node fails `rate` times a day."""
    attempts, outages = [], []
    # (Lanes of different nodes never end within the same five minutes.)
    start, job = 600 * (first_job // 1000), first_job
    while True:
        work_s = rng.randrange(DAY // 4, 2 * DAY)
        life_s = int(rng.expovariate(rate * len(nodes)) * DAY) + 1
        end = start + min(work_s, life_s)
        if end > SPAN_S:
            return attempts, outages
        state = "NODE_FAIL" if life_s < work_s else rng.choice(["COMPLETED", "COMPLETED", "FAILED"])
        if state == "NODE_FAIL":
            outages.append(Outage(rng.choice(list(nodes)), end, end + 60))
        again = attempts and attempts[-1].state == "NODE_FAIL"
        submit = attempts[-1].end if again else start
        attempts.append(Attempt(job, tuple(nodes), start, end, state, gpus, submit=submit))
        start = end + rng.randrange(60, 1800)
        job += state != "NODE_FAIL"


def cluster(gpu_rate: float, cpu_rate: float, *, gpu_nodes: int, cpu_nodes: int) -> tuple[Log, Log]:
    """A log of a GPU partition, and the same with a partition of single CPU nodes beside it."""
    rng = random.Random(7)
    apart = Log()
    for first in range(0, gpu_nodes, 2):
        own = tuple(f"g{first + i:02d}" for i in range(2))
        attempts, outages = lane(rng, own, 16, gpu_rate, 1000 * (first + 1))
        apart.attempts += attempts
        apart.outages += outages
    mixed = Log([*apart.attempts], outages=[*apart.outages])
    for first in range(cpu_nodes):
        attempts, outages = lane(rng, (f"c{first:02d}",), 0, cpu_rate, 1000 * (first + 100))
        mixed.attempts += [replace(each, eligible=each.start) for each in attempts]
        mixed.outages += outages
    return apart, mixed


def single_nodes(kinds: Sequence[tuple[str, int, int, float]], inventory: bool) -> Log:
    """Nodes with jobs of their own: (prefix, nodes, GPUs of each, failures a node-day)."""
    rng = random.Random(3)
    log = Log()
    for prefix, count, gpus, rate in kinds:
        for place in range(count):
            node = f"{prefix}{place:02d}"
            log.nodes |= {node: gpus} if inventory else {}
            times = 20 if node == "g05" or node == "c07" else 1
            made = lane(rng, (node,), gpus, rate * times, 1000 * (len(log.attempts) + 1))
            log.attempts += made[0]
            log.outages += made[1]
    return log


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[FleetLog]:
    """GPU nodes that fail often, alone and beside four times as many CPU nodes that hardly do."""
    made = cluster(0.04, 0.002, gpu_nodes=12, cpu_nodes=48)
    # A job on all CPU nodes, larger than any with GPUs, and short ones that start at once.
    every = tuple(f"c{i:02d}" for i in range(48))
    made[1].attempts.append(Attempt(900_000, every, SPAN_S - 900, SPAN_S - 600, gpus=0))
    short = (Attempt(910_000 + i, every[:1], 9 + 5 * i, 11 + 5 * i, gpus=0) for i in range(99))
    made[1].attempts.extend(short)
    end = Attempt(920_000, ("g00", "g01"), SPAN_S - 60, SPAN_S, gpus=16)  # the logs end together
    folder = tmp_path_factory.mktemp("kinds")
    found = []
    for name, log in zip(("apart", "mixed"), made, strict=True):
        log.attempts.append(end)
        found.append(log.open(folder / name))
    return found


@pytest.mark.parametrize("min_gpus", [None, 0])
def test_the_rate_is_that_of_the_gpu_partition(logs: list[FleetLog], min_gpus: int | None) -> None:
    alone, mixed = (fleet.mttf(log, min_gpus=min_gpus, project=[16]).to_dict() for log in logs)
    assert alone["failures"] > 20
    assert mixed == alone


def test_trend_and_ettr_are_those_of_the_gpu_partition(logs: list[FleetLog]) -> None:
    alone, mixed = map(Analysis, logs)
    assert mixed.trend == alone.trend
    assert mixed.log.init_s == alone.log.init_s
    assert mixed.restart_wait_s == alone.restart_wait_s
    assert mixed.largest_job_nodes == 2
    assert mixed.expected_ettr == alone.expected_ettr
    # (means of shares depend on the order of threads in the last digit)
    rows = [each.measured.by_size.to_pylist() for each in (mixed, alone)]
    assert rows[0] == [pytest.approx(row) for row in rows[1]]
    assert mixed.measured.runs > 3


def test_attempts_without_gpus_are_named_where_they_are_many(logs: list[FleetLog]) -> None:
    alone, mixed = (fleet.report(log).to_dict()["unknown"] for log in logs)
    extra = [each for each in mixed if each not in alone]
    ran = sum(1 for row in logs[1].rows("SELECT gpus FROM executions") if not row["gpus"])
    assert any(f"{ran:,} attempts" in each for each in extra)


def test_a_log_without_gpus_counts_every_attempt(tmp_path: Path) -> None:
    _, mixed = cluster(0.04, 0.02, gpu_nodes=0, cpu_nodes=4)
    model = fleet.mttf(mixed.open(tmp_path)).model
    failed = [each for each in mixed.attempts if each.state == "NODE_FAIL"]
    assert model.failures_ == len(failed) > 0
    days = sum(each.ran_s for each in mixed.attempts) / DAY
    assert model.node_days_ == pytest.approx(days)


def test_nodes_are_held_against_their_like(tmp_path: Path) -> None:
    """Each of three kinds fails four to twenty times as often as the next: only two nodes stand out."""
    kinds = [("c", 40, 0, 0.01), ("h", 12, 4, 0.3), ("g", 12, 8, 0.05)]
    found = fleet.lemons(single_nodes(kinds, inventory=False).open(tmp_path))
    assert sorted(found.lemons) == ["c07", "g05"]
    for row in found.nodes.to_pylist():
        # A node is as bad as others of its kind, whatever the fleet's rate is.
        if row["node"] not in found.lemons:
            assert row["shrunk_rate"] < 3 * row["usual_rate"]


def test_kinds_of_gpu_nodes_are_named(tmp_path: Path) -> None:
    """Jobs on one node each do not tell the size of their node: the inventory does."""
    work = [Attempt(k, (f"n{k}",), 0, DAY, gpus=4) for k in range(10)]
    nodes = {f"n{k}": 4 if k < 3 else 8 for k in range(10)}
    assert other_nodes(Log(work, nodes=nodes).open(tmp_path)) == pytest.approx(0.3)


def test_pulling_nodes_without_gpus_raises_no_ettr(tmp_path: Path) -> None:
    kinds = [("c", 40, 0, 0.01), ("h", 12, 8, 0.3)]
    analysis = Analysis(single_nodes(kinds, inventory=True).open(tmp_path))
    assert analysis.lemons.lemons == ["c07"]
    assert analysis.expected_ettr
    assert not any("lemon" in lever.name for lever in analysis.levers)


def test_each_kind_has_exposure_of_its_own() -> None:
    def rows(nodes: list[str], failed: list[str]) -> dict[str, list[object]]:
        size = [1, 3] * len(nodes)
        return {
            "node": [node for node in nodes for _ in range(2)],
            "size": size,
            "node_days": [0.5 * (place + 1) for place in range(len(size))],
            "failure_node": failed,
            "failure_size": [1, 3][: len(failed)],
            "failure_blame": [1.0, 1 / 3][: len(failed)],
            "failure_known": [True, False][: len(failed)],
        }

    first, second = ["a", "b"], ["c", "d", "e"]
    apart = [rows(first, ["a", "b"]), rows(second, ["d"])]
    joined = {name: [*apart[0][name], *apart[1][name]] for name in apart[0]}
    both = rows_of_exposure([*first, *second], kinds=[8, 8, 0, 0, 0], **joined)
    ones = [rows_of_exposure(n, **of) for n, of in zip((first, second), apart, strict=True)]
    assert both.sizes.tolist() == [1, 2, 1, 2]
    # The kind without GPUs comes first.
    assert both.node_days[2:, :2].tolist() == ones[1].node_days.tolist()
    assert both.node_days[:2, 2:].tolist() == ones[0].node_days.tolist()
    assert both.node_days[:2, :2].sum() == both.node_days[2:, 2:].sum() == 0
    assert both.known_failures.tolist() == [1, 0, 1, 0]
    assert both.shared_failures.tolist() == [0, 0, 0, 1 / 3]


def sharing(parts: Sequence[int], *, nodes: int = 6, days: int = 20) -> list[Attempt]:
    """Nodes that are full of jobs on a part of their GPUs each, day after day."""
    return [
        Attempt(
            job := 1 + 1000 * day + 100 * node + place,
            (f"n{node}",),
            day * DAY + 60 * place,
            (day + 1) * DAY - 3600,
            "NODE_FAIL" if (day + node) % 9 == 0 else "COMPLETED",
            gpus=gpus,
            name=f"j{job}",
        )
        for day in range(days)
        for node in range(nodes)
        for place, gpus in enumerate(parts)
    ]


@pytest.mark.parametrize(
    "parts", [(2,) * 4, (1,) * 8, (4, 2, 1, 1)], ids=["quarters", "ones", "odd"]
)
def test_nodes_that_jobs_share_have_the_gpus_of_all_of_them(
    tmp_path: Path, parts: Sequence[int]
) -> None:
    attempts = sharing(parts)
    log = Log(attempts).open(tmp_path)
    found = fleet.mttf(log, project=[16])
    assert log.gpus_per_node == 8
    days = 6 * 20 * (23 / 24)  # of every node, each moment once
    incidents = sum((day + node) % 9 == 0 for day in range(20) for node in range(6))
    (row,) = found.to_dict()["projections"]
    assert row["mttf_hours"] == pytest.approx(24 * days / incidents / 2)


@pytest.mark.parametrize(
    "more",
    [
        [Attempt(99_000 + n, (f"n{n}",), 1, DAY, gpus=0) for n in range(6)],
        [Attempt(99_000 + n, (f"n{n}",), 0, None, "RUNNING", 8, runtime_s=DAY) for n in range(6)],
        [Attempt(99_000 + n, (f"n{n}",), 20 * DAY, 20 * DAY + 30, gpus=8) for n in range(6)]
        + [Attempt(99_100 + n, (f"n{n}",), 20 * DAY + 20, 21 * DAY, gpus=8) for n in range(6)],
    ],
    ids=["without GPUs", "runaway", "seconds"],
)
def test_what_never_shares_a_node_adds_nothing_to_its_gpus(
    tmp_path: Path, more: list[Attempt]
) -> None:
    assert Log([*sharing((4, 4)), *more]).open(tmp_path).gpus_per_node == 8


def test_an_inventory_tells_more_than_jobs(tmp_path: Path) -> None:
    log = Log(sharing((2, 2)), nodes={f"n{n}": 16 for n in range(6)}).open(tmp_path)
    assert log.gpus_per_node == 16


@pytest.mark.parametrize("gangs", [4, 2])
def test_gangs_share_nodes_as_single_jobs_do(tmp_path: Path, gangs: int) -> None:
    """Pairs of nodes full of jobs that have a part of both."""
    attempts = [
        Attempt(
            1 + 100 * day + 10 * pair + n, own, day * DAY, (day + 1) * DAY - 60, gpus=16 // gangs
        )
        for day in range(9)
        for pair, own in enumerate([("a1", "a2"), ("b1", "b2")])
        for n in range(gangs)
    ]
    assert Log(attempts).open(tmp_path).gpus_per_node == 8


def test_a_suspended_job_holds_no_gpus_at_a_time_that_nothing_tells(tmp_path: Path) -> None:
    """Each third is suspended for four hours, in which another has all its GPUs."""
    attempts = []
    for day in range(30):
        suspended = day % 3 == 0
        ran_s = 20 * 3600 - 4 * 3600 * suspended
        own, start = ("n1",), day * DAY
        attempts.append(Attempt(1 + day, own, start, start + 20 * 3600, runtime_s=ran_s))
        if suspended:
            attempts.append(Attempt(100 + day, own, start + 3600, start + 5 * 3600))
    assert Log(attempts).open(tmp_path).gpus_per_node == 8


def test_an_hour_that_clocks_repeat_makes_no_gpus(tmp_path: Path) -> None:
    """Jobs of half an hour, one after the other; those of one hour are placed an hour early."""
    starts = [1800 * n for n in range(5 * 48)]
    placed = [start - 3600 * (start // 3600 == 60) for start in starts]
    attempts = [Attempt(n, ("n1",), at, at + 1750) for n, at in enumerate(placed, 1)]
    assert Log(attempts).open(tmp_path).gpus_per_node == 8


def test_an_inventory_of_some_nodes_bounds_the_others(tmp_path: Path) -> None:
    """More GPUs at once than any node that is known has: accounting is wrong, or time is shared."""
    log = Log(sharing((8, 8)), nodes={"x1": 8, "x2": 4}).open(tmp_path)
    assert log.gpus_per_node == 8
