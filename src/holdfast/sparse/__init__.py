"""Gradual pruning of recurrent and linear layers, and kernels that make it pay.

    schedule = {kind: sparse.Narang.of_epochs(q, 20, 500) for kind, q in sparse.percentiles(dense).items()}
    sparse.Pruner(model, schedule).attach(optimizer)      # then train as before
    packed, decisions = sparse.pack(model)                # smaller and faster, for inference
    sparse.save(packed, "model.safetensors")

Names are imported when they are first used: help and schedules do not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.sparse.benchmark import bench
    from holdfast.sparse.layers import PackedLinear, PackedRNN, install, pack
    from holdfast.sparse.matrices import SparseMatrix
    from holdfast.sparse.pruning import Pruner
    from holdfast.sparse.schedules import Cubic, Narang, percentiles, plan
    from holdfast.sparse.storage import inspect, load, pack_file, save

_HOMES = {
    "Cubic": "schedules",
    "Narang": "schedules",
    "PackedLinear": "layers",
    "PackedRNN": "layers",
    "Pruner": "pruning",
    "SparseMatrix": "matrices",
    "bench": "benchmark",
    "inspect": "storage",
    "install": "layers",
    "load": "storage",
    "pack": "layers",
    "pack_file": "storage",
    "percentiles": "schedules",
    "plan": "schedules",
    "save": "storage",
}

__all__ = [
    "Cubic",
    "Narang",
    "PackedLinear",
    "PackedRNN",
    "Pruner",
    "SparseMatrix",
    "bench",
    "inspect",
    "install",
    "load",
    "pack",
    "pack_file",
    "percentiles",
    "plan",
    "save",
]

__getattr__ = lazily(__name__, _HOMES)
