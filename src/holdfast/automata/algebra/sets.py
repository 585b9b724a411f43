"""Machines as sets of strings: what two have in common, what one lacks, what neither has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from holdfast.automata.algebra import _kernels as kernels
from holdfast.automata.algebra.assembling import agreed_tables
from holdfast.automata.arguments import check_acceptor, invalid
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.memory import available_bytes, refuse_memory
from holdfast.automata.fst import EPS, Fst
from holdfast.automata.simplifying.epsilon_removal import rmepsilon
from holdfast.automata.simplifying.subsets.determinizing import determinize
from holdfast.automata.structure import connect as connected
from holdfast.errors import InputError

ARC_BYTES = 16


def intersect(
    a: Fst,
    b: Fst,
    connect: bool = True,
    *,
    filter: FilterName = "auto",
    max_states: int | None = None,
) -> Fst:
    """The strings that both acceptors accept, weights multiplied.

    Args:
        a: an acceptor.
        b: an acceptor.
        connect: leave out states from which no final state can be reached.
        filter: see `compose`.
        max_states: see `compose`.

    Raises:
        InputError: if a machine is not an acceptor, or semirings or symbol tables differ.
        LimitError: see `compose`.
    """
    for name, machine in (("A", a), ("B", b)):
        check_acceptor(machine, name)
    agreed_tables(a, b)
    return compose(a, b, connect, filter=filter, max_states=max_states)


def difference(a: Fst, b: Fst, connect: bool = True) -> Fst:
    """The strings of A, with their weights, that B does not accept.

    States are numbered in order of first occurrence, breadth first; arcs stay in the order of A.

    Args:
        a: an acceptor.
        b: an unweighted acceptor. It is made deterministic and free of epsilons if it is not.
        connect: leave out states from which no final state can be reached.

    Raises:
        InputError: if a machine is not an acceptor, B has weights, or semirings or symbol tables differ.
        LimitError: if B would be too large as a deterministic machine.
    """
    check_acceptor(a, "A")
    isymbols, osymbols = agreed_tables(a, b)
    if a.num_states == 0:
        return a
    dfa = language(b, "B")
    start = dfa.start if dfa.num_states else 0
    keys, offsets, arc, nextstate = kernels.subtract(
        a.offsets,
        a.ilabel,
        a.nextstate,
        a.start,
        dfa.offsets,
        dfa.by_ilabel.label,
        dfa.by_ilabel.nextstate,
        start,
    )
    of_a, of_b = np.divmod(keys, dfa.num_states + 1)
    accepted = np.append(dfa.final != dfa.semiring.zero, False)[of_b]
    final = np.where(accepted, a.final.dtype.type(a.semiring.zero), a.final[of_a])
    result = a.with_trusted(
        offsets=offsets,
        ilabel=a.ilabel[arc],
        olabel=a.olabel[arc],
        nextstate=nextstate,
        weight=a.weight[arc],
        final=final,
        start=0,
        isymbols=isymbols,
        osymbols=osymbols,
    )
    return connected(result) if connect else result


def complement(f: Fst, labels: Iterable[int]) -> Fst:
    """The strings over an alphabet that F does not accept, each with weight one.

    The result is deterministic and complete: each state has one arc for each label, in ascending order. Its
    states are those of F (made deterministic if it is not) and, numbered last, one that is never left.

    Args:
        f: an unweighted acceptor.
        labels: the alphabet, L labels; arcs of F with others are left out.

    Raises:
        InputError: if F is not an acceptor or has weights, or a label is below 1.
        LimitError: if F would be too large as a deterministic machine, or V * L arcs for the memory.
    """
    alphabet = np.unique(np.array(list(labels), np.int64))
    if len(alphabet) and alphabet[0] <= EPS:
        raise invalid("label", alphabet[0], "1 or more")
    dfa = language(f, "F")
    lost = dfa.num_states
    arcs = (lost + 1) * len(alphabet)
    needed, memory = arcs * ARC_BYTES, available_bytes()
    if needed > memory:
        remedy = "a smaller alphabet, or difference(), which does not need the complement"
        raise refuse_memory("the complement", needed, memory, f"{arcs:,} arcs", remedy)
    target = np.full((lost + 1, len(alphabet)), lost, np.int32)
    place = np.searchsorted(alphabet, dfa.ilabel)
    known = np.isin(dfa.ilabel, alphabet)
    target[dfa.source[known], place[known]] = dfa.nextstate[known]
    label = np.tile(alphabet.astype(np.int32), lost + 1)
    ring = f.semiring
    final = np.full(lost + 1, ring.one, ring.dtype)
    final[:lost][dfa.final != dfa.semiring.zero] = ring.zero
    return Fst.trusted(
        np.arange(lost + 2) * len(alphabet),
        label,
        label,
        target.ravel(),
        np.full(arcs, ring.one, ring.dtype),
        final,
        dfa.start if lost else 0,
        ring,
        f.isymbols,
        f.osymbols,
    )


def is_deterministic(f: Fst) -> bool:
    """Whether no state has two arcs with one input label, and no input label is epsilon."""
    label, source = f.by_ilabel.label, f.source
    twice = (label[1:] == label[:-1]) & (source[1:] == source[:-1])
    return not (f.by_ilabel.epsilons.any() or twice.any())


def language(f: Fst, name: str) -> Fst:
    """The strings of an unweighted acceptor, as a deterministic machine of the boolean semiring.

    Raises:
        InputError: if it is not an acceptor or has weights.
        LimitError: if it would be too large.
    """
    check_acceptor(f, name)
    ring = f.semiring
    weighted = np.flatnonzero((f.weight != ring.one) & (f.weight != ring.zero))
    finals = np.flatnonzero((f.final != ring.one) & (f.final != ring.zero))
    if len(weighted) or len(finals):
        raise InputError(
            f"{name} has weights, so it is not a set of strings",
            code="unsupported",
            place=f"arc {weighted[0]}" if len(weighted) else f"final state {finals[0]}",
            found=str(f.weight[weighted[0]] if len(weighted) else f.final[finals[0]]),
            expected=f"weights of {ring.one:g}, the one of the {ring.name} semiring",
            remedy="drop them with as_semiring('boolean') and back",
        )
    acceptor = f.as_semiring("boolean")
    if is_deterministic(acceptor) and (acceptor.weight != 0).all():
        return acceptor
    return determinize(rmepsilon(acceptor))
