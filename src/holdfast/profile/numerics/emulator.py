"""Attention with a format of its own for the result of every step: golden, baseline and flash.

    S = Q K^T / sqrt(d)          scores
    m = max(m_old, rowmax S)     row_max
    P = exp(S - m)               probabilities
    a = exp(m_old - m)           rescale
    l = a l_old + rowsum P       row_sum
    P V                          product
    O = a O_old + P V            accumulator
    O / l                        output

Arithmetic inside a step is float64 and its result is rounded once, to nearest even, unless `accumulate`
names a format: then sums add one term after the other and are rounded after each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.profile.numerics.formats import FloatArray, format_of, rounded

STEPS = (
    "scores",
    "row_max",
    "probabilities",
    "rescale",
    "row_sum",
    "product",
    "accumulator",
    "output",
)
Mode = Literal["all-rounded", "kernel"]
Order = Literal["forward", "reverse", "shuffled"]


@dataclass(frozen=True)
class Arithmetic:
    """The format in which the result of each step is stored."""

    scores: str = "fp64"
    row_max: str = "fp64"
    probabilities: str = "fp64"
    rescale: str = "fp64"
    row_sum: str = "fp64"
    product: str = "fp64"
    accumulator: str = "fp64"
    output: str = "fp64"
    accumulate: str = "fp64"
    """Format of the running sum inside products and row sums; fp64: one sum, rounded once."""
    sums_stored: bool = True
    """Row sums add the stored probabilities; a kernel adds them before they are rounded."""
    normalizes_first: bool = False
    """The baseline divides probabilities by their sum before it multiplies them by V."""

    def __post_init__(self) -> None:
        for step in (*STEPS, "accumulate"):
            format_of(getattr(self, step))

    def only(self, step: str) -> Arithmetic:
        """The same with every step but one in float64."""
        others = dict.fromkeys((each for each in (*STEPS, "accumulate") if each != step), "fp64")
        return replace(self, **others)


def all_rounded(dtype: str, accumulate: str = "fp64") -> Arithmetic:
    """Every step in one format."""
    steps: dict[str, Any] = dict.fromkeys(STEPS, dtype)
    return Arithmetic(**steps, accumulate=accumulate)


def kernel(dtype: str, accumulate: str = "fp64") -> Arithmetic:
    """A fused kernel: float32 on chip; only probabilities (for the matrix unit) and output are stored."""
    steps: dict[str, Any] = dict.fromkeys(STEPS, "fp32") | {"probabilities": dtype, "output": dtype}
    return Arithmetic(**steps, accumulate=accumulate, sums_stored=False)


def separate_operators(dtype: str, accumulate: str = "fp64") -> Arithmetic:
    """Matmul, softmax, matmul: float32 inside each, its result stored; the baseline beside `kernel`."""
    steps = {
        **dict.fromkeys(STEPS, "fp32"),
        "scores": dtype,
        "probabilities": dtype,
        "output": dtype,
    }
    return Arithmetic(**steps, accumulate=accumulate, sums_stored=False, normalizes_first=True)


def exact_scores(
    q: FloatArray,
    k: FloatArray,
    accumulate: str = "fp64",
    mask: npt.NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Q K^T / sqrt(d), [rows, keys]; -inf where the mask is False."""
    scores = _dot(q, k.T, accumulate) / np.sqrt(q.shape[1])
    return scores if mask is None else np.where(mask, scores, -np.inf)


def golden(scores: FloatArray, v: FloatArray) -> FloatArray:
    """Attention in float64, [rows, d]; rows without any key are 0."""
    m = _finite_max(scores.max(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - m)
        return _divided(p @ v, p.sum(axis=1, keepdims=True), scores)


def baseline(
    scores: FloatArray, v: FloatArray, formats: Arithmetic
) -> tuple[FloatArray, FloatArray]:
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
        m = rounded(s.max(axis=1, keepdims=True), formats.row_max)
        exact = np.exp(s - _finite_max(m))
        p = rounded(exact, formats.probabilities)
        row_sum = _row_sum(p if formats.sums_stored else exact, formats)
        if formats.normalizes_first:
            p = rounded(_divided(exact, row_sum, scores), formats.probabilities)
            o = rounded(_dot(p, v, formats.accumulate), formats.product)
        else:
            o = rounded(_dot(p, v, formats.accumulate), formats.product)
            o = _divided(rounded(o, formats.accumulator), row_sum, scores)
        return o, rounded(o, formats.output)


def flash(
    scores: FloatArray, v: FloatArray, formats: Arithmetic, blocks: Sequence[slice]
) -> tuple[FloatArray, FloatArray]:
    """Attention over blocks of keys with a running maximum and sum (online softmax).

    Args:
        scores: [rows, keys] of `exact_scores`.
        v: [keys, d].
        formats: formats.
        blocks: the keys of each block, in the order in which they are read.

    Returns:
        The output before and after its last rounding, [rows, d].
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        s_all = rounded(scores, formats.scores)
        m = row_sum = o = None  # of the blocks before; [rows, 1], [rows, 1], [rows, d]
        for keys in blocks:
            s = s_all[:, keys]
            m_block = s.max(axis=1, keepdims=True)
            m_new = rounded(m_block if m is None else np.maximum(m, m_block), formats.row_max)
            shift = _finite_max(m_new)
            exact = np.exp(s - shift)
            p = rounded(exact, formats.probabilities)
            p_sum = _row_sum(p if formats.sums_stored else exact, formats)
            pv = rounded(_dot(p, v[keys], formats.accumulate), formats.product)
            if m is None or row_sum is None or o is None:  # nothing to rescale yet
                row_sum, o = p_sum, rounded(pv, formats.accumulator)
            else:
                a = rounded(np.exp(m - shift), formats.rescale)
                row_sum = rounded(rounded(a * row_sum, formats.row_sum) + p_sum, formats.row_sum)
                o = rounded(rounded(a * o, formats.accumulator) + pv, formats.accumulator)
            m = m_new
        assert o is not None
        assert row_sum is not None
        o = _divided(o, row_sum, scores)
        return o, rounded(o, formats.output)


def blocks_of(keys: int, block: int, order: Order = "forward", seed: int = 0) -> list[slice]:
    """Blocks of keys; the last may be smaller."""
    blocks = [slice(first, min(first + block, keys)) for first in range(0, keys, block)]
    if order == "shuffled":
        return [blocks[n] for n in np.random.default_rng(seed).permutation(len(blocks))]
    return blocks[::-1] if order == "reverse" else blocks


def row_blocks(rows: int, keys: int, most_bytes: int = 1 << 26) -> Iterator[slice]:
    """Rows whose scores fit in so many bytes together."""
    step = max(1, most_bytes // (8 * keys))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def _dot(a: FloatArray, b: FloatArray, accumulate: str) -> FloatArray:
    """A matrix product whose running sums have a format, [rows, inner] x [inner, columns]."""
    if accumulate == "fp64":
        return a @ b
    total = np.zeros((a.shape[0], b.shape[1]))
    for n in range(a.shape[1]):
        total = rounded(total + a[:, n : n + 1] * b[n], accumulate)
    return total


def _row_sum(p: FloatArray, formats: Arithmetic) -> FloatArray:
    ones = np.ones((p.shape[1], 1))
    exact = formats.accumulate == "fp64"
    total = p.sum(axis=1, keepdims=True) if exact else _dot(p, ones, formats.accumulate)
    return rounded(total, formats.row_sum)


def _finite_max(m: FloatArray) -> FloatArray:
    """The maximum to subtract; 0 where all scores so far are -inf, so that their exponentials are 0."""
    return np.where(np.isneginf(m), 0.0, m)


def _divided(o: FloatArray, row_sum: FloatArray, scores: FloatArray) -> FloatArray:
    """O / l; 0 in rows that are masked completely, where l is 0 (any other 0 / 0 stays NaN)."""
    empty = np.isneginf(scores).all(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(empty, 0.0, o / row_sum)
