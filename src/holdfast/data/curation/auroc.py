"""Area under the ROC curve over random draws, with an interval that knows which files are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.influence_scores import FloatArray
from holdfast.stats import NORMAL_95

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Auroc:
    """An area, and how it depends on each file.

    Args:
        value: chance that a corrupted file scores above a clean one; ties count half.
        derivatives: of the value by the weight of each file ``[n]``; 0 for files that were left out.
    """

    value: float
    derivatives: FloatArray

    @property
    def standard_error(self) -> float:
        """By the infinitesimal jackknife; for a single draw it is that of DeLong et al. (1988)."""
        return float(np.linalg.norm(self.derivatives))

    def ci95(self) -> tuple[float, float]:
        """On the log-odds scale, so that it stays between 0 and 1."""
        # An area of 1 has no spread: then as if half a file were the wrong way around.
        least = 0.5 / len(self.derivatives)
        inside = min(max(self.value, least), 1 - least)
        error = max(self.standard_error, least * (inside != self.value))
        odds = np.log(inside / (1 - inside))
        half = NORMAL_95 * error / (inside * (1 - inside))
        low, high = 1 / (1 + np.exp(-(odds + np.array([-half, half]))))
        return min(float(low), self.value), max(float(high), self.value)

    def __sub__(self, other: Auroc) -> Auroc:
        return Auroc(self.value - other.value, self.derivatives - other.derivatives)


def mean(areas: Sequence[Auroc]) -> Auroc:
    """The mean of areas over the same files."""
    return Auroc(
        float(np.mean([area.value for area in areas])),
        np.mean([area.derivatives for area in areas], axis=0),
    )


def auroc(scores: FloatArray, corrupted: BoolArray, eligible: BoolArray) -> Auroc:
    """The area averaged over draws of corrupted files.

    Args:
        scores: of each file in each draw ``[draws, n]``.
        corrupted: whether the file is corrupted in the draw ``[draws, n]``; some are in every draw.
        eligible: files that can be corrupted at all; others are left out ``[n]``.
    """
    draws, n = scores.shape
    derivatives = np.zeros(n)
    total = 0.0
    for row, bad in zip(scores, corrupted & eligible, strict=True):
        good = eligible & ~bad
        above, below = _placements(row[bad], row[good])
        value = float(above.mean())
        derivatives[bad] += (above - value) / len(above)
        derivatives[good] += (below - value) / len(below)
        total += value
    return Auroc(total / draws, derivatives / draws)


def _placements(bad: FloatArray, good: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Share of clean scores below each corrupted one; share of corrupted ones above each clean one."""
    from scipy.stats import rankdata

    # A score's rank among all, less that among its own kind, is how many of the other kind are below.
    ranks = rankdata(np.concatenate([bad, good]))
    above = (ranks[: len(bad)] - rankdata(bad)) / len(good)
    below = (ranks[len(bad) :] - rankdata(good)) / len(bad)
    return above, 1 - below
