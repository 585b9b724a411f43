"""Own times with a known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.matrix import StepMatrix


def matrix_of(
    own: npt.ArrayLike,
    labels: Sequence[Mapping[str, str]] | None = None,
    gpus: float = 1.0,
) -> StepMatrix:
    """A matrix of own times [R, S]."""
    times = np.asarray(own, dtype=np.float32)
    ranks, steps = times.shape
    return StepMatrix(
        "own",
        np.arange(ranks),
        np.arange(steps),
        np.zeros(steps, dtype=np.int64),
        times,
        gpus=np.full(ranks, gpus),
        labels=tuple(labels or [{}] * ranks),
    )


def noise(
    ranks: int, steps: int, seed: int, spread: float = 0.05, tail: str = "normal"
) -> npt.NDArray[np.float64]:
    """Own times around one second, the same law for all ranks; steps differ from each other."""
    generator = np.random.default_rng(seed)
    each = {
        "normal": lambda: generator.standard_normal((ranks, steps)),
        "student": lambda: generator.standard_t(2, (ranks, steps)),
        "skewed": lambda: generator.lognormal(0.0, 1.0, (ranks, steps)),
    }[tail]()
    common = generator.lognormal(0.0, 0.3, steps)  # long batches, evaluations: everyone is slow
    return np.asarray(np.maximum(common + spread * each, 0.0))
