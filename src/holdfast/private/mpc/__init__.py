"""Secure multi-party computation between real parties: each sees only its own input.

def main(party):                                  # script.py, the same at every party
    x = party.secret(features, owner=0)           # a tensor that only party 0 knows
    w = party.secret(weights, owner=1)
    return (x @ w).relu().reveal(to=0)            # known to party 0 alone

holdfast private run --local 2 script.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.private.mpc.forecast import plan
    from holdfast.private.mpc.importing import import_model
    from holdfast.private.mpc.launch import run_local, simulate
    from holdfast.private.mpc.party import Party
    from holdfast.private.mpc.ring import RangeError
    from holdfast.private.mpc.supply import SupplyError
    from holdfast.private.mpc.tensor import SharedTensor
    from holdfast.private.mpc.training import (
        SGD,
        cross_entropy,
        load_checkpoint,
        save_checkpoint,
    )
    from holdfast.private.mpc.transport import Network, PeerError

_HOMES = {
    "Network": "transport",
    "Party": "party",
    "PeerError": "transport",
    "RangeError": "ring",
    "SGD": "training",
    "SharedTensor": "tensor",
    "SupplyError": "supply",
    "cross_entropy": "training",
    "import_model": "importing",
    "load_checkpoint": "training",
    "plan": "forecast",
    "run_local": "launch",
    "save_checkpoint": "training",
    "simulate": "launch",
}

__all__ = [
    "SGD",
    "Network",
    "Party",
    "PeerError",
    "RangeError",
    "SharedTensor",
    "SupplyError",
    "cross_entropy",
    "import_model",
    "load_checkpoint",
    "plan",
    "run_local",
    "save_checkpoint",
    "simulate",
]

__getattr__ = lazily(__name__, _HOMES)
