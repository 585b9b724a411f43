"""`connect`: only the states on a path from the start to a final state are kept."""

from __future__ import annotations

import numpy as np

from holdfast.automata.fst import I64, Fst
from holdfast.automata.structure import _kernels as kernels
from holdfast.automata.structure.reachability import Bools, accessible, coaccessible


def connect(f: Fst) -> Fst:
    """The machine without the states and arcs that lie on no path from the start to a final state.

    States and arcs keep their order. The machine itself comes back if it has none of those; the empty
    one if nothing is left.
    """
    keep = _on_paths(f)
    return f if keep.all() else with_states(f, keep)[0]


def with_states(f: Fst, keep: Bools) -> tuple[Fst, I64]:
    """The machine of some states, none or the start among them, and the arcs of `f` that are left."""
    offsets, arc, number = kernels.kept_arcs(f.offsets, f.nextstate, keep)
    machine = f.with_trusted(
        offsets=offsets,
        ilabel=f.ilabel[arc],
        olabel=f.olabel[arc],
        nextstate=number[f.nextstate[arc]],
        weight=f.weight[arc],
        final=f.final[keep],
        start=int(number[f.start]),
    )
    return machine, arc


def with_arcs(f: Fst, keep: Bools) -> Fst:
    """The machine of some of its arcs and all states."""
    if keep.all():
        return f
    return f.with_trusted(
        offsets=np.concatenate(([0], np.cumsum(keep)))[f.offsets],
        ilabel=f.ilabel[keep],
        olabel=f.olabel[keep],
        nextstate=f.nextstate[keep],
        weight=f.weight[keep],
    )


def is_connected(f: Fst) -> bool:
    """Whether every state lies on a path from the start to a final state."""
    return bool(_on_paths(f).all())


def _on_paths(f: Fst) -> Bools:
    keep = accessible(f)
    keep &= coaccessible(f)
    return keep
