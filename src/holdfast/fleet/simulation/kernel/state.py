"""What the kernel works on: one record a node, a job, a running attempt, a planned event.

What is used together lies together in memory: an event touches one or two cache lines of each record.
Times are whole milliseconds; -1 stands for "none".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from holdfast.fleet.simulation.records import JOBS as SUBMITTED
from holdfast.fleet.simulation.records import Array, Detected, State


def _constant(value: int) -> Any:
    """A number for Numba: for a plain constant it compiles the function that gets it once more."""
    return np.int64(value)


@njit(cache=True, inline="always")
def wide(number: Any) -> Any:
    """A number out of a record as an int64, for the same reason."""
    return np.int64(number)


NEVER = 1 << 62  # A time that does not come

# What happens; at one moment in this order, then submissions, then a pass over the queue.
END, KILL, FAIL, BLAST, DETECT, REPAIR, ELIGIBLE, HELD = range(8)

# Where a node stands: in service; drained by a LOW check; failed, but not yet taken out; in repair; pulled.
UP, DRAINING, DOOMED, OUT, REMOVED = range(5)

_STATES = (State.COMPLETED, State.FAILED, State.TIMEOUT, State.REQUEUED)
COMPLETED, FAILED, TIMEOUT, REQUEUED = map(_constant, _STATES)
PREEMPTED, NODE_FAIL, RUNNING = map(_constant, (State.PREEMPTED, State.NODE_FAIL, State.RUNNING))
HIGH, LOW, SILENT = (_constant(kind) for kind in Detected)
ZERO, ONE, NONE = _constant(0), _constant(1), _constant(-1)
NO: Any = np.bool_(False)
YES: Any = np.bool_(True)

FIRST = -(1 << 60)
"""The turn of a job that goes on without rollback: it keeps its nodes, and gets the next free one."""

ROOM = 2  # What one event can add to any array, in units of (slots + nodes)

# After a job has died, the check at its end sees the node's failure this soon.
CRASH_SEEN_MS = 5_000


def _all(kind: str, *names: str) -> list[tuple[str, str]]:
    """Fields of one type."""
    return [(name, kind) for name in names]


RULES = [
    *_all("i8", "seed", "gpus_per_node", "nodes_per_rack", "nodes_per_pod", "interval", "depth"),
    *_all("i8", "preempt_after", "grace", "requeue_delay", "checkpoint", "write", "init"),
    *_all("i8", "recovery", "survives"),  # 0: every failure rolls back
    *_all("i8", "check_interval", "heartbeat", "fast_min", "fast_max", "slow_min", "slow_max"),
    *_all("?", "backfill", "preemption", "synchronous", "save_on_signal"),
    *_all("f8", "rack_rate", "pod_rate", "fleet_rate"),  # blasts of each per millisecond
    *_all("f8", "requeue_scale", "requeue_shape"),  # Weibull, until an owner requeues; inf: never
    *_all("i8", "pull_within", "pull_repair", "pull_horizon"),
    *_all("f8", "pull_fixed", "healthy"),  # `scale` of a healthy node
]

NODE = [
    ("status", "i4"),
    ("free", "i4"),  # GPUs
    ("held_for", "i4"),  # the job that preempted its attempts
    ("pod", "i4"),
    # Of the first node of a rack or pod: the last start that touched it.
    *_all("i8", "rack_seen", "pod_seen"),
    # The list of free nodes that it is in, and its neighbours there.
    *_all("i4", "listed", "following", "before"),
    ("attempts", "i4"),  # how many run on it
    ("until", "i8"),  # when the limits of all of them are over
    *_all("i8", "oldest", "newest"),  # first and last start of those that run on it ...
    ("rank", "i4"),  # ... and their highest rank
    ("leaving", "i4"),  # how many of them hang or have been told to go
    ("failure", "i4"),  # the failure that takes it out
    ("drain", "i4"),  # the failure that drains it
    ("generation", "i4"),  # what is planned for another generation does not happen
    ("draws", "i4"),  # numbers drawn from its stream
    ("rate", "f8"),  # failures per millisecond that end attempts
    ("scale", "f8"),  # Weibull scale of the gaps between failures of any kind; infinite: none
    ("counted", "i8"),  # failures that the rule of pulls has counted
    *_all(
        "i8", "asked", "healthy"
    ),  # from when it counts them; until when the node is a healthy one
]

# List f of 1 .. gpus_per_node - 1: nodes with f free GPUs; list gpus_per_node + p: those of pod p
# that are wholly free.
FREE_LIST = [("first", "i4"), ("count", "i4")]

JOB = [
    *SUBMITTED,
    ("done", "i8"),  # progress that is saved
    ("phase", "i8"),  # work and write since the last checkpoint, where only peers hold them
    ("init", "i8"),  # time after its next start before work begins
    *_all("i8", "eligible", "turn"),  # since when it waits, and what it is queued by
    ("attempts", "i4"),  # starts so far
    *_all("i4", "following", "before"),  # neighbours in the queue
    ("held_left", "i4"),  # held nodes that still have to become free for it; -1: none are held
]

CLASS = [
    ("rank", "i8"),  # order of the priorities: a larger one preempts a smaller one
    ("weight", "i8"),  # the smallest weight + eligible is first
    *_all("i4", "head", "tail", "cursor"),
]

SLOT = [
    # A running attempt.
    ("job", "i4"),  # -1: the slot is unused
    ("rank", "i4"),  # of its class
    ("gpus", "i4"),  # on each of its nodes
    ("count", "i4"),  # nodes
    ("offset", "i8"),
    ("start", "i8"),
    ("limit", "i8"),  # when its time limit is over
    ("generation", "i4"),
    ("ending", "i4"),  # the state in which it ends if nothing happens
    ("stopped", "i8"),  # since when it hangs
    ("taken", "i4"),  # how many of its nodes failures have taken
    ("signal", "i8"),
    *_all("i4", "failure", "preemptor"),
    ("hazard", "f8"),  # failures per millisecond that are expected to end it
    ("unused", "i4"),  # place k of the stack of unused slots
]

EVENT = [
    ("time", "i8"),
    ("order", "i8"),  # kind << 56 | number: events of one moment have a fixed order
    ("index", "i4"),
    ("generation", "i4"),
]

# Shares; `share` is cumulated.
COMPONENT = [("share", "f8"), ("high", "f8"), ("low", "f8"), ("crash", "f8"), ("permanent", "f8")]

BLAST_KIND = [("repair", "i8")]

# The nodes that it hits, from `first` up to before `end`; mean gap between its blasts.
BLAST_SOURCE = [("kind", "i8"), ("first", "i8"), ("end", "i8"), ("gap", "f8"), ("draws", "i8")]

# Places in the array of counters.
(
    NOW,
    HEAP_SIZE,
    SEQUENCE,  # events planned so far
    NEXT_SUBMIT,  # job
    NEXT_PASS,  # time
    UNUSED,  # unused slots
    WHOLE_FREE,  # wholly free nodes
    ROWS,  # attempts recorded
    NODE_ROWS,
    FAILURES,
    EVENTS,  # events processed
    BLASTS,
    QUEUED,  # jobs in the queue
    COUNTERS,
) = range(14)


class Simulation(NamedTuple):
    """Everything; structured arrays of the types above."""

    rules: Array  # One `RULES`
    counters: Array  # int64 [COUNTERS]
    nodes: Array
    on_node: Array  # int32 [nodes, gpus per node]: the slots of the attempts on each node
    lists: Array
    jobs: Array
    classes: Array
    slots: Array
    heap: Array
    out: Array  # `records.ATTEMPTS` [rows]
    node_rows: Array  # int32: the nodes of all attempts
    failures: Array
    recent: Array  # int64 [nodes, failures of `Pulls`]: times of those counted last, in turn
    components: Array
    blasts: Array
    sources: Array
    scratch: Array  # int64 [3, nodes]: nodes to choose from, marks, pods
