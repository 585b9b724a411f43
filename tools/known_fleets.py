"""Logs of fleets whose failures are known, to prove the failure rate and the lemons against.

Nothing here comes from the simulator or the analyses: nodes fail as Poisson processes while a job uses
them, and each failure ends what runs on its node. Jobs may share nodes, span nodes, come back to the node
that failed them, or fail by themselves again and again where they are; a switch may take sixteen nodes at
one moment.

A log takes a few thousand rows. They are written as a store directly; a test ingests the same log as text
of `sacct` and gets the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.fleet.schema import NODES, TABLES
from holdfast.fleet.simulation.log_tables import job_runtimes
from holdfast.fleet.store import write_manifest

BEGIN_S = 1_767_225_600  # 2026-01-01
DAY_S = 86_400
PERIOD_S = 3 * DAY_S  # Each node gets new jobs this often
GPUS = 8
SWITCH = 16  # Nodes behind one switch
BACK_S = 3_600  # A failed job is back on its nodes after this long
LOOP = (2, 8)  # Failures of a looping job, at least and at most
ROUNDS = 4  # Times that a job starts within a period, at most
NOTICE_S = 20  # Nodes behind a switch notice its failure within this long

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """A fleet, its jobs and how it fails."""

    nodes: int = 48
    periods: int = 16
    rate: float = 0.02  # Failures of a healthy node per node-day in use
    jobs: tuple[tuple[int, int], ...] = (
        (1, GPUS),
    )  # Kinds in turn: nodes per job, jobs that share them
    even: bool = (
        True  # The jobs that share a node end together, unless it fails: no GPU of it is idle
    )
    requeued: bool = False  # Failed jobs come back to the same nodes
    loops: float = 0.0  # Expected looping jobs
    bursts: float = 0.0  # Expected failures of a switch
    lemons: int = 0
    factor: float = 1.0  # Failures of a lemon for one of a healthy node


@dataclass(frozen=True)
class Drawn:
    """A log of a known fleet, one entry of each array per attempt."""

    fleet: Known
    job: Ints
    attempt: Ints
    first: Ints  # Place in `order` of its first node
    span: Ints  # Its nodes
    order: Ints  # Nodes, those of one attempt side by side
    gpus: Ints
    start_s: Ints  # After BEGIN_S
    end_s: Ints
    failed: npt.NDArray[np.bool_]  # NODE_FAIL, else COMPLETED
    lemons: Ints
    incidents: int  # Failures of nodes that ended attempts: each node at a moment once
    node_days: float  # Time in which an attempt was on a node, each node once

    def tables(self) -> dict[str, pa.Table]:
        """The store's tables."""
        n = len(self.job)
        names = pa.array([f"n{k:03d}" for k in range(self.fleet.nodes)])
        ends = np.cumsum(self.span)
        places = np.repeat(self.first - (ends - self.span), self.span) + np.arange(ends[-1])
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        columns = {
            "job_id": pa.array(self.job.astype(str)),
            "job_id_raw": self.job,
            "attempt": self.attempt,
            "state": np.where(self.failed, "NODE_FAIL", "COMPLETED"),
            "submit_s": BEGIN_S + self.start_s,
            "eligible_s": BEGIN_S + self.start_s,
            "start_s": BEGIN_S + self.start_s,
            "end_s": BEGIN_S + self.end_s,
            "runtime_s": self.end_s - self.start_s,
            "job_runtime_s": job_runtimes(self.job, self.attempt, self.end_s - self.start_s),
            "ran": np.ones(n, bool),
            "node_count": self.span,
            "nodes": pa.ListArray.from_arrays(offsets, names.take(pa.array(self.order[places]))),
            "gpus": self.gpus,
            "recovered": np.zeros(n, bool),
            "key": np.arange(n),
            "cluster": pa.array(["c"] * n),
            "user": pa.array(["u"] * n),
        }
        inventory = {"cluster": ["c"] * len(names), "node": names, "gpus": [GPUS] * len(names)}
        return {
            "attempts": _filled(TABLES["attempts"], columns, n),
            "nodes": _filled(NODES, inventory, len(names)),
        }

    def store(self, folder: Path) -> Path:
        """Write a store; one that is there is replaced."""
        files = {}
        for name, table in self.tables().items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, folder / name / "0001.parquet", compression="none")
            files[name] = [f"{name}/0001.parquet"]
        span = [BEGIN_S + int(self.start_s.min()), BEGIN_S + int(self.end_s.max())]
        facts = {
            "clusters": ["c"],
            "cluster": "c",
            "node_total": None,
            "commits": 1,
            "sources": [],
            "inferred": [],
        }
        facts |= {
            "tables": files,
            "time_range": span,
            "timezone": "UTC",
            "duplicates_flag": "present",
        }
        write_manifest(folder, facts)
        return folder

    def sacct(self) -> str:
        """The attempts as `sacct -D -P` prints them."""
        lines = [
            "JobID|JobIDRaw|Cluster|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
        ]
        for row in self.tables()["attempts"].to_pylist():
            start, end = (str(np.datetime64(row[name], "s")) for name in ("start_s", "end_s"))
            cells = [
                row["job_id"],
                row["job_id"],
                "c",
                "u",
                row["state"],
                start,
                start,
                end,
                row["runtime_s"],
            ]
            tres = f"gres/gpu={row['gpus']},node={row['node_count']}"
            lines.append(
                "|".join(map(str, [*cells, row["node_count"], ",".join(row["nodes"]), tres]))
            )
        return "\n".join(lines) + "\n"


def _filled(schema: pa.Schema, columns: dict[str, object], n: int) -> pa.Table:
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def draw(fleet: Known, seed: int) -> Drawn:
    """Draw a log."""
    rng = np.random.default_rng(seed)
    lemons = rng.choice(fleet.nodes, fleet.lemons, replace=False)
    rates = np.full(fleet.nodes, fleet.rate)
    rates[lemons] *= fleet.factor
    shocks = [np.sort(each) for each in _shocks(fleet, rng)]
    # Each period deals the nodes anew to slots, which have kinds of jobs in turn.
    span, share = _slots(fleet)
    order = np.concatenate([rng.permutation(fleet.nodes) for _ in range(fleet.periods)])
    period = np.repeat(np.arange(fleet.periods), len(span))
    first = np.tile(np.cumsum(span) - span, fleet.periods) + period * fleet.nodes
    span, share = np.tile(span, fleet.periods), np.tile(share, fleet.periods)
    start = PERIOD_S * (period + 0.1 * rng.random(len(span)))
    ends = PERIOD_S * (
        period[:, None] + 0.3 + 0.6 * rng.random((len(span), GPUS))
    )  # planned, [slot, job]
    if fleet.even:
        ends[:] = ends[:, :1]
    ends[np.arange(GPUS) >= share[:, None]] = -1.0  # no such job
    rows, incidents, node_s, alive = [], 0, 0.0, np.arange(len(span))
    for _ in range(ROUNDS if fleet.requeued else 1):
        # The first of a slot's nodes to fail, by itself or with its switch, ends all that runs there.
        slot = np.repeat(np.arange(len(alive)), span[alive])
        inside = np.arange(len(slot)) - np.repeat(np.cumsum(span[alive]) - span[alive], span[alive])
        node, since = order[first[alive][slot] + inside], start[alive][slot]
        fails = np.full(len(alive), np.inf)
        np.minimum.at(fails, slot, since + DAY_S * rng.exponential(1 / rates[node]))
        np.minimum.at(fails, slot, _next(shocks, node, since) + NOTICE_S * rng.random(len(slot)))
        last = ends[alive].max(axis=1)
        incidents += int((fails < last).sum())
        node_s += float(((np.minimum(fails, last) - start[alive]) * span[alive]).sum())
        of, job = np.nonzero(ends[alive] > start[alive][:, None])
        at, end = alive[of], ends[alive][of, job]
        stop = np.minimum(end, fails[of])
        rows.append(np.stack([at * GPUS + job, start[at], stop, fails[of] < end], axis=1))
        alive, fails, last = (each[fails + BACK_S < last] for each in (alive, fails, last))
        start[alive] = fails + BACK_S
    attempts, more = _looped(fleet, rng, np.concatenate(rows), share)
    job, begin, stop = attempts[:, :3].astype(np.int64).T
    by_job = np.lexsort((begin, job))
    job, begin, stop, failed = job[by_job], begin[by_job], stop[by_job], attempts[by_job, 3] > 0
    slot = job // GPUS
    number = 1 + np.arange(len(job)) - np.searchsorted(job, job)
    gpus = np.where(share[slot] > 1, 1, span[slot] * GPUS)
    stop = np.maximum(stop, begin + 1)
    nodes = (first[slot], span[slot], order)
    return Drawn(
        fleet,
        1 + job,
        number,
        *nodes,
        gpus,
        begin,
        stop,
        failed,
        lemons,
        incidents + more,
        node_s / DAY_S,
    )


def _slots(fleet: Known) -> tuple[Ints, Ints]:
    """One period: nodes of each slot, and the jobs that share them."""
    span: list[int] = []
    share: list[int] = []
    while left := fleet.nodes - sum(span):
        nodes, jobs = fleet.jobs[len(span) % len(fleet.jobs)]
        span.append(min(nodes, left))
        share.append(jobs)
    return np.array(span), np.array(share)


def _shocks(fleet: Known, rng: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    """When each switch fails."""
    switches = fleet.nodes // SWITCH
    length = PERIOD_S * fleet.periods
    return [length * rng.random(count) for count in rng.poisson(fleet.bursts / switches, switches)]


def _next(
    shocks: list[npt.NDArray[np.float64]], node: Ints, since: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The next failure of each node's switch; infinite where none comes."""
    found = np.full(len(node), np.inf)
    for switch, times in enumerate(shocks):
        mine = node // SWITCH == switch
        found[mine] = np.append(times, np.inf)[np.searchsorted(times, since[mine])]
    return found


def _looped(
    fleet: Known, rng: np.random.Generator, rows: npt.NDArray[np.float64], share: Ints
) -> tuple[npt.NDArray[np.float64], int]:
    """Let jobs of one GPU fail by themselves, again and again, where they are; gives the failures added."""
    small = np.flatnonzero(share[rows[:, 0].astype(np.int64) // GPUS] > 1)
    chosen = rng.choice(small, min(rng.poisson(fleet.loops), len(small)), replace=False)
    pieces = []
    for job, begin, end, failed in rows[chosen]:
        starts = np.linspace(begin, end, 2 + rng.integers(LOOP[0], LOOP[1], endpoint=True))
        own = np.ones(len(starts) - 1)
        own[-1] = failed  # The last attempt ends as the job would have
        stops = starts[1:].copy()
        stops[:-1] -= 0.01 * np.diff(starts)[:-1]  # back after a while
        pieces.append(np.stack([np.full(len(own), job), starts[:-1], stops, own], axis=1))
    more = sum(len(each) - 1 for each in pieces)
    return np.concatenate([np.delete(rows, chosen, axis=0), *pieces]), more
