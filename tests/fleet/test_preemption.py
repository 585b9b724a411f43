"""Who was preempted, by whom: each rule as a small log, and all of them against plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from logs import Attempt, Check, Log
from test_attribution import identities, infrastructure_by_loops

from conftest import RandomFleet
from holdfast.fleet import Assumptions, FleetLog, preemptions

QOS = [("high", 100, 0, "low"), ("low", 1, 60, "")]
GRACE, SLACK = 60, 300

# A victim on n1 that ends at 1000, and who wants its node.
VICTIM = Attempt(1, ("n1", "n2"), 0, 1000, "PREEMPTED", qos="low")
TAKER = Attempt(2, ("n2", "n3"), 1010, 5000, qos="high", submit=900)


@dataclass(frozen=True)
class Found:
    job: str
    preemptor: str | None
    evidence: str
    order: int


def found(log: FleetLog) -> list[Found]:
    rows = log.rows(f"SELECT * FROM {preemptions(log)} ORDER BY stop_s, job_id")
    return [Found(r["job_id"], r["preemptor"], r["evidence"], r["order"]) for r in rows]


def answer(
    folder: Path, *attempts: Attempt, qos: list[tuple[str, int, int, str]] = QOS, **more: object
) -> list[Found]:
    log = Log(list(attempts), qos=qos, **more)  # type: ignore[arg-type]
    return found(log.open(folder))


CASES: dict[str, tuple[list[Attempt], list[tuple[str, str | None, str]]]] = {
    "labelled, and its node taken": ([VICTIM, TAKER], [("1", "2", "label")]),
    "labelled, and nobody in sight": ([VICTIM], [("1", None, "label")]),
    "labelled; the taker is not on its nodes": (
        [VICTIM, replace(TAKER, nodes=("n3",))],
        [("1", None, "label")],
    ),
    "labelled; the taker was submitted after the end": (
        [VICTIM, replace(TAKER, submit=1002)],
        [("1", None, "label")],
    ),
    "labelled; the taker is of its own class": (
        [VICTIM, replace(TAKER, qos="low", priority=9999)],
        [("1", None, "label")],
    ),
    "labelled; the taker starts on the last second of grace and slack": (
        [VICTIM, replace(TAKER, start=1000 + GRACE + SLACK)],
        [("1", "2", "label")],
    ),
    "labelled; the taker starts a second too late": (
        [VICTIM, replace(TAKER, start=1001 + GRACE + SLACK)],
        [("1", None, "label")],
    ),
    "labelled; seconds are rounded": (
        [VICTIM, replace(TAKER, start=999)],
        [("1", "2", "label")],
    ),
    "died of SIGTERM, and its node taken": (
        [replace(VICTIM, state="FAILED", exit_code="15:0"), TAKER],
        [("1", "2", "sigterm")],
    ),
    "SIGTERM without anybody who wanted the node is no preemption": (
        [replace(VICTIM, state="FAILED", exit_code="15:0")],
        [],
    ),
    "failed by itself while somebody waited": (
        [replace(VICTIM, state="FAILED", exit_code="1:0"), TAKER],
        [],
    ),
    "completed while somebody waited": ([replace(VICTIM, state="COMPLETED"), TAKER], []),
    "a timeout before the limit": (
        [replace(VICTIM, state="TIMEOUT", limit_s=1800), TAKER],
        [("1", "2", "early_timeout")],
    ),
    "a timeout at the limit": ([replace(VICTIM, state="TIMEOUT", limit_s=960), TAKER], []),
    "cancelled by its user": ([replace(VICTIM, state="CANCELLED by 1001"), TAKER], []),
    "saved and left with a victim of the same job": (
        [
            replace(VICTIM, state="FAILED", exit_code="15:0"),
            Attempt(3, ("n3",), 0, 1004, "COMPLETED", qos="low"),
            TAKER,
        ],
        [("1", "2", "sigterm"), ("3", "2", "co_victim")],
    ),
    "where victims are labelled, none is silent": (
        [VICTIM, Attempt(3, ("n3",), 0, 1004, "COMPLETED", qos="low"), TAKER],
        [("1", "2", "label")],
    ),
    "completed long before its neighbour was preempted": (
        [VICTIM, Attempt(3, ("n3",), 0, 900, "COMPLETED", qos="low"), TAKER],
        [("1", "2", "label")],
    ),
    "the one that explains most victims is the preemptor": (
        [
            VICTIM,
            Attempt(3, ("n3",), 0, 1001, "PREEMPTED", qos="low"),
            Attempt(4, ("n1",), 1005, 2000, qos="high", submit=900),
            TAKER,
        ],
        [("1", "2", "label"), ("3", "2", "label")],
    ),
}


def apart(cases: Iterable[list[Attempt]]) -> Iterator[list[Attempt]]:
    """The cases in one log: each on its own nodes and with its own job ids."""
    for place, attempts in enumerate(cases, 1):
        yield [
            replace(
                attempt,
                job=100 * place + attempt.job,
                nodes=tuple(f"k{place:02d}{node}" for node in attempt.nodes),
                partition=f"p{place}",
            )
            for attempt in attempts
        ]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What is found with all cases in one log."""
    attempts = [a for case in apart(attempts for attempts, _ in CASES.values()) for a in case]
    return found(Log(attempts, qos=QOS).open(tmp_path_factory.mktemp("cases")))


@pytest.mark.parametrize("case", CASES)
def test_rules(answers: list[Found], case: str) -> None:
    place = list(CASES).index(case) + 1
    mine = [each for each in answers if int(each.job) // 100 == place]
    got = [
        (
            str(int(each.job) % 100),
            None if each.preemptor is None else str(int(each.preemptor) % 100),
            each.evidence,
        )
        for each in mine
    ]
    assert got == CASES[case][1]
    assert {each.order for each in mine} <= {1}


def test_a_timeout_before_its_limit_needs_somebody_who_may_preempt(tmp_path: Path) -> None:
    early = replace(VICTIM, state="TIMEOUT", limit_s=1800)
    later = replace(TAKER, start=4000, nodes=("n9",), priority=2000)
    one_class = [early, replace(later, qos="low")]
    assert answer(tmp_path / "one", *one_class, qos=[]) == []
    apart = [replace(each, partition=f"p{place}") for place, each in enumerate(one_class)]
    assert answer(tmp_path / "partitions", *apart, qos=[]) == []
    found_early = [Found("1", None, "early_timeout", 1)]
    assert answer(tmp_path / "two", early, later) == found_early
    assert answer(tmp_path / "priorities", early, later, qos=[]) == found_early
    labelled = replace(one_class[1], job=3, nodes=("n7",), state="PREEMPTED")
    both = answer(tmp_path / "label", *one_class, labelled, qos=[])
    assert [each for each in both if each.job == "1"] == found_early


FAILED_BEFORE = Attempt(2, ("n8", "n9"), 100, 900, "NODE_FAIL", qos="high")
AGAIN = replace(TAKER, submit=905)
ORDERS: dict[str, tuple[list[Attempt], int]] = {
    "the preemptor came back from a node failure": ([VICTIM, FAILED_BEFORE, AGAIN], 2),
    "somebody else had failed": ([VICTIM, replace(FAILED_BEFORE, job=7), TAKER], 1),
    "it came back from a plain requeue": (
        [VICTIM, replace(FAILED_BEFORE, state="REQUEUED"), AGAIN],
        1,
    ),
    "it had failed with a bad check": (
        [VICTIM, replace(FAILED_BEFORE, state="FAILED", exit_code="1:0", nodes=("bad",)), AGAIN],
        2,
    ),
    "it failed afterwards": ([VICTIM, replace(TAKER, end=2000, state="NODE_FAIL")], 1),
}


def test_second_order_needs_an_earlier_failure_of_the_preemptor(tmp_path: Path) -> None:
    cases = list(apart(attempts for attempts, _ in ORDERS.values()))
    bad = [a.nodes[0] for case in cases for a in case if a.nodes[0].endswith("bad")]
    log = Log(
        [attempt for case in cases for attempt in case],
        [Check(890, node, "check nvlink") for node in bad],
        qos=QOS,
    )
    got = {int(f.job) // 100: f.order for f in found(log.open(tmp_path))}
    assert got == {place: order for place, (_, order) in enumerate(ORDERS.values(), 1)}


def test_without_a_qos_table_the_mean_priority_ranks_the_classes(tmp_path: Path) -> None:
    """And the default grace (300 s) applies."""
    victim, taker = replace(VICTIM, priority=10), replace(TAKER, priority=1000)
    late = replace(taker, start=1000 + 300 + SLACK)
    too_late = replace(late, start=1001 + 300 + SLACK)
    cases = apart([[victim, taker], [victim, late], [victim, too_late]])
    log = Log([attempt for case in cases for attempt in case])
    assert [f.preemptor for f in found(log.open(tmp_path))] == ["102", "202", None]


def test_without_a_qos_partitions_rank(tmp_path: Path) -> None:
    victim = replace(VICTIM, qos="normal", partition="scavenge", priority=10)
    taker = replace(TAKER, qos="normal", partition="owners", priority=100)
    assert answer(tmp_path, victim, taker, qos=[]) == [Found("1", "2", "label", 1)]


def test_one_class_for_all_leaves_the_priority_of_the_jobs(tmp_path: Path) -> None:
    victim = replace(VICTIM, qos="normal", priority=10)
    taker = replace(TAKER, qos="normal", priority=100)
    cases = apart([[victim, taker], [victim, replace(taker, priority=10)]])
    log = Log([replace(attempt, partition="main") for case in cases for attempt in case])
    assert [f.preemptor for f in found(log.open(tmp_path))] == ["102", None]


def line(victim: int, preemptor: int | str, what: str = "signal") -> str:
    if what == "signal":
        return (
            f"debug:  setting 60 sec preemption grace time for JobId={victim} to reclaim "
            f"resources for JobId={preemptor}"
        )
    return f"preempted JobId={victim} has been requeued to reclaim resources for JobId={preemptor}"


def test_the_controller_log_decides_where_it_names_every_victim(tmp_path: Path) -> None:
    quiet = Attempt(3, ("n1",), 0, 990, "COMPLETED", qos="low")
    suspect = Attempt(5, ("n3",), 0, 1000, "FAILED", qos="low", exit_code="15:0")
    controller = [(950.0, line(3, 2)), (4000.0, line(4711, 2))]
    got = answer(tmp_path, quiet, suspect, TAKER, controller=controller)
    assert got == [Found("3", "2", "log", 1)]


def test_a_controller_log_without_debug_output_hides_nobody(tmp_path: Path) -> None:
    """At the level info only requeues and kills are logged, not who left in the grace period."""
    suspect = Attempt(5, ("n3",), 0, 1000, "FAILED", qos="low", exit_code="15:0")
    controller = [(1000.5, line(1, "Invalid", "requeue")), (4000.0, "other talk")]
    got = answer(tmp_path, VICTIM, suspect, TAKER, controller=controller)
    assert got == [Found("1", "2", "log", 1), Found("5", "2", "sigterm", 1)]


def test_random_logs_keep_the_rules(random_fleet: RandomFleet) -> None:
    """Every preemption has the evidence it claims, every preemptor may be one, no labelled is missed."""
    log, rows = random_fleet.log, random_fleet.rows
    who = identities(log)
    by_identity = {a.identity: a for a in rows.attempts}
    may = {(low, name) for name, _, _, lows in rows.qos for low in lows.split(",") if low}
    grace = {name: seconds for name, _, seconds, _ in rows.qos}
    first_failure: dict[int, int] = {}
    for attempt, _, _ in infrastructure_by_loops(rows):
        old = first_failure.get(attempt.job, attempt.stop)
        first_failure[attempt.job] = min(old, attempt.stop)
    seen: Counter[str] = Counter()
    strong = set()
    for row in log.rows(preemptions(log)):
        victim = by_identity[who[row["key"]]]
        evidence = row["evidence"]
        seen[evidence] += 1
        if evidence == "label":
            assert victim.state == "PREEMPTED"
        elif evidence == "early_timeout":
            assert victim.state == "TIMEOUT"
            assert victim.ran_s + 1 < victim.limit_s
        else:
            assert victim.state in ("FAILED", "COMPLETED")
            assert (victim.exit_code == "15:0") == (evidence == "sigterm")
            assert row["preemptor_key"] is not None
        if evidence != "co_victim":
            strong.add(victim.identity)
        if row["preemptor_key"] is None:
            assert row["order"] == 1
            assert not candidates(rows, victim, may, grace)
            continue
        taker = by_identity[who[row["preemptor_key"]]]
        assert row["preemptor"] == str(taker.job)
        assert in_time(victim, taker, may, grace)
        failed = first_failure.get(taker.job)
        assert (row["order"] == 2) == (failed is not None and failed <= victim.stop + 1)
    # Nobody with sure evidence is missed.
    for attempt in rows.attempts:
        sure = attempt.state == "PREEMPTED" or (
            attempt.state == "TIMEOUT" and attempt.ran_s + 1 < attempt.limit_s
        )
        hinted = attempt.state in ("FAILED", "COMPLETED") and attempt.exit_code == "15:0"
        if sure or (hinted and candidates(rows, attempt, may, grace)):
            assert attempt.identity in strong, attempt
    assert seen["label"] > 0
    assert seen["sigterm"] > 0


def in_time(
    victim: Attempt, taker: Attempt, may: set[tuple[str, str]], grace: dict[str, int]
) -> bool:
    assert taker.start is not None
    return (
        (victim.qos, taker.qos) in may
        and victim.job != taker.job
        and taker.waits_from <= victim.stop + 1
        and victim.stop - 1 <= taker.start <= victim.stop + grace[victim.qos] + SLACK
    )


def candidates(
    log: Log, victim: Attempt, may: set[tuple[str, str]], grace: dict[str, int]
) -> list[Attempt]:
    return [
        taker
        for taker in log.attempts
        if taker.start is not None
        and in_time(victim, taker, may, grace)
        and (set(taker.nodes) & set(victim.nodes) or victim.state != "PREEMPTED")
    ]


def test_no_slack_and_no_grace(tmp_path: Path) -> None:
    victims = [replace(VICTIM, job=j, nodes=(f"n{j}",), qos="low") for j in range(10, 20)]
    taker = Attempt(2, tuple(v.nodes[0] for v in victims), 1000, 5000, qos="high", submit=900)
    log = Log([*victims, taker], qos=[("high", 100, 0, "low"), ("low", 1, 0, "")])
    got = found(log.open(tmp_path, Assumptions(preemption_slack_s=0, preemption_grace_s=0)))
    assert {f.preemptor for f in got} == {"2"}
    assert len(got) == 10
