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
    from holdfast.private.mpc.importing import PrivateModel, import_model
    from holdfast.private.mpc.launch import run_dealer, run_local, run_party
    from holdfast.private.mpc.local import simulate
    from holdfast.private.mpc.party import Party
    from holdfast.private.mpc.ring import RangeError
    from holdfast.private.mpc.supply import SupplyError
    from holdfast.private.mpc.tensor import SharedTensor
    from holdfast.private.mpc.transport import Network, PeerError

_HOMES = {
    "Network": "transport",
    "Party": "party",
    "PeerError": "transport",
    "PrivateModel": "importing",
    "RangeError": "ring",
    "SharedTensor": "tensor",
    "SupplyError": "supply",
    "import_model": "importing",
    "plan": "forecast",
    "run_dealer": "launch",
    "run_local": "launch",
    "run_party": "launch",
    "simulate": "local",
}

__all__ = [
    "Network",
    "Party",
    "PeerError",
    "PrivateModel",
    "RangeError",
    "SharedTensor",
    "SupplyError",
    "import_model",
    "plan",
    "run_dealer",
    "run_local",
    "run_party",
    "simulate",
]

__getattr__ = lazily(__name__, _HOMES)
