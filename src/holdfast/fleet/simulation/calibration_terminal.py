"""How a calibration reads in a terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.fleet.simulation.calibration import Calibration
from holdfast.fleet.simulation.goodness_of_fit import GoodnessOfFit, Row
from holdfast.numbers import counted, duration, number, percent
from holdfast.report.terminal import table

HIDDEN = ("qos", "failures.components", "workload.ends", "workload.sizes", "cluster.names")
"""Keys of lists: shown with --verbose."""


@dataclass(frozen=True)
class Calibrated:
    """What the command gives: the scenario and, if replicas were asked for, how well it fits."""

    calibration: Calibration
    fit: GoodnessOfFit | None
    output: Path | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet calibrate``."""
        return {
            **self.calibration.to_dict(),
            "fit": None if self.fit is None else self.fit.to_dict(),
            "output": None if self.output is None else str(self.output),
            "html": None,  # there is no page; the key stays for those who read it
        }


def calibrated(result: Calibrated, verbose: bool = False) -> RenderableType:
    """The main estimates, how well they fit, and what had to be assumed."""
    made = result.calibration
    rows = [
        (each.key, each.estimate(), "" if each.n is None else f"{each.n:,}")
        for each in made.estimates
        if each.estimated
        and each.value is not None
        and (verbose or not each.key.startswith(HIDDEN))
    ]
    parts: list[RenderableType] = [
        table(
            {"key": "left", "estimate": "right", "n": "right"},
            rows,
            title=f"{counted(len(made.scenario.workload.sizes), 'size')} of jobs, "
            f"{counted(len(made.scenario.failures.components), 'component')}, fitted to "
            f"{duration(made.days * 86_400)}",
            caption="intervals at 95 %; all keys with --verbose" if not verbose else "",
        )
    ]
    if result.fit is not None:
        parts.append(_beside(result.fit))
    assumed = sum(not each.estimated for each in made.estimates)
    parts.append(Text(f"{assumed:,} keys are assumed; the scenario file names them"))
    remarks = made.remarks if verbose else made.remarks[:3]
    parts += [Text(f"- {remark}") for remark in remarks]
    if len(made.remarks) > len(remarks):
        parts.append(Text(f"- {len(made.remarks) - len(remarks)} more remarks with --verbose"))
    return Group(*parts)


def _beside(fit: GoodnessOfFit) -> RenderableType:
    """One row per figure: the log beside the range of its simulations."""
    told = len(fit.rows) - fit.count("unknown")
    rows = [
        (
            row.group,
            row.name,
            _spoken(row, row.real),
            f"[{_spoken(row, row.low)}, {_spoken(row, row.high)}]",
            row.verdict,
        )
        for row in fit.rows
    ]
    return table(
        {"what": "left", "of": "left", "log": "right", "simulated": "right", "verdict": "left"},
        rows,
        title=f"{fit.count('fits'):,} of {counted(told, 'figure')} of the log lie in the range of "
        f"{fit.replicas} simulations, {fit.count('off'):,} clearly outside",
        caption="5 to 95 % range of one more simulation: one figure in ten lies outside by chance",
    )


def _spoken(row: Row, value: float) -> str:
    """A value in the unit of its group; "–" for a range that too few simulations tell."""
    if math.isnan(value):
        return "–"
    if row.unit == "s":
        return duration(value)
    if row.unit == "%":
        return percent(value, 1)
    return number(value, 0 if value >= 10 or value == int(value) else 1)
