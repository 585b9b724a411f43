"""Productive time of attempts, as every ETTR of a log counts it.

A log contains how long an attempt held its nodes, not what it did there. So productive time is the
runtime less what the fleet's assumptions put down as initialisation and as checkpoint writes; an attempt
that the infrastructure or a requeue ended keeps what it had saved by its last full checkpoint interval;
one that was preempted saves its work in its grace period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import FleetLog
from holdfast.fleet.preemption import preemptions

if TYPE_CHECKING:
    import ibis.expr.types as ir

EXIT_S = 1
"""A preempted attempt that saves its work leaves this long after the signal, or after its write."""


def with_productive_time(log: FleetLog, attempts: ir.Table, init_s: float) -> ir.Table:
    """Attempts with how they were cut off and the productive time that they made and kept.

    Args:
        log: its assumptions say what of a runtime was productive.
        attempts: of `log.executions`.
        init_s: initialisation of each attempt, seconds.

    Returns:
        The attempts with the columns cut ("failure", "preemption", "requeue" or "none"), made_s and
        kept_s (seconds; kept_s is what a later attempt can build on).
    """
    failed = infrastructure_failures(log).select("key").mutate(failed=True)
    taken = preemptions(log).select("key").distinct().mutate(taken=True)
    t = attempts.left_join(failed, "key").drop("key_right")
    t = t.left_join(taken, "key").drop("key_right")
    cut = ibis.cases(
        (t.taken.fill_null(False), "preemption"),
        (t.failed.fill_null(False), "failure"),
        (t.state == "REQUEUED", "requeue"),
        else_="none",
    )
    t = t.mutate(cut=cut).drop("failed", "taken")
    rest = ibis.greatest(t.runtime_s.cast("float64") - init_s, 0.0)
    write, interval = log.assumptions.write_s, log.assumptions.checkpoint_interval_s
    cycles = rest / (interval + write)
    # A completed attempt writes its result at the end, too.
    writes = ibis.ifelse(t.state == "COMPLETED", cycles.ceil(), cycles.floor())
    made = ibis.greatest(rest - writes * write, 0.0)
    saving = ibis.greatest(rest - max(write, EXIT_S), 0.0)
    saved = saving - (saving / (interval + write)).floor() * write
    kept = ibis.cases(
        (t.cut == "preemption", saved),
        (t.cut == "none", made),
        else_=cycles.floor() * interval,
    )
    return t.mutate(made_s=made, kept_s=kept)
