"""The failure rate over time, and when each health check was first seen.

A check that is introduced makes failures visible that happened before, too: the rate jumps though the
machines did not get worse. So every plot over time marks the first event of each new check.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.tables import literal

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


def rate_over_time(log: FleetLog, min_gpus: int) -> tuple[list[dict[str, Any]], str]:
    """Failures and node-days per bin of time and cause, of attempts above a size.

    Args:
        log: the open log.
        min_gpus: attempts with more GPUs than this count; 0 counts all.

    Returns:
        (begin_s, end_s, cause, failures, node_days; one row per bin and cause, and one with the
        cause None and no failures for a bin without any; and what one bin is).
    """
    edges, unit = bin_edges(log.begin_s, log.end_s)
    bins = list(pairwise(edges))
    # One scan for all bins: the part of each attempt that lies in each bin. An attempt counts from
    # the beginning of the window, and one that was resized from there.
    parts = ", ".join(
        f"sum(greatest(least(high_s, {literal(high)}) - greatest(low_s, {literal(low)}), "
        f"{literal(0.0)}) * nodes) / {DAY_S} AS bin{place}"
        for place, (low, high) in enumerate(bins)
    )
    [node_days] = log.rows(
        f"""SELECT {parts} FROM (
            SELECT CAST(stop_s AS DOUBLE) AS high_s, CAST(stop_s - exposed_s AS DOUBLE) AS low_s,
                coalesce(node_count, 0) AS nodes
            FROM {log.executions} WHERE {larger_than(min_gpus)}
        ) AS spans"""
    )
    log.engine.load("time_bins", pa.table({"low": edges[:-1], "high": edges[1:]}))
    found: dict[float, list[tuple[str | None, int]]] = {}
    for row in log.rows(
        f"""SELECT low, label, count(*) AS n
        FROM {infrastructure_failures(log)} JOIN time_bins ON stop_s >= low AND stop_s < high
        WHERE {larger_than(min_gpus)} GROUP BY low, label ORDER BY low, label"""
    ):
        found.setdefault(row["low"], []).append((row["label"], row["n"]))
    return [
        {
            "begin_s": low,
            "end_s": high,
            "cause": cause,
            "failures": n,
            "node_days": node_days[f"bin{place}"] or 0.0,
        }
        for place, (low, high) in enumerate(bins)
        for cause, n in found.get(low, [(None, 0)])
    ], unit


def larger_than(min_gpus: int) -> str:
    """SQL: attempts with more than `min_gpus` GPUs; with 0, every attempt (also those without GPUs)."""
    return "TRUE" if min_gpus == 0 else f"gpus > {min_gpus}"


def checks_introduced(log: FleetLog) -> list[dict[str, Any]]:
    """Checks that began during the log: check, first_s, events; the earliest first.

    With n events, all in the last part of length 1 - x of the log, the probability that none fell
    into the first part x is (1 - x)^n if the check had run from the beginning.
    """
    seen = log.rows(
        'SELECT "check", min(time_s) AS first_s, count(*) AS events '
        f'FROM {log.table("health")} GROUP BY "check" ORDER BY first_s, "check"'
    )
    span = max(log.end_s - log.begin_s, 1.0)

    def is_new(row: dict[str, Any]) -> bool:
        silent = min(max((row["first_s"] - log.begin_s) / span, 0.0), 1.0)
        return bool(silent > 0 and (1.0 - silent) ** (row["events"] - 1) <= INTRODUCED_P)

    return [row for row in seen if is_new(row)]
