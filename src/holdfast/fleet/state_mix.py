"""How attempts ended: the status mix by count and by GPU time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.store import Store


@dataclass(frozen=True)
class Status:
    """The status mix of a log."""

    table: pd.DataFrame
    """One row per state: state, attempts, gpu_hours, share_by_count, share_by_gpu_time."""
    attempts: int
    gpu_hours: float

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet status``: shares between 0 and 1."""
        states = self.table["state"]
        return {
            "by_count": dict(zip(states, self.table["share_by_count"], strict=True)),
            "by_gpu_time": dict(zip(states, self.table["share_by_gpu_time"], strict=True)),
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
    t = log.attempts
    frame = log.frame(
        t.group_by("state").agg(attempts=t.count(), gpu_hours=t.gpu_hours.sum())
    ).sort_values(["attempts", "state"], ascending=[False, True], ignore_index=True)
    attempts = int(frame["attempts"].sum())
    gpu_hours = float(frame["gpu_hours"].sum())
    frame["share_by_count"] = frame["attempts"] / attempts if attempts else 0.0
    frame["share_by_gpu_time"] = frame["gpu_hours"] / gpu_hours if gpu_hours else 0.0
    return Status(frame, attempts, gpu_hours)
