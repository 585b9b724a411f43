"""What was injected into a simulated log, and what an analysis of the log has to find again.

Two files beside the tables: ``truth.json`` (rates, lemon nodes, every failure with the attempts that
it ended, totals) and ``truth/attempts.parquet`` (one row per attempt, in the order of the log). Readers
of a store see neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.ingest_staging import ROW_GROUP_ROWS
from holdfast.fleet.schema import Row, schema
from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.hazards import lemon_factors
from holdfast.fleet.simulation.log_tables import SEVERITIES, failure_texts, job_ids
from holdfast.fleet.simulation.records import Array, State
from holdfast.fleet.simulation.workload import DAY_MS, HOUR_MS

TRUTH = "truth.json"
TRUTH_ATTEMPTS = "truth/attempts.parquet"

# `failure_rate_per_node_day` is that of attempts with more GPUs: `Assumptions.min_gpus`.
LARGE_GPUS = 128

ATTEMPT_TRUTH = schema(
    job_id="string",
    attempt="int32",
    productive_s="double",  # progress that the job keeps
    lost_s="double",  # progress made and lost, and time that it hung
    init_s="double",
    write_s="double",  # time for which checkpoint writes stopped the work
    failure="int32",  # place in the `failures` of truth.json; null: none
    preemptor="string",  # job id; null: it was not preempted
    signal_s="double",  # when the preemption signal came; null: it did not
    expected_failures="double",  # injected hazard over its nodes and its time
)

KINDS = ("productive", "lost", "init", "write")  # What an attempt's time was spent on


def write_truth(run: Run, folder: Path) -> None:
    """Write both files into the folder of a store."""
    text = json.dumps(truth(run), indent=1, sort_keys=True)
    (folder / TRUTH).write_text(text + "\n", encoding="utf-8")
    path = folder / TRUTH_ATTEMPTS
    path.parent.mkdir()
    with pq.ParquetWriter(path, ATTEMPT_TRUTH, compression="zstd", compression_level=1) as writer:
        for table in _attempt_tables(run):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def truth(run: Run) -> dict[str, Any]:
    """What was injected, as ``truth.json`` has it: rates per node and day, times in ISO 8601."""
    scenario = run.scenario
    a = run.attempts
    node_days = node_days_of(run)
    large = (a.gpus > LARGE_GPUS) & (node_days > 0)
    everything = node_days >= 0
    return {
        "preset": scenario.name,
        "scenario": scenario.to_toml(),
        "seed": run.seed,
        "days": run.days,
        "failure_rate_per_node_day": _rate(run, node_days, large if large.any() else everything),
        "failure_rate_min_gpus": LARGE_GPUS if large.any() else 0,
        "rate_of_all_per_node_day": _rate(run, node_days, everything),
        "nominal_rate_per_node_day": scenario.failures.rate_per_node_day,
        "lemons": lemons(run),
        "failures": _failures(run),
        "totals": _totals(run),
    }


def lemons(run: Run) -> list[str]:
    """The names of the nodes that fail more often than a healthy one, in the order of the nodes."""
    factors = lemon_factors(run.scenario, run.seed)
    names = run.scenario.node_names
    return [names[node] for node in np.flatnonzero(factors > 1)]


def node_days_of(run: Run) -> Array:
    """Node-days that each attempt was on its nodes within the simulated time, shape [attempts]."""
    start, stop = run.times_ms
    return np.asarray((stop - start) * run.attempts.node_count / DAY_MS)


def _rate(run: Run, node_days: Array, chosen: Array) -> float | None:
    """Injected failures per node-day: the hazard, weighted by where and how long attempts ran."""
    exposure = float(node_days[chosen].sum())
    return float(run.attempts.expected_failures[chosen].sum()) / exposure if exposure else None


def _failures(run: Run) -> list[Row]:
    """Every failure, also those of idle nodes, and the attempts that it ended."""
    f = run.failures
    names = run.scenario.node_names
    checks = failure_texts(run, "check")
    components = failure_texts(run, "name")
    times, seen, back = (_iso(run, each) for each in (f.time_ms, f.detected_ms, f.repaired_ms))
    ended = {}  # Failure -> its attempts, in the order of the log
    for row in run.attempts[run.attempts.failure >= 0]:
        attempt = {"job_id": str(row.job + 1), "attempt": int(row.attempt)}
        ended.setdefault(int(row.failure), []).append(attempt)
    columns = {
        "time": times,
        "node": [names[node] for node in f.node],
        "component": components,
        "check": checks,
        "severity": [SEVERITIES[kind] for kind in f.kind],
        "detected": seen,
        "repaired": back,
        "permanent": f.permanent.tolist(),
        "pulled": f.pulled.tolist(),
        "blast": [None if number < 0 else number for number in f.blast.tolist()],
        "ended_attempts": [ended.get(row, []) for row in range(len(times))],
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _iso(run: Run, ms: Array) -> list[str | None]:
    """ISO 8601 with milliseconds; None for times that never came."""
    moments = (run.scenario.begin_s * 1000 + ms).astype("M8[ms]")
    texts = np.datetime_as_string(moments, unit="ms").tolist()
    return [None if at < 0 else f"{text}Z" for at, text in zip(ms.tolist(), texts, strict=True)]


def _totals(run: Run) -> dict[str, Any]:
    """GPU-hours by what they were spent on, preemptions, utilisation."""
    a = run.attempts

    def gpu_hours(ms: Array) -> float:
        return float((ms * a.gpus.astype("f8")).sum()) / HOUR_MS

    return {
        "utilisation": run.utilisation,
        **{f"{kind}_gpu_hours": gpu_hours(a[f"{kind}_ms"]) for kind in KINDS},
        "failures": len(run.failures.time_ms),
        "attempts_ended_by_failures": int((a.failure >= 0).sum()),
        "preemptions": int((a.state == State.PREEMPTED).sum()),
        "preemptions_second_order": int(second_order(run).sum()),
    }


def second_order(run: Run) -> Array:
    """Which attempts were preempted by a job that a failure had ended before; shape [attempts]."""
    a = run.attempts
    never = np.iinfo(np.int64).max
    first_failure_ms = np.full(len(run.jobs.submit_ms), never)
    failed = a.failure >= 0
    np.minimum.at(first_failure_ms, a.job[failed], a.end_ms[failed])
    victims = (a.state == State.PREEMPTED) & (a.preemptor >= 0)
    second = np.zeros(len(a.job), bool)
    told_ms = np.where(a.signal_ms >= 0, a.signal_ms, a.end_ms)
    second[victims] = first_failure_ms[a.preemptor[victims]] <= told_ms[victims]
    return second


def _attempt_tables(run: Run) -> Iterator[pa.Table]:
    """The rows of ``truth/attempts.parquet``, one row group at a time."""
    for low in range(0, len(run.attempts.job), ROW_GROUP_ROWS):
        a = run.attempts[low : low + ROW_GROUP_ROWS]
        preemptor = pc.if_else(pa.array(a.preemptor >= 0), job_ids(a.preemptor), None)
        signal_s = run.scenario.begin_s + a.signal_ms / 1000
        columns = [
            job_ids(a.job),
            pa.array(a.attempt),
            *(pa.array(a[f"{kind}_ms"] / 1000) for kind in KINDS),
            pa.array(a.failure, mask=a.failure < 0),
            preemptor,
            pa.array(signal_s, mask=a.signal_ms < 0),
            pa.array(a.expected_failures),
        ]
        yield pa.Table.from_arrays(columns, schema=ATTEMPT_TRUTH)
