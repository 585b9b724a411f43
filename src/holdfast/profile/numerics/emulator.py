"""Attention with a separate number format for the result of every step: golden, baseline and flash.

    S = Q K^T / sqrt(d)          scores
    m = max(m_old, rowmax S)     row_max
    P = exp(S - m)               probabilities
    a = exp(m_old - m)           rescale
    l = a l_old + rowsum P       row_sum
    P V                          product
    O = a O_old + P V            accumulator
    O / l                        output

Arithmetic inside a step is float64 and its result is rounded once, to nearest even.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from holdfast.profile.numerics.formats import FloatArray, rounded

Outputs = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Arithmetic:
    """The format in which the result of each step is stored.

    Attributes:
        sums_stored: Row sums add the stored probabilities; a kernel adds them before they are rounded.
        normalizes_first: The baseline divides probabilities by their sum before it multiplies them by V.
    """

    scores: str = "fp64"
    row_max: str = "fp64"
    probabilities: str = "fp64"
    rescale: str = "fp64"
    row_sum: str = "fp64"
    product: str = "fp64"
    accumulator: str = "fp64"
    output: str = "fp64"
    sums_stored: bool = True
    normalizes_first: bool = False

    def only(self, step: str) -> Arithmetic:
        """The same with every step but one in float64."""
        return replace(self, **dict.fromkeys(set(STEPS) - {step}, "fp64"))


STEPS = tuple(part.name for part in fields(Arithmetic) if part.type == "str")


def all_rounded(dtype: str) -> Arithmetic:
    """Every step in one format."""
    steps: dict[str, Any] = dict.fromkeys(STEPS, dtype)
    return Arithmetic(**steps)


def kernel(dtype: str) -> Arithmetic:
    """A fused kernel: float32 on chip; only probabilities (for the matrix unit) and output are stored."""
    return replace(all_rounded("fp32"), probabilities=dtype, output=dtype, sums_stored=False)


def separate_operators(dtype: str) -> Arithmetic:
    """Matmul, softmax, matmul: float32 inside each, its result stored; the baseline beside `kernel`."""
    return replace(kernel(dtype), scores=dtype, normalizes_first=True)


def exact_scores(q: FloatArray, k: FloatArray) -> FloatArray:
    """Q K^T / sqrt(d) in float64, [rows, keys]."""
    scores: FloatArray = q @ k.T / np.sqrt(q.shape[1])
    return scores


def golden(scores: FloatArray, v: FloatArray) -> FloatArray:
    """Attention in float64, [rows, d]."""
    return baseline(scores, v, Arithmetic())[0]


def baseline(scores: FloatArray, v: FloatArray, formats: Arithmetic) -> Outputs:
    """Attention over whole rows.

    Args:
        scores: [rows, keys] of `exact_scores`.
        v: [keys, d].
        formats: formats.

    Returns:
        The output before and after its last rounding, [rows, d].
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        s = rounded(scores, formats.scores)
        exact = np.exp(s - rounded(s.max(axis=1, keepdims=True), formats.row_max))
        p = rounded(exact, formats.probabilities)
        row_sum = _row_sum(p, exact, formats)
        if formats.normalizes_first:
            o = rounded(rounded(exact / row_sum, formats.probabilities) @ v, formats.product)
        else:
            o = rounded(rounded(p @ v, formats.product), formats.accumulator) / row_sum
        return o, rounded(o, formats.output)


def flash(scores: FloatArray, v: FloatArray, formats: Arithmetic, block: int) -> Outputs:
    """Attention over blocks of keys with a running maximum and sum (online softmax).

    Args:
        scores: [rows, keys] of `exact_scores`.
        v: [keys, d].
        formats: formats.
        block: keys per block; the last may be smaller.

    Returns:
        The output before and after its last rounding, [rows, d].
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        s_all = rounded(scores, formats.scores)
        # Of the blocks before: [rows, 1], [rows, 1], [rows, d].
        m = np.full((len(scores), 1), -np.inf)
        row_sum = o = np.zeros_like(m)
        for first in range(0, len(v), block):
            keys = slice(first, first + block)
            s = s_all[:, keys]
            m_new = rounded(np.maximum(m, s.max(axis=1, keepdims=True)), formats.row_max)
            exact = np.exp(s - m_new)
            p = rounded(exact, formats.probabilities)
            p_sum = _row_sum(p, exact, formats)
            pv = rounded(p @ v[keys], formats.product)
            a = rounded(np.exp(m - m_new), formats.rescale)  # 0 for the first block
            row_sum = rounded(rounded(a * row_sum, formats.row_sum) + p_sum, formats.row_sum)
            o = rounded(rounded(a * o, formats.accumulator) + pv, formats.accumulator)
            m = m_new
        o = o / row_sum
        return o, rounded(o, formats.output)


def _row_sum(p: FloatArray, exact: FloatArray, formats: Arithmetic) -> FloatArray:
    added = p if formats.sums_stored else exact
    return rounded(added.sum(axis=1, keepdims=True), formats.row_sum)
