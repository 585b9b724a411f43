"""Rules compared on the same devices, clients and photos, over seeds; and on a device left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.fanout import fan_out
from holdfast.federated.configuration import (
    ByName,
    Examples,
    RunConfig,
    client_data,
    configured_model,
    rule_settings,
)
from holdfast.federated.engine import run
from holdfast.report import figures
from holdfast.stats import mean_interval

METRICS = {
    "mean_accuracy": "mean accuracy over devices",
    "worst_accuracy": "accuracy on the worst device",
    "variance": "variance over devices",
    "left_out": "accuracy on the device left out",
}


@dataclass(frozen=True)
class Study(Answer):
    """Rules compared."""

    rules: list[str]
    """The first is the baseline."""
    seeds: int
    """Number of seeds."""
    rows: list[dict[str, Any]]
    """Rows ``{"rule", "metric", "value", "ci95", "difference", "difference_ci95"}``: mean over seeds, and
    the difference to the baseline, paired by seed."""
    failed_clients: int
    """Updates of all runs that were not used."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Rules compared"

    def values(self) -> Sequence[Value]:
        """The metrics of every rule."""
        return [
            Value(
                f"{row['rule']}.{row['metric']}",
                row["value"],
                ci95=row["ci95"],
                better="lower" if row["metric"] == "variance" else "higher",
            )
            for row in self.rows
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What one seed cannot tell."""
        text = "One seed has no interval: a difference may be chance."
        return [] if self.seeds > 1 else [Unknown(text, "--seeds 5", doubt=True)]

    def sections(self) -> Sequence[Section]:
        """One per metric."""
        return [self._section(m) for m in METRICS if any(row["metric"] == m for row in self.rows)]

    def _section(self, metric: str) -> Section:
        rows = [row for row in self.rows if row["metric"] == metric]
        better = min if metric == "variance" else max
        best = better(rows, key=lambda row: row["value"])
        # Differences are to the first rule: where it is best itself, all others have to differ.
        rivals = rows[1:] if best is rows[0] else [best]
        sure = all(row["difference_ci95"][0] > 0 or row["difference_ci95"][1] < 0 for row in rivals)
        sentence = f"Best {METRICS[metric]}: {best['rule']}, {best['value']:.4g}"
        if best is not rows[0]:
            low, high = best["difference_ci95"]
            sentence += (
                f", {best['difference']:+.4g} [{low:+.4g}, {high:+.4g}] against {rows[0]['rule']}"
            )
        sentence += ": surely differs." if sure else ": may be chance."
        shown = [
            {"rule": row["rule"], "value": row["value"]}
            | {"low": row["ci95"][0], "high": row["ci95"][1], "difference": row["difference"]}
            for row in rows
        ]
        quantity = "Variance" if metric == "variance" else "Accuracy"
        columns = {
            "rule": ColumnFormat("Rule"),
            "value": ColumnFormat(quantity, interval=("low", "high")),
            "difference": ColumnFormat("Difference to the first"),
        }
        drawn = figures.intervals(shown, "rule", "value", "low", "high", quantity)
        how = How("mean over seeds and its 95 % t-interval; differences are paired by seed")
        table = Table(pa.Table.from_pylist(shown), columns)
        asked = f"Which rule has the best {METRICS[metric]}?"
        return Section(metric.replace("_", "-"), asked, sentence, [drawn], [table], how)


@dataclass(frozen=True)
class _Job:
    """One run of a study."""

    config: RunConfig
    folder: Path
    rule: Mapping[str, Any]
    left_out: str | None


def study(
    path: str | Path,
    seeds: int = 5,
    leave_out: bool = False,
    processes: int | None = 1,
    ray: str | None = None,
) -> Study:
    """Compare the rules that a configuration lists under ``compare``.

    Every seed draws the split, the noise of the photos and the model's weights, alike for all rules.

    Args:
        path: TOML file of a run.
        seeds: number of seeds, from ``training.seed`` on.
        leave_out: also train without the clients of each device, and test on it.
        processes: of this machine; None: one for each processor.
        ray: address of a Ray cluster, or ``local``.

    Raises:
        InputError: a mistake in the file or the data; ``missing-key`` if there is nothing to compare.
    """
    config = read_config(path, RunConfig, "the configuration")
    if len(config.compare) < 2 or seeds < 1:
        raise InputError(
            "nothing to compare",
            code="missing-key",
            path=path,
            place="compare",
            expected='two rules or more, such as [{ name = "fedavg" }, { name = "heteroswitch" }]',
        )
    folder = Path(path).resolve().parent
    names = [_label(rule) for rule in config.compare]
    devices: list[str | None] = [None]
    if leave_out:
        devices += list(client_data(config, folder)[1])
    jobs = []
    for seed in range(config.training.seed, config.training.seed + seeds):
        settings = replace(config.training, seed=seed, evaluate_every=config.training.rounds)
        own = replace(config, training=settings)
        jobs += [_Job(own, folder, rule, device) for device in devices for rule in config.compare]
    results = np.empty(len(jobs), dtype=object)
    with progress.track("training", len(jobs), "runs") as bar:
        for place, result in fan_out(jobs, _run_job, processes=processes, ray=ray):
            results[place] = result
            bar.advance(1)
    failed = sum(int(result["failed_clients"]) for result in results)
    grid = results.reshape(seeds, len(devices), len(names))
    rows = []
    for metric in METRICS:
        # The first run of a seed has all devices; of the others each leaves out one.
        runs = grid[:, 1:] if metric == "left_out" else grid[:, :1]
        if runs.size:
            values = np.vectorize(lambda result, key=metric: result[key], otypes=[float])(runs)
            values = values.mean(axis=1)
            rows += [_row(n, metric, values[:, k], values[:, 0]) for k, n in enumerate(names)]
    return Study(names, seeds, rows, failed)


def _run_job(job: _Job) -> dict[str, float]:
    """Metrics of one run."""
    clients, test, proxy = _data(job.config, job.folder)
    model = configured_model(job.config, job.folder, clients, test, proxy)
    if job.left_out is not None:
        clients = {n: d for n, d in clients.items() if not n.startswith(f"{job.left_out}/")}
        test = {job.left_out: test[job.left_out]}
    rule, parameters = rule_settings(job.rule)
    result = run(
        model,
        clients,
        test=test,
        rule=rule,
        settings=job.config.training,
        proxy=proxy,
        **parameters,
    )
    accuracy = list(result.accuracy.values())
    failed = {"failed_clients": float(len(result.failures))}
    if job.left_out is not None:
        return {"left_out": accuracy[0], **failed}
    spread = {"worst_accuracy": min(accuracy), "variance": float(np.var(accuracy))}
    return {"mean_accuracy": float(np.mean(accuracy)), **spread, **failed}


def _data(config: RunConfig, folder: Path) -> tuple[ByName, ByName, Examples | None]:
    """`client_data`, kept for the next rule: simulating devices takes longer than a short training."""
    key = repr((config.data, config.devices, config.training.seed, folder))
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = client_data(config, folder)
    return _KEPT[key]


_KEPT: dict[str, tuple[ByName, ByName, Examples | None]] = {}


def _label(rule: Mapping[str, Any]) -> str:
    """Name and parameters of a rule."""
    name, parameters = rule_settings(rule)
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def _row(name: str, metric: str, values: Any, baseline: Any) -> dict[str, Any]:
    """A row of `Study.rows`."""
    mean, ci95 = mean_interval(values)
    difference, difference_ci95 = mean_interval(values - baseline)
    row = {"rule": name, "metric": metric, "value": mean, "ci95": ci95}
    return {**row, "difference": difference, "difference_ci95": difference_ci95}
