"""`ComposedOnDemand`: a composition of which only the states that somebody asks about are made.

For searches that see a small part of it: a best path found by a heuristic, a sampler, a check of one
string.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from holdfast.automata.arguments import invalid
from holdfast.automata.composition import frontiers
from holdfast.automata.composition.composing import check_composable, compose
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.stepping import (
    StepArcs,
    final_weights,
    key_parts,
    step_arcs,
    steps,
    without_weights,
)
from holdfast.automata.fst import I32, NO_STATE, Arc, Fst
from holdfast.errors import LimitError


class Expansion(NamedTuple):
    """The arcs that leave one state, in the order of `compose`."""

    arcs: StepArcs
    """Labels, weights, and the arcs of A and B that they come from."""
    nextstate: I32
    """[n] the states that they enter."""


class ComposedOnDemand:
    """The composition of two machines, not trimmed, expanded state by state.

    States are numbered as they are first met, the start 0; a number stays what it is. Arcs of the states
    asked about last are kept, up to `cached_arcs`; others are made again when they are asked for.
    """

    def __init__(
        self,
        a: Fst,
        b: Fst,
        *,
        filter: FilterName = "auto",
        cached_arcs: int = 1_000_000,
        max_states: int | None = None,
    ) -> None:
        """Prepare both machines; nothing is expanded.

        Args:
            a: A; its output labels are matched.
            b: B; its input labels are matched.
            filter: which of several equal paths through epsilons is kept; see `filters`.
            cached_arcs: how many arcs are kept at most (each takes about 40 bytes); those of the state
                asked about last are always kept.
            max_states: how many states may be numbered.

        Raises:
            InputError: if the semirings or the symbols in between differ.
        """
        check_composable(a, b)
        self._a, self._b, self._filter = a, b, filter
        self._empty = a.num_states == 0 or b.num_states == 0
        self._most_arcs, self._most_states = cached_arcs, max_states
        self._cache: OrderedDict[int, Expansion] = OrderedDict()
        self._cached = 0
        self._keys: list[int] = []
        self._number: dict[int, int] = {}
        self.expanded = 0
        """How many times arcs of a state were made."""
        if not self._empty:
            self._steps = steps(a, b, filter)
            self._bare = without_weights(self._steps)
            self._numbered(self._steps.start)

    @property
    def start(self) -> int:
        """The start state; -1 if a machine has no states."""
        return NO_STATE if self._empty else 0

    @property
    def known(self) -> int:
        """How many states have been met: they are numbered from 0."""
        return len(self._keys)

    @property
    def cached(self) -> int:
        """How many arcs are kept."""
        return self._cached

    def pair(self, state: int) -> tuple[int, int, int]:
        """State of A, state of B and the filter's memory.

        Raises:
            InputError: if the state has not been met.
        """
        return key_parts(self._key(state))

    def final(self, state: int) -> float:
        """The final weight; the semiring's zero if the state is not final.

        Raises:
            InputError: if the state has not been met.
        """
        keys = np.array([self._key(state)])
        return float(final_weights(self._steps, keys, self._a.semiring.is_negative_log)[0])

    def arcs(self, state: int) -> Iterator[Arc]:
        """The arcs that leave a state, in the order of `compose`.

        Raises:
            InputError: if the state has not been met.
            LimitError: if an arc enters a state that `max_states` does not allow.
        """
        arcs, nextstate = self.expansion(state)
        columns = (arcs.ilabel, arcs.olabel, arcs.weight, nextstate)
        for values in zip(*(column.tolist() for column in columns), strict=True):
            yield Arc(state, *values)

    def expansion(self, state: int) -> Expansion:
        """The arcs that leave a state, as arrays.

        Raises:
            InputError: if the state has not been met.
            LimitError: if an arc enters a state that `max_states` does not allow.
        """
        if state in self._cache:
            self._cache.move_to_end(state)
            return self._cache[state]
        key, bare = self._key(state), self._bare
        at_a, at_b, target = frontiers.steps_of(bare.a, bare.b, bare.plan, key)
        nextstate = np.array([self._numbered(key) for key in target.tolist()], np.int32)
        expansion = Expansion(
            step_arcs(self._steps, at_a, at_b, self._a.semiring.is_negative_log), nextstate
        )
        self.expanded += 1
        self._keep(state, expansion)
        return expansion

    def to_fst(self) -> Fst:
        """All of it, made at once: `compose(a, b, connect=False)`; nothing more is numbered or kept.

        Raises:
            LimitError: if it has more states than `max_states`.
        """
        return compose(self._a, self._b, False, filter=self._filter, max_states=self._most_states)

    def _keep(self, state: int, expansion: Expansion) -> None:
        self._cache[state] = expansion
        self._cached += len(expansion.nextstate)
        while self._cached > self._most_arcs and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._cached -= len(dropped.nextstate)

    def _key(self, state: int) -> int:
        if not 0 <= state < self.known:
            raise invalid(
                "state",
                state,
                f"0 to {self.known - 1}" if self.known else "none: a machine is empty",
            )
        return self._keys[state]

    def _numbered(self, key: int) -> int:
        number = self._number.get(key)
        if number is None:
            number = len(self._keys)
            if self._most_states is not None and number >= self._most_states:
                raise LimitError(
                    "the search meets too many states",
                    needed=f"more than {self._most_states} states",
                    allowed=f"{self._most_states} states (max_states)",
                    remedy="a larger max_states, or a search that sees less",
                )
            self._number[key] = number
            self._keys.append(key)
        return number
