"""How alike two gradients are, and how sure that is: cosine and its jackknife over the batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from holdfast.stats import jackknife_error

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Score:
    """The likeness of the gradient at one fidelity to that at full fidelity."""

    fidelity: int
    """g, from 1."""
    value: float
    """Cosine of the gradients, each accumulated over all batches; NaN if one is zero or not finite."""
    error: float | None
    """Standard error of `value` (delete-one jackknife); None with fewer than two batches."""
    freedom: int = 0
    """Degrees of freedom of `error`: batches less one, summed over ranks."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, by Student's t on Fisher's scale artanh(cosine); (NaN, NaN) if unknown."""
        spread = self._spread()
        if spread is None:
            return math.nan, math.nan
        middle = math.atanh(_inside(self.value))
        reach = float(stdtrit(self.freedom, 0.5 + CONFIDENCE / 2)) * spread
        return math.tanh(middle - reach), math.tanh(middle + reach)

    def _spread(self) -> float | None:
        """The standard error on Fisher's scale, by the derivative of artanh."""
        if self.error is None or self.freedom < 1 or not math.isfinite(self.value):
            return None
        return self.error / (1 - _inside(self.value) ** 2)

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON; what is unknown is null."""
        low, high = self.interval
        return {
            "fidelity": self.fidelity,
            "score": _or_none(self.value),
            "error": self.error,
            "low": _or_none(low),
            "high": _or_none(high),
            "freedom": self.freedom,
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return asdict(self) | {"value": _or_none(self.value)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Score:
        """The score of which `state` is kept."""
        score = cls(**state)
        return replace(score, value=math.nan) if state["value"] is None else score


@dataclass(frozen=True, slots=True)
class Products:
    """Inner products of the gradients of B blocks of batches, in float64."""

    full: NDArray[np.float64]
    """[B, B] between blocks at full fidelity."""
    cross: NDArray[np.float64]
    """[B, B]: rows at full fidelity, columns at the candidate's."""
    candidate: NDArray[np.float64]
    """[B, B] between blocks at the candidate's fidelity."""


def score(fidelity: int, products: Products) -> Score:
    """The cosine between the summed gradients, with its jackknife error.

    The gradient of a set of batches is the sum of theirs, so that inner products of sums are sums of
    inner products: leaving a block out takes away a row and a column.

        cos = 1'C1 / sqrt(1'F1 * 1'G1),    error^2 = (B-1)/B * sum_b (cos_(b) - mean cos_(.))^2

    Args:
        fidelity: the candidate's.
        products: of the blocks.

    Returns:
        The score; its value is NaN where a gradient is zero or not finite.

    Source: Efron and Stein, "The jackknife estimate of variance", 1981, equation 1.4; the score itself:
    arXiv 1911.00472, section 4.
    """
    blocks = len(products.full)
    value = _cosine(*(part.sum() for part in (products.full, products.cross, products.candidate)))
    if blocks < 2:
        return Score(fidelity, value, None)
    without = [
        part.sum() - part.sum(0) - part.sum(1) + np.diagonal(part)
        for part in (products.full, products.cross, products.candidate)
    ]
    left = [_cosine(*parts) for parts in zip(*without, strict=True)]
    error = jackknife_error(left)
    return Score(fidelity, value, error if math.isfinite(error) else None, blocks - 1)


def exactly_alike(fidelity: int) -> Score:
    """The score of full fidelity: it is what the others are compared with."""
    return Score(fidelity, 1.0, 0.0, 1)


def _cosine(full: float, cross: float, candidate: float) -> float:
    if not (full > 0 and candidate > 0 and math.isfinite(full) and math.isfinite(candidate)):
        return math.nan
    # Two roots: the product of two squared norms may leave the range of float64.
    return float(np.clip(cross / math.sqrt(full) / math.sqrt(candidate), -1.0, 1.0))


def _inside(value: float) -> float:
    """Just inside (-1, 1), where artanh is finite."""
    return min(max(value, -1 + 1e-12), 1 - 1e-12)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
