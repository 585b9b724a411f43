"""What a log says about each node: exposure, failures to blame on it, and the seven lemon signals.

Signals and window: Kokolis et al., arXiv 2410.21680v2, section on lemon nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from holdfast.fleet.attribution import blamed_nodes
from holdfast.fleet.lemon_statistics import BlameExposure
from holdfast.fleet.log import DAY_S, NODE_FAIL, SHORTEST_S, FleetLog

if TYPE_CHECKING:
    import ibis.expr.types as ir

TICKET = "ticket"


@dataclass(frozen=True)
class NodeSignals:
    """What `LemonDetector.fit` takes."""

    frame: pd.DataFrame
    """One row per node that ran something or is in the inventory: node; node_days (time in use, the
    share of its GPUs that was taken); failures (incidents to blame on it: fractional where nothing
    tells which of n nodes failed), known_failures (those with blame 1) and touched (any blame); and
    the seven signals over the last `lemon_window_s`: excl_jobid_count (jobs that exclude it), xid_cnt
    (distinct XIDs), tickets, out_count (times out of service), multi_node_node_fails and
    single_node_node_fails (NODE_FAIL attempts to blame on it) and single_node_node_failure_rate (the
    latter per single-node attempt)."""
    exposure: BlameExposure
    """Node-days and failures by size of attempt."""


def node_signals(log: FleetLog) -> NodeSignals:
    """Count exposure, failures and signals of every node of a log."""
    since = log.end_s - log.assumptions.lemon_window_s
    used, incidents = _exposure(log), _incidents(log)
    # A failed attempt takes time, also one that accounting gives none.
    least = incidents.assign(node_days=SHORTEST_S / DAY_S)
    used = pd.concat([used, least[["node", "node_count", "node_days"]]], ignore_index=True)
    frame = used.groupby("node")["node_days"].sum().reset_index()
    frame = log.frame(log.table("nodes").select("node")).merge(frame, "outer", "node")
    blame = incidents.groupby("node", as_index=False).agg(
        failures=("blame", "sum"), known_failures=("known", "sum"), touched=("blame", "size")
    )
    frame = frame.merge(blame, "left", "node")
    for name, counts in _window_counts(log, since).items():
        frame = frame.merge(log.frame(counts).rename(columns={"n": name}), "left", "node")
    frame = frame.fillna(0).sort_values("node", ignore_index=True)
    ran = frame.pop("single_node_attempts")
    rate = frame["single_node_node_fails"] / ran.where(ran > 0)
    frame = frame.assign(single_node_node_failure_rate=rate.fillna(0.0))
    exposure = BlameExposure.from_rows(
        list(frame["node"]),
        node=used["node"],
        size=used["node_count"],
        node_days=used["node_days"],
        failure_size=incidents["node_count"],
        failure_blame=incidents["blame"],
        failure_known=incidents["known"],
    )
    return NodeSignals(frame, exposure)


def _exposure(log: FleetLog) -> pd.DataFrame:
    """Node-days in use: node, node_count (of the attempts), node_days."""
    t = log.executions.filter(lambda t: t.node_count > 0)
    t = t.mutate(gpu_s=t.exposed_s * t.gpus.fill_null(0) / t.node_count)
    taken = t.select("exposed_s", "gpu_s", "node_count", node=t.nodes.unnest())
    sums = taken.group_by("node", "node_count").agg(
        used_s=taken.exposed_s.sum(), gpu_s=taken.gpu_s.sum()
    )
    frame = log.frame(sums).merge(
        log.frame(log.table("nodes").select("node", "gpus")), "left", "node"
    )
    # GPUs of a node are shared out; a node whose attempts take no GPUs is in use as a whole.
    by_gpu = frame.groupby("node")["gpu_s"].transform("sum") > 0
    gpus = frame["gpus"].astype("float64")  # all null where no node's GPUs are known
    share_s = frame["gpu_s"] / gpus.where(gpus > 0)
    busy_s = share_s.where(by_gpu & share_s.notna(), frame["used_s"])
    return frame[["node", "node_count"]].assign(node_days=busy_s / DAY_S)


def _incidents(log: FleetLog) -> pd.DataFrame:
    """Failures by events of a node at (nearly) one time are one incident of the node.

    Returns:
        node, node_count (of the attempt that says most), blame, known.
    """
    blamed = log.frame(blamed_nodes(log).select("node", "node_count", "blame", "event_s", "key"))
    blamed = blamed.sort_values(["node", "event_s", "key"], ignore_index=True)
    apart = blamed.groupby("node")["event_s"].diff() > log.assumptions.incident_gap_s
    blamed["incident"] = apart.groupby(blamed["node"]).cumsum()
    telling = blamed.sort_values(["node", "incident", "blame"], kind="stable")
    incidents = telling.groupby(["node", "incident"], as_index=False).last()
    return incidents[["node", "node_count", "blame"]].assign(known=incidents["blame"] == 1)


def _window_counts(log: FleetLog, since: float) -> dict[str, ir.Table]:
    """The counts behind the signals: name -> (node, n)."""
    attempts = log.executions.filter(lambda t: t.stop_s >= since)
    excluding = log.attempts.filter(
        lambda t: (t.submit_s >= since) & (t.excluded_nodes.length() > 0)
    )
    excluded = excluding.select("run", node=excluding.excluded_nodes.unnest()).distinct()
    health = log.table("health").filter(lambda t: t.time_s >= since)
    xids = health.filter(health.xid.notnull()).select("node", "xid").distinct()
    out = log.table("node_outages").filter(lambda t: t.start_s >= since)
    fails = blamed_nodes(log).filter(lambda t: (t.state == NODE_FAIL) & (t.stop_s >= since))
    single = attempts.filter(attempts.node_count == 1)
    return {
        "excl_jobid_count": _per_node(excluded),
        "xid_cnt": _per_node(xids),
        "tickets": _per_node(health.filter(health.check.lower() == TICKET)),
        "out_count": _per_node(out),
        "multi_node_node_fails": _blame_per_node(fails.filter(fails.node_count > 1)),
        "single_node_node_fails": _blame_per_node(fails.filter(fails.node_count == 1)),
        "single_node_attempts": _per_node(single.select(node=single.nodes.unnest())),
    }


def _per_node(events: ir.Table) -> ir.Table:
    return events.group_by("node").agg(n=events.count())


def _blame_per_node(fails: ir.Table) -> ir.Table:
    return fails.group_by("node").agg(n=fails.blame.sum())
