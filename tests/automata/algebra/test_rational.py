"""Union, concatenation, closure, and what only turns arcs round: as OpenFST does, and by listing paths."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import pywrapfst
from machines import path_costs, random_fst
from openfst import from_openfst, to_openfst

from holdfast.automata import Fst, SymbolTable
from holdfast.automata.algebra.rational import closure, concat, union
from holdfast.automata.algebra.sides import arcsort, invert, project, reverse
from holdfast.errors import InputError

SEMIRINGS = ("tropical", "log", "log64")


def machine(seed: int, **wanted: Any) -> Fst:
    """A random machine; now and then an empty one, one without arcs, one without finals."""
    semiring = wanted.pop("semiring", SEMIRINGS[seed % 3])
    if seed % 11 == 10:
        return Fst.empty(semiring)
    made = random_fst(
        seed, states=1 + seed % 6, arcs=0 if seed % 13 == 12 else 9, semiring=semiring, **wanted
    )
    if seed % 7 == 6:
        made = made.with_(final=np.full_like(made.final, made.semiring.zero))
    return made.with_(start=seed % made.num_states)


def arcs(given: Fst) -> list[Any]:
    return sorted(given.arcs())


def same(ours: Fst, theirs: Any) -> bool:
    """Numbers of states, finals and arcs all agree; the order of arcs may differ."""
    oracle = from_openfst(theirs)
    return (
        ours.checked().start == oracle.start
        and ours.num_states == oracle.num_states
        and ours.finals == oracle.finals
        and arcs(ours) == arcs(oracle)
    )


def test_as_openfst_numbers_them() -> None:
    compared = 0
    for seed in range(300):
        a, b = machine(seed), machine(seed + 3 * (seed % 5), semiring=SEMIRINGS[seed % 3])
        oracle = to_openfst(a)
        for plus in (False, True):
            looped = oracle.copy().closure("plus" if plus else "star")
            assert same(closure(a, plus), looped), (seed, plus)
        assert same(invert(a), oracle.copy().invert()), seed
        for side in ("input", "output"):
            assert same(project(a, side), oracle.copy().project(side)), (seed, side)
        if a.num_states:
            assert same(reverse(a), pywrapfst.reverse(oracle)), seed
        if a.num_states and b.num_states:
            assert same(concat(a, b), oracle.copy().concat(to_openfst(b))), seed
        united = oracle.copy().union(to_openfst(b))
        ours = union(a, b)
        # OpenFST may know that only lost states have arcs into the start, and adds none then.
        if ours.num_states == united.num_states():
            assert same(ours, united), seed
            compared += 1
    assert compared > 250


def joined(a: Fst, b: Fst) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = defaultdict(list)
    for (left, right), costs in path_costs(a).items():
        for (left2, right2), costs2 in path_costs(b).items():
            found[left + left2, right + right2] += [x + y for x in costs for y in costs2]
    return found


def listed(paths: dict[Any, list[float]]) -> dict[Any, list[float]]:
    return {strings: sorted(costs) for strings, costs in paths.items() if costs}


def test_by_listing_every_path() -> None:
    for seed in range(200):
        a = machine(seed, acyclic=True)
        b = machine(seed + 1, acyclic=True, semiring=a.semiring.name)
        mine, other = path_costs(a), path_costs(b)
        both = {key: mine[key] + other[key] for key in [*mine, *other]}
        assert listed(path_costs(union(a, b))) == listed(both), seed
        assert listed(path_costs(concat(a, b))) == listed(joined(a, b)), seed
        backwards = {(left[::-1], right[::-1]): costs for (left, right), costs in mine.items()}
        assert listed(path_costs(reverse(a))) == listed(backwards), seed
        turned = {(right, left): costs for (left, right), costs in mine.items()}
        assert listed(path_costs(invert(a))) == listed(turned), seed


def test_sorted_arcs() -> None:
    for seed in range(100):
        a = machine(seed)
        for by in ("ilabel", "olabel"):
            made = arcsort(a, by)
            assert arcs(made) == arcs(a)
            assert made.finals == a.finals
            for state in range(made.num_states):
                of_state = list(made.arcs(state))
                assert of_state == sorted(a.arcs(state), key=lambda arc: getattr(arc, by))
            assert arcsort(made, by) is made


def test_other_semirings_multiply_and_keep() -> None:
    a = Fst.build([(0, 1, 1, 0.5, 1)], {1: 0.25}, semiring="probability")
    b = Fst.build([(0, 2, 2, 0.125, 1)], {1: 0.5}, semiring="probability")
    assert [arc.weight for arc in concat(a, b).arcs()] == [0.5, 0.25, 0.125]
    assert concat(a, b).finals == {3: 0.5}
    assert closure(a).finals == {1: 0.25, 2: 1.0}
    yes = Fst.build([(0, 1, 1, 1.0, 1)], [1], semiring="boolean")
    assert reverse(yes).finals == {1: 1.0}


def test_what_cannot_be_joined_is_refused() -> None:
    a = Fst.build([(0, 1, 1, 0, 1)], [1], semiring="log")
    with pytest.raises(InputError, match="semirings differ"):
        union(a, a.as_semiring("tropical"))
    x, y = SymbolTable.of(["a", "b"]), SymbolTable.of(["a", "c"])
    with pytest.raises(InputError, match="label 2"):
        concat(a.with_(isymbols=x), a.with_(isymbols=y))
    assert union(a.with_(isymbols=x), a).isymbols is x
    with pytest.raises(InputError, match="input or output"):
        project(a, "left")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ilabel or olabel"):
        arcsort(a, "weight")  # type: ignore[arg-type]
