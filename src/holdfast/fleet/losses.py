"""GPU-hours lost to infrastructure failures, of first and second order.

First order: GPUs x min(runtime, checkpoint interval / 2) of each attempt that the infrastructure ended.
Second order: the same of each attempt that was preempted when such a job came back (Kokolis et al.,
arXiv 2410.21680v2, on goodput loss). The measured ETTR subtracts the same (`productive_time.lost_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ibis
import pandas as pd

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import HOUR_S, FleetLog, open_log
from holdfast.fleet.moments import iso
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.productive_time import lost_s
from holdfast.fleet.store import Store

if TYPE_CHECKING:
    import ibis.expr.types as ir


@dataclass(frozen=True)
class Goodput:
    """What failures cost, in GPU-hours."""

    total_gpu_hours: float
    """GPU-hours of all attempts in the window."""
    lost_first_order: float
    lost_second_order: float
    failures: int
    """Attempts that the infrastructure ended."""
    preemptions: int
    """Attempts that were preempted, by anybody."""
    preemptions_second_order: int
    by_job_size: pd.DataFrame
    """gpus_min, gpus_max, gpu_hours, failures, first_order, second_order (GPU-hours)."""
    by_cause: pd.DataFrame
    """cause, failures, first_order, second_order (GPU-hours), largest loss first."""
    crash_loops: pd.DataFrame
    """run, job_id, gpus, requeues, preempted, gpu_hours_lost, first_s, last_s, most requeues first."""

    @property
    def lost_gpu_hours(self) -> float:
        """Both orders together."""
        return self.lost_first_order + self.lost_second_order

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet goodput`` (GPU-hours)."""
        loops = [
            {**loop, "first": iso(loop.pop("first_s")), "last": iso(loop.pop("last_s"))}
            for loop in self.crash_loops.to_dict("records")
        ]
        return {
            "total": self.total_gpu_hours,
            "lost_first_order": self.lost_first_order,
            "lost_second_order": self.lost_second_order,
            "failures": self.failures,
            "preemptions": self.preemptions,
            "preemptions_second_order": self.preemptions_second_order,
            "by_job_size": self.by_job_size.to_dict("records"),
            "by_cause": self.by_cause.to_dict("records"),
            "crash_loops": loops,
        }


def goodput(log: str | Path | Store | FleetLog) -> Goodput:
    """Count the GPU-hours that failures cost.

    Args:
        log: a store or an open log.

    Returns:
        Totals, and the losses by job size, by cause and by crash loop.
    """
    log = open_log(log)
    failures, preempted = losses(log)
    attempts = log.attempts
    total = log.rows(attempts.agg(total=attempts.gpu_hours.sum()))[0]["total"] or 0.0
    counted = log.rows(
        preempted.agg(all=preempted.count(), second=(preempted.order == 2).sum().fill_null(0))
    )[0]
    by_cause = log.frame(_by_cause(failures, preempted)).sort_values(
        ["first_order", "second_order", "cause"], ascending=[False, False, True], ignore_index=True
    )
    return Goodput(
        total_gpu_hours=total,
        lost_first_order=float(by_cause["first_order"].sum()),
        lost_second_order=float(by_cause["second_order"].sum()),
        failures=int(by_cause["failures"].sum()),
        preemptions=counted["all"],
        preemptions_second_order=counted["second"],
        by_job_size=_by_job_size(log, failures, preempted),
        by_cause=by_cause,
        crash_loops=_crash_loops(log, failures, preempted),
    )


def losses(log: FleetLog) -> tuple[ir.Table, ir.Table]:
    """Failures and preemptions with the GPU-hours that each of them lost.

    Returns:
        (infrastructure failures + `lost`; preemptions + `lost`, zero for those of first order and
        for attempts that are among the failures, and `cause`: that of the latest failure of the
        preemptor's run before the preemption, null for those of first order).
    """
    failures = log.keep(
        "failure_losses", lambda: _with_loss(log, infrastructure_failures(log), preempted=False)
    )

    def priced() -> ir.Table:
        t = _with_loss(log, preemptions(log), preempted=True)
        # Work is lost once: what a node failure ended in its grace period is lost in first order.
        once = t.anti_join(failures, "key").select(once_key="key")
        t = t.left_join(once, t.key == once.once_key)
        counts = (t.order == 2) & t.once_key.notnull()
        t = t.mutate(second=t.order == 2, lost=ibis.ifelse(counts, t.lost, 0.0)).drop("once_key")
        last = failures.select(
            preemptor_run="run", failed_s="stop_s", cause="label", failed_key="key"
        )
        pairs = (
            t.filter(t.second)
            .select("key", "preemptor_run", "signal_s")
            .join(last, "preemptor_run")
        )
        pairs = pairs.filter(pairs.failed_s <= pairs.signal_s + 1)
        pairs = pairs.mutate(
            place=ibis.row_number().over(
                group_by="key", order_by=[pairs.failed_s.desc(), pairs.failed_key]
            )
        ).filter(lambda p: p.place == 0)
        return t.left_join(pairs.select("key", "cause"), "key").drop("key_right", "second")

    return failures, log.keep("preemption_losses", priced)


def _with_loss(log: FleetLog, attempts: ir.Table, *, preempted: bool) -> ir.Table:
    lost = lost_s(log, attempts, preempted=preempted)
    return attempts.mutate(lost=attempts.gpus.fill_null(0) * lost / HOUR_S)


def _by_cause(failures: ir.Table, preempted: ir.Table) -> ir.Table:
    first = failures.select(
        cause="label",
        failures=ibis.literal(1),
        first_order="lost",
        second_order=ibis.literal(0.0),
    )
    second = preempted.filter(preempted.order == 2).select(
        cause="cause",
        failures=ibis.literal(0),
        first_order=ibis.literal(0.0),
        second_order="lost",
    )
    both = first.union(second)
    return both.group_by("cause").agg(
        failures=both.failures.sum(),
        first_order=both.first_order.sum(),
        second_order=both.second_order.sum(),
    )


def _by_job_size(log: FleetLog, failures: ir.Table, preempted: ir.Table) -> pd.DataFrame:
    """A job's loss counts in its own size, also where another job's failure caused it."""
    zero = ibis.literal(0.0)
    none = ibis.literal(0)
    attempts = log.executions
    parts = [
        (attempts, attempts.gpu_hours, none, zero, zero),
        (failures, zero, ibis.literal(1), failures.lost, zero),
        (preempted, zero, none, zero, preempted.lost),
    ]
    rows = [
        t.select(
            gpus_max=bucket_top(t.gpus),
            gpu_hours=hours,
            failures=count.cast("int64"),
            first_order=first,
            second_order=second,
        )
        for t, hours, count, first, second in parts
    ]
    every = ibis.union(*rows)
    frame = log.frame(
        every.group_by("gpus_max").agg(
            gpu_hours=every.gpu_hours.sum(),
            failures=every.failures.sum(),
            first_order=every.first_order.sum(),
            second_order=every.second_order.sum(),
        )
    ).sort_values("gpus_max", ignore_index=True)
    frame.insert(0, "gpus_min", [bucket_bottom(int(top)) for top in frame["gpus_max"]])
    return frame


def _crash_loops(log: FleetLog, failures: ir.Table, preempted: ir.Table) -> pd.DataFrame:
    """Runs that the infrastructure ended and the scheduler requeued again and again."""
    loop = log.assumptions
    attempts = log.attempts.semi_join(failures, "run")
    seen = ibis.coalesce(attempts.start_s, attempts.submit_s)
    last = attempts.group_by("run").agg(last_seen_s=seen.max())
    requeued = failures.join(last, "run").filter(lambda t: t.last_seen_s >= t.stop_s)
    in_run = ibis.window(group_by="run", order_by=[requeued.stop_s, requeued.key])
    requeued = requeued.mutate(
        earlier_s=requeued.stop_s.lag(loop.crash_loop_requeues - 1).over(in_run)
    )
    close = requeued.filter(requeued.stop_s - requeued.earlier_s <= loop.crash_loop_window_s)
    requeued = requeued.semi_join(close, "run")
    own = requeued.group_by("run").agg(
        job_id=requeued.job_id.max(),
        gpus=requeued.gpus.max().fill_null(0),
        requeues=requeued.count(),
        first_order=requeued.lost.sum(),
        first_s=requeued.stop_s.min(),
        last_s=requeued.stop_s.max(),
    )
    second = preempted.filter(preempted.order == 2)
    others = second.group_by(run=second.preemptor_run).agg(
        preempted=second.count(), second_order=second.lost.sum()
    )
    frame = log.frame(own.left_join(others, "run").drop("run_right"))
    for name in ("preempted", "second_order"):
        frame[name] = pd.to_numeric(frame[name]).fillna(0)  # objects where no run preempted
    frame["preempted"] = frame["preempted"].astype("int64")
    frame["gpu_hours_lost"] = frame["first_order"] + frame["second_order"]
    frame = frame.sort_values(["requeues", "run"], ascending=[False, True], ignore_index=True)
    columns = ["run", "job_id", "gpus", "requeues", "preempted", "gpu_hours_lost"]
    return frame[[*columns, "first_s", "last_s"]]
