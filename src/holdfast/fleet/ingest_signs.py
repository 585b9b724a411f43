"""Does the log hide attempts? `sacct` without ``--duplicates`` prints the last one of a job only.

The failures that were requeued are then missing and every rate computed from the log is too low, so
the answer is written into the store and into every report.
"""

from __future__ import annotations

import numpy as np

from holdfast.fleet.ingest_index import NULL, Index, Ints, Mask, Sign


def duplicates_flag(index: Index, order: Ints, first: Mask) -> str:
    """``"present"``, ``"missing"`` or ``"unknown"`` (nothing was ever requeued).

    Present: more jobs show several executions than show signs of hidden ones. A resized job has two
    rows even without ``--duplicates`` and does not count. The signs of a hidden attempt, on a job
    with one row: Slurm's restart counter is above 0; or the row waited for BeginTime, as a requeued
    job does, and was submitted later than a job with a higher number, which a user's ``--begin``
    does not cause. Gaps in DBIndex are no sign: other users' jobs and purged ones leave them too.

    Args:
        index: the attempts.
        order: kept rows, sorted by job and then by time.
        first: shape of `order`; the row is the first of its job.
    """
    if not len(order):
        return "unknown"
    job = np.cumsum(first) - 1
    real = ~index.has(Sign.RECOVERED)[order]
    executions = np.bincount(job, weights=real & ~index.has(Sign.RESIZING)[order])
    resized = np.bincount(job, weights=index.has(Sign.RESIZING)[order]) > 0
    shown = int((executions > 1).sum())
    alone = order[real & (executions == 1)[job] & ~resized[job]]
    begun = index.start[alone] != NULL
    waited = index.has(Sign.BEGIN_TIME)[alone] & begun & _late(index, order)[alone]
    hidden = int((index.has(Sign.RESTARTED)[alone] | waited).sum())
    if not shown and not hidden:
        return "unknown"
    return "present" if shown >= hidden else "missing"


def _late(index: Index, order: Ints) -> Mask:
    """Rows submitted later than some job with a higher number; false for array tasks.

    Tasks of an array get their numbers when they start but keep the array's time of submission, so
    they say nothing about the order of submissions.
    """
    plain = order[
        ~index.has(Sign.ARRAY)[order]
        & (index.submit[order] != NULL)
        & (index.raw[order] != NULL)
        & ~index.has(Sign.RECOVERED)[order]
    ]
    by_number = plain[np.argsort(index.raw[plain], kind="stable")]
    submit = index.submit[by_number]
    soonest_after = np.minimum.accumulate(submit[::-1])[::-1]
    late = np.zeros(len(index.key), bool)
    late[by_number[:-1]] = soonest_after[1:] < submit[:-1]
    return late
