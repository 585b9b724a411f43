"""Plans that are made anew every day on a forecast, and what they lose against perfect foresight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from holdfast import progress
from holdfast.carbon.planning import DAY_H, Plan, collected, per_kg
from holdfast.carbon.policies import Window, efficient, part_of
from holdfast.carbon.problems import Problem, aligned
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused
from holdfast.carbon.workloads import Load

Forecast = Callable[[FloatArray, int], FloatArray]
"""(values of all hours so far [now], number of hours to foresee) -> forecast [hours]."""
DAYS = 7
HORIZON_H = 48


def recent_days(known: FloatArray, hours: int) -> FloatArray:
    """The mean of the same hour of the last seven days, moved to the level of the last one.

    It uses nothing after now; without a whole day of past, the mean of what there is.
    """
    days = min(len(known) // DAY_H, DAYS)
    if days == 0:
        return np.full(hours, known.mean() if len(known) else 0.0)
    past = known[len(known) - days * DAY_H :].reshape(-1, DAY_H)
    profile = past.mean(axis=0) + (past[-1].mean() - past.mean())
    return np.tile(profile, -(-hours // DAY_H))[:hours]


def rolling(
    load: Load,
    signal: Signal,
    *,
    flex: float = 0.4,
    cap: float | None = None,
    strength: float | None = None,
    forecast: Forecast = recent_days,
) -> Plan:
    """Plan every day over the next `HORIZON_H` on a forecast, and keep its first day.

    Energy that is put off is carried over, and due by the end of every horizon. The same with perfect
    foresight is the oracle; the keys of `Plan.extra` compare both: kept_share (of the oracle's cut beyond
    what needs no signal; below 0 where the forecast misleads: then plan without one),
    regret (penalty units, or kg CO2 without a strength), saved_share_oracle.

    Args:
        load: workloads.
        signal: average or marginal intensity, known up to now.
        flex: as of `plan`.
        cap: as of `plan`.
        strength: penalty units per t CO2; None: the largest cut.
        forecast: from what is known to what is expected.

    Raises:
        InputError: ``out-of-range`` for a load shorter than the horizon.
    """
    problem = aligned(load, signal)
    hours = len(problem.grams)
    if hours < HORIZON_H:
        text, expected = "too short for a plan on a forecast", f"at least {HORIZON_H} h"
        raise refused(text, "out-of-range", load.source, found=f"{hours} h", expected=expected)

    def foreseen(first: int, last: int) -> FloatArray:
        return forecast(problem.grams[:first], last - first)

    made = course(problem, foreseen, flex, cap, strength)
    oracle = course(problem, lambda a, b: problem.grams[a:b], flex, cap, strength)
    # What needs no signal is kept whatever the forecast: it is in neither.
    cuts = [one.kg_before - one.kg_after - one.kg_always for one in (made, oracle)]
    price = 1.0 if strength is None else strength / 1000
    spent = 0.0 if strength is None else made.penalty - oracle.penalty
    extra = {
        # Of a cut that is none, no share can be kept.
        "kept_share": cuts[0] / cuts[1] if cuts[1] > 1e-9 * oracle.kg_before else None,
        "saved_share_oracle": oracle.saved_share,
        "regret": spent + price * (cuts[1] - cuts[0]),
    }
    return replace(made, extra=extra)


def course(
    problem: Problem,
    view: Callable[[int, int], FloatArray],
    flex: float,
    cap: float | None,
    strength: float | None,
) -> Plan:
    """What comes of planning again and again on what `view(first, last)` shows of the hours to come.

    The objective and the bound are sums over all horizons: their gap is that of what was planned.
    """
    due = [0.0] * len(problem.workloads)
    price, limit = per_kg("efficient", strength), problem.limit(cap)
    windows, solved = [], []
    with progress.track("planning", -(-len(problem.grams) // DAY_H), "days") as bar:
        for first in range(0, len(problem.grams), DAY_H):
            hours = slice(first, min(first + HORIZON_H, len(problem.grams)))
            start_s = problem.start_s + HOUR_S * first
            pairs = zip(problem.workloads, due, strict=True)
            parts = tuple(part_of(workload, hours, flex, put_off) for workload, put_off in pairs)
            seen = Window(parts, view(hours.start, hours.stop), start_s, limit[hours])
            [found] = efficient([seen], price)
            done = [each[:DAY_H] for each in found.d]
            windows.append(Window(parts, problem.grams[hours], start_s).first(DAY_H))
            solved.append(replace(found, d=done))
            due = [
                part.due + float(each.sum()) if part.conserves else 0.0
                for part, each in zip(parts, done, strict=True)
            ]
            bar.advance(1)
    return collected(
        problem,
        windows,
        solved,
        "efficient",
        strength,
        {"horizon_h": float(HORIZON_H), "flex": flex, "cap_mw": cap},
    )
