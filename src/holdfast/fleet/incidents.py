"""The unit of evidence of the room: the incident, a failure of one node at one moment.

Rates, intervals, trends, dispersion and lemon nodes are computed from incidents; attempts only say what an
incident cost. Three notions, each a column of the tables below:

- An **incident** is the failure of a node, or of an unknown node among those of an attempt. What a node's
  failure ends within `incident_gap_s` is one incident, however many attempts that are. Failures whose node
  is unknown join the incident of a node of theirs at that moment, else each other where they share nodes.
- A **cluster** is what may have one reason: incidents that begin within a burst (`BURST_S`), those of one
  job on one node within `crash_loop_window_s`, and those of a job that fails more often than chance
  explains.
  Clusters are independent; so intervals weight each by its incidents, and trends count each once.
- A **witness** is a job (all tasks of an array are one). A job that fails on a node again says nothing
  new of the node: it may be the job. An incident counts for a node if it brings a new witness.

Of several jobs that shared a node, the largest counts: an incident is one of the size of the largest
attempt that it ended, as each moment of a node is of the largest job on it (`holdfast.fleet.node_time`).
So sizes and thresholds partition the incidents as they do the exposure.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.fleet.attribution import UNATTRIBUTED, blamed_nodes, infrastructure_failures
from holdfast.fleet.job_sizes import bucket_top
from holdfast.fleet.log import BY_NODE, DAY_S, NODE_FAIL, FleetLog, bucket
from holdfast.fleet.outage_log import only_outages, outage_failures
from holdfast.tables import literal

# Slurm's default SlurmdTimeout: nodes that are lost together are noticed within it
BURST_S = 300.0
# Chance may link this share of independent incidents to a burst, which widens intervals by half of it
CHANCE_SHARE = 0.05
LOOP_P = 0.01  # A job whose failures have a smaller probability at its size's rate is in a loop


def incidents(log: FleetLog) -> str:
    """The incidents of a log, one row each.

    Columns: incident (number, in order of time), cluster, stop_s (the first end), label (of its cause),
    gpus (of the largest attempt that it ended), node (null where unknown), attempts (that it ended).
    """
    return log.keep(
        "incidents",
        lambda: (
            f"""SELECT incident, coalesce(whole, incident) AS cluster, stop_s, label, gpus, node,
            attempts
        FROM {_without_clusters(log)} AS alone
        LEFT JOIN {_connected(log, "clusters", _alike(log))} AS linked ON incident = id"""
        ),
    )


def ended_attempts(log: FleetLog) -> str:
    """What each incident ended: key (of the attempt), incident."""
    return log.keep("ended_attempts", lambda: _incident_of_each(log))


def node_incidents(log: FleetLog) -> str:
    """What counts against each node: its incidents, those without a new witness left out.

    Columns: node, incident, node_count (of the largest attempt), blame (1, or 1/n for each of n nodes
    that may have failed), known (blame is 1), node_fail (whether Slurm called it so), stop_s.
    """
    return log.keep(
        "node_incidents",
        f"""SELECT blamed.* FROM {_blamed(log)} AS blamed WHERE (node, incident) IN (
            SELECT (node, incident) FROM (
                SELECT *, row_number() OVER (
                    PARTITION BY node, job ORDER BY blame DESC, stop_s, incident) AS place
                FROM {_witnessed(log)}
            ) AS first WHERE place = 1)""",
    )


def witnesses(log: FleetLog) -> str:
    """Who blames each node: node, jobs (number), job (one of them), attempts, incidents (sure ones)."""
    return log.view(
        "witnesses",
        f"""SELECT node, count(DISTINCT job) AS jobs, min(job) AS job, count(*) AS attempts,
            count(DISTINCT CASE WHEN alone THEN incident END) AS incidents
        FROM {_witnessed(log)} GROUP BY node""",
    )


# --- Which attempts are one incident ---------------------------------------------------------------


def _failures(log: FleetLog) -> str:
    """Failed attempts, a row per node that each may blame: alone, if it is the only one."""
    job = "split_part(split_part(failed.run, '_', 1), '+', 1)"  # Array tasks are of one
    failed = f"""SELECT failed.key, {"run" if log.assumptions.chain_by_name else job} AS job,
            coalesce(gpus, 0) AS gpus, label, failed.state, failed.stop_s,
            coalesce(blamed.node_count, failed.node_count) AS node_count, node,
            coalesce(event_s, failed.stop_s) AS event_s, coalesce(blame = 1, FALSE) AS alone,
            failed.node_count * coalesce(runtime_s, 0) / {DAY_S} AS node_days
        FROM {infrastructure_failures(log)} AS failed
        LEFT JOIN {blamed_nodes(log)} AS blamed ON failed.key = blamed.key
        WHERE failed.node_count > 0"""  # others have no exposure either
    if only_outages(log):
        failed = f"""SELECT row_number() OVER (ORDER BY stop_s, node) AS key, NULL AS job,
            0 AS gpus, label, '{NODE_FAIL}' AS state, stop_s, 1 AS node_count, node, stop_s AS event_s,
            TRUE AS alone, 0 AS node_days
        FROM {outage_failures(log)}"""
    return log.keep("failures_by_node", failed)


def _incident_of_each(log: FleetLog) -> str:
    gap_s = literal(float(log.assumptions.incident_gap_s))
    here = bucket("event_s", max(1.0, log.assumptions.incident_gap_s))
    # Attempts that blame one node: what follows within the gap on that node is one incident.
    sure = log.keep(
        "sure_incidents",
        f"""SELECT key, node, event_s, sum(apart) OVER (ORDER BY node, event_s, key
            ROWS UNBOUNDED PRECEDING) AS number FROM (
                SELECT *, CASE WHEN event_s - lag(event_s) OVER (
                    PARTITION BY node ORDER BY event_s, key) <= {gap_s} THEN 0 ELSE 1 END AS apart
                FROM {_failures(log)} WHERE alone
            ) AS marked""",
    )
    # An attempt that blames several joins the nearest incident of one of them ...
    joined = log.keep(
        "joined_incidents",
        f"""SELECT unsure.key, number FROM (
            SELECT *, {here} AS bucket FROM {_failures(log)}
            WHERE node IS NOT NULL AND NOT alone
        ) AS unsure JOIN (
            SELECT node, event_s AS sure_s, number,
                unnest([{here} - 1, {here}, {here} + 1]) AS bucket
            FROM {sure}
        ) AS near ON unsure.node = near.node AND unsure.bucket = near.bucket
        WHERE abs(event_s - sure_s) <= {gap_s}
        QUALIFY row_number() OVER (
            PARTITION BY unsure.key ORDER BY abs(event_s - sure_s), unsure.node, sure_s, number) = 1""",
    )
    # ... and the others are one where they share a node at that moment.
    rest = f"""SELECT * FROM {_failures(log)} AS failed ANTI JOIN (
        SELECT key FROM {sure} UNION ALL SELECT key FROM {joined}) AS found USING (key)"""
    order = "OVER (PARTITION BY node ORDER BY event_s, key)"
    links = f"""SELECT key AS a, lag(key) {order} AS b, event_s - lag(event_s) {order} AS away_s
        FROM ({rest}) AS rest WHERE node IS NOT NULL"""
    shared = _connected(
        log, "unsure_incidents", f"SELECT a, b FROM ({links}) AS links WHERE away_s <= {gap_s}"
    )
    return f"""SELECT key, dense_rank() OVER (ORDER BY first_s, kind, number) AS incident FROM (
        SELECT *, min(stop_s) OVER (PARTITION BY kind, number) AS first_s FROM (
            SELECT key, 0 AS kind, number FROM {sure}
            UNION ALL SELECT key, 0, number FROM {joined}
            UNION ALL SELECT DISTINCT key, 1, coalesce(whole, key)
            FROM ({rest}) AS rest LEFT JOIN {shared} AS shared ON key = id
        ) AS found JOIN (SELECT DISTINCT key, stop_s FROM {_failures(log)}) AS failed USING (key)
    ) AS timed"""


def _connected(log: FleetLog, name: str, links: str) -> str:
    """Connected components of links (a, b; b may be null): id, whole (the least id of its component)."""
    if name not in log.named:
        pairs = log.arrow(f"SELECT a, b FROM ({links}) AS links WHERE b IS NOT NULL").to_pydict()
        below = {each: each for side in pairs.values() for each in side}

        def least(each: int) -> int:
            while below[each] != each:
                below[each] = each = below[below[each]]
            return each

        # (the graph of scipy would take a third of a second to import)
        for ends in zip(*pairs.values(), strict=True):
            low, high = sorted(map(least, ends))
            below[high] = low
        wholes = {"id": [*below], "whole": [*map(least, below)]}
        log.engine.load(name, pa.table(wholes, schema=pa.schema(dict.fromkeys(wholes, pa.int64()))))
        log.named.add(name)
    return name


# --- What an incident was, and what may have its reason --------------------------------------------


def _without_clusters(log: FleetLog) -> str:
    return log.keep(
        "incidents_alone",
        f"""SELECT incident, min(stop_s) AS stop_s, max(gpus) AS gpus, count(DISTINCT key) AS attempts,
            max(CASE WHEN alone THEN node END) AS node, max(CASE WHEN place = 1 THEN label END) AS label
        FROM (
            SELECT *, row_number() OVER (
                PARTITION BY incident ORDER BY label = '{UNATTRIBUTED}', stop_s, key) AS place
            FROM {_failures(log)} AS failed JOIN {ended_attempts(log)} AS ended USING (key)
        ) AS ranked GROUP BY incident""",
    )


def _alike(log: FleetLog) -> str:
    """Pairs of incidents that may have one reason."""
    alone = _without_clusters(log)
    ended = f"{_failures(log)} AS failed JOIN {ended_attempts(log)} AS ended USING (key)"
    # A burst; not where chance would link as much, or times are too coarse to tell.
    [row] = log.rows(
        f"""SELECT count(*) AS n, CASE WHEN bool_and(stop_s % 3600 = 0) THEN 3600
            WHEN bool_and(stop_s % 60 = 0) THEN 60 ELSE 1 END AS step_s FROM {alone}"""
    )
    burst_s = min(BURST_S, CHANCE_SHARE * (log.end_s - log.begin_s) / max(row["n"], 1))
    order = "OVER (ORDER BY stop_s, incident)"
    again = "OVER (PARTITION BY node, job ORDER BY stop_s, incident)"
    return f"""SELECT incident AS a, CASE WHEN stop_s - lag(stop_s) {order} <= {literal(burst_s)}
            THEN lag(incident) {order} END AS b
        FROM {alone} WHERE {row["step_s"] <= burst_s}
        UNION ALL -- one job on one node again, soon
        SELECT incident, CASE WHEN stop_s - lag(stop_s) {again} <= {log.assumptions.crash_loop_window_s}
            THEN lag(incident) {again} END
        FROM {ended} WHERE alone AND job IS NOT NULL
        UNION ALL
        SELECT incident, lag(incident) OVER (PARTITION BY job ORDER BY stop_s, incident) FROM {ended}
        WHERE job IN (SELECT job FROM {_loops(log)})"""


def _loops(log: FleetLog) -> str:
    """Jobs that fail more often than attempts of their size, and of all sizes, explain: job.

    Attempts with GPUs are held against such alone, those without against the others.
    """
    from scipy.special import betainc

    # The others are those without the job itself; a size that hardly anything else had tells nothing.
    rows = log.arrow(
        f"""WITH own AS (
            SELECT job, {bucket_top("max(gpus)")} AS top, count(*) AS n, sum(node_days) AS days
            FROM (SELECT DISTINCT key, job, gpus, node_days FROM {_failures(log)}) AS failed GROUP BY job
        ), sizes AS (
            SELECT top, sum(days) AS days, sum(n) AS n FROM (
                SELECT {bucket_top()} AS top, node_days AS days, 0 AS n FROM {log.tallies} WHERE ran
                UNION ALL SELECT top, CAST(0 AS DOUBLE), n FROM own
            ) AS counted GROUP BY top
        ), held AS (
            SELECT NULL AS top, top > 0 AS gpus, sum(days) AS days, sum(n) AS n, 0 AS least
            FROM sizes GROUP BY 2
            UNION ALL SELECT top, top > 0, days, n, 2 FROM sizes
        )
        SELECT job, CAST(own.n AS DOUBLE) AS n, CAST(held.n - own.n + 1 AS DOUBLE) AS others,
            least(own.days / held.days, CAST(1 AS DOUBLE)) AS share
        FROM own JOIN held ON coalesce(held.top, own.top) = own.top AND gpus = (own.top > 0)
            AND held.days > least * own.days
        WHERE own.n > 1 AND job IS NOT NULL AND held.days > 0"""
    )
    # Of all these failures, P(at least so many are the job's) by its share of the node-days
    n, others, share = (rows[name].to_numpy() for name in ("n", "others", "share"))
    chance = rows.select(["job"]).append_column("p", pa.array(betainc(n, others, share)))
    log.engine.load("job_chances", chance)
    return log.view(
        "looping_jobs",
        f"SELECT job FROM job_chances GROUP BY job HAVING max(p) < {literal(LOOP_P)}",
    )


# --- What counts against a node --------------------------------------------------------------------


def _blamed(log: FleetLog) -> str:
    """Every incident of every node that may have failed in it: the columns of `node_incidents`."""
    # The node that an attempt blames alone; else those that most of the attempts blame.
    return log.keep(
        "node_blame",
        f"""SELECT node, incident, node_count, 1 / count(*) OVER (PARTITION BY incident) AS blame,
            count(*) OVER (PARTITION BY incident) = 1 AS known, node_fail, stop_s
        FROM (
            SELECT *, max(votes) OVER (PARTITION BY incident) AS most FROM (
                SELECT node, incident, count(*) + CASE WHEN bool_or(alone) THEN 1e9 ELSE 0 END AS votes,
                    max(node_count) AS node_count, bool_or({BY_NODE}) AS node_fail
                FROM {_failures(log)} AS failed JOIN {ended_attempts(log)} AS ended USING (key)
                WHERE node IS NOT NULL GROUP BY node, incident
            ) AS counted
        ) AS voted JOIN (
            SELECT incident, stop_s FROM {_without_clusters(log)}
        ) AS timed USING (incident) WHERE votes = most""",
    )


def _witnessed(log: FleetLog) -> str:
    """Failed attempts by blamed node: node, incident, job, alone, blame, stop_s (of the incident)."""
    return log.view(
        "witnessed",
        f"""SELECT blamed.node, blamed.incident, job, alone, blame, blamed.stop_s
        FROM {_blamed(log)} AS blamed
        JOIN (
            SELECT node, incident, job, alone
            FROM {_failures(log)} AS failed JOIN {ended_attempts(log)} AS ended USING (key)
        ) AS seen ON blamed.node = seen.node AND blamed.incident = seen.incident""",
    )
