"""Compiled products of packed matrices with dense vectors, on rows first to last of the result.

Vectors of 16 float32 numbers are a type of their own (`lanes`), so that sums stay in registers: Numba has
no arrays there, and LLVM cannot move sums out of memory that might overlap the inputs. On processors with
narrower registers LLVM splits the operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16
# Vectors that `blocks_by_tile` multiplies together: as many sums as hide the latency of an addition.
TILE = 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_ALIGNMENT = 4  # arrays are aligned to their elements, not to vectors


class Lanes(types.Type):
    """Numba's type of 16 float32 numbers in a register."""


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_lanes = Lanes("lanes")


def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), _VECTOR.as_pointer())


def _load_lanes(typing_context: Any, array: Any, place: Any) -> Any:
    """Numbers place to place + 16 of a flat array; nothing is checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_address(context, builder, signature.args[0], *arguments))
        loaded.align = _ALIGNMENT
        return loaded

    return _lanes(array, types.int64), generate


def _store_lanes(typing_context: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write 16 numbers from a place of a flat array on; nothing is checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], address).align = _ALIGNMENT
        return context.get_dummy_value()

    return types.void(array, types.int64, _lanes), generate


def _same_in_all(typing_context: Any, number: Any) -> Any:
    """One number in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(empty, arguments[0], ir.Constant(word, 0))
        zeros = ir.Constant(ir.VectorType(word, LANES), [0] * LANES)
        return builder.shuffle_vector(first, empty, zeros)

    return _lanes(types.float32), generate


def _multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")
        return builder.call(function, arguments)

    return _lanes(_lanes, _lanes, _lanes), generate


_load: Any = intrinsic(_load_lanes)
_store: Any = intrinsic(_store_lanes)
_splat: Any = intrinsic(_same_in_all)
_fma: Any = intrinsic(_multiply_add)


@njit(nogil=True, cache=True)
def blocks_by_vector(
    values: Any, indices: Any, starts: Any, x: Any, out: Any, first: int, last: int
) -> None:
    """16x1 blocks times one vector.

    Args:
        values: [blocks * 16], the numbers of a block side by side.
        indices: [blocks], the column of each block.
        starts: [block rows + 1], the first block of each block row.
        x: [columns].
        out: [block rows * 16].
        first: first block row.
        last: block row after the last.
    """
    zero, one = _splat(np.float32(0)), _splat(np.float32(1))
    for row in range(first, last):
        # Four sums: an addition takes four cycles, and two can start in each.
        a = b = c = d = zero
        k, end = np.int64(starts[row]), np.int64(starts[row + 1])
        while k + 4 <= end:
            a = _fma(_load(values, k * LANES), _splat(x[indices[k]]), a)
            b = _fma(_load(values, (k + 1) * LANES), _splat(x[indices[k + 1]]), b)
            c = _fma(_load(values, (k + 2) * LANES), _splat(x[indices[k + 2]]), c)
            d = _fma(_load(values, (k + 3) * LANES), _splat(x[indices[k + 3]]), d)
            k += 4
        while k < end:
            a = _fma(_load(values, k * LANES), _splat(x[indices[k]]), a)
            k += 1
        _store(out, row * LANES, _fma(one, _fma(one, a, b), _fma(one, c, d)))


@njit(nogil=True, cache=True)
def blocks_by_tile(
    values: Any, indices: Any, starts: Any, x: Any, out: Any, first: int, last: int
) -> None:
    """16x1 blocks times eight vectors: each block is loaded once.

    Args:
        values: [blocks * 16], the numbers of a block side by side.
        indices: [blocks], the column of each block.
        starts: [block rows + 1], the first block of each block row.
        x: [columns * 8], the eight numbers of a column side by side.
        out: [8 * block rows * 16], one result after the other.
        first: first block row.
        last: block row after the last.
    """
    zero = _splat(np.float32(0))
    rows = np.int64(len(starts) - 1) * LANES
    for row in range(first, last):
        s = (zero, zero, zero, zero, zero, zero, zero, zero)
        for k in range(np.int64(starts[row]), np.int64(starts[row + 1])):
            v = _load(values, k * LANES)
            c = np.int64(indices[k]) * TILE
            s = (
                _fma(v, _splat(x[c]), s[0]),
                _fma(v, _splat(x[c + 1]), s[1]),
                _fma(v, _splat(x[c + 2]), s[2]),
                _fma(v, _splat(x[c + 3]), s[3]),
                _fma(v, _splat(x[c + 4]), s[4]),
                _fma(v, _splat(x[c + 5]), s[5]),
                _fma(v, _splat(x[c + 6]), s[6]),
                _fma(v, _splat(x[c + 7]), s[7]),
            )
        for vector in range(TILE):
            _store(out, row * LANES + vector * rows, s[vector])


@njit(nogil=True, cache=True)
def rows_by_vector(
    values: Any, indices: Any, starts: Any, x: Any, out: Any, first: int, last: int
) -> None:
    """Compressed rows times one vector.

    Args:
        values: [non-zeros].
        indices: [non-zeros], the column of each.
        starts: [rows + 1], the first non-zero of each row.
        x: [columns].
        out: [rows].
        first: first row.
        last: row after the last.
    """
    for row in range(first, last):
        a = b = c = d = np.float32(0)
        k, end = np.int64(starts[row]), np.int64(starts[row + 1])
        while k + 4 <= end:
            a += values[k] * x[indices[k]]
            b += values[k + 1] * x[indices[k + 1]]
            c += values[k + 2] * x[indices[k + 2]]
            d += values[k + 3] * x[indices[k + 3]]
            k += 4
        while k < end:
            a += values[k] * x[indices[k]]
            k += 1
        out[row] = (a + b) + (c + d)


@njit(nogil=True, cache=True)
def rows_by_tile(
    values: Any, indices: Any, starts: Any, x: Any, out: Any, first: int, last: int
) -> None:
    """Compressed rows times 16 vectors.

    Args:
        values: [non-zeros].
        indices: [non-zeros], the column of each.
        starts: [rows + 1], the first non-zero of each row.
        x: [columns * 16], the 16 numbers of a column side by side.
        out: [rows * 16], the 16 results of a row side by side.
        first: first row.
        last: row after the last.
    """
    zero, one = _splat(np.float32(0)), _splat(np.float32(1))
    for row in range(first, last):
        a = b = c = d = zero
        k, end = np.int64(starts[row]), np.int64(starts[row + 1])
        while k + 4 <= end:
            a = _fma(_splat(values[k]), _load(x, np.int64(indices[k]) * LANES), a)
            b = _fma(_splat(values[k + 1]), _load(x, np.int64(indices[k + 1]) * LANES), b)
            c = _fma(_splat(values[k + 2]), _load(x, np.int64(indices[k + 2]) * LANES), c)
            d = _fma(_splat(values[k + 3]), _load(x, np.int64(indices[k + 3]) * LANES), d)
            k += 4
        while k < end:
            a = _fma(_splat(values[k]), _load(x, np.int64(indices[k]) * LANES), a)
            k += 1
        _store(out, row * LANES, _fma(one, _fma(one, a, b), _fma(one, c, d)))
