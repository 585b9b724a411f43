"""The parts of all machine time, from capacity to productive steps."""

from __future__ import annotations

from holdfast.fleet.log import FleetLog

OUT, IDLE, WAITING = "out_of_service", "idle", "idle_while_waiting"
FIRST, SECOND, INIT = "lost_first_order", "lost_second_order", "initialization"
REPLAYED, CHECKPOINT, DATA = "replayed", "checkpoint", "data_wait"
RANKS, EVALUATION, PRODUCTIVE = "waiting_for_ranks", "evaluation", "productive"
USERS, UNRECORDED = "users", "unrecorded"

LABELS = {
    OUT: "Out of service",
    IDLE: "Idle",
    WAITING: "Idle while jobs waited",
    FIRST: "Lost to failures",
    SECOND: "Lost to preemptions",
    INIT: "Starts and ends",
    REPLAYED: "Replayed steps",
    CHECKPOINT: "Checkpoint writes",
    DATA: "Waiting for data",
    RANKS: "Waiting for ranks",
    EVALUATION: "Evaluation",
    PRODUCTIVE: "Productive steps",
    USERS: "Ended by users",
    UNRECORDED: "Not recorded",
}
"""Part -> its name, in the order of the waterfall."""

MEANINGS = {
    OUT: "nodes that are down or drained, and not in use",
    IDLE: "nothing waited that would have fitted",
    WAITING: "at most: any idle machine would have done for a job that is no larger",
    FIRST: "work since the last checkpoint of attempts that the infrastructure ended",
    SECOND: "the same of attempts preempted when such a job came back",
    INIT: "from the begin of an attempt to its first step, restarts inside it, and after the last",
    REPLAYED: "steps done again, or lost to other preemptions and requeues",
    CHECKPOINT: "the part that stops the training",
    DATA: "the training waited for its next batch",
    RANKS: "for the slowest rank, or hung",
    EVALUATION: "of the model",
    PRODUCTIVE: "recorded steps that were done for the first time",
    USERS: "cancelled, or ended by an error of the program: not called lost",
    UNRECORDED: "allocated, and no record says for what",
}

UNUSED = (OUT, IDLE, WAITING)
USED = tuple(part for part in LABELS if part not in UNUSED)
"""What the allocated hours divide into."""
ESTIMATED = (WAITING, FIRST, SECOND, INIT, REPLAYED, CHECKPOINT, USERS)
"""Parts of which a log without records gives an estimate."""
RECORDED = (DATA, RANKS, EVALUATION, PRODUCTIVE)
"""Parts that only records tell."""
LOST = (FIRST, SECOND, INIT, REPLAYED, CHECKPOINT, DATA, RANKS)
"""Parts that another configuration or repair would turn into steps."""


def width(log: FleetLog) -> str:
    """SQL: what an attempt holds, in GPUs, or in nodes where the log has no GPUs."""
    return f"coalesce({'gpus' if log.has_gpus else 'node_count'}, 0)"
