"""Arcs that give several output labels at once, written as chains of arcs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.automata.fst import I32, Fst
from holdfast.automata.simplifying.string_kernels import spelled


class Outputs(NamedTuple):
    """The output of arcs and of final states as strings."""

    strings: I32
    """[N, 3] a tree: parent, last label, length of each string; string 0 is the empty one."""
    arc: I32
    """[E] the string of each arc."""
    final: I32
    """[V] the string that ends with each final state."""


def spelled_out(f: Fst, outputs: Outputs) -> Fst:
    """The machine whose arcs give their strings.

    An arc keeps its input label, its weight and the first label of its string; the others follow on new
    states, with input epsilon. So does what a final state gives, with its weight on the last state.
    """
    length = outputs.strings[:, 2]
    one = f.semiring.one
    many = np.flatnonzero(length[outputs.arc] > 1)
    ends = np.flatnonzero((length[outputs.final] > 0) & (f.final != f.semiring.zero))
    first = _first_labels(outputs.strings)
    olabel = first[outputs.arc]
    nextstate = f.nextstate.copy()
    final = f.final.tolist()
    extra: list[tuple[int, int, int]] = []  # source, olabel, nextstate
    for arc in many.tolist():
        labels = spelled(outputs.strings, outputs.arc[arc], 0)[1:].tolist()
        target = int(nextstate[arc])
        nextstate[arc] = len(final)
        for at, label in enumerate(labels):
            state = len(final)
            final.append(f.semiring.zero)
            extra.append((state, label, target if at == len(labels) - 1 else state + 1))
    for end in ends.tolist():
        weight, final[end] = final[end], f.semiring.zero
        state = end
        for label in spelled(outputs.strings, outputs.final[end], 0).tolist():
            extra.append((state, label, len(final)))
            state = len(final)
            final.append(f.semiring.zero)
        final[state] = weight
    source = np.array([arc[0] for arc in extra], np.int32)
    all_sources = np.concatenate([f.source, source])
    order = np.argsort(all_sources, kind="stable")
    offsets = np.zeros(len(final) + 1, np.int64)
    np.cumsum(np.bincount(all_sources, minlength=len(final)), out=offsets[1:])

    def joined(old: I32, new: list[int]) -> I32:
        return np.concatenate([old, np.array(new, np.int32)])[order]

    return f.with_trusted(
        offsets=offsets,
        ilabel=joined(f.ilabel, [0] * len(extra)),
        olabel=joined(olabel, [arc[1] for arc in extra]),
        nextstate=joined(nextstate, [arc[2] for arc in extra]),
        weight=np.concatenate([f.weight, np.full(len(extra), one, f.weight.dtype)])[order],
        final=np.array(final, f.final.dtype),
    )


def _first_labels(strings: I32) -> I32:
    """[N] the first label of each string, 0 for the empty one; parents come before their children."""
    first = np.zeros(len(strings), np.int32)
    for node in range(1, len(strings)):
        parent = strings[node, 0]
        first[node] = first[parent] if parent else strings[node, 1]
    return first
