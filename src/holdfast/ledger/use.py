"""What the allocated hours were for: as the runs' records say, else as the fleet's assumptions estimate.

Of an attempt without a record a log tells how long it held its machines and how it ended. So its
initialization, its checkpoint writes and what it lost are estimated as `holdfast fleet goodput` and `fleet
ettr` do, and of the rest nobody knows whether it made steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import pyarrow as pa

from holdfast.fleet.log import HOUR_S, FleetLog
from holdfast.fleet.losses import losses
from holdfast.fleet.productive_time import with_productive_time
from holdfast.fleet.schema import Row, schema
from holdfast.ledger.parts import (
    CHECKPOINT,
    FIRST,
    INIT,
    REPLAYED,
    SECOND,
    UNRECORDED,
    USED,
    USERS,
    width,
)
from holdfast.tables import literal

ESTIMATES = (FIRST, SECOND, INIT, CHECKPOINT, REPLAYED, USERS, UNRECORDED)
_VARIANCES = ("first_spread", "second_spread", "replay_spread")
_DOUBTFUL = ("first_start", "second_start", "users_start", "last_write")
"""Hours that may be another part's."""
SPREADS = (*_VARIANCES, *_DOUBTFUL)
OF_USERS = ("CANCELLED", "FAILED", "OUT_OF_MEMORY")
"""End states that a user decides, or whose reason is in his program."""
GROUPS = {"user": '"user"', "partition": '"partition"', "account": "account"}


@dataclass(frozen=True)
class Use:
    """The allocated hours of a window."""

    measured: dict[str, float]
    """Part -> hours, of attempts with records."""
    estimated: dict[str, float]
    """Part -> hours, of the others."""
    reach: dict[str, tuple[float, float]]
    """Part -> how far the 95 % interval of its estimate reaches below and above, under the assumptions."""
    by: pa.Table | None
    """A row per user, partition or account: name, hours, and every part of `USED`."""

    @property
    def allocated(self) -> float:
        """Hours of all attempts."""
        return sum(self.measured.values()) + sum(self.estimated.values())


def use(log: FleetLog, recorded: pa.Table, by: str | None = None) -> Use:
    """Divide the hours of all attempts.

    Args:
        log: the open log.
        recorded: key of an attempt, and the hours of each part of `USED` that its records tell.
        by: one of `GROUPS`, for `Use.by`.
    """
    log.engine.load("recorded_use", recorded)
    group = GROUPS[by] if by else "''"
    estimates, told = (
        log.rows(f"SELECT coalesce({group}, '') AS name, {_sums(columns)} FROM {source} GROUP BY 1")
        for columns, source in (
            ((*ESTIMATES, *SPREADS), f"({_estimates(log)}) AS estimates"),
            (USED, f"recorded_use JOIN {log.executions} AS attempts USING (key)"),
        )
    )
    estimated, spread, measured = (
        {part: sum(row[part] for row in rows) for part in parts}
        for rows, parts in ((estimates, ESTIMATES), (estimates, SPREADS), (told, USED))
    )
    first, second, replay = (1.96 * sqrt(spread[name]) for name in _VARIANCES)
    reach = {
        # Of an attempt that is lost as a whole, nobody knows how much was initialization.
        FIRST: (first + spread["first_start"], first),
        SECOND: (second + spread["second_start"], second),
        INIT: (0.0, spread["first_start"] + spread["second_start"]),
        REPLAYED: (replay, replay),
        CHECKPOINT: (0.0, spread["last_write"]),
        USERS: (0.0, spread["users_start"]),
    }
    return Use(measured, estimated, reach, _by(by, [*estimates, *told]) if by else None)


def _by(name: str, rows: Sequence[Row]) -> pa.Table:
    """The hours of each group, most first; None: no record of the group tells that part."""
    groups: dict[str, dict[str, float | None]] = {}
    for row in rows:
        mine = groups.setdefault(row["name"], dict.fromkeys(USED))
        for part in USED:
            if part in row:
                mine[part] = (mine[part] or 0.0) + row[part]
    hours = {key: sum(filter(None, parts.values())) for key, parts in groups.items()}
    order = sorted(groups, key=lambda key: (-hours[key], key))
    every = [{name: key, "hours": hours[key], **groups[key]} for key in order]
    return pa.Table.from_pylist(
        every, schema(**{name: "string"}, **dict.fromkeys(("hours", *USED), "double"))
    )


def _sums(parts: Sequence[str]) -> str:
    return ", ".join(f"coalesce(sum({part}), 0.0) AS {part}" for part in parts)


def _estimates(log: FleetLog) -> str:
    """SQL: the attempts without records, with the hours of each part of `ESTIMATES`.

    Parts are taken in the order loss, initialization, writes, replay; each is at most what is left of the
    attempt's time in the window, of which initialization is the first part.
    """
    failures, preempted = losses(log)
    interval = literal(float(log.assumptions.checkpoint_interval_s))
    write = literal(float(log.assumptions.write_s))
    states = literal(OF_USERS)
    # A failure falls anywhere between two checkpoints: uniform, with a variance of length^2 / 12.
    spread = f"""CASE WHEN runtime_s <= {interval} / 2 THEN 0.0
        ELSE power(wide * least(runtime_s, {interval}), 2) / 12 END"""
    begun = f"(least(runtime_s - rest_s, exposed_s) - {INIT}) * wide"
    left = "exposed_s"
    steps = []
    for name, amount in (
        (FIRST, "CASE WHEN kind = 1 THEN lost / nullif(wide, 0) ELSE 0.0 END"),
        (SECOND, "CASE WHEN kind = 2 THEN lost / nullif(wide, 0) ELSE 0.0 END"),
        (INIT, "runtime_s - rest_s - (runtime_s - exposed_s)"),
        (CHECKPOINT, "(rest_s - made_s) * exposed_s / nullif(runtime_s, 0)"),
        (
            REPLAYED,
            "CASE WHEN cut IN ('preemption', 'requeue') AND lost = 0 THEN made_s - kept_s END",
        ),
    ):
        steps.append(f"greatest(least(coalesce({amount}, 0.0), {left}), 0.0) AS {name}")
        left += f" - {name}"
    hours = ", ".join(
        f"{part} * wide AS {part}" for part in ESTIMATES if part not in (USERS, UNRECORDED)
    )
    theirs = f"cut = 'none' AND state IN {states}"
    return f"""SELECT key, "user", "partition", account, {hours},
            CASE WHEN {theirs} THEN ({left}) * wide ELSE 0.0 END AS {USERS},
            CASE WHEN {theirs} THEN 0.0 ELSE ({left}) * wide END AS {UNRECORDED},
            CASE WHEN kind = 1 THEN {spread} END AS first_spread,
            CASE WHEN kind = 2 THEN {spread} END AS second_spread,
            CASE WHEN {REPLAYED} > 0 THEN {spread} END AS replay_spread,
            CASE WHEN kind = 1 THEN {begun} END AS first_start,
            CASE WHEN kind = 2 THEN {begun} END AS second_start,
            CASE WHEN {theirs} THEN {INIT} * wide END AS users_start,
            CASE WHEN cut <> 'none' OR state <> 'COMPLETED' THEN {write} * wide END AS last_write
        FROM (
            SELECT *, {", ".join(steps)} FROM (
                SELECT attempt.key, "user", "partition", account, state, cut,
                    {width(log)} / {float(HOUR_S)} AS wide, CAST(runtime_s AS DOUBLE) AS runtime_s,
                    CAST(exposed_s AS DOUBLE) AS exposed_s, rest_s, made_s, kept_s,
                    coalesce(lost, 0.0) AS lost, kind
                FROM ({with_productive_time(log, log.executions)}) AS attempt
                LEFT JOIN (
                    SELECT key, lost, 1 AS kind FROM {failures}
                    UNION ALL SELECT key, lost, 2 FROM {preempted} WHERE "order" = 2 AND lost > 0
                ) AS lost ON attempt.key = lost.key
                WHERE attempt.key NOT IN (SELECT key FROM recorded_use)
            ) AS sized
        ) AS parted"""
