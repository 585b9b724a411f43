"""Machines made from data: one string, many strings, the scores of a network over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.automata.arguments import invalid
from holdfast.automata.fst import I64, VALUE, Fst, Weights
from holdfast.automata.semirings import LOG, Semiring, semiring_of
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError

String = str | Sequence[int] | Sequence[str]
"""Labels; or symbols of a table; or a text, which is symbols between spaces if there is a table, and
Unicode code points if there is none."""


def string_fst(
    string: String,
    symbols: SymbolTable | None = None,
    *,
    weight: float | None = None,
    semiring: str | Semiring = "tropical",
) -> Fst:
    """The acceptor of one string: states 0 to T in a row.

    Args:
        string: T labels, or symbols of the table, or a text.
        symbols: the table.
        weight: the weight of the string; one, if not given.
        semiring: name or semiring.

    Raises:
        InputError: if a symbol is not in the table, or a label is below 1.
    """
    ring = semiring_of(semiring)
    label = _labels(string, symbols)
    last = ring.one if weight is None else weight
    return _row(label.reshape(-1, 1), np.full(len(label), ring.one), last, ring, symbols)


def trie(
    strings: Iterable[String],
    symbols: SymbolTable | None = None,
    *,
    outputs: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    osymbols: SymbolTable | None = None,
    weights: Sequence[float] | Weights | None = None,
    semiring: str | Semiring = "tropical",
) -> Fst:
    """The prefix tree of many strings, numbered level by level, labels ascending.

    Without `outputs`: a deterministic acceptor, in which the final weight of a string is the sum over its
    occurrences. With `outputs`: a transducer (a pronunciation lexicon, say) that writes outputs[n] after
    it has read string n, on an arc without input label to the one final state, which is numbered last.

    Args:
        strings: N strings (see `string_fst`).
        symbols: their table.
        outputs: [N] labels.
        osymbols: the table of the outputs; `symbols`, if there are none.
        weights: [N] the weights of the strings; one, if not given.
        semiring: name or semiring.

    Raises:
        InputError: if a symbol is not in the table, a label is below 1, or there are more or fewer outputs
            or weights than strings.
    """
    ring = semiring_of(semiring)
    rows = [_labels(string, symbols) for string in strings]
    weight_of_row = (
        np.full(len(rows), ring.one) if weights is None else np.asarray(weights, np.float64)
    )
    for what, each in (("outputs", outputs), ("weights", weights)):
        if each is not None and len(each) != len(rows):
            raise invalid(
                what,
                f"{len(each)} {what} for {len(rows)} strings",
                "one per string",
                code="conflict",
            )
    source, label, end = _tree(rows)
    states = len(label) + 1
    target = np.arange(1, states)
    if outputs is None:
        final = _sums(ring, weight_of_row, end, states)
        arcs, tables = (source, label, label, target), (symbols, symbols)
        weight = np.full(len(label), ring.one)
    else:
        final = np.full(states + 1, ring.zero)
        final[states] = ring.one
        written = np.asarray(outputs, np.int64)
        read = np.zeros(len(written), np.int64)
        arcs = (
            np.concatenate((source, end)),
            np.concatenate((label, read)),
            np.concatenate((np.zeros(len(label), np.int64), written)),
            np.concatenate((target, np.full(len(end), states))),
        )
        weight, tables = (
            np.concatenate((np.full(len(label), ring.one), weight_of_row)),
            (symbols, osymbols),
        )
    order = np.argsort(arcs[0], kind="stable")
    left, ilabel, olabel, nextstate = (column[order].astype(np.int32) for column in arcs)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(left, minlength=len(final)))))
    return Fst(
        offsets,
        ilabel,
        olabel,
        nextstate,
        weight[order].astype(ring.dtype),
        final.astype(ring.dtype),
        0,
        ring,
        *tables,
    )


def linear_emissions(
    scores: npt.ArrayLike,
    labels: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    *,
    symbols: SymbolTable | None = None,
    semiring: str | Semiring = "tropical",
) -> Fst:
    """The acceptor of every string of T labels, weighted by the scores of each label at each time.

    State t has one arc for each label to state t + 1; arc t * L + l has the score [t, l], so that a
    gradient over arcs is a gradient over scores.

    Args:
        scores: [T, L] natural logarithms, larger is likelier: a network's log-softmax over time. The weight
            of an arc is the negated score, or its exponential in the probability semiring.
        labels: [L] label of each column; 1 to L, if not given.
        symbols: names of the labels.
        semiring: name or semiring.

    Raises:
        InputError: if the scores are not a matrix, or one is NaN or +inf, or a label is below 1.
    """
    ring = semiring_of(semiring)
    score = np.asarray(scores, np.float64)
    if score.ndim != 2:
        raise invalid("scores", f"shape {score.shape}", "[T, L]: time and label", code=VALUE)
    frames, width = score.shape
    columns = np.arange(1, width + 1) if labels is None else _labels(list(labels), None)
    if len(columns) != width:
        raise invalid(
            "labels",
            f"{len(columns)} labels for {width} columns of scores",
            "one per column",
            code="conflict",
        )
    wrong = np.isnan(score) | np.isposinf(score)
    if wrong.any():
        time, column = (int(at) for at in np.argwhere(wrong)[0])
        place = f"time {time}, column {column}"
        raise invalid(
            "score", score[time, column], "a logarithm below +inf", place=place, code=VALUE
        )
    costs = -score if ring.is_negative_log else np.exp(score)
    if ring.name == "boolean":
        costs = (score > -np.inf).astype(np.float64)
    return _row(np.tile(columns, (frames, 1)), costs, ring.one, ring, symbols)


def _row(
    labels: I64, weights: Any, last: float, ring: Semiring, symbols: SymbolTable | None
) -> Fst:
    """States 0 to T in a row, with one arc to the next state for each of labels [T, L]."""
    length, width = labels.shape
    label = labels.ravel().astype(np.int32)
    final = np.full(length + 1, ring.zero, ring.dtype)
    final[length] = last
    return Fst(
        np.minimum(np.arange(length + 2), length) * width,
        label,
        label,
        np.repeat(np.arange(1, length + 1, dtype=np.int32), width),
        weights.ravel(),
        final,
        0,
        ring,
        symbols,
        symbols,
    )


def _labels(string: String, symbols: SymbolTable | None) -> I64:
    if isinstance(string, str):
        parts: Sequence[Any] = string.split() if symbols else [ord(letter) for letter in string]
    else:
        parts = string
    if symbols is not None:
        parts = [symbols.label(part) if isinstance(part, str) else part for part in parts]
    try:
        label = np.array(parts, np.int64).reshape(-1)
    except (ValueError, TypeError) as error:
        raise InputError(
            "a string must be labels, or symbols with a symbol table",
            code="invalid-value",
            found=repr(parts)[:80],
            expected="whole numbers",
            remedy="pass symbols=",
        ) from error
    if len(label) and (label.min() < 1 or label.max() > np.iinfo(np.int32).max):
        at = int(np.argmax((label < 1) | (label > np.iinfo(np.int32).max)))
        raise invalid(
            "label",
            label[at],
            "1 to 2147483647 (0 is epsilon, which no string contains)",
            place=f"position {at}",
        )
    return label


def _tree(rows: list[I64]) -> tuple[I64, I64, I64]:
    """Source [nodes - 1] and label [nodes - 1] of the arc into each node, and the node [N] of each string.

    Node 0 is the root; the nodes of one depth are numbered by (source, label).
    """
    lengths = np.array([len(row) for row in rows], np.int64)
    flat = np.concatenate(rows) if rows else np.empty(0, np.int64)
    begin = np.cumsum(lengths) - lengths
    node = np.zeros(len(rows), np.int64)
    sources, labels, nodes = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 1
    longer = np.flatnonzero(lengths)
    depth = 0
    while len(longer):
        key = node[longer] << 32 | flat[begin[longer] + depth]
        step, place = np.unique(key, return_inverse=True)
        node[longer] = nodes + place
        sources.append(step >> 32)
        labels.append(step & 0xFFFFFFFF)
        nodes += len(step)
        depth += 1
        longer = longer[lengths[longer] > depth]
    return np.concatenate(sources), np.concatenate(labels), node


def _sums(ring: Semiring, weights: Any, group: I64, groups: int) -> Any:
    """The semiring's sum of the weights of each group: f64[groups]."""
    summed = np.full(groups, ring.zero)
    if ring.code == LOG:
        np.negative(summed, out=summed)
        np.logaddexp.at(summed, group, -weights)
        return -summed
    plus = {"tropical": np.minimum, "probability": np.add, "boolean": np.maximum}[ring.name]
    plus.at(summed, group, weights)
    return summed
