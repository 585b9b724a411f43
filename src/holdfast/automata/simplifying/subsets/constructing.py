"""The subset construction as a whole: the kernel runs, and whenever room is short the arrays grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata.composition.memory import refuse_memory
from holdfast.automata.fst import I32, I64
from holdfast.automata.path_sums.distances import F64
from holdfast.automata.simplifying import string_kernels as strings
from holdfast.automata.simplifying.subsets import _kernels as kernels
from holdfast.automata.simplifying.subsets.room import Machine, Scratch, Subsets

_FIRST_ROOM = 1024
_LEAST_MEMORY = 1 << 22


class Constructed(NamedTuple):
    """The machine of subsets: S states, A arcs."""

    outcome: int
    """DONE, or why it could not be finished (`_kernels`)."""
    offsets: I64
    """[S + 1]"""
    label: I32
    """[A] as in `Machine.label`, ascending for each state."""
    nextstate: I32
    """[A]"""
    cost: F64
    """[A]"""
    string: I32
    """[A] the output of each arc."""
    final: F64
    """[S] costs."""
    final_string: I32
    """[S] the output that ends with each final state."""
    strings: I32
    """[N, 3] a tree of strings; see `simplifying.strings`."""
    conflict: tuple[int, int]
    """For TWO_OUTPUTS: the two strings."""


def construct(
    machine: Machine,
    start: int,
    labels: int,
    code: int,
    delta: float,
    max_states: int,
    memory: int,
) -> Constructed:
    """The subsets that {start} leads to, breadth first and labels ascending.

    Args:
        machine: the given machine.
        start: its start state.
        labels: L; labels are 0 to L - 1.
        code: how costs add (`semirings.TROPICAL` or `LOG`).
        delta: residual costs that round to the same multiple of this are equal.
        max_states: how many subsets there may be.
        memory: bytes that the arrays may take.

    Raises:
        LimitError: if they would take more.
    """
    subsets, scratch = _begun(start, labels, len(machine.final))
    counters = np.zeros(kernels.COUNTERS, np.int64)
    counters[kernels.MADE_SUBSETS] = 1
    outcome = kernels.FULL
    while outcome == kernels.FULL:
        # What grows is at least doubled, and there twice while it is copied.
        taken = sum(array.nbytes for array in (*subsets, *scratch))
        if 3 * taken > max(memory, _LEAST_MEMORY):
            reached = f"{int(counters[kernels.MADE_SUBSETS]):,} states"
            raise refuse_memory("the deterministic machine", 3 * taken, memory, reached)
        subsets, scratch = _with_room(subsets, scratch, counters)
        outcome = kernels.advance(machine, subsets, scratch, counters, code, delta, max_states)
    states = int(counters[kernels.MADE_SUBSETS])
    arcs = int(subsets.arcs_begin[counters[kernels.DONE_SUBSETS]])
    return Constructed(
        outcome,
        subsets.arcs_begin[: states + 1],
        subsets.label[:arcs],
        subsets.nextstate[:arcs],
        subsets.weight[:arcs],
        subsets.string[:arcs],
        subsets.final[:states],
        subsets.final_string[:states],
        subsets.strings[: int(subsets.string_count[0])],
        (int(counters[kernels.FIRST]), int(counters[kernels.SECOND])),
    )


def _begun(start: int, labels: int, states: int) -> tuple[Subsets, Scratch]:
    """The one subset {start}, which owes nothing."""

    def room(dtype: Any, size: int = _FIRST_ROOM) -> Any:
        return np.zeros(size, dtype)

    subsets = Subsets(
        begin=room(np.int64),
        arcs_begin=room(np.int64),
        hashed=room(np.uint64),
        final=room(np.float64),
        final_string=room(np.int32),
        element_state=room(np.int32),
        element_string=room(np.int32),
        element_cost=room(np.float64),
        label=room(np.int32),
        string=room(np.int32),
        nextstate=room(np.int32),
        weight=room(np.float64),
        slots=room(np.int32),
        strings=np.zeros((_FIRST_ROOM, 3), np.int32),
        string_slots=room(np.int32, 2 * _FIRST_ROOM),
        string_count=np.ones(1, np.int64),
    )
    scratch = Scratch(
        bucket=room(np.int64, labels),
        touched=room(np.int32, labels),
        target=room(np.int32),
        target_string=room(np.int32),
        target_cost=room(np.float64),
        seen=room(np.int64, states),
        where=room(np.int64, states),
    )
    subsets.begin[1] = 1
    subsets.element_state[0] = start
    subsets.hashed[0] = kernels.hash_of(start, 0, 0)
    return subsets, scratch


def _with_room(made: Subsets, scratch: Scratch, counters: I64) -> tuple[Subsets, Scratch]:
    """Everything that is too small for the next subset, twice as large or as large as it must be."""
    subsets = int(counters[kernels.MADE_SUBSETS])
    more = int(counters[kernels.LABELS])
    gathered = int(counters[kernels.GATHERED])
    arcs = int(made.arcs_begin[counters[kernels.DONE_SUBSETS]])
    made = _longer(
        made, subsets + more + 1, "begin", "arcs_begin", "hashed", "final", "final_string"
    )
    elements = int(made.begin[subsets]) + gathered
    made = _longer(made, elements, "element_state", "element_string", "element_cost")
    made = _longer(made, arcs + more, "label", "string", "nextstate", "weight")
    scratch = _longer(scratch, gathered, "target", "target_string", "target_cost")
    size = len(made.slots)
    while size < 4 * (subsets + more):
        size *= 2
    slots = kernels.slots_of_subsets(made.hashed, subsets, size)
    # Strings need room for what is not known before: they grow whenever they are more than half full.
    count = int(made.string_count[0])
    table, string_slots = made.strings, made.string_slots
    if 2 * count > len(table):
        table = np.concatenate([table, np.zeros_like(table)])
        string_slots = strings.slots_of_strings(table, count, 2 * len(string_slots))
    return made._replace(slots=slots, strings=table, string_slots=string_slots), scratch


def _longer(arrays: Any, length: int, *names: str) -> Any:
    """The arrays with the named ones at least so long, and at least doubled if they were not."""
    changed = {}
    for name in names:
        array = getattr(arrays, name)
        if len(array) < length:
            changed[name] = np.zeros(max(length, 2 * len(array)), array.dtype)
            changed[name][: len(array)] = array
    return arrays._replace(**changed)
