"""Reachability of states: from the start, to a final state, and against the arcs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as sorting
from holdfast.automata.fst import I64, Fst
from holdfast.automata.structure import _kernels as kernels

Bools = npt.NDArray[np.bool_]


class Incoming(NamedTuple):
    """The arcs of a machine by the state that they enter."""

    offsets: I64
    """[V + 1] the arcs that enter state s are arc[offsets[s]:offsets[s + 1]]."""
    arc: I64
    """[E] positions in the `Fst`, ascending for each state; `Fst.source[arc]` is where they come from."""


def accessible(f: Fst) -> Bools:
    """[V] whether a path leads from the start to the state."""
    made: Bools = kernels.accessible(f.offsets, f.nextstate, f.start)
    return made


def coaccessible(f: Fst) -> Bools:
    """[V] whether a path leads from the state to a final one."""
    made: Bools = kernels.coaccessible(f.offsets, f.nextstate, f.final != f.semiring.zero)
    return made


def incoming(f: Fst) -> Incoming:
    """The reversed arcs, by a counting sort."""
    return Incoming(*sorting.counting_order(f.nextstate, f.num_states))
