"""Work that stands in for a simulation: quick, importable by other processes, a function of its task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.fleet.simulation.outcomes import TOPS, Outcome, outcome
from holdfast.fleet.simulation.replicas import Task
from runs import HOUR, Attempt, History, Job

BLANK = outcome(
    History(jobs=[Job(8 * HOUR, 64)], attempts=[Attempt(0, 1, [0], 8 * HOUR, 9 * HOUR)]).run()
)
SIZE = int(np.searchsorted(TOPS, 64))


def drawn(task: Task) -> Outcome:
    """An ETTR of 1 - write / interval plus noise that belongs to the seed, and noise of its own."""
    checkpoint = task.scenario.checkpoint
    shared = np.random.default_rng(task.seed)
    own = np.random.default_rng([task.seed, round(1000 * checkpoint.write_s)])
    ettr = 1 - checkpoint.write_s / checkpoint.interval_s
    ettr += 0.02 * shared.standard_normal() + 0.005 * own.standard_normal()
    return of(ettr, days=task.days)


def of(ettr: float, **fields: Any) -> Outcome:
    """An outcome of 50 large runs with this ETTR."""
    runs, sums = (np.zeros_like(BLANK.runs["runs"]) for _ in range(2))
    runs[2, :, SIZE] = 50
    sums[2, :, SIZE] = 50 * ettr
    return replace(BLANK, runs={**BLANK.runs, "runs": runs, "ettr": sums}, **fields)


def without_runs(made: Outcome, **fields: Any) -> Outcome:
    """An outcome without a job run to measure."""
    empty = {name: sums * 0 for name, sums in made.runs.items()}
    return replace(made, runs=empty, **fields)
