"""How long nodes were in use: the exposure of every failure rate.

A node that eight jobs share is one node, and fails once for all of them: each moment of a node counts
once, for the largest job that was on it then. Where nodes are not shared this is the sum of
runtime x nodes over the attempts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.fleet.job_sizes import bucket_top
from holdfast.fleet.log import DAY_S, FleetLog

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NO_NODE = -1


@dataclass(frozen=True)
class NodeTime:
    """The use of nodes by attempts above a size."""

    base_s: int  # Of `begin_s` and `end_s`
    begin_s: npt.NDArray[
        np.int32
    ]  # Spans in which `nodes` were in use, none of them twice, shape [m]
    end_s: npt.NDArray[np.int32]
    nodes: npt.NDArray[np.int32]
    by_size: dict[int, float]  # Largest job of a bucket -> node-days
    # node, node_count (of the attempts), node_days; and attempt_days, in which attempts that overlap
    # count each
    by_node: pa.Table

    def until(self, at_s: npt.ArrayLike) -> Floats:
        """Node-days from the beginning up to moments, shape [n]."""
        moments = np.asarray(at_s, np.float64) - self.base_s
        order = np.argsort(moments, kind="stable")
        edges = moments[order]
        grown = np.zeros(edges.size)
        for times, sign in ((self.begin_s, 1), (self.end_s, -1)):
            # Sum of nodes x (moment - time) over the spans that began, or ended, before each moment
            after = np.searchsorted(edges, times, "right")
            nodes = np.bincount(after, self.nodes, edges.size + 1).cumsum()[:-1]
            moved = np.bincount(after, self.nodes * (times - edges[0]), edges.size + 1)
            grown += sign * (nodes * (edges - edges[0]) - moved.cumsum()[:-1])
        found = np.empty(edges.size)
        found[order] = grown / DAY_S
        return found


def larger_than(min_gpus: int) -> str:
    """SQL: attempts with more than `min_gpus` GPUs; with 0, every attempt (also those without GPUs)."""
    return "TRUE" if min_gpus == 0 else f"gpus > {min_gpus}"


def node_time(log: FleetLog, min_gpus: int) -> NodeTime:
    """The use of nodes by attempts with more GPUs than `min_gpus`; 0: by all."""
    name = f"node_time_{min_gpus}"
    if name not in log.found:
        log.found[name] = _node_time(log, min_gpus)
    found: NodeTime = log.found[name]
    return found


def _node_time(log: FleetLog, min_gpus: int) -> NodeTime:
    numbers = log.keep(
        "node_numbers",
        "SELECT node AS numbered, row_number() OVER (ORDER BY node) - 1 AS number "
        f"FROM (SELECT DISTINCT node FROM {log.table('nodes')}) AS known",
    )
    base = int(log.begin_s)
    columns = f"""CAST(stop_s - exposed_s - {base} AS INTEGER) AS begin_s,
        CAST(stop_s - {base} AS INTEGER) AS end_s, CAST({bucket_top()} AS INTEGER) AS gpus_max,
        CAST(node_count AS INTEGER) AS node_count"""
    ran = (
        f"FROM {log.executions} WHERE {larger_than(min_gpus)} AND exposed_s > 0 AND node_count > 0"
    )
    rows = log.arrow(
        f"""SELECT begin_s, end_s, gpus_max, node_count, CAST(number AS INTEGER) AS node
        FROM (SELECT {columns}, unnest(nodes) AS node {ran}) AS held
        JOIN {numbers} AS numbers ON held.node = numbered
        UNION ALL
        SELECT {columns}, {NO_NODE} {ran} AND coalesce(array_length(nodes), 0) = 0"""
    )
    begin, end, top, size, node = (rows[name].to_numpy() for name in rows.column_names)
    # 1. All nodes on one line, far apart, each row after those that began before it on its node.
    span = int(end.max(initial=0)) - int(begin.min(initial=0)) + 1
    place = node.astype(np.int64) * (2 * span)
    order = np.argsort(place + begin)
    starts, stops = (place + begin)[order], (place + end)[order]
    new = (starts >= _reach(stops)) | (node[order] == NO_NODE)  # the node is free when it starts
    group = np.cumsum(new) - 1
    shared = np.bincount(group, minlength=1)[group] > 1
    shared &= node[order] != NO_NODE
    # 2. What overlaps nothing counts as it is ...
    nodes = np.where(node == NO_NODE, size, 1)
    apart = order[~shared]
    tops, of_top = np.unique(top, return_inverse=True)
    alone_s = (end - begin).astype(np.float64)[apart] * nodes[apart]
    by_size = np.bincount(of_top[apart], alone_s, tops.size)
    # ... of the others, what jobs of a size or above use, less what larger ones use.
    used, first, larger_s = order[:0], begin[:0], 0.0
    for bucket in np.unique(of_top[order[shared]])[::-1]:
        chosen = np.flatnonzero(shared & (of_top[order] >= bucket))
        fresh = np.maximum(starts[chosen], _reach(stops[chosen]))
        left = fresh < stops[chosen]
        used = order[chosen[left]]
        first = (fresh[left] - place[used]).astype(np.int32)
        seconds = float((end[used] - first).sum(dtype=np.int64))
        by_size[bucket] += seconds - larger_s
        larger_s = seconds
    # 3. The union of all sizes, by node.
    row, first = np.concatenate([apart, used]), np.concatenate([begin[apart], first])
    names = log.arrow(f"SELECT numbered FROM {numbers} ORDER BY numbered")["numbered"]
    most = int(size.max(initial=0)) + 1
    pairs, of_pair = np.unique(node.astype(np.int64) * most + size, return_inverse=True)
    union_s = np.bincount(of_pair[row], end[row] - first, pairs.size)
    each_s = np.bincount(of_pair, end - begin, pairs.size)
    on = pairs >= 0  # the others have no node
    by_node = {
        "node": names.take(pa.array(pairs[on] // most)),
        "node_count": pairs[on] % most,
        "node_days": union_s[on] / DAY_S,
        "attempt_days": each_s[on] / DAY_S,
    }
    sizes = dict(zip(tops.tolist(), (by_size / DAY_S).tolist(), strict=True))
    return NodeTime(base, first, end[row], nodes[row].astype(np.int32), sizes, pa.table(by_node))


def _reach(stops: Ints) -> Ints:
    """The latest end before each row, the first having none, shape [h]."""
    none = np.full(1, np.iinfo(np.int64).min)
    return np.concatenate([none, np.maximum.accumulate(stops)[:-1]])[: stops.size]
