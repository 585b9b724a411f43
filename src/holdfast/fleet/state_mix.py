"""How attempts ended: the status mix by count, by GPU time and by node time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.answer import Answer, Section, Value
from holdfast.fleet.log import AnyLog, open_log
from holdfast.fleet.schema import NODE_FAILURES
from holdfast.fleet.wording import table
from holdfast.numbers import brief, counted, percent

TOTALS = ("attempts", "gpu_hours", "node_hours")


@dataclass(frozen=True)
class Status(Answer):
    """The status mix of a log."""

    # One row per state: state, attempts, gpu_hours, node_hours, share_by_count, share_by_gpu_time,
    # share_by_node_time.
    table: pa.Table
    attempts: int
    gpu_hours: float
    node_hours: float

    @property
    def _kind(self) -> str:
        """Whose time counts: that of GPUs, or of nodes in a log without GPUs."""
        return "GPU" if self.gpu_hours or not self.node_hours else "node"

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet status``: shares between 0 and 1."""
        columns = self.table.to_pydict()
        return {
            **{
                base: dict(zip(columns["state"], columns[f"share_{base}"], strict=True))
                for base in ("by_count", "by_gpu_time", "by_node_time")
            },
            **{name: getattr(self, name) for name in TOTALS},
        }

    def values(self) -> Sequence[Value]:
        """Share of each final state by count and by GPU time."""
        return [
            Value(f"{row['state'].lower()}_{share}", row[share])
            for share in ("share_by_count", "share_by_gpu_time")
            for row in self.table.to_pylist()
        ]

    def sections(self) -> Sequence[Section]:
        """How do attempts end?"""
        kind = self._kind
        hours = f"{kind.lower()}_hours"
        share = f"share_by_{kind.lower()}_time"
        total = self.gpu_hours or self.node_hours
        used = f" used {brief(total)} {kind}-hours" if total else ""
        sentence = f"{counted(self.attempts, 'attempt')}{used}."
        if not total:
            sentence += " The log records no GPU time."
        for row in self.table.to_pylist():
            if row["state"] in NODE_FAILURES:
                sentence += (
                    f" {row['state']} is {percent(row['share_by_count'])} of the attempts"
                    + (f" and {percent(row[share])} of the {kind} time." if total else ".")
                )
        tables = [
            table(
                self.table,
                f"state attempts share_by_count {hours} {share}",
                "One row per state, most attempts first. Attempts that never started count.",
            )
        ]
        return [Section("status", "How do attempts end?", sentence, [], tables)]


def status(log: AnyLog) -> Status:
    """The share of each state among attempts and among their GPU and node time.

    Every record of the log counts once, also those that never started (PENDING): they have no time.
    The log's states are Slurm's, "CANCELLED by 1001" being CANCELLED.

    Args:
        log: a store or an open log.

    Returns:
        The mix, the most frequent state first. Shares of a time are zero if the log has none.
    """
    log = open_log(log)

    def share(hours: str) -> str:
        # CASE: a log without such time has shares of zero.
        total = f"sum({hours}) OVER ()"
        return f"CASE WHEN {total} > 0 THEN {hours} / {total} ELSE CAST(0 AS DOUBLE) END"

    mix = log.arrow(
        f"""SELECT state, attempts, gpu_hours, node_hours,
            attempts / CAST(sum(attempts) OVER () AS DOUBLE) AS share_by_count,
            {share("gpu_hours")} AS share_by_gpu_time, {share("node_hours")} AS share_by_node_time
        FROM (
            SELECT state, sum(attempts) AS attempts, sum(gpu_hours) AS gpu_hours,
                sum(node_days) * 24 AS node_hours
            FROM {log.tallies} GROUP BY state
        ) AS states
        ORDER BY attempts DESC, state"""
    )
    attempts, gpu_hours, node_hours = (sum(mix[name].to_pylist()) for name in TOTALS)
    return Status(mix, attempts, float(gpu_hours), float(node_hours))
