"""The machines of a log and how its scheduler treats jobs, as a `Cluster`, classes and a `Scheduler`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from holdfast.fleet.log import DAY_S, FleetLog
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.calibrated_arrivals import Cohort
from holdfast.fleet.simulation.estimates import Findings, rounded, rounded_time
from holdfast.fleet.simulation.job_runs import JobRuns, class_column, named_class, sized
from holdfast.fleet.simulation.scenario import Cluster, Qos, Scheduler
from holdfast.numbers import counted, duration

MOST_GPUS_PER_NODE = 64
SIGTERM = 15
EXIT_S = 1
"""A preempted attempt that saves its work leaves this long after the signal, or after its write."""
SURE_PREEMPTIONS = 5
"""With so many that the log labels, weaker signs of preemption do not count."""


# --- Nodes ---------------------------------------------------------------------------------------


def cluster(log: FleetLog, runs: JobRuns, processors: bool, findings: Findings) -> Cluster:
    """Nodes, their GPUs and their names.

    Args:
        log: the open log.
        runs: all jobs of the log.
        processors: whether processors stand in for GPUs.
        findings: where estimates and assumptions are recorded.
    """
    per_node = _gpus_per_node(log, runs, processors, findings)
    named = _nodes(log, processors)
    needed = max(math.ceil(int(runs.gpus.max()) / per_node), 1)
    if named:
        count = max(len(named), needed)
        findings.found("cluster.nodes", count, "nodes in the inventory or in use", n=len(named))
    else:
        count = max(math.ceil(_peak(runs) / per_node), needed)
        findings.found(
            "cluster.nodes", count, "no node is named: enough for what ran at one time", n=None
        )
    if named and needed > len(named):
        findings.note(
            f"{counted(len(named), 'node')} are known, but a job ran on {needed:,}: so many are simulated."
        )
    names = fold(named) if count == len(named) else ""
    if names:
        findings.found("cluster.names", None, "their names", n=count)
    else:
        findings.assumed(
            "cluster.names", "names cannot be told or written as a host list: numbered"
        )
    default = Cluster(1)
    racks, pods = min(default.nodes_per_rack, count), min(default.nodes_per_pod, count)
    findings.assumed("cluster.nodes_per_rack", "a log does not tell racks")
    findings.assumed("cluster.nodes_per_pod", "a log does not tell which nodes share a switch")
    return Cluster(count, per_node, racks, pods, names)


def _gpus_per_node(log: FleetLog, runs: JobRuns, processors: bool, findings: Findings) -> int:
    """The usual number of GPUs; from the inventory, else the most that an attempt had on a node."""
    key = "cluster.gpus_per_node"
    column = "cpus" if processors else "gpus"
    sizes = log.rows(
        f"SELECT {column} AS size, count(*) AS n FROM {log.table('nodes')} "
        f"WHERE {column} > 0 GROUP BY {column}"
    )
    if sizes:
        usual = max(sizes, key=lambda row: (row["n"], row["size"]))
        others = sum(row["n"] for row in sizes) - usual["n"]
        per_node = int(usual["size"])
        findings.found(key, per_node, "the usual number in the inventory", n=usual["n"])
        if others:
            findings.note(
                f"{counted(others, 'node')} have another number of GPUs than {per_node}: simulated alike."
            )
    else:
        spread = runs.node_count > 0
        per_node = 0
        if spread.any():
            per_node = int(np.ceil(runs.gpus[spread] / runs.node_count[spread]).max())
            findings.found(key, per_node, "the most that one attempt had on a node")
        if not per_node:
            per_node = Cluster(1).gpus_per_node
            findings.assumed(key, "neither an inventory nor attempts tell it")
    if per_node > MOST_GPUS_PER_NODE:
        parts = math.ceil(per_node / MOST_GPUS_PER_NODE)
        while per_node % parts:
            parts += 1
        findings.note(
            f"Nodes of {per_node} are simulated as {parts} nodes of {per_node // parts}: the simulator "
            f"has at most {MOST_GPUS_PER_NODE} a node."
        )
        per_node //= parts
    return per_node


def _nodes(log: FleetLog, processors: bool) -> list[str]:
    """Nodes that have GPUs by the inventory, or that ran attempts with GPUs."""
    nodes, column = log.table("nodes"), "cpus" if processors else "gpus"
    rows = log.rows(
        f"""SELECT node FROM (
            SELECT node FROM {nodes} WHERE {column} > 0
            UNION
            SELECT unnest(nodes) AS node FROM ({sized(log.executions, processors)}) AS used
        ) AS named
        WHERE node NOT IN (SELECT node FROM {nodes} WHERE {column} <= 0)"""
    )
    return sorted(row["node"] for row in rows)


def _peak(runs: JobRuns) -> float:
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

    wanted = sorted(names)
    try:
        text = str(NodeSet.fromlist(wanted, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ""
    return text if hosts_of(text) == wanted else ""


# --- Classes of service --------------------------------------------------------------------------


def classes(log: FleetLog, runs: JobRuns, findings: Findings) -> tuple[Qos, ...]:
    """Classes of service, the lowest first, with priorities 1, 2, ... in the order of the log's."""
    column = class_column(log)
    names = sorted(set(runs.job_class.tolist()))
    stated = {
        row["qos"]: row["priority"]
        for row in log.rows(log.table("qos"))
        if column == "qos" and row["priority"] is not None
    }
    if set(names) <= set(stated):
        worth = {name: float(stated[name]) for name in names}
        how = "by the priorities of the qos table"
    else:
        means = log.rows(
            f"SELECT {named_class(column)} AS name, avg(priority) AS priority "
            f"FROM {log.executions} WHERE priority > 0 GROUP BY {named_class(column)}"
        )
        seen = {row["name"]: row["priority"] for row in means}
        worth = {name: float(seen.get(name, 0.0)) for name in names}
        how = f"by the mean priority of the attempts of each {column}"
    levels = sorted(set(worth.values()))
    ranked = sorted(names, key=lambda name: (worth[name], name))
    made = tuple(Qos(name, levels.index(worth[name]) + 1) for name in ranked)
    for place, each in enumerate(made):
        findings.found(f"qos[{place}].priority", each.priority, f"rank {how}")
    return made


# --- The scheduler -------------------------------------------------------------------------------


def scheduler(log: FleetLog, those: Cohort, typical_s: float, findings: Findings) -> Scheduler:
    """Preemption, requeues and limits.

    Args:
        log: the open log.
        those: the jobs that the calibration is made of.
        typical_s: mean runtime of an attempt; no assumed time is longer.
        findings: where estimates and assumptions are recorded.
    """
    default = Scheduler()
    interval = rounded(min(default.interval_s, typical_s / 10), 2)
    findings.assumed("scheduler.policy", "a log does not tell; Slurm's usual one")
    findings.assumed("scheduler.interval", "a log does not tell how often the scheduler looks")
    findings.assumed("scheduler.depth", "a log does not tell")
    findings.assumed("scheduler.age_weight", "priorities of a log mix many terms")
    preempts, after, grace = _preemption(log, typical_s, findings)
    return Scheduler(
        interval_s=interval,
        preemption=preempts,
        preempt_after_s=after,
        grace_s=grace,
        requeue_delay_s=_requeue_delay(log, typical_s, findings),
        time_limit_s=_longest_limit(those, findings),
    )


def _preemption(log: FleetLog, typical_s: float, findings: Findings) -> tuple[bool, float, float]:
    """Whether jobs are preempted, how old at least, and the grace that they are given."""
    default = Scheduler()
    frame = log.frame(
        "SELECT evidence, qos, runtime_s, signal_s, stop_s, exit_code, exit_signal "
        f"FROM {preemptions(log)} JOIN (SELECT key, exit_code, exit_signal FROM {log.executions}) "
        "AS ends USING (key)"
    )
    key = "scheduler.preempt_after"
    if frame.empty:
        findings.found("scheduler.preemption", None, "no attempt was preempted", n=0)
        return False, default.preempt_after_s, default.grace_s
    findings.found("scheduler.preemption", None, "attempts that were preempted", n=len(frame))
    rows = log.rows(f"SELECT qos, grace_s FROM {log.table('qos')} WHERE grace_s IS NOT NULL")
    stated = {row["qos"]: float(row["grace_s"]) for row in rows}
    graces = frame["qos"].map(stated).astype("float64")
    if graces.notna().any():
        grace = float(graces.median())
        how = "grace of the victims' classes in the qos table"
        findings.found("scheduler.grace", grace, how, unit="s", n=int(graces.notna().sum()))
    else:
        grace = min(log.assumptions.preemption_grace_s, typical_s)
        findings.assumed("scheduler.grace", "no qos table; the grace of the fleet's assumptions")
    heard = frame[frame["evidence"] == "log"]
    if len(heard):
        ages = heard["signal_s"] - (heard["stop_s"] - heard["runtime_s"])
        after = rounded_time(max(float(ages.min()), 0.0))
        how = "age at the signal of the youngest victim in the controller log"
        findings.found(key, after, how, n=len(heard), unit="s")
        return True, after, grace
    labelled = frame["evidence"] == "label"
    sure = labelled if labelled.sum() >= SURE_PREEMPTIONS else labelled | True
    # Who dies of the signal is gone at once; who does not is killed when the grace is over.
    died = (frame["exit_signal"] == SIGTERM) | (frame["exit_code"] == SIGTERM)
    died |= frame["evidence"] == "sigterm"
    left = (graces.fillna(grace)).where(~died, max(log.assumptions.write_s, EXIT_S))
    ages = (frame["runtime_s"] - left)[sure].clip(lower=0.0)
    youngest = float(frame["runtime_s"][sure].min())
    after = rounded_time(float(ages.min()))
    findings.found(
        key,
        after,
        "runtime of the youngest victim less its exit, or its grace if it outlived the signal",
        interval=(min(max(youngest - grace, 0.0), after), max(youngest, after)),
        level="as bounds",
        n=int(sure.sum()),
        unit="s",
    )
    return True, after, grace


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
    found = gaps["gap_s"].to_numpy().astype(np.float64)
    key = "scheduler.requeue_delay"
    if not found.size:
        findings.assumed(key, "no attempt follows another one of its job")
        return min(Scheduler().requeue_delay_s, rounded(typical_s, 2))
    half = 0.98 / math.sqrt(found.size)
    low, middle, high = np.quantile(found, [max(0.5 - half, 0), 0.5, min(0.5 + half, 1)])
    delay = float(middle)
    findings.found(
        key,
        delay,
        "median time from an end to the next attempt's eligibility",
        interval=(float(low), float(high)),
        n=found.size,
        unit="s",
    )
    return delay


def _longest_limit(those: Cohort, findings: Findings) -> float:
    limit = those.runs.limit_s
    known = limit[~np.isnan(limit)]
    if not known.size:
        findings.assumed("scheduler.time_limit", "no job of the log has a time limit")
        return Scheduler().time_limit_s
    longest = min(float(known.max()), 366 * DAY_S)
    findings.found(
        "scheduler.time_limit", longest, "the longest limit of a job", n=known.size, unit="s"
    )
    if (unlimited := int(np.isnan(limit).sum())) and unlimited < limit.size:
        findings.note(
            f"{counted(unlimited, 'job')} without a time limit get at most {duration(longest)}."
        )
    return longest
