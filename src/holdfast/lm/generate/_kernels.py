"""Compiled products of a matrix with a few rows, about as fast as one thread reads memory.

A core fetches ahead along every stream that it sees: distant rows of the weights, read at the same time,
come up to twice as fast as one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic


def _widened_number(typing_context: Any, number: Any) -> Any:
    """A float32 as it is; a uint16 as the bfloat16 number of its bits, the upper half of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.float32:
            return arguments[0]
        word = ir.IntType(32)
        bits = builder.shl(builder.zext(arguments[0], word), ir.Constant(word, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(number), generate


_wide: Any = intrinsic(_widened_number)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def matrix_vector(weight: Any, x: Any, out: Any) -> None:
    """Write weight x to out, added in float32.

    Args:
        weight: [N, D] float32, or the bits of bfloat16 as uint16; N is at least 4.
        x: [D] float32.
        out: [N] float32.
    """
    quarter = -(-len(weight) // 4)
    last = len(weight) - quarter
    second, third = min(quarter, last), min(2 * quarter, last)
    for row in range(quarter):
        a = b = c = d = np.float32(0)
        for column in range(len(x)):
            a += _wide(weight[row, column]) * x[column]
            b += _wide(weight[second + row, column]) * x[column]
            c += _wide(weight[third + row, column]) * x[column]
            d += _wide(weight[last + row, column]) * x[column]
        out[row], out[second + row], out[third + row], out[last + row] = a, b, c, d


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def matrix_rows(weight: Any, x: Any, out: Any) -> None:
    """Write x weight^T to out, added in float32: two rows of the weights times four of x at a time.

    Args:
        weight: as of `matrix_vector`.
        x: [M, D] float32.
        out: [M, N] float32.
    """
    half, top = -(-len(weight) // 2), len(x) - 1
    for row in range(half):
        other = len(weight) - half + row
        for first in range(0, len(x), 4):
            # Behind the last row, it is computed again.
            second, third, fourth = min(first + 1, top), min(first + 2, top), min(first + 3, top)
            a = b = c = d = e = f = g = h = np.float32(0)
            for column in range(x.shape[1]):
                u, v = _wide(weight[row, column]), _wide(weight[other, column])
                a += u * x[first, column]
                b += u * x[second, column]
                c += u * x[third, column]
                d += u * x[fourth, column]
                e += v * x[first, column]
                f += v * x[second, column]
                g += v * x[third, column]
                h += v * x[fourth, column]
            for n, sums in enumerate(((a, e), (b, f), (c, g), (d, h))):
                out[min(first + n, top), row], out[min(first + n, top), other] = sums
