"""Productive time of attempts: the one definition behind every ETTR and every loss that a log gives.

A log contains how long an attempt held its nodes, not what it did there. So productive time is the
runtime less initialization (`FleetLog.init_s`) and checkpoint writes. An attempt that was cut off (by
the infrastructure, a preemption or a requeue) loses what it made since its last checkpoint: half an
interval on average (Kokolis et al., arXiv 2410.21680v2). A preempted one loses nothing where
`Assumptions.save_on_signal` says that jobs save their work in the grace period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import FleetLog
from holdfast.fleet.preemption import preemptions

if TYPE_CHECKING:
    import ibis.expr.types as ir


def lost_s(log: FleetLog, attempts: ir.Table, *, preempted: bool) -> ir.FloatingValue:
    """Work that each attempt loses when it is cut off, seconds.

    Args:
        log: its assumptions give the checkpoint interval.
        attempts: with the column runtime_s.
        preempted: by a preemption, not by a failure or a requeue.
    """
    if preempted and log.assumptions.save_on_signal:
        return ibis.literal(0.0)
    half = log.assumptions.checkpoint_interval_s / 2
    return ibis.least(attempts.runtime_s.cast("float64"), half)


def with_productive_time(log: FleetLog, attempts: ir.Table) -> ir.Table:
    """Attempts with how they were cut off and the productive time that they made and kept.

    Args:
        log: its assumptions say what of a runtime was productive.
        attempts: of `log.executions`.

    Returns:
        The attempts with the columns cut ("failure", "preemption", "requeue" or "none"), made_s and
        kept_s (seconds; kept_s is what a later attempt can build on).
    """
    failed = infrastructure_failures(log).select("key").mutate(failed=True)
    taken = preemptions(log).select("key").distinct().mutate(taken=True)
    t = attempts.left_join(failed, "key").drop("key_right")
    t = t.left_join(taken, "key").drop("key_right")
    # A failure in the grace period is a failure: `losses` counts it so, too.
    cut = ibis.cases(
        (t.failed.fill_null(False), "failure"),
        (t.taken.fill_null(False), "preemption"),
        (t.state == "REQUEUED", "requeue"),
        else_="none",
    )
    t = t.mutate(cut=cut).drop("failed", "taken")
    rest = ibis.greatest(t.runtime_s.cast("float64") - log.init_s, 0.0)
    write, interval = log.assumptions.write_s, log.assumptions.checkpoint_interval_s
    cycles = rest / (interval + write)
    # A completed attempt writes its result at the end, too.
    writes = ibis.ifelse(t.state == "COMPLETED", cycles.ceil(), cycles.floor())
    made = ibis.greatest(rest - writes * write, 0.0)
    lost = ibis.cases(
        (t.cut == "none", 0.0),
        (t.cut == "preemption", lost_s(log, t, preempted=True)),
        else_=lost_s(log, t, preempted=False),
    )
    return t.mutate(made_s=made, kept_s=ibis.greatest(made - lost, 0.0))
