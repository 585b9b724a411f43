"""A scenario fitted to a log: everything that the log tells is estimated, the rest is assumed and named.

    made = calibrate("store")
    Path("mine.toml").write_text(made.to_toml())   # every estimate with its interval beside it

What users do is in `calibrated_workload`, machines and scheduler in `calibrated_machines`, failures and
repairs in `calibrated_failures`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.answer import Answer, Finding, Section, Value
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.fleet.log import AnyLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.simulation.calibrated_failures import detection, failures, outage_times
from holdfast.fleet.simulation.calibrated_machines import classes, cluster, scheduler
from holdfast.fleet.simulation.calibrated_workload import cohort, workload
from holdfast.fleet.simulation.estimates import ASSUMED, Estimate, Findings, rounded, wrapped
from holdfast.fleet.simulation.scenario import Checkpoint, Scenario
from holdfast.fleet.wording import table
from holdfast.numbers import counted, duration


@dataclass(frozen=True)
class Calibration(Answer):
    """A scenario fitted to a log."""

    scenario: Scenario
    remarks: list[str]  # What was left out or is doubtful, a sentence each
    estimates: list[Estimate]  # Every key that was estimated or assumed, in the order of the method
    days: float  # Length of the window that was fitted
    source: str  # The store
    output: Path | None = None  # Where the scenario was written

    @property
    def title(self) -> str:
        """With the store."""
        return f"Calibrated from {self.source}"

    def to_toml(self) -> str:
        """The scenario as TOML with each estimate, its interval and its base as a comment."""
        head = [
            f"Calibrated from {self.source}: {duration(self.days * 86_400)} from "
            f"{minute(self.scenario.begin_s)}.",
            "The comment above a key is the estimate from the log, its 95 % interval and the number of "
            "observations; 'assumed' marks what the log does not determine. Edit what you know better.",
            *(f"- {note}" for note in self.remarks),
        ]
        notes = {}
        for each in self.estimates:
            notes.setdefault(each.key, []).extend(wrapped(each.comment()))
        above = [line for text in (*head, "") for line in wrapped(text)]
        return "\n".join([*above, self.scenario.to_toml(notes)])

    def write(self, path: str | Path) -> None:
        """Write the TOML file, whole or not at all.

        Raises:
            HoldfastError: if it cannot be written there.
        """
        write_whole(path, self.to_toml().encode())

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet calibrate``."""
        every = self.estimates
        return {
            "scenario": self.scenario.to_toml(),
            "days": self.days,
            "estimates": [each.to_dict() for each in every if each.estimated],
            "assumed": [{"key": each.key, "why": each.how} for each in every if not each.estimated],
            "notes": self.remarks,
            "output": self.output,
            "html": None,
        }

    def written(self) -> dict[str, Path]:
        """The scenario, where it was written."""
        return {} if self.output is None else {"scenario": self.output}

    def findings(self) -> list[Finding]:
        """What was fitted, whether it fits, and what is doubtful."""
        sizes = counted(len(self.scenario.workload.sizes), "job size")
        parts = counted(len(self.scenario.failures.components), "component")
        estimated = sum(each.estimated for each in self.estimates)
        first = (
            f"{sizes} and {parts} fitted to {duration(self.days * 86_400)}: {estimated} keys estimated, "
            f"{len(self.estimates) - estimated} assumed."
            + ("" if self.output else " Write the scenario with -o FILE to edit and simulate it.")
        )
        return [Finding(first, "estimates"), *map(Finding, self.remarks)]

    def values(self) -> list[Value]:
        """The estimates that are numbers."""
        measured = [each for each in self.estimates if each.value is not None]
        return [Value(each.key, float(each.value), each.unit, each.interval) for each in measured]  # type: ignore[arg-type]

    def sections(self) -> list[Section]:
        """The estimates."""
        rows = [{**vars(each), "estimate": each.estimate()} for each in self.estimates]
        tables = [table(rows, "key estimate n how", "One row per key.", n="Observations")]
        text = self.findings()[0].text
        return [Section("estimates", "What does the log tell?", text, (), tables)]


def calibrate(
    log: AnyLog,
    *,
    name: str = "calibrated",
) -> Calibration:
    """Fit a scenario to a log.

    Args:
        log: a store or an open log; its assumptions say what the log does not (initialisation,
            checkpoints, windows of attribution).
        name: of the scenario.

    Returns:
        The scenario with every estimate, its interval and what had to be assumed.

    Raises:
        InputError: if the log is too short, saying what is missing and how much is needed.
    """
    log = open_log(log)
    if log.several_clusters:
        raise InputError(
            "a scenario describes one cluster",
            code="conflict",
            path=log.store.path,
            found=f"the clusters {', '.join(log.store.facts['clusters'])}",
            remedy="ingest the log of one cluster into a store of its own",
        )
    findings = Findings()
    assumed = log.assumptions
    those = cohort(log)
    if earlier := int(those.every.gpus.size - those.runs.gpus.size):
        findings.note(
            f"Left out of the arrivals, sizes and durations: {counted(earlier, 'job')} that arrived "
            f"before the first end in the log ({minute(those.begin_s)}); only long "
            "jobs of that time are seen."
        )
    # No assumed time of the scheduler is longer than the mean attempt.
    mean_s = log.value(f"SELECT avg(runtime_s) FROM {log.executions} WHERE end_s IS NOT NULL")
    typical_s = max(float(mean_s or 0.0), 1.0)
    machines = cluster(log, those.every, findings)
    ranks = classes(log, those.every, findings)
    users = workload(log, those, machines, ranks, findings)
    schedules = scheduler(log, those, typical_s, findings)
    outages = outage_times(log, findings)
    broken = failures(log, machines.names, outages, findings)
    checks = detection(typical_s)
    for key, why in ASSUMED.items():
        findings.assumed(key, why)
    saves = Checkpoint(
        assumed.checkpoint_interval_s,
        assumed.write_s,
        rounded(log.init_s),
        save_on_signal=assumed.save_on_signal,
    )
    begin = iso(math.floor(those.begin_s)) or ""
    fitted = Scenario(
        name, machines, ranks, users, begin, schedules, broken, checks, outages.repair, saves
    )
    return Calibration(fitted, findings.notes, findings.estimates, those.days, str(log.store.path))
