"""What a log of node failures says where there is no scheduler log: outages, causes, the rate over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import ibis
import pandas as pd

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.log import DAY_S, FleetLog
from holdfast.fleet.timeline import bin_edges

FAILURE = "FAILURE"
"""State of the outages that a failure log marks as failures."""


@dataclass(frozen=True)
class Outages:
    """The failures of a node-failure log."""

    frame: pd.DataFrame
    """One row a failure, earliest first: node, start_s, down_s, cause (null where not said)."""
    nodes: int
    """Nodes that the log or an inventory names."""


def outage_failures(log: FleetLog) -> Outages | None:
    """The failures of a log without attempts; None if it has attempts or no outages."""
    if log.count("attempts") or not log.count("node_outages"):
        return None
    t = log.table("node_outages").filter(lambda t: t.start_s >= int(log.begin_s))
    t = t.filter(t.state == FAILURE)
    end = ibis.coalesce(t.end_s, int(log.end_s))
    frame = log.frame(t.select("node", "start_s", "cause", down_s=end - t.start_s))
    frame = frame.sort_values(["start_s", "node"], ignore_index=True)
    return Outages(frame, known_nodes(log))


def known_nodes(log: FleetLog) -> int:
    """Nodes in the inventory or in the outages."""
    named = log.table("nodes").select("node").union(log.table("node_outages").select("node"))
    return int(log.rows(named.distinct().agg(n=lambda t: t.count()))[0]["n"])


def outage_rate_over_time(log: FleetLog, outages: Outages) -> tuple[pd.DataFrame, str]:
    """Failures and node-days per bin of time and cause, as `timeline.rate_over_time`.

    Every node counts as up all the time: outages are short against the time between them.
    """
    edges, unit = bin_edges(log.begin_s, log.end_s)
    found = outages.frame.assign(cause=outages.frame["cause"].fillna(UNATTRIBUTED))
    rows = []
    for low, high in pairwise(edges):
        inside = found[(found["start_s"] >= low) & (found["start_s"] < high)]
        seen_s = min(high, log.end_s) - max(low, log.begin_s)
        node_days = outages.nodes * max(seen_s, 1.0) / DAY_S
        counts = inside["cause"].value_counts().sort_index()
        causes = list(counts.items()) or [(None, 0)]
        rows += [(low, high, cause, int(n), node_days) for cause, n in causes]
    columns = ["begin_s", "end_s", "cause", "failures", "node_days"]
    return pd.DataFrame(rows, columns=columns), unit
