"""The failure rate over time, and when each health check was first seen.

A check that is introduced makes failures visible that happened before, too: the rate jumps though the
machines did not get worse. So every plot over time marks the first event of each new check.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import ibis
import pandas as pd

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog

if TYPE_CHECKING:
    import ibis.expr.types as ir

INTRODUCED_P = 0.05
"""A check is new if, had it run all along, so long a silence before its first event had at most this
probability."""


def bin_edges(begin_s: float, end_s: float) -> tuple[list[float], str]:
    """Edges of time bins that suit the length of a log, and what one bin is.

    Args:
        begin_s: start (epoch seconds).
        end_s: end (epoch seconds); one before the start counts as the start.

    Returns:
        (edges, shape [n + 1], the first at or before `begin_s`, the last after `end_s`; "month",
        "week", "day", "hour", "10 minutes" or "minute").
    """
    end_s = max(begin_s, end_s)
    span = end_s - begin_s
    if span > 75 * DAY_S:
        start = datetime.fromtimestamp(begin_s, UTC)
        month = start.year * 12 + start.month - 1
        edges: list[float] = []
        while not edges or edges[-1] <= end_s:
            edges.append(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp())
            month += 1
        return edges, "month"
    for width, name in (
        (7 * DAY_S, "week"),
        (DAY_S, "day"),
        (HOUR_S, "hour"),
        (600, "10 minutes"),
        (60, "minute"),
    ):
        if span >= 5 * width or width == 60:
            first = math.floor(begin_s / width) * width
            return [first + i * width for i in range(int((end_s - first) // width) + 2)], name
    raise AssertionError("the last width always fits")


def rate_over_time(log: FleetLog, min_gpus: int) -> tuple[pd.DataFrame, str]:
    """Failures and node-days per bin of time and cause, of attempts above a size.

    Args:
        log: the open log.
        min_gpus: attempts with more GPUs than this count; 0 counts all.

    Returns:
        (begin_s, end_s, cause, failures, node_days; one row per bin and cause, and one with the
        cause None and no failures for a bin without any; and what one bin is).
    """
    edges, unit = bin_edges(log.begin_s, log.end_s)
    t = larger_than(log.executions, min_gpus)
    # One scan for all bins: the part of each attempt that lies in each bin. An attempt counts from
    # the beginning of the window, and one that was resized from there.
    exposed_from_s = (t.stop_s - t.exposed_s).cast("float64")
    parts = {
        f"bin{i}": (
            ibis.greatest(
                ibis.least(t.stop_s.cast("float64"), hi) - ibis.greatest(exposed_from_s, lo), 0.0
            )
            * t.node_count.fill_null(0)
        ).sum()
        / DAY_S
        for i, (lo, hi) in enumerate(pairwise(edges))
    }
    node_days = log.rows(t.agg(**parts))[0]
    failed = log.frame(
        larger_than(infrastructure_failures(log), min_gpus).select("stop_s", cause="label")
    )
    failed["bin"] = pd.cut(failed["stop_s"], edges, right=False, labels=False)
    counts = failed.groupby(["bin", "cause"], as_index=False).size()
    found: dict[int, list[tuple[str | None, int]]] = {}
    for place, cause, n in zip(counts["bin"], counts["cause"], counts["size"], strict=True):
        found.setdefault(int(place), []).append((cause, int(n)))
    rows = [
        (lo, hi, cause, n, node_days[f"bin{i}"] or 0.0)
        for i, (lo, hi) in enumerate(pairwise(edges))
        for cause, n in found.get(i, [(None, 0)])
    ]
    columns = ["begin_s", "end_s", "cause", "failures", "node_days"]
    return pd.DataFrame(rows, columns=columns), unit


def larger_than(attempts: ir.Table, min_gpus: int) -> ir.Table:
    """Attempts with more than `min_gpus` GPUs; with 0, every attempt (also those without GPUs)."""
    return attempts if min_gpus == 0 else attempts.filter(attempts.gpus > min_gpus)


def checks_introduced(log: FleetLog) -> pd.DataFrame:
    """Checks that began during the log: check, first_s, events; the earliest first.

    With n events, all in the last part of length 1 - x of the log, the probability that none fell
    into the first part x is (1 - x)^n if the check had run from the beginning.
    """
    t = log.table("health")
    seen = log.frame(
        t.group_by("check").agg(first_s=t.time_s.min(), events=t.count()).order_by("check")
    )
    span = max(log.end_s - log.begin_s, 1.0)
    silent = ((seen["first_s"] - log.begin_s) / span).clip(0.0, 1.0)
    new = seen[((1.0 - silent) ** (seen["events"] - 1) <= INTRODUCED_P) & (silent > 0)]
    return new.sort_values(["first_s", "check"], ignore_index=True)
