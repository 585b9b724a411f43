"""Where the wall time of a run went: `breakdown`, and what it gives."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.lines import Reject
from holdfast.plain import plain
from holdfast.runs.goodput.agreement import Disagreement, disagreements
from holdfast.runs.goodput.attempts import AttemptAccount, attempt_accounts, mean_nodes
from holdfast.runs.goodput.checkpoint_costs import CheckpointCosts, checkpoint_costs
from holdfast.runs.goodput.ledger import PARTS, Ledger, keep_books
from holdfast.runs.goodput.remarks import remarks_of
from holdfast.runs.goodput.work import (
    LossNotFinite,
    Replays,
    Work,
    losses_not_finite,
    replays_of,
    work_of,
)
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.recording.reading import RANK_FILES, read_run

SILENT_S = 60.0
"""A run without an end whose last sign of life is older no longer runs."""
SHORT_HOURS = 10
"""Accelerator hours of a run below which they are given in minutes."""
DEEPEST = 3
"""Folders between a run's own and what lies in it (``flight/start-17/rank_0.json``)."""
MOST_REJECTS = 100
"""Unusable lines that the JSON shows; their number is always given."""


@dataclass(frozen=True)
class Breakdown:
    """Where the wall time of a run went. Times of the run count from `began_s`."""

    run_id: str
    folder: Path
    began_s: float
    """Seconds since 1970: the first submission where it is known, else the first process's start."""
    running: bool
    """It has no end yet and was alive within the last minute."""
    silent_s: float
    """Since the last sign of life."""
    wall_s: float
    """To the last sign of life."""
    parts: Mapping[str, float]
    """Seconds by part (`ledger.PARTS`), mean over the ranks; they sum to `wall_s`."""
    gpu_hours: Mapping[str, float]
    """The same in hours times accelerators; a gap counts those of the attempt after it."""
    attempts: tuple[AttemptAccount, ...]
    work: Work
    replays: tuple[Replays, ...]
    """What each attempt did again, those that did."""
    losses_not_finite: tuple[LossNotFinite, ...]
    """Attempts in which a loss was NaN or infinite."""
    disagreements: tuple[Disagreement, ...]
    """Ranks whose weights, gradient norm or loss have left those of their replicas."""
    checkpoints: CheckpointCosts
    clocks_s: Mapping[str, float]
    """Node -> seconds by which its clock is ahead of the others', where that is more than 1 s."""
    rejects: tuple[Reject, ...]
    remarks: tuple[str, ...]

    @property
    def ettr(self) -> float:
        """Productive time over wall time."""
        return self.parts["productive"] / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def gpu_unit(self) -> tuple[str, float]:
        """The unit of accelerator time and its number per hour: minutes for a short run."""
        hours = sum(self.gpu_hours.values())
        return ("GPU-hours", 1.0) if hours >= SHORT_HOURS else ("GPU-minutes", 60.0)

    @property
    def interruptions(self) -> int:
        """Attempts that did not end by themselves."""
        return sum(each.interrupted for each in self.attempts)

    def attempt_at(self, time_s: float) -> AttemptAccount:
        """The attempt of a moment, in seconds since 1970: the last one that had begun."""
        begun = [each for each in self.attempts if self.began_s + each.begin_s <= time_s]
        return (begun or self.attempts[:1])[-1]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs report``; units are in the names."""
        steps = [each.first_step for each in self.replays]
        lasts = [each.last_step for each in self.replays]
        return {
            "run_id": self.run_id,
            "attempts": len(self.attempts),
            "wall_s": self.wall_s,
            "parts": dict(self.parts),
            "ettr": self.ettr,
            "checkpoint": vars(self.checkpoints),
            "replayed_steps": {
                "count": sum(each.count for each in self.replays),
                "first": min(steps, default=None),
                "last": max(lasts, default=None),
                "by_attempt": [each.to_dict() for each in self.replays],
            },
            **vars(self.work),
            "began_s": self.began_s,
            "running": self.running,
            "interruptions": self.interruptions,
            "nodes": mean_nodes(self.attempts),
            "gpu_hours": dict(self.gpu_hours),
            "attempt_table": [plain(vars(each)) for each in self.attempts],
            "losses_not_finite": [plain(vars(each)) for each in self.losses_not_finite],
            "disagreements": [plain(vars(each)) for each in self.disagreements],
            "clock_offsets_s": dict(self.clocks_s),
            "rejects": {
                "count": len(self.rejects),
                "lines": [
                    {"file": str(each.file), "line": each.line, "reason": each.reason}
                    for each in self.rejects[:MOST_REJECTS]
                ],
            },
            "remarks": list(self.remarks),
        }


def breakdown(
    run: RecordedRun | Path | str,
    run_id: str | None = None,
    *,
    now_s: float | None = None,
) -> Breakdown:
    """Break down the wall time of a run: its ETTR, its losses, what its checkpoints cost.

    Args:
        run: a run from `read_run`, or the folder of `RunRecorder`.
        run_id: the run, if the folder contains several.
        now_s: seconds since 1970, to distinguish a running run from a killed one; None: now.

    Raises:
        InputError: run not found.
    """
    recorded = run if isinstance(run, RecordedRun) else read_run(run, run_id)
    ledger = keep_books(recorded)
    return account(ledger, now_s=now_s)


def breakdown_around(*places: Path | str) -> Breakdown | None:
    """The breakdown of the run in whose folder something lies.

    Args:
        places: flight records, logs, or folders of them; a run's folder, or the one around it.

    Returns:
        None where there are no events of one run.
    """
    for place in map(Path, places):
        around = [each for each in place.absolute().parents[:DEEPEST] if any(each.glob(RANK_FILES))]
        for folder in [*([place] if place.is_dir() else []), *around]:
            with suppress(InputError):
                return breakdown(folder)
    return None


def account(
    ledger: Ledger,
    *,
    now_s: float | None = None,
) -> Breakdown:
    """The breakdown of books that are kept already; arguments as `breakdown`."""
    recorded, wall = ledger.run, ledger.window.wall_s
    began = recorded.origin_s - ledger.window.shift_s
    silent_s = (time.time() if now_s is None else now_s) - (began + wall)
    running = _runs_still(ledger, silent_s)
    work = work_of(ledger)
    attempts = attempt_accounts(ledger, work.step_s_median, running)
    checkpoints = checkpoint_costs(ledger)
    gpus = [each.gpus for each in attempts]
    return Breakdown(
        run_id=recorded.run_id,
        folder=recorded.folder,
        began_s=began,
        running=running,
        silent_s=max(0.0, silent_s),
        wall_s=wall,
        parts={name: math.fsum(ledger.by_attempt[:, place]) for place, name in enumerate(PARTS)},
        gpu_hours={
            name: float(np.dot(ledger.by_attempt[:, place], gpus)) / 3600
            for place, name in enumerate(PARTS)
        },
        attempts=attempts,
        work=work,
        replays=replays_of(ledger),
        losses_not_finite=losses_not_finite(ledger),
        disagreements=disagreements(ledger),
        checkpoints=checkpoints,
        clocks_s=recorded.clocks_s,
        rejects=recorded.rejects,
        remarks=remarks_of(ledger, attempts, checkpoints),
    )


def _runs_still(ledger: Ledger, silent_s: float) -> bool:
    """Whether the last attempt has no end and was alive a moment ago."""
    last = [ledger.run.processes[index] for index in ledger.window.attempts[-1].processes]
    return all(each.end == "none" for each in last) and silent_s < SILENT_S
