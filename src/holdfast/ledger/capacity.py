"""What the machines could have given: time out of service, idle, and idle while jobs waited.

Node by node, time is in use, out of service (an outage, less what still runs on the node) or idle. GPUs
that attempts use and of which the log does not say on which nodes are taken from the idle ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.log import HOUR_S, FleetLog, once
from holdfast.ledger.parts import width

Floats = npt.NDArray[np.float64]
AT_A_TIME = 700_000
"""Attempts of a part of the window, about."""
ROUNDING = 1e-6
"""Of GPUs: a third of a job's is on each of three nodes."""


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
    # All are sums over time: in turn for parts of the window, so that a long log fits in memory.
    steps = 2 + log.count("attempts") // AT_A_TIME
    edges = np.linspace(int(log.begin_s), last_s(log), steps).astype(int).tolist()
    every = [_of_window(log, nodes, low, high) for low, high in pairwise(edges)]
    out, excess, located, spare, fitting = np.sum(every, axis=0).tolist()
    # Hours on nodes that the log does not name, or that are not in the inventory, were not idle there.
    elsewhere = allocated - located
    left = max(spare - elsewhere, 0.0)
    return Capacity(
        out if log.count("node_outages") else None,
        left,
        min(fitting, left),
        excess + max(elsewhere - spare, 0.0),
        nodes["size"].null_count,
    )


def _of_window(log: FleetLog, nodes: pa.Table, begin: int, end: int) -> Floats:
    """Hours out of service, in use beyond the inventory, in use, idle, and idle beside jobs that fit."""
    used, down = _uses(log, begin, end), _outages(log, begin, end)
    located = float(np.dot(used["amount"], used["high"].to_numpy() - used["low"].to_numpy()))
    out, excess, idle, moments = _sweep(nodes, used, down, begin, end)
    spare = float(np.dot(idle[:-1], np.diff(moments)))
    fitting = _fitting(log, idle, moments)
    return np.array([out, excess, located, spare, fitting]) / HOUR_S


@once
def last_s(log: FleetLog) -> int:
    """End of the window: the log's, or the last moment at which it tells that an attempt still ran."""
    return max(int(log.end_s), log.value(f"SELECT max(stop_s) FROM {log.executions}") or 0)


def _uses(log: FleetLog, begin: int, end: int) -> pa.Table:
    """What attempts use of each node in a part of the window: node, amount, low, high (s)."""
    return log.arrow(
        f"""SELECT * FROM (
            SELECT unnest(nodes) AS node, {width(log)} / CAST(array_length(nodes) AS DOUBLE) AS amount,
                greatest(stop_s - exposed_s, {begin}) AS low, least(stop_s, {end}) AS high
            FROM {log.executions} WHERE exposed_s > 0 AND array_length(nodes) > 0 AND {width(log)} > 0
                AND stop_s > {begin} AND stop_s - exposed_s < {end}
        ) AS uses WHERE node IN (SELECT node FROM {log.table("nodes")})"""
    )


def _outages(log: FleetLog, begin: int, end: int) -> pa.Table:
    """When nodes were out of service, in a part of the window: node, low, high (s)."""
    return log.arrow(
        f"""SELECT * FROM (
            SELECT node, greatest(start_s, {begin}) AS low,
                least(coalesce(end_s, CASE WHEN state <> 'FAILURE' THEN {end} END, start_s), {end}) AS high
            FROM {log.table("node_outages")}
        ) AS outages WHERE high > low AND node IN (SELECT node FROM {log.table("nodes")})"""
    )


def _sweep(
    nodes: pa.Table, used: pa.Table, down: pa.Table, begin: int, end: int
) -> tuple[float, float, Floats, Floats]:
    """Go through the time of every node, from one second to another.

    Returns:
        Seconds x GPUs out of service, and in use beyond the inventory; the GPUs that were idle in all
        from each of some moments [m] to the next; these moments [m], from the window's begin to its end.
    """
    # 1. Every change of a node, in order: what is used of it, and how many outages are open. All that
    # begins ends, so that the sum over one node after the other is that of each.
    sizes, span = nodes["size"].fill_null(0).to_numpy(), end - begin + 1
    first, place = np.arange(sizes.size) * span, nodes["node"].combine_chunks()
    keys = [first, first + span - 1]
    for table in (used, down):
        node = pc.index_in(table["node"], place).to_numpy().astype(np.int64) * span
        keys += [node + np.clip(table[n].to_numpy() - begin, 0, span - 1) for n in ("low", "high")]
    edges = np.cumsum([0, *map(len, keys)])[2:]
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")
    amount = used["amount"].to_numpy()
    change, outages = np.zeros(key.size), np.zeros(key.size, np.int32)
    change[edges[0] : edges[1]], change[edges[1] : edges[2]] = amount, -amount
    outages[edges[2] : edges[3]], outages[edges[3] :] = 1, -1
    key, in_use, is_down = key[order], np.cumsum(change[order]), np.cumsum(outages[order]) > 0
    # 2. What is free of each node until its next change.
    node = key // span
    last = np.append(node[1:] != node[:-1], True)
    size, length = sizes[node], np.append(np.diff(key), 0)
    length[last] = 0
    excess = float(np.dot(np.maximum(in_use - size, 0.0), length))
    free = np.maximum(size - in_use, 0.0)
    out = float(np.dot(free[is_down], length[is_down]))
    # 3. All nodes together: each one's changes of what is idle.
    free[is_down | last] = 0.0
    key -= node * span
    moments, place_of = np.unique(key, return_inverse=True)
    levels = np.cumsum(np.bincount(place_of, np.diff(free, prepend=0.0)))
    return out, excess, np.maximum(levels, 0.0), moments.astype(np.float64) + begin


def _fitting(log: FleetLog, idle: Floats, moments: Floats) -> float:
    """Seconds x idle GPUs that waiting jobs could have used, each of them no larger than what was idle.

    It is the most: any idle GPU would have done, whatever its node, partition or reservation.
    """
    begin, end = int(moments[0]), int(moments[-1])
    # What is held, or depends on another job, has no time from which on it may start.
    told = log.value(f"SELECT count(eligible_s) > 0 FROM {log.attempts}")
    since = f"CASE WHEN start_s IS NULL AND {told} THEN eligible_s ELSE coalesce(eligible_s, submit_s) END"
    waits = log.arrow(
        f"""SELECT * FROM (
            SELECT CASE WHEN job_id LIKE '%[%' THEN job_id END AS several,
                CAST({width(log)} AS DOUBLE) AS size, greatest({since}, {begin}) AS low,
                least(coalesce(start_s, end_s, {end}), {end}) AS high
            FROM {log.attempts} WHERE {width(log)} > 0 AND {since} IS NOT NULL
        ) AS waits WHERE high > low"""
    )
    several = waits["several"].combine_chunks()
    tasks = np.ones(len(several))
    tasks[several.is_valid().to_numpy(zero_copy_only=False)] = [
        *map(tasks_of, several.drop_null().to_pylist())
    ]
    size, low, high = (waits[name].to_numpy() for name in ("size", "low", "high"))
    times = np.unique(np.concatenate([moments, low, high]))
    free = idle[np.searchsorted(moments, times, "right") - 1]
    fitting = np.zeros(times.size)
    for each in np.unique(size):
        mine = size == each
        begun, over = (
            np.bincount(np.searchsorted(times, at[mine]), tasks[mine], times.size)
            for at in (low, high)
        )
        fitting += np.where(each <= free + ROUNDING, each * np.cumsum(begun - over), 0.0)
    return float(np.dot(np.minimum(free, fitting)[:-1], np.diff(times)))


def tasks_of(job_id: str) -> int:
    """Tasks of a row of `sacct`: several where an array waits, ``"10_[3-9,20-40:2%4]"``."""
    spec = job_id.partition("[")[2].partition("%")[0].rstrip("]")
    count = 0
    for low, high, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", spec):
        count += (int(high or low) - int(low)) // int(step or 1) + 1
    return max(count, 1)
