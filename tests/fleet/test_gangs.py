"""Jobs of several pods: what ran together is one attempt on all its nodes, and fails once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import kubernetes_objects as kube
import pytest
from kubernetes_objects import BEGIN, condition, containers, ended, pod, running, stamp

import holdfast.fleet as fleet
from holdfast.fleet.gangs import undecided_jobs
from holdfast.fleet.incidents import incidents, node_incidents
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.schema import ATTEMPTS

KUBEFLOW, JOB = "training.kubeflow.org/", "batch.kubernetes.io/"
LOST = condition("DisruptionTarget", "True", 40_340, "DeletionByTaintManager")
GOING = {"deletionTimestamp": stamp(40_370), "deletionGracePeriodSeconds": 30}


def log_of(tmp_path: Path, *items: Any) -> FleetLog:
    (tmp_path / "pods.jsonl").write_text("".join(json.dumps(each) + "\n" for each in items))
    fleet.ingest([tmp_path / "pods.jsonl"], tmp_path / "store")
    return open_log(tmp_path / "store")


def attempts(log: FleetLog, *more: str) -> list[tuple[Any, ...]]:
    """Job, attempt, start and end since `BEGIN`, state, nodes."""
    rows = log.rows(f"SELECT * FROM {log.table('attempts')} ORDER BY job_id, attempt, start_s")
    assert [list(row) for row in rows][:1] in ([], [ATTEMPTS.names])
    assert len({row["key"] for row in rows}) == len(rows)
    return [
        (
            *(row["job_id"].removeprefix("team-a/"), row["attempt"], row["start_s"] - BEGIN),
            *(row["end_s"] and row["end_s"] - BEGIN, row["state"], "".join(row["nodes"])),
            *(row[name] for name in more),
        )
        for row in rows
    ]


def worker(index: int, state: Any, phase: str = "Failed", **more: Any) -> Any:
    """A pod of a PyTorchJob, each on a node of its own."""
    labels = {"job-name": "pt", "replica-type": "worker", "replica-index": f"{index}"}
    own = {KUBEFLOW + key: text for key, text in labels.items()}
    name, node = more.pop("name", f"pt-worker-{index}"), more.pop("node", f"g{index}")
    version = more.pop("version", 5)
    return pod(
        name,
        version,
        node=node,
        labels=own,
        phase=phase,
        containerStatuses=containers(state),
        **more,
    )


def test_one_lost_node_of_eight_is_one_failure_of_a_job_on_eight_nodes(tmp_path: Path) -> None:
    silent = condition("Ready", "Unknown", 40_000, "NodeStatusUnknown")
    pods = [worker(i, ended(20 + i, 39_990 + i, 1)) for i in range(8)]
    pods[3] = worker(3, running(23), "Running", conditions=[LOST], metadata=GOING)
    nodes = [kube.node(f"g{i}", 2, *([silent] if i == 3 else [])) for i in range(10)]
    log = log_of(tmp_path, *pods, *nodes)
    assert attempts(log, "gpus", "node_count", "failed_node", "cpus") == [
        ("pt", 1, 20, 39_990, "NODE_FAIL", "g0g1g2g3g4g5g6g7", 64, 8, "g3", 16)
    ]
    [row] = log.rows(f"SELECT attempts, node, gpus FROM {incidents(log)}")
    assert row == {"attempts": 1, "node": "g3", "gpus": 64}
    assert log.rows(f"SELECT node, blame FROM {node_incidents(log)}") == [
        {"node": "g3", "blame": 1.0}
    ]
    [size] = fleet.mttf(log, min_gpus=0).to_dict()["buckets"]
    assert (size["failures"], size["gpus_max"]) == (1, 64)
    assert size["node_days"] == pytest.approx(8 * (39_990 - 20) / 86_400)


def test_a_gang_that_is_replaced_whole_has_two_attempts(tmp_path: Path) -> None:
    first = [worker(i, ended(10 + i, 500 + 20 * i, 1)) for i in range(2)]
    later = {"metadata": {"creationTimestamp": stamp(610)}}
    second = [
        worker(i, ended(620 + i, 900, 0), "Succeeded", name=f"pt-w{i}b", version=9, **later)
        for i in range(2)
    ]
    rows = attempts(log_of(tmp_path, *first, *second), "submit_s", "runtime_s", "job_runtime_s")
    assert rows == [
        ("pt", 1, 10, 500, "FAILED", "g0g1", BEGIN, 490, 490),
        ("pt", 2, 620, 900, "COMPLETED", "g0g1", BEGIN + 610, 280, 770),
    ]


@pytest.mark.parametrize("indexed", [True, False])
def test_what_follows_a_job_that_completed_is_another_job(indexed: bool, tmp_path: Path) -> None:
    pods = [
        task(f"{i}x{begin}", ended(begin, end, code), phase, i if indexed else None)
        for begin, end, code, phase in [
            (10, 500, 1, "Failed"),
            (600, 900, 0, "Succeeded"),
            (5000, 5600, 0, "Succeeded"),
        ]
        for i in range(1 + indexed)
    ]
    log = log_of(tmp_path, *pods)
    assert [(row[1], row[2]) for row in attempts(log)] == [(1, 10), (1, 5000), (2, 600)]
    runs = log.rows(f"SELECT run, count(*) AS n FROM {log.attempts} GROUP BY run ORDER BY n")
    assert [row["n"] for row in runs] == [1, 2]


def test_those_that_go_on_are_in_the_next_attempt_too(tmp_path: Path) -> None:
    stays = worker(0, ended(10, 900, 0), "Succeeded")
    fails = worker(1, ended(15, 500, 1))
    again = worker(1, ended(530, 910, 0), "Succeeded", name="pt-b", node="g7", version=9)
    assert attempts(log_of(tmp_path, stays, fails, again), "gpus") == [
        ("pt", 1, 10, 500, "FAILED", "g0g1", 16),
        ("pt", 2, 530, 910, "COMPLETED", "g0g7", 16),
    ]


def test_a_gang_that_runs(tmp_path: Path) -> None:
    pods = [worker(i, running(10 + i), "Running") for i in range(3)]
    assert attempts(log_of(tmp_path, *pods), "runtime_s") == [
        ("pt", 1, 10, None, "RUNNING", "g0g1g2", None)
    ]


def task(suffix: str, state: Any, phase: str, index: int | None = None, node: str = "g1") -> Any:
    labels = {JOB + "job-name": "work"}
    if index is not None:
        labels[JOB + "job-completion-index"] = f"{index}"
    status = containers(state)
    return pod(f"work-{suffix}", 5, node=node, labels=labels, phase=phase, containerStatuses=status)


@pytest.mark.parametrize("indexed", [True, False])
def test_tasks_stay_tasks(indexed: bool, tmp_path: Path) -> None:
    """Three at a time, of which some complete while others work on."""
    ends = [
        (10, 400, "Succeeded"),
        (10, 900, "Succeeded"),
        (10, 500, "Failed"),
        (420, 800, "Succeeded"),
    ]
    pods = [
        task(
            f"{i}ab",
            ended(begin, end, int(phase == "Failed")),
            phase,
            i if indexed else None,
            f"g{i}",
        )
        for i, (begin, end, phase) in enumerate(ends)
    ]
    log = log_of(tmp_path, *pods)
    found = attempts(log)
    mark = "+{}" if indexed else "_{}ab"
    states = ["FAILED" if phase == "Failed" else "COMPLETED" for *_, phase in ends]
    assert found == [
        (f"work{mark.format(i)}", 1, begin, end, states[i], f"g{i}")
        for i, (begin, end, _) in enumerate(ends)
    ]
    assert undecided_jobs(log) == 0


def test_workers_of_a_kubeflow_job_may_end_apart(tmp_path: Path) -> None:
    """Four of which the third loses its node; all are replaced, and the second then works on for 40 min."""
    first = [worker(i, ended(10, 40_000 + i, 1)) for i in range(4)]
    first[2] = worker(2, running(10), "Running", conditions=[LOST], metadata=GOING)
    second = [
        worker(i, ended(40_500, 70_000 + (i == 1) * 2400), "Succeeded", name=f"pt-b{i}", version=9)
        for i in range(4)
    ]
    log = log_of(tmp_path, *first, *second)
    assert attempts(log, "gpus") == [
        ("pt", 1, 10, 40_000, "NODE_FAIL", "g0g1g2g3", 32),
        ("pt", 2, 40_500, 72_400, "COMPLETED", "g0g1g2g3", 32),
    ]
    assert undecided_jobs(log) == 0


@pytest.mark.parametrize(
    ("others", "late", "again", "gang"),
    [
        ((1000, 1030), 2, True, True),  # They died together, of a lost node
        ((1000, 1200), 2, True, False),
        ((9000, 9030), 2, True, False),  # long after the node
        ((1000, 1030), 2, False, False),  # One was not replaced
        (None, 2, True, False),
        (None, 0, True, True),  # The first may save what all have made: cannot be told
    ],
)
def test_an_indexed_job_whose_pods_end_apart(
    others: tuple[int, int] | None, late: int, again: bool, gang: bool, tmp_path: Path
) -> None:
    pods = [
        task(f"{i}b", ended(10_000, 12_000 + (i == late) * 900), "Succeeded", i, f"g{i}")
        for i in range(3)
        if again or i != 1
    ]
    if others:
        lost = condition("DisruptionTarget", "True", 1300, "DeletionByTaintManager")
        died = [task(f"{i}a", ended(10, others[i], 1), "Failed", i, f"g{i}") for i in (0, 1)]
        died.append(task("2a", running(10), "Running", 2, "g2"))
        died[2]["status"]["conditions"] = [lost]
        died[2]["metadata"]["deletionTimestamp"] = stamp(1330)
        pods += died
    log = log_of(tmp_path, *pods)
    jobs = {row[0] for row in attempts(log)}
    assert (jobs == {"work"}) == gang == (undecided_jobs(log) == 1)
    if others and gang:
        assert [row[3:5] for row in attempts(log)] == [(1000, "NODE_FAIL"), (12_900, "COMPLETED")]


LEADERS = [
    ({"job-role": "launcher"}, {"job-role": "worker"}),  # as the MPI operator names them
    ({"job-role": "master", "replica-type": "chief"}, {"replica-type": "worker"}),
    ({"job-role": "master", "replica-type": "worker"}, {"replica-type": "worker"}),
    ({"replica-type": "master"}, {"replica-type": "worker"}),
]


@pytest.mark.parametrize(("leads", "works"), LEADERS)
@pytest.mark.parametrize(
    ("code", "worker_end", "lost", "state"),
    [
        (0, 5020, False, "COMPLETED"),  # Its workers are killed afterwards
        (0, 3000, True, "COMPLETED"),
        (1, 5020, False, "FAILED"),
        (1, 4990, True, "NODE_FAIL"),
    ],
)
def test_the_result_of_a_job_is_that_of_its_leader(
    leads: dict[str, str],
    works: dict[str, str],
    code: int,
    worker_end: int,
    lost: bool,
    state: str,
    tmp_path: Path,
) -> None:
    pods = []
    for i, roles in enumerate([leads, works, works]):
        labels = {"job-name": "mpi", **roles}
        if i or "replica-type" in roles:  # The launcher has no index
            labels["replica-index"] = (
                f"{i if leads.get('replica-type') == 'worker' else max(i - 1, 0)}"
            )
        conditions = [LOST] if lost and i == 1 else []
        end = ended(10, worker_end, 137) if i else ended(30, 5000, code)
        pods.append(
            pod(
                f"mpi-{i}-x",
                5,
                node=f"g{i}",
                labels={KUBEFLOW + key: text for key, text in labels.items()},
                phase="Failed" if i or code else "Succeeded",
                conditions=conditions,
                containerStatuses=containers(end),
            )
        )
    end_s = max(worker_end, 5000) if state == "COMPLETED" else min(worker_end, 5000)
    log = log_of(tmp_path, *pods)
    assert attempts(log, "gpus") == [("mpi", 1, 10, end_s, state, "g0g1g2", 24)]


@pytest.mark.parametrize(("indexed", "jobs"), [(True, ["work"]), (False, ["work_0a", "work_1a"])])
def test_what_cannot_be_told_is_a_doubt(indexed: bool, jobs: list[str], tmp_path: Path) -> None:
    pods = [task(f"{i}a", ended(10, 400 + i, 1), "Failed", i if indexed else None) for i in (0, 1)]
    log = log_of(tmp_path, *pods)
    assert [row[0] for row in attempts(log)] == jobs
    assert undecided_jobs(log) == 1
    (doubt,) = (
        each for each in fleet.report(tmp_path / "store").unknowns() if "1 job" in each.text
    )
    assert doubt.doubt


def test_retries_of_a_job_without_indices_are_attempts_of_one(tmp_path: Path) -> None:
    tries = [(10, 100, "Failed"), (130, 300, "Failed"), (350, 700, "Succeeded")]
    pods = [
        task(f"x{begin}", ended(begin, end, int(phase == "Failed")), phase)
        for begin, end, phase in tries
    ]
    log = log_of(tmp_path, *pods)
    assert attempts(log, "submit_s") == [
        ("work", 1, 10, 100, "FAILED", "g1", BEGIN),
        ("work", 2, 130, 300, "FAILED", "g1", BEGIN + 100),
        ("work", 3, 350, 700, "COMPLETED", "g1", BEGIN + 300),
    ]
    assert undecided_jobs(log) == 0


def test_two_clusters_have_two_jobs_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pods = [worker(i, ended(20, 900 + (name == "b"), 0), "Succeeded") for i in range(2)]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in pods))
        fleet.ingest([path], tmp_path / "store", cluster=name)
    log = open_log(tmp_path / "store")
    assert [(row[0], row[3], row[5]) for row in attempts(log)] == [
        ("a:team-a/pt", 900, "a:g0a:g1"),
        ("b:team-a/pt", 901, "b:g0b:g1"),
    ]


# How a pod ended -> reason of its container, of its pod, of its node, and what explains an attempt first
ENDS = {
    "NODE_FAIL": ("Error", "", "NodeLost"),
    "PREEMPTED": ("Error", "Evicted", ""),
    "OUT_OF_MEMORY": ("OOMKilled", "", ""),
    "FAILED": ("Error", "", ""),
}


def played(rng: random.Random, name: str) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """The pods of a job that fails at random until it completes, and its attempts as they were."""
    size, begin = rng.randrange(2, 6), rng.randrange(1000)
    fresh, since = list(range(size)), [0] * size
    pods, truth = [], []
    for attempt in range(1, rng.randrange(2, 6)):
        for place, index in enumerate(fresh):
            since[index] = begin + bool(place) * rng.randrange(20)
        completes = attempt == 4
        stop = begin + rng.randrange(1000, 9000)
        # Some go on; the others end within three minutes, in any order.
        over = {
            i: stop + rng.randrange(180)
            for i in rng.sample(range(size), rng.randrange(1, size + 1))
        }
        if completes:
            over = {i: stop + rng.randrange(180) for i in range(size)}
        states = []
        for index, at in over.items():
            states.append("COMPLETED" if completes else rng.choice([*ENDS]))
            reason, of_pod, of_node = ENDS.get(states[-1], ("", "", ""))
            labels = {KUBEFLOW + "job-name": name, KUBEFLOW + "replica-index": f"{index}"}
            item = pod(
                f"{name}-{index}-{attempt}",
                5,
                node=f"g{index}",
                labels=labels,
                phase="Succeeded" if completes else "Failed",
                reason=of_pod,
                conditions=[condition("DisruptionTarget", "True", at, of_node)] if of_node else [],
                containerStatuses=containers(ended(since[index], at, int(not completes), reason)),
            )
            pods.append(item)
        state = min(states, key=["COMPLETED", *ENDS].index)
        end = (max if completes else min)(over.values())
        truth.append((name, attempt, begin, end, state, "".join(f"g{i}" for i in range(size))))
        begin, fresh = max(over.values()) + rng.randrange(1, 600), [*over]
    # Pods that nobody saw end run on.
    for index in set(range(size)) - set(fresh):
        labels = {KUBEFLOW + "job-name": name, KUBEFLOW + "replica-index": f"{index}"}
        runs = containers(running(since[index]))
        pods.append(
            pod(
                f"{name}-{index}-x",
                5,
                node=f"g{index}",
                labels=labels,
                phase="Running",
                containerStatuses=runs,
            )
        )
    return pods, truth


def test_attempts_of_gangs_that_were_played(tmp_path: Path) -> None:
    rng = random.Random(7)
    jobs = [played(rng, f"job{number:02d}") for number in range(40)]
    pods = [each for own, _ in jobs for each in own]
    rng.shuffle(pods)
    truth = [row for _, own in jobs for row in own]
    assert attempts(log_of(tmp_path, *pods)) == truth
    assert {row[4] for row in truth} == {"COMPLETED", *ENDS}
