"""What stands in for the simulator in tests of the console: quick, and the same every time.

A module of its own, since the process of an experiment imports it by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet import Assumptions
from holdfast.report import Finding, Page, Section, Table, Unknown


def whatif(
    source: Path,
    assumptions: Assumptions,
    *,
    changes: Sequence[str],
    replicas: int,
    days: float | None,
    seed: int,
    processes: int,
    given: Sequence[str],
    on_progress: Callable[[int, int], None],
) -> Page:
    """Rows that name their arguments, or what a change asks for: to fail, to die, to hang."""
    if changes[0] == "nodes+1001":
        raise InputError(
            "there is no room", code="limit-exceeded", place="nodes", remedy="ask for less"
        )
    if changes[0] == "nodes+1002":
        os._exit(3)
    if changes[0].startswith("nodes+1003"):
        on_progress(1, replicas)
        Path(source, f"hung-{os.getpid()}").touch()
        Event().wait()  # until it is ended
    for done in range(replicas):
        on_progress(done + 1, replicas)
    table = pa.table({"change": list(changes), "difference": [0.01 * seed] * len(changes)})
    text = f"{changes[0]} raises it over {replicas} replicas of {days} days, given {list(given)}, "
    text += f"a checkpoint every {assumptions.checkpoint_interval_s:g} s."
    return Page(
        "What if",
        findings=[Finding(text, "gain", "Recommended.")],
        sections=[Section("gain", "Which change gains most?", "All.", tables=[Table(table)])],
        unknowns=[Unknown("nothing was simulated <b>here</b>")],
    )
