"""How the results of simulations read in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from holdfast.console import table
from holdfast.numbers import duration, number, percent

if TYPE_CHECKING:
    from holdfast.fleet.simulation.simulated_log import Simulated


def simulated(result: Simulated) -> RenderableType:
    """What was simulated, and how fast."""
    rows = [
        ("jobs", f"{result.jobs:,}"),
        ("attempts that started", f"{result.attempts:,}"),
        ("utilisation", percent(result.utilisation)),
        ("events", f"{result.events:,}"),
        ("time", duration(result.seconds)),
        ("events per second", number(result.events_per_second)),
    ]
    return table({"simulated": "left", "": "right"}, rows)
