"""The join of a frontier in torch: every arc that leaves a set of states of the composition, at once.

Both machines are read through one table of label groups: the arcs of a state with the same label stand
together in its sorted view, and (state, label) is an ascending key over the whole machine. A state of the
composition offers the groups of whichever of its two states has fewer; a binary search finds the partner of
each. Prefix sums turn group sizes into places, so nothing depends on the order in which a GPU works.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.automata.composition import filters
from holdfast.automata.composition.device_transfers import sent
from holdfast.automata.fst import Fst, SortedView
from holdfast.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

_SINGLE = 3  # A_ALONE, B_ALONE and BOTH_EPSILON: the moves that a state offers before its labels
_INT32 = 2**31 - 1


class Side(NamedTuple):
    """One machine on the device, by its matched labels; E arcs and, at position E, the absent arc."""

    nextstate: Tensor
    """i32[E + 1]"""
    other: Tensor
    """i32[E + 1] the label that the composition keeps; epsilon for the absent arc."""
    weight: Tensor
    """[E + 1] the semiring's one for the absent arc."""
    arc: Tensor
    """i32[E + 1] positions in the `Fst`; -1 for the absent arc."""
    final: Tensor
    """[V]"""

    @property
    def absent(self) -> int:
        """E, the position of the absent arc."""
        return len(self.arc) - 1


class Joined(NamedTuple):
    """The arcs that leave n states of the composition, in the order of its definition."""

    ends: Tensor
    """i64[n] where the arcs of each state end."""
    arc_a: Tensor
    """i32[m] positions in the sorted view of A."""
    arc_b: Tensor
    """i32[m] positions in the sorted view of B."""
    keys: Tensor
    """[m] the states that the arcs enter."""


class _Groups(NamedTuple):
    """Groups of equal labels, epsilon left out, of A's states and then of B's."""

    key: Tensor
    """[G + 1] (state, label) as one number, ascending; the last is larger than any."""
    label: Tensor
    begin: Tensor
    """i32[G + 1] in the sorted view of the machine that the state is of."""
    size: Tensor
    first: Tensor
    """i64[V1 + V2 + 1] where the groups of each state begin."""


class Joins:
    """Two machines on a device, ready to be joined at any states of their composition.

    A state (a, b, filter state f) is the number (a * V2 + b) * F + f, in 32 bits where all of them fit.
    """

    def __init__(self, a: Fst, b: Fst, filter: filters.FilterName, device: torch.device) -> None:
        left, right = a.by_olabel, b.by_ilabel
        table = filters.transitions(filter)
        self.has_epsilons = bool(left.epsilons.any() or right.epsilons.any())
        self.filter_states = table.shape[2] if self.has_epsilons else 1
        self.states_a, self.states_b = a.num_states, b.num_states
        self.keys = self.states_a * self.states_b * self.filter_states
        self.key_dtype = torch.int32 if self.keys <= _INT32 else torch.int64
        self.device = device
        self.a, self.b = _side(a, left, device), _side(b, right, device)
        self._labels = 1 + max(int(view.label.max(initial=0)) for view in (left, right))
        self._groups = _groups(a, b, self._labels, device)
        if self.has_epsilons:
            zero = a.semiring.zero
            self._kinds = tuple(
                sent(filters.kinds(machine.offsets, view.epsilons, machine.final, zero), device)
                for machine, view in ((a, left), (b, right))
            )
            self._epsilons = tuple(
                (sent(machine.offsets[:-1], device), sent(view.epsilons, device))
                for machine, view in ((a, left), (b, right))
            )
            self._table = sent(table.reshape(-1), device)

    def start(self, start_a: int, start_b: int) -> Tensor:
        """[1] the key of the start state."""
        key = (start_a * self.states_b + start_b) * self.filter_states
        return torch.full((1,), key, dtype=self.key_dtype, device=self.device)

    @property
    def no_states(self) -> Tensor:
        """[0] the keys of no states."""
        return torch.empty(0, dtype=self.key_dtype, device=self.device)

    def parts(self, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The states of A, the states of B and the filter states of keys, each [n]."""
        pair = torch.div(keys, self.filter_states, rounding_mode="floor")
        state_a = torch.div(pair, self.states_b, rounding_mode="floor")
        return state_a, pair - state_a * self.states_b, keys - pair * self.filter_states

    def expand(self, keys: Tensor, most: int) -> Joined | None:
        """The arcs that leave the states `keys` [n]; None if they are more than `most` and n > 1.

        Synchronises with the device twice: for the number of groups and for the number of arcs.
        """
        groups = self._groups
        state_a, state_b, memory = self.parts(keys)
        below, first_a = groups.first[state_b + self.states_a], groups.first[state_a]
        count_a = groups.first[state_a + 1] - first_a
        count_b = groups.first[state_b + self.states_a + 1] - below
        from_a = count_a <= count_b
        single = _SINGLE if self.has_epsilons else 0
        slots = torch.minimum(count_a, count_b) + single
        slot_ends = slots.cumsum(0)
        total = int(slot_ends[-1])
        row = torch.repeat_interleave(
            torch.arange(len(keys), device=self.device), slots, output_size=total
        )
        move = torch.arange(total, device=self.device) - (slot_ends - slots)[row]
        group = (torch.where(from_a, first_a, below)[row] + move - single).clamp_(min=0)
        partner = torch.where(from_a, state_b + self.states_a, state_a)[row]
        wanted = partner.to(groups.key.dtype) * self._labels + groups.label[group]
        found = torch.searchsorted(groups.key, wanted)
        hit = groups.key[found] == wanted
        from_a = from_a[row]
        group_a, group_b = torch.where(from_a, group, found), torch.where(from_a, found, group)
        begin_a, span_a = groups.begin[group_a], groups.size[group_a]
        begin_b, span_b = groups.begin[group_b], groups.size[group_b]
        del group, group_a, group_b, partner, wanted, found, from_a
        then = None
        if self.has_epsilons:
            move.clamp_(max=filters.MATCH)
            labelled = move == filters.MATCH
            (eps_begin_a, eps_a), (eps_begin_b, eps_b) = self._epsilons
            place_a, place_b = state_a[row], state_b[row]
            begin_a = torch.where(labelled, begin_a, eps_begin_a[place_a].to(torch.int32))
            begin_b = torch.where(labelled, begin_b, eps_begin_b[place_b].to(torch.int32))
            span_a = torch.where(labelled, span_a, eps_a[place_a])
            span_b = torch.where(labelled, span_b, eps_b[place_b])
            b_alone, a_alone = move == filters.B_ALONE, move == filters.A_ALONE
            begin_a = begin_a.masked_fill(b_alone, self.a.absent)
            span_a = span_a.masked_fill(b_alone, 1)
            begin_b = begin_b.masked_fill(a_alone, self.b.absent)
            span_b = span_b.masked_fill(a_alone, 1)
            then = self._table[self._row_of_table(state_a, state_b, memory)[row] + move]
            hit = (hit | ~labelled) & (then != filters.BLOCKED)
        sizes = (span_a.to(torch.int64) * span_b).masked_fill_(~hit, 0)
        ends = sizes.cumsum(0)
        arcs = int(ends[-1]) if total else 0
        if arcs > most and len(keys) > 1:
            return None
        slot = torch.repeat_interleave(
            torch.arange(total, device=self.device), sizes, output_size=arcs
        )
        inner = torch.arange(arcs, device=self.device) - (ends - sizes)[slot]
        width = span_b[slot]
        in_a = torch.div(inner, width, rounding_mode="floor")
        arc_a = (begin_a[slot] + in_a).to(torch.int32)
        arc_b = (begin_b[slot] + (inner - in_a * width)).to(torch.int32)
        del inner, in_a, width
        row = row[slot]
        entered = self._entered(self.a, arc_a, state_a, row) * self.states_b
        entered += self._entered(self.b, arc_b, state_b, row)
        entered *= self.filter_states
        if then is not None:
            entered += then[slot]
        state_ends = torch.cat([ends.new_zeros(1), ends])[slot_ends]
        return Joined(state_ends, arc_a, arc_b, entered)

    def _entered(self, side: Side, arc: Tensor, state: Tensor, row: Tensor) -> Tensor:
        entered = side.nextstate.index_select(0, arc).to(self.key_dtype)
        if self.has_epsilons:  # who does not move stays
            entered = torch.where(arc == side.absent, state[row], entered)
        return entered

    def _row_of_table(self, state_a: Tensor, state_b: Tensor, memory: Tensor) -> Tensor:
        kind_a, kind_b = (
            kinds[state].to(torch.int64)
            for kinds, state in zip(self._kinds, (state_a, state_b), strict=True)
        )
        cell = (kind_a * filters.KINDS + kind_b) * self.filter_states + memory
        return cell * filters.MOVES


def _side(machine: Fst, view: SortedView, device: torch.device) -> Side:
    one = machine.semiring.one
    return Side(
        _with(view.nextstate, 0, device),
        _with(view.other, 0, device),
        _with(view.weight, one, device),
        _with(view.arc.astype(np.int32), -1, device),
        sent(machine.final, device),
    )


def _with(array: np.ndarray, last: float, device: torch.device) -> Tensor:
    return torch.nn.functional.pad(sent(array, device), (0, 1), value=last)


def _groups(a: Fst, b: Fst, labels: int, device: torch.device) -> _Groups:
    count = a.num_states + b.num_states
    dtype = torch.int32 if (count + 1) * labels <= _INT32 else torch.int64
    keys, begins, sizes = [], [], []
    for machine, view, before in ((a, a.by_olabel, 0), (b, b.by_ilabel, a.num_states)):
        state = sent(machine.source, device).to(dtype) + before
        arc_key = state * labels + sent(view.label, device)
        key, size = torch.unique_consecutive(arc_key, return_counts=True)
        keys.append(key)
        sizes.append(size)
        begins.append(size.cumsum(0) - size)
    key, begin, size = torch.cat(keys), torch.cat(begins), torch.cat(sizes)
    labelled = key % labels != 0
    key, begin, size = key[labelled], begin[labelled], size[labelled]
    states = torch.arange(count + 1, device=device, dtype=dtype)
    first = torch.searchsorted(key, states * labels)
    key = torch.cat([key, key.new_full((1,), torch.iinfo(dtype).max)])
    return _Groups(
        key,
        key % labels,
        torch.nn.functional.pad(begin, (0, 1)).to(torch.int32),
        torch.nn.functional.pad(size, (0, 1)).to(torch.int32),
        first,
    )
