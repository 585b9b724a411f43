"""How long nodes were in use: the exposure of every failure rate.

A node that eight jobs share is one node, and fails once for all of them: each moment of a shared node
counts once, for the largest job that was on it then. An attempt with all the GPUs of its nodes has them
for itself; so the exposure of such attempts is the sum of runtime x nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.job_sizes import BUCKET_TOPS
from holdfast.fleet.log import DAY_S, FleetLog, once

Floats = npt.NDArray[np.float64]
ANY_SIZE = -1  # All GPU counts are above it
Times = npt.NDArray[np.int32]  # Seconds after `NodeTime.base_s`


@dataclass(frozen=True)
class NodeTime:
    """The use of nodes by attempts above a size."""

    base_s: int
    begin_s: Times  # Spans in which so many `nodes` were in use, shape [m]
    end_s: Times
    nodes: npt.NDArray[np.int32]
    by_size: dict[int, float]  # Largest job of a bucket -> node-days
    # Of nodes that attempts share: node, node_count (of the attempts), node_days; and attempt_days,
    # in which attempts that overlap count each
    shared: pa.Table

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
        until = np.empty(edges.size)
        until[order] = grown / DAY_S
        return until


def threshold(log: FleetLog, min_gpus: int) -> int:
    """What the GPUs of an attempt that a failure rate counts are above.

    Attempts without GPUs are of another kind, and count only in a log without any GPU: there `ANY_SIZE`.
    """
    return min_gpus if min_gpus or log.has_gpus else ANY_SIZE


def has_whole_nodes(log: FleetLog) -> str:
    """SQL: whether an attempt shares its nodes with no other, as far as an inventory tells."""
    most = log.value(f"SELECT max(gpus) FROM {log.table('nodes')} WHERE NOT inferred")
    return f"(gpus >= {most} * node_count)" if most else "FALSE"


@once
def _spans(log: FleetLog) -> tuple[pa.Table, pa.Table]:
    """When attempts ran: those that have their nodes for themselves, and a row per node of the others."""
    base = int(log.begin_s)
    columns = f"""CAST(stop_s - exposed_s - {base} AS INTEGER) AS begin_s,
        CAST(stop_s - {base} AS INTEGER) AS end_s, CAST(coalesce(gpus, 0) AS INTEGER) AS gpus,
        CAST(node_count AS INTEGER) AS node_count"""
    ran = f"FROM {log.executions} WHERE exposed_s > 0 AND node_count > 0"
    # (or on nodes that the log does not tell)
    whole = f"(coalesce({has_whole_nodes(log)}, FALSE) OR coalesce(array_length(nodes), 0) = 0)"
    apart = log.arrow(f"SELECT {columns} {ran} AND {whole}")
    rows = log.arrow(f"SELECT {columns}, unnest(nodes) AS node {ran} AND NOT {whole}")
    return apart, rows


@once
def node_time(log: FleetLog, min_gpus: int) -> NodeTime:
    """The use of nodes by attempts with more GPUs than `min_gpus`; `ANY_SIZE`: by all."""
    base = int(log.begin_s)
    apart, held = _spans(log)
    apart, held = (each.filter(pc.greater(each["gpus"], min_gpus)) for each in (apart, held))
    # 1. Attempts that have their nodes for themselves.
    begin, end, gpus, nodes = (apart[name].to_numpy() for name in apart.column_names[:4])
    tops = np.array(BUCKET_TOPS, np.int32)
    seconds = np.bincount(np.searchsorted(tops, gpus), (end - begin) * nodes, tops.size + 1)
    spans = [(begin, end, nodes)]
    # 2. The others, node by node: one line of all nodes, far apart, in order of time.
    names = held["node"].combine_chunks().dictionary_encode()
    begin, end, gpus = (held[name].to_numpy() for name in held.column_names[:3])
    span = int(end.max(initial=0)) - int(begin.min(initial=0)) + 1
    line = names.indices.to_numpy().astype(np.int64) * span
    order = np.argsort(line + begin, kind="stable")
    line, begin, end = line[order], begin[order], end[order]
    size = np.searchsorted(tops, gpus[order])  # of each attempt: the place of its bucket
    first = begin[:0]
    larger_s = 0
    chosen = last = np.arange(0)
    # 3. What jobs of a size or above use, each moment once; less what larger ones use is the size's.
    for bucket in np.unique(size)[::-1].tolist():
        chosen = np.flatnonzero(size >= bucket)
        stops = line[chosen] + end[chosen]
        before = np.maximum.accumulate(np.concatenate([[-span], stops]))[:-1]
        begins = np.maximum(begin[chosen], before - line[chosen])
        last = chosen[begins < end[chosen]]
        first = begins[begins < end[chosen]].astype(np.int32)
        used_s = int((end[last] - first).sum(dtype=np.int64))
        seconds[bucket] += used_s - larger_s
        larger_s = used_s
    spans.append((first, end[last], np.ones(last.size, np.int32)))
    # 4. By node; the last size was the smallest, so its spans are those of all.
    of_node = held.select(["node", "node_count"]).take(order)
    union_s = np.zeros(end.size, np.int64)
    union_s[last] = end[last] - first
    of_node = of_node.append_column("node_days", pa.array(union_s / DAY_S))
    of_node = of_node.append_column("attempt_days", pa.array((end - begin) / DAY_S))
    sums = [("node_days", "sum"), ("attempt_days", "sum")]
    shared = of_node.group_by(["node", "node_count"], use_threads=False).aggregate(sums)
    shared = shared.rename_columns(["node", "node_count", "node_days", "attempt_days"])
    by_size = {top: s / DAY_S for top, s in zip(BUCKET_TOPS, seconds.tolist(), strict=False) if s}
    begin, end, nodes = (np.concatenate(each) for each in zip(*spans, strict=True))
    return NodeTime(base, begin, end, nodes, by_size, shared)
