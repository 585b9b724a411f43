"""The unit of evidence of the room: the incident, a failure of one node at one moment.

Rates, intervals, trends, dispersion and lemon nodes are computed from incidents; attempts only say what an
incident cost. Three notions, each a column of the tables below:

- An **incident** is the failure of a node, or of an unknown node among those of an attempt. What a node's
  failure ends within `incident_gap_s` is one incident, however many attempts that are. Failures whose node
  is unknown join the incident of a node of theirs at that moment, else each other where they share nodes.
- A **cluster** is what may have one reason: incidents that begin within a burst (`BURST_S`), those of one
  job on one node, and those of a run that fails more often than chance explains (a crash loop).
  Clusters are independent; so intervals weight each by its incidents, and trends count each once.
- A **witness** is a job (all tasks of an array are one). A job that fails on a node again says nothing
  new of the node: it may be the job. An incident counts for a node if it brings a new witness.

Of several jobs that shared a node, the largest counts: an incident is one of the size of the largest
attempt that it ended, as each moment of a node is of the largest job on it (`holdfast.fleet.node_time`).
So sizes and thresholds partition the incidents as they do the exposure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.attribution import UNATTRIBUTED, blamed_nodes, infrastructure_failures
from holdfast.fleet.job_sizes import bucket_top
from holdfast.fleet.log import DAY_S, NODE_FAIL, FleetLog
from holdfast.fleet.outage_log import only_outages, outage_failures

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Slurm's default SlurmdTimeout: nodes that are lost together are noticed within it
BURST_S = 300.0
# Chance may link this share of independent incidents to a burst, which widens intervals by half of it
CHANCE_SHARE = 0.05
LOOP_P = 0.01  # A run whose failures have a smaller probability at its size's rate is in a loop
NO_NODE = -1


@dataclass(frozen=True)
class _Failures:
    """Failed attempts [a], and the nodes that each may blame [r], by attempt."""

    table: pa.Table  # key, run, job, gpus, label, state, stop_s, node_count [a], by time
    nodes: pa.Array  # Names
    attempt: Ints  # [r] index into `table`
    node: Ints  # [r] index into `nodes`, or `NO_NODE`
    event_s: Floats  # [r] when the node failed, as far as it is known
    alone: npt.NDArray[np.bool_]  # [r] whether the attempt blames no other node


def incidents(log: FleetLog) -> str:
    """The incidents of a log, one row each.

    Columns: incident (number), cluster (number), stop_s (the first end), label (of its cause), gpus (of
    the largest attempt that it ended), node (null where unknown), attempts (that it ended).
    """
    return _tables(log)[0]


def ended_attempts(log: FleetLog) -> str:
    """What each incident ended: key (of the attempt), incident."""
    return _tables(log)[1]


def node_incidents(log: FleetLog) -> str:
    """What counts for or against each node: its incidents, those without a new witness left out.

    Columns: node, incident, node_count (of the largest attempt), blame (1, or 1/n for each of n nodes
    that may have failed), known (blame is 1), node_fail (whether Slurm called it so), stop_s.
    """
    return _tables(log)[2]


def witnesses(log: FleetLog) -> str:
    """Who blames each node: node, jobs (number), job (one of them), attempts, known (the sure ones)."""
    return _tables(log)[3]


def _tables(log: FleetLog) -> tuple[str, str, str, str]:
    names = "incidents", "ended_attempts", "node_incidents", "witnesses"
    if names[0] not in log.named:
        for name, table in zip(names, _find(log), strict=True):
            log.engine.load(name, table)
            log.named.add(name)
    return names


def _find(log: FleetLog) -> Iterator[pa.Table]:
    """The four tables."""
    failed = _failures(log)
    incident = _incidents(failed, log.assumptions.incident_gap_s)  # [a]
    count = int(incident.max(initial=-1)) + 1
    stop, gpus = (failed.table[name].to_numpy() for name in ("stop_s", "gpus"))
    first_s, largest = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first_s, incident, stop)
    np.maximum.at(largest, incident, gpus)
    node = np.full(count, NO_NODE)
    rows = failed.alone & (failed.node != NO_NODE)
    node[incident[failed.attempt[rows]]] = failed.node[rows]
    labels = failed.table["label"]
    label = np.full(count, UNATTRIBUTED, dtype=object)
    told = pc.not_equal(labels, UNATTRIBUTED).to_numpy(zero_copy_only=False)
    # The first attempt with a cause names it: attempts are in order of time.
    label[incident[told][::-1]] = np.asarray(labels.to_pylist(), object)[told][::-1]
    yield pa.table(
        {
            "incident": np.arange(count),
            "cluster": _clusters(log, failed, incident, first_s),
            "stop_s": first_s,
            "label": pa.array(label.tolist(), pa.string()),
            "gpus": largest,
            "node": failed.nodes.take(pa.array(node, mask=node == NO_NODE)),
            "attempts": np.bincount(incident, minlength=count),
        }
    )
    yield pa.table({"key": failed.table["key"], "incident": incident})
    yield from _of_nodes(failed, incident, first_s)


def _failures(log: FleetLog) -> _Failures:
    """Every infrastructure failure with the nodes that it may blame."""
    if only_outages(log):
        query = f"""SELECT row_number() OVER (ORDER BY stop_s, node) AS key, NULL AS run, NULL AS job,
                0 AS gpus, label, '{NODE_FAIL}' AS state, CAST(stop_s AS BIGINT) AS stop_s,
                1 AS node_count, 0 AS node_days, node, 1 AS blame, stop_s AS event_s
            FROM {outage_failures(log)}"""
    else:
        query = f"""SELECT failed.key, run, split_part(split_part(failed.job_id, '_', 1), '+', 1) AS job,
                gpus, label, failed.state, failed.stop_s, coalesce(failed.node_count, 0) AS node_count,
                coalesce(failed.node_count, 0) * coalesce(runtime_s, 0) / {DAY_S} AS node_days,
                node, blame, event_s
            FROM {infrastructure_failures(log)} AS failed
            LEFT JOIN {blamed_nodes(log)} AS blamed ON failed.key = blamed.key"""
    rows = log.arrow(
        f"""SELECT key, run, job, CAST(coalesce(gpus, 0) AS BIGINT) AS gpus, label, state, stop_s,
            CAST(node_count AS BIGINT) AS node_count, CAST(node_days AS DOUBLE) AS node_days, node,
            CAST(coalesce(blame, 1) AS DOUBLE) AS blame,
            CAST(coalesce(event_s, stop_s) AS DOUBLE) AS event_s
        FROM ({query}) AS failed ORDER BY stop_s, key, node"""
    )
    key = rows["key"].to_numpy()
    begins = np.flatnonzero(np.diff(key, prepend=key[:1] - 1)) if len(key) else np.zeros(0, int)
    nodes = pc.unique(rows["node"]).drop_null()
    node = pc.fill_null(pc.index_in(rows["node"], value_set=nodes), NO_NODE).to_numpy()
    attempt = np.repeat(np.arange(begins.size), np.diff([*begins, key.size]))
    alone = rows["blame"].to_numpy() == 1
    event = rows["event_s"].to_numpy()
    return _Failures(rows.take(begins), nodes, attempt, node.astype(np.int64), event, alone)


def _incidents(failed: _Failures, gap_s: float) -> Ints:
    """The incident of each attempt [a], numbered in order of time."""
    number = np.full(failed.table.num_rows, NO_NODE)
    # 1. One line of all nodes, each so far from the next that nothing links across.
    begin_s = failed.event_s.min(initial=0.0)
    span = failed.event_s.max(initial=0.0) - begin_s + 4 * gap_s + 1
    line = failed.node * span + failed.event_s - begin_s  # [r]
    has_node = failed.node != NO_NODE
    # 2. Attempts that blame one node: what follows within the gap on that node is one incident.
    sure = np.flatnonzero(failed.alone & has_node)
    sure = sure[np.argsort(line[sure], kind="stable")]
    on_line = line[sure]
    numbers = np.cumsum(np.diff(on_line, prepend=on_line[:1]) > gap_s)
    number[failed.attempt[sure]] = numbers
    # 3. An attempt that blames several joins the nearest incident of one of them.
    if sure.size:
        rows = np.flatnonzero(~failed.alone & has_node)[::-1]  # of equals the first node wins
        after = np.searchsorted(on_line, line[rows])
        near = np.stack([np.maximum(after - 1, 0), np.minimum(after, sure.size - 1)])
        away = np.abs(on_line[near] - line[rows])
        side = (away.argmin(axis=0), np.arange(rows.size))
        best, away = near[side], away[side]
        order = np.argsort(-away, kind="stable")  # the nearest is written last
        order = order[away[order] <= gap_s]
        number[failed.attempt[rows[order]]] = numbers[best[order]]
    # 4. The others are one incident where they share a node at that moment.
    rows = np.flatnonzero(has_node & (number[failed.attempt] == NO_NODE))
    rows = rows[np.argsort(line[rows], kind="stable")]
    close = np.diff(line[rows]) <= gap_s
    ends = failed.attempt[rows]
    groups = _components(number.size, ends[:-1][close], ends[1:][close])
    left = number == NO_NODE
    number[left] = groups[left] + int(numbers.max(initial=0)) + 1
    # In order of time: attempts are.
    _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _clusters(log: FleetLog, failed: _Failures, incident: Ints, first_s: Ints) -> Ints:
    """The cluster of each incident: what may have one reason is one."""
    left, right = [incident[:0]], [incident[:0]]

    def link(values: npt.NDArray[Any], chosen: npt.NDArray[np.bool_], of: Ints) -> None:
        """Incidents `of` the chosen places with equal values."""
        places = np.flatnonzero(chosen)
        places = places[np.argsort(values[places], kind="stable")]
        same = values[places][1:] == values[places][:-1]
        left.append(of[places][:-1][same])
        right.append(of[places][1:][same])

    # 1. A burst; not where chance would link as much, or times are too coarse to tell.
    order = np.argsort(first_s, kind="stable")
    spacing_s = (log.end_s - log.begin_s) / max(first_s.size, 1)
    burst_s = min(BURST_S, CHANCE_SHARE * spacing_s)
    if np.gcd.reduce(np.diff(first_s[order]), initial=0) <= burst_s:
        close = np.diff(first_s[order]) <= burst_s
        left.append(order[:-1][close])
        right.append(order[1:][close])
    # 2. One job on one node, again and again.
    runs = failed.table["run"].combine_chunks()
    if runs.null_count < len(runs):
        job = failed.table["job"].combine_chunks().dictionary_encode().indices.to_numpy()
        rows = failed.alone & (failed.node != NO_NODE)
        pair = failed.node * (int(job.max()) + 1) + job[failed.attempt]
        link(pair, rows, incident[failed.attempt])
        # 3. A run that fails more often than chance explains.
        run = runs.dictionary_encode().indices.to_numpy().astype(np.int64)
        link(run, _loops(log, failed, run)[run], incident)
    return _components(first_s.size, np.concatenate(left), np.concatenate(right))


def _loops(log: FleetLog, failed: _Failures, run: Ints) -> npt.NDArray[np.bool_]:
    """Whether each run fails more often than attempts of its size, or of all, explain."""
    from scipy.special import gammainc

    used = {
        row["top"]: row["days"]
        for row in log.rows(
            f"SELECT {bucket_top()} AS top, sum(node_days) AS days FROM {log.usage} GROUP BY 1"
        )
    }
    tops = np.array(sorted(used), np.int64)
    days_of = np.array([used[top] for top in tops.tolist()])
    place = np.searchsorted(tops, failed.table["gpus"].to_numpy())
    failures, days = np.bincount(run), np.bincount(run, failed.table["node_days"].to_numpy())
    size = np.zeros(failures.size, np.int64)
    size[run] = place
    of_size = np.bincount(place, minlength=tops.size)
    rate = np.zeros(failures.size)
    for all_failures, all_days in (
        (of_size[size], days_of[size]),
        (run.size, days_of.sum()),
    ):
        # Without the run itself; a size that hardly anything else had tells nothing.
        others, rest = all_failures - failures, all_days - days
        rate = np.maximum(rate, np.where(rest > days, others / np.maximum(rest, 1e-9), 0.0))
    # P(at least so many): a run is looked at because it failed, so the first failure is given.
    return (failures > 1) & (gammainc(np.maximum(failures, 1), rate * days) < LOOP_P)


def _of_nodes(failed: _Failures, incident: Ints, first_s: Ints) -> Iterator[pa.Table]:
    """`node_incidents` and `witnesses`."""
    has_node = failed.node != NO_NODE
    # 1. The nodes that may have failed in each incident: those that most of its attempts blame; the
    # node that one attempt blames alone is it.
    attempt, node = failed.attempt[has_node], failed.node[has_node]
    alone = failed.alone[has_node]
    nodes = max(len(failed.nodes), 1)
    pair = incident[attempt] * nodes + node
    pairs, of_pair = np.unique(pair, return_inverse=True)
    votes = np.bincount(of_pair, 1 + failed.table.num_rows * alone.astype(np.float64))
    most = np.zeros(first_s.size)
    np.maximum.at(most, pairs // nodes, votes)
    blamed = votes == most[pairs // nodes]
    number, name = pairs // nodes, pairs % nodes  # [p]
    known = np.bincount(of_pair, alone, pairs.size) > 0
    blamed |= known
    blame = np.where(
        known, 1.0, 1 / np.maximum(np.bincount(number[blamed], minlength=first_s.size), 1)[number]
    )
    # 2. Witnesses: the first incident of each job on each node, those that name the node first.
    jobs = failed.table["job"].combine_chunks()
    counts = blamed.copy()
    job = np.arange(failed.table.num_rows)
    if jobs.null_count < len(jobs):
        job = jobs.dictionary_encode().indices.to_numpy().astype(np.int64)
    seen = blamed[of_pair]
    order = np.lexsort((first_s[incident[attempt]], -blame[of_pair]))
    order = order[seen[order]]
    witness = node[order] * (int(job.max(initial=0)) + 1) + job[attempt[order]]
    distinct, first = np.unique(witness, return_index=True)
    counts = np.zeros(pairs.size, bool)
    counts[of_pair[order[first]]] = True
    size = np.zeros(pairs.size, np.int64)
    np.maximum.at(size, of_pair, failed.table["node_count"].to_numpy()[attempt])
    slurm = pc.equal(failed.table["state"], NODE_FAIL).to_numpy(zero_copy_only=False)
    node_fail = np.bincount(of_pair, slurm[attempt], pairs.size) > 0
    columns = {
        "incident": number,
        "node_count": size,
        "blame": blame,
        "known": blame == 1,
        "node_fail": node_fail,
        "stop_s": first_s[number],
    }
    names = {"node": failed.nodes.take(pa.array(name))}
    yield pa.table(names | columns).filter(pa.array(counts))
    # 3. Who blames each node.
    of_node = distinct // (int(job.max(initial=0)) + 1)
    on, jobs_on = np.unique(of_node, return_counts=True)
    one = attempt[order[first]][np.searchsorted(of_node, on)]
    attempts = np.bincount(node[seen], minlength=nodes)[on]
    named = np.bincount(node[seen & alone], minlength=nodes)[on]
    yield pa.table(
        {
            "node": failed.nodes.take(pa.array(on)),
            "jobs": jobs_on,
            "job": failed.table["job"].take(pa.array(one)).cast(pa.string()),
            "attempts": attempts,
            "known": named,
        }
    )


def _components(count: int, left: Ints, right: Ints) -> Ints:
    """Connected components of `count` things by links between them: a number each."""
    if not left.size:
        return np.arange(count, dtype=np.int64)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(left.size, np.int8), (left, right)), shape=(count, count))
    return connected_components(links, directed=False)[1].astype(np.int64)
