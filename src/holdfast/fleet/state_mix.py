"""How attempts ended: the status mix by count and by GPU time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.store import Store


@dataclass(frozen=True)
class Status:
    """The status mix of a log."""

    table: pa.Table
    """One row per state: state, attempts, gpu_hours, share_by_count, share_by_gpu_time."""
    attempts: int
    gpu_hours: float

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet status``: shares between 0 and 1."""
        states, by_count, by_time = (
            self.table[name].to_pylist()
            for name in ("state", "share_by_count", "share_by_gpu_time")
        )
        return {
            "by_count": dict(zip(states, by_count, strict=True)),
            "by_gpu_time": dict(zip(states, by_time, strict=True)),
            "attempts": self.attempts,
            "gpu_hours": self.gpu_hours,
        }


def status(log: str | Path | Store | FleetLog) -> Status:
    """The share of each state among attempts and among their GPU time.

    Every record of the log counts once, also those that never started (PENDING): they have no GPU
    time. The log's states are Slurm's, "CANCELLED by 1001" being CANCELLED.

    Args:
        log: a store or an open log.

    Returns:
        The mix, the most frequent state first. Shares of GPU time are zero if the log has none.
    """
    log = open_log(log)
    # CASE: a log without GPU time has shares of zero.
    table = log.arrow(
        f"""SELECT state, attempts, gpu_hours,
            attempts / CAST(sum(attempts) OVER () AS DOUBLE) AS share_by_count,
            CASE WHEN sum(gpu_hours) OVER () > 0 THEN gpu_hours / sum(gpu_hours) OVER ()
                ELSE CAST(0 AS DOUBLE) END AS share_by_gpu_time
        FROM (
            SELECT state, count(*) AS attempts, sum(gpu_hours) AS gpu_hours
            FROM {log.attempts} GROUP BY state
        ) AS states
        ORDER BY attempts DESC, state"""
    )
    return Status(
        table,
        sum(table["attempts"].to_pylist()),
        float(sum(table["gpu_hours"].to_pylist())),
    )
