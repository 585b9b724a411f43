"""Run a scenario: draw the jobs, let the kernel play the events, and hand over what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.simulation.hazards import Hazards, hazards
from holdfast.fleet.simulation.kernel import state as k
from holdfast.fleet.simulation.kernel.advance import advance, begin, finish
from holdfast.fleet.simulation.records import ATTEMPTS, FAILURES, Array, Records, State, records
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.simulation.scenario import scenario as load
from holdfast.fleet.simulation.workload import DAY_MS, HOUR_MS, draw_jobs
from holdfast.progress import track

SLICES = 400  # Reports of progress


@dataclass(frozen=True)
class Run:
    """One simulated history of a fleet."""

    scenario: Scenario
    seed: int
    days: float
    jobs: Records  # `records.JOBS`, in order of submission
    attempts: Records  # `records.ATTEMPTS`
    nodes: Array  # int32: the nodes of all attempts, see `node_offset` of `records.ATTEMPTS`
    failures: Records  # `records.FAILURES`
    # Events that the kernel processed: submissions, starts, ends, signals, failures, repairs ...
    events: int
    seconds: float  # Wall-clock time that it took

    @property
    def end_ms(self) -> int:
        """The simulated time, milliseconds."""
        return round(self.days * DAY_MS)

    @property
    def times_ms(self) -> tuple[Array, Array]:
        """Start and end of each attempt, at most the end of the simulated time."""
        both = (self.attempts.start_ms, self.attempts.end_ms)
        start, end = (np.where(ms >= 0, ms, self.end_ms) for ms in both)
        return start, end

    @property
    def utilisation(self) -> float:
        """GPU time of attempts over the GPU time of all nodes, those in repair included."""
        start, stop = self.times_ms
        busy = float(((stop - start) * self.attempts.gpus.astype("f8")).sum())
        cluster = self.scenario.cluster
        nodes = cluster.nodes - len(cluster.without)
        return busy / (float(self.end_ms) * nodes * cluster.gpus_per_node)


def run(
    scenario: Scenario,
    *,
    days: float,
    seed: int,
    jobs: Records | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Run:
    """Simulate a scenario.

    Args:
        scenario: what is simulated.
        days: for how long.
        seed: of the random numbers. They are keyed by job and by node, so two scenarios with one seed
            share them.
        jobs: what arrives, in order of submission; None: drawn as the scenario says.
        on_progress: called with the simulated days that are done.

    Returns:
        Every attempt and every failure; the same arguments give the same arrays everywhere.

    Raises:
        InputError: if `jobs` cannot run on the cluster, or the times make no sense.
    """
    if not (math.isfinite(days) and 0 < days < 36_525):
        raise InputError("invalid simulated time", code="invalid-value", found=f"{days} days")
    if not 0 <= seed < 1 << 63:
        raise InputError(
            "invalid seed", code="invalid-value", found=f"{seed}", expected="0 to 2^63 - 1"
        )
    warm_up()
    began = time.perf_counter()
    if jobs is None:
        jobs = draw_jobs(scenario, days, seed)
    _check(jobs, scenario)
    end_ms = round(days * DAY_MS)
    sim = _play(_start(scenario, jobs, seed), end_ms, on_progress)
    counters = sim.counters
    nodes = sim.node_rows[: counters[k.NODE_ROWS]]
    failures = sim.failures[: counters[k.FAILURES]].copy().view(np.recarray)
    attempts = _with_pending(sim)
    events = int(counters[k.EVENTS])
    seconds = time.perf_counter() - began
    return Run(scenario, seed, days, jobs, attempts, nodes, failures, events, seconds)


@cache
def warm_up() -> None:
    """Load the kernel; on the first run of a new version Numba compiles it, half a minute on one core."""
    with track("preparing the simulator (longer after an update)", 1, "step"):
        small = load("small")
        _play(_start(small, draw_jobs(small, 0.01, 0), 0), round(0.01 * DAY_MS), None)


def _play(
    sim: k.Simulation, end_ms: int, on_progress: Callable[[float], None] | None
) -> k.Simulation:
    """Let everything happen up to the end; gives the state then."""
    begin(sim)
    slices = 1 if on_progress is None else SLICES
    for slice_ in range(1, slices + 1):
        now = end_ms * slice_ // slices
        while not advance(sim, now):
            sim = _grown(sim)
        if on_progress is not None:
            on_progress(now / DAY_MS)
    finish(sim, end_ms)
    return sim


def _check(jobs: Records, scenario: Scenario) -> None:
    most = scenario.cluster.nodes * scenario.cluster.gpus_per_node
    if len(jobs.gpus) and not (jobs.gpus.min() >= 1 and jobs.gpus.max() <= most):
        raise InputError(
            "jobs that cannot run on this cluster",
            code="conflict",
            found=f"{jobs.gpus.min()} to {jobs.gpus.max()} GPUs",
            expected=f"1 to {most} GPUs",
        )
    if (np.diff(jobs.submit_ms) < 0).any() or (jobs.work_ms < 0).any() or (jobs.limit_ms < 1).any():
        raise InputError("jobs out of order, or with negative work or limits", code="invalid-value")


# --- The records of the kernel -------------------------------------------------------------------


def _start(scenario: Scenario, jobs: Records, seed: int) -> k.Simulation:
    """The state before anything has happened."""
    cluster = scenario.cluster
    slots = cluster.nodes * cluster.gpus_per_node
    burst = 2 * k.ROOM * (slots + cluster.nodes)
    rows = int(len(jobs.gpus) * 1.2) + burst
    rates = hazards(scenario, seed)
    counters = np.zeros(k.COUNTERS, np.int64)
    counters[k.NEXT_PASS] = k.NEVER
    counters[k.UNUSED] = slots
    pods = -(-cluster.nodes // cluster.nodes_per_pod)
    queued = {name: jobs[name] for name in jobs.dtype.names or ()}
    init = round(scenario.checkpoint.init_s * 1e3)
    return k.Simulation(
        rules=_rules(scenario, seed, rates),
        counters=counters,
        nodes=_nodes(scenario, rates),
        on_node=np.zeros((cluster.nodes, cluster.gpus_per_node), np.int32),
        lists=records(k.FREE_LIST, cluster.gpus_per_node + pods, first=-1),
        jobs=records(k.JOB, len(jobs), **queued, following=-1, before=-1, held_left=-1, init=init),
        classes=_classes(scenario),
        slots=records(k.SLOT, slots, job=-1, unused=np.arange(slots)[::-1]),
        heap=records(k.EVENT, 2 * burst),
        out=records(ATTEMPTS, rows),
        node_rows=np.zeros(2 * rows, np.int32),
        failures=records(FAILURES, burst),
        recent=np.full((cluster.nodes, scenario.pulls.failures), -1),
        components=rates.components,
        blasts=rates.blasts,
        sources=rates.sources,
        scratch=np.zeros((3, cluster.nodes), np.int64),
    )


def _rules(scenario: Scenario, seed: int, hazards: Hazards) -> Array:
    scheduler, checkpoint, repair = scenario.scheduler, scenario.checkpoint, scenario.repair
    pulls = _ms(scenario.pulls, "within", "repair", "horizon")
    requeues = [end for end in scenario.workload.ends if end.state == State.REQUEUED.name]
    return records(
        k.RULES,
        1,
        seed=seed,
        gpus_per_node=scenario.cluster.gpus_per_node,
        backfill=scheduler.policy == "easy",
        **_ms(scheduler, "interval", "preempt_after", "grace", "requeue_delay"),
        depth=scheduler.depth,
        preemption=scheduler.preemption and len({each.priority for each in scenario.qos}) > 1,
        checkpoint=max(round(checkpoint.interval_s * 1e3), 1),
        **_ms(checkpoint, "write", "init", "recovery"),
        survives=checkpoint.survives,
        synchronous=checkpoint.mode == "sync",
        save_on_signal=checkpoint.save_on_signal,
        nodes_per_rack=scenario.cluster.nodes_per_rack,
        nodes_per_pod=scenario.cluster.nodes_per_pod,
        **hazards.rules,
        check_interval=max(round(scenario.detection.check_interval_s * 1e3), 1),
        **_ms(scenario.detection, "heartbeat"),
        **_ms(repair, "fast_min", "fast_max", "slow_min", "slow_max"),
        requeue_scale=requeues[0].scale_hours * HOUR_MS if requeues else math.inf,
        requeue_shape=requeues[0].shape if requeues else 1.0,
        pull_fixed=scenario.pulls.fixed,
        **{f"pull_{name}": ms for name, ms in pulls.items()},
    )


def _ms(settings: Any, *names: str) -> dict[str, int]:
    """Durations of a part of the scenario, in milliseconds."""
    return {name: round(getattr(settings, f"{name}_s") * 1e3) for name in names}


def _classes(scenario: Scenario) -> Array:
    priorities = [each.priority for each in scenario.qos]
    order = sorted(set(priorities))
    ranks = np.array([order.index(priority) for priority in priorities])
    age = scenario.scheduler.age_weight
    if age > 0:
        weight = np.clip(-np.array(priorities) / age * DAY_MS, -(2.0**60), 2.0**60)
    else:
        weight = -ranks * 2.0**54  # no wait makes up for a class
    places = dict.fromkeys(("head", "tail", "cursor"), -1)
    return records(k.CLASS, len(ranks), rank=ranks, weight=np.round(weight), **places)


def _nodes(scenario: Scenario, hazards: Hazards) -> Array:
    """The nodes, all of them free; the kernel lists them."""
    cluster = scenario.cluster
    pulled = np.isin(scenario.node_names, list(cluster.without))
    pod = np.arange(cluster.nodes) // cluster.nodes_per_pod
    none = dict.fromkeys(("held_for", "listed", "following", "before", "failure", "drain"), -1)
    return records(
        k.NODE,
        cluster.nodes,
        **none,
        status=np.where(pulled, k.REMOVED, k.UP),
        free=cluster.gpus_per_node,
        pod=pod,
        rate=hazards.rate,
        scale=hazards.scale,
    )


def _grown(sim: k.Simulation) -> k.Simulation:
    """The same state with twice the room in the arrays that are nearly full."""
    burst = sim.slots.size + sim.nodes.size
    used = {"heap": k.HEAP_SIZE, "out": k.ROWS, "node_rows": k.NODE_ROWS, "failures": k.FAILURES}
    grown = {}
    for name, counter in used.items():
        array = getattr(sim, name)
        rows = sim.counters[counter]
        if rows + k.ROOM * burst > len(array):
            grown[name] = np.zeros(2 * len(array), array.dtype)
            grown[name][:rows] = array[:rows]
    return sim._replace(**grown)


def _with_pending(sim: k.Simulation) -> Records:
    """The attempts, and a row for every job that waits."""
    rows = sim.counters[k.ROWS]
    submitted = sim.counters[k.NEXT_SUBMIT]
    out = sim.out[:rows]
    again = np.isin(out["state"], (State.REQUEUED, State.PREEMPTED, State.NODE_FAIL))
    again |= (out["state"] == State.FAILED) & (out["failure"] >= 0)
    waits = np.arange(len(sim.jobs)) < submitted
    waits[out["job"][~again]] = False
    waiting = np.flatnonzero(waits)
    jobs = sim.jobs[waiting]
    never = ("start_ms", "end_ms", "failure", "preemptor", "signal_ms")
    pending = records(ATTEMPTS, len(waiting), **dict.fromkeys(never, -1), gpus=jobs["gpus"])
    pending["job"], pending["attempt"] = waiting, jobs["attempts"] + 1
    pending["eligible_ms"], pending["state"] = jobs["eligible"], State.PENDING
    pending["node_offset"] = sim.counters[k.NODE_ROWS]
    return np.concatenate([out, pending]).view(np.recarray)
