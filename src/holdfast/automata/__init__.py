"""Weighted finite-state transducers, composed in parallel with OpenFST's answers.

    from holdfast import automata as fa
    lattice = fa.compose(fa.Fst.read("L.fst"), fa.Fst.read("G.fst"), threads=2)
    best = fa.shortest_path(lattice, n=10)

`Fst` is the data structure; the modules are what is done with it. Names are imported when they are first
used; nothing here needs torch but `TensorFst` and `compose(..., device=...)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.automata.fst import Arc, Fst
    from holdfast.automata.semirings import SEMIRINGS, Semiring
    from holdfast.automata.symbols import SymbolTable

_HOMES = {
    "SEMIRINGS": "semirings",
    "Arc": "fst",
    "Fst": "fst",
    "Semiring": "semirings",
    "SymbolTable": "symbols",
}

__all__ = ["SEMIRINGS", "Arc", "Fst", "Semiring", "SymbolTable"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
