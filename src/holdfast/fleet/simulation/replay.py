"""The jobs of a log, as they arrive again in a simulation.

A job's work is the productive time that the log shows, so a what-if may end it sooner or later than the
log did. Where the log does not show the end of the work, it is taken as follows: a job that ran out of
time needs more than its limit allows; one that still ran goes on to its limit; one that still waited needs
what completed jobs of its size needed; one that was cut off for good ends where it was cut off.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.log import DAY_S, FleetLog, open_log
from holdfast.fleet.moments import iso
from holdfast.fleet.simulation.job_runs import PENDING, RUNNING, TIMEOUT, job_runs, without_gpus
from holdfast.fleet.simulation.records import JOBS, Array, Records, State, table
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.store import Store

LEAST_S = 1.0  # No job needs less: a scheduler keeps whole seconds
# A job that completed within its limit does so in the simulation, too, rounded seconds or not.
LIMIT_SLACK_S = 60.0


def replay_jobs(log: str | Path | Store | FleetLog, scenario: Scenario) -> Records:
    """The jobs of a log that asked for GPUs, in order of arrival.

    Args:
        log: a store or an open log, whose assumptions say what of a runtime was productive.
        scenario: its begin, cluster, classes of service and longest limit. A begin after the log, or
            more than a day before it, stands for the log's first moment.

    Returns:
        Jobs that arrived or were still running after `scenario.begin`. A job counts as submitted when
        it could start; one that ran before the beginning is submitted then, with the part of its work
        that it did after it. Processors stand in for GPUs if no attempt of the log has a GPU.

    Raises:
        InputError: if the log has no job to replay, one is larger than the cluster, or one is of a
            class that the scenario does not have.
    """
    log = open_log(log)
    runs = job_runs(log, processors=without_gpus(log))
    begin_s = _begin_s(log, scenario)
    in_window = (np.isnan(runs.stop_s) | (runs.stop_s > begin_s)) & (runs.arrival_s <= log.end_s)
    runs = runs[in_window]
    if not runs.gpus.size:
        path, found = log.store.path, f"no job with GPUs after {iso(begin_s)}"
        remedy = "set the scenario's begin inside the log"
        problem = "there is no job to replay"
        raise InputError(problem, code="no-data", path=path, found=found, remedy=remedy)
    gpus = on_nodes(runs.gpus, scenario.cluster.gpus_per_node)
    most = scenario.cluster.nodes * scenario.cluster.gpus_per_node
    if gpus.max() > most:
        problem, found = "a job of the log is larger than the cluster", f"{gpus.max():,} GPUs"
        expected = f"at most {most:,}, all GPUs of the scenario: raise cluster.nodes"
        path = log.store.path
        raise InputError(problem, code="conflict", path=path, found=found, expected=expected)
    work_s = np.maximum(_work_s(runs, scenario), LEAST_S)
    work_s = np.maximum(work_s * _share_after(runs, begin_s), LEAST_S)
    jobs = table(
        JOBS,
        runs.gpus.size,
        submit_ms=np.maximum(runs.arrival_s - begin_s, 0) * 1000,
        gpus=gpus,
        work_ms=np.round(work_s * 1000),
        limit_ms=np.round(_limit_s(runs, scenario, work_s) * 1000),
        qos=_classes(log, runs, scenario),
        user=np.unique(runs.user.astype(str), return_inverse=True)[1],
        end_state=_end_states(runs),
    )
    return jobs[np.argsort(jobs.submit_ms, kind="stable")]


def on_nodes(gpus: Array, gpus_per_node: int) -> Array:
    """GPUs as gangs take them: a part of one node, or whole nodes."""
    return np.where(gpus > gpus_per_node, -(-gpus // gpus_per_node) * gpus_per_node, gpus)


def _begin_s(log: FleetLog, scenario: Scenario) -> float:
    inside = log.begin_s - DAY_S < scenario.begin_s <= log.end_s
    return float(scenario.begin_s) if inside else log.begin_s


def _work_s(runs: Records, scenario: Scenario) -> Array:
    """Productive time that each job needs."""
    limit = np.where(np.isnan(runs.limit_s), scenario.scheduler.time_limit_s, runs.limit_s)
    left = np.maximum(limit - np.nan_to_num(runs.longest_s), 0.0)
    more = np.select([runs.end == TIMEOUT, runs.end == RUNNING], [limit, left], 0.0)
    return np.where(runs.end == PENDING, _typical_s(runs), runs.made_s + more)


def _typical_s(runs: Records) -> Array:
    """Mean work of the completed jobs of each job's size; of all where none of its size completed."""
    done = runs.end == "COMPLETED"
    overall = float(runs.made_s[done].mean()) if done.any() else LEAST_S
    sizes, place = np.unique(runs.gpus, return_inverse=True)
    total = np.bincount(place[done], runs.made_s[done], minlength=sizes.size)
    count = np.bincount(place[done], minlength=sizes.size)
    return np.where(count > 0, total / np.maximum(count, 1), overall)[place]


def _share_after(runs: Records, begin_s: float) -> Array:
    """The share of each job's time on its nodes that lies after the beginning."""
    early = runs.first_start_s < begin_s
    span = np.maximum(runs.stop_s - runs.first_start_s, 1.0)
    return np.where(early, (runs.stop_s - begin_s) / np.where(early, span, 1.0), 1.0)


def _limit_s(runs: Records, scenario: Scenario, work_s: Array) -> Array:
    """Time limits; one that a job kept in the log it can keep in the simulation."""
    most = scenario.scheduler.time_limit_s
    limit = np.where(np.isnan(runs.limit_s), most, runs.limit_s)
    checkpoint = scenario.checkpoint
    stopped = checkpoint.write_s if checkpoint.mode == "sync" else 0.0
    needed = checkpoint.init_s + work_s + np.ceil(work_s / checkpoint.interval_s) * stopped
    once = np.where(runs.starts <= 1, needed, np.nan_to_num(runs.longest_s)) + LIMIT_SLACK_S
    over = ~np.isin(runs.end, (TIMEOUT, RUNNING, PENDING))
    return np.where(over, np.maximum(limit, once), limit)


def _classes(log: FleetLog, runs: Records, scenario: Scenario) -> Array:
    """Places in `scenario.qos`; a scenario with one class takes all jobs into it."""
    names = [each.name for each in scenario.qos]
    if len(names) == 1:
        return np.zeros(runs.gpus.size, np.int16)
    job_classes, place = np.unique(runs.job_class.astype(str), return_inverse=True)
    if unknown := sorted({*job_classes.tolist()} - {*names}):
        raise InputError(
            "jobs of the log are of a class of service that the scenario does not have",
            code="conflict",
            path=log.store.path,
            found=", ".join(map(repr, unknown)),
            expected="one of " + ", ".join(names),
            remedy="add it to the scenario as [[qos]], or calibrate a scenario from this log",
        )
    return np.array([names.index(name) for name in job_classes.tolist()], np.int16)[place]


def _end_states(runs: Records) -> Array:
    """How each job ends when its work is done; what was cut off for good counts as cancelled."""
    own = ("FAILED", "CANCELLED", "OUT_OF_MEMORY")
    states = {"CUT": State.CANCELLED, **{name: State[name] for name in own}}
    job_ends, place = np.unique(runs.end.astype(str), return_inverse=True)
    codes = [states.get(name, State.COMPLETED) for name in job_ends.tolist()]
    return np.array(codes, np.int8)[place]
