"""The machines of a log and how its scheduler treats jobs, as a `Cluster`, classes and a `Scheduler`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from holdfast.fleet.log import DAY_S, FleetLog
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.calibrated_workload import Cohort
from holdfast.fleet.simulation.estimates import Findings, median_interval, rounded, rounded_time
from holdfast.fleet.simulation.job_runs import CLASS
from holdfast.fleet.simulation.records import Records
from holdfast.fleet.simulation.scenario import Cluster, Qos, Scheduler
from holdfast.numbers import counted, duration

SIGTERM = 15
# A preempted attempt that saves its work leaves this long after the signal, or after its write.
EXIT_S = 1
SURE_PREEMPTIONS = 5  # With so many that the log labels, weaker signs of preemption do not count


# --- Nodes ---------------------------------------------------------------------------------------


def cluster(log: FleetLog, runs: Records, findings: Findings) -> Cluster:
    """Nodes, their GPUs and their names.

    Args:
        log: the open log.
        runs: all jobs of the log.
        findings: where estimates and assumptions are recorded.
    """
    per_node = _gpus_per_node(log, runs, findings)
    node_names = _nodes(log)
    needed = max(math.ceil(int(runs.gpus.max()) / per_node), 1)
    count = max(len(node_names) or math.ceil(_peak(runs) / per_node), needed)
    findings.record("cluster.nodes", count, len(node_names) or None)
    if node_names and needed > len(node_names):
        findings.note(
            f"{counted(len(node_names), 'node')} are known, but a job ran on {needed:,}: so many are "
            "simulated."
        )
    names = fold(node_names) if count == len(node_names) else ""
    if names:
        findings.record("cluster.names", None, count)
    else:
        findings.assumed(
            "cluster.names", "names cannot be told or written as a host list: numbered"
        )
    racks, pods = (min(each, count) for each in (Cluster.nodes_per_rack, Cluster.nodes_per_pod))
    return Cluster(count, per_node, racks, pods, names)


def _gpus_per_node(log: FleetLog, runs: Records, findings: Findings) -> int:
    """The usual number of GPUs; from the inventory, else the most that an attempt had on a node."""
    key = "cluster.gpus_per_node"
    sizes = log.rows(
        f"SELECT gpus AS size, count(*) AS n FROM {log.table('nodes')} WHERE gpus > 0 GROUP BY gpus"
    )
    spread = runs.node_count > 0
    if sizes:
        usual = max(sizes, key=lambda row: (row["n"], row["size"]))
        per_node = findings.record(key, int(usual["size"]), usual["n"])
        if others := sum(row["n"] for row in sizes) - usual["n"]:
            findings.note(
                f"{counted(others, 'node')} have another number of GPUs than {per_node}: simulated alike."
            )
    elif spread.any():
        most = int(np.ceil(runs.gpus[spread] / runs.node_count[spread]).max())
        per_node = findings.record(key, most)
    else:
        per_node = Cluster.gpus_per_node
        findings.assumed(key, "neither an inventory nor attempts tell it")
    return per_node


def _nodes(log: FleetLog) -> list[str]:
    """Nodes that have GPUs by the inventory, or that ran attempts with GPUs."""
    nodes = log.table("nodes")
    rows = log.rows(
        f"""SELECT node FROM (
            SELECT node FROM {nodes} WHERE gpus > 0
            UNION
            SELECT unnest(nodes) AS node FROM {log.executions} WHERE gpus > 0
        ) AS named
        WHERE node NOT IN (SELECT node FROM {nodes} WHERE gpus <= 0)"""
    )
    return sorted(row["node"] for row in rows)


def _peak(runs: Records) -> float:
    """The most GPUs that were in use at one time."""
    ran = runs.starts > 0
    times = np.concatenate([runs.stop_s[ran], runs.first_start_s[ran]])
    change = np.concatenate([-runs.gpus[ran], runs.gpus[ran]])
    order = np.lexsort((change, times))  # what ends makes room for what starts
    return float(np.cumsum(change[order]).max(initial=0))


def fold(names: Iterable[str]) -> str:
    """A host list such as ``gpu[001-016]`` that reads back to the same names; "" if none does."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    from holdfast.fleet.formats.hosts import hosts_of

    ordered = sorted(names)
    try:
        text = str(NodeSet.fromlist(ordered, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ""
    return text if hosts_of(text) == ordered else ""


# --- Classes of service --------------------------------------------------------------------------


def classes(log: FleetLog, runs: Records, findings: Findings) -> tuple[Qos, ...]:
    """Classes of service, the lowest first, with priorities 1, 2, ... in the order of the log's."""
    names = sorted(set(runs.job_class.tolist()))
    ranked = f"SELECT qos AS name, priority FROM {log.table('qos')} WHERE priority IS NOT NULL"
    means = f"""SELECT {CLASS} AS name, avg(priority) AS priority
        FROM {log.executions} WHERE priority > 0 GROUP BY {CLASS}"""
    stated = {}
    for query in (ranked, means):
        if not set(names) <= set(stated):
            stated = {row["name"]: float(row["priority"]) for row in log.rows(query)}
    worth = {name: stated.get(name, 0.0) for name in names}
    levels = sorted(set(worth.values()))
    return tuple(
        Qos(name, findings.record(f"qos[{place}].priority", levels.index(worth[name]) + 1))
        for place, name in enumerate(sorted(names, key=lambda name: (worth[name], name)))
    )


# --- The scheduler -------------------------------------------------------------------------------


def scheduler(log: FleetLog, those: Cohort, typical_s: float, findings: Findings) -> Scheduler:
    """Preemption, requeues and limits.

    Args:
        log: the open log.
        those: the jobs that the calibration is made of.
        typical_s: mean runtime of an attempt; no assumed time is longer.
        findings: where estimates and assumptions are recorded.
    """
    return Scheduler(
        interval_s=rounded(min(Scheduler.interval_s, typical_s / 10), 2),
        **_preemption(log, typical_s, findings),
        requeue_delay_s=_requeue_delay(log, typical_s, findings),
        time_limit_s=_longest_limit(those, findings),
    )


def _preemption(log: FleetLog, typical_s: float, findings: Findings) -> dict[str, Any]:
    """Whether jobs are preempted, how old at least, and the grace that they are given."""
    # Who dies of the signal is gone at once; who does not is killed when the grace is over.
    victims = log.arrow(
        f"""SELECT evidence, CAST(qos.grace_s AS DOUBLE) AS grace_s,
            CAST(runtime_s AS DOUBLE) AS runtime_s,
            CAST(signal_s - (stop_s - runtime_s) AS DOUBLE) AS age_s,
            coalesce(exit_signal = {SIGTERM}, FALSE) OR coalesce(exit_code = {SIGTERM}, FALSE)
                OR evidence = 'sigterm' AS died
        FROM {preemptions(log)} AS victims
        JOIN (SELECT key, exit_code, exit_signal FROM {log.executions}) AS ends USING (key)
        LEFT JOIN {log.table("qos")} AS qos ON victims.qos = qos.qos"""
    )
    findings.record("scheduler.preemption", None, len(victims))
    if not len(victims):
        return {"preemption": False}
    evidence, graces, runtime_s, age_s, died = (column.to_numpy() for column in victims.columns)
    stated = graces[~np.isnan(graces)]
    if stated.size:
        grace = findings.record("scheduler.grace", float(np.median(stated)), stated.size)
    else:
        grace = min(log.assumptions.preemption_grace_s, typical_s)
        findings.assumed("scheduler.grace", "no qos table; the grace of the fleet's assumptions")
    key = "scheduler.preempt_after"
    settings = {"preemption": True, "grace_s": grace}
    heard = age_s[evidence == "log"]
    if heard.size:
        after = rounded_time(max(float(heard.min()), 0.0))
        return {**settings, "preempt_after_s": findings.record(key, after, heard.size)}
    labelled = evidence == "label"
    sure = labelled if labelled.sum() >= SURE_PREEMPTIONS else labelled | True
    left = np.where(np.isnan(graces), grace, graces)
    left = np.where(died, max(log.assumptions.write_s, EXIT_S), left)
    after = rounded_time(float(np.maximum(runtime_s - left, 0.0)[sure].min()))
    youngest = float(runtime_s[sure].min())
    bounds = (min(max(youngest - grace, 0.0), after), max(youngest, after))
    findings.record(key, after, int(sure.sum()), bounds, "as bounds")
    return {**settings, "preempt_after_s": after}


def _requeue_delay(log: FleetLog, typical_s: float, findings: Findings) -> float:
    """Median time from the end of an attempt to the moment at which the next one could start."""
    gaps = log.arrow(
        f"""SELECT eligible_s - before_s AS gap_s FROM (
            SELECT eligible_s, lag(stop_s) OVER (PARTITION BY run ORDER BY start_s, attempt)
                AS before_s
            FROM {log.executions}
            WHERE run IN (SELECT run FROM {log.executions} WHERE attempt > 1)
        ) AS starts
        WHERE eligible_s >= before_s"""
    )
    delays = gaps["gap_s"].to_numpy().astype(np.float64)
    key = "scheduler.requeue_delay"
    if not delays.size:
        findings.assumed(key, "no attempt follows another one of its job")
        return min(Scheduler.requeue_delay_s, rounded(typical_s, 2))
    middle, low, high = median_interval(delays)
    return findings.record(key, middle, delays.size, (low, high))


def _longest_limit(those: Cohort, findings: Findings) -> float:
    limit = those.runs.limit_s
    limits = limit[~np.isnan(limit)]
    if not limits.size:
        findings.assumed("scheduler.time_limit", "no job of the log has a time limit")
        return Scheduler.time_limit_s
    longest = min(float(limits.max()), 366 * DAY_S)
    findings.record("scheduler.time_limit", longest, limits.size)
    if unlimited := limit.size - limits.size:
        findings.note(
            f"{counted(unlimited, 'job')} without a time limit get at most {duration(longest)}."
        )
    return longest
