"""Why attempts failed: health checks near their end, and which failures are the infrastructure's.

A FAILED, NODE_FAIL or BOOT_FAIL attempt is explained by check c if c fired on one of its nodes in
[end - before, end + after] (Kokolis et al., arXiv 2410.21680v2, section on attribution). Checks
overlap, so the answer is a ranked set. Where Slurm's own events name the node that went down, checks
on other nodes of the attempt rank below those on it and do not become the cause.

The join of attempts and events goes over (node, time bucket), never over the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.answer import Answer, Figure, Section, Table
from holdfast.errors import InputError
from holdfast.fleet.log import BY_NODE, AnyLog, FleetLog, bucket, once, open_log
from holdfast.fleet.moments import iso, moment
from holdfast.fleet.schema import NODE_FAILURES, NODE_LOST, Row
from holdfast.fleet.taxonomy import MAINTENANCE, UNKNOWN
from holdfast.fleet.wording import listed, table
from holdfast.numbers import counted, duration
from holdfast.report import figures
from holdfast.tables import literal

UNATTRIBUTED = "unattributed"

LONGEST_LAG_S = 14 * 3600
LAG_STEP_S = 1800
LEAST_MATCHES = 3  # Fewer failures with a check at a lag prove nothing

# Slurm ends an attempt and takes its node down in one pass: their times differ by rounding only
SLURM_MATCH_S = 10
AT_ONCE = 3  # Nodes that are drained at once for one reason: by a person, unless a check says why


STATE_COLOURS = {
    "COMPLETED": "good",
    "FAILED": "user",
    **dict.fromkeys(NODE_FAILURES, "hardware"),
    "PREEMPTED": "sky",
    "REQUEUED": "purple",
    "TIMEOUT": "yellow",
    "OUT_OF_MEMORY": "system",
    "CANCELLED": "unattributed",
}
MOST_DRAWN = 60  # Attempts of one job that a timeline shows; more cannot be told apart


@dataclass(frozen=True)
class Attribution(Answer):
    """The attempts of one job, each with the checks that explain its end."""

    job_id: str
    # In order: reuse (how often other jobs had the number before), attempt, state, nodes, start, end,
    # infrastructure, failed_nodes, causes (ranked)
    attempts: list[Row]
    # End of the log: how far the bar of an attempt that still runs reaches
    end_s: float = field(default=0.0, repr=False)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Job {self.job_id}"

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet attribute``."""
        return {"job_id": self.job_id, "attempts": self.attempts}

    def sections(self) -> Sequence[Section]:
        """What happened to it?"""
        failed = sum(bool(row["infrastructure"]) for row in self.attempts)
        ended = f"{failed:,}" if failed else "none"
        sentence = f"{counted(len(self.attempts), 'attempt')}, {ended} ended by the infrastructure."
        if others := self.attempts[-1]["reuse"]:
            sentence += f" {counted(others + 1, 'job')} had this number, one after the other."
        if len(self.attempts) > MOST_DRAWN:
            sentence += f" The figure shows the last {MOST_DRAWN}."
        tables = [self._attempt_table(), self._cause_table()]
        return [Section("timeline", "What happened to it?", sentence, self.figures(), tables)]

    def figures(self) -> list[Figure]:
        """Attempts as bars, and the checks near their ends as ticks; none if nothing ran."""
        bars = []
        ticks = []
        for row in self.attempts[-MOST_DRAWN:]:
            if row["start"] is None:
                continue
            begin = _time(row["start"])
            end = _time(row["end"]) or moment(self.end_s)
            assert begin is not None
            end = max(begin, end)
            span = {"attempt": row["attempt"], "start": begin, "end": end, "state": row["state"]}
            bars.append(span)
            for cause in row["causes"]:
                at = moment(end.timestamp() + cause["offset_s"])
                text = f"{cause['check']} on {cause['node']}"
                ticks.append({"attempt": row["attempt"], "at": at, "text": text})
        if not bars:
            return []
        states = sorted({bar["state"] for bar in bars})
        legend = {state: STATE_COLOURS.get(state, "ramp1") for state in states}
        # An axis that shows hours only names the day.
        days = {f"{bar[end]:%Y-%m-%d}" for bar in bars for end in ("start", "end")}
        zone = f"{days.pop()}, UTC" if len(days) == 1 else "UTC"
        return [
            figures.timeline(
                bars,
                "attempt",
                "start",
                "end",
                "state",
                legend,
                marks=ticks,
                lane_title="Attempt",
                zone=zone,
            )
        ]

    def _attempt_table(self) -> Table:
        from ClusterShell.NodeSet import NodeSet

        rows = []
        for row in self.attempts:
            start = _time(row["start"])
            end = _time(row["end"])
            causes = row["causes"]
            likeliest = "unattributed" if row["infrastructure"] else ""
            if causes:
                first = causes[0]
                more = len(causes) - 1
                likeliest = (
                    f"{first['symptom']}: {first['check']} on {first['node']} at "
                    f"{first['offset_s']:+.0f} s" + (f" and {more} more" if more else "")
                )
            ran = duration((end - start).total_seconds()) if start and end else ""
            failed = listed(row["failed_nodes"]) if row["failed_nodes"] else ""
            names = {"nodes": str(NodeSet.fromlist(row["nodes"])), "count": len(row["nodes"])}
            times = {"start": start, "end": end, "ran": ran}
            rows.append({**row, **times, **names, "failed": failed, "cause": likeliest})
        data = pa.Table.from_pylist(rows, schema=ATTEMPTS)
        return table(
            data,
            "attempt state end ran count failed cause",
            "One row per attempt, in order; each job that had the number counts its own. A failed node "
            "is one that Slurm names. The CSV file has the names of all nodes.",
        )

    def _cause_table(self) -> Table:
        """Every check that explains an end, ranked."""
        rows = [
            cause | {"attempt": row["attempt"], "rank": n, "domains": ", ".join(cause["domains"])}
            for row in self.attempts
            for n, cause in enumerate(row["causes"], start=1)
        ]
        return table(
            rows,
            "attempt rank symptom check node offset_s severity domains",
            "One row per check near the end of a failed attempt, the likeliest cause first.",
            "No check fired near the end of a failed attempt.",
            detail=True,
        )


def _time(text: str | None) -> datetime | None:
    """The time in ISO text; None for none."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


_SECONDS = pa.timestamp("s", "UTC")
ATTEMPTS = pa.schema(
    {"attempt": pa.int64(), "state": pa.string(), "start": _SECONDS, "end": _SECONDS}
    | dict.fromkeys(("ran", "failed", "cause", "nodes"), pa.string())
    | dict.fromkeys(("gpus", "count"), pa.int64())
)


def attribute(log: AnyLog, job_id: str) -> Attribution:
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
    mine = "attempts_of_job"
    log.engine.keep(mine, f"SELECT * FROM {log.attempts} WHERE job_id = {literal(known)}")
    attempts = log.rows(
        "SELECT key, coalesce(reuse, 0) AS reuse, attempt, state, nodes, start_s, end_s, gpus, recovered "
        f"FROM {mine} ORDER BY reuse, attempt, key"
    )
    if not attempts:
        raise InputError(
            f"job not found: {job_id!r}",
            code="no-match",
            path=log.store.path,
            expected="a job id as sacct prints it, for example 93, 306_4 or 98+1",
            remedy="check the id, and that the window (--since) covers the job",
        )
    keys = literal([row["key"] for row in attempts])
    causes = {}
    for cause in log.rows(
        f"""SELECT key, "check", node, offset_s, severity, label AS symptom, domains
        FROM {ranked_causes(log)} WHERE key IN {keys} ORDER BY key, rank"""
    ):
        offset_s = round(cause["offset_s"], 3)
        domains = cause["domains"].split(",")
        own = causes.setdefault(cause.pop("key"), [])
        own.append({**cause, "offset_s": offset_s, "domains": domains})
    failures = log.rows(f"SELECT key FROM {infrastructure_failures(log)} WHERE key IN {keys}")
    infrastructure = {row["key"] for row in failures}
    named = log.rows(
        _evident_nodes(
            log, mine, f"(SELECT key, stop_s, unnest(nodes) AS node FROM {mine} AS mine)"
        )
    )
    explained = [
        {
            **{name: row[name] for name in ("reuse", "attempt", "state", "gpus", "recovered")},
            **{name: iso(row[f"{name}_s"]) for name in ("start", "end")},
            "nodes": row["nodes"] or [],
            "infrastructure": row["key"] in infrastructure,
            "failed_nodes": sorted(said["node"] for said in named if said["key"] == row["key"]),
            "causes": causes.get(row["key"], []),
        }
        for row in attempts
    ]
    return Attribution(known or job_id, explained, log.end_s)


def classified_health(log: FleetLog) -> str:
    """Health events with symptom, label, domains and a severity where the log gave none.

    Columns: time_s, node, check, severity, result, xid, message, symptom, label, domains.
    """
    if "classified_health" in log.named:
        return "classified_health"
    health = log.table("health")
    kinds = log.rows(f'SELECT DISTINCT "check", xid FROM {health} ORDER BY "check", xid')
    xids = [kind["xid"] for kind in kinds]
    known = log.taxonomy.classify([kind["check"] for kind in kinds], xids)
    columns = {
        "known_check": known["check"],
        # Engines do not join null to null: -1 stands for "no XID".
        "known_xid": pa.array([-1 if x is None else x for x in xids], pa.int32()),
        "symptom": known["symptom"],
        "label": known["label"],
        "usual_severity": known["severity"],
        "domains": pa.array([",".join(d) for d in known["domains"].to_pylist()], pa.string()),
    }
    texts = {name: pa.string() for name in columns} | {"known_xid": pa.int32()}
    log.engine.load("check_meanings", pa.table(columns, schema=pa.schema(texts)))
    return log.view(
        "classified_health",
        f"""SELECT time_s, node, "check",
            CASE WHEN severity IN ('HIGH', 'LOW') THEN severity ELSE usual_severity END AS severity,
            result, xid, message, symptom, label, domains
        FROM {health}
        JOIN check_meanings ON "check" = known_check AND coalesce(xid, -1) = known_xid""",
    )


def ranked_causes(log: FleetLog) -> str:
    """Failed checks near the ends of attempts that a node ended or that FAILED, ranked within each.

    A check explains an end if its event has the result "fail"; a warning does not.

    Columns: key (of the attempt), check, node, time_s, offset_s (check minus end), severity, symptom,
    label, domains, on_failed_node (null: no evidence names the failed node), rank (1 = likeliest).
    """
    return log.keep("causes", lambda: _rank_causes(log))


def _rank_causes(log: FleetLog) -> str:
    before = log.assumptions.check_before_s
    after = log.assumptions.check_after_s
    width = max(1.0, before + after)
    fired = bucket("time_s", width)
    # A check that repeats is one sign: the firing nearest to the end. Across nodes the sign nearest to
    # the end counts (it made the scheduler act); on one node the first sign counts (what follows it
    # are its consequences).
    return f"""WITH ends AS (
            SELECT key, node, stop_s, {bucket(f"stop_s - {literal(before)}", width)} AS bucket
            FROM {_failed_ends(log)}
        ), events AS (
            SELECT time_s, node, "check", severity, symptom, label, domains,
                unnest([{fired}, {fired} - 1]) AS bucket
            FROM {classified_health(log)} WHERE result = 'fail'
        ), near AS (
            SELECT key, events.node, "check", time_s, time_s - stop_s AS offset_s, severity, symptom,
                label, domains,
                row_number() OVER (
                    PARTITION BY key, events.node, "check", symptom
                    ORDER BY abs(time_s - stop_s), time_s, severity
                ) AS nearest
            FROM ends JOIN events ON ends.node = events.node AND ends.bucket = events.bucket
            WHERE time_s - stop_s BETWEEN {literal(-before)} AND {literal(after)}
        ), placed AS (
            SELECT near.*, CASE WHEN named.key IS NOT NULL THEN hit.key IS NOT NULL END
                    AS on_failed_node,
                min(abs(offset_s)) OVER (PARTITION BY near.key, near.node, severity) AS node_offset_s
            FROM near
            LEFT JOIN (SELECT DISTINCT key FROM {_failed_evident(log)}) AS named
                ON near.key = named.key
            LEFT JOIN {_failed_evident(log)} AS hit ON near.key = hit.key AND near.node = hit.node
            WHERE nearest = 1
        )
        SELECT key, "check", node, time_s, offset_s, severity, symptom, label, domains, on_failed_node,
            CAST(row_number() OVER (
                PARTITION BY key
                ORDER BY CASE WHEN coalesce(on_failed_node, TRUE) THEN 0 ELSE 1 END,
                    CASE WHEN severity = 'HIGH' THEN 0 ELSE 1 END,
                    node_offset_s, node, offset_s, "check", symptom
            ) AS BIGINT) AS rank
        FROM placed"""


def infrastructure_failures(log: FleetLog) -> str:
    """What a node ended (NODE_FAIL, BOOT_FAIL, REQUEUED where Slurm names it), FAILED with a HIGH check.

    Columns: key, cluster, job_id, job_id_raw, run, attempt, user, account, state, qos, gpus,
    node_count, start_s, stop_s, runtime_s, gpu_hours, symptom and label of the likeliest cause
    ("unattributed" without one), severity of that cause (null without one).
    """
    # Checks on nodes other than the one that evidence names do not explain the failure.
    return log.keep(
        "failures",
        f"""WITH likeliest AS (
            SELECT key, symptom, label, severity,
                row_number() OVER (PARTITION BY key ORDER BY rank) AS place
            FROM {ranked_causes(log)} WHERE coalesce(on_failed_node, TRUE)
        )
        SELECT failed.key, cluster, job_id, job_id_raw, run, attempt, "user", account, state, qos, gpus,
            node_count, start_s, stop_s, runtime_s, gpu_hours,
            coalesce(symptom, '{UNATTRIBUTED}') AS symptom,
            coalesce(label, '{UNATTRIBUTED}') AS label, severity
        FROM (
            SELECT * FROM {_failed(log)} AS failed
            WHERE by_node OR key IN (SELECT key FROM {ranked_causes(log)})
        ) AS failed LEFT JOIN likeliest ON failed.key = likeliest.key AND place = 1
        WHERE by_node OR severity = 'HIGH'""",
    )


def failed_runs(log: FleetLog) -> str:
    """Attempts of the runs with an infrastructure failure: run, key, attempt, ran and their times."""
    return log.keep(
        "failed_runs",
        f"""SELECT run, key, attempt, ran, submit_s, eligible_s, start_s FROM {log.attempts}
        WHERE run IN (SELECT run FROM {infrastructure_failures(log)})""",
    )


def blamed_nodes(log: FleetLog) -> str:
    """Nodes to blame for each infrastructure failure; the blame of a failure adds up to one.

    The node that Slurm names (JSON `failed_node`, controller log, an outage that begins at the end of
    the attempt) takes it all; else the nodes with a HIGH check; else every node of the attempt.

    Columns: key, node, blame, evidence ("slurm", "check" or "none"), node_count (of the attempt, or of
    the other component, that had the node), stop_s, state, and
    event_s: the HIGH check on the node nearest to the end, else the end: one event of a node may end
    many attempts, and not all at once.
    """
    return log.keep(
        "blamed_nodes",
        f"""WITH signs AS (
            SELECT key, node, time_s, row_number() OVER (
                PARTITION BY key, node ORDER BY abs(offset_s), time_s
            ) AS place
            FROM {ranked_causes(log)} WHERE severity = 'HIGH'
        ), levels AS (
            SELECT key, node, 0 AS level FROM {_failed_evident(log)}
            UNION ALL SELECT key, node, 1 FROM signs WHERE place = 1
            UNION ALL SELECT key, node, 2 FROM {_failed_ends(log)}
        ), ranked AS (
            SELECT levels.key, levels.node, level, min(level) OVER (PARTITION BY levels.key) AS best,
                coalesce(ends.node_count, failures.node_count) AS node_count, failures.stop_s,
                failures.state
            FROM levels JOIN {infrastructure_failures(log)} AS failures ON levels.key = failures.key
            LEFT JOIN {_failed_ends(log)} AS ends
                ON levels.key = ends.key AND levels.node = ends.node
        )
        SELECT ranked.key, ranked.node, 1 / count(*) OVER (PARTITION BY ranked.key) AS blame,
            CASE level WHEN 0 THEN 'slurm' WHEN 1 THEN 'check' ELSE 'none' END AS evidence,
            node_count, stop_s, state, coalesce(time_s, CAST(stop_s AS DOUBLE)) AS event_s
        FROM ranked LEFT JOIN signs
            ON ranked.key = signs.key AND ranked.node = signs.node AND place = 1
        WHERE level = best""",
    )


def _failed(log: FleetLog) -> str:
    """The attempts whose end asks for an explanation, with `by_node`: whether Slurm says it already."""
    return log.view(
        "failed",
        f"""SELECT ended.*, {BY_NODE} OR lost.key IS NOT NULL AS by_node
        FROM {log.executions} AS ended LEFT JOIN {_requeued_by_node(log)} AS lost ON ended.key = lost.key
        WHERE ({BY_NODE} OR state = 'FAILED' OR lost.key IS NOT NULL) AND end_s IS NOT NULL""",
    )


def _requeued_by_node(log: FleetLog) -> str:
    """REQUEUED attempts that the failure of a node ended: key. A user or administrator ends others so."""

    def query() -> str:
        requeued = log.view(
            "requeued",
            f"SELECT * FROM {log.executions} WHERE state = 'REQUEUED' AND end_s IS NOT NULL",
        )
        each_node = f"(SELECT key, stop_s, unnest(nodes) AS node FROM {requeued} AS requeued)"
        return f"SELECT DISTINCT key FROM ({_evident_nodes(log, requeued, each_node)}) AS named"

    return log.keep("requeued_by_node", query)


def _failed_ends(log: FleetLog) -> str:
    """One row per (failed attempt, node): key, state, stop_s, node, node_count (of the attempt on it).

    Components of a heterogeneous job that end together fail once: a node of any may have ended each.
    """
    parts = f"""(SELECT key, cluster, split_part(job_id, '+', 1) AS job, state, stop_s, node_count, nodes
        FROM {_failed(log)} WHERE contains(job_id, '+'))"""
    return log.keep(
        "failed_ends",
        f"""SELECT key, state, stop_s, node, max(node_count) AS node_count FROM (
            SELECT key, state, stop_s, node_count, unnest(nodes) AS node FROM {_failed(log)}
            UNION ALL
            SELECT own.key, own.state, own.stop_s, part.node_count, unnest(part.nodes)
            FROM {parts} AS own JOIN {parts} AS part ON own.job = part.job
                AND own.stop_s = part.stop_s AND own.cluster IS NOT DISTINCT FROM part.cluster
        ) AS each_node GROUP BY key, state, stop_s, node""",
    )


def _failed_evident(log: FleetLog) -> str:
    return log.keep("failed_evident", lambda: _evident_nodes(log, _failed(log), _failed_ends(log)))


def _evident_nodes(log: FleetLog, attempts: str, each_node: str) -> str:
    """Which node failed, where Slurm says so: a query of (key, node) from three sources.

    Args:
        log: the open log.
        attempts: key, cluster, stop_s, job_id_raw, failed_node.
        each_node: a row for each of their nodes: key, node, stop_s.
    """
    width = 2 * SLURM_MATCH_S
    began = bucket("start_s", width)
    # What names a node that the attempt did not have is no evidence.
    return f"""SELECT key, node FROM (
            SELECT ends.key, ends.node
            FROM (
                SELECT key, node, stop_s, {bucket(f"stop_s - {SLURM_MATCH_S}", width)} AS bucket
                FROM {each_node} AS each_node
            ) AS ends
            JOIN (
                SELECT node, start_s, unnest([{began}, {began} - 1]) AS bucket
                FROM {_unplanned_outages(log)}
            ) AS outages ON ends.node = outages.node AND ends.bucket = outages.bucket
            WHERE abs(start_s - stop_s) <= {SLURM_MATCH_S}
            UNION
            SELECT key, node
            FROM (SELECT key, stop_s, {log.job_keys} FROM {attempts} AS attempts) AS ended
            JOIN (
                SELECT time_s, node, {log.job_keys} FROM {log.table("controller_events")}
                WHERE event = 'node_fail'
            ) AS heard USING ({log.job_keys})
            WHERE abs(time_s - stop_s) <= {SLURM_MATCH_S}
            UNION
            SELECT key, coalesce(own, failed_node) FROM {attempts} AS attempts
            LEFT JOIN {log.called} ON failed_node = said WHERE failed_node <> ''
        ) AS named
        WHERE EXISTS (
                SELECT 1 FROM {each_node} AS own_nodes
                WHERE own_nodes.key = named.key AND own_nodes.node = named.node
            ) OR key NOT IN (SELECT key FROM {each_node} AS with_nodes)"""


def _unplanned_outages(log: FleetLog) -> str:
    """Outages that may have ended an attempt: node, start_s.

    A node that is lost ends its attempts; one that is drained does not, but a check or a prolog that fails
    drains it as the attempt ends. What a person plans is no failure, whoever requeues the jobs: a window
    (MAINT), and a drain for maintenance or of several nodes at once for a reason that is no check's.
    """

    def query() -> str:
        outages = log.table("node_outages")
        reasons = {MAINTENANCE: [MAINTENANCE], UNKNOWN: [""]}
        for row in log.rows(f"SELECT DISTINCT reason FROM {outages} WHERE reason <> ''"):
            reasons.setdefault(log.taxonomy.symptom(row["reason"]), []).append(row["reason"])
        return f"""SELECT node, start_s FROM (
                SELECT node, start_s, state, coalesce(reason, '') AS why, count(*) OVER (
                    PARTITION BY cluster, reason, {bucket("start_s", SLURM_MATCH_S)}) AS at_once
                FROM {outages} WHERE upper(state) NOT LIKE '%MAINT%'
            ) AS outages
            WHERE regexp_matches(upper(state), '(^|[+])({"|".join(NODE_LOST)})')
                OR NOT (why IN {literal(reasons[MAINTENANCE])}
                    OR at_once >= {AT_ONCE} AND why IN {literal(reasons[UNKNOWN])})"""

    return log.keep("unplanned_outages", query)


@dataclass(frozen=True)
class ClockLag:
    """Failures that have a failed check in the window, with the checks' clock as it is and shifted."""

    # Checks fit best if they fired this much after the ends of attempts (negative: before)
    lag_s: int
    failures: int
    matched: int  # Failures with a check at the lag
    matched_now: int  # Failures with a check at lag 0


@once
def clock_lag(log: FleetLog) -> ClockLag | None:
    """Whether checks fit failures clearly better hours away: the sign of a wrong time zone.

    `sacct` prints local time without its zone, and checks often carry UTC. Tests every half hour up to
    14 hours, the range of the world's zones, on attempts that a node ended (which always have a reason);
    of the log without its window, as two clocks differ whatever happened since.

    Returns:
        the best lag; None if no lag fits clearly better than none.
    """
    log = log.whole
    ends = log.arrow(f"SELECT * FROM {_failed_ends(log)} WHERE {BY_NODE}")
    if not len(ends):
        ends = log.arrow(_failed_ends(log))
    events = log.arrow(
        f"SELECT node, time_s FROM {log.table('health')} "
        f"WHERE result = 'fail' AND node IN (SELECT node FROM {_failed_ends(log)})"
    )
    if not len(ends) or not len(events):
        return None
    # One sorted number line of all nodes, each far enough from the next for any lag.
    nodes = pc.unique(events["node"])
    code = pc.index_in(ends["node"], nodes)
    ends = ends.append_column("code", code).filter(pc.is_valid(code))
    fired = events["time_s"].to_numpy()
    width = float(log.end_s - log.begin_s + fired.max() - fired.min()) + 1e7
    base = min(fired.min(), log.begin_s)
    line = np.sort(pc.index_in(events["node"], nodes).to_numpy() * width + fired - base)
    stops = ends["code"].to_numpy() * width + ends["stop_s"].to_numpy() - base
    # In order of time: a search for the next end begins where the last one stopped.
    order = np.argsort(stops)
    stops = stops[order]
    every, attempt = np.unique(ends["key"].to_numpy()[order], return_inverse=True)
    before = log.assumptions.check_before_s
    after = log.assumptions.check_after_s
    lags = range(-LONGEST_LAG_S, LONGEST_LAG_S + 1, LAG_STEP_S)

    def matched(lag: int) -> int:
        low = np.searchsorted(line, stops + lag - before, "left")
        hit = np.searchsorted(line, stops + lag + after, "right") > low
        return int(np.count_nonzero(np.bincount(attempt[hit])))

    counts = {lag: matched(lag) for lag in lags}
    best = max(counts, key=lambda lag: (counts[lag], -abs(lag)))
    usual = max(float(np.median(list(counts.values()))), counts[0])
    if counts[best] < max(LEAST_MATCHES, 3 * usual):
        return None
    return ClockLag(best, len(every), counts[best], counts[0])
