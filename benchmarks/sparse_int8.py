"""A prototype: 16x1 blocks with 8-bit values and a scale per row, beside float32 blocks and dynamic int8.

    python benchmarks/sparse_int8.py [--samples N]

Whole GRU and LSTM layers with 90 % zeros in blocks, in one thread. The prototype has the package's loops
with another load of values: 16 codes become 16 float32 numbers, sums stay float32, and each row is
multiplied by its scale at the end. The package does not have this layout. Writes
`benchmarks/results/sparse_int8.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from holdfast import sparse
from holdfast.sparse import _kernels
from holdfast.sparse.benchmark import quantized
from holdfast.sparse.matrices import BLOCK, SparseMatrix
from measuring import compared, limited, machine
from sparse_kernels import STEPS, WIDTHS, layer, measure

RESULT = Path(__file__).resolve().parent / "results" / "sparse_int8.json"
CASES = [("GRU", width) for width in WIDTHS] + [("LSTM", width) for width in (512, 1024)]
LANES = _kernels.LANES


def _load_codes(typing_context: Any, array: Any, place: Any) -> Any:
    """Codes place to place + 16 of a flat int8 array, as float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        codes = ir.VectorType(ir.IntType(8), LANES)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), codes.as_pointer())
        loaded = builder.load(address)
        loaded.align = 1
        return builder.sitofp(loaded, _kernels._VECTOR)

    return _kernels._lanes(array, types.int64), generate


def rebound(kernel: Any, **names: Any) -> Any:
    """A kernel of the package that calls other functions by some of its names."""
    function = kernel.py_func
    return njit(nogil=True)(FunctionType(function.__code__, {**function.__globals__, **names}))


@njit(nogil=True)
def _no_rows(
    values: Any, indices: Any, starts: Any, x: Any, out: Any, first: int, last: int
) -> None:
    """Compressed rows are not part of the prototype."""


_load = intrinsic(_load_codes)
_products = rebound(
    _kernels.multiply,
    blocks_by_vector=rebound(_kernels.blocks_by_vector, _load=_load),
    blocks_by_tile=rebound(_kernels.blocks_by_tile, _load=_load),
    rows_by_vector=_no_rows,
    rows_by_tile=_no_rows,
)


@njit(nogil=True)
def _multiply(
    values: Any, indices: Any, starts: Any, by_rows: bool, x: Any, out: Any, first: int, last: int
) -> None:
    """`_kernels.multiply` for (codes, scales)."""
    codes, scales = values
    _products(codes, indices, starts, by_rows, x, out, first, last)
    for vector in range(x.shape[0]):
        for row in range(first * LANES, last * LANES):
            out[vector, row] *= scales[row]


_recurrent = rebound(_kernels.recurrent, multiply=_multiply)


def codes_of(matrix: SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    """int8 [blocks * 16] and the scale of each row, of a matrix of 16x1 blocks."""
    lengths = np.diff(matrix.starts.astype(np.int64))
    lines = np.repeat(np.arange(len(lengths)), lengths)
    largest = np.zeros((len(lengths), BLOCK), np.float32)
    np.maximum.at(largest, lines, np.abs(matrix.values))
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(matrix.values / scales[lines]).astype(np.int8).ravel(), scales.ravel()


def prototype(packed: Any, x: torch.Tensor) -> tuple[Callable[[], np.ndarray], int]:
    """One call of a layer of one direction, [rows, width], and the bytes of its weights."""
    steps, batch, width = x.shape
    outer, inner = packed.weight_ih_l0.matrix, packed.weight_hh_l0.matrix
    codes = codes_of(outer), codes_of(inner)
    biases = packed.bias_ih_l0.numpy(), packed.bias_hh_l0.numpy()
    rows = np.ascontiguousarray(x.reshape(-1, width).numpy())
    sizes = np.full(steps, batch)
    mode, lines = getattr(_kernels, packed.mode), len(outer.starts) - 1

    def call() -> np.ndarray:
        inputs = np.empty((len(rows), lines * BLOCK), np.float32)
        _multiply(codes[0], outer.indices, outer.starts, False, rows, inputs, 0, lines)
        inputs = inputs[:, : outer.shape[0]] + biases[0]
        hidden, cell = np.zeros((2, batch, width), np.float32)
        out = np.empty((len(rows), width), np.float32)
        weights = (codes[1], inner.indices, inner.starts, False)
        _recurrent(mode, *weights, biases[1], inputs, sizes, False, hidden, cell, out, 0, 0, batch)
        return out

    stored = sum(c.nbytes + s.nbytes for c, s in codes)
    return call, stored + sum(m.indices.nbytes + m.starts.nbytes for m in (outer, inner))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    host = machine()
    torch.set_num_threads(1)
    comparisons, limits, figures = [], [], {}
    for kind, width in CASES:
        dense = layer(kind, width, 0.9)
        packed, int8 = sparse.pack(dense, "bsr16x1")[0], quantized(dense)
        for batch in (1, 16):
            x = torch.randn(STEPS, batch, width)
            ours, nbytes = prototype(packed, x)
            place = f"{kind} {width}, batch {batch}"
            with torch.no_grad():
                right = dense(x)[0]
                reach = float(right.abs().max())
                errors = {
                    "prototype": float(
                        (torch.from_numpy(ours()).view_as(right) - right).abs().max()
                    ),
                    "torch dynamic int8": float((int8(x)[0] - right).abs().max()),
                }
                calls: dict[str, Callable[[], object]] = {"prototype": ours}
                calls |= {
                    "float32 blocks": partial(packed, x),
                    "torch dynamic int8": partial(int8, x),
                }
                times = measure(calls, options.samples)
            figures[place] = times
            comparisons += [
                compared(place, times["prototype"]["cpu_s"], peer, times[peer]["cpu_s"])
                for peer in ("float32 blocks", "torch dynamic int8")
            ]
            print(place, [(row["peer"], row["ratio"]) for row in comparisons[-2:]], flush=True)
            if batch == 1:
                limits += [
                    limited(f"{place}: largest error of an output, {name}", error / reach, "")
                    for name, error in errors.items()
                ]
                blocks = sum(
                    m.nbytes for m in (packed.weight_ih_l0.matrix, packed.weight_hh_l0.matrix)
                )
                what = f"{place}: bytes, as a share of float32 blocks"
                limits.append(limited(what, nbytes / blocks, ""))
    result = {
        "title": "Sparse int8: a prototype",
        "script": "benchmarks/sparse_int8.py",
        "input": f"GRU and LSTM layers, 90% zeros in 16x1 blocks, {STEPS} steps: values in 8 bits with a "
        "scale per row",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {"layers": figures},
        "machine": host,
        "versions": {n: version(n) for n in ("holdfast", "torch", "numba", "numpy")},
        "notes": [
            f"Smallest processor time of {options.samples} samples in turn, one thread; load after: "
            f"{os.getloadavg()[0]:.1f}. holdfast: the prototype, which is not part of the package. It is "
            "called without the module around it, which costs float32 blocks some 40 us per call.",
            "Errors are relative to the largest output of the float32 layer. Weights are rounded once, "
            "activations stay float32; torch's dynamic int8 rounds both.",
        ],
    }
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {options.result}")


if __name__ == "__main__":
    main()
