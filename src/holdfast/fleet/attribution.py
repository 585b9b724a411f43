"""Why attempts failed: health checks near their end, and which failures are the infrastructure's.

A FAILED or NODE_FAIL attempt is explained by check c if c fired on one of its nodes in
[end - before, end + after] (Kokolis et al., arXiv 2410.21680v2, section on attribution). Checks
overlap, so the answer is a ranked set. Where Slurm's own events name the node that went down, checks
on other nodes of the attempt rank below those on it and do not become the cause.

The join of attempts and events goes over (node, time bucket), never over the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.log import NODE_FAIL, FleetLog, bucket, in_two_buckets, open_log
from holdfast.fleet.moments import iso

if TYPE_CHECKING:
    from pathlib import Path

    import ibis.expr.types as ir

    from holdfast.fleet.store import Store

UNATTRIBUTED = "unattributed"
_FOR_EVIDENCE = ("key", "cluster", "nodes", "stop_s", "job_id_raw", "failed_node")

LONGEST_LAG_S, LAG_STEP_S = 14 * 3600, 1800
LEAST_MATCHES = 3
"""Fewer failures with a check at a lag prove nothing."""

SLURM_MATCH_S = 10
"""Slurm ends an attempt and takes its node down in one pass: their times differ by rounding only."""


@dataclass(frozen=True)
class Attribution:
    """The attempts of one job, each with the checks that explain its end."""

    job_id: str
    attempts: list[dict[str, Any]]
    """In order: attempt, state, nodes, start, end, infrastructure, failed_nodes, causes (ranked)."""

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet attribute``."""
        return {"job_id": self.job_id, "attempts": self.attempts}


def attribute(log: str | Path | Store | FleetLog, job_id: str) -> Attribution:
    """Explain the end of every attempt of a job.

    Args:
        log: a store or an open log.
        job_id: as ``sacct`` prints it: ``"93"``, ``"306_4"``, ``"98+1"``; with its cluster,
            ``"alpha:93"``, where several have such a job.

    Returns:
        The attempts in order; causes are ranked, the likeliest first.

    Raises:
        InputError: if the log has no such job, or several clusters have one.
    """
    log = open_log(log)
    known = log.job_id(job_id)
    mine = log.attempts.filter(lambda t: t.job_id == known)
    attempts = log.rows(
        mine.order_by("attempt", "key").select(
            *("key", "attempt", "state", "nodes", "start_s", "end_s", "gpus", "recovered")
        )
    )
    if not attempts:
        raise InputError(
            f"job not found: {job_id!r}",
            code="no-match",
            path=log.store.path,
            expected="a job id as sacct prints it, for example 93, 306_4 or 98+1",
            remedy="check the id, and that the window (--since) covers the job",
        )
    keys = [row["key"] for row in attempts]
    causes = log.rows(ranked_causes(log).filter(lambda t: t.key.isin(keys)).order_by("key", "rank"))
    failures = log.rows(infrastructure_failures(log).filter(lambda t: t.key.isin(keys)))
    infrastructure = {row["key"] for row in failures}
    named = log.rows(_evident_nodes(log, mine.select(*_FOR_EVIDENCE)))
    explained = [
        {
            "attempt": row["attempt"],
            "state": row["state"],
            "start": iso(row["start_s"]),
            "end": iso(row["end_s"]),
            "gpus": row["gpus"],
            "nodes": row["nodes"] or [],
            "recovered": row["recovered"],
            "infrastructure": row["key"] in infrastructure,
            "failed_nodes": sorted(said["node"] for said in named if said["key"] == row["key"]),
            "causes": [_cause(cause) for cause in causes if cause["key"] == row["key"]],
        }
        for row in attempts
    ]
    return Attribution(known or job_id, explained)


def _cause(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "check": row["check"],
        "node": row["node"],
        "offset_s": round(row["offset_s"], 3),
        "severity": row["severity"],
        "symptom": row["label"],
        "domains": row["domains"].split(","),
    }


def classified_health(log: FleetLog) -> ir.Table:
    """Health events with symptom, label, domains and a severity where the log gave none.

    Columns: time_s, node, check, severity, result, xid, message, symptom, label, domains.
    """
    health = log.table("health")
    kinds = log.rows(health.select("check", "xid").distinct().order_by("check", "xid"))
    xids = [kind["xid"] for kind in kinds]
    known = log.taxonomy.classify([kind["check"] for kind in kinds], xids)
    meanings = ibis.memtable(
        pa.table(
            {
                "known_check": known["check"],
                # Engines do not join null to null: -1 stands for "no XID".
                "known_xid": pa.array([-1 if x is None else x for x in xids], pa.int32()),
                "symptom": known["symptom"],
                "label": known["label"],
                "usual_severity": known["severity"],
                "domains": pa.array([",".join(d) for d in known["domains"].to_pylist()]),
            },
            schema=pa.schema(
                [
                    ("known_check", pa.string()),
                    ("known_xid", pa.int32()),
                    ("symptom", pa.string()),
                    ("label", pa.string()),
                    ("usual_severity", pa.string()),
                    ("domains", pa.string()),
                ]
            ),
        )
    )
    joined = health.mutate(known_xid=health.xid.fill_null(-1)).join(
        meanings, [("check", "known_check"), "known_xid"]
    )
    return joined.mutate(
        severity=ibis.ifelse(
            joined.severity.isin(["HIGH", "LOW"]), joined.severity, joined.usual_severity
        )
    ).select(
        *("time_s", "node", "check", "severity", "result", "xid", "message"),
        *("symptom", "label", "domains"),
    )


def ranked_causes(log: FleetLog) -> ir.Table:
    """Failed checks near the ends of FAILED and NODE_FAIL attempts, ranked within each attempt.

    A check explains an end if its event has the result "fail"; a warning does not.

    Columns: key (of the attempt), check, node, time_s, offset_s (check minus end), severity, symptom,
    label, domains, on_failed_node (null: no evidence names the failed node), rank (1 = likeliest).
    """
    return log.keep("causes", lambda: _rank_causes(log))


def _rank_causes(log: FleetLog) -> ir.Table:
    window = log.assumptions
    width = max(1.0, window.check_before_s + window.check_after_s)
    ends = _failed_ends(log)
    ends = ends.mutate(
        bucket=bucket(ends.stop_s - window.check_before_s, width),
    )
    events = log.keep(
        "failed_checks", lambda: classified_health(log).filter(lambda t: t.result == "fail")
    )
    events = in_two_buckets(events.mutate(bucket=bucket(events.time_s, width)), -1)
    near = ends.join(events, ["node", "bucket"])
    near = near.mutate(offset_s=near.time_s - near.stop_s).filter(
        lambda t: (t.offset_s >= -window.check_before_s) & (t.offset_s <= window.check_after_s)
    )
    # A check that repeats is one sign: keep the firing nearest to the end.
    near = (
        near.mutate(
            nearest=ibis.row_number().over(
                group_by=["key", "node", "check", "symptom"],
                order_by=[near.offset_s.abs(), near.time_s, near.severity],
            )
        )
        .filter(lambda t: t.nearest == 0)
        .drop("nearest", "bucket")
    )
    evident = _failed_evident(log)
    named = evident.group_by("key").agg(named=evident.count())
    hit = evident.select(hit_key="key", hit_node="node").distinct()
    near = near.left_join(named, "key").drop("key_right")
    near = near.left_join(hit, [("key", "hit_key"), ("node", "hit_node")])
    near = near.mutate(
        on_failed_node=ibis.ifelse(near.named.notnull(), near.hit_key.notnull(), ibis.null("bool"))
    )
    # Across nodes the sign nearest to the end counts (it made the scheduler act); on one node the
    # first sign counts (what follows it are its consequences).
    near = near.mutate(
        node_offset_s=near.offset_s.abs().min().over(group_by=["key", "node", "severity"])
    )
    order = [
        ibis.ifelse(near.on_failed_node.fill_null(True), 0, 1),
        ibis.ifelse(near.severity == "HIGH", 0, 1),
        near.node_offset_s,
        near.node,
        near.offset_s,
        near.check,
        near.symptom,
    ]
    return near.mutate(
        rank=(ibis.row_number().over(group_by="key", order_by=order) + 1).cast("int64")
    ).select(
        *("key", "check", "node", "time_s", "offset_s", "severity", "symptom", "label"),
        *("domains", "on_failed_node", "rank"),
    )


def infrastructure_failures(log: FleetLog) -> ir.Table:
    """NODE_FAIL attempts, and FAILED attempts with a HIGH check on one of their nodes.

    Columns: key, cluster, job_id, job_id_raw, run, attempt, state, qos, gpus, node_count, start_s,
    stop_s, runtime_s, gpu_hours, symptom and label of the likeliest cause ("unattributed" without
    one), severity of that cause (null without one).
    """
    return log.keep("failures", lambda: _select_failures(log))


def _select_failures(log: FleetLog) -> ir.Table:
    failed = _failed(log)
    # Checks on nodes other than the one that evidence names do not explain the failure.
    causes = ranked_causes(log).filter(lambda t: t.on_failed_node.fill_null(True))
    first = (
        causes.mutate(place=ibis.row_number().over(group_by="key", order_by=causes.rank))
        .filter(lambda t: t.place == 0)
        .select("key", "symptom", "label", "severity")
    )
    failed = failed.drop("nodes", "failed_node")
    node_fail = failed.filter(failed.state == NODE_FAIL).left_join(first, "key").drop("key_right")
    high = failed.filter(failed.state != NODE_FAIL).join(
        first.filter(first.severity == "HIGH"), "key"
    )
    t = node_fail.union(high)
    return t.mutate(
        symptom=t.symptom.fill_null(UNATTRIBUTED), label=t.label.fill_null(UNATTRIBUTED)
    )


def blamed_nodes(log: FleetLog) -> ir.Table:
    """Nodes to blame for each infrastructure failure; the blame of a failure adds up to one.

    The node that Slurm names (JSON `failed_node`, controller log, an outage that begins at the end of
    the attempt) takes it all; else the nodes with a HIGH check; else every node of the attempt.

    Columns: key, node, blame, evidence ("slurm", "check" or "none"), node_count, stop_s, state, and
    event_s: the HIGH check on the node nearest to the end, else the end: one event of a node may end
    many attempts, and not all at once.
    """
    return log.keep("blamed_nodes", lambda: _blame(log))


def _blame(log: FleetLog) -> ir.Table:
    failures = infrastructure_failures(log)
    slurm = _failed_evident(log).select("key", "node").distinct().mutate(level=0)
    high = ranked_causes(log).filter(lambda t: t.severity == "HIGH")
    nearest = ibis.row_number().over(
        group_by=["key", "node"], order_by=[high.offset_s.abs(), high.time_s]
    )
    signs = high.mutate(place=nearest).filter(lambda t: t.place == 0)
    checks = signs.select("key", "node").mutate(level=1)
    every = _failed_ends(log).select("key", "node").mutate(level=2)
    levels = slurm.union(checks).union(every).semi_join(failures, "key")
    best = levels.group_by("key").agg(level=levels.level.min())
    chosen = levels.join(best, ["key", "level"])
    sizes = chosen.group_by("key").agg(size=chosen.count())
    chosen = chosen.join(sizes, "key").join(
        failures.select("key", "node_count", "stop_s", "state"), "key"
    )
    chosen = chosen.left_join(signs.select("key", "node", "time_s"), ["key", "node"])
    return chosen.select(
        "key",
        "node",
        blame=1.0 / chosen.size,
        evidence=chosen.level.cases((0, "slurm"), (1, "check"), else_="none"),
        node_count=chosen.node_count,
        stop_s=chosen.stop_s,
        state=chosen.state,
        event_s=ibis.coalesce(chosen.time_s, chosen.stop_s.cast("float64")),
    )


def _failed(log: FleetLog) -> ir.Table:
    """The attempts whose end asks for an explanation."""
    columns = (
        *("key", "cluster", "job_id", "job_id_raw", "run", "attempt", "state", "qos", "gpus"),
        *("node_count", "start_s", "stop_s", "runtime_s", "gpu_hours", "nodes", "failed_node"),
    )
    return log.executions.filter(
        lambda t: t.state.isin([NODE_FAIL, "FAILED"]) & t.end_s.notnull()
    ).select(*columns)


def _failed_ends(log: FleetLog) -> ir.Table:
    """One row per (failed attempt, node): key, stop_s, node."""
    return log.keep("failed_ends", lambda: _explode(_failed(log), "key", "stop_s"))


def _failed_evident(log: FleetLog) -> ir.Table:
    return log.keep("failed_evident", lambda: _evident_nodes(log, _failed(log)))


def _explode(attempts: ir.Table, *columns: str) -> ir.Table:
    """One row per (attempt, node)."""
    return attempts.select(*columns, node=attempts.nodes.unnest())


def _evident_nodes(log: FleetLog, attempts: ir.Table) -> ir.Table:
    """Which node failed, where Slurm says so: (key, node) from three sources.

    Args:
        log: the open log.
        attempts: attempts with the columns `_FOR_EVIDENCE`.
    """
    ends = _explode(attempts, "key", "stop_s")
    outages = log.table("node_outages").filter(lambda t: ~t.state.upper().contains("MAINT"))
    width = 2 * SLURM_MATCH_S
    own = outages.select("node", outage_s=outages.start_s, bucket=bucket(outages.start_s, width))
    down = ends.mutate(bucket=bucket(ends.stop_s - SLURM_MATCH_S, width)).join(
        in_two_buckets(own, -1), ["node", "bucket"]
    )
    by_outage = down.filter((down.outage_s - down.stop_s).abs() <= SLURM_MATCH_S)
    said = log.table("controller_events").filter(lambda t: t.event == "node_fail")
    heard = attempts.select("key", "stop_s", *log.job_keys).join(
        said.select("time_s", "node", *log.job_keys), log.job_keys
    )
    by_controller = heard.filter((heard.time_s - heard.stop_s).abs() <= SLURM_MATCH_S)
    by_accounting = attempts.filter(
        lambda t: t.failed_node.notnull() & (t.failed_node != "")
    ).select("key", node="failed_node")
    return (
        by_outage.select("key", "node")
        .union(by_controller.select("key", "node"))
        .union(by_accounting)
        .distinct()
    )


@dataclass(frozen=True)
class ClockLag:
    """Failures that have a failed check in the window, with the checks' clock as it is and shifted."""

    lag_s: int
    """Checks fit best if they fired this much after the ends of attempts (negative: before)."""
    failures: int
    matched: int
    """Failures with a check at the lag."""
    matched_now: int
    """Failures with a check at lag 0."""


def clock_lag(log: FleetLog) -> ClockLag | None:
    """Whether checks fit failures clearly better hours away: the sign of a wrong time zone.

    `sacct` prints local time without its zone, and checks often carry UTC. Tests every half hour up to
    14 hours, the range of the world's zones, on NODE_FAIL attempts (which always have a reason).

    Returns:
        the best lag; None if no lag fits clearly better than none.
    """
    ends = log.frame(_failed_ends(log).join(_failed(log).select("key", "state"), "key"))
    node_fails = ends[ends["state"] == NODE_FAIL]
    ends = node_fails if len(node_fails) else ends
    fired = log.table("health").filter(lambda t: t.result == "fail").select("node", "time_s")
    events = log.frame(fired.semi_join(_failed_ends(log), "node"))
    if ends.empty or events.empty:
        return None
    # One sorted number line of all nodes, each far enough from the next for any lag.
    code = {node: place for place, node in enumerate(sorted(events["node"].unique()))}
    ends = ends[ends["node"].isin(code)]
    width = float(log.end_s - log.begin_s + events["time_s"].max() - events["time_s"].min()) + 1e7
    base = min(events["time_s"].min(), log.begin_s)
    line = np.sort(events["node"].map(code) * width + events["time_s"] - base)
    stops = (ends["node"].map(code) * width + ends["stop_s"] - base).to_numpy(np.float64)
    keys = ends["key"].to_numpy()
    before, after = log.assumptions.check_before_s, log.assumptions.check_after_s
    lags = range(-LONGEST_LAG_S, LONGEST_LAG_S + 1, LAG_STEP_S)

    def matched(lag: int) -> int:
        low = np.searchsorted(line, stops + lag - before, "left")
        return len(np.unique(keys[np.searchsorted(line, stops + lag + after, "right") > low]))

    counts = {lag: matched(lag) for lag in lags}
    best = max(counts, key=lambda lag: (counts[lag], -abs(lag)))
    usual = max(float(np.median(list(counts.values()))), counts[0])
    if counts[best] < max(LEAST_MATCHES, 3 * usual):
        return None
    return ClockLag(best, len(np.unique(keys)), counts[best], counts[0])
