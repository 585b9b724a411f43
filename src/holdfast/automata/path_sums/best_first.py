"""`BestFirst`: the paths of a machine, one after the other, the cheapest first."""

from __future__ import annotations

import numpy as np

from holdfast.automata.composition.memory import available_bytes, refuse_memory
from holdfast.automata.fst import I32, I64, Fst
from holdfast.automata.path_sums import search_kernels as kernels
from holdfast.automata.path_sums.distances import F64, costs_of, least_costs
from holdfast.automata.structure import incoming, is_acyclic

FIRST_ROOM = 1 << 10
MOST_KNOWN = 1 << 20
ROUNDING = 2.0**-48
# Of a beginning of a path in the search, and of an arc of a path that is returned as a machine.
_ITEM_BYTES, _ARC_BYTES = 36, 100


class BestFirst:
    """A best-first search that can be taken up again where it stopped.

    Exact for every machine without a cycle of negative cost: the order is by cost, and what it goes by is
    the exact cost that is still to come (A* search).
    """

    def __init__(self, f: Fst, expected: int = 0) -> None:
        """Prepare a search.

        Args:
            f: the machine.
            expected: how many paths will be asked for at most, which saves work; 0: unknown.

        Raises:
            InputError: if there is a cycle of negative cost.
        """
        self._weight, self._final = costs_of(f)
        self._f = f
        self._ahead = least_costs(f, reverse=True)
        self._steps = steps_to_go(f, self._weight, self._final, self._ahead)
        self._keys, self._ties = np.empty(FIRST_ROOM), np.empty(FIRST_ROOM, np.int64)
        self._state = np.empty(FIRST_ROOM, np.int32)
        self._parent = np.empty(FIRST_ROOM, np.int64)
        self._arc = np.empty(FIRST_ROOM, np.int64)
        room = expected if expected <= MOST_KNOWN else 0
        self._known, self._spare = np.empty(room), np.empty(room, np.int64)
        self._counters = np.zeros(4, np.int64)
        if f.num_states and self._ahead[f.start] < np.inf:
            self._begin()

    def _begin(self) -> None:
        start = self._f.start
        self._state[0], self._parent[0], self._arc[0] = start, -1, -1
        self._keys[0] = 0.0
        self._ties[0] = kernels.tie(int(self._steps[start]), 0)
        self._counters[[kernels.ITEMS, kernels.HEAP]] = 1
        kernels.is_needed(self._known, self._spare, self._counters, 0.0)

    def more(self, count: int) -> tuple[I64, I64]:
        """The next paths, at most `count`: bounds [n + 1] and the arcs of all, one path after the other.

        Raises:
            LimitError: if they do not fit into memory.
        """
        ends = np.empty(count, np.int64)
        self._counters[kernels.FOUND] = 0
        while True:
            status = kernels.advance(
                self._f.offsets, self._f.nextstate, self._weight, self._final, self._ahead,
                self._steps, self._keys, self._ties, self._state, self._parent, self._arc,
                self._known, self._spare, self._counters, ends,
            )  # fmt: skip
            if status != kernels.FULL:
                break
            self._grow()
        found = int(self._counters[kernels.FOUND])
        memory = available_bytes()
        bounds, arcs = kernels.trace(self._parent, self._arc, ends[:found], memory // _ARC_BYTES)
        if len(arcs) < bounds[-1]:
            reached = f"{int(bounds[-1]):,} arcs of {found:,} paths"
            raise refuse_memory("the list of paths", int(bounds[-1]) * _ARC_BYTES, memory, reached)
        return bounds, arcs

    def _grow(self) -> None:
        state = int(self._state[kernels.item_of(int(self._ties[0]))])
        degree = int(self._f.offsets[state + 1] - self._f.offsets[state])
        size = max(2 * len(self._keys), int(self._counters[kernels.ITEMS]) + degree + 1)
        memory, needed = available_bytes(), _ITEM_BYTES * size
        if needed > memory:
            reached = f"{len(self._keys):,} beginnings of paths"
            raise refuse_memory("the search for paths", needed, memory, reached)
        for name in ("_keys", "_ties", "_state", "_parent", "_arc"):
            old = getattr(self, name)
            new = np.empty(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def steps_to_go(f: Fst, weight: F64, final: F64, ahead: F64) -> I32:
    """[V] the fewest arcs of a best path to a final state.

    All 0 if no cycle is free: then every best path ends by itself.
    """
    # A cost that rounding swallows beside what is ahead is as good as none.
    swallowed = ROUNDING * np.abs(ahead[ahead < np.inf]).max(initial=0.0)
    if (weight > swallowed).all() or is_acyclic(f):
        return np.zeros(f.num_states, np.int32)
    entering = incoming(f)
    steps: I32 = kernels.steps_to_go(entering.offsets, f.source, entering.arc, weight, final, ahead)
    return steps
