"""`compose_batch`: one machine composed with many, or many pairs, at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar, overload

from holdfast.automata.arguments import invalid
from holdfast.automata.composition.composing import ArcMap, check_composable, composed
from holdfast.automata.composition.exploring import Row
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.memory import available_bytes
from holdfast.automata.fst import Fst
from holdfast.errors import InputError

Left = TypeVar("Left")
Right = TypeVar("Right")

# A batch is cut into so many parts for each thread, if there are several.
PARTS = 4


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
        InputError: see `compose`; if two sequences differ in length, or there are no threads.
        LimitError: see `compose`.
    """
    if threads < 1:
        raise invalid("number of threads", threads, "1 or more")
    lefts, rights = paired(a, machines)
    for left, right in zip(lefts, rights, strict=True):
        check_composable(left, right)
    count = len(lefts)
    some = -(-count // (PARTS * threads if threads > 1 else 1)) or 1
    parts = [slice(at, at + some) for at in range(0, count, some)]
    workers = max(1, min(threads, len(parts)))
    memory = available_bytes() // workers

    def made(part: slice) -> list[tuple[Fst, ArcMap]]:
        left = Row(lefts[part], shared=isinstance(a, Fst))
        right = Row(rights[part], shared=isinstance(machines, Fst))
        return composed(left, right, connect, filter, return_arc_map, None, memory)

    with ThreadPoolExecutor(workers) as pool:
        every = [one for some in pool.map(made, parts) for one in some]
    return every if return_arc_map else [machine for machine, _ in every]


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
