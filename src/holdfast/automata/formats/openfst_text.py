"""OpenFST's text: what `fstcompile` reads and `fstprint` writes.

A line is an arc, `source destination ilabel olabel [weight]`, or a final state, `state [weight]`; columns
stand between tabs or spaces, a weight that is one may be left out, and the first line's state is the start.
In the acceptor form an arc has one label. Numbers of states are kept, so that a machine written and read is
the same machine; `fstcompile` keeps them with `--keep_state_numbering` and else numbers states in the order
in which the text names them, which `renumber` does here.
"""

from __future__ import annotations

import numpy as np

from holdfast.automata import _kernels as kernels
from holdfast.automata.formats.columns import (
    Strings,
    chosen,
    left_out,
    lines_of,
    merged,
    text_from,
    text_of,
)
from holdfast.automata.formats.tokens import I64, Lines, cut, labels_of
from holdfast.automata.fst import I32, Fst, Weights
from holdfast.automata.semirings import Semiring, semiring_of
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError

_GAPS = 1_000_000
"""States that a text may have without naming them, before it is taken for an error."""


def parse(
    text: str,
    semiring: str | Semiring = "log",
    *,
    isymbols: SymbolTable | None = None,
    osymbols: SymbolTable | None = None,
    acceptor: bool = False,
    renumber: bool = False,
    path: str | None = None,
) -> Fst:
    """A machine from OpenFST's text.

    Args:
        text: the lines; blank ones are skipped. A state's last final weight counts; one that is the
            semiring's zero (Infinity) makes a state that is not final.
        semiring: of the weights.
        isymbols: names of the input labels; without it the labels are numbers.
        osymbols: names of the output labels, and not needed in an acceptor.
        acceptor: arcs have one label.
        renumber: number states as the text first names them, as `fstcompile` does unless told otherwise.
        path: the file, for messages.

    Raises:
        InputError: naming the line: too many or few columns, a label or state that is no number of at
            least 0, a symbol that the table has not, a weight that is none of the semiring.
    """
    ring = semiring_of(semiring)
    if acceptor and osymbols is None:
        osymbols = isymbols
    lines = cut(text, path)
    if not len(lines):
        return Fst.empty(ring, isymbols, osymbols)
    labels = 1 if acceptor else 2
    _check_columns(lines, labels)
    arcs, ends = np.flatnonzero(lines.columns > 2), np.flatnonzero(lines.columns <= 2)
    source = lines.integers(np.arange(len(lines)), 0, "state")  # [L]
    nextstate = lines.integers(arcs, 1, "state")
    ilabel = _labels(lines, arcs, 2, isymbols)
    olabel = ilabel if acceptor else _labels(lines, arcs, 3, osymbols)
    if renumber:
        source, nextstate = _renumbered(source, nextstate, arcs)
    count = int(max(source.max(), nextstate.max(initial=0))) + 1
    if count > _GAPS + 2 * len(lines):
        raise InputError(
            "most states between the lowest and the highest number do not occur",
            path=path,
            found=f"{count:,} states in {len(lines):,} lines",
            expected="numbers of states without large gaps",
            remedy="number the states as they occur: renumber=True, or holdfast fst compile --renumber",
        )
    final = np.full(count, ring.zero, ring.dtype)
    final[source[ends]] = _weights(lines, ends, 1, ring)
    offsets, order = kernels.counting_order(source[arcs], count)
    weight = _weights(lines, arcs, 2 + labels, ring)
    return Fst(
        offsets,
        ilabel[order].astype(np.int32),
        olabel[order].astype(np.int32),
        nextstate[order].astype(np.int32),
        weight[order],
        final,
        int(source[0]),
        ring,
        isymbols,
        osymbols,
    )


def render(f: Fst, acceptor: bool | None = None) -> str:
    """A machine as `fstprint` writes it: the start state's lines, then the others' in order.

    Weights have as many digits as it takes to read the same number again. Labels are written as symbols
    where the machine has tables.

    Args:
        f: the machine.
        acceptor: one label a line; None and False write both, as `fstprint` does unless told otherwise.

    Raises:
        InputError: if a label has no symbol, or the machine is no acceptor and should be written as one.
    """
    if acceptor and not f.is_acceptor:
        raise InputError(
            "the machine is no acceptor",
            found="an arc whose labels differ",
            expected="one label an arc",
            remedy="write it with both labels, or project it to one side first",
        )
    if not f.num_states:
        return ""
    states, arcs = _start_first(f)
    with_line = (f.final != f.semiring.zero) | (np.diff(f.offsets) == 0)
    ends = states[with_line[states]]
    columns = [
        text_of(f.source[arcs]),
        text_of(f.nextstate[arcs]),
        _symbols(f.ilabel[arcs], f.isymbols),
    ]
    if not acceptor:
        columns.append(_symbols(f.olabel[arcs], f.osymbols))
    arc_lines = lines_of([*columns, _weight_text(f.weight[arcs], f.semiring)], "\t")
    end_lines = lines_of([text_of(ends), _weight_text(f.final[ends], f.semiring)], "\t")
    # Each state's own line follows its arcs.
    after = np.cumsum(np.diff(f.offsets)[states])[with_line[states]]
    order = np.argsort(np.concatenate((np.arange(len(arcs)) + 0.5, after)), kind="stable")
    return text_from(merged(arc_lines, end_lines, order))


def _check_columns(lines: Lines, labels: int) -> None:
    wrong = (lines.columns > labels + 3) | ((lines.columns > 2) & (lines.columns < labels + 2))
    if not wrong.any():
        return
    bad = int(np.argmax(wrong))
    names = "label" if labels == 1 else "ilabel olabel"
    raise lines.error(
        bad,
        "an arc or a final state has not the right columns",
        found=f"{lines.columns[bad]} columns",
        expected=f"source destination {names} [weight], or state [weight]",
        remedy="--acceptor (acceptor=True) reads arcs with one label"
        if labels == 2 and lines.columns[bad] == 3
        else "arcs of an acceptor have one label, others two",
    )


def _labels(lines: Lines, arcs: I64, at: int, symbols: SymbolTable | None) -> I64:
    if symbols is None:
        return lines.integers(arcs, at, "label")
    return labels_of(lines, arcs, at, symbols.labels, symbols.name)


def _weights(lines: Lines, chosen: I64, at: int, ring: Semiring) -> Weights:
    """[len(chosen)] the weights in column `at`; one where a line ends before it."""
    made = np.full(len(chosen), ring.one, ring.dtype)
    given = np.flatnonzero(lines.columns[chosen] > at)
    weights = lines.weights(chosen[given], at)
    if not ring.is_negative_log and (weights < 0).any():
        bad = int(np.argmax(weights < 0))
        raise lines.error(
            chosen[given[bad]],
            "a weight that is none",
            found=str(weights[bad]),
            expected=f"a weight of the {ring.name} semiring, 0 or more",
        )
    with np.errstate(over="ignore"):
        made[given] = weights
    return made


def _renumbered(source: I64, nextstate: I64, arcs: I64) -> tuple[I64, I64]:
    """The states numbered in the order in which the text names them."""
    named = np.insert(source, arcs + 1, nextstate)
    states, first, number = np.unique(named, return_index=True, return_inverse=True)
    rank = np.empty(len(states), np.int64)
    rank[np.argsort(first)] = np.arange(len(states))
    made = rank[number]
    is_destination = np.zeros(len(named), bool)
    is_destination[arcs + 1 + np.arange(len(arcs))] = True
    return made[~is_destination], made[is_destination]


def _start_first(f: Fst) -> tuple[I64, I64]:
    """The states and the arcs in the order of the text."""
    first = np.arange(f.offsets[f.start], f.offsets[f.start + 1])
    states = np.concatenate(([f.start], np.delete(np.arange(f.num_states), f.start)))
    return states, np.concatenate((first, np.delete(np.arange(f.num_arcs), first)))


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
            found=str(int(labels[np.argmax(missing)])),
            expected=f"one of the {len(known)} labels of table {symbols.name!r}",
            remedy="give the label a symbol, or write the machine without symbols",
        )
    return chosen([symbols.symbols[label] for label in known.tolist()], at)
