"""The events of a run: the format that a recorder writes, and the columns that a reader returns.

One file per process, ``DIR/RUN_ID/rank-00003-1795194354892-4242.jsonl`` (rank, start in milliseconds
since 1970, process id), in chronological order, one JSON object per line. Every event has ``event``
(its kind, below) and ``t``: monotonic seconds since the recorder opened, so that a step of the wall
clock has no effect. A *span* is written when it ends: ``t`` is its end, ``seconds`` its length and
``inner_s`` the time inside nested spans (omitted when zero); its own time is ``seconds - inner_s``.
Because spans of the main thread are either nested or disjoint, their own times add up, and the rest is
idle.

============== ==========================================================================
event          fields beside ``event`` and ``t``
============== ==========================================================================
start          the fields of `Process`, first line of every file; ``t`` is 0
ready          ``resumed_from``: the initialisation is over; the last step that the loaded
               checkpoint had completed, null for a run from scratch; left out where the
               program did not say and its first step stands for it
step           span; ``step``, and as known ``tokens``, ``samples``, ``loss``, ``grad_norm``,
               ``weight_norm`` (of a model that other ranks hold, too),
               ``sync_s`` (the part spent waiting for the other ranks: the rank's own work
               is ``seconds - inner_s - sync_s``; it stays part of the step) and ``waits``, the
               same by kind of operation, where the recorder has measured it
data_wait      span; the training waited for data
begin          ``what``: checkpoint, evaluation or pause begins (so that a kill inside is known)
checkpoint     span; ``step``: the part of a checkpoint that stopped the training
published      ``step``, ``background_s``, ``bytes``: a checkpoint became complete
evaluation     span; ``step`` as known
pause          span; ``reason``; also a step that an exception left, which is not completed
alive          written only while nothing else happens: the process still lives
end            ``how``: clean, exception or signal; ``detail``; ``lost``: events that could
               not be written, if any
============== ==========================================================================

A span of a thread other than the training thread has ``thread``, its name; it ran in parallel, and
`RecordedRun.events` omits it. A ``loss`` or ``grad_norm`` that is not finite is the string ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``. Readers ignore unknown fields.

A line truncated by a kill is the last of its file; every restart opens a new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.lines import Reject

FORMAT_VERSION = 1

SPANS = ("step", "data_wait", "checkpoint", "evaluation", "pause")
"""Events with a length, which partition the wall time of a process."""


@dataclass(frozen=True)
class Process:
    """One process of the run: one rank in one attempt. Its ``start`` event, and what followed."""

    file: Path
    run_id: str
    rank: int
    world_size: int
    node: str
    """Host name."""
    pid: int
    boot_id: str
    """Boot id of the kernel: processes with the same one share a monotonic clock."""
    launch: str
    """What started this attempt, the same on all its ranks where the launcher says so (torchrun's run
    id and restart count, Slurm's job, step and restart count); else empty."""
    opened_s: float
    """Wall clock when the recorder opened (t = 0), seconds since 1970."""
    monotonic_s: float
    """CLOCK_MONOTONIC when the recorder opened."""
    lived_s: float
    """How long the process had lived when the recorder opened (imports), seconds."""
    submitted_s: float | None
    """Wall clock when this attempt was submitted to a queue, where the user says so."""
    gpus: float
    """Accelerators that this rank holds (1 unless said)."""
    labels: Mapping[str, str]
    """What the rank belongs to: rack, pipeline stage, ..."""

    attempt: int = 0
    """0, 1, ...: processes of one attempt ran side by side, one of each rank."""
    ready_t: float | None = None
    """When the initialisation was over; None: it never was."""
    resumed_from: int | None = None
    last_t: float = 0.0
    """The last sign of life."""
    end: Literal["clean", "exception", "signal", "none"] = "none"
    """``none``: killed, or still alive."""
    end_detail: str = ""


@dataclass(frozen=True)
class RecordedRun:
    """All events of one run, on one time line."""

    run_id: str
    folder: Path
    processes: tuple[Process, ...]
    """Ordered by attempt, then rank."""
    events: pa.Table
    """In `rankfile.EVENTS`."""
    start_s: tuple[float, ...]
    """Per process: run time at which the process began (`Process.lived_s` before its recorder opened),
    seconds after the first process of the run began; steps of the wall clock are taken out where
    the monotonic clock allows."""
    origin_s: float
    """Wall clock of run time 0, seconds since 1970."""
    clocks_s: Mapping[str, float] = field(default_factory=dict)
    """Node -> seconds by which its clock is ahead of the other nodes', where that is more than 1 s; taken
    out of all times."""
    rejects: tuple[Reject, ...] = ()
    remarks: tuple[str, ...] = field(default=())
    """What had to be guessed or corrected: clocks, missing ranks, cut lines."""
    doubts: tuple[str, ...] = ()
    """What makes all times doubtful."""

    @property
    def attempts(self) -> int:
        """How often the run was started."""
        return 1 + max(process.attempt for process in self.processes)
