"""OpenFST's text: what `fstcompile` reads and `fstprint` writes.

A line is an arc, `source destination ilabel olabel [weight]`, or a final state, `state [weight]`; columns
stand between tabs or spaces, a weight that is one may be left out, and the first line's state is the start.
In the acceptor form an arc has one label. Numbers of states are kept, so that a machine written and read is
the same machine; `fstcompile` keeps them with `--keep_state_numbering` and else numbers states in the order
in which the text names them, which `renumber` does here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as kernels
from holdfast.automata.arguments import check_acceptor
from holdfast.automata.formats.columns import (
    Strings,
    chosen,
    left_out,
    lines_of,
    merged,
    text_from,
    text_of,
)
from holdfast.automata.formats.tokens import I64, Lines, labels_of, parts
from holdfast.automata.fst import I32, Fst, Weights
from holdfast.automata.semirings import Semiring, semiring_of
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError

_GAPS = 1_000_000
"""States that a text may have without naming them, before it is taken for an error."""
_TABLES = "symbols need a table: holdfast fst compile --isymbols FILE (isymbols=, osymbols=)"
_PART = 200_000
"""Arcs, or states, that are written at a time: lines take many times the room of a machine."""


def parse(
    text: str,
    semiring: str | Semiring = "tropical",
    *,
    isymbols: SymbolTable | None = None,
    osymbols: SymbolTable | None = None,
    acceptor: bool = False,
    renumber: bool = False,
    path: str | None = None,
) -> Fst:
    """Parse a machine in OpenFST's text format.

    Args:
        text: the lines; blank ones are skipped. A state's last final weight counts; one that is the
            semiring's zero (Infinity) makes a state that is not final.
        semiring: semiring of the weights.
        isymbols: names of the input labels; without it the labels are numbers.
        osymbols: names of the output labels; not needed for an acceptor.
        acceptor: arcs have one label.
        renumber: number states in the order in which the text names them, the default of `fstcompile`.
        path: the file, for messages.

    Raises:
        InputError: with the line: too many or too few columns, a label or state that is not a number of
            at least 0, a symbol that is not in the table, an invalid weight.
    """
    ring = semiring_of(semiring)
    if acceptor and osymbols is None:
        osymbols = isymbols
    read = [_columns(lines, ring, isymbols, osymbols, acceptor) for lines in parts(text, path)]
    if not read:
        return Fst.empty(ring, isymbols, osymbols)
    columns = _Columns(*map(np.concatenate, zip(*read, strict=True)))
    if renumber:
        columns = _renumbered(columns)
    return _machine(columns, ring, isymbols, osymbols, path)


class _Columns(NamedTuple):
    """The L lines of a text, A of them arcs."""

    source: I64
    """[L] the state that an arc leaves, or that is final."""
    is_arc: npt.NDArray[np.bool_]
    """[L]"""
    weight: Weights
    """[L]"""
    nextstate: I32
    """[A]"""
    ilabel: I32
    """[A]"""
    olabel: I32
    """[A]"""


def _columns(
    lines: Lines,
    ring: Semiring,
    isymbols: SymbolTable | None,
    osymbols: SymbolTable | None,
    acceptor: bool,
) -> _Columns:
    labels = 1 if acceptor else 2
    _check_columns(lines, labels)
    is_arc = lines.columns > 2
    arcs, ends = np.flatnonzero(is_arc), np.flatnonzero(~is_arc)
    weight = np.empty(len(lines), ring.dtype)
    weight[arcs] = _weights(lines, arcs, 2 + labels, ring)
    weight[ends] = _weights(lines, ends, 1, ring)
    source = lines.integers(np.arange(len(lines)), 0, "state")
    nextstate = lines.integers(arcs, 1, "state").astype(np.int32)
    ilabel = _labels(lines, arcs, 2, isymbols)
    olabel = ilabel if acceptor else _labels(lines, arcs, 3, osymbols)
    return _Columns(source, is_arc, weight, nextstate, ilabel, olabel)


def _machine(
    columns: _Columns,
    ring: Semiring,
    isymbols: SymbolTable | None,
    osymbols: SymbolTable | None,
    path: str | None,
) -> Fst:
    source, is_arc, weight, nextstate, ilabel, olabel = columns
    count = int(max(source.max(), nextstate.max(initial=0))) + 1
    if count > _GAPS + 2 * len(source):
        raise InputError(
            "most states between the lowest and the highest number do not occur",
            code="out-of-range",
            path=path,
            found=f"{count:,} states in {len(source):,} lines",
            expected="numbers of states without large gaps",
            remedy="number the states as they occur: renumber=True, or holdfast fst compile --renumber",
        )
    final = np.full(count, ring.zero, ring.dtype)
    final[source[~is_arc]] = weight[~is_arc]
    offsets, order = kernels.counting_order(source[is_arc], count)
    return Fst.trusted(
        offsets,
        ilabel[order],
        olabel[order],
        nextstate[order],
        weight[is_arc][order],
        final,
        int(source[0]),
        ring,
        isymbols,
        osymbols,
    )


def render(f: Fst, acceptor: bool | None = None) -> str:
    """Format a machine as `fstprint` does: the start state's lines, then the others' in order.

    Weights have enough digits to be read back exactly. Labels are written as symbols where the machine has
    symbol tables.

    Args:
        f: the machine.
        acceptor: one label per line; None and False write both, the default of `fstprint`.

    Raises:
        InputError: if a label has no symbol, or `acceptor` is set and the machine is not an acceptor.
    """
    if acceptor:
        check_acceptor(
            f, "the machine", "write it with both labels, or project it to one side first"
        )
    if not f.num_states:
        return ""
    return "".join(_lines(f, first, last, bool(acceptor)) for first, last in _ranges(f))


def _ranges(f: Fst) -> Iterator[tuple[int, int]]:
    """Ranges of states in the order of the text, each with some `_PART` arcs."""
    yield f.start, f.start + 1
    for first, end in ((0, f.start), (f.start + 1, f.num_states)):
        while first < end:
            arcs = f.offsets[first] + _PART
            last = min(max(int(np.searchsorted(f.offsets, arcs)), first + 1), first + _PART, end)
            yield first, last
            first = last


def _lines(f: Fst, first: int, last: int, acceptor: bool) -> str:
    """The lines of the states from `first` up to `last`."""
    offsets = f.offsets[first : last + 1]
    arcs = slice(offsets[0], offsets[-1])
    columns = [text_of(f.source[arcs]), text_of(f.nextstate[arcs])]
    columns.append(_symbols(f.ilabel[arcs], f.isymbols))
    if not acceptor:
        columns.append(_symbols(f.olabel[arcs], f.osymbols))
    final = f.final[first:last]
    ends = np.flatnonzero((final != f.semiring.zero) | (np.diff(offsets) == 0))
    arc_lines = lines_of([*columns, _weight_text(f.weight[arcs], f.semiring)], "\t")
    end_lines = lines_of([text_of(ends + first), _weight_text(final[ends], f.semiring)], "\t")
    # Each state's own line follows its arcs.
    at_end = offsets[1:][ends] - offsets[0] + np.arange(len(ends))
    is_end = np.zeros(len(arc_lines) + len(ends), bool)
    is_end[at_end] = True
    order = np.where(is_end, len(arc_lines) - 1 + np.cumsum(is_end), np.cumsum(~is_end) - 1)
    return text_from(merged(arc_lines, end_lines, order))


def _check_columns(lines: Lines, labels: int) -> None:
    wrong = (lines.columns > labels + 3) | ((lines.columns > 2) & (lines.columns < labels + 2))
    if not wrong.any():
        return
    bad = int(np.argmax(wrong))
    names = "label" if labels == 1 else "ilabel olabel"
    raise lines.error(
        bad,
        "wrong number of columns",
        found=f"{lines.columns[bad]} columns",
        expected=f"source destination {names} [weight], or state [weight]",
        remedy="holdfast fst compile --acceptor (acceptor=True) reads arcs with one label"
        if labels == 2 and lines.columns[bad] == 3
        else "arcs of an acceptor have one label, others two",
    )


def _labels(lines: Lines, arcs: I64, at: int, symbols: SymbolTable | None) -> I32:
    if symbols is None:
        return lines.integers(arcs, at, "label", remedy=_TABLES).astype(np.int32)
    return labels_of(lines, arcs, at, symbols.labels, symbols.name).astype(np.int32)


def _weights(lines: Lines, chosen: I64, at: int, ring: Semiring) -> Weights:
    """[len(chosen)] the weights in column `at`; one where a line ends before it."""
    made = np.full(len(chosen), ring.one, ring.dtype)
    rows = np.flatnonzero(lines.columns[chosen] > at)
    weights = lines.weights(chosen[rows], at)
    if not ring.is_negative_log and (weights < 0).any():
        bad = int(np.argmax(weights < 0))
        raise lines.error(
            chosen[rows[bad]],
            "invalid weight",
            found=str(weights[bad]),
            expected=f"a weight of the {ring.name} semiring, 0 or more",
        )
    with np.errstate(over="ignore"):
        made[rows] = weights
    return made


def _renumbered(columns: _Columns) -> _Columns:
    """The states numbered in the order in which the text names them."""
    arcs = np.flatnonzero(columns.is_arc)
    named = np.insert(columns.source, arcs + 1, columns.nextstate)
    states, first, number = np.unique(named, return_index=True, return_inverse=True)
    rank = np.empty(len(states), np.int64)
    rank[np.argsort(first)] = np.arange(len(states))
    made = rank[number]
    is_destination = np.zeros(len(named), bool)
    is_destination[arcs + 1 + np.arange(len(arcs))] = True
    return columns._replace(
        source=made[~is_destination], nextstate=made[is_destination].astype(np.int32)
    )


def _weight_text(weights: Weights, ring: Semiring) -> Strings:
    return left_out(text_of(weights), weights == ring.one)


def _symbols(labels: I32, symbols: SymbolTable | None) -> Strings:
    if symbols is None:
        return text_of(labels)
    known = np.array(sorted(symbols.symbols), np.int64)
    at = np.searchsorted(known, labels)
    missing = known[np.minimum(at, len(known) - 1)] != labels if len(known) else labels >= 0
    if missing.any():
        raise InputError(
            "a label has no symbol",
            code="unknown-name",
            found=str(int(labels[np.argmax(missing)])),
            expected=f"one of the {len(known)} labels of table {symbols.name!r}",
            remedy="give the label a symbol, or write the machine without symbols",
        )
    return chosen([symbols.symbols[label] for label in known.tolist()], at)
