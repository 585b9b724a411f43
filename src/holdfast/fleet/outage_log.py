"""What a log of node failures says where there is no scheduler log: outages, causes, the rate over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, Section, Table, Unknown
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog
from holdfast.fleet.moments import minute
from holdfast.fleet.timeline import bin_edges
from holdfast.fleet.wording import MOST_ROWS
from holdfast.numbers import brief, counted, duration, percent
from holdfast.tables import literal

NODES_UNKNOWN = Unknown(
    "Nodes that never failed are not in the log, so the failure rate is too high.",
    "Ingest an inventory, or state the number of nodes with ingest --nodes.",
)
FAILURE = "FAILURE"  # State of the outages that a failure log marks as failures


@dataclass(frozen=True)
class Outages:
    """The failures of a node-failure log."""

    # One row per failure, earliest first: node, start_s, down_s, cause (null where not said)
    rows: list[dict[str, Any]]
    nodes: int  # Nodes that the log, an inventory or `ingest --nodes` tell
    begin_s: float  # Start of the window

    def section(self) -> Section:
        """Which nodes fail, and why?"""
        count = len(self.rows)
        known = Counter(row["cause"] for row in self.rows if row["cause"] is not None)
        nodes = Counter(row["node"] for row in self.rows)
        down_s = float(sum(row["down_s"] for row in self.rows))
        text = f"{counted(count, 'node failure')} on {counted(len(nodes), 'node')} since "
        text += f"{minute(self.begin_s)}, {duration(down_s)} of one node's time down in all."
        if known:
            cause, n = min(known.items(), key=lambda each: (-each[1], each[0]))
            text += f" The most frequent cause: {cause}, {percent(n / count)}."
        node, n = max(nodes.items(), key=lambda each: each[1], default=("", 0))
        if n > 1:
            text += f" A node to look at is {node}: it failed {n:,} times; the mean is "
            text += f"{brief(count / self.nodes)}."
        tables = [self._table("cause", "Cause"), self._table("node", "Node")]
        return Section("causes", "Which nodes fail, and why?", text, [], tables)

    def _table(self, name: str, label: str) -> Table:
        """Failures and hours down by node or cause, most failures first."""
        counts = pa.table(
            {
                name: pa.array([row[name] or UNATTRIBUTED for row in self.rows], pa.string()),
                "down_hours": pa.array([row["down_s"] / 3600 for row in self.rows], pa.float64()),
            }
        )
        data = counts.group_by(name).aggregate([("down_hours", "sum"), (name, "count")])
        data = data.sort_by(
            [(f"{name}_count", "descending"), ("down_hours_sum", "descending"), (name, "ascending")]
        )
        columns = {
            name: ColumnFormat(label),
            f"{name}_count": ColumnFormat("Failures"),
            "down_hours_sum": ColumnFormat("Down", "h", digits=1),
        }
        caption = f"One row per {name}, most failures first."
        return Table(data.slice(0, MOST_ROWS), columns, caption=caption, empty="No failures.")


def outage_failures(log: FleetLog) -> Outages | None:
    """The failures of a log without attempts; None if it has attempts or no outages."""
    if not only_outages(log):
        return None
    rows = log.rows(
        f"""SELECT node, start_s, cause, coalesce(end_s, {int(log.end_s)}) - start_s AS down_s
        FROM {log.table("node_outages")}
        WHERE state = '{FAILURE}' AND start_s >= {int(log.begin_s)} ORDER BY start_s, node"""
    )
    return Outages(rows, known_nodes(log), log.begin_s)


def only_outages(log: FleetLog) -> bool:
    """Whether the store holds a log of node failures and no attempts."""
    return log.count("attempts") == 0 and log.count("node_outages") > 0


def known_nodes(log: FleetLog) -> int:
    """Nodes in the inventory or in the outages, or the stated total (`ingest --nodes`) if larger."""
    count: int = log.value(
        f"SELECT count(*) FROM (SELECT node FROM {log.table('nodes')} "
        f"UNION SELECT node FROM {log.table('node_outages')}) AS named"
    )
    return max(count, int(log.store.facts.get("node_total") or 0))


def all_nodes_known(log: FleetLog) -> bool:
    """Whether nodes that never failed are counted: else the failure rate is too high."""
    return bool(log.count("nodes") or log.store.facts.get("node_total"))


def outage_exposure(log: FleetLog) -> list[dict[str, Any]]:
    """Every node of the log and the time that it was up: node, failures, node_days.

    Nodes that are only counted (`ingest --nodes`) come last, without a name.
    """
    begin, end = literal(log.begin_s), literal(log.end_s)
    rows = log.rows(
        f"""WITH down AS (
            SELECT node, greatest(start_s, {begin}) AS low, least(coalesce(end_s, {end}), {end}) AS high
            FROM {log.table("node_outages")}
        ), counted AS (
            SELECT node, 0 AS failures, CAST(0 AS DOUBLE) AS down_s FROM {log.table("nodes")}
            UNION ALL
            SELECT node, CASE WHEN state = '{FAILURE}' AND start_s >= {int(log.begin_s)} THEN 1
                ELSE 0 END, CAST(0 AS DOUBLE)
            FROM {log.table("node_outages")}
            UNION ALL
            -- Reports of one node overlap: it is down once.
            SELECT node, 0, greatest(high - greatest(low, coalesce(max(high) OVER (
                PARTITION BY node ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), {begin})), CAST(0 AS DOUBLE))
            FROM down WHERE high > low
        )
        SELECT node, sum(failures) AS failures, sum(down_s) AS down_s
        FROM counted GROUP BY node ORDER BY node"""
    )
    unnamed = max(known_nodes(log) - len(rows), 0)
    rows += [{"node": None, "failures": 0, "down_s": 0.0}] * unnamed
    span_s = log.end_s - log.begin_s
    return [
        {
            "node": row["node"],
            "failures": row["failures"],
            # A failed node was up for a moment before it failed.
            "node_days": max(span_s - row["down_s"], row["failures"] * SHORTEST_S, 0.0) / DAY_S,
        }
        for row in rows
    ]


def outage_rate_over_time(log: FleetLog, outages: Outages) -> tuple[list[dict[str, Any]], str]:
    """Failures and node-days per bin of time and cause, as `timeline.rate_over_time`.

    Every node counts as up all the time: outages are short against the time between them.
    """
    edges, unit = bin_edges(log.begin_s, log.end_s)
    rows = []
    for low, high in pairwise(edges):
        counts = Counter(
            row["cause"] or UNATTRIBUTED for row in outages.rows if low <= row["start_s"] < high
        )
        seen_s = min(high, log.end_s) - max(low, log.begin_s)
        node_days = outages.nodes * max(seen_s, 1.0) / DAY_S
        rows += [
            {"begin_s": low, "end_s": high, "cause": cause, "failures": n, "node_days": node_days}
            for cause, n in sorted(counts.items()) or [(None, 0)]
        ]
    return rows, unit
