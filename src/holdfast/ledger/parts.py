"""The parts of all machine time, from capacity to productive steps."""

from __future__ import annotations

from holdfast.fleet.log import FleetLog

OUT, IDLE, WAITING = "out_of_service", "idle", "idle_while_waiting"
FIRST, SECOND, INIT = "lost_first_order", "lost_second_order", "initialization"
REPLAYED, CHECKPOINT, DATA = "replayed", "checkpoint", "data_wait"
RANKS, EVALUATION, PRODUCTIVE = "waiting_for_ranks", "evaluation", "productive"
USERS, UNRECORDED = "users", "unrecorded"

LABELS = {
    OUT: "Out of service: down or drained",
    IDLE: "Idle, and nothing waited that would have fitted",
    WAITING: "Idle while jobs waited that would have fitted",
    FIRST: "Lost to infrastructure failures",
    SECOND: "Lost to preemptions that follow them",
    INIT: "Restarts and initialization",
    REPLAYED: "Replayed steps",
    CHECKPOINT: "Checkpoint writes",
    DATA: "Waiting for data",
    RANKS: "Waiting for the slowest rank, or hung",
    EVALUATION: "Evaluation",
    PRODUCTIVE: "Productive steps",
    USERS: "Cancelled by users, or ended by their error",
    UNRECORDED: "Allocated, and no record says for what",
}
"""Part -> what it is, in the order of the waterfall."""

UNUSED = (OUT, IDLE, WAITING)
USED = tuple(part for part in LABELS if part not in UNUSED)
"""What the allocated hours divide into."""
LOST = (FIRST, SECOND, INIT, REPLAYED, CHECKPOINT, DATA, RANKS)
"""Parts that another configuration or repair would turn into steps."""


def width(log: FleetLog) -> str:
    """SQL: what an attempt holds, in GPUs, or in nodes where the log has no GPUs."""
    return f"coalesce({'gpus' if log.has_gpus else 'node_count'}, 0)"
