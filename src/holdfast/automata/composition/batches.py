"""`compose_batch`: one machine composed with many, or many pairs, in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

from holdfast.automata.composition.composing import ArcMap, check_composable, composed
from holdfast.automata.composition.exploring import Row
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.memory import available_bytes
from holdfast.automata.fst import Fst
from holdfast.errors import InputError

Left = TypeVar("Left")
Right = TypeVar("Right")


@overload
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[False] = False,
) -> list[Fst]: ...
@overload
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: Literal[True],
) -> list[tuple[Fst, ArcMap]]: ...
def compose_batch(
    a: Fst | Sequence[Fst],
    machines: Fst | Sequence[Fst],
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    return_arc_map: bool = False,
) -> list[Fst] | list[tuple[Fst, ArcMap]]:
    """Many compositions: each equal to `compose` of its two machines.

    Machines are laid side by side, and one compiled call composes all of them: small ones cost little
    more than their arcs. The compositions share memory.

    Args:
        a: the first machine of every composition, or one for each.
        machines: one second machine for each composition, or the second of every one.
        connect: leave out states from which no final state is reached.
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
    if not lefts:
        return []
    made = composed(
        Row(lefts), Row(rights), connect, filter, return_arc_map, None, available_bytes()
    )
    return made if return_arc_map else [machine for machine, _ in made]


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
