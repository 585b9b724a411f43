"""One measured step of holdfast's simulator in a fresh process; prints JSON.

    python benchmarks/fleet_simulate_steps.py STEP '{"argument": value, ...}'

Seconds in the output do not count the start of Python and the loading of compiled code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.fleet.simulation.engine import Run, run
from holdfast.fleet.simulation.records import JOBS, Records, State, table
from holdfast.fleet.simulation.scenario import (
    Checkpoint,
    Cluster,
    Component,
    Detection,
    Failures,
    Qos,
    Repair,
    Scenario,
    Scheduler,
    Size,
    Workload,
    scenario,
)
from swf_workload import days_for, jobs_of, machine, random_workload, starts_of

FAR_S = 36_500 * 86_400.0


def history(preset: str, days: float, seed: int) -> dict[str, Any]:
    """A preset as it is, no store written."""
    made_of = scenario(preset)
    _warm_up(made_of)
    made = run(made_of, days=days, seed=seed)
    return _speed(made) | {
        "jobs": len(made.jobs.gpus),
        "attempts": int((made.attempts.start_ms >= 0).sum()),
        "utilisation": made.utilisation,
    }


def batch(
    policy: str, jobs: int, processors: int, load: float, seed: int, starts: str
) -> dict[str, Any]:
    """A batch workload; the start times go to a file."""
    workload = batch_workload(jobs, processors, load, seed)
    rules = machine(processors, backfill=policy == "easy")
    _warm_up(rules)
    made = run(rules, days=days_for(workload), seed=1, jobs=jobs_of(workload))
    np.savetxt(
        starts,
        np.column_stack([np.arange(1, jobs + 1), starts_of(made)]),
        fmt="%d",
        delimiter=",",
    )
    return _speed(made)


def batch_workload(jobs: int, processors: int, load: float, seed: int) -> Any:
    """Limits are runtimes, and the unit of time is so small that hardly two jobs end at one moment."""
    return random_workload(
        jobs, processors, load, seed, exact_limits=1.0, ties=0.1, mean_runtime=3.6e6
    )


def gang(
    nodes: int,
    spare: int,
    rate_per_node_day: float,
    productive_days: float,
    init_s: float,
    repair_s: float,
    runs: int,
) -> dict[str, Any]:
    """One training job on many nodes until it is done; nothing is lost but the restarts."""
    made_of = Scenario(
        name="gang",
        cluster=Cluster(nodes + 2 * spare, nodes_per_pod=64),
        qos=(Qos("all", 1),),
        workload=Workload(jobs_per_day=100.0, sizes=(Size(8, 1.0, 1.0),)),
        scheduler=Scheduler(interval_s=0.0, requeue_delay_s=0.0, time_limit_s=FAR_S),
        failures=Failures(
            rate_per_node_day, components=(Component("all", 1.0, "check", crash=1.0),)
        ),
        detection=Detection(check_interval_s=1.0),
        repair=Repair(repair_s / 2, repair_s * 3 / 2, repair_s / 2, repair_s * 3 / 2),
        checkpoint=Checkpoint(interval_s=1.0, write_s=0.0, init_s=init_s),
    )
    job = table(
        JOBS,
        1,
        gpus=8 * nodes,
        work_ms=round(productive_days * 86_400_000),
        limit_ms=round(FAR_S * 1000),
        end_state=State.COMPLETED,
    )
    _warm_up(made_of)
    # Surely enough: twice the time that the job would need at its mean rate of failures.
    per_day = nodes * rate_per_node_day
    days = 2 * productive_days * (1 + per_day * init_s / 86_400) + 1
    begin = time.perf_counter()
    done = [_until_done(made_of, job, days, seed) for seed in range(runs)]
    seconds = (time.perf_counter() - begin) / runs
    attempts = [each.attempts for each in done]
    ends = [int(a.end_ms[a.state == State.COMPLETED][0]) for a in attempts]
    return {
        "seconds": seconds,
        "events": done[0].events,
        "failures": float(np.mean([(a.failure >= 0).sum() for a in attempts])),
        "days": float(np.mean(ends)) / 86_400_000,
    }


def _until_done(made_of: Scenario, job: Records, days: float, seed: int) -> Run:
    """The time after the job's end costs little: nothing runs any more."""
    return run(made_of, days=days, seed=seed, jobs=job)


def monte_carlo(replicas: int, nodes: int, rate_per_node_day: float) -> dict[str, Any]:
    """The expected ETTR of a month on many nodes, by simulation of whole runs."""
    from holdfast.fleet import monte_carlo_ettr
    from holdfast.fleet.ettr_forms import EttrParameters

    month = EttrParameters(nodes, rate_per_node_day, 3600.0, 300.0, 60.0, 600.0, 30 * 86_400.0)
    begin = time.perf_counter()
    found = monte_carlo_ettr(month, replicas=replicas, seed=1)
    return {"seconds": time.perf_counter() - begin, "ettr": found.ettr, "ci95": found.ci95}


def replicas(preset: str, days: float, count: int, processes: int) -> dict[str, Any]:
    """Many seeds of a preset, on some processes; their start counts too."""
    from holdfast.fleet.simulation.replicas import Task, play

    made_of = scenario(preset)
    _warm_up(made_of)
    begin = time.perf_counter()
    play([Task(made_of, days, seed) for seed in range(count)], processes=processes)
    return {"seconds": time.perf_counter() - begin}


def _warm_up(made_of: Scenario) -> None:
    """Load the compiled kernel."""
    run(made_of, days=0.01, seed=1)


def _speed(made: Run) -> dict[str, Any]:
    return {
        "seconds": made.seconds,
        "events": made.events,
        "events_per_second": made.events / made.seconds,
    }


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "history": history,
    "batch": batch,
    "gang": gang,
    "monte_carlo": monte_carlo,
    "replicas": replicas,
}

if __name__ == "__main__":
    print(json.dumps(STEPS[sys.argv[1]](**json.loads(sys.argv[2]))))
