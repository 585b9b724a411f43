"""What was lost since yesterday: GPU-hours by cause and order in the last day of the log."""

from __future__ import annotations

from dataclasses import replace

import ibis
import pandas as pd
import pyarrow as pa

from holdfast.fleet import figures
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.log import DAY_S, FleetLog
from holdfast.fleet.losses import losses
from holdfast.fleet.moments import minute
from holdfast.fleet.sections import drawn
from holdfast.fleet.wording import decimals
from holdfast.numbers import brief, counted, duration
from holdfast.report import ColumnFormat, How, Section, Table

COLUMNS = ["cause", "failures", "first_order", "second_order"]


def lost_between(log: FleetLog, begin_s: float, end_s: float) -> pd.DataFrame:
    """Losses whose attempts ended in (begin_s, end_s], by cause.

    Args:
        log: the open log.
        begin_s: epoch seconds.
        end_s: epoch seconds.

    Returns:
        cause, failures, first_order and second_order (GPU-hours, as `losses` defines them); the
        largest loss first.
    """
    failures, preempted = losses(log)
    zero = ibis.literal(0.0)
    first = failures.select(
        "stop_s", cause="label", failures=ibis.literal(1), first_order="lost", second_order=zero
    )
    second = preempted.filter(preempted.order == 2).select(
        "stop_s", cause="cause", failures=ibis.literal(0), first_order=zero, second_order="lost"
    )
    both = first.union(second).filter(lambda t: (t.stop_s > begin_s) & (t.stop_s <= end_s))
    frame = log.frame(
        both.group_by("cause").agg(
            failures=both.failures.sum(),
            first_order=both.first_order.sum(),
            second_order=both.second_order.sum(),
        )
    )
    frame["lost"] = frame["first_order"] + frame["second_order"]
    return frame.sort_values(["lost", "cause"], ascending=[False, True], ignore_index=True)[COLUMNS]


def since_yesterday(analysis: Analysis) -> Section:
    """What was lost since yesterday?"""
    log = analysis.log
    end = log.end_s
    now, before = (
        lost_between(log, end - DAY_S, end),
        lost_between(log, end - 2 * DAY_S, end - DAY_S),
    )
    then = before.assign(before=before["first_order"] + before["second_order"])
    table = now.merge(then[["cause", "before"]], "outer", "cause", sort=False)
    table = table.fillna(dict.fromkeys((*COLUMNS[1:], "before"), 0))
    table["failures"] = table["failures"].astype("int64")
    table = table.sort_values(
        ["first_order", "second_order", "before", "cause"],
        ascending=[False, False, False, True],
        ignore_index=True,
    )
    digits = decimals(table[["first_order", "second_order", "before"]].max())
    columns = {
        "cause": ColumnFormat("Likeliest cause"),
        "failures": ColumnFormat("Failures"),
        "first_order": ColumnFormat("Lost, first order", "GPU-h", digits=digits),
        "second_order": ColumnFormat("Lost, second order", "GPU-h", digits=digits),
        "before": ColumnFormat("The day before, both", "GPU-h", digits=digits),
    }
    if not _has_day_before(log):
        del columns["before"]
    figure = figures.loss_by_cause(replace(analysis.goodput, by_cause=now))
    return Section(
        "yesterday",
        "What was lost since yesterday?",
        _sentence(analysis, now, before),
        drawn(figure),
        [
            Table(
                pa.Table.from_pandas(table, preserve_index=False),
                columns,
                caption="One row per symptom, largest loss first.",
                empty="No failures in the last day of the log.",
            )
        ],
        How(
            [
                "lost = GPUs × min(runtime, Δt/2), summed over the attempts that ended in the day",
                "first order: attempts that the infrastructure ended",
                "second order: attempts preempted by a run that had failed before",
            ],
            {
                "the day ends with the log": minute(end),
                "checkpoint interval Δt (assumed)": duration(log.assumptions.checkpoint_interval_s),
            },
        ),
    )


def _has_day_before(log: FleetLog) -> bool:
    return log.end_s - log.begin_s >= 2 * DAY_S


def _sentence(analysis: Analysis, now: pd.DataFrame, before: pd.DataFrame) -> str:
    log = analysis.log
    first, second = float(now["first_order"].sum()), float(now["second_order"].sum())
    failures = int(now["failures"].sum())
    span = "24 h" if log.end_s - log.begin_s >= DAY_S else duration(log.end_s - log.begin_s)
    when = f"the {span} to {minute(log.end_s)}"
    if not failures and not second:
        return f"Nothing in {when}: no infrastructure failure."
    if not analysis.goodput.total_gpu_hours:
        return f"{counted(failures, 'failure')} in {when}; the log records no GPUs."
    text = (
        f"{brief(first + second)} GPU-hours in {when}: {brief(first)} in "
        f"{counted(failures, 'failed attempt')} and {brief(second)} in attempts preempted when they "
        "came back."
    )
    if not _has_day_before(log):
        return text
    then = float(before["first_order"].sum() + before["second_order"].sum())
    return f"{text} The day before: {brief(then)}."
