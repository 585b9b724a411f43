"""Labels that no arc tells apart count as one: the 256 bytes of a regular expression are often ten."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as sorting
from holdfast.automata.fst import I32, I64, Weights
from holdfast.automata.simplifying import _kernels as kernels


class Expanded(NamedTuple):
    """Arcs by label."""

    offsets: I64
    """[V + 1]"""
    label: npt.NDArray[np.integer]
    """[E]"""
    nextstate: I32
    """[E]"""
    weight: Weights
    """[E]"""
    origin: I64
    """[E] the arc by group that each was."""


class Alphabet(NamedTuple):
    """The labels of a machine in groups: two labels of a group have arcs between the same states."""

    labels: I64 | I32
    """[L] the labels that occur, ascending."""
    place: I32
    """[E] where in `labels` the label of each arc stands."""
    group: I32
    """[L] the group of each label; groups are numbered by their lowest label."""
    offsets: I64
    """[G + 1] where the members of each group begin in `members`."""
    members: I64
    """[L] places of labels, by group, ascending in each."""

    @property
    def representatives(self) -> npt.NDArray[np.bool_]:
        """[E] the arcs whose label is the lowest of its group: they tell of the others too."""
        lowest = np.zeros(len(self.labels), np.bool_)
        lowest[self.members[self.offsets[:-1]]] = True
        return lowest[self.place]

    def expanded(self, offsets: I64, group: I32, nextstate: I32, weight: Weights) -> Expanded:
        """Arcs by group become arcs by label, ascending in each state; each group once in a state."""
        if len(self.members) == len(self.offsets) - 1:  # every label is a separate group
            return Expanded(
                offsets,
                self.labels[group],
                nextstate,
                weight,
                np.arange(len(group), dtype=np.int64),
            )
        return Expanded(
            *kernels.expand(
                offsets,
                group,
                nextstate,
                weight,
                self.labels,
                self.group,
                self.offsets,
                self.members,
            )
        )


def alphabet_of(
    label: npt.NDArray[Any], source: I32, nextstate: I32, value: npt.NDArray[Any]
) -> Alphabet:
    """The labels of arcs, grouped.

    Args:
        label: [E] whole numbers, 0 or more.
        source: [E] the state that each arc leaves.
        nextstate: [E] the state that it enters.
        value: [E] of 8 bytes: what else tells arcs apart, such as the weight.

    Returns:
        The groups. Labels are compared by 128 bits of hashes of their arcs.
    """
    labels, place = _occurring(label)
    keys = kernels.signatures(source, place, nextstate, value.view(np.int64), len(labels))
    order = np.lexsort(keys)  # stable: the lowest label of equal ones comes first
    first, second = (key[order] for key in keys)
    begins = np.ones(len(labels), np.bool_)
    begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    lowest = np.empty(len(labels), np.int64)
    lowest[order] = order[begins][np.cumsum(begins) - 1]
    group = np.unique(lowest, return_inverse=True)[1].astype(np.int32)
    offsets, members = sorting.counting_order(group, int(begins.sum()))
    return Alphabet(labels, place, group, offsets, members)


def _occurring(label: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], I32]:
    highest = int(label.max(initial=0))
    if highest <= 4 * len(label) + 1024:
        occurring: tuple[I32, I32] = kernels.dense_labels(label, highest)
        return occurring
    labels, place = np.unique(label, return_inverse=True)
    return labels, place.astype(np.int32)
