"""Whether the failure rate has jumped of late, for the alert: the log as a Poisson CUSUM sees it.

Failures are watched against exposure, both in units of the failures that the in-control rate expects. The
statistic falls by a drift for each expected failure, never below zero, and rises by one at each failure; an
alarm is given when it reaches the threshold (Lucas 1985, Technometrics 27, "Counted data CUSUM's", in
continuous time).

The last 28 days are watched against the 16 weeks before them (in a short log: its second half against
the first). So a jump raises the alert while it is news, and a fleet that stays different becomes its
own baseline.

The in-control rate is the upper end of the exact 95 % interval of the baseline, not its point estimate:
a rate known from a few failures would else raise false alarms by its own error (and one without any
failure could not be used at all).

A health check that begins makes failures visible that happened before, too. Failures that are known
only through checks younger than the baseline are therefore set aside and counted by themselves: the
apparent jump raises no alert, and they do not vanish either. NODE_FAIL counts always.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import infrastructure_failures, ranked_causes
from holdfast.fleet.incidents import ended_attempts, incidents
from holdfast.fleet.log import DAY_S, NODE_FAIL
from holdfast.fleet.node_time import larger_than, node_time
from holdfast.stats import cusum, poisson_interval
from holdfast.tables import literal

FloatArray = npt.NDArray[np.float64]

# What the statistic loses for each expected failure: (k - 1) / ln k, tuned to k = 2, a doubling.
DRIFT = 1 / math.log(2)
# One false alarm in 1,000 expected failures, in the mean, while the rate is the in-control one.
THRESHOLD = 7.96
WATCHED_S = 28.0 * DAY_S
BASELINE_S = 112.0 * DAY_S
# All XIDs come from one check, the kernel's log: a number seen for the first time is not a new
# check.
KERNEL = "xid"
# SQL of what found an event: the check, or the kernel's log for any XID.
_MONITOR = (
    f"CASE WHEN starts_with(lower(\"check\"), '{KERNEL} ') THEN '{KERNEL}' ELSE \"check\" END"
)


@dataclass(frozen=True)
class RateJump:
    """The CUSUM of a log and what it is held against."""

    statistic: float  # In failures; an alarm at `THRESHOLD` or above
    # The rate that counts as unchanged: the upper end of the baseline's 95 % interval.
    in_control_per_node_day: float
    watched_begin_s: float
    baseline_failures: int
    baseline_node_days: float
    watched_failures: int
    watched_node_days: float
    # Failures of the watched time that only new checks show; in none of the counts above.
    set_aside: int
    new_checks: tuple[str, ...]  # Checks first seen after the baseline began

    @property
    def watched_rate(self) -> float:
        """Failures per node and day of the watched time."""
        return self.watched_failures / self.watched_node_days


def rate_jump(analysis: Analysis) -> RateJump | None:
    """Hold the last weeks of a log against the weeks before.

    Args:
        analysis: of the log; its threshold of job size applies (`Analysis.min_gpus`).

    Returns:
        the statistic, or None where the baseline or the watched time has no node-days.
    """
    log = analysis.log
    span = log.end_s - log.begin_s
    watched_from = log.end_s - min(WATCHED_S, span / 2)
    baseline_from = max(log.begin_s, watched_from - BASELINE_S)
    new = _new_checks(analysis, baseline_from, watched_from)
    moments, only_new = _failures(analysis, baseline_from, new)
    late = moments >= watched_from
    before = int((~late & ~only_new).sum())
    counted = np.sort(moments[late & ~only_new])
    marks = np.concatenate([[watched_from, log.end_s], counted])
    baseline, total, *until = _node_days(analysis, baseline_from, marks).tolist()
    if baseline <= 0 or total <= baseline:
        return None
    in_control = poisson_interval(before, baseline)[1]
    expected_at = [in_control * (days - baseline) for days in until]
    statistic = cusum(expected_at, in_control * (total - baseline), DRIFT)
    watched, aside = total - baseline, int((late & only_new).sum())
    against = (in_control, watched_from, before, baseline)
    return RateJump(statistic, *against, len(counted), watched, aside, new)


def _node_days(analysis: Analysis, begin_s: float, at_s: FloatArray) -> FloatArray:
    """Node-days of exposure from a moment up to others, shape ``[n]``."""
    log = analysis.log
    if analysis.outages is not None:  # every node counts as up: outages are short
        return analysis.outages.nodes * (at_s - begin_s) / DAY_S
    until = node_time(log, analysis.min_gpus).until([begin_s, *at_s])
    return np.asarray(until[1:] - until[0])


def _failures(
    analysis: Analysis, begin_s: float, new: Collection[str]
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """When failures happened, and which of them only new checks show; shape ``[n]`` each."""
    log = analysis.log
    # A NODE_FAIL was seen by the scheduler itself, whatever check saw it too. Incidents of one reason
    # are one event; it is new to the log if it would not show without the new checks.
    rows = log.arrow(
        f"""SELECT min(stop_s) AS stop_s, coalesce(bool_and(only_new), FALSE) AS only_new
        FROM {incidents(log)} AS incidents LEFT JOIN (
            SELECT incident, failed.state <> '{NODE_FAIL}' AND NOT coalesce(old, TRUE) AS only_new
            FROM {ended_attempts(log)} AS ended
            JOIN {infrastructure_failures(log)} AS failed ON ended.key = failed.key
            LEFT JOIN (
                SELECT key, bool_or({_MONITOR} NOT IN {literal(["", *new])}) AS old
                FROM {ranked_causes(log)}
                WHERE severity = 'HIGH' AND coalesce(on_failed_node, TRUE) GROUP BY key
            ) AS known ON failed.key = known.key
        ) AS ended ON incidents.incident = ended.incident
        WHERE {larger_than(analysis.min_gpus)} GROUP BY cluster HAVING min(stop_s) >= {int(begin_s)}"""
    )
    moments = rows["stop_s"].to_numpy().astype(np.float64)
    return moments, rows["only_new"].to_numpy(zero_copy_only=False).astype(bool)


def _new_checks(analysis: Analysis, baseline_s: float, watched_s: float) -> tuple[str, ...]:
    """Checks without an event before the watched time, or that began during the baseline."""
    rows = analysis.log.rows(
        f"SELECT {_MONITOR} AS monitor, min(time_s) AS first_s "
        f"FROM {analysis.log.table('health')} GROUP BY monitor"
    )
    seen = {row["monitor"]: row["first_s"] for row in rows}
    unseen = {monitor for monitor, first_s in seen.items() if first_s >= watched_s}
    begun = {row["check"] for row in analysis.introduced if row["first_s"] > baseline_s}
    return tuple(sorted(unseen | begun & seen.keys()))
