"""Floating-point formats and exact rounding to them, from float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.profile.ops.targets import choice

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with subnormals.

    Attributes:
        fraction_bits: Stored bits of the fraction: the precision is one more.
        min_exponent: Exponent of the smallest normal number.
        largest: Largest finite number.
        infinity: Whether overflow gives infinity; a format without one saturates, as torch's casts do.
    """

    name: str
    fraction_bits: int
    min_exponent: int
    largest: float
    infinity: bool = True


def _ieee(name: str, exponent_bits: int, fraction_bits: int) -> Format:
    bias = 2 ** (exponent_bits - 1) - 1
    # In this order: 2.0 ** (bias + 1) would overflow for float64.
    return Format(name, fraction_bits, 1 - bias, (2 - 2.0**-fraction_bits) * 2.0**bias)


FORMATS = {
    form.name: form
    for form in (
        _ieee("fp64", 11, 52),
        _ieee("fp32", 8, 23),
        _ieee("tf32", 8, 10),
        _ieee("bf16", 8, 7),
        _ieee("fp16", 5, 10),
        _ieee("fp8_e5m2", 5, 2),
        # All exponents hold numbers; only the largest pattern is NaN (OCP E4M3, torch.float8_e4m3fn).
        Format("fp8_e4m3", 3, -6, 448.0, infinity=False),
    )
}


def format_of(name: str | Format) -> Format:
    """A format by its name.

    Raises:
        InputError: ``unknown-name``.
    """
    if isinstance(name, Format):
        return name
    return FORMATS[choice(name, FORMATS, "format", "dtype")]


def rounded(values: npt.ArrayLike, to: str | Format) -> FloatArray:
    """Values rounded to the nearest number of a format, ties to even, once from float64.

    (`tensor.double().to(torch.bfloat16)` rounds twice, through float32.)

    Args:
        values: any shape.
        to: name in `FORMATS`.

    Returns:
        float64 of the same shape. Overflow is infinity, the largest number in fp8_e4m3. NaN stays NaN.
    """
    form = format_of(to)
    x = np.asarray(values, dtype=np.float64)
    if form.fraction_bits == 52:
        return x
    drop = 52 - form.fraction_bits
    # Adding half of the last kept bit, less one where that bit is even, carries exactly when the nearest
    # number (ties to even) is the larger one; a carry out of the fraction raises the exponent.
    bits = np.atleast_1d(x).view(np.int64)
    bits = bits + (((bits >> drop) & 1) + ((1 << (drop - 1)) - 1))
    bits &= -1 << drop
    y = bits.view(np.float64).reshape(x.shape)
    size = np.abs(x)
    small = size < 2.0**form.min_exponent
    if small.any():
        # Subnormals are the multiples of one quantum: a large enough addend rounds to it.
        addend = 1.5 * 2.0 ** (52 + form.min_exponent - form.fraction_bits)
        y = np.where(small, np.copysign((x + addend) - addend, x), y)
    # The carry can make any number of a NaN.
    beyond = ~(np.abs(y) <= form.largest) | np.isnan(x)
    if beyond.any():
        over = np.copysign(np.inf if form.infinity else form.largest, x)
        y = np.where(beyond, np.where(np.isnan(x), x, over), y)
    return y


def spacing(values: npt.ArrayLike, of: str | Format) -> FloatArray:
    """The distance between neighbouring numbers of a format at each value: one ulp."""
    form = format_of(of)
    _, exponent = np.frexp(np.abs(np.asarray(values, dtype=np.float64)))
    lowest = np.maximum(exponent - 1, form.min_exponent)
    return np.ldexp(1.0, lowest - form.fraction_bits)


def as_float64(values: Any) -> FloatArray:
    """A NumPy array or a tensor of any floating type as float64, exactly."""
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)
