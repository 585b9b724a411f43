"""`compose`: the weighted transducer that applies A, then B.

The states of the result are the triples (a, b, f) that a breadth-first search from the start reaches;
f is the state of the epsilon filter. The arcs of a state have a fixed order: A alone, B alone, both
epsilon, then the common labels ascending, the arcs of A before those of B. The search expands states in
batches of three steps: `join` finds the matching arcs, `expand` writes them out, `number` numbers their
target states.

Source: Sengupta, Pratap, Hannun, "Parallel composition of weighted finite-state transducers", 2021
(arXiv:2110.02848); the documentation lists the differences.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy.typing as npt

from holdfast.automata.algebra.assembling import agreed_table, check_semirings
from holdfast.automata.composition.exploring import Row, Search
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.memory import available_bytes, no_memory
from holdfast.automata.fst import NO_STATE, Fst, locked


class ArcMap(NamedTuple):
    """Where the arcs of a composition come from."""

    a: npt.NDArray[Any]
    """[E] the arc of A, -1 where A stayed."""
    b: npt.NDArray[Any]
    """[E] the arc of B, -1 where B stayed."""


@overload
def compose(
    a: Fst,
    b: Fst,
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[False] = False,
    max_states: int | None = None,
    memory_bytes: int | None = None,
) -> Fst: ...
@overload
def compose(
    a: Fst,
    b: Fst,
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[True],
    max_states: int | None = None,
    memory_bytes: int | None = None,
) -> tuple[Fst, ArcMap]: ...
def compose(
    a: Fst,
    b: Fst,
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: bool = False,
    max_states: int | None = None,
    memory_bytes: int | None = None,
) -> Fst | tuple[Fst, ArcMap]:
    """The composition: it maps x to z with weight w times v if A maps x to y with w and B y to z with v.

    Args:
        a: A; its output labels are matched.
        b: B; its input labels are matched.
        connect: leave out states from which no final state can be reached.
        filter: which of several equal paths through epsilons is kept; see `filters`. "auto" is
            "sequence"; "trivial" keeps all, which is wrong unless the semiring is idempotent.
        return_arc_map: tell where each arc comes from, for gradients.
        max_states: stop when more states than these are found, before those that are not co-accessible
            are left out.
        memory_bytes: stop before the result and the tables take more; the memory available, if not given.

    Returns:
        The composition, with A's input symbols and B's output symbols; with `return_arc_map` also where
        its arcs come from.

    Raises:
        InputError: if the semirings or the symbols in between differ.
        LimitError: if `max_states` or `memory_bytes` would be passed.
    """
    check_composable(a, b)
    memory = available_bytes() if memory_bytes is None else memory_bytes
    ((machine, arc_map),) = composed(
        Row([a]), Row([b]), connect, filter, return_arc_map, max_states, memory
    )
    return (machine, arc_map) if return_arc_map else machine


def composed(
    a: Row,
    b: Row,
    connect: bool,
    filter: FilterName,
    mapped: bool,
    max_states: int | None,
    memory: int,
) -> list[tuple[Fst, ArcMap]]:
    """The compositions of two rows of machines; the parameters of `compose`."""
    try:
        search = Search(a, b, connect, filter, mapped=mapped, max_states=max_states, memory=memory)
        search.run()
    except MemoryError as error:
        raise no_memory("the composition", error) from error
    rows, firsts = search.rows.tolist(), search.firsts.tolist()
    columns = [locked(array) for array in search.arcs[:4]]
    offsets, final = locked(search.offsets), locked(search.final)
    machines = []
    for k, (left, right) in enumerate(zip(a.machines, b.machines, strict=True)):
        arcs = slice(firsts[k], firsts[k + 1])
        machine = Fst.trusted(
            offsets[rows[k] : rows[k + 1]],
            *[column[arcs] for column in columns],
            final[rows[k] : rows[k + 1] - 1],
            0 if rows[k + 1] > rows[k] + 1 else NO_STATE,
            a.whole.semiring,
            left.isymbols,
            right.osymbols,
        )
        from_a, from_b = search.arcs.from_a[arcs], search.arcs.from_b[arcs]
        machines.append((machine, ArcMap(a.origin(k, from_a), b.origin(k, from_b))))
    return machines


def check_composable(a: Fst, b: Fst) -> None:
    """Whether the machines fit.

    Raises:
        InputError: if the semirings, or the symbols in between, differ.
    """
    check_semirings(a, b)
    agreed_table("output symbols of A and the input symbols of B", a.osymbols, b.isymbols)
