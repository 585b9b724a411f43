"""What a command of `runs exec` did, and what to do now: STOP, or RESTART."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.answer import Answer, Finding
from holdfast.errors import InputError
from holdfast.runs.flight.verdict import hang_of
from holdfast.runs.flight.wording import where
from holdfast.runs.goodput.accounting import Breakdown, account
from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.runs.goodput.ledger import Ledger, keep_books
from holdfast.runs.goodput.spans import NO_STEP
from holdfast.runs.ranks import named
from holdfast.runs.recording.reading import read_run

Action = Literal["none", "stop", "restart", "cannot tell"]
PROGRAM_ERRORS = (
    "SyntaxError",
    "IndentationError",
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "AttributeError",
    "TypeError",
)
"""Exceptions that come again as long as the program is the same."""
OUT_OF_MEMORY = "The kernel killed a process for lack of memory; give it more, or use less."
CLOCK_S = 1.0
"""Rounding of the times at which processes began."""


@dataclass(frozen=True)
class Past:
    """What is remembered of a command that has ended."""

    attempt: int | None
    """The last attempt that it recorded; None: it recorded none."""
    exit_code: int
    sentence: str
    failure: str
    """The same text for the same failure; empty: it did not fail."""
    node: str
    """Where the first rank ran; empty: not known."""
    step: int | None
    """The last completed one."""
    action: Action
    job: Mapping[str, str]
    """Job id and number of restarts under Slurm."""
    rank: int | None = None
    """The one that was first, or held up the others."""


@dataclass(frozen=True)
class Executed(Answer):
    """How a command ended."""

    command: tuple[str, ...]
    code: int
    """Its exit code; 128 + N: signal N ended it."""
    folder: Path
    """The run's own."""
    sentence: str
    """How its last attempt ended."""
    action: Action
    advice: str
    """What to do, and why."""
    ended: AttemptAccount | None
    past: Past
    signals: tuple[str, ...]
    """Those that were passed on to it."""

    @property
    def exit_code(self) -> int:
        """The command's."""
        return self.code

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs exec``."""
        facts = super().to_dict()
        del facts["ended"], facts["past"]
        ending = None if self.ended is None else self.ended.end()
        return {
            **facts,
            "rank": self.past.rank,
            "step": self.past.step,
            "job": dict(self.past.job),
            "ending": ending,
        }

    def findings(self) -> list[Finding]:
        """What to do and how it ended, in one sentence each."""
        lead = "" if self.action == "none" else f"{self.action.upper()}:"
        return [Finding(f"{self.advice} {self.sentence}".strip(), None, lead)]


def judged(
    own: Path,
    command: tuple[str, ...],
    code: int,
    launched_s: float,
    past: Sequence[Past],
    *,
    stopped: bool = False,
    signals: tuple[str, ...] = (),
    out_of_memory: bool = False,
    job: Mapping[str, str] | None = None,
) -> Executed:
    """The verdict on a command that has ended.

    Args:
        own: the run's own folder.
        command: what was run.
        code: its exit code.
        launched_s: when it was started, seconds since 1970.
        past: the commands before it.
        stopped: it was ended because it hung.
        signals: names of those that were passed on to it.
        out_of_memory: the kernel killed a process for lack of memory meanwhile.
        job: what identifies it in a scheduler.
    """
    ledger, made = _recorded(own)
    ended = None if made is None else _ended_since(made, launched_s)
    rank = None if ended is None else ended.first_rank_gone
    how = f"was ended by {_signal(code)}" if _signal(code) else f"ended with exit code {code}"
    told = [f"The command {how}; no rank of it was recorded."]
    wrong: list[str] = []
    if made is not None and ledger is not None and ended is not None:
        told, wrong = [ended.sentence], _numbers(made, ended.attempt)
        if ended.hung:
            rank, held = _held_up(own, made, rank)
            told += held
        elif ended.ended == "clean":
            told += _slow(ledger)
            told += [f"The command {how} all the same."] if code else []
        if ended.last_step is not None and ended.interrupted:
            told.append(f"Step {ended.last_step:,} was the last.")
    failed = bool(code) or (ended is not None and ended.interrupted)
    node = "" if ended is None or rank is None else _node(ledger, ended, rank)
    if node and ended is not None and ended.hung and ended.first_rank_gone is None:
        told.append(f"Rank {rank:,} is on {node}.")
    failure = _failure(ended, told, code, out_of_memory) if failed else ""
    before = [each for each in past if failure and each.failure == failure]
    if before:
        told.append(f"{_number(before[-1])} failed in the same way.")
    action, why = _action(ended, failed, before, node, signals if not stopped else ())
    if failed and out_of_memory:
        action, why = "stop", OUT_OF_MEMORY
    if wrong and action in ("none", "restart"):
        action, why = "stop", wrong[0]
    if action == "restart" and ledger is not None and (saved := _saved(ledger)) is not None:
        why += f" The last file that torch.save wrote is of step {saved:,}."
    sentence = " ".join(told)
    step, number = (None, None) if ended is None else (ended.last_step, ended.attempt)
    kept = Past(number, code, sentence, failure, node, step, action, dict(job or {}), rank)
    return Executed(command, code, own, sentence, action, why, ended, kept, signals)


def _numbers(breakdown: Breakdown, attempt: int) -> list[str]:
    """What is wrong with the numbers that an attempt computed: losses, values that should be equal."""
    lost = [each for each in breakdown.losses_not_finite if each.attempt == attempt]
    steps = ["a step" if each.first_step is None else f"step {each.first_step:,}" for each in lost]
    said = [
        f"The loss of {named(each.ranks)} is NaN or infinite from {step} on."
        for each, step in zip(lost, steps, strict=True)
    ]
    return said + [each.sentence for each in breakdown.disagreements if each.attempt == attempt]


def _signal(code: int) -> str:
    """The name of the signal behind an exit code of a shell; empty without one."""
    return signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else ""


def _recorded(own: Path) -> tuple[Ledger | None, Breakdown | None]:
    with suppress(InputError):
        ledger = keep_books(read_run(own))
        return ledger, account(ledger, now_s=float("inf"))
    return None, None


def _ended_since(breakdown: Breakdown, launched_s: float) -> AttemptAccount | None:
    """The last attempt, if it began under this command."""
    last = breakdown.attempts[-1]
    return last if breakdown.began_s + last.begin_s > launched_s - CLOCK_S else None


def _slow(ledger: Ledger) -> list[str]:
    """Which ranks, or whether the network, slowed the run down, if they did."""
    from holdfast.runs.straggling.scores import stragglers

    with suppress(InputError):  # nothing to compare
        slow = stragglers(ledger.run)
        return [slow.sentence] if slow.verdict in ("slow_ranks", "slow_network") else []
    return []


def _node(ledger: Ledger | None, ended: AttemptAccount, rank: int) -> str:
    """Where a rank of an attempt ran."""
    if ledger is None:
        return ""
    members = ledger.window.attempts[ended.attempt - 1].processes
    nodes = [ledger.run.processes[index] for index in members]
    return next((each.node for each in nodes if each.rank == rank), "")


def _held_up(own: Path, breakdown: Breakdown, rank: int | None) -> tuple[int | None, list[str]]:
    """The rank that held up the others, and what its flight record shows."""
    hang = hang_of(own, breakdown)
    told = []
    if hang is not None and hang.verdict in ("missing_ranks", "stuck_inside", "mismatch"):
        told.append(hang.sentence)
        if rank is None and len(hang.missing_ranks) == 1:
            rank = hang.missing_ranks[0]
    if hang is not None and hang.divergence is not None:
        told.append(hang.divergence.sentence)
        rank = hang.divergence.rank if rank is None else rank
    alone = breakdown.attempts[-1].world_size == 1
    rank = 0 if rank is None and alone else rank
    frames = [] if rank is None else _stack(own, rank)
    if any("/torch/utils/data/" in frame["filename"] for frame in frames):
        told.append(f"Rank {rank} waits for its DataLoader.")
    if alone and frames:
        told.append(f"It is in {where(frames)}.")
    return rank, told


def _stack(own: Path, rank: int) -> list[dict[str, Any]]:
    """Where the main thread of a rank stood, by the newest record of it."""
    records = sorted((own / "flight").glob(f"start-*/rank_{rank}.json"))
    with suppress(OSError, ValueError, LookupError):
        threads = json.loads(records[-1].read_bytes())["holdfast"]["threads"]
        return list(threads[0]["frames"])
    return []


def _failure(
    ended: AttemptAccount | None, told: Sequence[str], code: int, out_of_memory: bool
) -> str:
    """A text that is the same for the same failure: without numbers, which change from time to time."""
    if out_of_memory:
        return "out of memory"
    if ended is None or ended.ended == "clean":
        return f"exit code {code}"
    place = [each for each in told if "DataLoader" in each]
    parts = ["hung" if ended.hung else ended.ended, ended.cause if not ended.hung else "", *place]
    return re.sub(r"0x[0-9a-f]+|\d+", "#", " ".join(filter(None, parts)))


def _number(past: Past) -> str:
    return "An earlier command" if past.attempt is None else f"Attempt {past.attempt:,}"


def _action(
    ended: AttemptAccount | None,
    failed: bool,
    before: Sequence[Past],
    node: str,
    signals: Sequence[str],
) -> tuple[Action, str]:
    """What to do, and why."""
    if not failed:
        return "none", ""
    if signals and ended is not None and not ended.hung and ended.ended in ("signal", "killed"):
        return "restart", f"It was told to end ({', '.join(signals)})."
    cause = "" if ended is None else ended.cause
    if before:
        if ended is not None and (ended.hung or ended.ended == "killed"):
            elsewhere = len(ended.nodes) > 1
        else:
            elsewhere = False
        if node and elsewhere and before[-1].node == node:
            return "restart", f"Leave out {node}: the same failure twice, and both times there."
        return "stop", "The same failure twice."
    if ended is None or ended.ended == "clean":
        return "cannot tell", "Nothing that was recorded shows why it failed."
    if cause.startswith(PROGRAM_ERRORS):
        return "stop", "The program itself is wrong there."
    return "restart", "It is the first failure of its kind."


def _saved(ledger: Ledger) -> int | None:
    """The highest step after which a file was saved, on any rank."""
    steps = ledger.spans.step[ledger.checkpoints()]
    known = steps[steps != NO_STEP]
    return int(known.max()) if known.size else None
