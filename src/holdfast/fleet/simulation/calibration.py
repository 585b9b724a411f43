"""A scenario fitted to a log: everything that the log tells is estimated, the rest is assumed and named.

    made = calibrate("store")
    Path("mine.toml").write_text(made.to_toml())   # every estimate with its interval beside it

Each part has a module of its own: users (`calibrated_arrivals`, `calibrated_workload`), machines and
scheduler (`calibrated_machines`), failures (`calibrated_failures`, `calibrated_detection`), repairs
(`outage_times`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.files import atomic_file
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.simulation.calibrated_arrivals import Cohort, cohort
from holdfast.fleet.simulation.calibrated_detection import detection
from holdfast.fleet.simulation.calibrated_failures import failures
from holdfast.fleet.simulation.calibrated_machines import classes, cluster, scheduler
from holdfast.fleet.simulation.calibrated_workload import workload
from holdfast.fleet.simulation.estimates import Estimate, Findings, commented, rounded, table
from holdfast.fleet.simulation.job_runs import without_gpus
from holdfast.fleet.simulation.outage_times import outage_times
from holdfast.fleet.simulation.scenario import Checkpoint, Scenario
from holdfast.fleet.store import Store
from holdfast.numbers import counted, duration, percent


@dataclass(frozen=True)
class Calibration:
    """A scenario fitted to a log."""

    scenario: Scenario
    remarks: list[str]
    """What was left out or is doubtful, a sentence each."""
    estimates: list[Estimate]
    """Every key that was estimated or assumed, in the order of the method."""
    days: float
    """Length of the window that was fitted; a simulation to compare with is as long."""
    source: str
    """The store."""

    @property
    def notes(self) -> list[str]:
        """The remarks, and every key that had to be assumed, with the reason."""
        assumed = [each for each in self.estimates if not each.estimated]
        return [*self.remarks, *(f"{each.key} is assumed: {each.how}" for each in assumed)]

    @property
    def table(self) -> pa.Table:
        """The estimates as a table, see `estimates.SCHEMA`."""
        return table(self.estimates)

    def to_toml(self) -> str:
        """The scenario as TOML with each estimate, its interval and its base as a comment."""
        head = [
            f"Calibrated from {self.source}: {duration(self.days * 86_400)} from "
            f"{minute(self.scenario.begin_s)}.",
            "Above each key stands what the log told: estimate, 95 % interval, observations. What it "
            "did not tell is marked as assumed. Edit what you know better.",
            *(f"- {note}" for note in self.remarks),
        ]
        return commented(self.scenario.to_toml(), self.estimates, [*head, ""])

    def write(self, path: str | Path) -> None:
        """Write the TOML file, whole or not at all.

        Raises:
            InputError: if it cannot be written there.
        """
        try:
            with atomic_file(path) as file:
                file.write(self.to_toml().encode())
        except OSError as error:
            raise InputError(
                "the scenario cannot be written", code="invalid-value", path=path, found=str(error)
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet calibrate``."""
        return {
            "scenario": self.scenario.to_toml(),
            "days": self.days,
            "estimates": [
                {name: row[name] for name in row if name != "estimated"}
                for row in self.table.to_pylist()
                if row["estimated"]
            ],
            "assumed": [
                {"key": each.key, "why": each.how} for each in self.estimates if not each.estimated
            ],
            "notes": self.remarks,
        }


def calibrate(
    log: str | Path | Store | FleetLog,
    *,
    name: str = "calibrated",
    processors: bool | None = None,
) -> Calibration:
    """Fit a scenario to a log.

    Args:
        log: a store or an open log; its assumptions say what the log does not (initialisation,
            checkpoints, windows of attribution).
        name: of the scenario.
        processors: take processors for GPUs; None: if no attempt of the log has a GPU.

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
    if processors is None:
        processors = bool(log.count("attempts")) and without_gpus(log)
    if processors:
        findings.note("No GPUs are simulated: processors stand in for them.")
    those = cohort(log, processors=processors)
    if those.earlier:
        findings.note(
            f"{counted(those.earlier, 'job')} that arrived before the first end in the log "
            f"({minute(those.begin_s)}) are left out of the arrivals, sizes and durations: of that "
            "time only long jobs are seen."
        )
    typical_s = _typical_s(log)
    machines = cluster(log, those.every, processors, findings)
    ranks = classes(log, those.every, findings)
    users = workload(log, those, machines, ranks, findings)
    schedules = scheduler(log, those, typical_s, findings)
    outages = outage_times(log, findings)
    names = _node_names(machines.names)
    broken = failures(log, names, outages, findings)
    checks = detection(log, typical_s, findings)
    saves = _checkpoint(log, findings)
    begin = iso(math.floor(those.begin_s))
    assert begin is not None
    made = Scenario(
        name=name,
        begin=begin,
        cluster=machines,
        qos=ranks,
        workload=users,
        scheduler=schedules,
        failures=broken,
        detection=checks,
        repair=outages.repair,
        checkpoint=saves,
    )
    _tell_cancelled(log, those, findings)
    return Calibration(made, findings.notes, findings.estimates, those.days, str(log.store.path))


def _node_names(names: str) -> set[str]:
    from holdfast.fleet.formats.hosts import hosts_of

    return set(hosts_of(names) or []) if names else set()


def _typical_s(log: FleetLog) -> float:
    """Mean runtime of the attempts: no assumed time of the scheduler is longer."""
    found = log.value(f"SELECT avg(runtime_s) FROM {log.executions} WHERE end_s IS NOT NULL")
    return max(float(found or 0.0), 1.0)


def _checkpoint(log: FleetLog, findings: Findings) -> Checkpoint:
    """How jobs save their work: what the fleet's assumptions say."""
    assumed = log.assumptions
    for key in ("interval", "write", "init", "mode", "save_on_signal"):
        findings.assumed(
            f"checkpoint.{key}",
            "a log does not tell what jobs do on their nodes",
        )
    return Checkpoint(
        interval_s=assumed.checkpoint_interval_s,
        write_s=assumed.write_s,
        init_s=rounded(log.init_s),
        save_on_signal=assumed.save_on_signal,
    )


def _tell_cancelled(log: FleetLog, those: Cohort, findings: Findings) -> None:
    """Jobs that were cancelled while they waited are not simulated: say how many."""
    count = log.value(
        f"SELECT count(DISTINCT run) FROM {log.attempts} WHERE NOT ran AND state = 'CANCELLED' "
        f"AND run NOT IN (SELECT run FROM {log.executions})"
    )
    if count:
        share = count / (count + those.runs.gpus.size)
        findings.note(
            f"{counted(count, 'job')} ({percent(share)}) were cancelled before they started: they are "
            "not simulated."
        )
