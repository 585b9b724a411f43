"""Leaving out the states from which no final state can be reached."""

from __future__ import annotations

import numpy as np

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition.exploring import Arcs, Exploration


def trimmed(found: Exploration, zero: float) -> Exploration:
    """The states that reach a final state, in the same order, and the arcs between them; in place."""
    alive = found.final != zero
    while kernels.sweep(found.offsets, found.arcs.nextstate, alive):
        pass
    if alive.all():
        return found
    if not len(alive) or not alive[0]:
        return Exploration(
            0, found.offsets[:1], Arcs(*(x[:0] for x in found.arcs)), found.final[:0]
        )
    renumbered = np.cumsum(alive, dtype=np.int32)
    renumbered -= 1
    kept = kernels.compact(found.offsets, found.arcs, alive, renumbered)
    states = int(renumbered[-1]) + 1
    return Exploration(
        states,
        found.offsets[: states + 1],
        Arcs(*(x[:kept] for x in found.arcs)),
        found.final[alive],
    )
