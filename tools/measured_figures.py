"""The figures of a simulated log that are compared with published ones, by the analyses of a real log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.fleet.log import DAY_S
from published_figures import Figures

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.fleet.log import FleetLog

LARGE_GPUS = 512
PROJECTED = (1_024, 16_384, 131_072)


def measure(store: Path) -> Figures:
    """The figures of a simulated log, by the analyses of a real one.

    Only the rate, the lemons and the size of the cluster that they are compared with come from the
    truth beside the log.
    """
    from holdfast import fleet

    log = fleet.open(store)
    truth = json.loads((store / "truth.json").read_text(encoding="utf-8"))
    return {
        "days": truth["days"],
        "nominal": 1000 * truth["nominal_rate_per_node_day"],
        "injected": 1000 * truth["failure_rate_per_node_day"],
        "injected_all": 1000 * truth["rate_of_all_per_node_day"],
        **_ends(log, truth),
        **_rates(log),
        **_sizes(log),
        **_lemons(log, set(truth["lemons"])),
        **_large_runs(log),
    }


def _ends(log: FleetLog, truth: Figures) -> Figures:
    """How attempts ended, and what it cost."""
    from holdfast import fleet
    from holdfast.fleet.attribution import infrastructure_failures

    status, goodput = fleet.status(log), fleet.goodput(log)
    failed_hours = log.value(f"SELECT sum(gpu_hours) FROM {infrastructure_failures(log)}")
    nodes = log.count("nodes")
    loops = goodput.crash_loops.to_pylist()
    longest = loops[0] if loops else {"requeues": 0, "preempted": 0, "gpus": 0}
    worst = max(loops, key=lambda loop: loop["preempted"], default=longest)
    return {
        "nodes": nodes,
        "jobs": log.value(f"SELECT count(DISTINCT run) FROM {log.attempts}"),
        "attempts": status.attempts,
        "gpu_hours": status.gpu_hours,
        "utilisation": status.gpu_hours / (nodes * log.gpus_per_node * 24 * truth["days"]),
        "states": status.to_dict()["by_count"],
        "failures": goodput.failures,
        "failures_of_attempts": goodput.failures / status.attempts,
        "failures_of_gpu_time": failed_hours / status.gpu_hours,
        "lost_share": goodput.lost_gpu_hours / status.gpu_hours,
        "second_order_share": goodput.lost_second_order / goodput.lost_gpu_hours,
        "crash_loops": len(loops),
        "longest_chain": {key: int(longest[key]) for key in ("requeues", "preempted", "gpus")},
        "worst_chain": {key: int(worst[key]) for key in ("requeues", "preempted", "gpus")},
    }


def _rates(log: FleetLog) -> Figures:
    from holdfast import fleet

    model = fleet.mttf(log, project=PROJECTED).model
    everything = fleet.mttf(log, min_gpus=0).model
    return {
        "counted": model.failures_,
        "node_days": model.node_days_,
        "rate": model.rate_per_1000_node_days_,
        "rate_ci95": list(model.ci95_),
        "one_rate_p": model.dispersion_.p_value if model.dispersion_ else None,
        "rate_by_size": {
            str(bucket.gpus_max): bucket.rate_per_1000_node_days for bucket in everything.buckets_
        },
        "mttf_hours": {str(gpus): model.mttf_hours(gpus)[0] for gpus in PROJECTED},
    }


def _sizes(log: FleetLog) -> Figures:
    """Shares of jobs and of GPU time by size."""
    rows = log.rows(
        "SELECT gpus, count(DISTINCT run) AS jobs, sum(gpu_hours) AS hours "
        f"FROM {log.executions} GROUP BY gpus ORDER BY gpus"
    )
    jobs, hours = (sum(row[key] for row in rows) for key in ("jobs", "hours"))

    def share(key: str, whole: float, low: int, high: int) -> float:
        return float(sum(row[key] for row in rows if low <= row["gpus"] <= high) / whole)

    return {
        "jobs_1": share("jobs", jobs, 1, 1),
        "jobs_to_8": share("jobs", jobs, 1, 8),
        "jobs_4096": share("jobs", jobs, 4096, 4096),
        "hours_to_8": share("hours", hours, 1, 8),
        "hours_from_256": share("hours", hours, 256, 1 << 20),
        "hours_4096": share("hours", hours, 4096, 4096),
        "largest_gpus": max(row["gpus"] for row in rows),
    }


def _lemons(log: FleetLog, lemons: set[str]) -> Figures:
    """Which lemons are found, and what those that were injected do to jobs."""
    from holdfast import fleet
    from holdfast.fleet.attribution import infrastructure_failures

    found = fleet.lemons(log).lemons
    on_lemon = f"list_has_any(nodes, [{', '.join(map(repr, sorted(lemons)))}]::VARCHAR[])"
    attempts = log.keep(
        "touched",
        f"""SELECT gpus, gpu_hours, start_s // {DAY_S} AS day, state <> 'RUNNING' AS gone,
            {on_lemon} AS touched, key IN (SELECT key FROM {infrastructure_failures(log)}) AS failed
        FROM {log.executions}""",
    )
    by_day = f"SELECT avg(CAST(touched AS INT)) AS share FROM {attempts} GROUP BY day"
    [sums] = log.rows(
        f"""SELECT sum(gpu_hours) AS hours, sum(gpu_hours) FILTER (WHERE touched) AS on_lemons,
            count(*) FILTER (WHERE gpus >= {LARGE_GPUS} AND gone) AS large,
            count(*) FILTER (WHERE gpus >= {LARGE_GPUS} AND gone AND failed) AS large_failed
        FROM {attempts}"""
    )
    return {
        "lemons": len(lemons),
        "lemons_found": found,
        "lemons_right": len(lemons & set(found)),
        "touched_jobs": log.value(f"SELECT avg(share) FROM ({by_day})"),
        "touched_gpu_time": (sums["on_lemons"] or 0.0) / sums["hours"],
        "large_attempts": sums["large"],
        "large_failed": sums["large_failed"],
    }


def _large_runs(log: FleetLog) -> Figures:
    """ETTR of the long runs of the highest class, by size: measured, and by the paper's formula."""
    from holdfast import fleet

    assumed = log.assumptions
    rate = fleet.mttf(log).model.rate_per_1000_node_days_ / 1000
    rows = []
    for row in fleet.measured_ettr(log).by_size.to_pylist():
        if row["gpus_max"] < LARGE_GPUS:
            continue
        setting = {
            "nodes": row["gpus"] / log.gpus_per_node,
            "rate_per_node_day": rate,
            "checkpoint_interval_s": assumed.checkpoint_interval_s,
            "init_s": log.init_s,
            "queue_s": row["queue_s"],
        }
        expected = {form: fleet.expected_ettr(**setting, form=form) for form in ("v2", "exact")}
        rows.append(
            {
                **{key: int(row[key]) for key in ("gpus_max", "runs")},
                **{key: row[key] for key in ("ettr", "lo", "hi", "queue_s", "interruptions")},
                **expected,
            }
        )
    return {"ettr": rows}
