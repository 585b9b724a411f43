"""What larger machines are put together with: machines side by side, states and epsilon arcs added."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata.fst import EPS, Fst
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError


def agreed_tables(a: Fst, b: Fst) -> tuple[SymbolTable | None, SymbolTable | None]:
    """The input and output symbols of two machines that share them.

    Raises:
        InputError: if the semirings differ, or both have a table and the tables differ.
    """
    check_semirings(a, b)
    return (
        agreed_table("input symbols of the machines", a.isymbols, b.isymbols),
        agreed_table("output symbols of the machines", a.osymbols, b.osymbols),
    )


def check_semirings(a: Fst, b: Fst) -> None:
    """Nothing, if both machines have weights of one semiring.

    Raises:
        InputError: if not.
    """
    if a.semiring != b.semiring:
        raise InputError(
            "the semirings differ",
            code="conflict",
            found=f"{a.semiring.name} and {b.semiring.name}",
            expected="one semiring",
            remedy="convert one machine with as_semiring()",
        )


def agreed_table(what: str, a: SymbolTable | None, b: SymbolTable | None) -> SymbolTable | None:
    """The table of two that must be the same, if there is one.

    Raises:
        InputError: naming the first label on which they differ.
    """
    if a is None or b is None or a is b or a.symbols == b.symbols:
        return b if a is None else a
    label = min(
        label
        for label in a.symbols.keys() | b.symbols.keys()
        if a.symbols.get(label) != b.symbols.get(label)
    )
    raise InputError(
        f"the {what} differ",
        code="conflict",
        place=f"label {label}",
        found=f"{a.symbols.get(label)!r} and {b.symbols.get(label)!r}",
        expected="one symbol",
        remedy="relabel one machine, or drop its table with with_(isymbols=None, osymbols=None)",
    )


def beside(a: Fst, b: Fst) -> Fst:
    """Both machines as one, not connected: the states of B follow those of A, whose start it has."""
    isymbols, osymbols = agreed_tables(a, b)
    return Fst.trusted(
        np.concatenate((a.offsets, b.offsets[1:] + a.num_arcs)),
        np.concatenate((a.ilabel, b.ilabel)),
        np.concatenate((a.olabel, b.olabel)),
        np.concatenate((a.nextstate, b.nextstate + np.int32(a.num_states))),
        np.concatenate((a.weight, b.weight)),
        np.concatenate((a.final, b.final)),
        a.start,
        a.semiring,
        isymbols,
        osymbols,
    )


def with_state(machine: Fst, final: float) -> Fst:
    """One state more, without arcs and numbered last."""
    return machine.with_trusted(
        offsets=np.append(machine.offsets, machine.num_arcs),
        final=np.append(machine.final, machine.final.dtype.type(final)),
    )


def with_epsilons(machine: Fst, source: Any, target: Any, weight: Any) -> Fst:
    """Epsilon arcs added behind the other arcs of their states.

    Args:
        machine: the machine.
        source: [N] states that the arcs leave, ascending.
        target: [N] states that they enter, or one for all.
        weight: [N] their weights, or one for all.
    """
    at = machine.offsets[np.asarray(source) + 1]
    added = np.bincount(source, minlength=machine.num_states)
    offsets = machine.offsets.copy()
    offsets[1:] += np.cumsum(added)
    return machine.with_trusted(
        offsets=offsets,
        ilabel=np.insert(machine.ilabel, at, EPS),
        olabel=np.insert(machine.olabel, at, EPS),
        nextstate=np.insert(machine.nextstate, at, target),
        weight=np.insert(machine.weight, at, weight),
    )
