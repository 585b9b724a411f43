"""Distances between weights: Wasserstein-1 of their distributions, and element by element.

W1 of two samples of one size is the mean of |sorted a - sorted b| (Vallender 1974). It ignores which weight
is which: W1(a, permuted a) = 0. So the paired distance mean |a - b| >= W1 always stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Quantiles of a sketch, and values of a paired sample.
SKETCH = 1024


# Values from which loading the compiled sort pays.
LARGE = 1 << 20


@dataclass(frozen=True)
class Distance:
    """How far apart two tensors are.

    Attributes:
        w1: Wasserstein-1 distance of the two distributions.
        paired_mean: Mean absolute difference, element by element.
        paired_max: Largest absolute difference; of a sample a lower bound.
        rms: Root mean square of the first tensor: the scale to hold distances against.
        non_finite: Values that are NaN or infinite in either and left out of both.
    """

    w1: float
    paired_mean: float
    paired_max: float
    rms: float
    non_finite: int = 0


def positions(size: int) -> npt.NDArray[np.int64]:
    """The fixed places of a sketch in a tensor (flattened), or in its sorted values: mid-quantiles."""
    if size <= SKETCH:
        return np.arange(size)
    return (2 * np.arange(SKETCH, dtype=np.int64) + 1) * size // (2 * SKETCH)


def distance(a: Any, b: Any) -> Distance:
    """The exact distances between two tensors or arrays of one size."""
    x, y = flat(a), flat(b)
    kind = np.result_type(x, y)
    x, y = x.astype(kind, copy=False), y.astype(kind, copy=False)
    usable = np.isfinite(x) & np.isfinite(y)
    non_finite = int((~usable).sum())
    if non_finite:
        x, y = x[usable], y[usable]
    if not x.size:
        return Distance(np.nan, np.nan, np.nan, np.nan, non_finite)
    paired = np.abs(np.subtract(x, y, dtype=np.float64))
    paired_mean, paired_max = float(paired.mean()), float(paired.max())
    np.subtract(ascending(x), ascending(y), paired, dtype=np.float64)
    w1 = float(np.abs(paired, out=paired).mean())
    rms = float(np.sqrt(np.square(x, dtype=np.float64).mean()))
    return Distance(w1, paired_mean, paired_max, rms, non_finite)


def ascending(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sorted finite values; many of float32 by a compiled radix sort, a quarter of NumPy's time."""
    if values.dtype != np.float32 or values.size < LARGE:
        return np.sort(values)
    from holdfast.profile.numerics._kernels import radix_sort

    # Of floats as integers, the negative ones are ordered the wrong way round.
    signed = values.view(np.int32)
    keys = (signed ^ (signed >> 31 & 0x7FFFFFFF)).view(np.uint32) ^ np.uint32(1 << 31)
    signed = (radix_sort(keys, np.empty_like(keys)) ^ np.uint32(1 << 31)).view(np.int32)
    return (signed ^ (signed >> 31 & 0x7FFFFFFF)).view(np.float32)


def flat(values: Any) -> npt.NDArray[Any]:
    """A tensor or array as a flat array of float32, or float64 where it is that; exact."""
    if hasattr(values, "detach"):
        import torch

        values = values.detach().cpu()
        values = values if values.dtype == torch.float64 else values.float()
        values = values.numpy()
    values = np.asarray(values)
    kind = values.dtype if values.dtype == np.float64 else np.float32
    return values.reshape(-1).astype(kind, copy=False)
