"""k2's text: what `k2.to_str` writes and `k2.Fsa.from_str` reads.

A line is an arc, `source destination label [aux_label] score`, in ascending order of the source, and the
last line is the final state alone, which has the highest number; the start is 0. Scores are log
probabilities: costs with their sign changed. A final weight stands on an arc into the final state, whose
label is -1, as its aux_label is; no other arc has that label (k2's documentation, "Core concepts in k2").
"""

from __future__ import annotations

import numpy as np

from holdfast.automata import _kernels as kernels
from holdfast.automata.arguments import check_acceptor
from holdfast.automata.formats.columns import lines_of, text_from, text_of
from holdfast.automata.formats.tokens import I64, Lines, cut
from holdfast.automata.fst import Fst, Weights
from holdfast.automata.semirings import LOG, TROPICAL, Semiring, semiring_of

FINAL_LABEL = -1


def parse_k2(
    text: str,
    semiring: str | Semiring = "tropical",
    *,
    aux_labels: bool | None = None,
    path: str | None = None,
) -> Fst:
    """A machine from k2's text; its final state becomes final weights, so there is one state less.

    Args:
        text: the lines.
        semiring: of the machine that is made.
        aux_labels: whether arcs have an output label; None: if some line has five columns.
        path: the file, for messages.

    Raises:
        InputError: naming the line: wrong columns, no final state at the end, a label of -1 elsewhere than
            on the arcs into the final state, a score that is none.
    """
    ring = semiring_of(semiring)
    lines = cut(text, path)
    if not len(lines):
        return Fst.empty(ring)
    labels = 2 if aux_labels or (aux_labels is None and lines.columns.max() > 4) else 1
    _check_columns(lines, labels)
    arcs = np.arange(len(lines) - 1)
    last = int(lines.integers(np.array([len(lines) - 1]), 0, "final state")[0])
    source, target = lines.integers(arcs, 0, "state"), lines.integers(arcs, 1, "state")
    ilabel = lines.integers(arcs, 2, "label", FINAL_LABEL)
    olabel = lines.integers(arcs, 3, "aux_label", FINAL_LABEL) if labels == 2 else ilabel
    ends = ilabel == FINAL_LABEL
    _check_ends(lines, source, target, ends, olabel, last)
    scored = arcs[lines.columns[:-1] > labels + 2]
    cost = np.zeros(len(arcs))
    cost[scored] = lines.costs(scored, labels + 2)
    final = np.full(last, np.inf)
    for state, end in zip(source[ends].tolist(), cost[ends].tolist(), strict=True):
        final[state] = kernels.plus(TROPICAL if ring.is_idempotent else LOG, final[state], end)
    offsets, order = kernels.counting_order(source[~ends], last)
    inputs, outputs, targets = (
        part[~ends][order].astype(np.int32) for part in (ilabel, olabel, target)
    )
    exact = semiring_of("log64")
    machine = Fst.trusted(offsets, inputs, outputs, targets, cost[~ends][order], final, 0, exact)
    return machine.as_semiring(ring) if last else Fst.empty(ring)


def render_k2(f: Fst, aux_labels: bool | None = None) -> str:
    """A machine in k2's text: the start becomes state 0, and the final state is added at the end.

    Args:
        f: the machine.
        aux_labels: write both labels; None: if they differ on some arc.

    Raises:
        InputError: if labels differ and `aux_labels` is False.
    """
    if aux_labels is None:
        aux_labels = not f.is_acceptor
    if not aux_labels:
        check_acceptor(
            f, "the machine", "write it with aux_labels, or project it to one side first"
        )
    if not f.num_states:
        return ""
    costs = f if f.semiring.is_negative_log else f.as_semiring("log64")
    states = np.concatenate(([f.start], np.delete(np.arange(f.num_states), f.start)))
    number = np.empty_like(states)  # [V] the new number of each state
    number[states] = np.arange(f.num_states)
    ends = np.flatnonzero(costs.final != np.inf)
    source = np.concatenate((number[f.source], number[ends]))
    order = np.argsort(source, kind="stable")
    score = _scores(np.concatenate((costs.weight, costs.final[ends])))
    columns = [source, np.concatenate((number[f.nextstate], np.full(len(ends), f.num_states)))]
    marks = np.full(len(ends), FINAL_LABEL)
    columns += [np.concatenate((part, marks)) for part in (f.ilabel, f.olabel)[: 1 + aux_labels]]
    text = [text_of(column[order]) for column in (*columns, score)]
    return text_from(lines_of(text, " ")) + f"{f.num_states}\n"


def _scores(costs: Weights) -> Weights:
    made: Weights = -costs + costs.dtype.type(0)  # a cost of 0 is a score of 0, not of -0
    return made


def _check_columns(lines: Lines, labels: int) -> None:
    wrong = (lines.columns < labels + 2) | (lines.columns > labels + 3)
    wrong[-1] = lines.columns[-1] != 1
    if not wrong.any():
        return
    bad = int(np.argmax(wrong))
    is_last = bad == len(lines) - 1
    raise lines.error(
        bad,
        "the last line is not the final state" if is_last else "wrong number of columns",
        found=f"{lines.columns[bad]} columns",
        expected="the number of the final state alone"
        if is_last
        else f"source destination label{' aux_label' * (labels - 1)} [score]",
        remedy="k2.to_str writes this text; OpenFST's is read by `parse`"
        if is_last
        else "every arc has an aux_label, or none has",
    )


def _check_ends(lines: Lines, source: I64, target: I64, ends: I64, olabel: I64, last: int) -> None:
    """Refuse states past the final one, and labels of -1 in the wrong place."""
    for wrong, problem, found, expected in (
        (source >= last, "an arc leaves the final state", source, f"a state below {last}"),
        (target > last, "an arc enters a state past the final one", target, f"at most {last}"),
        (
            ends != (target == last),
            "label -1 and the final state do not go together",
            target,
            f"label -1 on arcs into state {last}, and on no others",
        ),
        (
            (ends & (olabel > 0)) | (~ends & (olabel < 0)),
            "an aux_label in the wrong place",
            olabel,
            "-1 on arcs into the final state, and on no others",
        ),
    ):
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise lines.error(bad, problem, found=str(found[bad]), expected=expected)
