"""What stands in for the simulator in tests of the console: quick, and the same every time.

A module of its own, since the process of an experiment imports it by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from holdfast.errors import InputError

METRICS = ("ettr_large_runs", "queue_wait_mean_s")


@dataclass(frozen=True)
class Answer:
    rows: list[dict[str, Any]]
    recommended: str
    notes: list[str] = field(default_factory=lambda: ["nothing was simulated <b>here</b>"])


def whatif(
    source: str,
    changes: Sequence[str],
    *,
    replicas: int,
    days: float | None,
    seed: int,
    processes: int,
    given: Sequence[str],
    on_progress: Callable[[int, int], None],
) -> Answer:
    """Rows that name their arguments, or what a change asks for: to fail, to die, to hang."""
    if changes[0] == "nodes+1001":
        raise InputError("there is no room", place="nodes", remedy="ask for less")
    if changes[0] == "nodes+1002":
        os._exit(3)
    if changes[0].startswith("nodes+1003"):
        on_progress(1, replicas)
        Path(source, f"hung-{os.getpid()}").touch()
        Event().wait()  # until it is ended
    for done in range(replicas):
        on_progress(done + 1, replicas)
    rows = [
        {
            "change": change,
            "metric": metric,
            "baseline": 0.5,
            "value": 0.5 + place / 100 + seed,
            "difference": place / 100 + seed,
            "ci95": [place / 100 - 0.01, place / 100 + 0.01],
        }
        for place, change in enumerate(changes, start=1)
        for metric in METRICS
    ]
    return Answer(rows, f"{changes[0]} raises it over {replicas} replicas of {days} days")
