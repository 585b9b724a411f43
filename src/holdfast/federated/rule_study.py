"""Rules compared on the same devices, clients and photos, over seeds; and on a device left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.config import invalid_value, read_config
from holdfast.errors import InputError
from holdfast.fanout import fan_out
from holdfast.federated.configuration import (
    RunConfig,
    client_data,
    configured_model,
    rule_settings,
)
from holdfast.federated.engine import run
from holdfast.federated.results import FederatedRun
from holdfast.federated.updates import Record
from holdfast.report import figures
from holdfast.stats import mean_interval

METRICS: dict[str, tuple[str, Callable[[FederatedRun], float | None]]] = {
    "mean_accuracy": ("mean accuracy over devices", lambda run: run.mean_accuracy),
    "worst_accuracy": ("accuracy on the worst device", lambda run: min(run.accuracy.values())),
    "variance": ("variance over devices", lambda run: run.variance_over_devices),
    "left_out": ("accuracy on the device left out", lambda run: run.mean_accuracy),
}
"""Name -> what it is, and its value for a run."""


@dataclass(frozen=True)
class Study(Answer):
    """Rules compared."""

    rules: list[str]
    """The first is the baseline."""
    seeds: int
    """Number of seeds."""
    rows: list[Record]
    """Rows ``{"rule", "metric", "value", "ci95", "difference", "difference_ci95"}``: mean over seeds, and
    the difference to the baseline, paired by seed."""
    failed_clients: int
    """Updates of all runs that were not used."""

    title = "Rules compared"

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
        about, _ = METRICS[metric]
        better = min if metric == "variance" else max
        best = better(rows, key=lambda row: row["value"])
        # Differences are to the first rule: where it is best itself, all others have to differ.
        rivals = rows[1:] if best is rows[0] else [best]
        # An interval without width is one of equal counts in few seeds.
        sure = all(
            low * high > 0 and not np.isclose(low, high)
            for low, high in (row["difference_ci95"] for row in rivals)
        )
        sentence = f"Best {about}: {best['rule']}, {best['value']:.4g}"
        if best is not rows[0]:
            low, high = best["difference_ci95"]
            sentence += (
                f", {best['difference']:+.4g} [{low:+.4g}, {high:+.4g}] against {rows[0]['rule']}"
            )
        sentence += ": surely differs." if sure else ": may be chance."
        shown = [
            {
                "rule": row["rule"],
                "value": row["value"],
                "low": row["ci95"][0],
                "high": row["ci95"][1],
                "difference": row["difference"],
            }
            for row in rows
        ]
        quantity = "Variance" if metric == "variance" else "Accuracy"
        columns = {
            "rule": ColumnFormat(),
            "value": ColumnFormat(quantity, interval=("low", "high")),
            "difference": ColumnFormat("Difference to the first"),
        }
        drawn = figures.intervals(shown, "rule", "value", "low", "high", quantity)
        how = How("mean over seeds and its 95 % t-interval; differences are paired by seed")
        table = Table(pa.Table.from_pylist(shown), columns)
        asked = f"Which rule has the best {about}?"
        return Section(metric.replace("_", "-"), asked, sentence, [drawn], [table], how)


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
    # 1. The runs: of all devices, and without each.
    devices: list[str | None] = [None]
    if leave_out:
        _, tests, _ = client_data(config, folder)
        if len(tests) < 2:
            problem, expected = "nothing to leave out", "two devices or more"
            raise invalid_value(problem, Path(path), "devices", list(tests), expected)
        devices += tests
    tasks = []
    for seed in range(config.training.seed, config.training.seed + seeds):
        settings = replace(config.training, seed=seed, evaluate_every=config.training.rounds)
        own = replace(config, training=settings)
        tasks += [(own, folder, device) for device in devices]
    results: dict[int, list[FederatedRun]] = {}
    with progress.track("training", len(tasks), "seeds and devices") as bar:
        for place, found in fan_out(tasks, _runs, processes=processes, ray=ray):
            results[place] = found
            bar.advance(1)
    # 2. Their accuracy, [seeds, 1 + devices left out, rules].
    grid = np.array([results[place] for place in range(len(tasks))], dtype=object)
    grid = grid.reshape(seeds, len(devices), len(names))
    rows = []
    for metric, (_, compute) in METRICS.items():
        runs = grid[:, 1:] if metric == "left_out" else grid[:, :1]
        if runs.size:
            values = np.vectorize(compute, otypes=[float])(runs).mean(axis=1)
            rows += [_row(n, metric, values[:, k], values[:, 0]) for k, n in enumerate(names)]
    return Study(names, seeds, rows, sum(len(each.failures) for each in grid.flat))


def _runs(task: tuple[RunConfig, Path, str | None]) -> list[FederatedRun]:
    """The run of each rule on one split and its photos, without a device or with all."""
    config, folder, left_out = task
    clients, test, proxy = client_data(config, folder)
    model = configured_model(config, folder, clients, test, proxy)
    if left_out is not None:
        clients = {n: d for n, d in clients.items() if not n.startswith(f"{left_out}/")}
        test = {left_out: test[left_out]}
    runs = []
    for rule, parameters in map(rule_settings, config.compare):
        result = run(
            model,
            clients,
            test=test,
            rule=rule,
            settings=config.training,
            proxy=proxy,
            **parameters,
        )
        runs.append(result)
    return runs


def _label(rule: Mapping[str, Any]) -> str:
    """Name and parameters of a rule."""
    name, parameters = rule_settings(rule)
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def _row(name: str, metric: str, values: Any, baseline: Any) -> Record:
    """A row of `Study.rows`."""
    mean, ci95 = mean_interval(values)
    difference, difference_ci95 = mean_interval(values - baseline)
    return {
        "rule": name,
        "metric": metric,
        "value": mean,
        "ci95": ci95,
        "difference": difference,
        "difference_ci95": difference_ci95,
    }
