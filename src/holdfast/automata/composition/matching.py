"""One machine as a side of a composition: its arcs sorted by the inner label, and an index of them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from holdfast.automata._kernels import writable
from holdfast.automata.composition import joining
from holdfast.automata.composition.filters import (
    BLOCKED,
    KINDS,
    MOVES,
    FilterName,
    kinds,
    transitions,
)
from holdfast.automata.fst import I32, I64, Fst, SortedView, Weights
from holdfast.errors import LimitError

LabelSide = Literal["ilabel", "olabel"]

WORD = 64
# Positions of arcs are held in 32 bits together with a state of the filter up to here.
MOST_SMALL = 1 << 29
# What a key has room for.
MOST_STATES = joining.B_MASK + 1
# With rows to spare no column of records has a single entry, which NumPy calls contiguous and Numba would
# compile anew for.
SPARE_ROWS = 2
# A state with so many arcs, and arcs for at least one in so many labels, may be indexed by label; entries
# are as many as there are arcs, or this.
LEAST_CROWDED = 64
CROWDED = 128
ROW_ENTRIES = 1 << 20


class Buckets(NamedTuple):
    """How labels are spread over the bits of a state's mask: label l is in bucket (l - 1) >> shift."""

    words: int
    """Words of 64 bits in a mask."""
    shift: int

    @property
    def exact(self) -> bool:
        """Whether a bucket holds a single label."""
        return self.shift == 0


class Side(NamedTuple):
    """One machine of a composition; E arcs and after them V arcs that stay, one a state.

    What the steps read of an arc, and of a state, are columns of records, which may have rows to spare.

    An arc that stays is what a machine does while the other takes an epsilon alone: it has label 0 and
    weight one, and leads where it came from. So every move pairs a range of arcs of A with one of B.
    """

    inner: I32
    """[E] the labels that are matched, ascending within a state."""
    outer: I32
    """[E + V] the labels on the other side."""
    nextstate: I32
    """[E + V]"""
    weight: Weights
    """[E + V]"""
    arc: npt.NDArray[Any]
    """[E + V] positions in the `Fst`, -1 for arcs that stay; empty if nobody asked."""
    offsets: I64
    """[V + 1] where the arcs of a state begin."""
    epsilons: I32
    """[V] how many arcs of a state have inner label 0; they come first."""
    kind: npt.NDArray[np.int8]
    """[V] what the filter must know of a state."""
    final: Weights
    """[V] final weights."""
    mask: npt.NDArray[np.uint64]
    """[V, words] bit b is set if the state has arcs in bucket b."""
    rank: I64
    """[V, words] the row of `span` for the lowest bit of each word."""
    span: npt.NDArray[Any]
    """[buckets in use, 2] the first arc of a state in a bucket, and one past the last."""
    row: I32
    """[V] the row of `first` of a state that has arcs for many of all labels, -1 for others."""
    first: npt.NDArray[Any]
    """[rows, labels + 2] where a state's arcs with a label, or with a higher one, begin."""


# What was prepared of a machine stays as long as the machine does: lexicons are composed again and again.
_prepared: WeakKeyDictionary[Fst, dict[Any, Any]] = WeakKeyDictionary()


def sides(a: Fst, b: Fst, mapped: bool) -> tuple[Side, Side, Buckets]:
    """Both machines, prepared to be matched: A by its output labels, B by its input labels.

    Args:
        a: A.
        b: B.
        mapped: whether the sides must know the positions of their arcs in the machines.
    """
    buckets = _buckets(min(_highest_label(a, "olabel"), _highest_label(b, "ilabel")))
    small = all(machine.num_arcs + machine.num_states < MOST_SMALL for machine in (a, b))
    position = np.int32 if small else np.int64
    return (
        _side(a, "olabel", buckets, position, mapped),
        _side(b, "ilabel", buckets, position, mapped),
        buckets,
    )


class Plan(NamedTuple):
    """Parameters of a composition's steps, besides the two sides."""

    exact: bool
    """Whether a bucket holds a single label."""
    moves: npt.NDArray[np.int8]
    """[KINDS * KINDS * 4 * MOVES] the filter's transitions."""
    code: int
    """Code of the semiring."""
    longest: int
    """Maximum number of segments of a state."""
    filters: int
    """Number of reachable filter states."""


def planned(a: Fst, b: Fst, filter: FilterName, mapped: bool) -> tuple[Side, Side, Plan]:
    """Both machines, and how they are to be matched under a filter.

    Raises:
        LimitError: if a machine has more states than a key can tell apart.
    """
    _check_size(a, b)
    left, right, buckets = sides(a, b, mapped)
    table = transitions(filter)
    moves = np.full((KINDS, KINDS, 1 << joining.F_BITS, MOVES), BLOCKED, np.int8)
    moves[:, :, : table.shape[2]] = table
    # Epsilons on one side never need to be remembered.
    both = left.epsilons.any() and right.epsilons.any()
    plan = Plan(
        buckets.exact,
        moves.ravel(),
        a.semiring.code,
        3 + min(_most_arcs(a), _most_arcs(b)),
        table.shape[2] if both else 1,
    )
    return left, right, plan


def _buckets(highest: int) -> Buckets:
    if highest <= 2 * WORD:
        return Buckets(1 if highest <= WORD else 2, 0)
    return Buckets(1, ((highest - 1) // WORD).bit_length())


def _highest_label(machine: Fst, by: LabelSide) -> int:
    known = _prepared.setdefault(machine, {})
    if by not in known:
        known[by] = int(getattr(machine, by).max(initial=0))
    return int(known[by])


def _most_arcs(machine: Fst) -> int:
    """The most arcs that leave one state."""
    known = _prepared.setdefault(machine, {})
    if "degree" not in known:
        known["degree"] = int(np.diff(machine.offsets).max(initial=0))
    return int(known["degree"])


def _side(machine: Fst, by: LabelSide, buckets: Buckets, position: type, mapped: bool) -> Side:
    known = _prepared.setdefault(machine, {})
    key = (by, buckets, position, mapped)
    if key not in known:
        known[key] = _prepare(machine, *key)
    side: Side = known[key]
    return side


def _prepare(machine: Fst, by: LabelSide, buckets: Buckets, position: type, mapped: bool) -> Side:
    view = machine.by_ilabel if by == "ilabel" else machine.by_olabel
    offsets, epsilons, kind, mask, rank = _state_records(machine, view, buckets)
    span: npt.NDArray[Any] = np.empty((machine.num_arcs, 2), position)
    used = joining.index(
        machine.offsets, view.epsilons, view.label, buckets.shift, mask, rank, span
    )
    outer, nextstate, weight = _arc_records(machine, view)
    arc: npt.NDArray[Any] = np.empty(0, position)
    if mapped:
        arc = np.full(machine.num_arcs + machine.num_states, -1, position)
        arc[: machine.num_arcs] = view.arc
    # Records hold the arrays of the machine itself: as a kernel takes them.
    return Side(
        writable(view.label),
        outer,
        nextstate,
        weight,
        arc,
        offsets,
        epsilons,
        kind,
        writable(machine.final),
        mask,
        rank,
        span[:used],
        *_rows(machine, view, buckets, position),
    )


def _arc_records(machine: Fst, view: SortedView) -> tuple[I32, I32, Weights]:
    """[E + V] outer labels, next states and weights as views of records: an arc is in one cache line."""
    arcs = machine.num_arcs
    record = np.empty((arcs + machine.num_states + SPARE_ROWS, 4), np.int32)
    weight = record[:, 2:].view(view.weight.dtype)[:, 0]
    outer, nextstate = record[:, 0], record[:, 1]
    joining.gather(view.other, view.nextstate, view.weight, outer, nextstate, weight)
    outer[arcs:] = nextstate[arcs:] = 0
    nextstate[arcs:-SPARE_ROWS] = np.arange(machine.num_states)
    weight[arcs:] = machine.semiring.one
    return outer, nextstate, weight


def _state_records(machine: Fst, view: SortedView, buckets: Buckets) -> tuple[Any, ...]:
    """Offsets, epsilons, kinds, and room for masks and ranks, as views of records likewise."""
    states, words = machine.num_states, buckets.words
    record = np.zeros((states + SPARE_ROWS, 2 + 2 * words), np.int64)
    record[: states + 1, 0] = machine.offsets
    record[states + 1 :, 0] = machine.num_arcs
    epsilons = record[:, 1:2].view(np.int32)[:, 0]
    kind = record[:, 1:2].view(np.int8)[:, 4]
    epsilons[:states] = view.epsilons
    kind[:states] = kinds(machine.offsets, view.epsilons, machine.final, machine.semiring.zero)
    mask = record[:, 2 : 2 + words].view(np.uint64)
    rank = record[:, 2 + words :]
    return record[:, 0], epsilons, kind, mask, rank


def _rows(
    machine: Fst, view: SortedView, buckets: Buckets, position: type
) -> tuple[I32, npt.NDArray[Any]]:
    """An index by label of the states with the most arcs, in as much memory as the arcs take."""
    row = np.full(machine.num_states + SPARE_ROWS, -1, np.int32)
    highest = min(buckets.words * WORD << buckets.shift, int(view.label.max(initial=0)))
    width = highest + 2
    degree = np.diff(machine.offsets)
    crowded = np.flatnonzero(degree >= max(LEAST_CROWDED, highest // CROWDED))
    if buckets.exact or not len(crowded):
        return row, np.empty((0, width), position)
    most = max(ROW_ENTRIES, machine.num_arcs) // width
    crowded = crowded[np.argsort(-degree[crowded], kind="stable")[:most]]
    row[crowded] = np.arange(len(crowded))
    first: npt.NDArray[Any] = np.empty((len(crowded), width), position)
    joining.index_by_label(machine.offsets, view.label, crowded, first)
    return row, first


def _check_size(a: Fst, b: Fst) -> None:
    for machine in (a, b):
        if machine.num_states > MOST_STATES:
            raise LimitError(
                "a machine has too many states to be composed",
                needed=f"{machine.num_states:,} states",
                allowed=f"{MOST_STATES:,} states",
                remedy="compose smaller machines",
            )
