"""What each attempt of a run did: its time, its steps, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.spans import NO_STEP
from holdfast.runs.recording.events import Process

HUNG_STEPS = 10
HUNG_LEAST_S = 1.0
"""An attempt hung if its ranks lived on for ten steps, and for a second, without any progress."""
FRESH_S = 3.0
"""Ranks whose last lines are within it, or within three heartbeats, fell silent together."""

Ending = Literal["clean", "exception", "signal", "killed", "running"]
ENDINGS: dict[Ending, str] = {
    "clean": "ended well",
    "exception": "exception",
    "signal": "signal",
    "killed": "killed",
    "running": "still runs",
}


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
    ended: Ending
    """How its first rank to exit ended; killed: no end was recorded."""
    first_rank_gone: int | None
    """The rank that fell silent first, if the end was not clean; for a hang only if well before the
    others."""
    stalled_s: float
    """Time from the last progress of any rank to the end."""
    hung: bool
    """It stayed alive for the time of many steps without progress."""

    @property
    def interrupted(self) -> bool:
        """Whether it did not end by itself, or hangs now."""
        return self.hung or self.ended not in ("clean", "running")

    @property
    def ending(self) -> str:
        """How it ended, in a word or two."""
        return "hung" if self.hung else ENDINGS[self.ended]


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
    last = len(ledger.window.attempts) - 1
    for place, window in enumerate(ledger.window.attempts):
        processes = [ledger.run.processes[index] for index in window.processes]
        mine = steps[attempt_of_step == place]
        numbers = spans.step[mine]
        known = numbers != NO_STEP
        replayed = np.unique(numbers[ledger.replayed[mine] & known])
        ended, gone = _ending(ledger, window.processes, running and place == last)
        progress = max(spans.progress_s[list(window.processes)].tolist())
        stalled = _stalled(ledger, window.processes, progress, window.end_s)
        usual = 0.0 if median_step_s is None else median_step_s
        hung = ended != "clean" and stalled > max(HUNG_STEPS * usual, HUNG_LEAST_S)
        hung = hung and (ended != "running" or mine.size > 0)  # a start may take its time
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
                ended=ended,
                first_rank_gone=_silent_first(ledger, window.processes) if hung else gone,
                stalled_s=stalled,
                hung=hung,
            )
        )
    return tuple(accounts)


def _ending(ledger: Ledger, members: Sequence[int], running: bool) -> tuple[Ending, int | None]:
    """How an attempt ended, and the rank that went first: the others follow it, each in its way."""
    processes = ledger.run.processes
    unclean = [index for index in members if processes[index].end != "clean"]
    if not unclean:
        return "clean", None
    if running and all(processes[index].end == "none" for index in unclean):
        return "running", None
    first = min(unclean, key=lambda index: (float(ledger.last_s[index]), processes[index].rank))
    end = processes[first].end
    if end == "clean" or end == "none":
        return "killed", processes[first].rank
    return end, processes[first].rank


def _silent_first(ledger: Ledger, members: Sequence[int]) -> int | None:
    """The rank whose heartbeats stopped well before those of the others, if there is one."""
    last = {index: float(ledger.last_s[index]) for index in members}
    first, *others = sorted(members, key=lambda index: last[index])
    if not others:
        return None
    # A rank writes at least at every heartbeat: so far apart are the last lines of the others.
    begins, spans = ledger.run.events["process"].to_numpy(), ledger.run.events["t"].to_numpy()
    beats = []
    for index in others:
        low, high = np.searchsorted(begins, [index, index + 1])
        beats += np.diff(spans[max(low, high - 3) : high]).tolist()
    fresh_s = max(FRESH_S, 3 * max(beats, default=0.0))
    earlier_s = min(last[index] for index in others) - last[first]
    return ledger.run.processes[first].rank if earlier_s > fresh_s else None


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
