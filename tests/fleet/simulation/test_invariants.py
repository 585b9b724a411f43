"""What must hold in every simulated history, whatever the scenario: checked on the arrays alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.fleet.simulation.engine import Run, run
from holdfast.fleet.simulation.records import Detected, State
from holdfast.fleet.simulation.scenario import (
    Blast,
    Checkpoint,
    Cluster,
    Component,
    Detection,
    End,
    Failures,
    Lemons,
    Qos,
    Repair,
    Scenario,
    Scheduler,
    Size,
    Workload,
    scenario,
)
from runs import with_column

Integers = npt.NDArray[np.int64]
MOST = 1 << 60
AGAIN = (State.REQUEUED, State.PREEMPTED, State.NODE_FAIL)
SMALL = scenario("small")
BREAKS = (
    Component("memory", 0.5, "ecc", high=0.9, low=0.1, crash=0.5),
    Component("link", 0.3, "ib", high=0.5, low=0.2, crash=0.0),
    Component("node", 0.2, "down", high=0.0, permanent=0.5),
)
ALL_FAIL = Failures(
    rate_per_node_day=1.0,
    lemons=Lemons(count=2, factor=20.0),
    components=BREAKS,
    blasts=(
        Blast("power", "rack", 0.2, "psu"),
        Blast("switch", "pod", 0.4, "ib_switch"),
        Blast("disk", "fleet", 0.2, "fs", 600.0),
    ),
)
SCENARIOS = {
    "as published": SMALL,
    "much fails": replace(SMALL, failures=ALL_FAIL),
    "much is drained": replace(
        SMALL,
        failures=replace(
            ALL_FAIL, components=(Component("link", 1.0, "ib", high=0.2, low=0.7, crash=0.5),)
        ),
        detection=Detection(check_interval_s=1_200.0, heartbeat_s=900.0),
    ),
    "preemption at once, no time to save": replace(
        SMALL,
        scheduler=replace(SMALL.scheduler, preempt_after_s=60.0, grace_s=30.0, interval_s=0.0),
        failures=ALL_FAIL,
    ),
    "preemption with time to save": replace(
        SMALL,
        scheduler=replace(SMALL.scheduler, preempt_after_s=600.0, grace_s=300.0),
        checkpoint=Checkpoint(interval_s=900.0, write_s=100.0, init_s=200.0),
    ),
    "asynchronous writes": replace(
        SMALL,
        failures=ALL_FAIL,
        checkpoint=Checkpoint(interval_s=300.0, write_s=400.0, init_s=60.0, mode="async"),
    ),
    "first come, first served; no delay; ageing": replace(
        SMALL,
        scheduler=replace(
            SMALL.scheduler,
            policy="fcfs",
            depth=7,
            requeue_delay_s=0.0,
            age_weight=2.0,
            interval_s=0.0,
        ),
        failures=ALL_FAIL,
        repair=Repair(0.0, 60.0, 100.0, 200.0),
    ),
    "some nodes are pulled": replace(
        SMALL,
        cluster=replace(SMALL.cluster, without=("node03", "node16")),
        workload=replace(SMALL.workload, sizes=SMALL.workload.sizes[:4]),
        failures=ALL_FAIL,
    ),
    "owners requeue": replace(
        SMALL,
        workload=replace(
            SMALL.workload, ends=(*SMALL.workload.ends, End("REQUEUED", 3.0, 0.8)), short_limits=0.2
        ),
        failures=ALL_FAIL,
    ),
}


@cache
def made(name: str, seed: int = 1) -> Run:
    return run(SCENARIOS[name], days=20.0, seed=seed)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_history_is_possible(name: str) -> None:
    history = made(name)
    assert len(history.attempts.job) > 1_000
    check_everything(history)


def test_the_scenarios_reach_what_they_are_for() -> None:
    seen: dict[str, dict[State, int]] = {}
    for name in SCENARIOS:
        states = made(name).attempts.state
        seen[name] = {state: int((states == state).sum()) for state in State}
    assert seen["much fails"][State.NODE_FAIL] > 100
    assert seen["much fails"][State.FAILED] > 100
    assert seen["preemption at once, no time to save"][State.PREEMPTED] > 100
    assert seen["preemption with time to save"][State.PREEMPTED] > 20
    assert seen["owners requeue"][State.REQUEUED] > 100
    assert seen["owners requeue"][State.TIMEOUT] > 100
    assert seen["as published"][State.PREEMPTED] > 0
    drained = made("much is drained").failures
    assert ((drained.kind == Detected.LOW) & (drained.out_ms > drained.detected_ms)).sum() > 20
    assert (made("much fails").failures.blast >= 0).sum() > 100


def spoiled(history: Run, column: str, row: int, value: int) -> Run:
    """The history with one number changed."""
    changed = getattr(history.attempts, column).copy()
    changed[row] = value
    return replace(history, attempts=with_column(history.attempts, column, changed))


def test_the_checks_see_what_is_wrong() -> None:
    history = made("much fails")
    a = history.attempts
    failed = int(np.flatnonzero(a.state == State.NODE_FAIL)[10])
    done = int(np.flatnonzero((a.state == State.COMPLETED) & (a.node_count == 1))[10])
    preempted = int(np.flatnonzero(a.state == State.PREEMPTED)[10])
    busy = history.nodes.copy()
    # All of the attempts of one moment on one node.
    busy[a.node_offset[a.node_count == 1]] = busy[a.node_offset[done]]
    wrong = [
        replace(history, nodes=busy),
        spoiled(history, "end_ms", failed, a.end_ms[failed] + 1),
        spoiled(history, "end_ms", done, a.end_ms[done] - 1),
        spoiled(history, "start_ms", done, a.eligible_ms[done] - 1),
        spoiled(history, "attempt", failed, 7),
        spoiled(history, "state", failed, State.COMPLETED),
        spoiled(history, "state", done, State.NODE_FAIL),
        spoiled(history, "productive_ms", done, a.productive_ms[done] - 1),
        spoiled(history, "lost_ms", failed, a.lost_ms[failed] + 1),
        spoiled(history, "signal_ms", preempted, a.start_ms[preempted] + 1),
        spoiled(history, "preemptor", preempted, a.job[preempted]),
        spoiled(history, "failure", failed, 0),
        spoiled(history, "node_count", failed, a.node_count[failed] + 1),
    ]
    assert [number for number, each in enumerate(wrong) if is_possible(each)] == []
    assert is_possible(history)


def is_possible(history: Run) -> bool:
    try:
        check_everything(history)
    except AssertionError:
        return False
    return True


def test_nothing_starts_on_a_failed_node_or_overlaps_a_repair() -> None:
    history = made("much fails")
    f = history.failures
    # Nodes are back later than they were, or out earlier: then something runs there meanwhile.
    late = replace(
        history,
        failures=with_column(f, "repaired_ms", np.where(f.repaired_ms >= 0, MOST - 1, -1)),
    )
    early = replace(
        history, failures=with_column(f, "out_ms", np.where(f.out_ms >= 0, f.time_ms - 60_000, -1))
    )
    for each in (late, early):
        with pytest.raises(AssertionError):
            check_outages(each)


def test_the_same_seed_gives_the_same_arrays() -> None:
    name = "much fails"
    first, again = made(name), run(SCENARIOS[name], days=20.0, seed=1)
    other = made(name, seed=2)
    for table in ("jobs", "attempts", "failures"):
        np.testing.assert_array_equal(getattr(first, table), getattr(again, table), err_msg=table)
        assert getattr(first, table).tolist() != getattr(other, table).tolist()
    np.testing.assert_array_equal(first.nodes, again.nodes)
    assert first.events == again.events


def test_scenarios_of_one_seed_share_their_jobs() -> None:
    np.testing.assert_array_equal(made("as published").jobs, made("much fails").jobs)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    long, short = made("much fails"), run(SCENARIOS["much fails"], days=10.0, seed=1)
    ended = (short.attempts.end_ms >= 0).sum()
    for column in ("job", "attempt", "start_ms", "end_ms", "state", "productive_ms", "lost_ms"):
        np.testing.assert_array_equal(
            getattr(short.attempts, column)[:ended], getattr(long.attempts, column)[:ended], column
        )


def test_nodes_fail_as_often_as_they_should() -> None:
    rate = 0.5
    failures = Failures(rate_per_node_day=rate, components=BREAKS)
    # Without jobs: every failure is noticed by a check, and repair is short.
    idle = replace(
        SMALL,
        workload=Workload(jobs_per_day=1e-6, sizes=(Size(1, 1.0, 1.0),)),
        failures=failures,
        repair=Repair(1.0, 1.0, 1.0, 1.0),
        detection=Detection(check_interval_s=1.0, heartbeat_s=1.0),
    )
    days = 1_000.0
    history = run(idle, days=days, seed=3)
    ending = int((history.failures.kind != Detected.LOW).sum())
    expected = rate * SMALL.cluster.nodes * days
    assert abs(ending - expected) < 4 * expected**0.5
    drains = len(history.failures.node) - ending
    share = 0.5 * 0.1 + 0.3 * 0.2
    assert drains / len(history.failures.node) == pytest.approx(share, abs=0.02)


def test_attempts_end_as_often_as_their_expected_failures_say() -> None:
    failures = Failures(rate_per_node_day=0.3, lemons=Lemons(2, 10.0), components=BREAKS)
    history = run(replace(SMALL, failures=failures), days=150.0, seed=5)
    attempts = history.attempts
    hit = int((attempts.failure >= 0).sum())
    expected = float(attempts.expected_failures.sum())
    # Attempts that share a node end together: the variance is up to eight times that of a Poisson count.
    assert hit > 500
    assert abs(hit - expected) < 4 * (3 * expected) ** 0.5


# --- Any scenario --------------------------------------------------------------------------------


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    gpus_per_node = draw(st.sampled_from([1, 2, 4, 8]))
    nodes = draw(st.integers(1, 14))
    few = st.floats(0.0, 1.0)

    def seconds(most: float) -> st.SearchStrategy[float]:
        return st.sampled_from([0.0, 1.0, most / 100, most / 10, most])

    sizes = []
    for _ in range(draw(st.integers(1, 3))):
        whole = draw(st.integers(1, nodes)) * gpus_per_node
        part = draw(st.integers(1, gpus_per_node))
        gpus = draw(st.sampled_from([whole, part]))
        shares = {name: draw(few) + 0.01 for name in ("low", "high")}
        sizes.append(Size(gpus, draw(few) + 0.05, draw(st.floats(0.05, 5.0)), draw(few), shares))
    high = draw(few)
    part = Component(
        "all",
        1.0,
        "check",
        high=high,
        low=(1 - high) * draw(few) * 0.9,
        crash=draw(few),
        permanent=draw(few) / 2,
    )
    repair = sorted(draw(st.lists(seconds(40_000.0), min_size=4, max_size=4)))
    demand = sum(size.share * size.gpus * size.hours for size in sizes) / sum(
        s.share for s in sizes
    )
    load = draw(st.floats(0.3, 1.5))
    return Scenario(
        name="drawn",
        cluster=Cluster(nodes, gpus_per_node, nodes_per_pod=draw(st.integers(1, 6))),
        qos=(Qos("low", 1), Qos("high", 2)),
        workload=Workload(
            jobs_per_day=min(load * nodes * gpus_per_node * 24 / demand, 600.0),
            users=3,
            sizes=tuple(sizes),
            ends=(End("FAILED", draw(st.floats(0.5, 50.0)), 0.7), End("REQUEUED", 20.0, 1.0)),
            short_limits=draw(few) / 4,
        ),
        scheduler=Scheduler(
            policy=draw(st.sampled_from(["easy", "fcfs"])),
            interval_s=draw(st.sampled_from([0.0, 30.0, 600.0])),
            depth=draw(st.sampled_from([0, 2, 50])),
            preemption=draw(st.booleans()),
            preempt_after_s=draw(seconds(7_200.0)),
            grace_s=draw(seconds(600.0)),
            requeue_delay_s=draw(seconds(600.0)),
            age_weight=draw(st.sampled_from([0.0, 5.0])),
        ),
        failures=Failures(
            rate_per_node_day=draw(st.sampled_from([0.0, 0.1, 2.0, 20.0])),
            lemons=Lemons(draw(st.integers(0, nodes)), 7.0),
            components=(part,),
            blasts=(
                Blast(
                    "switch",
                    draw(st.sampled_from(["rack", "pod", "fleet"])),
                    draw(few),
                    "ib",
                    draw(seconds(3_600.0)),
                ),
            ),
        ),
        detection=Detection(
            check_interval_s=draw(st.sampled_from([1.0, 300.0, 4_000.0])),
            heartbeat_s=draw(seconds(900.0)),
        ),
        repair=Repair(*repair),
        checkpoint=Checkpoint(
            interval_s=draw(st.sampled_from([0.5, 60.0, 3_600.0])),
            write_s=draw(seconds(300.0)),
            init_s=draw(seconds(900.0)),
            mode=draw(st.sampled_from(["sync", "async"])),
            save_on_signal=draw(st.booleans()),
        ),
    )


@given(drawn=scenarios(), seed=st.integers(0, 1 << 40))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_history_is_possible(drawn: Scenario, seed: int) -> None:
    check_everything(run(drawn, days=2.0, seed=seed))


@pytest.mark.full
@given(drawn=scenarios(), seed=st.integers(0, 1 << 40))
@settings(max_examples=1_500, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_histories_are_possible(drawn: Scenario, seed: int) -> None:
    check_everything(run(drawn, days=4.0, seed=seed))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_seeds(name: str, seed: int) -> None:
    check_everything(run(SCENARIOS[name], days=60.0, seed=seed))


@pytest.mark.full
@pytest.mark.parametrize("name", ["rsc1", "rsc2"])
def test_large_presets(name: str) -> None:
    check_everything(run(scenario(name), days=20.0, seed=1))


# --- What is checked -----------------------------------------------------------------------------


def check_everything(history: Run) -> None:
    check_times(history)
    check_attempts_of_jobs(history)
    check_gangs(history)
    check_gpus_in_use(history)
    check_failures(history)
    check_blasts(history)
    check_outages(history)
    check_preemptions(history)
    check_work(history)


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def check_times(history: Run) -> None:
    a, jobs = history.attempts, history.jobs
    ran = a.start_ms >= 0
    ended = a.end_ms >= 0
    assert (ended <= ran).all()
    assert (a.state[~ran] == State.PENDING).all()
    assert (a.state[ran & ~ended] == State.RUNNING).all()
    assert (a.state[ended] < State.RUNNING).all()
    assert (a.eligible_ms >= jobs.submit_ms[a.job]).all()
    assert (a.start_ms[ran] >= a.eligible_ms[ran]).all()
    assert (a.end_ms[ended] >= a.start_ms[ended]).all()
    assert (a.end_ms < history.end_ms).all()
    assert (a.start_ms < history.end_ms).all()
    assert (a.gpus == jobs.gpus[a.job]).all()
    # In the order of their ends, and those that have not ended last.
    assert (np.diff(a.end_ms[ended]) >= 0).all()
    assert not ended[ended.sum() :].any()
    end = np.where(ended, a.end_ms, history.end_ms)
    assert (end - a.start_ms <= jobs.limit_ms[a.job])[ran].all()
    timeout = a.state == State.TIMEOUT
    assert ((a.end_ms - a.start_ms)[timeout] == jobs.limit_ms[a.job][timeout]).all()


def check_attempts_of_jobs(history: Run) -> None:
    """Every job that was submitted has attempts 1, 2, ...; only the last one may be final."""
    a, jobs = history.attempts, history.jobs
    delay = ms(history.scenario.scheduler.requeue_delay_s)
    order = np.lexsort((a.attempt, a.job))
    job, number = a.job[order], a.attempt[order]
    first = np.concatenate([[True], np.diff(job) > 0])
    assert (number[first] == 1).all()
    assert (np.diff(number)[~first[1:]] == 1).all()
    submitted = np.flatnonzero(jobs.submit_ms < history.end_ms)
    np.testing.assert_array_equal(job[first], submitted)
    np.testing.assert_array_equal(a.eligible_ms[order][first], jobs.submit_ms[submitted])
    again = np.isin(a.state, AGAIN) | ((a.state == State.FAILED) & (a.failure >= 0))
    last = np.concatenate([np.diff(job) > 0, [True]])
    assert again[order][~last].all()
    assert not again[order][last].any()  # it waits again, and has a row that says so
    later = np.flatnonzero(~first)
    before = a.end_ms[order][later - 1]
    np.testing.assert_array_equal(a.eligible_ms[order][later], before + delay)


def check_gangs(history: Run) -> None:
    """An attempt has all its nodes from its start: as many as it needs, and different ones."""
    a, size = history.attempts, history.scenario.cluster.gpus_per_node
    ran = a.start_ms >= 0
    np.testing.assert_array_equal(a.node_count[ran], -(-a.gpus[ran] // size))
    assert (a.node_count[~ran] == 0).all()
    attempt, node = placed(history)
    assert ((node >= 0) & (node < history.scenario.cluster.nodes)).all()
    pulled = set(history.scenario.cluster.without)
    used = {history.scenario.node_names[each] for each in np.unique(node)}
    assert not used & pulled
    assert not pulled & {
        history.scenario.node_names[each] for each in np.unique(history.failures.node)
    }
    pairs = attempt * (history.scenario.cluster.nodes + 1) + node
    assert len(np.unique(pairs)) == len(pairs)


def placed(history: Run) -> tuple[Integers, Integers]:
    """(attempt, node) of every node of every attempt that started."""
    a = history.attempts
    attempt = np.repeat(np.arange(len(a.job)), a.node_count)
    inside = np.arange(len(attempt)) - np.repeat(
        np.cumsum(a.node_count) - a.node_count, a.node_count
    )
    return attempt, history.nodes[a.node_offset[attempt] + inside].astype(np.int64)


def check_gpus_in_use(history: Run) -> None:
    """A sweep over the starts and ends of each node; at one moment ends come first."""
    a, size = history.attempts, history.scenario.cluster.gpus_per_node
    attempt, node = placed(history)
    gpus = np.minimum(a.gpus, size)[attempt].astype(np.int64)
    end = np.where(a.end_ms >= 0, a.end_ms, MOST)
    lasts = end[attempt] > a.start_ms[attempt]
    node, gpus, attempt = node[lasts], gpus[lasts], attempt[lasts]
    time = np.concatenate([a.start_ms[attempt], end[attempt]])
    change = np.concatenate([gpus, -gpus])
    where = np.concatenate([node, node])
    order = np.lexsort((change, time, where))
    in_use = np.cumsum(change[order])  # back to zero at the end of each node
    assert (in_use <= size).all()
    assert (in_use >= 0).all()


def check_failures(history: Run) -> None:
    """Failures are noticed in time, and end the attempts that they are said to end."""
    f, a, made_of = history.failures, history.attempts, history.scenario
    assert (np.diff(f.time_ms) >= 0).all()
    silent, low = f.kind == Detected.SILENT, f.kind == Detected.LOW
    noticed = f.detected_ms - f.time_ms
    assert (noticed[silent] == ms(made_of.detection.heartbeat_s)).all()
    # A crash is seen by the check after the job, within seconds.
    slowest = max(ms(made_of.detection.check_interval_s), 5_000)
    assert ((noticed >= 0) & (noticed <= slowest))[~silent].all()
    by_node = defaultdict(set)
    for node, time, detected in zip(
        f.node.tolist(), f.time_ms.tolist(), f.detected_ms.tolist(), strict=True
    ):
        by_node[node] |= {time, detected}
    hit = np.flatnonzero(a.failure >= 0)
    which = a.failure[hit]
    assert (f.time_ms[which] >= a.start_ms[hit]).all()
    assert (~low[which]).all()
    for row, failure in zip(hit.tolist(), which.tolist(), strict=True):
        nodes = nodes_of(history, row)
        assert f.node[failure] in nodes
        if a.end_ms[row] >= 0:
            assert a.end_ms[row] >= f.time_ms[failure]
            assert a.state[row] in (State.FAILED, State.NODE_FAIL, State.TIMEOUT)
            if a.state[row] != State.TIMEOUT:
                assert any(a.end_ms[row] in by_node[node] for node in nodes)
    assert (a.failure[a.state == State.NODE_FAIL] >= 0).all()


def check_blasts(history: Run) -> None:
    """A common failure hits, at one moment, nodes of one rack, of one pod, or any."""
    f, made_of = history.failures, history.scenario
    hit = np.flatnonzero(f.blast >= 0)
    width = {
        "rack": made_of.cluster.nodes_per_rack,
        "pod": made_of.cluster.nodes_per_pod,
        "fleet": made_of.cluster.nodes,
    }
    for number in np.unique(f.blast[hit]):
        rows = hit[f.blast[hit] == number]
        assert len(np.unique(f.time_ms[rows])) == 1
        assert len(np.unique(f.component[rows])) == 1
        assert len(np.unique(f.node[rows])) == len(rows)
        kind = made_of.failures.blasts[f.component[rows[0]]]
        assert len(np.unique(f.node[rows] // width[kind.domain])) == 1


def nodes_of(history: Run, row: int) -> list[int]:
    offset, count = history.attempts.node_offset[row], history.attempts.node_count[row]
    return history.nodes[offset : offset + count].tolist()


def check_outages(history: Run) -> None:
    """No attempt is on a node in repair; none starts on a node that has failed or is drained."""
    f, a = history.failures, history.attempts
    back = np.where(f.repaired_ms >= 0, f.repaired_ms, MOST)
    low = f.kind == Detected.LOW
    taken = f.out_ms >= 0
    assert (f.out_ms[taken] >= f.detected_ms[taken])[~low[taken]].all()
    assert (f.repaired_ms[~taken] == -1).all() or low[(f.repaired_ms >= 0) & ~taken].all()
    assert (back > f.out_ms).all()
    # Nodes that have failed outright are empty once that is noticed.
    due = ~low & (f.detected_ms < history.end_ms)
    np.testing.assert_array_equal(f.out_ms[due], f.detected_ms[due])
    attempt, node = placed(history)
    start = a.start_ms[attempt]
    end = np.where(a.end_ms >= 0, a.end_ms, history.end_ms)[attempt]
    order = np.lexsort((start, node))
    node, start, end = node[order], start[order], end[order]
    edges = np.searchsorted(node, np.arange(history.scenario.cluster.nodes + 1))
    closed = np.where(low, f.detected_ms, f.time_ms)  # nothing starts from here on
    for row in range(len(f.node)):
        own = slice(edges[f.node[row]], edges[f.node[row] + 1])
        begins, ends = start[own], end[own]
        lasts = ends > begins
        if taken[row]:
            overlaps = (begins < back[row]) & (ends > f.out_ms[row]) & lasts
            assert not overlaps.any(), f"failure {row}: an attempt on a node in repair"
        inside = (begins > closed[row]) & (begins < back[row])
        assert not inside.any(), f"failure {row}: a start on a failed or drained node"


def check_preemptions(history: Run) -> None:
    a, jobs, rules = history.attempts, history.jobs, history.scenario.scheduler
    priority = np.array([each.priority for each in history.scenario.qos])[jobs.qos]
    signalled = a.signal_ms >= 0
    np.testing.assert_array_equal(signalled, a.preemptor >= 0)
    if not rules.preemption:
        assert not signalled.any()
    assert signalled[a.state == State.PREEMPTED].all()
    rows = np.flatnonzero(signalled)
    assert (a.signal_ms[rows] - a.start_ms[rows] >= ms(rules.preempt_after_s)).all()
    assert (priority[a.preemptor[rows]] > priority[a.job[rows]]).all()
    end = np.where(a.end_ms >= 0, a.end_ms, history.end_ms)[rows]
    assert (end >= a.signal_ms[rows]).all()
    hung = a.failure[rows] >= 0
    assert (end - a.signal_ms[rows] <= max(ms(rules.grace_s), 1_000))[~hung].all()
    # The preemptor waits at that moment.
    attempts_of = defaultdict(list)
    preemptors = set(a.preemptor[rows].tolist())
    for row in np.flatnonzero(np.isin(a.job, list(preemptors))).tolist():
        attempts_of[int(a.job[row])].append(row)
    for row in rows.tolist():
        moment = a.signal_ms[row]
        waits = [
            a.eligible_ms[other] <= moment
            and (a.start_ms[other] < 0 or a.start_ms[other] >= moment)
            for other in attempts_of[int(a.preemptor[row])]
        ]
        assert any(waits)


def timeline(history: Run, ran: int) -> tuple[int, int, int, int]:
    """What an attempt has done after a time, step by step: initialised, worked, written, and saved."""
    rules = history.scenario.checkpoint
    interval, write = ms(rules.interval_s), ms(rules.write_s)
    init = min(ran, ms(rules.init_s))
    left = ran - init
    if rules.mode == "async":
        saved = 0
        if left >= interval + write:
            saved = (left - write) // interval * interval
        return init, left, 0, saved
    cycles = left // (interval + write)
    saved = cycles * interval
    part = left - cycles * (interval + write)
    return init, saved + min(part, interval), cycles * write + max(part - interval, 0), saved


def check_work(history: Run) -> None:
    """What an attempt does with its time, what is lost at its end, and that a job's work adds up."""
    a, jobs, rules = history.attempts, history.jobs, history.scenario
    ran = a.start_ms >= 0
    end = np.where(a.end_ms >= 0, a.end_ms, history.end_ms)
    for column in (a.productive_ms, a.lost_ms, a.init_ms, a.write_ms):
        assert (column >= 0).all()
        assert (column[~ran] == 0).all()
    parts = a.productive_ms + a.lost_ms + a.init_ms + a.write_ms
    np.testing.assert_array_equal(parts[ran], (end - a.start_ms)[ran])

    may_save = (
        rules.checkpoint.save_on_signal and rules.checkpoint.write_s <= rules.scheduler.grace_s
    )
    order = np.lexsort((a.attempt, a.job))
    done = 0
    for row in order.tolist():
        job, state = int(a.job[row]), int(a.state[row])
        done = 0 if a.attempt[row] == 1 else done
        if state == State.PENDING:
            continue
        failure, start = int(a.failure[row]), int(a.start_ms[row])
        stop = int(history.failures.time_ms[failure]) if failure >= 0 else int(end[row])
        rest = int(jobs.work_ms[job]) - done
        init, worked, _, saved = timeline(history, stop - start)
        worked, saved = min(worked, rest), min(saved, rest)
        hung = int(end[row]) - stop
        if state == State.PREEMPTED and may_save:
            _, kept, _, _ = timeline(history, int(a.signal_ms[row]) - start)
            assert a.productive_ms[row] == min(kept, rest)
            assert a.lost_ms[row] == 0
        elif state in AGAIN or (state == State.FAILED and failure >= 0):
            assert a.productive_ms[row] == saved
            assert a.lost_ms[row] == worked - saved + hung
            # Spelled out: never more than the time since the last finished checkpoint.
            interval, write = ms(rules.checkpoint.interval_s), ms(rules.checkpoint.write_s)
            per_checkpoint = interval + (write if rules.checkpoint.mode == "sync" else 0)
            since = stop - start - init - saved // interval * per_checkpoint
            assert a.lost_ms[row] <= since + hung
        else:
            assert a.productive_ms[row] == worked
            assert a.lost_ms[row] == hung
        assert a.init_ms[row] <= ms(rules.checkpoint.init_s)
        done += int(a.productive_ms[row])
        assert done <= jobs.work_ms[job]
        if state not in (*AGAIN, State.RUNNING, State.TIMEOUT) and failure < 0:
            assert state == jobs.end_state[job]
            assert done == jobs.work_ms[job]
