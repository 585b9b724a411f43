"""From what a search found to the arrays of a machine: final weights, trimming, shrinking."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import compacting
from holdfast.automata.composition.exploring import Arcs, Search, Workers
from holdfast.automata.fst import I64, Weights
from holdfast.automata.structure import _kernels as structure

# Sweeps that threads share; nearly nothing is left after them.
SHARED_SWEEPS = 3


class Found(NamedTuple):
    """States and arcs of a composition."""

    offsets: I64
    """[V + 1]"""
    final: Weights
    """[V]"""
    arcs: Arcs
    """[E] each."""


def finished(search: Search, zero: float, connect: bool, workers: Workers) -> Found:
    """What a search found, trimmed if wanted; the search gives up its arrays."""
    states = search.known
    final = np.empty(states, search.left.final.dtype)
    alive = np.empty(states, np.bool_)
    workers.each(
        lambda part: compacting.final_weights(
            search.left,
            search.right,
            search.plan.code,
            zero,
            search.keys,
            part[0],
            part[1],
            final,
            alive,
        ),
        workers.parts(0, states),
    )
    found = Found(search.offsets, final, search.arcs)
    del search.keys, search.table, search.offsets, search.arcs
    if connect:
        mark_coaccessible(found, alive, workers)
        if not alive.all():
            found = _compacted(found, alive, workers)
            states = len(found.final)
    return _shrunk(found, states)


def mark_coaccessible(found: Found, alive: npt.NDArray[np.bool_], workers: Workers) -> None:
    """Mark also the states that reach a marked one.

    Threads sweep parts of the states; whether one sees the marks of another may change how many are left
    for the walk at the end, and nothing else.
    """
    states = len(alive)
    offsets, nextstate = found.offsets[: states + 1], found.arcs.nextstate[: found.offsets[states]]
    waiting = np.empty(states + 1, np.int32)
    parts = workers.parts(0, states)[::-1]
    rooms = [waiting] if len(parts) == 1 else [np.empty(e - b + 1, np.int32) for b, e in parts]
    counts = workers.each(
        lambda part, room: structure.mark_leading(
            offsets, nextstate, part[0], part[1], alive, room
        ),
        parts,
        rooms,
    )
    if len(parts) > 1:
        left = [room[:count] for room, count in zip(rooms, counts, strict=True)]
        waiting = np.concatenate([*left, waiting[:1]])
    structure.mark_rest(offsets, nextstate, alive, waiting, sum(counts))


def _compacted(found: Found, alive: npt.NDArray[np.bool_], workers: Workers) -> Found:
    """The marked states, in their order, and the arcs between them."""
    states = len(alive)
    if states == 0 or not alive[0]:
        return Found(found.offsets, found.final[:0].copy(), found.arcs)
    kept, renumbered = compacting.renumber(alive)
    offsets = np.zeros(kept + 1, np.int64)
    parts = workers.parts(0, states)
    counts = workers.each(
        lambda part: compacting.compact(
            found.offsets, found.arcs, renumbered, part[0], part[1], offsets
        ),
        parts,
    )
    _join_parts(found, alive, parts, counts, offsets, workers)
    return Found(offsets, found.final[alive], found.arcs)


def _join_parts(
    found: Found,
    alive: npt.NDArray[np.bool_],
    parts: list[tuple[int, int]],
    counts: list[int],
    offsets: I64,
    workers: Workers,
) -> None:
    """Move the arcs that each part has kept down to those of the part before."""
    arcs = states = 0
    for (begin, end), count in zip(parts, counts, strict=True):
        source = int(found.offsets[begin])
        here = int(np.count_nonzero(alive[begin:end]))
        if arcs:
            offsets[states + 1 : states + here + 1] += arcs
        if source != arcs:
            workers.each(
                partial(compacting.move_down, source=source, target=arcs, count=count),
                [array for array in found.arcs if len(array)],
            )
        arcs += count
        states += here


def _shrunk(found: Found, states: int) -> Found:
    """The same without the room for more, which is given back."""
    arcs = int(found.offsets[states])
    found.offsets.resize(states + 1, refcheck=False)
    for array in found.arcs:
        array.resize(min(arcs, len(array)), refcheck=False)
    return found
