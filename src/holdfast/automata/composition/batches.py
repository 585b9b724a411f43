"""`compose_batch`: one machine composed with many, or many pairs, at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Literal, TypeVar, overload

import numpy as np

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition.composing import (
    ArcMap,
    check_composable,
    machine_of,
    searched,
)
from holdfast.automata.composition.exploring import Arcs
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.memory import available_bytes
from holdfast.automata.fst import Fst
from holdfast.errors import InputError

Left = TypeVar("Left")
Right = TypeVar("Right")

# A batch is cut into so many parts for each thread, of at most so many arcs and states.
PARTS = 4
MOST_PART = 1 << 22


@overload
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    threads: int = 1,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[False] = False,
) -> list[Fst]: ...
@overload
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    threads: int = 1,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[True],
) -> list[tuple[Fst, ArcMap]]: ...
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    threads: int = 1,
    *,
    filter: FilterName = "auto",
    return_arc_map: bool = False,
) -> list[Fst] | list[tuple[Fst, ArcMap]]:
    """Many compositions: each equal to `compose` of its two machines, whatever the number of threads.

    Machines are laid side by side, and compiled calls compose many at once: small ones cost little more
    than their arcs. What is made in one call shares memory.

    Args:
        a: the first machine of every composition, or one for each.
        machines: one second machine for each composition, or the second of every one.
        connect: leave out states from which no final state is reached.
        threads: threads that share the batch.
        filter: see `compose`.
        return_arc_map: tell where each arc comes from.

    Returns:
        The compositions, in the order given; with `return_arc_map` each with its `ArcMap`.

    Raises:
        InputError: see `compose`; if two sequences differ in length.
        LimitError: see `compose`.
    """
    lefts, rights = paired(a, machines)
    for left, right in zip(lefts, rights, strict=True):
        check_composable(left, right)
    listed = [
        side for given, side in ((a, lefts), (machines, rights)) if not isinstance(given, Fst)
    ]
    parts = _parts(len(lefts), listed, threads)
    workers = max(1, min(threads, len(parts)))
    memory = available_bytes() // workers

    def composed(part: slice) -> list[Any]:
        sides = _Row(a, lefts[part]), _Row(machines, rights[part])
        return _composed(*sides, connect, filter, return_arc_map, memory)

    if workers == 1:
        made = map(composed, parts)
        return [one for some in made for one in some]
    with ThreadPoolExecutor(workers) as pool:
        return [one for some in pool.map(composed, parts) for one in some]


class _Row:
    """Machines side by side as one; a single machine that takes part in all compositions is itself."""

    def __init__(self, given: Fst | Sequence[Fst], machines: list[Fst]) -> None:
        self.machines = machines
        self.first_arc = np.zeros(len(machines), np.int64)
        self.starts = [one.start for one in machines]
        if isinstance(given, Fst) or len(machines) == 1:
            self.whole = machines[0]
            return
        states, arcs = (
            np.array([getattr(one, name) for one in machines])
            for name in ("num_states", "num_arcs")
        )
        first_state = np.cumsum(states) - states
        self.first_arc = np.cumsum(arcs) - arcs
        self.starts = [
            at + base if at >= 0 else at
            for at, base in zip(self.starts, first_state.tolist(), strict=True)
        ]
        columns = {
            name: np.concatenate([getattr(one, name) for one in machines])
            for name in ("ilabel", "olabel", "nextstate", "weight", "final")
        }
        columns["nextstate"] += np.repeat(first_state, arcs).astype(np.int32)
        offsets = np.concatenate([one.offsets[:-1] for one in machines] + [[arcs.sum()]])
        offsets[:-1] += np.repeat(self.first_arc, states)
        self.whole = machines[0].with_trusted(offsets=offsets, **columns)

    def origin(self, k: int, arcs: Any) -> Any:
        """Positions of arcs of the whole as those of machine k, in place; -1 stays."""
        if self.first_arc[k]:
            arcs[arcs >= 0] -= self.first_arc[k]
        return arcs


def _composed(
    a: _Row, b: _Row, connect: bool, filter: FilterName, mapped: bool, memory: int
) -> list[Any]:
    starts = list(zip(a.starts, b.starts, strict=True))
    found = searched(a.whole, b.whole, starts, connect, filter, mapped, None, memory)
    offsets = kernels.split(found.bounds, found.offsets, found.arcs.nextstate)
    states = found.bounds.tolist()
    ends = found.offsets[found.bounds].tolist()
    made: list[Any] = []
    for k, (left, right) in enumerate(zip(a.machines, b.machines, strict=True)):
        columns: list[Any] = [array[ends[k] : ends[k + 1]] for array in found.arcs]
        arcs = Arcs(*columns)
        own = slice(states[k], states[k + 1])
        machine = machine_of(
            left, right, offsets[own.start + k : own.stop + k + 1], found.final[own], arcs
        )
        if mapped:
            made.append((machine, ArcMap(a.origin(k, arcs.from_a), b.origin(k, arcs.from_b))))
        else:
            made.append(machine)
    return made


def _parts(count: int, listed: list[list[Fst]], threads: int) -> list[slice]:
    """The compositions in runs whose listed machines have about equally many arcs and states."""
    sizes = np.ones(count, np.int64)
    for machines in listed:
        sizes += np.array([one.num_arcs + one.num_states for one in machines], np.int64)
    ends = np.cumsum(sizes)
    share = max(min(int(sizes.sum()) // (PARTS * max(threads, 1)), MOST_PART), 1)
    cuts = np.flatnonzero(np.diff(ends // share)) + 1
    return [slice(p, q) for p, q in pairwise([0, *cuts.tolist(), count]) if p < q]


def paired(a: Left | Sequence[Left], b: Right | Sequence[Right]) -> tuple[list[Left], list[Right]]:
    """Two lists of the same length; a single machine is paired with every machine of the other side.

    Raises:
        InputError: if two sequences differ in length.
    """
    count = next((len(side) for side in (a, b) if isinstance(side, Sequence)), 1)
    lefts: list[Any] = list(a) if isinstance(a, Sequence) else [a] * count
    rights: list[Any] = list(b) if isinstance(b, Sequence) else [b] * count
    if len(lefts) != len(rights):
        raise InputError(
            "a batch must have as many second machines as first ones",
            code="conflict",
            found=f"{len(lefts)} and {len(rights)} machines",
            expected="as many, or one on one side",
        )
    return lefts, rights
