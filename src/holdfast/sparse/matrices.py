"""Packed matrices: compressed rows, or blocks of 16 rows by one column, with 16-bit column indices.

A matrix of R rows takes 6 n + 4 (R + 1) + 16 bytes as csr with n non-zeros, and as bsr16x1 with b blocks
66 b + 4 (ceil(R / 16) + 1) + 16 (values, indices, starts, shape); 2 n or 2 b more with over 65,536 columns.
"""

from __future__ import annotations

import functools
import os
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

        by_rows = self.layout == "csr"
        if by_rows:
            tile, single, tiled = _kernels.LANES, _kernels.rows_by_vector, _kernels.rows_by_tile
        else:
            tile, single, tiled = _kernels.TILE, _kernels.blocks_by_vector, _kernels.blocks_by_tile
        arrays = (self.values.ravel(), self.indices, self.starts)
        vectors, columns = x.shape
        lines = len(self.starts) - 1
        # Rows and vectors are padded to whole blocks and tiles.
        out = np.empty((-(-vectors // tile) * tile, lines * (1 if by_rows else BLOCK)), np.float32)
        # First vector, how many, and the tile's numbers, those of a column side by side.
        tiles: list[tuple[int, int, np.ndarray]] = []
        for first in range(0, vectors, tile):
            count = min(tile, vectors - first)
            if count <= 2:  # a tile takes two to three times as long as a vector, however full
                tiles += [(n, 1, np.ascontiguousarray(x[n])) for n in range(first, vectors)]
            else:
                together = np.zeros((columns, tile), np.float32)
                together[:, :count] = x[first : first + count].T
                tiles.append((first, count, together.ravel()))

        def multiply_lines(low: int, high: int) -> None:
            for first, count, numbers in tiles:
                if count == 1:
                    single(*arrays, numbers, out[first], low, high)
                elif by_rows:
                    result = np.empty((lines, tile), np.float32)
                    tiled(*arrays, numbers, result.ravel(), low, high)
                    out[first : first + tile, low:high] = result[low:high].T
                else:
                    tiled(*arrays, numbers, out[first : first + tile].ravel(), low, high)

        steps = len(self.indices) * sum(min(count, 2) for _, count, _ in tiles)
        if threads == 1 or steps < _SPLIT:
            multiply_lines(0, lines)
        else:
            # Each thread takes lines with its share of the entries.
            shares = np.linspace(0, len(self.indices), threads + 1)[1:-1]
            cuts = [0, *np.searchsorted(self.starts, shares).tolist(), lines]
            others = _pool(os.getpid(), threads).map(multiply_lines, cuts[1:], cuts[2:])
            multiply_lines(0, cuts[1])
            list(others)  # wait, and raise what they raised
        return out[:vectors, : self.shape[0]]


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's; a forked process has none of its parent's."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="sparse")
