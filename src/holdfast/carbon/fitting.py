"""Penalties of batch work, fitted to what a simulation of its jobs says about waiting.

Each sample takes two days of the trace, simulates them with and without a random-walk limit of CPUs, and
pairs the features of the curtailment with the extra waiting. The fit is a Lasso with weights of at
least 0, which keeps the penalty convex, and without a constant, as no curtailment costs nothing. Its error
is that on time blocks that it has not seen.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, How, Section, Table, Value
from holdfast.carbon.formats import read_records
from holdfast.carbon.signals import FloatArray, IntArray, refused
from holdfast.carbon.workloads import FEATURES
from holdfast.files import write_whole
from holdfast.numbers import brief
from holdfast.report import figures

HORIZON_H = 48
WARM_UP_H = 24
"""Hours of the trace before a sample, so that it does not begin with an empty cluster."""
BLOCK_H = 168
"""Samples that start in the same week are held out together: they share jobs."""
FOLDS = 10
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
    values = np.array([records.numbers(name) for name in names]).T
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


@dataclass(frozen=True)
class PenaltyFit(Answer):
    """A fitted penalty of batch work.

    Attributes:
        name: of the workload.
        weights: feature -> job-hours of extra waiting per unit, >= 0.
        jobs: mean number of running jobs.
        slo_h: hours of `backlog_late`.
        r2: out of fold.
        mae: out of fold, job-hours.
        true: [N] job-hours of extra waiting per sample.
        predicted: [N], out of fold.
        watts_per_cpu: power of a busy CPU.
        path: the penalties file that was written.
    """

    name: str
    weights: dict[str, float]
    jobs: float
    slo_h: int
    r2: float
    mae: float
    true: FloatArray
    predicted: FloatArray
    watts_per_cpu: float
    path: Path | None = None

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Penalty of batch work"

    @property
    def tables(self) -> dict[str, Any]:
        """The penalties file."""
        weights = {name: value for name, value in self.weights.items() if value}
        spec = {"kind": "batch", "jobs": self.jobs, "slo_h": self.slo_h, "weights": weights}
        return {"workloads": {self.name: spec}}

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon fit-penalty``."""
        return {
            **self.tables,
            "r2_out_of_fold": self.r2,
            "mae_out_of_fold_job_hours": self.mae,
            "mean_waiting_job_hours": float(self.true.mean()),
            "samples": len(self.true),
            "watts_per_cpu": self.watts_per_cpu,
        }

    def values(self) -> Sequence[Value]:
        """The error on time that the fit has not seen."""
        return [
            Value("r2_out_of_fold", self.r2, better="higher"),
            Value("mae_out_of_fold", self.mae, "job-hours", better="lower"),
        ]

    def written(self) -> Mapping[str, Path]:
        """The penalties file."""
        return {} if self.path is None else {"penalties": self.path}

    def sections(self) -> Sequence[Section]:
        """Weights, and true against predicted waiting."""
        sentence = (
            f"Out of fold the fit explains {self.r2:.3f} of the variance of extra waiting (R2), with a "
            f"mean absolute error of {brief(self.mae)} of {brief(float(self.true.mean()))} job-hours."
        )
        rows = []
        for part in np.array_split(np.argsort(self.predicted), 12):
            low, high = np.quantile(self.true[part], [0.1, 0.9])
            means = {"predicted": self.predicted[part].mean(), "true": self.true[part].mean()}
            rows.append({**means, "low": low, "high": high})
        x, y = "Predicted out of fold, job-hours", "Simulated, job-hours (band: 10 to 90 %)"
        drawn = figures.lines(rows, "predicted", "true", x, y, low="low", high="high")
        weights = [{"feature": name, "weight": value} for name, value in self.weights.items()]
        formula = "extra waiting = sum of weight x feature, weights >= 0, no constant"
        known = {"samples": len(self.true), "W per CPU": self.watts_per_cpu, "SLO, h": self.slo_h}
        how = How(formula, known, "Carbon Responder, arXiv 2311.08589; scikit-learn's LassoCV")
        caption = "Weights in job-hours per unit of the feature."
        table = Table(pa.Table.from_pylist(weights), caption=caption)
        return [Section("fit", "How well is waiting predicted?", sentence, [drawn], [table], how)]


def fit_penalty(
    jobs: Jobs,
    *,
    name: str = "batch",
    samples: int = 300,
    slo_h: int = 24,
    watts_per_cpu: float = 10.0,
    seed: int = 0,
    output: str | Path | None = None,
) -> PenaltyFit:
    """Fit the penalty of batch work to simulations of its jobs.

    Args:
        jobs: a trace of several weeks.
        name: the workload's name in the load.
        samples: number of simulated pairs.
        slo_h: hours by which a job may be late before it counts in `backlog_late`, and the slack of
            its due date.
        watts_per_cpu: power of a busy CPU: from CPUs to MW, the unit of the load.
        seed: of the samples.
        output: a penalties file (JSON) for `holdfast carbon plan`.

    Raises:
        InputError: ``no-data`` for a trace shorter than ten weeks' blocks, or too few samples.
    """
    from sklearn.linear_model import LassoCV
    from sklearn.metrics import r2_score
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y, groups, running = pairs(jobs, samples, slo_h, watts_per_cpu, seed)
    weeks = len(np.unique(groups))
    if len(y) < 5 * FOLDS or weeks < FOLDS:
        problem, found = "too little work to fit a penalty", f"{len(y)} samples in {weeks} weeks"
        expected = f"at least {5 * FOLDS} samples in {FOLDS} weeks"
        raise refused(problem, "no-data", None, None, found, expected)
    model = make_pipeline(
        StandardScaler(with_mean=False),
        LassoCV(cv=FOLDS, positive=True, fit_intercept=False, max_iter=20_000),
    )
    unseen = cross_val_predict(model, x, y, groups=groups, cv=GroupKFold(FOLDS))
    model.fit(x, y)
    weights = model[-1].coef_ / model[0].scale_
    made = PenaltyFit(
        name=name,
        weights=dict(zip(FEATURES, weights.tolist(), strict=True)),
        jobs=running,
        slo_h=slo_h,
        r2=r2_score(y, unseen),
        mae=float(np.abs(y - unseen).mean()),
        watts_per_cpu=watts_per_cpu,
        true=y,
        predicted=unseen,
        path=None if output is None else Path(output),
    )
    if output is not None:
        write_whole(output, json.dumps(made.tables, indent=1).encode() + b"\n")
    return made


def pairs(
    jobs: Jobs, samples: int, slo_h: int, watts_per_cpu: float, seed: int
) -> tuple[FloatArray, FloatArray, IntArray, float]:
    """Simulated pairs of features and extra waiting.

    Returns:
        [N, feature], [N] job-hours, [N] number of the week, and the mean number of running jobs.
    """
    random = np.random.default_rng(seed)
    first, last = WARM_UP_H, int(jobs.arrival_h[-1]) - HORIZON_H
    rows, waits, weeks, counts = [], [], [], []
    with progress.track("simulating", samples, "samples") as bar:
        for start in random.integers(first, max(last, first + 1), samples).tolist():
            bar.advance(1)
            walk = np.clip(0.9 + np.cumsum(random.normal(0, 0.08, HORIZON_H)), 0.4, 1.3)
            inside = (jobs.arrival_h >= start - WARM_UP_H) & (jobs.arrival_h < start + HORIZON_H)
            part = jobs.chosen(inside)
            if not len(part):
                continue
            power = usage(part.arrival_h, part, start, HORIZON_H)
            starts = simulate(part, walk * power.mean(), first_h=start, slack_h=slo_h)
            running = usage(part.arrival_h, part, start, HORIZON_H, count=True)
            d = power - usage(starts, part, start, HORIZON_H)
            megawatts = watts_per_cpu / 1e6
            rows.append(features(megawatts * d, running, megawatts * power, slo_h))
            waits.append(float((starts - part.arrival_h).sum()))
            weeks.append(start // BLOCK_H)
            counts.append(running.mean())
    x = np.array(rows).reshape(len(rows), len(FEATURES))
    return x, np.array(waits), np.array(weeks), float(np.mean(counts or [0.0]))


def features(d: FloatArray, jobs: FloatArray, power: FloatArray, slo_h: int) -> FloatArray:
    """The values of `FEATURES` for one curtailment; all arrays are [T].

    Hours without power have no jobs: they count in the energy put off alone.
    """
    rate = np.divide(jobs, power, out=np.zeros(len(d)), where=power > 0)
    backlog = np.maximum(np.cumsum(rate * d), 0.0)
    put_off, curtailed = np.maximum(np.cumsum(d), 0.0), rate * np.maximum(d, 0.0)
    late = backlog[: max(len(d) - slo_h, 0)]
    return np.array([f.sum() for f in (backlog, put_off, np.cumsum(rate * d * d), curtailed, late)])
