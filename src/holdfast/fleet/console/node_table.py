"""All nodes in one table, each with the way to its evidence."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.addresses import NODE_LINK
from holdfast.fleet.wording import RATE_UNIT, decimals
from holdfast.report import ColumnFormat, Table


def node_table(analysis: Analysis) -> Table:
    """All nodes: the lemon ranking where jobs ran, else their outages."""
    states = {
        row["node"]: row["state"] or ""
        for row in analysis.log.rows(analysis.log.table("nodes").select("node", "state"))
    }
    if analysis.outages is not None or not analysis.status.attempts:
        return _outage_table(analysis, states)
    frame = analysis.lemons.nodes.to_pandas()
    lemons = set(analysis.lemons.lemons)
    frame["lemon"] = ["lemon" if node in lemons else "" for node in frame["node"]]
    frame["state"] = [states.get(node, "") for node in frame["node"]]
    digits = decimals(frame["shrunk_rate"])
    return Table(
        pa.Table.from_pandas(frame, preserve_index=False),
        {
            "node": ColumnFormat("Node", link=NODE_LINK),
            "lemon": ColumnFormat("Lemon"),
            "state": ColumnFormat("State"),
            "failures": ColumnFormat("Blame", "failures", digits=1),
            "node_days": ColumnFormat("In use", "node-days", digits=decimals(frame["node_days"])),
            "shrunk_rate": ColumnFormat(
                "Shrunk rate, 95 %",
                RATE_UNIT,
                digits=digits,
                interval=("shrunk_rate_low", "shrunk_rate_high"),
            ),
            "q_value": ColumnFormat("q-value", digits=3),
            "failures_avoided_per_month": ColumnFormat(
                "Avoided", "a month", digits=decimals(frame["failures_avoided_per_month"])
            ),
            "out_count": ColumnFormat("Out", "times", digits=0),
            "xid_cnt": ColumnFormat("XIDs", digits=0),
        },
        caption="One row per node, highest shrunk rate first. A node's name opens its evidence.",
        empty="The store names no nodes.",
    )


def _outage_table(analysis: Analysis, states: dict[str, str]) -> Table:
    names = pd.DataFrame(
        {"node": sorted(states), "state": [states[each] for each in sorted(states)]}
    )
    t = analysis.log.table("node_outages")
    down = analysis.log.frame(
        t.group_by("node").agg(outages=t.count(), hours=(t.end_s - t.start_s).sum() / 3600)
    )
    frame = names.merge(down, "outer", "node")
    frame["state"] = frame["state"].fillna("")
    frame["outages"] = frame["outages"].fillna(0).astype("int64")
    frame["hours"] = frame["hours"].fillna(0.0).astype("float64")
    frame = frame.sort_values(["outages", "node"], ascending=[False, True], ignore_index=True)
    return Table(
        pa.Table.from_pandas(frame, preserve_index=False),
        {
            "node": ColumnFormat("Node", link=NODE_LINK),
            "state": ColumnFormat("State"),
            "outages": ColumnFormat("Outages"),
            "hours": ColumnFormat("Down", "h", digits=1),
        },
        caption="One row per node, most outages first. A node's name opens its evidence.",
        empty="The store names no nodes.",
    )
