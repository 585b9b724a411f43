"""Cycles: strongly connected components, and the order of states where there are none.

Source: R. Tarjan, "Depth-first search and linear graph algorithms", 1972; A. B. Kahn, "Topological sorting
of large networks", 1962.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.automata.fst import I32, Fst
from holdfast.automata.structure import _kernels as kernels


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
