"""The bodies of OpenFST's binary files: what stands between the header and the end.

`vector` has a record for each state: its final weight, the number of its arcs, and the arcs. `const` has a
table of all states and then one of all arcs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.formats import _kernels as kernels
from holdfast.automata.formats.fields import Fields
from holdfast.automata.fst import I32, I64, Fst, Weights
from holdfast.automata.semirings import Semiring

_ALIGNMENT = 16


class Body(NamedTuple):
    """Arrays of a file before they are a machine, and the bytes at which they stand."""

    offsets: I64
    final: Weights
    ilabel: I32
    olabel: I32
    weight: Weights
    nextstate: I32
    final_at: I64
    """[V] the byte of each final weight."""
    arc_at: I64
    """[V] the byte of the first arc of each state."""
    arc_bytes: int


def _sizes(ring: Semiring) -> tuple[int, int, int]:
    """I32 of a weight, of the head of a state's record, and of an arc, in a `vector`."""
    weight = np.dtype(ring.dtype).itemsize // 4
    return weight, weight + 2, weight + 3


def read_vector(fields: Fields, ring: Semiring, states: int) -> Body:
    """The records of a `vector`.

    Args:
        fields: stands at the first record.
        ring: of the weights.
        states: how many there are; -1 if the writer could not go back to fill it in.

    Raises:
        InputError: if the file ends too early or too late.
    """
    weight, head, per_arc = _sizes(ring)
    body = fields.at
    left = len(fields.data) - body
    words = np.frombuffer(fields.data, np.uint8, left - left % 4, body).copy().view("<i4")
    if states * head > len(words):
        fields.skip(4 * states * head, f"the records of {states:,} states")
    begin = kernels.records(words, len(words) // head if states < 0 else states, head, per_arc)
    if begin[-1] != len(words) if states < 0 else len(begin) != states + 1:
        raise fields.error(
            "the file is truncated",
            body + 4 * int(begin[-1]),
            found=f"{left - 4 * int(begin[-1]):,} bytes left of {len(fields.data):,}",
            expected=f"the record of state {len(begin) - 1} and its arcs",
            remedy="copy or make the file again",
        )
    fields.at = body + 4 * int(begin[-1])
    _check_end(fields)
    begin, counts = begin[:-1], (np.diff(begin) - head) // per_arc
    offsets = np.concatenate(([0], np.cumsum(counts)))
    at_head = begin[:, None] + np.arange(head)  # [V, head]
    is_arc = np.ones(len(words), bool)
    is_arc[at_head] = False
    arcs = words[is_arc].reshape(-1, per_arc)
    dtype = np.dtype(ring.dtype)
    return Body(
        offsets,
        words[at_head[:, :weight]].view(dtype)[:, 0],
        arcs[:, 0].copy(),
        arcs[:, 1].copy(),
        arcs[:, 2 : 2 + weight].copy().view(dtype)[:, 0],
        arcs[:, -1].copy(),
        body + 4 * begin,
        body + 4 * (begin + head),
        4 * per_arc,
    )


def read_const(fields: Fields, ring: Semiring, states: int, arcs: int, is_aligned: bool) -> Body:
    """The tables of a `const`.

    Args:
        fields: stands at the end of the header.
        ring: of the weights.
        states: how many there are.
        arcs: how many there are.
        is_aligned: whether both tables begin at multiples of 16 bytes.

    Raises:
        InputError: if the file ends too early or too late, or arcs do not follow each other.
    """
    weight = np.dtype(ring.dtype)
    # As a C++ compiler lays the two out: a weight of 8 bytes stands at a multiple of 8.
    spread = weight.itemsize == 8
    state_type = np.dtype(
        [("final", weight), ("first", "<u4"), ("arcs", "<u4"), ("ieps", "<u4"), ("oeps", "<u4")],
        align=spread,
    )
    arc_type = np.dtype(
        [("ilabel", "<i4"), ("olabel", "<i4"), ("weight", weight), ("nextstate", "<i4")],
        align=spread,
    )
    if is_aligned:
        _align(fields)
    states_at = fields.at
    heads = _table(fields, state_type, states, "states")
    if is_aligned:
        _align(fields)
    arcs_at = fields.at
    rows = _table(fields, arc_type, arcs, "arcs")
    _check_end(fields)
    offsets = np.concatenate(([0], np.cumsum(heads["arcs"], dtype=np.int64)))
    wrong = heads["first"] != offsets[:-1]
    if wrong.any() or offsets[-1] != arcs:
        bad = int(np.argmax(wrong)) if wrong.any() else len(heads) - 1
        raise fields.error(
            "the arcs of the states are not contiguous",
            states_at + bad * state_type.itemsize,
            found=f"state {bad} with arcs from {heads['first'][bad]}, {arcs} arcs in all",
            expected=f"arcs from {offsets[bad]}, {offsets[-1]} in all",
            remedy="the file is damaged: make it again",
        )
    return Body(
        offsets,
        heads["final"].copy(),
        rows["ilabel"].copy(),
        rows["olabel"].copy(),
        rows["weight"].copy(),
        rows["nextstate"].copy(),
        states_at + np.arange(len(heads)) * state_type.itemsize,
        arcs_at + offsets[:-1] * arc_type.itemsize,
        arc_type.itemsize,
    )


def _table(fields: Fields, row: np.dtype[np.void], count: int, what: str) -> npt.NDArray[np.void]:
    begin = fields.at
    if count < 0:
        raise fields.error(
            f"invalid number of {what}",
            found=str(count),
            expected="0 or more",
            remedy="the file is damaged: make it again",
        )
    fields.skip(count * row.itemsize, f"{count:,} {what}")
    return np.frombuffer(fields.data, row, count, begin)


def _align(fields: Fields) -> None:
    fields.skip(-fields.at % _ALIGNMENT, "filling")


def _check_end(fields: Fields) -> None:
    if fields.at < len(fields.data):
        raise fields.error(
            "data after the last arc",
            found=f"{len(fields.data) - fields.at:,} more bytes",
            expected="the end of the file",
            remedy="one machine per file; the file is damaged if it should hold one",
        )


def check_body(fields: Fields, ring: Semiring, body: Body) -> None:
    """Refuse what no machine has, and name the byte at which it stands."""
    states = len(body.final)
    for name, values, wrong, at, expected in (
        ("ilabel", body.ilabel, body.ilabel < 0, 0, "0 or more"),
        ("olabel", body.olabel, body.olabel < 0, 4, "0 or more"),
        (
            "weight",
            body.weight,
            _no_weight(body.weight, ring),
            8,
            f"a weight of the {ring.name} semiring",
        ),
        (
            "destination",
            body.nextstate,
            (body.nextstate < 0) | (body.nextstate >= states),
            8 + body.weight.itemsize,
            f"a state from 0 to {states - 1}",
        ),
    ):
        if wrong.any():
            arc = int(np.argmax(wrong))
            state = int(np.searchsorted(body.offsets, arc, "right")) - 1
            nth = arc - int(body.offsets[state])
            raise fields.error(
                f"arc {nth} of state {state}: invalid {name}",
                int(body.arc_at[state]) + nth * body.arc_bytes + at,
                found=str(values[arc]),
                expected=expected,
            )
    wrong = _no_weight(body.final, ring)
    if wrong.any():
        state = int(np.argmax(wrong))
        raise fields.error(
            f"state {state}: invalid final weight",
            int(body.final_at[state]),
            found=str(body.final[state]),
            expected=f"a weight of the {ring.name} semiring",
        )


def _no_weight(weights: Weights, ring: Semiring) -> npt.NDArray[np.bool_]:
    wrong: npt.NDArray[np.bool_] = np.isnan(weights) | np.isneginf(weights)
    return wrong if ring.is_negative_log else wrong | (weights < 0)


def vector_words(f: Fst) -> I32:
    """The records of a machine as a `vector` has them."""
    weight, head, per_arc = _sizes(f.semiring)
    counts = np.diff(f.offsets)
    words = np.empty(f.num_states * head + f.num_arcs * per_arc, "<i4")
    begin = np.arange(f.num_states) * head + f.offsets[:-1] * per_arc
    at_head = begin[:, None] + np.arange(head)  # [V, head]
    words[at_head[:, :weight]] = np.ascontiguousarray(f.final).view("<i4").reshape(-1, weight)
    words[at_head[:, weight:]] = counts.astype("<i8").view("<i4").reshape(-1, 2)
    arcs = np.empty((f.num_arcs, per_arc), "<i4")
    arcs[:, 0], arcs[:, 1], arcs[:, -1] = f.ilabel, f.olabel, f.nextstate
    arcs[:, 2 : 2 + weight] = np.ascontiguousarray(f.weight).view("<i4").reshape(-1, weight)
    is_arc = np.ones(len(words), bool)
    is_arc[at_head] = False
    words[is_arc] = arcs.ravel()
    return words
