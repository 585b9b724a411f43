"""Plans that are made anew every day on a forecast, and what they lose against perfect foresight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from holdfast import progress
from holdfast.carbon.planning import DAY_H, Plan, Problem, aligned
from holdfast.carbon.policies import Window, efficient, part_of
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused
from holdfast.carbon.workloads import Load

Forecast = Callable[[FloatArray, int], FloatArray]
"""(values of all hours so far [now], number of hours to foresee) -> forecast [hours]."""
DAYS = 7


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
    horizon_h: int = 48,
    step_h: int = DAY_H,
    forecast: Forecast = recent_days,
) -> Plan:
    """Plan every `step_h` hours over the next `horizon_h` on a forecast, and keep the first step.

    Energy that is put off is carried over, and due by the end of every horizon. The same with perfect
    foresight is the oracle; the keys of `Plan.extra` compare both: kept_share (of the oracle's cut),
    regret (penalty units, or kg CO2 without a strength), saved_share_oracle, forecast_error.

    Args:
        load: workloads.
        signal: intensity or price, known up to now.
        flex: as of `plan`.
        cap: as of `plan`.
        strength: penalty units per t CO2; None: the largest cut.
        horizon_h: hours that each plan looks ahead.
        step_h: hours after which it is made anew.
        forecast: from what is known to what is expected.

    Raises:
        InputError: ``out-of-range`` for a horizon shorter than a step, or longer than the load.
    """
    problem = aligned(load, signal)
    hours = len(problem.grams)
    if not 0 < step_h <= horizon_h <= hours:
        found, expected = f"{horizon_h} h in steps of {step_h} h", f"step <= horizon <= {hours} h"
        raise refused("invalid horizon", "out-of-range", None, "horizon_h", found, expected)
    errors: list[float] = []

    def foreseen(first: int, last: int) -> FloatArray:
        expected = forecast(problem.grams[:first], last - first)
        errors.append(float(np.abs(expected - problem.grams[first:last]).mean()))
        return expected

    def known(first: int, last: int) -> FloatArray:
        return problem.grams[first:last]

    settings = (flex, cap, strength, horizon_h, step_h)
    made, oracle = (course(problem, view, *settings) for view in (foreseen, known))
    cuts = [one.kg_before - one.kg_after for one in (made, oracle)]
    price = 1.0 if strength is None else strength / 1000
    spent = 0.0 if strength is None else made.penalty - oracle.penalty
    extra = {
        "kept_share": cuts[0] / cuts[1] if cuts[1] else 1.0,
        "saved_share_oracle": oracle.saved_share,
        "penalty_oracle": oracle.penalty,
        "regret": spent + price * (cuts[1] - cuts[0]),
        "forecast_error": float(
            np.mean(errors[1:] or errors)
        ),  # before the first hour none is known
    }
    return replace(made, extra=extra)


def course(
    problem: Problem,
    view: Callable[[int, int], FloatArray],
    flex: float,
    cap: float | None,
    strength: float | None,
    horizon_h: int = 48,
    step_h: int = DAY_H,
) -> Plan:
    """What comes of planning again and again on what `view(first, last)` shows of the hours to come.

    The objective and the bound are sums over all horizons: their gap is that of what was planned.
    """
    before = np.array([workload.power for workload in problem.workloads])
    count, hours = before.shape
    d = np.zeros((count, hours))
    due, penalties, cut, owed, energy = np.zeros((5, count))
    price = None if strength is None else strength / 1000
    objective = bound = 0.0
    with progress.track("planning", -(-hours // step_h), "steps") as bar:
        for first in range(0, hours, step_h):
            last = min(first + horizon_h, hours)
            kept = slice(0, step_h)
            parts = tuple(
                part_of(workload, slice(first, last), flex, put_off)
                for workload, put_off in zip(problem.workloads, due.tolist(), strict=True)
            )
            window = Window(parts, view(first, last), problem.start_s + HOUR_S * first, cap)
            solved = efficient(window, price)
            constant = (1.0 if price is None else price) * float(window.grams @ window.total)
            objective, bound = (
                objective + solved.objective + constant,
                bound + solved.bound + constant,
            )
            actual = problem.grams[first:last]
            for n, (part, one) in enumerate(zip(parts, solved.d, strict=True)):
                d[n, first : first + step_h] = one[kept]
                later = float(part.penalty.owed(one)[kept].sum())
                owed[n] += later
                cut[n] += float(actual[kept] @ one[kept]) - later * float(actual.mean())
                penalties[n] += part.penalty.hourly(one, part.due)[kept].sum()
                due[n] += part.conserves * one[kept].sum()
                energy[n] += part.power[kept].sum()
            bar.advance(1)
    kg_before = float(before.sum(axis=0) @ problem.grams)
    stated = [workload.spec.entitlement for workload in problem.workloads]
    return Plan(
        policy="efficient",
        strength=strength,
        kg_before=kg_before,
        kg_after=kg_before - float(cut.sum()),
        objective=objective,
        bound=bound,
        names=tuple(workload.name for workload in problem.workloads),
        start_s=problem.start_s,
        before=before,
        after=before - d,
        grams=problem.grams,
        penalties=penalties,
        entitlements=np.array([e if s is None else s for e, s in zip(energy, stated, strict=True)]),
        kg_cut=cut,
        mwh_owed=owed,
        hours_left_out=0,
        signal=problem.signal,
        settings={
            "horizon_h": float(horizon_h),
            "step_h": float(step_h),
            "flex": flex,
            "cap_mw": cap,
        },
    )
