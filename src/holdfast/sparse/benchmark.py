"""Products with packed matrices, measured beside the dense and sparse products of torch and scipy."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from timeit import Timer
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.numbers import percent
from holdfast.report.figures import bars
from holdfast.sparse.matrices import BLOCK, LAYOUTS, Layout, SparseMatrix

PEERS = {
    "dense_fp32": "torch dense float32",
    "dense_bf16": "torch dense bfloat16",
    "dynamic_int8": "torch dynamic int8",
    "torch_csr": "torch CSR",
    "scipy_csr": "scipy CSR",
}
_SAMPLE_S = 2e-3  # calls are repeated to fill a sample: clocks and caches would blur a shorter one
_TOLERANCE = {
    "dense_bf16": 3e-2,
    "dynamic_int8": 5e-2,
}  # error relative to the largest output; 1e-5 for the others


def fastest(contenders: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Seconds per call of the fastest sample: whatever else the machine does can only add time.

    The contenders take turns, so that a busy moment meets all of them.
    """
    timers = {name: Timer(call) for name, call in contenders.items()}
    calls = {}
    for name, timer in timers.items():
        timer.timeit(1)  # compile, allocate
        calls[name] = max(1, round(_SAMPLE_S / max(timer.timeit(1), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(calls[name]) / calls[name])
    return {name: min(each) for name, each in samples.items()}


def contenders(
    dense: np.ndarray, layout: Layout, batch: int
) -> tuple[dict[str, Callable[[], Any]], SparseMatrix]:
    """The product of a matrix with a batch of vectors, as each library computes it best.

    Peers get their operands in the order and type that suit them, ours [batch, columns] as layers do.
    Every output is compared with float64.

    Args:
        dense: float32 [rows, columns].
        layout: of the packed matrix.
        batch: how many vectors.

    Raises:
        ArithmeticError: if an output is wrong.
    """
    import scipy.sparse
    import torch

    matrix = SparseMatrix.pack(dense, layout)
    x = np.random.default_rng(0).standard_normal((batch, dense.shape[1]), dtype=np.float32)
    columns = np.ascontiguousarray(x.T)  # [columns, batch]
    threads = torch.get_num_threads()
    w, given, given_columns = map(torch.from_numpy, (dense, x, columns))
    w16, given16 = w.bfloat16(), given.bfloat16()
    scipy_csr = scipy.sparse.csr_array(dense)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that CSR is in beta
        torch_csr = w.to_sparse_csr()
    linear = torch.nn.Linear(dense.shape[1], dense.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(w, requires_grad=False)
    int8 = quantized(linear)
    calls: dict[str, Callable[[], Any]] = {
        layout: lambda: matrix.multiply(x, threads),
        "dense_fp32": lambda: torch.nn.functional.linear(given, w),
        "dense_bf16": lambda: torch.nn.functional.linear(given16, w16),
        "dynamic_int8": lambda: int8(given),
        "torch_csr": lambda: (torch_csr @ given_columns).t(),
        "scipy_csr": lambda: (scipy_csr @ columns).T,
    }
    oracle = x.astype(np.float64) @ dense.T.astype(np.float64)
    for name, call in calls.items():
        output = torch.as_tensor(call()).float().numpy()
        error = float(np.abs(output - oracle).max() / max(np.abs(oracle).max(), 1e-30))
        if not error <= _TOLERANCE.get(name, 1e-5):
            raise ArithmeticError(f"wrong product by {name}: relative error {error:.1e}")
    return calls, matrix


def quantized(module: Any) -> Any:
    """A module whose linear and recurrent layers are torch's dynamic int8 ones: no retraining either."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the names will move
        # Only the modules inside a module are replaced.
        return torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(module))


def random_matrix(rows: int, columns: int, sparsity: float, layout: Layout) -> np.ndarray:
    """A float32 matrix with a share of zeros: single ones, or whole 16x1 blocks."""
    generator = np.random.default_rng(0)
    dense = generator.standard_normal((rows, columns), dtype=np.float32)
    height = 1 if layout == "csr" else BLOCK
    zeros = generator.random((-(-rows // height), columns)) < sparsity
    dense[np.repeat(zeros, height, axis=0)[:rows]] = 0
    return dense


@dataclass(frozen=True)
class Bench(Answer):
    """How fast packed products are on this machine, and against what.

    Args:
        shape: rows and columns of the matrix.
        sparsity: share of zeros.
        threads: of torch and of the packed products.
        load: load average before the measurement.
        rows: one per batch and layout: seconds of the packed product and of each peer, the best peer,
            its time divided by ours.
    """

    shape: tuple[int, int]
    sparsity: float
    threads: int
    load: float
    rows: list[dict[str, Any]]

    title = "Sparse kernels"

    def values(self) -> Sequence[Value]:
        """The ratios to the best peer."""
        return [
            Value(
                f"ratio_{row['layout']}_batch_{row['batch']}",
                row["ratio"],
                better="higher",
                how=f"time of {row['best_peer']} / time of {row['layout']}",
            )
            for row in self.rows
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The matrix and the machine."""
        rows, columns = self.shape
        return [
            ("matrix", f"{rows:,} x {columns:,}, {percent(self.sparsity)} zeros, random"),
            ("threads", str(self.threads)),
            ("load before", f"{self.load:.2f}"),
        ]

    def sections(self) -> Sequence[Section]:
        """Every batch and layout, won or lost."""
        best = max(self.rows, key=lambda row: row["ratio"])
        lost = sum(row["ratio"] < 1 for row in self.rows)
        sentence = (
            f"At batch {best['batch']} {best['layout']} is {best['ratio']:.2f} times as fast as the best "
            f"peer ({PEERS[best['best_peer']]}); {lost} of {len(self.rows)} comparisons are lost."
        )
        milliseconds = {
            name: ColumnFormat(label, "ms", digits=3, detail=name in ("torch_csr", "scipy_csr"))
            for name, label in (("seconds", "Packed"), *PEERS.items())
        }
        columns = {
            "batch": ColumnFormat("Batch"),
            "layout": ColumnFormat("Layout"),
            **milliseconds,
            "best_peer": ColumnFormat("Best peer"),
            "ratio": ColumnFormat("Peer / packed", digits=2),
            "gflops": ColumnFormat("Useful", "GFLOP/s", digits=1, detail=True),
            "gbytes_per_s": ColumnFormat("Weights read", "GB/s", digits=1, detail=True),
            "chosen": ColumnFormat("Chosen"),
        }
        shown = [
            {k: v * 1e3 if k in milliseconds else v for k, v in row.items()} for row in self.rows
        ]
        table = Table(pa.Table.from_pylist(shown), columns, "Times are of the fastest sample.")
        how = How(
            "ratio = time of the best peer / time of the packed product",
            source="Every output is compared with float64 before it is timed.",
            notes=(
                "Peers get their operands in the order and type that suit them best. 'Chosen' is what "
                "`pack` would store for this batch: the layout, or dense float32 where that is faster."
            ),
        )
        # The layouts, and what an unpruned model could use instead.
        speeds = {
            f"batch {row['batch']}, {name}": row["dense_fp32"] / row[seconds]
            for row in self.rows
            for name, seconds in (
                (row["layout"], "seconds"),
                ("dense bfloat16", "dense_bf16"),
                ("dynamic int8", "dynamic_int8"),
            )
        }
        speed_ups = [{"product": name, "speed": speed} for name, speed in speeds.items()]
        figure = bars(speed_ups, "product", "speed", "Speed (torch float32 = 1)")
        return [Section("kernels", "Is sparse faster here?", sentence, [figure], [table], how)]


def bench(
    rows: int,
    columns: int,
    sparsity: float = 0.9,
    batches: Sequence[int] = (1, 16),
    repeats: int = 7,
) -> Bench:
    """Measure packed products of a random matrix beside torch and scipy.

    Args:
        rows: outputs.
        columns: inputs.
        sparsity: share of zeros, of single weights or of blocks.
        batches: numbers of vectors.
        repeats: samples of each contender, in turn.
    """
    import torch

    load = os.getloadavg()[0]
    table = []
    for layout in LAYOUTS:
        dense = random_matrix(rows, columns, sparsity, layout)
        for batch in batches:
            calls, matrix = contenders(dense, layout, batch)
            seconds = fastest(calls, repeats)
            ours = seconds.pop(layout)
            best = min(seconds, key=seconds.__getitem__)
            table.append(
                {
                    "batch": batch,
                    "layout": layout,
                    "seconds": ours,
                    **seconds,
                    "best_peer": best,
                    "ratio": seconds[best] / ours,
                    "stored_bytes": matrix.nbytes,
                    "dense_bytes": dense.nbytes,
                    "gflops": 2e-9 * matrix.nonzeros * batch / ours,
                    "gbytes_per_s": 1e-9 * matrix.nbytes / ours,
                    "chosen": layout if ours < seconds["dense_fp32"] else "dense",
                }
            )
    table.sort(key=lambda row: batches.index(row["batch"]))
    return Bench((rows, columns), sparsity, torch.get_num_threads(), round(load, 2), table)
