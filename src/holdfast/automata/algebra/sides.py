"""What changes the arcs where they stand: sides exchanged, one side kept, arcs sorted, all turned round."""

from __future__ import annotations

from typing import Literal

import numpy as np

from holdfast.automata import _kernels as kernels
from holdfast.automata.arguments import invalid
from holdfast.automata.fst import EPS, Fst
from holdfast.automata.structure import topological_order
from holdfast.errors import InputError


def invert(f: Fst) -> Fst:
    """Input and output exchanged, the symbol tables too."""
    return f.with_trusted(
        ilabel=f.olabel, olabel=f.ilabel, isymbols=f.osymbols, osymbols=f.isymbols
    )


def project(f: Fst, side: Literal["input", "output"] = "input") -> Fst:
    """The acceptor of the strings of one side.

    Raises:
        InputError: if `side` is neither.
    """
    if side == "input":
        return f.with_trusted(olabel=f.ilabel, osymbols=f.isymbols)
    if side == "output":
        return f.with_trusted(ilabel=f.olabel, isymbols=f.osymbols)
    raise invalid("side", repr(side), "input or output", code="invalid-value")


def arcsort(f: Fst, by: Literal["ilabel", "olabel"] = "ilabel") -> Fst:
    """The arcs of each state in ascending order of one label, equal labels as they stood.

    No operation needs it: each sorts for itself what it must and remembers it (`Fst.by_ilabel`). A file for
    another program may have to be sorted.

    Raises:
        InputError: if `by` is neither.
    """
    if by not in ("ilabel", "olabel"):
        raise invalid("label side", repr(by), "ilabel or olabel", code="invalid-value")
    view = f.by_ilabel if by == "ilabel" else f.by_olabel
    if view.label is (f.ilabel if by == "ilabel" else f.olabel):
        return f
    ilabel, olabel = (view.label, view.other) if by == "ilabel" else (view.other, view.label)
    return f.with_trusted(
        ilabel=ilabel, olabel=olabel, nextstate=view.nextstate, weight=view.weight
    )


def topsort(f: Fst) -> Fst:
    """The states numbered so that every arc leads to a higher one; the arcs of a state keep their order.

    Raises:
        InputError: if there is a cycle.
    """
    order = topological_order(f)
    if order is None:
        raise InputError(
            "a transducer with cycles has no topological order",
            code="cyclic",
            expected="no cycle, on useful states or others",
            remedy="connect() removes cycles that are on no path to a final state",
        )
    number = np.empty(f.num_states, np.int32)
    number[order] = np.arange(f.num_states)
    degree = np.diff(f.offsets)[order]
    offsets = np.concatenate(([0], np.cumsum(degree)))
    arc = np.arange(f.num_arcs) + np.repeat(f.offsets[order] - offsets[:-1], degree)
    return f.with_trusted(
        offsets=offsets,
        ilabel=f.ilabel[arc],
        olabel=f.olabel[arc],
        nextstate=number[f.nextstate[arc]],
        weight=f.weight[arc],
        final=f.final[order],
        start=int(number[f.start]) if f.num_states else f.start,
    )


def reverse(f: Fst) -> Fst:
    """Every path backwards: strings of both sides reversed, weights kept.

    State s becomes s + 1. State 0 is a new start, with an epsilon arc for each final state that carries the
    final weight; the old start is the one final state, with weight one.
    """
    if f.num_states == 0:
        return f
    ends = np.flatnonzero(f.final != f.semiring.zero)
    offsets, order = kernels.counting_order(f.nextstate, f.num_states)
    none = np.full(len(ends), EPS, np.int32)
    final = np.full(f.num_states + 1, f.semiring.zero, f.final.dtype)
    final[f.start + 1] = f.semiring.one
    return f.with_trusted(
        offsets=np.concatenate(([0], offsets + len(ends))),
        ilabel=np.concatenate((none, f.ilabel[order])),
        olabel=np.concatenate((none, f.olabel[order])),
        nextstate=np.concatenate((ends, f.source[order])).astype(np.int32) + np.int32(1),
        weight=np.concatenate((f.final[ends], f.weight[order])),
        final=final,
        start=0,
    )
