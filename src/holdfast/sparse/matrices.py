"""Packed matrices: compressed rows, or blocks of 16 rows by one column, with 16-bit column indices.

A matrix of R rows takes 6 n + 4 (R + 1) + 16 bytes as csr with n non-zeros, and as bsr16x1 with b blocks
66 b + 4 (ceil(R / 16) + 1) + 16 (values, indices, starts, shape); 2 n or 2 b more with over 65,536 columns.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.errors import InputError

Layout = Literal["csr", "bsr16x1"]
LAYOUTS: tuple[Layout, ...] = ("csr", "bsr16x1")
BLOCK = 16  # rows
PARTS = ("values", "indices", "starts", "shape")  # the arrays of a packed matrix in a file

_SMALL_INDEX = 1 << 16
_MOST_STORED = 1 << 32
# Steps of the inner loop (a millisecond; those of tiles count twice) that are worth a second thread.
_SPLIT = 3_000_000


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A float32 matrix of which only non-zeros, or blocks that hold one, are stored.

    Args:
        shape: rows and columns.
        values: float32 [non-zeros] as csr, [blocks, 16] as bsr16x1.
        indices: uint16, or uint32 with more than 65,536 columns: the column of each non-zero or block.
        starts: uint32 [rows + 1], of blocks [ceil(rows / 16) + 1]: the first entry of each row.
    """

    shape: tuple[int, int]
    values: np.ndarray
    indices: np.ndarray
    starts: np.ndarray

    @classmethod
    def pack(cls, dense: np.ndarray, layout: Layout) -> SparseMatrix:
        """Pack a matrix; its non-zeros are stored as they are.

        Args:
            dense: float32 [rows, columns].
            layout: "csr" or "bsr16x1".

        Raises:
            InputError: if it is not a float32 matrix, or has 2^32 entries to store or more.
        """
        if dense.ndim != 2 or dense.dtype != np.float32 or np.count_nonzero(dense) >= _MOST_STORED:
            raise InputError(
                "only float32 matrices can be packed",
                code="unsupported",
                found=f"{dense.dtype} {list(dense.shape)}",
                expected=f"float32 [rows, columns] with less than {_MOST_STORED:,} non-zeros",
                remedy="convert the model to float32 first: other types would be rounded",
            )
        rows, columns = dense.shape
        height = 1 if layout == "csr" else BLOCK
        padded = np.zeros((-(-rows // height) * height, columns), np.float32)
        padded[:rows] = dense
        blocks = padded.reshape(-1, height, columns)
        stored = (blocks != 0).any(axis=1)  # [rows or block rows, columns]
        values = blocks.transpose(0, 2, 1)[stored]  # [stored, height]
        if layout == "csr":
            values = values.ravel()
        starts = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
        index = np.uint16 if columns <= _SMALL_INDEX else np.uint32
        return cls(
            (rows, columns), values, np.nonzero(stored)[1].astype(index), starts.astype(np.uint32)
        )

    @property
    def layout(self) -> Layout:
        """How the matrix is stored."""
        return "csr" if self.values.ndim == 1 else "bsr16x1"

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """The arguments of the kernels: values, indices, starts, and whether the layout is csr."""
        return self.values.ravel(), self.indices, self.starts, self.values.ndim == 1

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, and of two 64-bit numbers for the shape."""
        return int(self.values.nbytes + self.indices.nbytes + self.starts.nbytes + 16)

    @property
    def nonzeros(self) -> int:
        """Non-zero weights; a block may store zeros too."""
        return int(np.count_nonzero(self.values))

    def dense(self) -> np.ndarray:
        """The whole matrix, float32 [rows, columns]."""
        rows, columns = self.shape
        lengths = self.starts[1:].astype(np.int64) - self.starts[:-1]
        lines = np.repeat(np.arange(len(lengths)), lengths)
        height = 1 if self.layout == "csr" else BLOCK
        blocks = np.zeros((len(lengths), columns, height), np.float32)
        blocks[lines, self.indices] = self.values.reshape(-1, height)
        return blocks.transpose(0, 2, 1).reshape(-1, columns)[:rows]

    def check(self, place: str) -> SparseMatrix:
        """Return the matrix if it is consistent: kernels read without bounds checks.

        Raises:
            InputError: if arrays have the wrong type or size, or point outside the matrix.
        """
        rows, columns = self.shape
        lines = rows if self.layout == "csr" else -(-rows // BLOCK)
        index = np.uint16 if columns <= _SMALL_INDEX else np.uint32
        stored = self.indices.size
        starts = self.starts.astype(np.int64).ravel()
        bounds = np.concatenate([[0], starts, [stored]])
        ascending = len(starts) > 0 and starts[0] == 0 and starts[-1] == stored
        for part, right, expected in (
            ("shape", rows >= 0 and columns >= 0, "rows and columns"),
            ("values", self.values.dtype == np.float32, "float32"),
            ("values", self.values.shape in ((stored,), (stored, BLOCK)), f"{stored} entries"),
            ("indices", self.indices.dtype == index, np.dtype(index).name),
            ("indices", self.indices.shape == (stored,), "one dimension"),
            ("indices", bool((self.indices < columns).all()), f"less than {columns}"),
            ("starts", self.starts.dtype == np.uint32, "uint32"),
            ("starts", self.starts.shape == (lines + 1,), f"{lines + 1} entries"),
            ("starts", ascending and bool((np.diff(bounds) >= 0).all()), f"from 0 to {stored}"),
        ):
            if not right:
                raise InputError(
                    "damaged packed matrix",
                    code="damaged",
                    place=f"{place}.{part}",
                    expected=expected,
                    remedy="pack the model again",
                )
        return self

    def multiply(self, x: np.ndarray, threads: int = 1) -> np.ndarray:
        """The product with each of several vectors.

        Args:
            x: float32 [vectors, columns].
            threads: threads for large products.

        Returns:
            float32 [vectors, rows].

        Raises:
            InputError: if the vectors have another length.
        """
        from holdfast.sparse import _kernels

        if x.shape[1] != self.shape[1]:  # the kernels would read beyond them
            raise InputError(
                "vectors of another length than the rows of the matrix",
                code="conflict",
                found=str(x.shape[1]),
                expected=str(self.shape[1]),
            )

        height = 1 if self.layout == "csr" else BLOCK
        lines = len(self.starts) - 1
        out = np.empty((len(x), lines * height), np.float32)
        x = np.ascontiguousarray(x)

        def multiply_lines(low: int, high: int) -> None:
            _kernels.multiply(*self.arrays, x, out, low, high)

        # A tile takes two to three times as long as a vector.
        steps = len(self.indices) * min(len(x), 2 * -(-len(x) // self._tile))
        # Each thread takes lines with its share of the entries.
        shares = [] if steps < _SPLIT else np.linspace(0, len(self.indices), threads + 1)[1:-1]
        side_by_side(multiply_lines, [0, *np.searchsorted(self.starts, shares).tolist(), lines])
        return out[:, : self.shape[0]]

    def cuts(self, vectors: int, steps: int, threads: int) -> list[int]:
        """Where threads divide a batch of vectors that are multiplied at each of many steps."""
        tile = self._tile
        tiles = -(-vectors // tile)
        shares = min(threads, tiles)
        if shares < 2 or len(self.indices) * min(vectors, 2 * tiles) * steps < _SPLIT:
            return [0, vectors]
        return [min(vectors, tile * (tiles * share // shares)) for share in range(shares + 1)]

    @property
    def _tile(self) -> int:
        """Vectors that are multiplied together."""
        from holdfast.sparse import _kernels

        return _kernels.LANES if self.values.ndim == 1 else _kernels.TILE


def side_by_side(call: Callable[[int, int], None], cuts: Sequence[int]) -> None:
    """Call a function for each range between two cuts, each in a thread of its own."""
    if len(cuts) == 2:
        call(*cuts)
    else:
        others = _pool(os.getpid(), len(cuts) - 1).map(call, cuts[1:-1], cuts[2:])
        call(cuts[0], cuts[1])
        list(others)  # wait, and raise what they raised


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's; a forked process has none of its parent's."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="sparse")
