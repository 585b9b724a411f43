"""The central data structure: how long every rank worked for itself in every step.

In synchronous training all ranks end a step together, because the fast ones wait in a collective for
the slowest. The length of a step therefore says nothing about who is slow; a rank's *own time* does:
what it did before it was ready for the others. `StepMatrix.own_s` holds own times and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lines import Reject
from holdfast.runs.ranks import ranges

FloatMatrix = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Base = Literal["own", "data_wait", "unknown"]
"""What `StepMatrix.own_s` holds: the own time of every rank; only its waiting for data, because
the rest of a step may be waiting for others; or the length of steps, which cannot be compared."""

LEAST_COVERAGE = 0.5
"""A rank with fewer steps than this share of the median rank's is set aside: the steps that all ranks
share are what can be compared, and it would leave few."""
LEAST_DENSITY, LEAST_DENSITY_CELLS = 0.01, 10_000_000
"""A large matrix that is nearly empty shares no steps, and would not fit into memory."""


@dataclass(frozen=True)
class LongSteps:
    """Steps as read from a source: one row per rank and step, in any order; n rows."""

    rank: Ints
    """[n]"""
    step: Ints
    """[n]"""
    own_s: FloatMatrix
    """[n] seconds"""
    attempt: Ints | None = None
    """[n]; a step that was done again in a later attempt is another step."""
    data_wait_s: FloatMatrix | None = None
    """[n] the part of `own_s` that was waiting for data."""
    waited_s: FloatMatrix | None = None
    """[n] waiting in collectives, beside `own_s`."""


@dataclass(frozen=True)
class StepMatrix:
    """Own times of R ranks in the S steps that all of them did."""

    base: Base
    ranks: Ints
    """[R] rank numbers, ascending."""
    steps: Ints
    """[S] step numbers, in the order in which they were done."""
    attempts: Ints
    """[S] the attempt in which the step was done, from 0."""
    own_s: FloatMatrix
    """[R, S] seconds; finite and not negative."""
    data_wait_s: FloatMatrix | None = None
    """[R, S] the part of `own_s` that was waiting for data; None: not told apart."""
    waited_s: FloatMatrix | None = None
    """[R, S] waiting in collectives; None: unknown, or told together with messages."""
    reported_share: float | None = None
    """Waiting as the program itself has told it, as a share of the usual step; None: it was measured, or
    own times were given."""
    usual_s: float | None = None
    """What a delay is a share of: the median length of a step; None: the median own time is."""
    gpus: Floats = field(default_factory=lambda: np.ones(0))
    """[R] accelerators that each rank holds."""
    labels: tuple[Mapping[str, str], ...] = ()
    """[R] what each rank belongs to: node, rack, stage, ..."""
    peers: str = ""
    """The label whose values are compared each for itself; empty: all ranks are."""
    steps_not_shared: int = 0
    """Steps left out because not all ranks did them."""
    ranks_set_aside: tuple[int, ...] = ()
    """Ranks left out because they had less than half of the steps of the others."""
    rejects: tuple[Reject, ...] = ()
    """Input that could not be used, the first of them."""
    rejected: int = 0
    """How many rows could not be used."""
    remarks: tuple[str, ...] = ()
    source: str = ""
    """What was read, for people."""


def fill(rows: LongSteps, base: Base, source: str) -> tuple[StepMatrix, npt.NDArray[np.intp]]:
    """Rows of (rank, step) -> the matrix of the steps that all ranks share.

    Args:
        rows: in any order. Of rows for the same rank, attempt and step the first counts.
        base: what `own_s` holds.
        source: what was read.

    Returns:
        The matrix without labels and with one GPU a rank; and the positions of the rows that came second.

    Raises:
        InputError: if fewer than two ranks share a step.
    """
    if not rows.rank.size:
        raise _nothing_shared(rows.rank, source)
    ranks, row = np.unique(rows.rank, return_inverse=True)
    # One number for each attempt and step, ascending with the attempt first.
    least = int(rows.step.min())
    span = int(rows.step.max()) - least + 1
    attempt = np.zeros_like(rows.step) if rows.attempt is None else rows.attempt
    keys, column = np.unique(attempt * span + (rows.step - least), return_inverse=True)
    size = ranks.size * keys.size
    if size > LEAST_DENSITY_CELLS and rows.rank.size < LEAST_DENSITY * size:
        raise _nothing_shared(ranks, source)
    cells, first = np.unique(row * keys.size + column, return_index=True)
    present = np.zeros(size, dtype=bool)
    present[cells] = True
    present = present.reshape(ranks.size, keys.size)
    counts = present.sum(axis=1)
    kept = counts >= LEAST_COVERAGE * np.median(counts)  # [ranks]
    shared = present[kept].all(axis=0)  # [keys]
    if kept.sum() < 2 or not shared.any():
        raise _nothing_shared(ranks, source)

    def dense(values: FloatMatrix) -> FloatMatrix:
        matrix = np.zeros(size, dtype=np.float32)
        matrix[cells] = values[first]
        return matrix.reshape(ranks.size, keys.size)[np.ix_(kept, shared)]

    matrix = StepMatrix(
        base,
        ranks[kept],
        keys[shared] % span + least,
        keys[shared] // span,
        dense(rows.own_s),
        None if rows.data_wait_s is None else dense(rows.data_wait_s),
        None if rows.waited_s is None else dense(rows.waited_s),
        gpus=np.ones(int(kept.sum())),
        labels=({},) * int(kept.sum()),
        steps_not_shared=int(present[kept].any(axis=0).sum() - shared.sum()),
        ranks_set_aside=tuple(ranks[~kept].tolist()),
        source=source,
    )
    return matrix, np.delete(np.arange(rows.rank.size), first)


def _nothing_shared(ranks: Ints, source: str) -> InputError:
    return InputError(
        "no step is shared by two ranks",
        code="no-data",
        path=source,
        found=f"ranks {ranges(ranks)}",
        expected="the same steps on two ranks or more",
        remedy="give the files of all ranks of one run",
    )
