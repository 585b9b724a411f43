"""The loops over events, compiled: dividing a process's time among its spans, and finding replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    made: Any = njit(cache=True, nogil=True)(function)
    return cast(Function, made)


@_compiled
def divide(
    begin: Any,
    end: Any,
    part: Any,
    first: Any,
    low: Any,
    high: Any,
    lane: Any,
    weight: Any,
    bin_s: float,
    totals: Any,
    binned: Any,
    own: Any,
) -> None:
    """Give every moment of every process to the innermost span that is open in it.

    Innermost is the span that ends first among those open: for spans that are nested or apart this is
    the usual meaning, and for damaged ones that overlap it is still one span, so the shares of a window
    never exceed it.

    Args:
        begin: [n] run time at which a span begins, seconds.
        end: [n] its end; within a process the ends never fall, an inner span stands before the outer.
        part: [n] the row of `totals` that it counts in; negative: none (it is left to the idle time).
        first: [p + 1] index of the first span of each process.
        low: [p] spans count from here on, seconds of run time.
        high: [p] ... to here.
        lane: [p] the row of `binned` of a process.
        weight: [p] what a second of the process counts in `binned`.
        bin_s: width of the bins of run time, the first of which begins at 0.
        totals: [p, parts] seconds; added to.
        binned: [lanes, parts, bins] weighted seconds; added to.
        own: [n] seconds that a span has for itself; set.
    """
    bins = binned.shape[2]
    stack = np.empty(begin.size + 1, np.int64)
    for p in range(first.size - 1):
        depth = 0
        for i in range(first[p + 1] - 1, first[p] - 1, -1):
            while depth > 0 and begin[stack[depth - 1]] >= begin[i]:
                depth -= 1
            stack[depth] = i
            depth += 1
            # Between the end of the span before and that of this one, no span ends.
            floor = low[p]
            if i > first[p]:
                floor = max(floor, end[i - 1])
            upper = min(end[i], high[p])
            for place in range(depth - 1, -1, -1):
                if upper <= floor:
                    break
                j = stack[place]
                lower = max(begin[j], floor)
                if lower >= upper:
                    continue
                own[j] += upper - lower
                if part[j] >= 0:
                    totals[p, part[j]] += upper - lower
                    _spread(binned[lane[p], part[j]], lower, upper, weight[p], bin_s, bins)
                upper = lower


@_compiled
def _spread(row: Any, lower: float, upper: float, weight: float, bin_s: float, bins: int) -> None:
    """Add a stretch of run time to the bins that it covers."""
    k = min(max(int(lower / bin_s), 0), bins - 1)
    at = lower
    while at < upper:
        edge = upper if k == bins - 1 else min((k + 1) * bin_s, upper)
        if edge > at:
            row[k] += weight * (edge - at)
            at = edge
        k += 1
        if k == bins:
            break


@_compiled
def find_replays(process: Any, step: Any, done_before: Any, replayed: Any) -> None:
    """Mark the steps whose number had been completed before.

    Args:
        process: [n] process of each step, ascending; its steps in order of execution.
        step: [n] step number; negative: unknown.
        done_before: [p] the highest number completed in an earlier attempt, by any rank; -1: none.
        replayed: [n] output.

    Within a process numbers fall when it returns to a checkpoint without a restart. A number that
    repeats the previous one is the same step, recorded in parts.
    """
    highest = before = last = np.int64(-1)
    for i in range(step.size):
        if i == 0 or process[i] != process[i - 1]:
            highest = before = last = np.int64(-1)
        if step[i] != last:
            before = highest
            last = step[i]
            highest = max(highest, step[i])
        replayed[i] = step[i] >= 0 and (step[i] <= done_before[process[i]] or step[i] <= before)
