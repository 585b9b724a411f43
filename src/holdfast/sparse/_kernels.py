"""Compiled products of packed matrices with dense vectors, on rows first to last of the result.

Vectors of 16 float32 numbers are a type of their own (`lanes`), so that sums stay in registers: Numba has
no arrays there, and LLVM cannot move sums out of memory that might overlap the inputs. On processors with
narrower registers LLVM splits the operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from holdfast.kernels import kernel

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
_compiled: Any = kernel(nogil=True)


@_compiled
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


@_compiled
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


@_compiled
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


@_compiled
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


@_compiled
def multiply(
    values: Any, indices: Any, starts: Any, by_rows: bool, x: Any, out: Any, first: int, last: int
) -> None:
    """A packed matrix times each of several vectors, in tiles where there are enough of them.

    Args:
        values: [entries], or [blocks * 16].
        indices: the column of each entry.
        starts: the first entry of each line: of each row (csr), or row of blocks (bsr16x1).
        by_rows: whether the layout is csr.
        x: [vectors, columns].
        out: [vectors, lines, times 16 for blocks].
        first: first line.
        last: line after the last.
    """
    vectors, columns = x.shape
    tile = LANES if by_rows else TILE
    lines = len(starts) - 1
    place = 0
    while place < vectors:
        count = min(tile, vectors - place)
        if count <= 2:  # a tile takes two to three times as long as a vector, however full
            if by_rows:
                rows_by_vector(values, indices, starts, x[place], out[place], first, last)
            else:
                blocks_by_vector(values, indices, starts, x[place], out[place], first, last)
            place += 1
            continue
        together = np.zeros(columns * tile, np.float32)  # the numbers of a column side by side
        for vector in range(count):
            for column in range(columns):
                together[column * tile + vector] = x[place + vector, column]
        result = np.empty(tile * out.shape[1], np.float32)
        if by_rows:
            rows_by_tile(values, indices, starts, together, result, first, last)
            for vector in range(count):
                for row in range(first, last):
                    out[place + vector, row] = result[row * tile + vector]
        else:
            blocks_by_tile(values, indices, starts, together, result, first, last)
            low, high, width = first * LANES, last * LANES, lines * LANES
            for vector in range(count):
                for row in range(low, high):
                    out[place + vector, row] = result[vector * width + row]
        place += count


def _power_of_shifted(typing_context: Any, number: Any) -> Any:
    """2^n of a float32 number 1.5 * 2^23 + n, whose last bits are those of the integer n."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        exponent = builder.shl(builder.bitcast(arguments[0], word), ir.Constant(word, 23))
        return builder.bitcast(builder.add(exponent, ir.Constant(word, 127 << 23)), ir.FloatType())

    return types.float32(types.float32), generate


_two_to: Any = intrinsic(_power_of_shifted)
_SHIFT = np.float32(1.5 * 2**23)  # added to a number, it rounds it to an integer
_LOG2_E = np.float32(math.log2(math.e))
# The Taylor series of 2^f for |f| <= 1/2, to 5e-9.
_P1, _P2, _P3, _P4, _P5, _P6, _P7 = (
    np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 8)
)


@_compiled
def _sigmoids(x: Any, first: int, last: int, slope: Any, height: Any, low: Any) -> None:
    """Replace numbers by height / (1 + exp(-slope x)) + low; tanh has 2, 2, -1.

    A loop over one array without calls, which LLVM turns into vector operations.
    """
    one, most = np.float32(1), np.float32(126)
    for k in range(first, last):
        t = -slope * x[k] * _LOG2_E
        t = most if t > most else -most if t < -most else t  # NaN stays
        shifted = t + _SHIFT
        f = t - (shifted - _SHIFT)
        series = _P4 + f * (_P5 + f * (_P6 + f * _P7))
        series = one + f * (_P1 + f * (_P2 + f * (_P3 + f * series)))
        x[k] = height / (one + series * _two_to(shifted)) + low


TANH, RELU, GRU, LSTM = range(4)


@_compiled
def recurrent(
    mode: int,
    values: Any,
    indices: Any,
    starts: Any,
    by_rows: bool,
    bias: Any,
    inputs: Any,
    sizes: Any,
    backward: bool,
    hidden: Any,
    cell: Any,
    out: Any,
    column: int,
    first: int,
    last: int,
) -> None:
    """All steps of one direction of a recurrent layer, for sequences first to last of a batch.

    Step t has sizes[t] sequences, as in a `PackedSequence`: they lie in the rows of `inputs` and `out` one
    step after the other. A sequence that has not begun, or has ended, keeps its state.

    Args:
        mode: TANH, RELU, GRU or LSTM.
        values: the packed recurrent weights, as are `indices`, `starts` and `by_rows`: see `multiply`.
        indices: see `multiply`.
        starts: see `multiply`.
        by_rows: see `multiply`.
        bias: [gates * width], added to the product with the state.
        inputs: [rows, gates * width], the products of the inputs with their weights and bias.
        sizes: [steps], descending.
        backward: whether the last step comes first.
        hidden: [batch, width], the first states; they become the last ones.
        cell: [batch, width], of an LSTM.
        out: [rows, directions * width].
        column: first column of this direction in `out`.
        first: first sequence.
        last: sequence after the last.
    """
    width, steps, lines = hidden.shape[1], len(sizes), len(starts) - 1
    product = np.empty((last - first, lines if by_rows else lines * LANES), np.float32)
    total = np.empty(len(bias), np.float32)
    zero, one, two = np.float32(0), np.float32(1), np.float32(2)
    row = inputs.shape[0] if backward else 0
    for t in range(steps):
        size = sizes[steps - 1 - t] if backward else sizes[t]
        if backward:
            row -= size
        count = min(size, last) - first
        if count > 0:
            multiply(
                values, indices, starts, by_rows, hidden[first : first + count], product, 0, lines
            )
        for n in range(count):
            given, own, to = inputs[row + first + n], product[n], out[row + first + n]
            h, c = hidden[first + n], cell[first + n]
            # The new part of a GRU (from `plain` on) takes the product with the state only after its gate.
            plain = 2 * width if mode == GRU else len(bias)
            for k in range(plain):
                total[k] = given[k] + (own[k] + bias[k])
            if mode == GRU:
                _sigmoids(total, 0, plain, one, one, zero)  # reset, update
                for k in range(width):
                    j = k + plain
                    total[j] = given[j] + total[k] * (own[j] + bias[j])
                _sigmoids(total, plain, 3 * width, two, two, -one)
                for k in range(width):
                    fresh = total[k + plain]
                    h[k] = fresh + total[k + width] * (h[k] - fresh)
            elif mode == LSTM:
                _sigmoids(total, 0, 2 * width, one, one, zero)  # input, forget
                _sigmoids(total, 2 * width, 3 * width, two, two, -one)  # cell
                _sigmoids(total, 3 * width, 4 * width, one, one, zero)  # output
                for k in range(width):
                    c[k] = total[k + width] * c[k] + total[k] * total[k + 2 * width]
                    total[k] = c[k]
                _sigmoids(total, 0, width, two, two, -one)
                for k in range(width):
                    h[k] = total[k + 3 * width] * total[k]
            else:
                if mode == TANH:
                    _sigmoids(total, 0, width, two, two, -one)
                for k in range(width):
                    h[k] = zero if mode == RELU and total[k] < zero else total[k]
            for k in range(width):
                to[column + k] = h[k]
        if not backward:
            row += size
