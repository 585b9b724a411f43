"""What goes into a simulation and what comes out: one record per job, attempt, failure.

All times are whole milliseconds since `Scenario.begin`; -1 stands for "not yet" or "none". Jobs and
nodes are named by their places in the arrays.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# A NumPy record array of one of the kinds below: ``jobs.gpus`` is a column, int32 [jobs]. (The types of
# NumPy lose the columns when rows are selected.)
Records: TypeAlias = Any


# How an attempt ended, or where it stands when the simulated time is over.
State = IntEnum(
    "State",
    "COMPLETED FAILED CANCELLED OUT_OF_MEMORY TIMEOUT REQUEUED PREEMPTED NODE_FAIL RUNNING PENDING",
    start=0,
)


class Detected(IntEnum):
    """How a failure of a node is noticed."""

    HIGH = 0  # a check removes the node at once
    LOW = 1  # a check drains the node: its attempts go on
    SILENT = 2  # no check sees it: the node stops answering the scheduler


# What users submit, in order of submission.
JOBS = [
    ("submit_ms", "i8"),
    ("gpus", "i4"),
    ("work_ms", "i8"),  # productive time until the job ends of itself in `end_state`
    ("limit_ms", "i8"),  # the time limit of each attempt
    ("qos", "i2"),  # place in `Scenario.qos`
    ("user", "i4"),
    ("end_state", "i1"),  # COMPLETED, FAILED, CANCELLED or OUT_OF_MEMORY
]

# Executions in the order of their ends; then those that run or wait when time is over.
ATTEMPTS = [
    ("job", "i4"),
    ("attempt", "i4"),  # 1, 2, ... within the job
    ("eligible_ms", "i8"),  # from when it could start
    ("start_ms", "i8"),  # -1: PENDING
    ("end_ms", "i8"),  # -1: RUNNING or PENDING
    ("state", "i1"),  # `State`
    ("node_offset", "i8"),  # it holds `Run.nodes[node_offset : node_offset + node_count]`
    ("node_count", "i4"),
    ("gpus", "i4"),
    ("productive_ms", "i8"),  # progress that the job keeps
    ("lost_ms", "i8"),  # progress that it made and lost, and time that it hung
    ("init_ms", "i8"),
    ("write_ms", "i8"),  # time for which checkpoint writes stopped the work
    ("failure", "i4"),  # place in `Run.failures` of what ended it; -1: nothing did
    ("preemptor", "i4"),  # job that preempted it; -1: none
    ("signal_ms", "i8"),  # when the preemption signal came; -1: none
    ("expected_failures", "f8"),  # the injected hazard, integrated over its nodes and its time
]

# Failures of nodes in the order of their times; those of idle nodes too.
FAILURES = [
    ("time_ms", "i8"),
    ("node", "i4"),
    ("component", "i2"),  # place in `failures.components`; of a blast, in `failures.blasts`
    ("kind", "i1"),  # `Detected`
    ("detected_ms", "i8"),  # when the check fires, or the heartbeat is missed
    ("blast", "i4"),  # number of the common event that it is part of; -1: none
    ("permanent", "?"),  # takes a long repair
    ("pulled", "?"),  # made the rule of `Pulls` fire
    ("out_ms", "i8"),  # from when the node is out of service; -1: drained and still busy
    ("repaired_ms", "i8"),  # from when it is back; -1: not yet
]


def records(kind: list[tuple[str, str]], rows: int, **columns: Any) -> Array:
    """Records of a kind, here or of `kernel.state`; columns that are not given are zero."""
    array = np.zeros(rows, np.dtype(kind, align=True))
    for name, column in columns.items():
        array[name] = column
    return array


def table(kind: list[tuple[str, str]], rows: int, **columns: Any) -> Records:
    """The same with the columns as attributes."""
    return records(kind, rows, **columns).view(np.recarray)
