"""Composition in torch, on any device: the steps of `compose`, the same answer to the last bit.

Each step takes what waits of one breadth-first level (or as much as fits the working memory), joins all
of its states at once, and numbers the states that are new by their first occurrence. Everything is a sort,
a prefix sum or a binary search; no atomic addition decides a place, so the result is the same on every run
and every device. A step waits for the device four times, whatever its size, and trimming once more, so
graphs of thousands of thin levels are better composed on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from holdfast.automata.composition import filters
from holdfast.automata.composition.device_joins import Joins
from holdfast.automata.composition.device_numbering import Numbering
from holdfast.automata.composition.device_trimming import Block, coaccessible, trimmed
from holdfast.automata.fst import Fst
from holdfast.automata.semirings import Semiring
from holdfast.errors import InputError, LimitError, MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

if TYPE_CHECKING:
    from holdfast.automata.composition.composing import ArcMap

STEP_ARCS = 1 << 24
"""Arcs of one step; a step's working memory is about 80 bytes an arc."""
STEP_STATES = 1 << 21
DENSE_BYTES = 2 << 30


class DeviceComposition(NamedTuple):
    """A composition whose arrays are on a device. V states, E arcs; the start is state 0."""

    offsets: Tensor
    """i64[V + 1]"""
    ilabel: Tensor
    """i32[E]"""
    olabel: Tensor
    """i32[E]"""
    nextstate: Tensor
    """i32[E]"""
    weight: Tensor
    """[E]"""
    final: Tensor
    """[V]"""
    arc_a: Tensor
    """i32[E] the arc of A that each arc came from, -1 for none."""
    arc_b: Tensor
    """i32[E] the arc of B."""
    state_a: Tensor
    """[V] the state of A that each state came from."""
    state_b: Tensor
    """[V] the state of B."""


@overload
def compose_on_device(
    a: Fst,
    b: Fst,
    connect: bool = True,
    filter: filters.FilterName = "auto",
    device: str | torch.device = "cpu",
    return_arc_map: Literal[False] = False,
    *,
    max_states: int | None = None,
) -> Fst: ...
@overload
def compose_on_device(
    a: Fst,
    b: Fst,
    connect: bool = True,
    filter: filters.FilterName = "auto",
    device: str | torch.device = "cpu",
    *,
    return_arc_map: Literal[True],
    max_states: int | None = None,
) -> tuple[Fst, ArcMap]: ...
def compose_on_device(
    a: Fst,
    b: Fst,
    connect: bool = True,
    filter: filters.FilterName = "auto",
    device: str | torch.device = "cpu",
    return_arc_map: bool = False,
    *,
    max_states: int | None = None,
) -> Fst | tuple[Fst, ArcMap]:
    """The composition of A and B, computed by torch on a device; equal to `compose(a, b)` in every bit.

    Args:
        a: V1 states; its output labels are matched.
        b: V2 states; its input labels are matched.
        connect: leave out states from which no final state is reached.
        filter: see `filters`.
        device: a device of torch, such as `cuda`.
        return_arc_map: return also where each arc came from.
        max_states: more states than this are refused.

    Raises:
        InputError: if the semirings or the inner symbol tables differ, or torch cannot use the device.
        LimitError: if there are more states than allowed, or the device's memory does not suffice.
        MissingExtraError: if torch is not installed.
    """
    from holdfast.automata.composition.composing import ArcMap, check_composable

    check_composable(a, b)
    made = composed_tensors(a, b, connect, filter, _usable(device), max_states=max_states)
    machine = Fst.empty(a.semiring, a.isymbols, b.osymbols)
    if len(made.final):
        names = ("offsets", "ilabel", "olabel", "nextstate", "weight", "final")
        arrays = {name: getattr(made, name).cpu().numpy() for name in names}
        machine = machine.with_trusted(start=0, **arrays)
    if not return_arc_map:
        return machine
    return machine, ArcMap(made.arc_a.cpu().numpy(), made.arc_b.cpu().numpy())


def composed_tensors(
    a: Fst,
    b: Fst,
    connect: bool,
    filter: filters.FilterName,
    device: torch.device,
    *,
    max_states: int | None = None,
    step_arcs: int = STEP_ARCS,
    step_states: int = STEP_STATES,
    dense_bytes: int = DENSE_BYTES,
) -> DeviceComposition:
    """`compose_on_device` with the result left on the device.

    Args:
        a: as there.
        b: as there.
        connect: as there.
        filter: as there.
        device: as there.
        max_states: as there.
        step_arcs: arcs of one step at most, unless one state alone has more.
        step_states: states of one step at most.
        dense_bytes: the largest table of state numbers that is made dense.
    """
    _refuse_unaddressable(a, b)
    try:
        with torch.no_grad():
            joins = Joins(a, b, filter, device)
            if not joins.keys:
                return _assembled(_Found(joins.no_states, []), joins, a.semiring)
            numbering = Numbering(
                joins.keys,
                joins.key_dtype,
                device,
                dense_bytes=dense_bytes,
                max_states=max_states,
            )
            start = joins.start(a.start, b.start)
            found = _search(joins, start, numbering, step_arcs, step_states)
            if connect:
                found = _connected(found, joins, a.semiring)
            return _assembled(found, joins, a.semiring)
    except torch.OutOfMemoryError as error:
        raise LimitError(
            "the composition does not fit the memory of the device",
            needed="more than is free",
            allowed=str(error).splitlines()[0],
            remedy="compose on the CPU, prune the machines first, or compose lazily",
        ) from error


class _Found(NamedTuple):
    keys: Tensor
    """[V] by state number."""
    blocks: list[Block]
    """Blocks of all states, in order."""
    kept: Tensor | None = None
    """bool[V] states that are part of the result; None: all."""


def _search(
    joins: Joins, start: Tensor, numbering: Numbering, step_arcs: int, step_states: int
) -> _Found:
    """All states that are reached from the start, breadth first, and their arcs."""
    numbering.number(start)
    keys, blocks, waiting, first = [start], [], [start], 0
    states = step_states
    while waiting:
        level, waiting = torch.cat(waiting), []
        while len(level):
            joined = joins.expand(level[:states], step_arcs)
            if joined is None:
                states = (min(states, len(level)) + 1) // 2
                continue
            nextstate, new = numbering.number(joined.keys)
            blocks.append(Block(first, joined.ends, joined.arc_a, joined.arc_b, nextstate))
            first += len(joined.ends)
            level = level[states:]
            states = min(2 * states, step_states)
            if len(new):
                keys.append(new)
                waiting.append(new)
    return _Found(torch.cat(keys), blocks)


def _finals(keys: Tensor, joins: Joins, semiring: Semiring) -> Tensor:
    state_a, state_b, _ = joins.parts(keys)
    return _times(joins.a.final[state_a], joins.b.final[state_b], semiring)


def _connected(found: _Found, joins: Joins, semiring: Semiring) -> _Found:
    reaches = coaccessible(found.blocks, _finals(found.keys, joins, semiring) != semiring.zero)
    if bool(reaches.all()):
        return found
    if not bool(reaches[0]):
        return _Found(found.keys[:0], [])
    return _Found(found.keys, trimmed(found.blocks, reaches), reaches)


def _assembled(found: _Found, joins: Joins, semiring: Semiring) -> DeviceComposition:
    """The arrays of the result, field by field, so that the parts of one are freed before the next."""
    a, b, blocks = joins.a, joins.b, found.blocks
    none = torch.empty(0, dtype=torch.int32, device=joins.device)
    counts = torch.cat([none.to(torch.int64), *(block.counts for block in blocks)])
    arc_a = torch.cat([none, *(block.arc_a for block in blocks)])
    arc_b = torch.cat([none, *(block.arc_b for block in blocks)])
    nextstate = torch.cat([none, *(block.nextstate for block in blocks)])
    blocks.clear()
    keys = found.keys
    if found.kept is not None:
        counts, keys = counts[found.kept], keys[found.kept]
    state_a, state_b, _ = joins.parts(keys)
    return DeviceComposition(
        offsets=torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
        ilabel=a.other.index_select(0, arc_a),
        olabel=b.other.index_select(0, arc_b),
        nextstate=nextstate,
        weight=_times(a.weight.index_select(0, arc_a), b.weight.index_select(0, arc_b), semiring),
        final=_finals(keys, joins, semiring),
        arc_a=a.arc.index_select(0, arc_a),
        arc_b=b.arc.index_select(0, arc_b),
        state_a=state_a,
        state_b=state_b,
    )


def _times(x: Tensor, y: Tensor, semiring: Semiring) -> Tensor:
    return x + y if semiring.is_negative_log else x * y


def _usable(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # the latter from a torch built for the CPU alone
        raise InputError(
            "torch cannot use this device",
            code="unsupported",
            found=str(device),
            expected="a device such as cpu or cuda:0",
            remedy=str(error).splitlines()[0],
        ) from error


def _refuse_unaddressable(a: Fst, b: Fst) -> None:
    arcs, pairs = max(a.num_arcs, b.num_arcs), a.num_states * b.num_states
    if arcs >= 2**31 - 1 or pairs >= 2**61:
        raise LimitError(
            "a machine is too large for the device's numbers",
            needed=f"{arcs} arcs, {pairs} pairs of states",
            allowed=f"{2**31 - 2} arcs, {2**61} pairs of states",
            remedy="compose on the CPU",
        )
