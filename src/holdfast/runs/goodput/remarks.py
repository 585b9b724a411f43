"""What a reader must know before trusting a breakdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.runs.goodput.checkpoint_costs import CheckpointCosts
from holdfast.runs.goodput.ledger import Ledger
from holdfast.runs.goodput.spans import NO_STEP

WORTH_A_REMARK = 1e-3
"""Share of the own times that overlapping spans may hide before a word is said."""


def remarks_of(
    ledger: Ledger, attempts: Sequence[AttemptAccount], checkpoints: CheckpointCosts
) -> tuple[str, ...]:
    """Remarks of the reader of the events, and what the accounting had to take as given."""
    return (
        *ledger.run.remarks,
        *_unknown_queue(ledger),
        *_strange_steps(ledger, attempts),
        *_overlaps(ledger),
        *_no_checkpoints(checkpoints),
    )


def _unknown_queue(ledger: Ledger) -> Iterator[str]:
    first = ledger.window.attempts[0]
    if all(ledger.run.processes[index].submitted_s is None for index in first.processes):
        yield (
            "when the run was submitted is not known: its wall time begins with its first process "
            "(submitted_s of RunRecorder tells it)"
        )


def _strange_steps(ledger: Ledger, attempts: Sequence[AttemptAccount]) -> Iterator[str]:
    unnumbered = int(np.sum(ledger.spans.step[ledger.steps()] == NO_STEP))
    if unnumbered:
        yield f"{unnumbered:,} steps have no number: they count as productive"
    for each in attempts:
        if (
            each.resumed_from is not None
            and each.first_step is not None
            and each.first_step <= each.resumed_from
        ):
            yield (
                f"attempt {each.attempt} resumed from step {each.resumed_from:,}, but its first step "
                f"is {each.first_step:,}: replayed steps are recognized by their numbers, "
                "which must continue over restarts"
            )


def _overlaps(ledger: Ledger) -> Iterator[str]:
    """Spans that claim more than there was: what overlaps was counted once."""
    spans = ledger.spans
    closed = spans.row >= 0
    rows = spans.row[closed]
    events = ledger.run.events
    said = events["seconds"].fill_null(0.0).to_numpy()[rows]
    inner = events["inner_s"].fill_null(0.0).to_numpy()[rows]
    late = spans.begin_s >= ledger.ready_s[spans.process]
    claimed = float(np.maximum(said - inner, 0.0)[late[closed]].sum())
    counted = float(ledger.own_s[closed][late[closed]].sum())
    if claimed - counted > max(WORTH_A_REMARK * claimed, 1.0):
        yield (
            f"spans overlap or reach beyond their process by {claimed - counted:.1f} s over all "
            "ranks: every moment was counted once, for the span that ended first"
        )


def _no_checkpoints(checkpoints: CheckpointCosts) -> Iterator[str]:
    if not checkpoints.count and not checkpoints.published:
        yield "no checkpoint was recorded"
