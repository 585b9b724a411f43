"""Gangs: the pods of one Kubernetes job as attempts of the job on all their nodes.

A store has a row per run of a pod. Pods that work together start, fail and end together: counted each by
itself, a job of 64 GPUs that one node ended is eight small jobs, of which one failed for a reason. The
pods of a job ``namespace/name`` are ``namespace/name+index``; without an index ``namespace/name_suffix``.

- Pods with an index (JobSet, Kubeflow, Volcano, an indexed Job) are a gang. An attempt of it lasts until
  its first pod fails; the next begins when the first of them is replaced, and has those that went on.
- An indexed Job may also be of tasks, which stay as they are: a pod completed, and another than the first
  worked on, or failed before, by over five minutes. Where its pods died together with those of a lost node
  and were all replaced, it is a gang.
- Where a launcher, master or chief completes, so does the job, whatever becomes of its workers.
- Pods without an index that ran one after another are attempts of one job. Others are tasks: a gang divides
  its work by rank.
- What follows an attempt that completed is another job of the same name.

The state of an attempt is the one that explains the others: when a node is lost, or a pod is evicted, the
other pods fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.fleet.schema import ATTEMPTS

if TYPE_CHECKING:
    from holdfast.fleet.log import FleetLog

APART_S = 300  # By which pods of a gang may end apart if one of them completed
_TOGETHER_S = 60  # within which the pods of a gang die when one has died
_BARE = "regexp_matches(job_id, '[+][0-9]+$')"  # An index alone is that of an indexed Job
_REST = "CASE WHEN NOT regexp_matches(job_id, '[+]0$') THEN"  # The first saves what all have made
_LEADER = "regexp_matches(job_id, '[+-](launcher|master|chief)-[0-9]+$')"
_NAMED = "account || '/' || name || "
_OF_PODS = f"""job_id_raw IS NULL AND start_s IS NOT NULL
    AND (starts_with(job_id, {_NAMED}'+') OR starts_with(job_id, {_NAMED}'_'))"""
_RUNS = f"""SELECT *, CASE WHEN indexed THEN attempt
        WHEN bool_or(beside) OVER (PARTITION BY whole) THEN 0 ELSE place END AS turn
    FROM (
        SELECT *, row_number() OVER w AS place,
            row_number() OVER w > 1 AND coalesce(lag(over_s) OVER w > start_s, TRUE) AS beside
        FROM (
            SELECT *, coalesce(cluster, '') || ':' || coalesce(reuse, 0) || '~' || {_NAMED}'' AS whole,
                starts_with(job_id, {_NAMED}'+') AS indexed,
                coalesce(end_s, start_s + runtime_s) AS over_s
            FROM {{stored}} WHERE {_OF_PODS}
        ) AS pods WINDOW w AS (PARTITION BY whole ORDER BY start_s, key)
    ) AS ordered"""
# An attempt begins where a pod is replaced after others ended: from begin_s until until_s.
_SESSIONS = """SELECT whole, at_s AS begin_s, lead(at_s) OVER w AS until_s, row_number() OVER w AS number
    FROM (
        SELECT DISTINCT whole, CAST(0 AS BIGINT) AS at_s FROM {runs} WHERE turn > 0
        UNION ALL SELECT whole, at_s FROM (
            SELECT *, lag(starts) OVER (PARTITION BY whole ORDER BY at_s, starts) AS before FROM (
                SELECT whole, start_s AS at_s, 1 AS starts FROM {runs} WHERE turn > 1
                UNION ALL SELECT whole, over_s, 0 FROM {runs} WHERE over_s IS NOT NULL AND turn > 0
            ) AS changes
        ) AS turns WHERE starts = 1 AND before = 0
    ) AS cuts WINDOW w AS (PARTITION BY whole ORDER BY at_s)"""
# to_s: the end of a pod's run within the attempt
_MEMBERS = f"""SELECT * FROM (
        SELECT *, min(CASE WHEN state = 'COMPLETED' THEN to_s END) OVER w AS completed_s,
            max({_REST} CASE WHEN state = 'COMPLETED' THEN to_s END END) OVER w AS last_completed_s,
            min(CASE WHEN state <> 'COMPLETED' THEN to_s END) OVER w AS failed_s,
            max({_REST} coalesce(over_s, start_s) END) OVER w AS last_s,
            max(CASE WHEN state = 'COMPLETED' AND {_LEADER} THEN to_s END) OVER w AS led_s
        FROM (
            SELECT runs.*, number, lead(number) OVER (PARTITION BY runs.whole, job_id
                ORDER BY number) AS later, begin_s, until_s, CASE WHEN until_s IS NULL OR over_s <= until_s
                THEN over_s END AS to_s
            FROM {{runs}} AS runs JOIN ({{sessions}}) AS sessions ON runs.whole = sessions.whole
            WHERE turn > 0 AND start_s < coalesce(until_s, start_s + 1)
                AND (over_s IS NULL OR over_s > begin_s OR start_s >= begin_s)
        ) AS within WINDOW w AS (PARTITION BY whole, number)
    ) AS members"""
_OTHERS = "CASE WHEN state <> 'NODE_FAIL' THEN to_s END"
_TASKS = f"""SELECT whole FROM {{members}} WHERE {_BARE}
    AND (completed_s + {APART_S} < last_s OR failed_s + {APART_S} < last_completed_s) AND whole NOT IN (
        SELECT whole FROM {{members}} GROUP BY whole, number HAVING count(to_s) = count(*)
            AND bool_and(state <> 'COMPLETED' AND later IS NOT NULL)
            AND max({_OTHERS}) - min({_OTHERS}) <= {_TOGETHER_S}
            AND abs(min({_OTHERS}) - min(CASE WHEN state = 'NODE_FAIL' THEN to_s END)) <= 2 * {APART_S}
    )"""
_GANGS = """SELECT whole, number, {columns},
        max(CASE WHEN decision = 1 THEN nodes[1] END) AS of_node
    FROM (
        SELECT *, row_number() OVER (PARTITION BY whole, number ORDER BY cause, to_s, key) AS decision
        FROM (
            SELECT *, CASE WHEN to_s = led_s AND state = 'COMPLETED' THEN -1
                WHEN to_s IS NULL THEN 6 WHEN state = 'NODE_FAIL' THEN 0
                WHEN state = 'PREEMPTED' THEN 1 WHEN state = 'TIMEOUT' THEN 2
                WHEN state = 'OUT_OF_MEMORY' THEN 3 WHEN state = 'FAILED' THEN 4
                WHEN state = 'COMPLETED' THEN 7 ELSE 5 END AS cause
            FROM {members} AS members WHERE whole NOT IN (SELECT whole FROM {tasks})
        ) AS ranked
    ) AS ordered GROUP BY whole, number"""
_JOBS = """SELECT *, coalesce(sum(CASE WHEN state = 'COMPLETED' THEN 1 ELSE 0 END) OVER (PARTITION BY whole
        ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS earlier FROM {gangs}"""
# Of all pods of an attempt; what is not here is that of the one that decided the state
_COLUMNS = {
    "key": "min(key) + number - 1",
    "submit_s": "min(CASE WHEN start_s >= begin_s THEN submit_s END)",
    "start_s": "min(greatest(start_s, begin_s))",
    "end_s": """CASE WHEN min(led_s) IS NOT NULL THEN max(to_s)
        WHEN min(failed_s) IS NOT NULL THEN min(failed_s)
        WHEN count(to_s) = count(*) THEN max(to_s) ELSE min(until_s) END""",
    "time_limit_s": "min(time_limit_s)",
    "restarts": "max(restarts)",
    "node_count": "CAST(count(DISTINCT nodes[1]) AS INTEGER)",
    "nodes": "list_sort(array_agg(DISTINCT nodes[1]))",
    "gpus": "CAST(sum(gpus) AS INTEGER)",
    "cpus": "CAST(sum(cpus) AS INTEGER)",
}
# Of the attempts before it, or of all its columns
_MADE = {
    "attempt": "CAST(row_number() OVER w AS INTEGER)",
    "reuse": "CAST(nullif(coalesce(reuse, 0) + earlier, 0) AS INTEGER)",
    "job_id": f"{_NAMED}''",
    "submit_s": "greatest(submit_s, lag(end_s) OVER w)",
    "runtime_s": "end_s - start_s",
    "job_runtime_s": "CAST(sum(coalesce(end_s - start_s, 0)) OVER w AS BIGINT)",
    "failed_node": "CASE WHEN state = 'NODE_FAIL' THEN of_node END",
}


def with_gangs(log: FleetLog, stored: str) -> str:
    """The attempts of a store, its gangs in place of their pods: the name of a table."""
    if not log.value(f"SELECT count(*) FROM {stored} WHERE {_OF_PODS}"):
        return stored
    runs = log.keep("pod_runs", _RUNS.format(stored=stored))
    sessions = _SESSIONS.format(runs=runs)
    members = log.keep("gang_members", _MEMBERS.format(runs=runs, sessions=sessions))
    tasks = log.keep("pod_tasks", _TASKS.format(members=members))
    own = {name: f'max(CASE WHEN decision = 1 THEN "{name}" END)' for name in ATTEMPTS.names}
    kept = {name: f'"{name}"' for name in ATTEMPTS.names}
    gangs = log.keep(
        "gangs", _GANGS.format(members=members, tasks=tasks, columns=_columns(own | _COLUMNS))
    )
    return log.view(
        "attempts_with_gangs",
        f"""SELECT {_columns(kept)} FROM {stored} WHERE key NOT IN (
                SELECT key FROM {members} WHERE whole NOT IN (SELECT whole FROM {tasks}))
            UNION ALL SELECT {_columns(kept | _MADE)} FROM ({_JOBS.format(gangs=gangs)}) AS jobs
                WINDOW w AS (PARTITION BY whole, earlier ORDER BY number)""",
    )


def _columns(named: Mapping[str, str]) -> str:
    return ", ".join(f'{value} AS "{name}"' for name, value in named.items())


def undecided_jobs(log: FleetLog) -> int:
    """Jobs with several pods at a time of which nothing tells whether they work together."""
    log.table("attempts")
    if "gangs" not in log.named:
        return 0
    return int(
        log.value(
            f"""SELECT count(DISTINCT whole) FROM (
                SELECT whole FROM pod_runs WHERE turn = 0 GROUP BY whole HAVING NOT
                    coalesce(min(CASE WHEN state = 'COMPLETED' THEN over_s END) + {APART_S}
                        < max(coalesce(over_s, start_s)), FALSE)
                UNION ALL SELECT whole FROM gang_members
                WHERE {_BARE} AND whole NOT IN (SELECT whole FROM pod_tasks)
                GROUP BY whole, number HAVING count(*) > 1
            ) AS unsure"""
        )
    )
