"""`connect`: only the states on a path from the start to a final state are kept."""

from __future__ import annotations

from holdfast.automata.fst import Fst
from holdfast.automata.structure import _kernels as kernels
from holdfast.automata.structure.reachability import Bools, accessible, coaccessible


def connect(f: Fst) -> Fst:
    """The machine without the states and arcs that lie on no path from the start to a final state.

    States and arcs keep their order. The machine itself comes back if it has none of those; the empty
    one if nothing is left.
    """
    keep = _on_paths(f)
    if keep.all():
        return f
    if not keep.any():
        return Fst.empty(f.semiring, f.isymbols, f.osymbols)
    offsets, arc, number = kernels.kept_arcs(f.offsets, f.nextstate, keep)
    return f.with_trusted(
        offsets=offsets,
        ilabel=f.ilabel[arc],
        olabel=f.olabel[arc],
        nextstate=number[f.nextstate[arc]],
        weight=f.weight[arc],
        final=f.final[keep],
        start=int(number[f.start]),
    )


def is_connected(f: Fst) -> bool:
    """Whether every state lies on a path from the start to a final state."""
    return bool(_on_paths(f).all())


def _on_paths(f: Fst) -> Bools:
    keep = accessible(f)
    keep &= coaccessible(f)
    return keep
