"""How a calibration reads in a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.console import table
from holdfast.fleet.simulation.calibration import Calibration
from holdfast.fleet.simulation.fit_wording import QUESTIONS, sentence_of
from holdfast.fleet.simulation.goodness_of_fit import GoodnessOfFit
from holdfast.numbers import counted, duration

MOST_ROWS = 30
HIDDEN = ("qos", "failures.components", "workload.ends", "workload.sizes", "cluster.names")
"""Keys of lists: shown with --verbose."""


@dataclass(frozen=True)
class Calibrated:
    """What the command gives: the scenario and, if replicas were asked for, how well it fits."""

    calibration: Calibration
    fit: GoodnessOfFit | None
    output: Path | None
    html: Path | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet calibrate``."""
        return {
            **self.calibration.to_dict(),
            "fit": None if self.fit is None else self.fit.to_dict(),
            "output": None if self.output is None else str(self.output),
            "html": None if self.html is None else str(self.html),
        }


def calibrated(result: Calibrated, verbose: bool = False) -> RenderableType:
    """The main estimates, how well they fit, and what had to be assumed."""
    made = result.calibration
    shown = [
        each
        for each in made.estimates
        if each.estimated
        and each.value is not None
        and (verbose or not each.key.startswith(HIDDEN))
    ]
    rows = [(each.key, each.estimate(), "" if each.n is None else f"{each.n:,}") for each in shown]
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
        fit = result.fit
        told = len(fit.rows) - fit.count("unknown")
        lines = [
            f"{fit.count('fits'):,} of {counted(told, 'figure')} of the log lie in the range of "
            f"{fit.replicas} simulations, {fit.count('off'):,} clearly outside"
        ]
        lines += [f"  {sentence_of(fit, name)}" for name in QUESTIONS if fit.count("off")]
        parts.append(Text("\n".join(lines)))
    assumed = sum(not each.estimated for each in made.estimates)
    parts.append(Text(f"{assumed:,} keys are assumed; the scenario file names them"))
    remarks = made.remarks if verbose else made.remarks[:3]
    parts += [Text(f"- {remark}") for remark in remarks]
    if len(made.remarks) > len(remarks):
        parts.append(Text(f"- {len(made.remarks) - len(remarks)} more remarks with --verbose"))
    return Group(*parts)
