"""What the graph of a machine is like: reachable states, components, orders; and `connect`, which trims it.

Source: R. Tarjan, "Depth-first search and linear graph algorithms", 1972; A. B. Kahn, "Topological sorting
of large networks", 1962.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as sorting
from holdfast.automata import structure_kernels as kernels
from holdfast.automata.fst import I32, I64, Fst


def connect(f: Fst) -> Fst:
    """The machine without the states and arcs that lie on no path from the start to a final state.

    States and arcs keep their order. The machine itself comes back if it has none of those; the empty
    one if nothing is left.
    """
    keep = _on_paths(f)
    return f if keep.all() else with_states(f, keep)[0]


def with_states(f: Fst, keep: Bools) -> tuple[Fst, I64]:
    """The machine of some states, none or the start among them, and the arcs of `f` that are left."""
    offsets, arc, number = kernels.subgraph(f.offsets, f.nextstate, keep)
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


class Components(NamedTuple):
    """The strongly connected components of a machine, in topological order."""

    of: I32
    """[V] the component of each state; no arc leads to a component of lower number."""
    number: int
    """Number of components; a state on no cycle is a component by itself."""


def strong_components(f: Fst) -> Components:
    """The strongly connected components of all states, reachable or not."""
    return Components(*kernels.strong_components(f.offsets, f.nextstate))


def topological_order(f: Fst) -> I32 | None:
    """[V] the states in an order in which every arc leads to a later one; None if there is a cycle.

    The order is that of the numbers where that is one already.
    """
    order: I32 = kernels.topological_order(f.offsets, f.nextstate)
    return order if len(order) == f.num_states else None


def is_acyclic(f: Fst) -> bool:
    """Whether no path comes back to its state, be it reachable or not."""
    return topological_order(f) is not None


Bools = npt.NDArray[np.bool_]


class Incoming(NamedTuple):
    """The arcs of a machine by the state that they enter."""

    offsets: I64
    """[V + 1] the arcs that enter state s are arc[offsets[s]:offsets[s + 1]]."""
    arc: I64
    """[E] positions in the `Fst`, ascending for each state; `Fst.source[arc]` is where they come from."""


def accessible(f: Fst) -> Bools:
    """[V] whether a path leads from the start to the state."""
    reachable: Bools = kernels.accessible(f.offsets, f.nextstate, f.start)
    return reachable


def coaccessible(f: Fst) -> Bools:
    """[V] whether a path leads from the state to a final one."""
    reaching: Bools = kernels.coaccessible(f.offsets, f.nextstate, f.final != f.semiring.zero)
    return reaching


def incoming(f: Fst) -> Incoming:
    """The reversed arcs, by a counting sort."""
    return Incoming(*sorting.counting_order(f.nextstate, f.num_states))
