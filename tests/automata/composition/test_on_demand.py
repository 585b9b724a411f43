"""Composition on demand: what it makes is composition, in whatever order it is asked."""

from __future__ import annotations

import random

import pytest
from machines import random_fst
from plain_composition import compose_plainly, same_bytes

from holdfast.automata import Fst
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.on_demand import ComposedOnDemand
from holdfast.errors import InputError, LimitError

FILTERS: tuple[FilterName, ...] = ("auto", "alt_sequence", "match", "trivial", "null")
SEMIRINGS = ("tropical", "log", "log64", "probability", "boolean")


def pair(seed: int) -> tuple[Fst, Fst]:
    made = []
    for side in (0, 1):
        size, semiring = 1 + (seed + side) % 6, SEMIRINGS[seed % 5]
        one = random_fst(
            2 * seed + side, states=size, arcs=2 * size, epsilons=0.3, semiring=semiring
        )
        made.append(Fst.empty(semiring) if (seed + side) % 17 == 16 else one)
    return made[0], made[1]


def test_each_state_and_all_of_it_are_those_of_composition() -> None:
    for seed in range(300):
        a, b = pair(seed)
        name = FILTERS[seed // 5 % 5]
        wanted = compose_plainly(a, b, connect=False, filter=name)
        lazy = ComposedOnDemand(a, b, filter=name, cached_arcs=(0, 10, 1000)[seed % 3])
        # Walk about first: numbers of states then differ from those of compose.
        chance = random.Random(seed)
        for _ in range(chance.randrange(8) if lazy.known else 0):
            list(lazy.arcs(chance.randrange(lazy.known)))
        assert same_bytes(lazy.to_fst(), wanted.machine), seed
        assert lazy.start == wanted.machine.start
        ours = {lazy.pair(state): state for state in range(lazy.known)}
        for state, parts in enumerate(wanted.states):  # each is met before it is asked about
            mine = ours[parts]
            found = list(lazy.arcs(mine))
            assert [arc[1:4] for arc in found] == [arc[1:4] for arc in wanted.machine.arcs(state)]
            assert [lazy.pair(arc.nextstate) for arc in found] == [
                wanted.states[arc.nextstate] for arc in wanted.machine.arcs(state)
            ]
            assert lazy.final(mine) == wanted.machine.final[state]
            ours |= {lazy.pair(arc.nextstate): arc.nextstate for arc in found}
        assert lazy.known == len(wanted.states)


def test_only_what_is_asked_is_made_and_little_is_kept() -> None:
    b = Fst.build([(s, 1, 1, 0, s + 1) for s in range(100)], [100], semiring="log")
    lazy = ComposedOnDemand(b, b, cached_arcs=3)
    state = lazy.start
    for _ in range(10):
        state = next(lazy.arcs(state)).nextstate
    assert (lazy.expanded, lazy.known, lazy.cached) == (10, 11, 3)
    list(lazy.arcs(9))  # still there
    assert lazy.expanded == 10
    list(lazy.arcs(0))  # made again, with the same numbers
    assert (lazy.expanded, lazy.known, next(lazy.arcs(0)).nextstate) == (11, 11, 1)


def test_bad_input_and_limits() -> None:
    b = Fst.build([(s, 1, 1, 0, s + 1) for s in range(9)], [9], semiring="log")
    lazy = ComposedOnDemand(b, b)
    with pytest.raises(InputError, match="invalid state"):
        lazy.final(1)
    with pytest.raises(InputError, match="machine is empty"):
        list(ComposedOnDemand(b, Fst.empty(semiring="log")).arcs(0))
    with pytest.raises(InputError, match="semirings"):
        ComposedOnDemand(b, b.as_semiring("tropical"))
    small = ComposedOnDemand(b, b, max_states=5)
    with pytest.raises(LimitError, match="max_states"):
        small.to_fst()
    for state in range(4):
        small.expansion(state)
    with pytest.raises(LimitError, match="max_states"):
        small.expansion(4)
    assert small.known == 5
