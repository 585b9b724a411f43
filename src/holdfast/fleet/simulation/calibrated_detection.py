"""How soon health checks see a failure, from the times at which they fired."""

from __future__ import annotations

import numpy as np

from holdfast.fleet.attribution import classified_health, infrastructure_failures, ranked_causes
from holdfast.fleet.log import FleetLog
from holdfast.fleet.simulation.estimates import Findings, rounded
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.scenario import Detection

FEWEST_GAPS = 10
USUAL_INTERVALS_S = (60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0)
ALIGNED_S = 2.0
SURE_P = 1e-4
CLEAR_SHARE = 0.9
"""A check interval is one of the usual ones; gaps within `ALIGNED_S` of a multiple count for it, it is
believed if so many have a probability below `SURE_P`, and a longer one is preferred if it has this
share of the gaps of the best one."""


def detection(log: FleetLog, typical_s: float, findings: Findings) -> Detection:
    """How soon checks see a failure.

    Checks of a node come at one interval, so the times between what they find are multiples of it; a
    check that follows a crash at once is not one of these.
    """
    default = Detection()
    heartbeat = rounded(min(default.heartbeat_s, typical_s), 3)
    findings.assumed(
        "detection.heartbeat", "a log does not tell; SlurmdTimeout of scontrol show config"
    )
    gaps = (
        log.arrow(
            f"""WITH at_once AS (
            SELECT causes.node, time_s FROM {ranked_causes(log)} AS causes
            JOIN {infrastructure_failures(log)} AS failures ON causes.key = failures.key
            WHERE state = 'FAILED' AND offset_s > 0
        )
        SELECT time_s - lag(time_s) OVER (PARTITION BY node ORDER BY time_s) AS gap_s FROM (
            SELECT DISTINCT node, time_s FROM {classified_health(log)} WHERE result = 'fail'
        ) AS events
        ANTI JOIN at_once USING (node, time_s)"""
        )["gap_s"]
        .drop_null()
        .to_numpy()
    )
    gaps = gaps[gaps > ALIGNED_S]
    key = "detection.check_interval"
    interval = common_interval(gaps)
    if interval is None:
        findings.assumed(
            key,
            "the times between failed checks of a node have no interval in common "
            f"(n = {gaps.size:,})",
        )
        return Detection(rounded(min(default.check_interval_s, typical_s), 3), heartbeat)
    findings.found(
        key,
        interval,
        "times between failed checks of a node are multiples of it",
        n=gaps.size,
        unit="s",
    )
    return Detection(interval, heartbeat)


def common_interval(gaps: Array) -> float | None:
    """The longest usual interval of which far more gaps are multiples than chance explains.

    Args:
        gaps: seconds between events of one node, shape [n].

    Returns:
        Seconds; None if there is none, or there are too few gaps.
    """
    if gaps.size < FEWEST_GAPS:
        return None
    from scipy.special import bdtrc

    shares = {}
    for interval in USUAL_INTERVALS_S:
        off = np.abs((gaps + interval / 2) % interval - interval / 2)
        hits = int((off <= ALIGNED_S).sum())
        by_chance = (2 * ALIGNED_S + 1) / interval
        if hits and float(bdtrc(hits - 1, gaps.size, by_chance)) < SURE_P:
            shares[interval] = (hits / gaps.size - by_chance) / (1 - by_chance)
    best = max(shares.values(), default=0.0)
    fitting = [interval for interval, share in shares.items() if share >= CLEAR_SHARE * best]
    return max(fitting, default=None)
