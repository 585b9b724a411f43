"""What a log of node failures says where there is no scheduler log: outages, causes, the rate over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import ibis
import pandas as pd

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog
from holdfast.fleet.timeline import bin_edges

FAILURE = "FAILURE"
"""State of the outages that a failure log marks as failures."""


@dataclass(frozen=True)
class Outages:
    """The failures of a node-failure log."""

    frame: pd.DataFrame
    """One row per failure, earliest first: node, start_s, down_s, cause (null where not said)."""
    nodes: int
    """Nodes that the log, an inventory or `ingest --nodes` tell."""


def outage_failures(log: FleetLog) -> Outages | None:
    """The failures of a log without attempts; None if it has attempts or no outages."""
    if not only_outages(log):
        return None
    t = log.table("node_outages").filter(lambda t: t.start_s >= int(log.begin_s))
    t = t.filter(t.state == FAILURE)
    end = ibis.coalesce(t.end_s, int(log.end_s))
    frame = log.frame(t.select("node", "start_s", "cause", down_s=end - t.start_s))
    frame = frame.sort_values(["start_s", "node"], ignore_index=True)
    return Outages(frame, known_nodes(log))


def only_outages(log: FleetLog) -> bool:
    """Whether the store holds a log of node failures and no attempts."""
    return log.count("attempts") == 0 and log.count("node_outages") > 0


def known_nodes(log: FleetLog) -> int:
    """Nodes in the inventory or in the outages, or the stated total (`ingest --nodes`) if larger."""
    named = log.table("nodes").select("node").union(log.table("node_outages").select("node"))
    count = int(log.rows(named.distinct().agg(n=lambda t: t.count()))[0]["n"])
    return max(count, int(log.store.facts.get("node_total") or 0))


def all_nodes_known(log: FleetLog) -> bool:
    """Whether nodes that never failed are counted: else the failure rate is too high."""
    return bool(log.count("nodes") or log.store.facts.get("node_total"))


def outage_exposure(log: FleetLog) -> pd.DataFrame:
    """Every node of the log and the time that it was up: node, failures, node_days.

    Nodes that are only counted (`ingest --nodes`) come last, without a name.
    """
    t = log.table("node_outages")
    failed = t.filter((t.state == FAILURE) & (t.start_s >= int(log.begin_s)))
    counts = log.frame(failed.group_by("node").agg(failures=failed.count()))
    begin, end = (
        ibis.greatest(t.start_s, log.begin_s),
        ibis.least(t.end_s.fill_null(2**60), log.end_s),
    )
    down = log.frame(t.select("node", begin=begin, end=end).filter(lambda t: t.end > t.begin))
    down = down.sort_values(["node", "begin"], ignore_index=True)
    # Reports of one node overlap: it is down once.
    reached = down.groupby("node")["end"].cummax().groupby(down["node"]).shift()
    since = down["begin"].clip(lower=reached.fillna(log.begin_s))
    down["down_s"] = (down["end"] - since).clip(lower=0)
    named = log.table("nodes").select("node").union(t.select("node")).distinct()
    frame = log.frame(named).sort_values("node")
    frame = frame.merge(counts, "left", "node")
    frame = frame.merge(down.groupby("node")["down_s"].sum().reset_index(), "left", "node")
    unnamed = max(known_nodes(log) - len(frame), 0)
    frame = pd.concat([frame, pd.DataFrame({"node": [None] * unnamed})], ignore_index=True)
    up_s = (log.end_s - log.begin_s) - frame["down_s"].astype("float64").fillna(0.0)
    # A failed node was up for a moment before it failed.
    failures = frame["failures"].astype("float64").fillna(0.0)
    node_days = up_s.clip(lower=0.0).clip(lower=failures * SHORTEST_S) / DAY_S
    return frame[["node"]].assign(failures=failures, node_days=node_days)


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
