"""The fleet as it is, as a scenario: fitted to a log, or read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.fleet.ettr_measured import MeasuredEttr, measured_ettr
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.simulation.changes import apply, known, parse, paths_of, value_of
from holdfast.fleet.simulation.scenario import PRESETS, Scenario, scenario

# Path -> the assumption of an analysis that says the same.
ASSUMED = {
    "checkpoint.interval": "checkpoint_interval_s",
    "checkpoint.write": "write_s",
    "checkpoint.init": "init_s",
    "checkpoint.save_on_signal": "save_on_signal",
}


@dataclass(frozen=True)
class Baseline:
    """A fleet that changes are tried on."""

    scenario: Scenario
    name: str  # What to call it
    days: float | None  # Length of the log; None: there is none
    notes: list[str]  # What the log did not tell, and what is doubtful
    # Paths of the scenario that the log does not tell and nobody said.
    assumed: frozenset[str] = frozenset()
    # Of the log, under the assumptions that the scenario was fitted with; None: there is no log.
    measured: MeasuredEttr | None = None


def as_it_is(source: str | Path | Scenario | FleetLog, given: Sequence[str] = ()) -> Baseline:
    """The fleet of a log, or of a scenario.

    Args:
        source: a store, a log file or an open log; or a scenario, the name of a preset, a TOML
            file. The name of a preset as text is the preset, also beside a folder of that name.
        given: changes that say what is true of the fleet. What they say of checkpoints is also
            assumed where a log is analysed: it decides how much of an attempt was work.

    Raises:
        InputError: if the source cannot be read or is too short, or a change cannot be made.
    """
    fleet = _read(source, given)
    changed = fleet.scenario
    for change in given:
        changed = apply(changed, change)
    return replace(fleet, scenario=changed)


def _read(source: str | Path | Scenario | FleetLog, given: Sequence[str]) -> Baseline:
    if isinstance(source, Scenario):
        return Baseline(source, f"scenario {source.name}", None, [])
    # The text "small" is the preset, whatever lies in the working directory; a path is a path.
    is_preset = isinstance(source, str) and source in PRESETS
    if isinstance(source, FleetLog) or (not is_preset and _is_log(Path(source))):
        return _fitted(open_log(source), given)
    kind = "preset" if str(source) in PRESETS else "scenario"
    return Baseline(scenario(source), f"{kind} {source}", None, [])


def _is_log(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.suffix != ".toml")


def _fitted(log: FleetLog, given: Sequence[str]) -> Baseline:
    from holdfast.fleet.simulation.calibration import calibrate

    if assumed := _assumptions(given):
        again = FleetLog(log.store, replace(log.assumptions, **assumed))
        again.since_s = log.since_s
        log = again
    fitted = calibrate(log)
    stated = {path for change in given for path in paths_of(change)}
    silent = [e.key for e in fitted.estimates if not e.estimated and e.key not in stated]
    return Baseline(
        fitted.scenario,
        f"store {fitted.source}",
        fitted.days,
        list(fitted.remarks),
        frozenset(silent),
        measured_ettr(log),
    )


def _assumptions(given: Sequence[str]) -> dict[str, Any]:
    """What changes say of checkpoints, as assumptions of an analysis."""
    assumed: dict[str, Any] = {}
    for edit in (edit for change in given for edit in parse(change).edits):
        for leaf in known(edit.key):
            name = ASSUMED.get(leaf.path)
            if name and edit.operator == "=":
                assumed[name] = value_of(leaf, edit)
    return assumed
