"""What a log cannot tell: what makes every figure of it doubtful, and whether it could show a failure.

"No failure" has three outcomes. Failures are seen through the states NODE_FAIL and BOOT_FAIL, which only
Slurm has, and through health events on the nodes of FAILED attempts. A log that could show neither says
nothing about failures, and no answer may turn its silence into an all-clear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.answer import Answer, Unknown
from holdfast.config import parse_config
from holdfast.fleet.attribution import (
    blamed_nodes,
    clock_lag,
    infrastructure_failures,
    ranked_causes,
)
from holdfast.fleet.formats.fields import STRANGE
from holdfast.fleet.gangs import undecided_jobs
from holdfast.fleet.incidents import ended_attempts
from holdfast.fleet.log import CHANCE, DAY_S, KNOWABLE, FleetLog, bucket, once
from holdfast.fleet.moments import minute
from holdfast.fleet.node_time import threshold
from holdfast.fleet.outage_log import all_nodes_known, only_outages, outage_failures
from holdfast.fleet.schema import NODE_FAILURES, NOT_OVER
from holdfast.fleet.wording import listed
from holdfast.numbers import counted, duration, number, percent
from holdfast.tables import literal

UNKNOWNS = parse_config(Path(__file__).with_name("unknowns.toml"), "what a log may not tell")
SLURM = (
    "sacct",
    "sacct-json",
    "slurmctld",
)  # Formats with the states NODE_FAIL, BOOT_FAIL and PREEMPTED
# Of the jobs of a fleet at most this share completes, or does not (published fleets: 40 to 70 %) ...
MOST_ALIKE = 0.9
MOST_OF_ONE = 0.5  # ... and at most this share ends in one other state
# A check that fails on so many nodes, nearly all, in nearly each of so many parts of a log
FEWEST_NODES, PARTS = 3, 10
ALIKE = 0.01  # Probability of such counts of failures below which clusters are not alike
LEAST_OTHER = 0.1  # Share of the GPU time from which nodes of two sizes are named
LEAST_IN_USE = (
    0.8  # Share of its time that a node is in use in a log from which next to nothing is missing
)


def gap(kind: str, /, **words: str) -> Unknown:
    """A gap of the log, as ``unknowns.toml`` says it."""
    of = UNKNOWNS[kind]
    texts = (of[part].format(**words) for part in ("text", "remedy"))
    return Unknown(*texts, doubt=of.get("doubt", False))


def doubts(log: FleetLog) -> Iterator[Unknown]:
    """What makes the headline of every answer about failures doubtful; it stands above them."""
    lag = clock_lag(log)
    if hides_attempts(log):
        yield gap("hidden")
    if log.ended() and (why := one_sided(log)):
        yield gap("filtered", why=why)
    for row in log.late_ends:
        yield gap(
            "one_start" if row["at_once"] else "cut_off",
            since=minute(row["first_s"]),
            running=counted(row["running"], "attempt"),
            longest=duration(row["longest_s"]),
        )
    if lag is not None:
        hours = -lag.lag_s / 3600
        yield gap(
            "clocks",
            away=f"{abs(hours):g} h {'earlier' if hours > 0 else 'later'}",
            zone=f"{hours:+g}",
            matched=f"{lag.matched:,}",
            now=f"{lag.matched_now:,}",
            failures=counted(lag.failures, "failure"),
        )
    elif unsure_zone(log):
        yield gap("zone")
    if log.unplaced:
        yield gap("unplaced", attempts=unplaced(log))
    facts = log.store.facts
    formats = {each.get("format") for each in facts["sources"]}
    in_gres = sum(each.get("facts", {}).get("gpus_in_gres", 0) for each in facts["sources"])
    for kind, n, what in (
        ("untimed_pods" if "kubernetes" in formats else "untimed", log.untimed, "running attempt"),
        ("runaways", log.runaways, "running attempt"),
        ("timeless", log.timeless, "failed attempt"),
        ("unsized", log.unsized, "attempt"),
        ("cut_up", log.cut_up, "attempt"),
        ("gres", in_gres, "attempt"),
        ("conflicts", facts.get("state_conflicts"), "attempt"),
        ("gangs", undecided_jobs(log), "job"),
    ):
        if n:
            yield gap(kind, attempts=counted(n, what), gpus=str(log.gpus_per_node))
    if (without := without_gpus(log))[0] >= LEAST_OTHER:
        attempts = counted(without[1], "attempt")
        yield gap("without_gpus", attempts=attempts, share=percent(without[0]))
    if rates := unlike_clusters(log):
        named = [f"{name or 'unnamed'} {number(rate)}" for name, rate in rates.items()]
        yield gap("clusters", rates=listed(named, 3))
    if constant := constant_checks(log):
        yield gap("constant", checks=listed(constant, 3))
    if strange := strange_outcomes(log):
        events = counted(sum(strange.values()), "health event")
        yield gap("strange_outcomes", events=events, words=listed([*strange], 3))
    if (other := other_nodes(log)) >= LEAST_OTHER:
        yield gap("kinds", share=percent(other), gpus=str(log.gpus_per_node))
    if events := log.strange_checks:
        yield strangers(events, log.strangers)
    if n := nameless_failures(log):
        yield gap("nameless", failures=counted(n, "failure"))
    if not log.nodes_known:
        yield gap("no_nodes")
    if only_outages(log) and not all_nodes_known(log):
        yield gap("no_inventory")


@dataclass(frozen=True)
class Doubtful(Answer):
    """An answer about the failures of a log."""

    log: FleetLog = field(repr=False, compare=False, kw_only=True)

    def unknowns(self) -> Sequence[Unknown]:
        """What makes it doubtful."""
        return list(doubts(self.log))


def without_gpus(log: FleetLog) -> tuple[float, int]:
    """Attempts without GPUs in a log with some: their share of the node-days, and how many ran."""
    [row] = log.rows(
        f"""SELECT sum(CASE WHEN gpus > 0 THEN node_days ELSE 0 END) / sum(node_days) AS share,
            sum(CASE WHEN gpus > 0 THEN 0 ELSE attempts END) AS n
        FROM {log.tallies} WHERE ran AND node_days > 0"""
    )
    return (1 - row["share"], row["n"]) if log.has_gpus and row["n"] else (0.0, 0)


@once
def unlike_clusters(log: FleetLog) -> dict[str, float]:
    """Failures per 1,000 node-days of each cluster, where they are not alike; empty where they may be."""
    if not log.several_clusters:
        return {}
    ran = f"WHERE coalesce(gpus, 0) > {threshold(log, 0)} GROUP BY 1"
    failed = f"{log.executions} AS failed JOIN {ended_attempts(log)} AS ended USING (key)"
    failures, days = (
        {row["name"]: row["n"] or 0 for row in log.rows(query)}
        for query in (
            f"SELECT coalesce(cluster, '') AS name, count(DISTINCT incident) AS n FROM {failed} {ran}",
            f"""SELECT coalesce(cluster, '') AS name, sum(exposed_s * node_count) / {DAY_S} AS n
            FROM {log.executions} AS executions {ran}
            HAVING sum(exposed_s * node_count) > 0 ORDER BY name""",
        )
    )
    from scipy.stats import binomtest

    failures = {name: failures.get(name, 0) for name in days}
    total, total_days = sum(failures.values()), sum(days.values())
    tests = [
        binomtest(failures[name], total, own / total_days).pvalue * len(days)
        for name, own in days.items()
        if total
    ]
    if min(tests, default=1) > ALIKE:
        return {}
    return {name: 1000 * failures[name] / own for name, own in days.items()}


def constant_checks(log: FleetLog) -> list[str]:
    """Checks that failed or warned on nearly every node all through the log: perhaps misread."""
    log = log.whole
    part_s = max(log.end_s - log.begin_s, 1.0) / PARTS
    rows = log.rows(
        f"""SELECT "check" FROM (
            SELECT DISTINCT "check", node, {bucket(f"time_s - {log.begin_s}", part_s)} AS part
            FROM {log.table("health")} WHERE result <> 'ok' AND lower("check") <> 'ticket'
        ) AS failed WHERE part BETWEEN 0 AND {PARTS - 1}
        GROUP BY "check" HAVING count(DISTINCT node) >= {FEWEST_NODES}
            AND count(*) >= {MOST_ALIKE * PARTS} * (SELECT count(*) FROM {log.table("nodes")})
        ORDER BY 1"""
    )
    return [row["check"] for row in rows]


def strange_outcomes(log: FleetLog) -> dict[str, int]:
    """Outcomes of health events that are no known word, and how often."""
    found = Counter()
    for source in log.store.facts["sources"]:
        for name, n in source.get("facts", {}).items():
            if name.startswith(STRANGE):
                found[name.removeprefix(STRANGE)] += n
    return found


def other_nodes(log: FleetLog) -> float:
    """Share of the GPU time of attempts on several nodes, or of the inventory, that is of another size."""
    usual = log.gpus_per_node
    shares = log.rows(
        f"""SELECT sum(CASE WHEN gpus <> {usual} * node_count THEN gpu_hours ELSE 0 END)
            / sum(gpu_hours) AS n
        FROM {log.tallies} WHERE ran AND node_count > 1 AND gpu_hours > 0
        UNION ALL SELECT avg(CASE WHEN gpus <> {usual} THEN 1.0 ELSE 0.0 END)
        FROM {log.table("nodes")} WHERE gpus > 0 AND NOT inferred"""
    )
    return float(max(row["n"] or 0 for row in shares))


def strangers(events: int, nodes: list[str]) -> Unknown:
    """Failed checks on nodes that the log does not know."""
    return gap("strangers", events=counted(events, "failed check"), nodes=listed(nodes, 3))


def missing_columns(log: FleetLog) -> Iterator[Unknown]:
    """Columns whose absence changes an answer; without any node it is among the doubts."""
    missing = log.unknown_columns
    ran = missing["ran"]
    for column, (name, consequence) in KNOWABLE.items():
        if (n := missing[column]) and (column != "nodes" or log.nodes_known):
            of = "" if n == ran else f" for {n:,} of {counted(ran, 'attempt')}"
            yield gap("column", name=name, of=of, consequence=consequence)


@once
def one_sided(log: FleetLog) -> str:
    """Which states of a fleet's log this one lacks, so that no rate follows from it; "" if none.

    Told of the log without its window: a night in which all jobs completed is no filter.
    """
    log = log.whole
    rows = log.rows(f"SELECT DISTINCT state FROM {log.tallies} ORDER BY state")
    states = [row["state"] for row in rows]
    # What is not over, or never ran, passes no filter of completed jobs either
    if only_outages(log) or ("COMPLETED" in states and len(states) > 1):
        return ""
    over = [state for state in states if state not in NOT_OVER]
    ended = f"{log.attempts} WHERE ran AND state NOT IN {literal(NOT_OVER)}"
    job = "split_part(split_part(run, '_', 1), '+', 1)"
    jobs = log.value(f"SELECT count(DISTINCT {job}) FROM {ended}")
    if not jobs:
        return "no attempt has ended"
    completed = over == ["COMPLETED"]
    share = MOST_OF_ONE if len(over) == 1 and not completed else MOST_ALIKE
    if share**jobs >= CHANCE or (not completed and leaves_no_gaps(log)):
        return ""
    return f"the {counted(jobs, 'job')} that ended are all {listed(over)}, as if filtered by state"


def leaves_no_gaps(log: FleetLog) -> bool:
    """Whether nodes are in use nearly all the time, by one attempt after the other: none is hidden.

    (Attempts that fail may be too short to be missed, so this clears no log of completed jobs.)
    """
    return bool(
        log.value(
            f"""SELECT bool_and(used_s <= span_s) AND sum(used_s) >= {LEAST_IN_USE} * sum(span_s) FROM (
                SELECT sum(stop_s - start_s) AS used_s, max(stop_s) - min(start_s) AS span_s FROM (
                    SELECT unnest(nodes) AS node, start_s, stop_s FROM {log.executions}
                ) AS of_nodes GROUP BY node HAVING count(*) > 1
            ) AS by_node"""
        )
    )


def why_blind(log: FleetLog) -> str:
    """Why a log without an infrastructure failure proves nothing; "" where it could have shown one."""
    if only_outages(log):
        marked = log.value(f"SELECT count(*) FROM {outage_failures(log)}")
        return "" if marked else "the log does not say which outages are failures"
    if not log.ended():
        return "no attempt ran in that time"
    if one_sided(log):
        return one_sided(log)
    if hides_attempts(log):
        return "earlier attempts of requeued jobs are hidden"
    if log.unplaced:
        return f"{unplaced(log)} at an unknown time"
    failed = log.ended("FAILED")
    if failed and log.strange_checks:
        return f"{counted(log.strange_checks, 'failed check')} fired on nodes that no attempt names"
    if clock_lag(log) is not None or unsure_zone(log):
        return "the clocks of jobs and health events differ, or may"
    if log.nodes_known and log.count("health"):
        if unseen := failed - watched_failures(log):
            of = f"{unseen:,} of {counted(failed, 'attempt')} that ended FAILED"
            return f"health events could show nothing of {of}: not that time, or not those nodes"
        return ""
    lacks = "no health events" if log.nodes_known else "no NodeList to join health events by"
    if not names_ends(log):
        return f"its scheduler has no state for a failed node, and there are {lacks}"
    return (
        f"{counted(failed, 'attempt')} ended FAILED, and there are {lacks} to say why"
        if failed
        else ""
    )


def watched_failures(log: FleetLog) -> int:
    """FAILED attempts of which the health events could have shown something.

    Their ends are in the time that the events of the cluster span: one event spans nothing. Where checks
    report healthy nodes too, each node of the attempt has to be among those reported then: silence about
    another says nothing. A span reaches one mean gap between its events beyond them, at most a day.
    """
    step = f"least((high - low) / (times - 1), {DAY_S})"
    return int(
        log.value(
            f"""WITH seen AS (
                SELECT coalesce(cluster, '') AS cluster, node, min(time_s) AS low, max(time_s) AS high,
                    count(DISTINCT time_s) AS times, bool_or(result = 'ok') AS healthy
                FROM {log.table("health")} GROUP BY 1, node
            ), spans AS (
                SELECT cluster, node, healthy, low, high, times FROM seen
                UNION ALL SELECT cluster, NULL, bool_or(healthy), min(low), max(high), sum(times)
                FROM seen GROUP BY cluster
            ), reach AS (
                SELECT cluster, node, healthy, low - {step} AS low, high + {step} AS high
                FROM spans WHERE times > 1
            ), ends AS (
                SELECT key, coalesce(cluster, '') AS cluster, stop_s, unnest(nodes) AS node
                FROM {log.executions} WHERE state = 'FAILED'
            ), looked AS (
                SELECT key, coalesce(
                    CASE WHEN whole.healthy THEN stop_s BETWEEN own.low AND own.high
                        ELSE stop_s BETWEEN whole.low AND whole.high END, FALSE) AS covered
                FROM ends
                LEFT JOIN (SELECT * FROM reach WHERE node IS NULL) AS whole USING (cluster)
                LEFT JOIN reach AS own ON ends.cluster = own.cluster AND ends.node = own.node
            )
            SELECT count(*) FROM (
                SELECT key FROM looked GROUP BY key HAVING bool_and(covered)) AS watched"""
        )
    )


def nameless_failures(log: FleetLog, least_blame: float = 0) -> int:
    """Attempts that the infrastructure ended and that blame no node, or none so much."""
    if only_outages(log) or not log.nodes_known:
        return 0
    return int(
        log.value(
            f"SELECT count(*) FROM {infrastructure_failures(log)} WHERE key NOT IN "
            f"(SELECT key FROM {blamed_nodes(log)} WHERE blame >= {literal(least_blame)})"
        )
    )


def unsure_zone(log: FleetLog) -> bool:
    """Whether a zone was assumed that nothing confirms: no check is near the end of a failed attempt."""
    log = log.whole
    facts = [source.get("facts", {}) for source in log.store.facts["sources"]]
    assumed = any(each.get("zone") and not each.get("zone_stated") for each in facts)
    if not assumed or all(each.get("zone", "") for each in facts):
        return False
    fired = log.value(f"SELECT count(*) FROM {log.table('health')} WHERE result = 'fail'")
    failed = log.ended(*NODE_FAILURES, "FAILED")
    return bool(fired and failed) and not log.value(f"SELECT count(*) FROM {ranked_causes(log)}")


def names_ends(log: FleetLog) -> bool:
    """Whether the scheduler has states for attempts that a node or a preemption ended."""
    return any(source["format"] in SLURM for source in log.store.facts["sources"])


def hides_attempts(log: FleetLog) -> bool:
    """Whether the log was written without ``sacct --duplicates`` though jobs were requeued."""
    return log.store.facts.get("duplicates_flag") == "missing"


def unplaced(log: FleetLog) -> str:
    """What cannot be placed in time: ``3 attempts failed (2 of them by their node)``."""
    nodes = sum(log.unplaced.get(state, 0) for state in NODE_FAILURES)
    return (
        f"{counted(sum(log.unplaced.values()), 'attempt')} failed ({nodes:,} of them by their node)"
    )
