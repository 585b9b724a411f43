"""Pipeline stages: how evenly the work is cut, and how much of a step they wait."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from holdfast.runs.straggling.matrix import StepMatrix

STAGE_LABELS = ("stage", "pipeline_stage", "pp_stage", "pp_rank", "pp")
"""Labels that name the pipeline stage of a rank, the first that is there counts."""


@dataclass(frozen=True)
class Stage:
    """One pipeline stage."""

    name: str
    ranks: int
    own_s: float
    """Median own time of its ranks in a step."""
    waiting_share: float | None
    """Waiting for the others / (own time + waiting), over its ranks and steps; None: not recorded."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a run, in the order of their names."""

    label: str
    stages: tuple[Stage, ...]
    imbalance: float
    """Own time of the slowest stage / mean over stages - 1: a perfect cut has 0."""
    idle_share: float
    """1 - mean / slowest: the share of a step in which stages idle because of the cut alone. Filling
    and draining the pipeline come on top."""
    bubble_share: float | None
    """The measured share of a step that ranks wait, for whatever reason; None: not recorded."""

    @property
    def slowest(self) -> Stage:
        """The stage that sets the pace."""
        return max(self.stages, key=lambda stage: stage.own_s)


def pipeline(matrix: StepMatrix) -> Pipeline | None:
    """The stages; None if the ranks carry no label of a stage, or all the same one."""
    label = next(
        (name for name in STAGE_LABELS if all(name in each for each in matrix.labels)), None
    )
    if label is None or matrix.base != "own":
        return None
    names = [each[label] for each in matrix.labels]
    if len(set(names)) < 2:
        return None
    stages = tuple(
        _stage(matrix, name, np.array([each == name for each in names]))
        for name in sorted(set(names), key=_natural)
    )
    own = np.array([stage.own_s for stage in stages])
    mean, most = float(own.mean()), float(own.max())
    return Pipeline(
        label,
        stages,
        imbalance=most / mean - 1 if mean else 0.0,
        idle_share=1 - mean / most if most else 0.0,
        bubble_share=_waiting_share(matrix, np.ones(len(names), dtype=bool)),
    )


def _stage(
    matrix: StepMatrix, name: str, members: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Stage:
    return Stage(
        name,
        int(members.sum()),
        float(np.median(matrix.own_s[members])),
        _waiting_share(matrix, members),
    )


def _waiting_share(
    matrix: StepMatrix, members: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> float | None:
    if matrix.waited_s is None:
        return None
    waited = float(matrix.waited_s[members].sum(dtype=np.float64))
    own = float(matrix.own_s[members].sum(dtype=np.float64))
    return waited / (waited + own) if waited + own else 0.0


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key under which 10 follows 9."""
    return tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", text)
        if part
    )
