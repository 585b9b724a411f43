"""What each attempt of a run did: its time, its steps, how it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.runs.goodput.ending import KINDS, Kind, LastSigns, ending_of
from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.spans import NO_STEP
from holdfast.runs.recording.events import Process


@dataclass(frozen=True)
class AttemptAccount:
    """One attempt."""

    attempt: int
    """1, 2, ..."""
    begin_s: float
    """Run time at which its first process started."""
    end_s: float
    """Run time of its last sign of life."""
    ranks: int
    """Number of recorded ranks."""
    world_size: int
    """Number of ranks."""
    missing_ranks: tuple[int, ...]
    """Ranks without a recording."""
    nodes: tuple[str, ...]
    gpus: float
    """Number of GPUs of the recorded ranks."""
    parts: dict[str, float]
    """Seconds, mean over the ranks; ``down`` and ``queue`` are those before the attempt."""
    first_step: int | None
    """The first step that it completed."""
    last_step: int | None
    """The highest step that it completed."""
    resumed_from: int | None
    """The last step of the checkpoint that it loaded; None: from scratch, or unknown."""
    replayed_steps: int
    """Number of its steps that had been completed before."""
    ended: Kind
    """How it ended; killed: no end was recorded."""
    first_rank_gone: int | None
    """The rank that went first, where the recordings tell it."""
    cause: str
    """What that rank said: the exception; empty without one."""
    stalled_s: float
    """Time from the last progress of any rank to the end."""
    hung: bool
    """It stayed alive for the time of many steps without progress."""
    sentence: str
    """How it ended and which rank was first, as every command says it."""

    @property
    def interrupted(self) -> bool:
        """Whether it did not end by itself, or hangs now."""
        return self.hung or self.ended not in ("clean", "running")

    @property
    def ending(self) -> str:
        """How it ended, in a word or two."""
        return "hung" if self.hung else KINDS[self.ended]

    def end(self) -> dict[str, Any]:
        """The end alone, for the JSON of commands that are about something else."""
        return {
            "attempt": self.attempt,
            "ended": self.ended,
            "hung": self.hung,
            "first_rank": self.first_rank_gone,
            "sentence": self.sentence,
        }


def attempt_accounts(
    ledger: Ledger, median_step_s: float | None, running: bool
) -> tuple[AttemptAccount, ...]:
    """The attempts of a run, in their order.

    Args:
        ledger: the books.
        median_step_s: length of a usual step; None without any.
        running: the last attempt still runs as far as can be told.
    """
    spans, of = ledger.spans, ledger.attempt_of()
    steps = ledger.steps()
    attempt_of_step = of[spans.process[steps]]
    accounts = []
    trained = np.isin(of, attempt_of_step)
    starts = ledger.by_process[trained, PARTS.index("init")]
    usual_start_s = float(np.median(starts)) if starts.size else None
    last = len(ledger.window.attempts) - 1
    for place, window in enumerate(ledger.window.attempts):
        processes = [ledger.run.processes[index] for index in window.processes]
        mine = steps[attempt_of_step == place]
        numbers = spans.step[mine]
        known = numbers != NO_STEP
        replayed = np.unique(numbers[ledger.replayed[mine] & known])
        progress = max(spans.progress_s[list(window.processes)].tolist())
        stalled = _stalled(ledger, window.processes, progress, window.end_s)
        usual = median_step_s if mine.size else usual_start_s
        signs = [_last_signs(ledger, index) for index in window.processes]
        ending = ending_of(signs, window.end_s - stalled, usual, running and place == last)
        world = max(max(p.world_size for p in processes), 1)
        accounts.append(
            AttemptAccount(
                attempt=place + 1,
                begin_s=window.begin_s,
                end_s=window.end_s,
                ranks=len(processes),
                world_size=world,
                missing_ranks=_missing(processes, world),
                nodes=tuple(sorted({p.node for p in processes})),
                gpus=float(sum(p.gpus for p in processes)),
                parts=dict(zip(PARTS, ledger.by_attempt[place].tolist(), strict=True)),
                first_step=int(numbers[known][0]) if known.any() else None,
                last_step=int(numbers[known].max()) if known.any() else None,
                resumed_from=max(
                    (p.resumed_from for p in processes if p.resumed_from is not None), default=None
                ),
                replayed_steps=int(replayed.size),
                ended=ending.kind,
                first_rank_gone=None if ending.first is None else ending.first.rank,
                cause="" if ending.first is None else ending.first.detail,
                stalled_s=stalled,
                hung=ending.hung,
                sentence=ending.sentence(place + 1),
            )
        )
    return tuple(accounts)


def _last_signs(ledger: Ledger, index: int) -> LastSigns:
    """What a process wrote last."""
    process = ledger.run.processes[index]
    of, t = ledger.run.events["process"].to_numpy(), ledger.run.events["t"].to_numpy()
    low, high = np.searchsorted(of, [index, index + 1])
    # A rank writes at least at every heartbeat: so far apart are its last lines.
    beat = float(np.diff(t[max(low, high - 4) : high]).max(initial=0.0))
    last = float(ledger.last_s[index])
    return LastSigns(process.rank, process.end, process.end_detail, last, beat, process.node)


def _stalled(ledger: Ledger, members: Sequence[int], progress_s: float, end_s: float) -> float:
    """Time without progress before the end; none while a rank was in a span that a kill left open."""
    spans = ledger.spans
    for index in members:
        mine = slice(int(spans.first[index]), int(spans.first[index + 1]))
        if np.any(spans.row[mine] < 0):
            return 0.0
    return max(end_s - progress_s, 0.0)


def _missing(processes: Sequence[Process], world_size: int) -> tuple[int, ...]:
    seen = {process.rank for process in processes}
    return tuple(rank for rank in range(world_size) if rank not in seen)


def mean_nodes(attempts: Sequence[AttemptAccount]) -> float:
    """Nodes of the run: the mean over the time that its attempts were alive."""
    alive = math.fsum(each.end_s - each.begin_s for each in attempts)
    if alive <= 0:
        return float(max(len(each.nodes) for each in attempts))
    return math.fsum(len(each.nodes) * (each.end_s - each.begin_s) for each in attempts) / alive
