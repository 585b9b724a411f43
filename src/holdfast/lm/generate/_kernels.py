"""The compiled product of a large matrix with one vector, as fast as one thread reads memory."""

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
    rows, width = weight.shape
    quarter = -(-rows // 4)
    # A core fetches ahead along every stream that it sees: four distant rows at a time read memory about
    # twice as fast as one after the other.
    second, third, last = (
        min(quarter, rows - quarter),
        min(2 * quarter, rows - quarter),
        rows - quarter,
    )
    for row in range(quarter):
        a = b = c = d = np.float32(0)
        for column in range(width):
            value = x[column]
            a += _wide(weight[row, column]) * value
            b += _wide(weight[second + row, column]) * value
            c += _wide(weight[third + row, column]) * value
            d += _wide(weight[last + row, column]) * value
        out[row], out[second + row], out[third + row], out[last + row] = a, b, c, d
