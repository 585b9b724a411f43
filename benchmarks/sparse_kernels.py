"""Products of packed sparse matrices beside the dense and sparse products of torch and scipy.

    python benchmarks/sparse_kernels.py

Multiplies a matrix of 7,680 x 2,560 (the recurrent weights of a GRU of width 2,560) with 90 % zeros,
single weights and 16x1 blocks, by 1 and 16 vectors; every output is compared with float64. Then whole GRU
and LSTM layers of several widths, and the memory of a process that loads the dense and the packed file.
Writes `benchmarks/results/sparse_kernels.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from holdfast import sparse
from holdfast.sparse.benchmark import PEERS, contenders, quantized, random_matrix
from holdfast.sparse.matrices import LAYOUTS
from measuring import CORES, compared, limited, machine, run

RESULT = Path(__file__).resolve().parent / "results" / "sparse_kernels.json"
WIDTH = 2560
TARGETS = {
    ("bsr16x1", 1, "dense_fp32"): 5.0,
    ("bsr16x1", 1, "dense_bf16"): 3.0,
    ("csr", 1, "dense_fp32"): 3.0,
    **{(layout, 16, "dense_fp32"): 2.0 for layout in LAYOUTS},
    **{(layout, 16, "dense_bf16"): 1.0 for layout in LAYOUTS},
}
WIDTHS = (160, 256, 512, 1024, 2560)
"""Of the whole layers; LSTMs up to 1,024."""
STEPS = 20
"""Steps of the sequence that goes through a whole layer."""
MEMORY = """
import sys, numpy, torch
from torch import nn
from holdfast import sparse
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
x = torch.ones(1, 1, {width})
sparse.load   # the first use of a name imports its module
for layout in ("csr", "bsr16x1"):   # load the kernels
    sparse.SparseMatrix.pack(numpy.eye(64, dtype="f4"), layout).multiply(numpy.ones((1, 64), "f4"), 2)
nn.GRU(16, 16)(torch.ones(2, 1, 16))
with torch.device("meta"):
    model = nn.GRU({width}, {width})
before = resident()
model = sparse.load(model, sys.argv[1])
model(x)
print((resident() - before) / 1e6)
"""


def measure(calls: Mapping[str, Callable[[], object]], samples: int) -> dict[str, dict[str, float]]:
    """Seconds per call, in turn: median, smallest, largest wall time, smallest processor time."""
    numbers = {}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        numbers[name] = max(1, round(5e-3 / (time.perf_counter() - begin)))
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            # A thread pool that spins while it waits for work must stop before the next call is timed.
            time.sleep(0.02)
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(numbers[name]):
                call()
            walls[name].append((time.perf_counter() - wall) / numbers[name])
            cpus[name].append((time.process_time() - cpu) / numbers[name])
    return {
        name: {
            "wall_s": statistics.median(walls[name]),
            "wall_min_s": min(walls[name]),
            "wall_max_s": max(walls[name]),
            "cpu_s": min(cpus[name]),
        }
        for name in calls
    }


def products(options: argparse.Namespace) -> dict[str, Any]:
    """(layout, batch) -> measurements, and the bytes of the packed matrices."""
    made: dict[str, Any] = {}
    for layout in LAYOUTS:
        dense = random_matrix(3 * WIDTH, WIDTH, options.sparsity, layout)
        for batch in (1, 16):
            calls, matrix = contenders(dense, layout, batch)
            made[f"{layout} batch {batch}"] = measure(calls, options.samples)
        made[f"{layout} bytes"] = {"packed": matrix.nbytes, "dense": dense.nbytes}
    return made


def layer(kind: str, width: int, sparsity: float) -> torch.nn.RNNBase:
    """A recurrent layer with zeros in blocks, which both layouts use."""
    torch.manual_seed(0)
    gates = 3 if kind == "GRU" else 4
    dense: torch.nn.RNNBase = getattr(torch.nn, kind)(width, width).eval()
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0"):
            zeros = random_matrix(gates * width, width, sparsity, "bsr16x1") == 0
            getattr(dense, name)[torch.from_numpy(zeros)] = 0
    return dense


def layers(options: argparse.Namespace) -> dict[str, Any]:
    """Layer and batch -> the time of a sequence, dense, dynamic int8, packed."""
    made = {}
    for kind in ("GRU", "LSTM"):
        for width in WIDTHS[: None if kind == "GRU" else -1]:
            dense = layer(kind, width, options.sparsity)
            contestants = {"dense": dense, "int8": quantized(dense)}
            contestants |= {layout: sparse.pack(dense, layout)[0] for layout in LAYOUTS}
            for batch in (1, 16):
                x = torch.randn(STEPS, batch, width)
                with torch.no_grad():
                    for layout in LAYOUTS:
                        torch.testing.assert_close(
                            contestants[layout](x)[0], dense(x)[0], rtol=1e-3, atol=1e-5
                        )
                    calls = {name: partial(each, x) for name, each in contestants.items()}
                    made[f"{kind} {width}, batch {batch}"] = measure(
                        calls, max(5, options.samples // 4)
                    )
    return made


def memory(options: argparse.Namespace) -> dict[str, float]:
    """Files of the widest GRU, and the memory of processes that load them (MB)."""
    dense, found = layer("GRU", WIDTH, options.sparsity), {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gru.safetensors"
        save_file(dense.state_dict(), path)
        for name in ("dense", *LAYOUTS):
            if name != "dense":
                sparse.save(sparse.pack(dense, name)[0], path)
            found[f"{name}_file"] = path.stat().st_size / 1e6
            script = MEMORY.format(width=WIDTH)
            found[f"{name}_memory"] = float(run([sys.executable, "-c", script, path]).output)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    torch.set_num_threads(min(CORES, len(os.sched_getaffinity(0))))
    host = machine()
    made = products(options)
    torch.set_num_threads(1)
    whole, megabytes = layers(options), memory(options)
    load_after = round(os.getloadavg()[0], 2)
    text = json.dumps(_results(options, host, made, whole, megabytes, load_after), indent=2) + "\n"
    options.result.write_text(text)
    print(f"wrote {options.result}")


def ratios(made: dict[str, Any]) -> dict[str, Any]:
    """Peer over packed, by the fastest samples: a table for the page."""
    rows: dict[str, dict[str, Any]] = {
        label: {"times as fast as": label} for label in PEERS.values()
    }
    for batch in (1, 16):
        for layout in LAYOUTS:
            times = made[f"{layout} batch {batch}"]
            for peer, label in PEERS.items():
                fastest = times[peer]["wall_min_s"] / times[layout]["wall_min_s"]
                rows[label][f"{layout}, batch {batch}"] = fastest
    return {"caption": "Ratios of the fastest samples", "rows": list(rows.values())}


def steps(whole: dict[str, Any]) -> dict[str, Any]:
    """Processor time per step of whole layers: a table for the page, and for that of the room."""
    names = {
        "dense": "torch dense",
        "int8": "torch dynamic int8",
        "csr": "csr",
        "bsr16x1": "bsr16x1",
    }
    rows = [
        {"layer": place}
        | {label: 1e6 * times[key]["cpu_s"] / STEPS for key, label in names.items()}
        for place, times in whole.items()
    ]
    return {"caption": "Microseconds per step of a layer", "rows": rows}


def _results(
    options: argparse.Namespace,
    host: dict[str, Any],
    made: dict[str, Any],
    whole: dict[str, Any],
    megabytes: dict[str, float],
    load_after: float,
) -> dict[str, Any]:
    comparisons = [
        compared(
            f"{layout}, batch {batch}",
            made[f"{layout} batch {batch}"][layout]["wall_s"],
            label,
            made[f"{layout} batch {batch}"][peer]["wall_s"],
            TARGETS.get((layout, batch, peer)),
        )
        for batch in (1, 16)
        for layout in LAYOUTS
        for peer, label in PEERS.items()
    ]
    # Processor time: the layers run in one thread, and other work on the machine does not count.
    comparisons += [
        compared(
            f"layer {place}, {STEPS} steps, {layout}",
            times[layout]["cpu_s"],
            peer,
            times[key]["cpu_s"],
            1.0 if key == "dense" and "batch 16" not in place else None,
        )
        for place, times in whole.items()
        for layout in LAYOUTS
        for key, peer in (("dense", "torch dense"), ("int8", "torch dynamic int8"))
    ]
    limits = [
        limited(f"{what} of the GRU, {name}", megabytes[f"{name}_{key}"], "MB")
        for key, what in (("file", "file"), ("memory", "resident memory"))
        for name in ("dense", *LAYOUTS)
    ]
    other_times = [
        f"{key}: "
        + ", ".join(
            f"{name} {1e3 * times['wall_min_s']:.2f} / {1e3 * times['cpu_s']:.2f}"
            for name, times in each.items()
        )
        for key, each in made.items()
        if "batch" in key
    ]
    return {
        "title": "Sparse kernels",
        "script": "benchmarks/sparse_kernels.py",
        "input": (
            f"a random float32 matrix of {3 * WIDTH:,} x {WIDTH:,}, {options.sparsity:.0%} zeros: single "
            "weights (csr) or blocks of 16 rows by one column (bsr16x1); products with 1 and 16 vectors"
        ),
        "comparisons": comparisons,
        "limits": limits,
        "figures": {"products": made, "layers": whole},
        "tables": [ratios(made), steps(whole)],
        "machine": host,
        "versions": {n: version(n) for n in ("holdfast", "torch", "scipy", "numba", "numpy")},
        "notes": [
            f"Medians of {options.samples} samples in turn (layers: a quarter as many, in one thread, "
            "processor time); every output was first compared with float64. Two threads for torch and for "
            "ours, one for scipy, which has no more. "
            f"Load after: {load_after}.",
            "Peers get their operands in the order and type that suit them: bfloat16 inputs, transposed "
            "inputs for CSR. torch CSR is MKL's. Ours take and return rows, as layers do.",
            "Other work on the machine slows whoever uses both cores most. Wall time of the fastest "
            "sample / median processor time, ms: " + "; ".join(other_times) + ".",
            "Resident memory is what loading the GRU and one step add to a process that has loaded torch "
            "and the kernels. The GRU has zeros in blocks in both layouts.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
