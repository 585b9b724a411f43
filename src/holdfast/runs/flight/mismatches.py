"""When two ranks that entered the same collective did not ask for the same thing.

What must be alike follows from what the operation does (NCCL's and MPI's definitions), compared by the
number of elements and the data type; shapes may differ. Of operations with roles or uneven parts only
one side must agree:

=================================== ==========================================================
all_reduce, broadcast, reduce       number of elements
all_gather                          elements of the whole output (parts may be uneven)
reduce_scatter                      elements of the whole input (likewise)
gather, scatter                     elements of one part (only the root names all parts)
all_to_all                          nothing but the data type; over all members, as much is sent as received
barrier, coalesced                  nothing but the name
=================================== ==========================================================

The root of a broadcast, the operator of a reduction and the splits of an all_to_all are not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.alignment import Alignment
from holdfast.runs.flight.record import Operation

FAMILIES = (
    # The first that stands in the name, so that the longer ones come first.
    ("reduce_scatter", "reduce_scatter"),
    ("all_gather", "all_gather"),
    ("allgather", "all_gather"),
    ("all_to_all", "all_to_all"),
    ("alltoall", "all_to_all"),
    ("barrier", "barrier"),
    ("all_reduce", "all_reduce"),
    ("allreduce", "all_reduce"),
    ("broadcast", "broadcast"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)
NEEDS_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""No member can complete these before every member has entered."""

NO_DTYPE = "UNKNOWN_SCALAR"
"""Data type of the empty tensor that NCCL records on ranks other than the root."""

Signature = tuple[str, int, tuple[str, ...]]
"""Family, elements (-1: any), data types: equal where two ranks may meet."""


def family(operation: Operation) -> str:
    """What an operation is, whichever variant of it was called; its own name if it is none known."""
    name = operation.name.lower()
    return next((meant for part, meant in FAMILIES if part in name), name)


def signature(operation: Operation) -> Signature:
    """What must be the same on all members."""
    kind = family(operation)
    into, out = _elements(operation.input_sizes), _elements(operation.output_sizes)
    types = tuple(sorted({*operation.input_dtypes, *operation.output_dtypes} - {NO_DTYPE}))
    if kind in ("barrier", "coalesced"):
        return kind, -1, ()
    if kind == "all_to_all":
        return kind, -1, types
    if kind == "all_gather":
        return kind, out, types
    if kind in ("gather", "scatter"):
        # One side of all ranks but one is empty.
        return kind, min((each for each in (into, out) if each), default=0), types
    return kind, into or out, types


def _elements(sizes: Sequence[Sequence[int]]) -> int:
    return sum(math.prod(shape) for shape in sizes)


@dataclass(frozen=True)
class Mismatch:
    """A collective at which members did different things."""

    group: int
    """Index into `Alignment.groups`."""
    sequence: int
    what: str
    """``operation``, ``size`` or ``dtype``."""
    rows: NDArray[np.void]
    """One row of each rank that has it, in `ROW`."""


def first_mismatch(table: Alignment, group: int) -> Mismatch | None:
    """The first collective of a group at which ranks differ, where all who hold it are compared."""
    rows = table.of_group(group)
    rows = rows[~rows["p2p"]]
    distinct: dict[Signature, int] = {}
    codes = [distinct.setdefault(signature(each), len(distinct)) for each in table.operations]
    nth = _place_in_block(rows)
    if nth.any():  # blocks: one that a ring buffer has cut cannot be compared
        oldest = {rank: table.lost(rank) > 0 for rank in table.dumps}
        cut = [oldest[rank] for rank in rows["rank"].tolist()] & (rows["sequence"] == _first(rows))
        rows, nth = rows[~cut], nth[~cut]
    if not len(rows):
        return None
    order = np.lexsort((nth, rows["sequence"]))
    rows, nth = rows[order], nth[order]
    code = np.array(codes)[rows["operation"]]
    starts = np.flatnonzero(_changes(rows["sequence"]) | _changes(nth))
    differ = np.minimum.reduceat(code, starts) != np.maximum.reduceat(code, starts)
    for begin, end in zip(starts[differ], np.append(starts, len(rows))[1:][differ], strict=True):
        meeting = rows[begin:end]
        if what := _what_differs(table, meeting):
            return Mismatch(group, int(meeting["sequence"][0]), what, meeting)
    return None


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a value is not the one before it."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _first(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Beside each row the number with which its rank's rows begin."""
    starts = np.flatnonzero(_changes(rows["rank"]))
    return np.repeat(rows["sequence"][starts], np.diff([*starts, len(rows)]))


def _place_in_block(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Coalesced rows share a number: the n-th of a rank is compared with the n-th of the others."""
    starts = np.flatnonzero(_changes(rows["rank"]) | _changes(rows["sequence"]))
    return np.arange(len(rows)) - np.repeat(starts, np.diff([*starts, len(rows)]))


def _what_differs(table: Alignment, rows: NDArray[np.void]) -> str:
    seen = [signature(table.operations[each]) for each in np.unique(rows["operation"])]
    kinds, sizes, types = ({each[part] for each in seen} for part in range(3))
    if len(kinds) > 1:
        return "operation"
    if len(sizes) > 1:
        return "size"
    return "dtype" if len({each for each in types if each}) > 1 else ""


def unequal(table: Alignment, rows: NDArray[np.void]) -> str:
    """How a send and its receive differ: ``size``, ``dtype`` or nothing."""
    asked = [table.operations[each] for each in rows["operation"]]
    sizes = {_elements(each.input_sizes or each.output_sizes) for each in asked}
    types = {each.input_dtypes or each.output_dtypes for each in asked}
    return "size" if len(sizes) > 1 else "dtype" if len(types) > 1 else ""


def unbalanced(table: Alignment, rows: NDArray[np.void], members: int) -> bool:
    """Whether an all_to_all or all_gather of all members sends another amount than it receives."""
    if len(rows) != members:
        return False
    asked = [table.operations[each] for each in rows["operation"]]
    sent = sum(_elements(each.input_sizes) for each in asked)
    received = [_elements(each.output_sizes) for each in asked]
    kinds = {family(each) for each in asked}
    if kinds == {"all_to_all"}:
        return sent != sum(received)
    return kinds == {"all_gather"} and any(each != sent for each in received)
