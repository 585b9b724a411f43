"""From what a search found to the arrays of a machine: final weights, trimming, shrinking."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import compacting
from holdfast.automata.composition.exploring import Arcs, Search
from holdfast.automata.fst import I64, Weights
from holdfast.automata.structure import _kernels as structure


class Found(NamedTuple):
    """States and arcs of a composition."""

    bounds: I64
    """[starts + 1] the first state of each search."""
    offsets: I64
    """[V + 1]"""
    final: Weights
    """[V]"""
    arcs: Arcs
    """[E] each."""


def finished(search: Search, zero: float, connect: bool) -> Found:
    """What a search found, trimmed if wanted; the search gives up its arrays."""
    states = search.known
    final = np.empty(states, search.left.final.dtype)
    alive = np.empty(states, np.bool_)
    compacting.final_weights(
        search.left, search.right, search.plan.code, zero, search.keys, final, alive
    )
    found = Found(search.bounds, search.offsets, final, search.arcs)
    del search.keys, search.table, search.offsets, search.arcs
    if connect:
        _mark_coaccessible(found, alive)
        if not alive.all():
            found = _compacted(found, alive)
    return _shrunk(found)


def _mark_coaccessible(found: Found, alive: npt.NDArray[np.bool_]) -> None:
    """Mark also the states that reach a marked one."""
    states = len(alive)
    offsets, nextstate = found.offsets[: states + 1], found.arcs.nextstate[: found.offsets[states]]
    waiting = np.empty(states + 1, np.int32)
    count = structure.mark_leading(offsets, nextstate, 0, states, alive, waiting)
    structure.mark_rest(offsets, nextstate, alive, waiting, count)


def _compacted(found: Found, alive: npt.NDArray[np.bool_]) -> Found:
    """The marked states, in their order, and the arcs between them."""
    kept, renumbered = compacting.renumber(alive)
    offsets = np.zeros(kept + 1, np.int64)
    if kept:
        compacting.compact(found.offsets, found.arcs, renumbered, 0, len(alive), offsets)
    bounds: I64 = np.array([0, kept], np.int64)
    if len(found.bounds) > 2:
        bounds = np.append(0, np.cumsum(alive, dtype=np.int64))[found.bounds]
    return Found(bounds, offsets, found.final[alive], found.arcs)


def _shrunk(found: Found) -> Found:
    """The same without the room for more, which is given back."""
    states = len(found.final)
    arcs = int(found.offsets[states])
    found.offsets.resize(states + 1, refcheck=False)
    for array in found.arcs:
        array.resize(min(arcs, len(array)), refcheck=False)
    return found
