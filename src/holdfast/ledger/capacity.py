"""What the machines could have given: time out of service, idle, and idle while jobs waited.

Node by node, time is in use, out of service (an outage, less what still runs on the node) or idle. GPUs
that attempts use and of which the log does not say on which nodes are taken from the idle ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.fleet.log import HOUR_S, FleetLog
from holdfast.ledger.parts import width
from holdfast.tables import literal

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Capacity:
    """Hours of GPUs, or of nodes, in the window; None where the log cannot tell."""

    out: float | None
    """Out of service; None without a log of outages: then it is a part of `idle`."""
    idle: float | None
    """None without an inventory."""
    waiting: float | None
    """Of `idle`, the most that jobs could have used that waited then and would have fitted."""
    excess: float
    """Hours of attempts beyond the inventory: it is too small, or attempts overlap."""
    unsized: int
    """Nodes of the inventory whose GPUs are unknown: they count as none."""


def capacity(log: FleetLog, allocated: float) -> Capacity:
    """What the inventory had beside the hours that attempts used.

    Args:
        log: the open log.
        allocated: hours of all attempts.
    """
    nodes = log.arrow(
        f"""SELECT node, inferred, CAST({"gpus" if log.has_gpus else "1"} AS DOUBLE) AS size
        FROM {log.table("nodes")} ORDER BY node"""
    )
    if all(nodes["inferred"].to_pylist()):
        return Capacity(None, None, None, 0.0, 0)
    sizes = nodes["size"].fill_null(0).to_numpy()
    used, down = _uses(log), _outages(log)
    out, excess, idle, moments = _sweep(log, nodes["node"], sizes, used, down)
    located = float(np.dot(used["amount"], used["high"].to_numpy() - used["low"].to_numpy()))
    spare = float(np.dot(idle[:-1], np.diff(moments)))
    # Hours on nodes that the log does not name, or that are not in the inventory.
    elsewhere = allocated - (located - excess) / HOUR_S
    left = max(spare / HOUR_S - elsewhere, 0.0)
    fitting = _fitting(log, idle, moments) / HOUR_S
    return Capacity(
        out / HOUR_S if log.count("node_outages") else None,
        left,
        min(fitting, left),
        max(elsewhere - spare / HOUR_S, 0.0),
        nodes["size"].null_count,
    )


def _uses(log: FleetLog) -> pa.Table:
    """What attempts use of each node: node, amount, low, high (s)."""
    return log.arrow(
        f"""SELECT * FROM (
            SELECT unnest(nodes) AS node, {width(log)} / CAST(array_length(nodes) AS DOUBLE) AS amount,
                CAST(stop_s - exposed_s AS DOUBLE) AS low, CAST(stop_s AS DOUBLE) AS high
            FROM {log.executions} WHERE exposed_s > 0 AND array_length(nodes) > 0 AND {width(log)} > 0
        ) AS uses WHERE node IN (SELECT node FROM {log.table("nodes")})"""
    )


def _outages(log: FleetLog) -> pa.Table:
    """When nodes were out of service, in the window: node, low, high (s)."""
    begin, end = literal(log.begin_s), literal(log.end_s)
    return log.arrow(
        f"""SELECT * FROM (
            SELECT node, CAST(greatest(start_s, {begin}) AS DOUBLE) AS low,
                CAST(least(coalesce(end_s, CASE WHEN state <> 'FAILURE' THEN {end} END, start_s), {end})
                    AS DOUBLE) AS high
            FROM {log.table("node_outages")}
        ) AS outages WHERE high > low AND node IN (SELECT node FROM {log.table("nodes")})"""
    )


def _sweep(
    log: FleetLog, names: pa.ChunkedArray, sizes: Floats, used: pa.Table, down: pa.Table
) -> tuple[float, float, Floats, Floats]:
    """Go through the time of every node.

    Returns:
        Seconds x GPUs out of service, and in use beyond the inventory; the GPUs that were idle in all
        from each of some moments [m] to the next; these moments [m], from the window's begin to its end.
    """
    # 1. Every change of a node: what is used of it, and how many outages are open.
    of_used, of_down = (
        pa.compute.index_in(each["node"], names.combine_chunks()).to_numpy()
        for each in (used, down)
    )
    every = np.arange(sizes.size)
    amount, one = used["amount"].to_numpy(), np.ones(of_down.size)
    ends = [each[name].to_numpy() for each in (used, down) for name in ("low", "high")]
    begin, end = (np.full(sizes.size, at) for at in (log.begin_s, log.end_s))
    node = np.concatenate([of_used, of_used, of_down, of_down, every, every])
    time = np.clip(np.concatenate([*ends, begin, end]), log.begin_s, log.end_s)
    none, no_use = np.zeros(2 * sizes.size), np.zeros(2 * of_down.size)
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    # All that begins ends, so that the sum over one node after the other is that of each.
    in_use = np.cumsum(np.concatenate([amount, -amount, no_use, none])[order])
    outages = np.cumsum(np.concatenate([np.zeros(2 * of_used.size), one, -one, none])[order])
    # 2. What is free of each node until its next change.
    last = np.append(node[1:] != node[:-1], True)
    span = np.where(last, 0.0, np.append(np.diff(time), 0.0))
    size = sizes[node]
    free = np.maximum(size - in_use, 0.0)
    is_down = outages > 0.5
    out = float(np.dot(np.where(is_down, free, 0.0), span))
    excess = float(np.dot(np.maximum(in_use - size, 0.0), span))
    # 3. All nodes together: each one's changes of what is idle.
    idle = np.where(is_down | last, 0.0, free)
    change = np.diff(idle, prepend=0.0)
    together = np.argsort(time, kind="stable")
    moments, first = np.unique(time[together], return_index=True)
    levels = np.maximum(np.cumsum(np.add.reduceat(change[together], first)), 0.0)
    return out, excess, levels, moments


def _fitting(log: FleetLog, idle: Floats, moments: Floats) -> float:
    """Seconds x idle GPUs that waiting jobs could have used, each of them no larger than what was idle.

    It is the most: any idle GPU would have done, whatever its node, partition or reservation.
    """
    begin, end = literal(log.begin_s), literal(log.end_s)
    waits = log.arrow(
        f"""SELECT * FROM (
            SELECT CAST({width(log)} AS DOUBLE) AS size,
                CAST(greatest(coalesce(eligible_s, submit_s), {begin}) AS DOUBLE) AS low,
                CAST(least(coalesce(start_s, end_s, {end}), {end}) AS DOUBLE) AS high
            FROM {log.attempts} WHERE {width(log)} > 0
        ) AS waits WHERE high > low"""
    )
    size, low, high = (waits[name].to_numpy() for name in ("size", "low", "high"))
    times = np.unique(np.concatenate([moments, low, high]))
    free = idle[np.searchsorted(moments, times, "right") - 1]
    fitting = np.zeros(times.size)
    for each in np.unique(size):
        mine = size == each
        begun, over = (np.searchsorted(np.sort(at[mine]), times, "right") for at in (low, high))
        fitting += np.where(each <= free, each * (begun - over), 0.0)
    return float(np.dot(np.minimum(free, fitting)[:-1], np.diff(times)))
