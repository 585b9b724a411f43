"""All nodes in one table, each with the way to its evidence."""

from __future__ import annotations

import pyarrow as pa

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.addresses import NODE_LINK
from holdfast.fleet.wording import RATE_UNIT, decimals
from holdfast.report import ColumnFormat, Table


def node_table(analysis: Analysis) -> Table:
    """All nodes: the lemon ranking where jobs ran, else their outages."""
    states = {
        row["node"]: row["state"] or ""
        for row in analysis.log.rows(f"SELECT node, state FROM {analysis.log.table('nodes')}")
    }
    if analysis.outages is not None or not analysis.status.attempts:
        return _outage_table(analysis)
    table, lemons = analysis.lemons.nodes, set(analysis.lemons.lemons)
    names = table["node"].to_pylist()
    table = table.append_column(
        "lemon", pa.array(["lemon" if each in lemons else "" for each in names], pa.string())
    )
    table = table.append_column(
        "state", pa.array([states.get(each, "") for each in names], pa.string())
    )

    def digits(column: str) -> int:
        return decimals(table[column].to_pylist())

    return Table(
        table,
        {
            "node": ColumnFormat("Node", link=NODE_LINK),
            "lemon": ColumnFormat("Lemon"),
            "state": ColumnFormat("State"),
            "failures": ColumnFormat("Blame", "failures", digits=1),
            "node_days": ColumnFormat("In use", "node-days", digits=digits("node_days")),
            "shrunk_rate": ColumnFormat(
                "Shrunk rate, 95 %",
                RATE_UNIT,
                digits=digits("shrunk_rate"),
                interval=("shrunk_rate_low", "shrunk_rate_high"),
            ),
            "q_value": ColumnFormat("q-value", digits=3),
            "failures_avoided_per_month": ColumnFormat(
                "Avoided", "a month", digits=digits("failures_avoided_per_month")
            ),
            "out_count": ColumnFormat("Out", "times", digits=0),
            "xid_cnt": ColumnFormat("XIDs", digits=0),
        },
        caption="One row per node, highest shrunk rate first. A node's name opens its evidence.",
        empty="The store names no nodes.",
    )


def _outage_table(analysis: Analysis) -> Table:
    log = analysis.log
    table = log.arrow(
        f"""SELECT coalesce(nodes.node, down.node) AS node, coalesce(state, '') AS state,
            coalesce(outages, 0) AS outages, coalesce(hours, CAST(0 AS DOUBLE)) AS hours
        FROM {log.table("nodes")} AS nodes
        FULL JOIN (
            SELECT node, count(*) AS outages, sum(end_s - start_s) / 3600 AS hours
            FROM {log.table("node_outages")} GROUP BY node
        ) AS down ON nodes.node = down.node
        ORDER BY outages DESC, node"""
    )
    return Table(
        table,
        {
            "node": ColumnFormat("Node", link=NODE_LINK),
            "state": ColumnFormat("State"),
            "outages": ColumnFormat("Outages"),
            "hours": ColumnFormat("Down", "h", digits=1),
        },
        caption="One row per node, most outages first. A node's name opens its evidence.",
        empty="The store names no nodes.",
    )
