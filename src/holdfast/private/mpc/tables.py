"""Functions by table: the public table of a function, read at a secret place.

The dealer shares the unit vector of a mask r. Parties open x + r and rotate the unit vector by it, which
makes the unit vector of x; its product with a public table is the entry of x. One vector reads many tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc.arithmetic import product, truncate
from holdfast.private.mpc.comparison import at_least, select_with_bits
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.rounds import Rounds, opened_sum

RealFunction = Callable[[np.ndarray], np.ndarray]
"""On arrays of float64."""
_CHUNK = 1 << 22  # entries of rotated unit vectors in memory at a time


def look_up(party: Party, x: Tensor, tables: Tensor, shift: int, bits: int) -> Rounds[Tensor]:
    """Entries ``(x >> shift) mod 2^bits`` of public tables, or the entries after them. One round.

    A carry from the bits below `shift` is ignored, so the place is rounded down or up; with ``shift = 0``
    it is exact. Opens only the lowest ``shift + bits`` bits.

    Args:
        party: this party.
        x: any shape.
        tables: ``[2^bits, k]`` integers.
        shift: bits below the place.
        bits: width of the place.

    Returns:
        ``[*x.shape, k]``.
    """
    item = party.take("unit", shape=tuple(x.shape), shift=shift, bits=bits)
    masked = (x + torch.as_tensor(item["r"])).contiguous().numpy()
    width = shift + bits
    kind = np.min_scalar_type(2**width - 1).type
    received = yield masked.astype(kind)
    last = (1 << bits) - 1
    places = torch.as_tensor((opened_sum(received) >> kind(shift)).astype(np.int64)) & last
    unit = torch.as_tensor(item["unit"]).reshape(-1, 1 << bits)
    entries = unit.new_empty((len(unit), tables.shape[1]))
    order = torch.arange(1 << bits)
    step = max(1, _CHUNK >> bits)
    for start in range(0, len(unit), step):
        part = places.reshape(-1)[start : start + step]
        turned = (part[:, None] - order) & last
        entries[start : start + step] = unit[start : start + step].gather(1, turned) @ tables
    return entries.reshape(*x.shape, tables.shape[1])


class Parabolas(NamedTuple):
    """A function as one parabola per entry of a table: A + B t + C t^2, where t = x - knot.

    Places are rounded down or up, so entry i is used from one step below its knot to one step above. There,
    interpolation at the Chebyshev points errs by step^3 / 24 times the third derivative.
    """

    tables: Tensor
    """``[2^bits, 4]``: A, B, C, knot."""
    shift: int
    bits: int
    scale: int
    """Fractional bits of the result."""


def parabolas(function: RealFunction, knots: np.ndarray, shift: int, scale: int) -> Parabolas:
    """The table of a function.

    Args:
        function: on arrays of float64.
        knots: ``[2^bits]``, the argument of every entry; ``2^(shift - scale)`` apart.
        shift: bits of the argument below a place.
        scale: fractional bits of the argument.
    """
    c_bits = max(4, min(10, 53 - 2 * scale))
    distance = 2.0 ** (shift - scale) * 3**0.5 / 2
    below, at, above = (function(knots + move) for move in (-distance, 0.0, distance))
    columns = [
        at * 2.0 ** (c_bits + 2 * scale),
        (above - below) / (2 * distance) * 2.0 ** (c_bits + scale),
        (above + below - 2 * at) / (2 * distance**2) * 2.0**c_bits,
        knots * 2.0**scale,
    ]
    tables = torch.as_tensor(np.round(np.stack(columns, axis=1)).astype(np.int64))
    return Parabolas(tables, shift, len(knots).bit_length() - 1, c_bits + 2 * scale)


def on_parabolas(party: Party, x: Tensor, table: Parabolas) -> Rounds[Tensor]:
    """A + (B + C t) t: three rounds."""
    entries = yield from look_up(party, x, table.tables, table.shift, table.bits)
    a, b, c, knot = entries.unbind(-1)
    t = x - knot
    inner = b + (yield from product(party, "mul", c, t))
    return a + (yield from product(party, "mul", inner, t))


def signed_places(bits: int) -> np.ndarray:
    """The numbers that places of two's complement stand for."""
    half = 1 << (bits - 1)
    return ((np.arange(2 * half) ^ half) - half).astype(np.float64)


class Normalized(NamedTuple):
    """x = m 2^e with m in [1, 2), both secret."""

    mantissa: Tensor
    """m with `MANTISSA_BITS` fractional bits; 0 where x is below the range."""
    exponent: Tensor
    """``[..., n]``: one-hot vector of e over the exponents of the range; -1 in it marks a negative x."""
    nonzero: np.ndarray
    """Bits, shared by XOR: whether the magnitude of x reaches the range."""
    ends: np.ndarray
    """``[..., ends]``: bits of x >= end, for other thresholds."""


MANTISSA_BITS = 24


def normalize(
    party: Party, x: Tensor, first: int, last: int, signed: bool, ends: Sequence[int] = ()
) -> Rounds[Normalized]:
    """Write integers from 2^first to 2^(last + 1) as a mantissa and a one-hot exponent: 5 rounds.

    Args:
        party: this party.
        x: any shape; values outside the range get a mantissa of 0 below it, and are undefined above it.
        first: lowest exponent.
        last: highest exponent.
        signed: whether x may be negative; the mantissa is that of its magnitude.
        ends: other thresholds to compare x with.
    """
    exponents = range(first, last + 1)
    thresholds = [1 << e for e in exponents]
    if signed:
        thresholds += [1 - (1 << e) for e in exponents]  # x >= 1 - 2^e is not (-x >= 2^e)
    every = yield from at_least(party, x, [*thresholds, *ends])
    bits = every[..., : len(thresholds)]
    n = len(exponents)
    if signed and party.lead:
        bits[..., n:] ^= 1
    parts, flags = yield from select_with_bits(party, bits, x[..., None])
    weights = torch.tensor([1 << (last - e) for e in exponents])

    def one_hot(steps: Tensor) -> Tensor:
        return steps - torch.nn.functional.pad(steps[..., 1:], (0, 1))

    scaled = (one_hot(parts[..., :n]) * weights).sum(-1)
    exponent = one_hot(flags[..., :n])
    if signed:
        scaled = scaled - (one_hot(parts[..., n:]) * weights).sum(-1)
        exponent = exponent - one_hot(flags[..., n:])
    # scaled is |x| 2^(last - e): a mantissa with `last` fractional bits.
    mantissa = yield from truncate(party, scaled, last - MANTISSA_BITS)
    nonzero = bits[..., 0] ^ bits[..., n] if signed else bits[..., 0]
    return Normalized(mantissa, exponent, nonzero, every[..., len(thresholds) :])


def of_mantissa(party: Party, mantissa: Tensor, function: RealFunction) -> Rounds[Tensor]:
    """A function of m in [1, 2) with `MANTISSA_BITS` fractional bits: relative error 2^-16, 4 rounds."""
    half = 32
    places = np.arange(2 * half)  # places half to 2 half, and the last is stored at 0
    knots = np.where(places < half, 2.0, places / half)
    table = parabolas(function, knots, MANTISSA_BITS - 5, MANTISSA_BITS)
    value = yield from on_parabolas(party, mantissa, table)
    return (yield from truncate(party, value, table.scale - MANTISSA_BITS))
