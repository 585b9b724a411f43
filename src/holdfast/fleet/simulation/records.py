"""What goes into a simulation and what comes out: arrays, one row per job, an attempt, a failure.

All times are whole milliseconds since `Scenario.begin`; -1 stands for "not yet" or "none". Jobs and
nodes are named by their places in the arrays.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class State(IntEnum):
    """How an attempt ended, or where it stands when the simulated time is over."""

    COMPLETED = 0
    FAILED = 1
    CANCELLED = 2
    OUT_OF_MEMORY = 3
    TIMEOUT = 4
    REQUEUED = 5
    PREEMPTED = 6
    NODE_FAIL = 7
    RUNNING = 8
    PENDING = 9


class Detected(IntEnum):
    """How a failure of a node is noticed."""

    HIGH = 0
    """A check removes the node at once."""
    LOW = 1
    """A check drains the node: its attempts go on."""
    SILENT = 2
    """No check sees it: the node stops answering the scheduler."""


class Jobs(NamedTuple):
    """What users submit, in order of submission; shape [jobs] each."""

    submit_ms: Array
    """int64."""
    gpus: Array
    """int32."""
    work_ms: Array
    """int64: productive time until the job ends of itself in `end_state`."""
    limit_ms: Array
    """int64: the time limit of each attempt."""
    qos: Array
    """int16: place in `Scenario.qos`."""
    user: Array
    """int32."""
    end_state: Array
    """int8: COMPLETED, FAILED, CANCELLED or OUT_OF_MEMORY."""


class Attempts(NamedTuple):
    """Executions in the order of their ends; then those that run or wait when time is over."""

    job: Array
    """int32."""
    attempt: Array
    """int32: 1, 2, ... within the job."""
    eligible_ms: Array
    """int64: from when it could start."""
    start_ms: Array
    """int64; -1: PENDING."""
    end_ms: Array
    """int64; -1: RUNNING or PENDING."""
    state: Array
    """int8: `State`."""
    node_offset: Array
    """int64: the attempt holds ``nodes[node_offset : node_offset + node_count]``."""
    node_count: Array
    """int32."""
    gpus: Array
    """int32."""
    productive_ms: Array
    """int64: progress that the job keeps."""
    lost_ms: Array
    """int64: progress that it made and lost, and time that it hung."""
    init_ms: Array
    """int64."""
    write_ms: Array
    """int64: time for which checkpoint writes stopped the work."""
    failure: Array
    """int32: place in `Failures` of what ended it; -1: nothing did."""
    preemptor: Array
    """int32: job that preempted it; -1: none."""
    signal_ms: Array
    """int64: when the preemption signal came; -1: none."""
    expected_failures: Array
    """float64: the injected hazard, integrated over its nodes and its time."""


class Failures(NamedTuple):
    """Failures of nodes in the order of their times; those of idle nodes too."""

    time_ms: Array
    """int64."""
    node: Array
    """int32."""
    component: Array
    """int16: place in `failures.components`; with a blast, place in `failures.blasts`."""
    kind: Array
    """int8: `Detected`."""
    detected_ms: Array
    """int64: when the check fires, or the heartbeat is missed."""
    blast: Array
    """int32: number of the common event that it is part of; -1: none."""
    permanent: Array
    """bool: takes a long repair."""
    out_ms: Array
    """int64: from when the node is out of service; -1: drained and still busy."""
    repaired_ms: Array
    """int64: from when it is back; -1: not yet."""


def zeros(kind: type[Any], types: dict[str, str], rows: int) -> Any:
    """An instance of one of the classes above with `rows` rows."""
    return kind(*(np.zeros(rows, types[name]) for name in kind._fields))


JOB_TYPES = {
    "submit_ms": "i8", "gpus": "i4", "work_ms": "i8", "limit_ms": "i8", "qos": "i2",
    "user": "i4", "end_state": "i1",
}  # fmt: skip
ATTEMPT_TYPES = {
    "job": "i4", "attempt": "i4", "eligible_ms": "i8", "start_ms": "i8", "end_ms": "i8",
    "state": "i1", "node_offset": "i8", "node_count": "i4", "gpus": "i4", "productive_ms": "i8",
    "lost_ms": "i8", "init_ms": "i8", "write_ms": "i8", "failure": "i4", "preemptor": "i4",
    "signal_ms": "i8", "expected_failures": "f8",
}  # fmt: skip
FAILURE_TYPES = {
    "time_ms": "i8", "node": "i4", "component": "i2", "kind": "i1", "detected_ms": "i8",
    "blast": "i4", "permanent": "?", "out_ms": "i8", "repaired_ms": "i8",
}  # fmt: skip
