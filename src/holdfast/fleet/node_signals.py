"""What a log says about each node: exposure, failures to blame on it, and the seven lemon signals.

Signals and window: Kokolis et al., arXiv 2410.21680v2, section on lemon nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.incidents import node_incidents, witnesses
from holdfast.fleet.lemon_statistics import Evidence
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog, once
from holdfast.fleet.node_time import ANY_SIZE, has_whole_nodes, node_time
from holdfast.stats import FloatArray
from holdfast.tables import literal

TICKET = "ticket"
_BLAME = "SELECT node, blame AS n FROM {incidents} WHERE node_fail AND stop_s >= {since}"
LEAST_KIND = 0.1  # Share of the nodes with GPUs from which those with as many are a kind


@dataclass(frozen=True)
class Signal:
    """One of the seven signals, per node over the last `lemon_window_s` of the log."""

    label: str  # Of its column
    query: str = ""  # SQL of (node, n) that is added up by node; "" where a ratio of sums gives it
    digits: int = 0  # Decimals


# The rule's signals under the paper's names, in its order.
SIGNALS = {
    "excl_jobid_count": Signal(
        "jobs that exclude it",
        """SELECT node, 1 AS n FROM (
            SELECT DISTINCT run, unnest(excluded_nodes) AS node
            FROM {attempts} WHERE submit_s >= {since}
        ) AS excluded""",
    ),
    "xid_cnt": Signal(
        "distinct XIDs",
        "SELECT node, count(DISTINCT xid) AS n FROM {health} WHERE time_s >= {since} GROUP BY node",
    ),
    "tickets": Signal(
        "repair tickets",
        f"""SELECT node, 1 AS n FROM {{health}}
            WHERE time_s >= {{since}} AND lower("check") = '{TICKET}'""",
    ),
    "out_count": Signal(
        "times out of service", "SELECT node, 1 AS n FROM {outages} WHERE start_s >= {since}"
    ),
    "multi_node_node_fails": Signal(
        "failures of jobs on several nodes", f"{_BLAME} AND node_count > 1", digits=2
    ),
    "single_node_node_fails": Signal(
        "failures of jobs on it alone", f"{_BLAME} AND node_count = 1", digits=2
    ),
    "single_node_node_failure_rate": Signal("the latter per such job", digits=2),
}


@dataclass(frozen=True)
class NodeSignals:
    """What `LemonDetector.fit` takes."""

    # One row per node that ran something or is in the inventory: node; gpus; node_days (time in use);
    # failures (incidents to blame on it, one per witness: fractional where nothing tells which of n
    # nodes failed), known_failures (those with blame 1); jobs (that blame it);
    # and the `SIGNALS`, of which a failure is an incident of state NODE_FAIL or BOOT_FAIL, by the largest
    # attempt that it ended.
    table: pa.Table
    days: pa.Table  # Exposure: node, node_count (of the attempts), node_days, attempt_days
    incidents: pa.Table  # Of `node_incidents`

    @cached_property
    def kinds(self) -> FloatArray:
        """A number for each kind of node, shape (n,)."""
        return kinds_of(self.table)

    @cached_property
    def evidence(self) -> Evidence:
        """Failures and whom they blame, beside node-days by size of attempt."""
        names = self.table["node"].combine_chunks()
        columns = ("node_count", "node_days", "attempt_days"), ("node_count", "blame", "known")
        used, blamed = (
            [pc.index_in(rows["node"], names), *(rows[name] for name in of)]
            for rows, of in zip((self.days, self.incidents), columns, strict=True)
        )
        return Evidence.from_rows(self.kinds, used, [self.incidents["incident"], *blamed])


def kinds_of(nodes: pa.Table) -> FloatArray:
    """The GPUs of each node, shape (n,); few nodes with as many are of the most frequent kind.

    (They may be ones on which no job had all GPUs, where no inventory tells.) Those of another
    cluster are another kind, by a fraction: where all nodes fail more often, none of them is a lemon.
    """
    gpus = nodes["gpus"].to_numpy()
    values, place, counts = np.unique(gpus, return_inverse=True, return_counts=True)
    counts[values == 0] = 0
    rare = (values > 0) & (counts < LEAST_KIND * counts.sum())
    clusters = [name.rpartition(":")[0] for name in nodes["node"].to_pylist()]
    _, cluster = np.unique(clusters, return_inverse=True)
    kinds = np.where(rare, values[counts.argmax()], values)[place]
    return np.asarray(kinds + cluster / (cluster.size + 1), np.float64)


@once
def node_signals(log: FleetLog) -> NodeSignals:
    """Count exposure, failures and signals of every node of a log."""
    since = literal(float(log.end_s - log.assumptions.lemon_window_s))
    mine = node_incidents(log)
    log.engine.load("shared_use", node_time(log, ANY_SIZE).shared)
    # A failed attempt takes time, also one that accounting gives none. Sums of halves of seconds are the
    # same in any order.
    used = log.keep(
        "node_exposure",
        f"""SELECT node, node_count, days AS node_days, days AS attempt_days FROM (
            SELECT node, node_count, sum(CAST(exposed_s AS DOUBLE)) / {DAY_S} AS days FROM (
                SELECT unnest(nodes) AS node, node_count, exposed_s
                FROM {log.executions} WHERE node_count > 0 AND {has_whole_nodes(log)}
                UNION ALL SELECT node, node_count, {SHORTEST_S} FROM {mine}
            ) AS whole GROUP BY node, node_count
        ) AS summed
        UNION ALL SELECT node, node_count, node_days, attempt_days FROM shared_use""",
    )
    sources = {
        "since": since,
        "attempts": log.attempts,
        "incidents": mine,
        "health": log.table("health"),
        "outages": log.table("node_outages"),
    }
    counts = {
        "node_days": f"SELECT node, {_days('node_days')} AS n FROM {used} GROUP BY node",
        "gpus": f"SELECT node, coalesce(gpus, 0) AS n FROM {log.table('nodes')}",
        "failures": f"SELECT node, blame AS n FROM {mine}",
        "known_failures": f"SELECT node, 1 AS n FROM {mine} WHERE known",
        "jobs": f"SELECT node, jobs AS n FROM {witnesses(log)}",
        "single_node_attempts": f"""SELECT nodes[1] AS node, 1 AS n FROM {log.executions}
            WHERE node_count = 1 AND stop_s >= {since}""",
        **{
            name: signal.query.format_map(sources)
            for name, signal in SIGNALS.items()
            if signal.query
        },
    }
    every = " UNION ALL ".join(
        f"SELECT node, '{name}' AS name, CAST(n AS DOUBLE) AS n FROM ({query}) AS {name}"
        for name, query in counts.items()
    )
    sums = ", ".join(
        f"coalesce(sum(CASE WHEN name = '{name}' THEN n END), CAST(0 AS DOUBLE)) AS {name}"
        for name in counts
    )
    names = ["node", "gpus", "node_days", "failures", "known_failures", "jobs", *SIGNALS]
    table = log.arrow(
        f"""SELECT {", ".join(names)} FROM (
            SELECT *, CASE WHEN single_node_attempts > 0
                THEN single_node_node_fails / single_node_attempts ELSE CAST(0 AS DOUBLE) END
                AS single_node_node_failure_rate
            FROM (
                SELECT node, {sums} FROM ({every}) AS counted
                WHERE node IS NOT NULL GROUP BY node
                HAVING count(*) FILTER (WHERE name IN ('node_days', 'gpus')) > 0
            ) AS summed
        ) AS rated
        ORDER BY node"""
    )
    days = log.arrow(
        f"SELECT node, node_count, {_days('node_days')} AS node_days, "
        f"{_days('attempt_days')} AS attempt_days "
        f"FROM {used} GROUP BY node, node_count ORDER BY node, node_count"
    )
    incidents = log.arrow(f"SELECT * FROM {mine} ORDER BY node, incident")
    return NodeSignals(table, days, incidents)


def _days(value: str) -> str:
    """SQL of a sum of days: in decimals, so that it does not depend on the order of threads."""
    return f"CAST(sum(CAST({value} AS DECIMAL(38, 15))) AS DOUBLE)"
