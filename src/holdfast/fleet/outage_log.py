"""What a log of node failures says where there is no scheduler log: outages, causes, the rate over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from holdfast.answer import Section, Table
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog
from holdfast.fleet.moments import minute
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import MOST_ROWS, table
from holdfast.numbers import brief, counted, duration, percent
from holdfast.tables import literal

FAILURE = "FAILURE"  # State of the outages that a failure log marks as failures


@dataclass(frozen=True)
class Outages:
    """The failures of a node-failure log."""

    log: FleetLog
    rows: list[Row]  # Of `outage_failures`, earliest first
    nodes: int  # Nodes that the log, an inventory or `ingest --nodes` tell

    def section(self) -> Section:
        """Which nodes fail, and why?"""
        count = len(self.rows)
        known = Counter(row["label"] for row in self.rows if row["label"] != UNATTRIBUTED)
        nodes = Counter(row["node"] for row in self.rows)
        down_s = sum(row["down_s"] or 0.0 for row in self.rows)
        text = (
            f"{counted(count, 'node failure')} on {counted(len(nodes), 'node')} since "
            f"{minute(self.log.begin_s)}"
        )
        if ends_known(self.log):
            text += f", {duration(down_s)} of one node's time down in all"
        text += "."
        if known:
            cause, n = min(known.items(), key=lambda each: (-each[1], each[0]))
            text += f" The most frequent cause: {cause}, {percent(n / count)}."
        node, n = max(nodes.items(), key=lambda each: each[1], default=("", 0))
        if n > 1:
            text += (
                f" A node to look at is {node}: it failed {n:,} times; the mean is "
                f"{brief(count / self.nodes)}."
            )
        tables = [self._table("label", "cause"), self._table("node", "node")]
        return Section("causes", "Which nodes fail, and why?", text, [], tables)

    def _table(self, column: str, name: str) -> Table:
        """Failures and hours down by node or cause, most failures first."""
        data = self.log.arrow(
            f"""SELECT {column} AS {name}, sum(down_s) / 3600 AS down_hours_sum,
                count(*) AS {name}_count
            FROM {outage_failures(self.log)} GROUP BY {column}
            ORDER BY {name}_count DESC, down_hours_sum DESC, {name}"""
        )
        here: dict[str, Any] = {name: name.capitalize(), f"{name}_count": "Failures"}
        return table(
            data.slice(0, MOST_ROWS),
            f"{name} {name}_count down_hours_sum",
            f"One row per {name}, most failures first.",
            "No failures.",
            **here,
        )


def outages_of(log: FleetLog) -> Outages | None:
    """The failures of a log without attempts; None if it has attempts or no outages."""
    if not only_outages(log):
        return None
    rows = log.rows(f"SELECT * FROM {outage_failures(log)} ORDER BY stop_s, node")
    return Outages(log, rows, known_nodes(log))


def outage_failures(log: FleetLog) -> str:
    """The failures of the window: node, stop_s, label, down_s.

    They are the outages that the log marks so. A node that is down does not fail: outages that overlap are
    one failure, with the first cause that is named. `down_s` is null where nothing says how long: the node
    failed again, or the log states no end at all.
    """
    order = "PARTITION BY node ORDER BY start_s, end_s DESC NULLS LAST, cause"
    before = f"({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return log.view(
        "outage_failures",
        f"""SELECT node, min(start_s) AS stop_s,
            coalesce(min_by(cause, place) FILTER (WHERE cause <> ''), '{UNATTRIBUTED}') AS label,
            CAST(max(end_s) - min(start_s) AS DOUBLE) AS down_s
        FROM (
            SELECT *, row_number() OVER ({order}) AS place, sum(
                CASE WHEN start_s = last_s OR start_s < over_s THEN 0 ELSE 1 END
            ) OVER ({order} ROWS UNBOUNDED PRECEDING) AS number
            FROM (
                SELECT *, max(start_s) OVER {before} AS last_s, max(end_s) OVER {before} AS over_s
                FROM ({_ended(log)}) AS outages WHERE state = '{FAILURE}'
            ) AS marked
        ) AS numbered GROUP BY node, number HAVING min(start_s) >= {int(log.begin_s)}""",
    )


def _ended(log: FleetLog) -> str:
    """The outages with their ends: node, start_s, end_s, state, cause.

    What states no end is not over. Of a failure that holds only where the log states the ends of others and
    the node did not fail again; else its end is null.
    """
    outages = log.table("node_outages")
    last = int(log.end_s)
    return f"""SELECT node, start_s, state, cause, CASE
            WHEN end_s IS NOT NULL OR state <> '{FAILURE}' THEN coalesce(end_s, {last})
            WHEN {ends_known(log)} AND lead(start_s) OVER (
                PARTITION BY node, state ORDER BY start_s) IS NULL THEN {last} END AS end_s
        FROM {outages}"""


def ends_known(log: FleetLog) -> bool:
    """Whether a log of node failures says of any when the node came back."""
    outages = log.table("node_outages")
    return bool(log.value(f"SELECT count(end_s) FROM {outages} WHERE state = '{FAILURE}'"))


def only_outages(log: FleetLog) -> bool:
    """Whether the store holds a log of node failures and no attempts."""
    return log.count("attempts") == 0 and log.count("node_outages") > 0


def known_nodes(log: FleetLog) -> int:
    """Nodes in the inventory or in the outages, or the stated total (`ingest --nodes`) if larger."""
    count = log.value(
        f"SELECT count(*) FROM (SELECT node FROM {log.table('nodes')} "
        f"UNION SELECT node FROM {log.table('node_outages')}) AS named"
    )
    return max(count, int(log.store.facts.get("node_total") or 0))


def all_nodes_known(log: FleetLog) -> bool:
    """Whether nodes that never failed are counted: else the failure rate is too high."""
    return bool(log.count("nodes") or log.store.facts.get("node_total"))


def outage_exposure(log: FleetLog, counted: str) -> list[Row]:
    """Every node of the log and the time that it was up: node, failures, node_days.

    Args:
        log: the open log.
        counted: table with a node for each failure: `incidents`.

    Nodes that are only counted (`ingest --nodes`) come last, without a name.
    """
    begin = literal(log.begin_s)
    end = literal(log.end_s)
    rows = log.rows(
        f"""WITH down AS (
            SELECT node, greatest(start_s, {begin}) AS low, least(end_s, {end}) AS high
            FROM ({_ended(log)}) AS outages WHERE end_s IS NOT NULL
        ), counted AS (
            SELECT node, 0 AS failures, CAST(0 AS DOUBLE) AS down_s FROM {log.table("nodes")}
            UNION ALL
            SELECT node, 0, CAST(0 AS DOUBLE) FROM {log.table("node_outages")}
            UNION ALL
            SELECT node, 1, CAST(0 AS DOUBLE) FROM {counted}
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
