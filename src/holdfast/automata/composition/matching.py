"""One machine as a side of a composition: its arcs sorted by the inner label, and an index of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition.filters import kinds
from holdfast.automata.fst import I32, I64, Fst, SortedView, Weights

WORD = 64
# A table from label to bucket is used up to this many labels more than there are arcs.
SPARE_LABELS = 1 << 22


class Buckets(NamedTuple):
    """The labels that both machines have, spread in ascending order over the bits of a state's mask."""

    labels: I32
    """[K] the common labels but epsilon, ascending."""
    words: int
    """Words of 64 bits in a state's mask."""
    shift: int
    """Bucket = position in `labels` >> shift; 0 means that a bucket holds a single label."""


class Side(NamedTuple):
    """One machine of a composition; E arcs and after them V arcs that stay, one a state.

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
    """[V * words] bit b is set if the state has arcs in bucket b."""
    rank: I32
    """[V * words] the row of `span` for the lowest bit of each word."""
    span: npt.NDArray[Any]
    """[buckets in use, 2] the first arc of a state in a bucket, and one past the last."""


def sides(a: Fst, b: Fst, mapped: bool) -> tuple[Side, Side, Buckets]:
    """Both machines, prepared to be matched: A by its output labels, B by its input labels."""
    left, right = a.by_olabel, b.by_ilabel
    buckets = common_buckets(left.label, right.label)
    return _side(a, left, buckets, mapped), _side(b, right, buckets, mapped), buckets


def common_buckets(left: I32, right: I32) -> Buckets:
    """The labels that occur on both sides, and how masks hold them."""
    labels = _common(left, right)
    if len(labels) <= 2 * WORD:
        return Buckets(labels, 1 if len(labels) <= WORD else 2, 0)
    shift = 0
    while (len(labels) - 1) >> shift >= WORD:
        shift += 1
    return Buckets(labels, 1, shift)


def _common(left: I32, right: I32) -> I32:
    if not len(left) or not len(right):
        return np.empty(0, np.int32)
    size = min(int(left.max()), int(right.max())) + 1
    if size > len(left) + len(right) + SPARE_LABELS:
        common = np.intersect1d(left, right)
        return common[common != 0]
    seen = kernels.labels_seen(left, size)
    seen &= kernels.labels_seen(right, size)
    seen[0] = False
    return np.flatnonzero(seen).astype(np.int32)


def _side(machine: Fst, view: SortedView, buckets: Buckets, mapped: bool) -> Side:
    bucket = _bucket_of_arcs(view.label, buckets)
    small = machine.num_arcs < 2**31 - 1
    mask, rank, span = kernels.index(machine.offsets, bucket, buckets.words)
    stays = np.arange(machine.num_states, dtype=np.int32)
    none = np.zeros(machine.num_states, np.int32)
    position = np.int32 if small else np.int64
    return Side(
        view.label,
        np.concatenate([view.other, none]),
        np.concatenate([view.nextstate, stays]),
        np.concatenate(
            [view.weight, np.full(machine.num_states, machine.semiring.one, view.weight.dtype)]
        ),
        np.concatenate([view.arc.astype(position), none.astype(position) - 1])
        if mapped
        else np.empty(0, position),
        machine.offsets,
        view.epsilons,
        kinds(machine.offsets, view.epsilons, machine.final, machine.semiring.zero),
        machine.final,
        mask,
        rank,
        span.astype(position),
    )


def _bucket_of_arcs(label: I32, buckets: Buckets) -> I32:
    """[E] the bucket of each arc, -1 for labels that cannot match."""
    labels = buckets.labels
    if not len(labels):
        return np.full(len(label), -1, np.int32)
    rank = np.arange(len(labels), dtype=np.int32) >> buckets.shift
    highest = int(labels[-1])
    if highest <= len(label) + SPARE_LABELS:
        table = np.full(highest + 2, -1, np.int32)
        table[labels] = rank
        return table[np.minimum(label, highest + 1)]
    found = np.minimum(np.searchsorted(labels, label), len(labels) - 1)
    return np.where(labels[found] == label, rank[found], np.int32(-1))
