"""Batch jobs in time: when each would start under a limit of capacity, or waiting for cleaner hours.

Events, not ticks: the cost is that of the jobs, not of the hours that they are in.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.carbon.formats import read_records
from holdfast.carbon.signals import FloatArray, IntArray, refused

UNITS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0}
"""Hours in a unit of time."""


@dataclass(frozen=True)
class Jobs:
    """A trace of jobs; all arrays are [N], in the order of arrival."""

    arrival_h: FloatArray
    length_h: FloatArray
    cpus: IntArray

    def __len__(self) -> int:
        return len(self.cpus)

    def chosen(self, which: npt.NDArray[np.bool_]) -> Jobs:
        """Some of the jobs."""
        return Jobs(self.arrival_h[which], self.length_h[which], self.cpus[which])


def read_jobs(path: str | Path, *, unit: str = "h") -> Jobs:
    """A trace from CSV with the columns arrival_time, length and cpus (as GAIA's traces).

    Args:
        path: the file, plain or compressed.
        unit: of the times: ``"s"``, ``"m"`` or ``"h"``.

    Raises:
        InputError: ``missing-column`` or ``invalid-value``, with the line.
    """
    records = read_records(Path(path))
    names = ("arrival_time", "length", "cpus")
    if not set(names) <= set(records.columns):
        problem, found = "not a trace of jobs", ", ".join(records.columns)
        raise refused(problem, "missing-column", path, "line 1", found, ", ".join(names))
    values = np.array([[records.number(p, cells[n]) for n in names] for p, cells in records.rows])
    wrong = ~((values >= 0) & np.isfinite(values)) | (values < [0, 0, 1])
    for row, column in np.argwhere(wrong)[:1]:
        place = f"{records.rows[row][0]}, {names[column]}"
        found, expected = f"{values[row, column]:g}", "times of at least 0 and at least one CPU"
        raise refused("not a job", "invalid-value", path, place, found, expected)
    arrival, length, cpus = values[np.argsort(values[:, 0], kind="stable")].T
    return Jobs(UNITS[unit] * arrival, UNITS[unit] * length, cpus.astype(np.int64))


def simulate(
    jobs: Jobs, limits: FloatArray, *, first_h: float = 0.0, slack_h: float = 24.0
) -> FloatArray:
    """Start times under an hourly limit of CPUs, earliest due date first.

    A job is due `slack_h` after it would end without a limit. Waiting jobs start in the order of their
    due dates; the first that does not fit holds up those behind it. A running job is not stopped.

    Args:
        jobs: N jobs.
        limits: [H] CPUs in use at most; before and after these hours there is no limit.
        first_h: start of the first of these hours.
        slack_h: hours.

    Returns:
        [N] hours.
    """
    due = jobs.arrival_h + jobs.length_h + slack_h
    starts = np.empty(len(jobs))
    arrivals, lengths, cpus = jobs.arrival_h.tolist(), jobs.length_h.tolist(), jobs.cpus.tolist()
    bounds, dues = limits.tolist(), due.tolist()
    queue: list[tuple[float, int]] = []
    running: list[tuple[float, int]] = []
    used, coming, time = 0, 0, arrivals[0] if arrivals else 0.0
    while coming < len(arrivals) or queue:
        following = [arrivals[coming]] if coming < len(arrivals) else []
        if queue:  # else the end of a job or of an hour starts nothing
            following.append(first_h + np.floor(time - first_h) + 1.0)
            following += [running[0][0]] if running else []
        time = max(time, min(following))
        while running and running[0][0] <= time:
            used -= heapq.heappop(running)[1]
        while coming < len(arrivals) and arrivals[coming] <= time:
            heapq.heappush(queue, (dues[coming], coming))
            coming += 1
        hour = int(np.floor(time - first_h + 1e-9))
        limit = bounds[hour] if 0 <= hour < len(bounds) else np.inf
        while queue and used + cpus[queue[0][1]] <= limit:
            job = heapq.heappop(queue)[1]
            starts[job] = time
            used += cpus[job]
            heapq.heappush(running, (time + lengths[job], cpus[job]))
    return starts


def waiting_starts(
    jobs: Jobs,
    grams: FloatArray,
    wait_h: FloatArray,
    expected_h: FloatArray | None = None,
) -> FloatArray:
    """Start times that wait for the cleanest window, as GAIA's "oracle" and "waiting" policies.

    Each job starts 0, 1, 2 ... whole hours after its arrival, no later than `wait_h`, where the signal
    over its length is lowest (Hanafy et al., "Going Green for Less Green", ASPLOS 2024).

    Args:
        jobs: N jobs.
        grams: [H] signal from hour 0 on.
        wait_h: [N] longest waits.
        expected_h: [N] lengths that the choice assumes (default: the true ones).

    Returns:
        [N] hours.
    """
    lengths = jobs.length_h if expected_h is None else expected_h
    edges = np.arange(len(grams) + 1, dtype=np.float64)
    total = np.concatenate([[0.0], np.cumsum(grams)])
    best = np.full(len(jobs), np.inf)
    chosen = np.zeros(len(jobs))
    for offset in range(int(wait_h.max(initial=0)) + 1):
        begin = jobs.arrival_h + offset
        end = begin + lengths
        cost = np.interp(end, edges, total) - np.interp(begin, edges, total)
        # Sums in another order differ in their last digits: of equal windows the first counts.
        better = (offset <= wait_h) & (end <= edges[-1]) & (cost < best * (1 - 1e-9))
        best[better], chosen[better] = cost[better], offset
    return jobs.arrival_h + chosen


def usage(
    starts: FloatArray, jobs: Jobs, first_h: int, hours: int, *, count: bool = False
) -> FloatArray:
    """[H] mean CPUs in use in each hour, or, with `count`, mean number of running jobs."""
    weights = np.ones(len(jobs)) if count else jobs.cpus.astype(np.float64)
    times = np.concatenate([starts, starts + jobs.length_h])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(np.concatenate([weights, -weights])[order])
    # The running sum of CPU-hours is straight between two events.
    total = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    edges = np.arange(first_h, first_h + hours + 1, dtype=np.float64)
    return np.diff(np.interp(edges, times, total)) if len(times) else np.zeros(hours)
