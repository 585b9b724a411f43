"""`RunRecorder`: one JSON line per event and rank, in the kernel's hands before the next step begins."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsFloat, SupportsInt

from holdfast.errors import InputError
from holdfast.runs.recording.collectives import WAITS
from holdfast.runs.recording.eventfile import EventFile, tell
from holdfast.runs.recording.events import FORMAT_VERSION
from holdfast.runs.recording.identity import (
    boot_id,
    checked_amount,
    checked_run_id,
    launch_of_process,
    lived_s,
    rank_of_process,
)
from holdfast.runs.recording.lines import bounded_text, not_finite_as_text
from holdfast.runs.recording.pulse import Pulse
from holdfast.runs.recording.sigterm import Sigterm
from holdfast.runs.recording.spans import Span

DUMPED_AT_END_S = 5.0
"""A rank that is told to end after so long without progress writes its flight record first."""
_YEAR_2001_S = 1e9


class RunRecorder:
    """Records what one process of a training run does with its time.

        with RunRecorder("events", "my-run") as recorder:
            recorder.ready(resumed_from=last_step)
            for number, batch in ...:
                with recorder.step(number, tokens=batch.size) as step:
                    step.loss = train(batch)

    Opening it writes the first line of ``folder/run_id/rank-00000-<start ms>-<pid>.jsonl``; every event
    is one more line, written by one call of the system and never buffered, so that a kill loses nothing
    but the step in progress. Restart the program with the same run id for a further attempt. Without
    ``with``, call `close`. Once open it never stops the training: an event that cannot be written is
    counted and told on stderr. A forked child records nothing.

    Spans (`step`, `data_wait`, `checkpoint`, `evaluation`, `pause`) are blocks of the thread that made
    (or entered) the recorder, nested or apart; spans of other threads are written too, but their time
    runs beside the training and the breakdown leaves it out. `published` may come from any thread.

    Args:
        folder: where runs are kept, the same for all ranks.
        run_id: names the run, the same on all ranks and after every restart.
        rank: of this process; by default RANK (torchrun) or SLURM_PROCID, else 0.
        world_size: number of ranks; by default WORLD_SIZE, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, else 1.
        submitted_s: wall clock (seconds since 1970) at which this attempt was submitted to a queue.
        gpus: accelerators that this rank holds.
        labels: what the rank belongs to, such as ``{"rack": "r7", "stage": "2"}``.
        heartbeat_s: after so long without an event, a line says that the process lives.
        hang_after_s: once ready, after so long with nothing but such lines, torch's flight record is
            dumped beside the events, once per silence; progress deletes it. None never dumps.

    Raises:
        InputError: the run id cannot name a folder, the rank is impossible, the folder cannot be
            written, or another live process records this rank of this run.
    """

    def __init__(
        self,
        folder: Path | str,
        run_id: str,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        submitted_s: float | None = None,
        gpus: float = 1.0,
        labels: Mapping[str, object] | None = None,
        heartbeat_s: float = 1.0,
        hang_after_s: float | None = None,
    ) -> None:
        self.folder = Path(folder) / checked_run_id(run_id)
        """The run's own folder."""
        self.rank, self.world_size = rank_of_process(rank, world_size)
        self._launch = launch_of_process()
        self._heartbeat_s = checked_amount("heartbeat_s", heartbeat_s) or 1.0
        self._hang_after_s = checked_amount("hang_after_s", hang_after_s)
        checked_amount("gpus", gpus, least=-1e-300)
        checked_amount("submitted_s (seconds since 1970)", submitted_s, least=_YEAR_2001_S)
        lived = lived_s()
        self._opened = time.monotonic()
        opened_s = time.time()
        self._file = EventFile(self.folder, self.rank, opened_s)
        self._file.write(
            {
                "event": "start",
                "t": 0.0,
                "version": FORMAT_VERSION,
                "run_id": run_id,
                "rank": self.rank,
                "world_size": self.world_size,
                "node": os.uname().nodename,
                "pid": os.getpid(),
                "boot_id": boot_id(),
                "launch": self._launch,
                "opened_s": round(opened_s, 6),
                "monotonic_s": round(self._opened, 6),
                "lived_s": round(lived, 6),
                "submitted_s": None if submitted_s is None else float(submitted_s),
                "gpus": float(gpus),
                "labels": {str(key): bounded_text(value) for key, value in (labels or {}).items()},
            }
        )
        if self._file.lost:
            self._file.abandon()
            raise InputError(
                "the first event cannot be written",
                code="unwritable",
                path=self._file.path,
                remedy="free some space",
            )
        self._thread = threading.get_ident()
        self._open_spans: list[Span] = []
        self._ready = self._ended = False
        self._ending = threading.RLock()  # a signal's handler may interrupt its holder
        self._last_line_at = self._last_event_at = self._last_progress_at = self._opened
        self._dumped = False
        self._silences = 0
        self._record: Path | None = None
        self._dumping: threading.Thread | None = None
        self._told_odd = False
        self._pulse = Pulse(self._beat)
        self._sigterm = Sigterm(self._told_to_end, self._pulse.wakeup)
        self._pulse.listen(self._sigterm.heard, self._sigterm.forwards_to)
        self._pulse.start()
        atexit.register(self._at_exit)
        _live.append(self)

    # --- Life ------------------------------------------------------------------------------------

    def __enter__(self) -> RunRecorder:
        self._thread = threading.get_ident()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(*_ending_of(error))

    def close(self) -> None:
        """Write the end of the recording, unless it is written; later events go nowhere."""
        self._close("clean", "")

    def _close(self, how: str, detail: str) -> None:
        self._end(how, detail)
        atexit.unregister(self._at_exit)
        unused = self._sigterm.leave()
        self._pulse.stop()
        if unused:
            self._pulse.abandon()
        self._file.close()
        if self in _live:
            _live.remove(self)

    def _end(self, how: str, detail: str) -> None:
        with self._ending:
            if not self._ended:
                event: dict[str, Any] = {"event": "end", "how": how, "detail": bounded_text(detail)}
                if self._file.lost:
                    event["lost"] = self._file.lost
                self._write(event, progress=False)
                self._ended = True

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        if error is None or hasattr(sys, "ps1"):
            self._close("clean", "the program ended without closing the recorder")
        else:
            self._close(*_ending_of(error))

    def _abandon(self) -> None:
        """In a forked child: the file, the lock and the pipe are the parent's."""
        self._file.abandon()
        self._pulse.abandon()
        atexit.unregister(self._at_exit)

    # --- Events ----------------------------------------------------------------------------------

    def ready(self, resumed_from: SupportsInt | None = None) -> None:
        """The initialisation is over.

        Args:
            resumed_from: last step that the loaded checkpoint had completed; None from scratch.
        """
        self._ready = True
        self._write(
            {"event": "ready", "resumed_from": None if resumed_from is None else int(resumed_from)}
        )

    def step(
        self,
        number: SupportsInt,
        *,
        tokens: SupportsFloat | None = None,
        samples: SupportsFloat | None = None,
    ) -> Span:
        """A block that is one step of the optimizer.

        Args:
            number: of the step, counted over restarts.
            tokens: that this rank handles in it.
            samples: that this rank handles in it.
        """
        return Span(self, "step", int(number), tokens=tokens, samples=samples)

    def data_wait(self) -> Span:
        """A block that waits for the next batch."""
        return Span(self, "data_wait")

    def checkpoint(self, number: SupportsInt) -> Span:
        """A block in which a checkpoint of step `number` stops the training."""
        return Span(self, "checkpoint", int(number))

    def evaluation(self, number: SupportsInt | None = None) -> Span:
        """A block that evaluates the model, after step `number`."""
        return Span(self, "evaluation", None if number is None else int(number))

    def pause(self, reason: str) -> Span:
        """A block that does nothing for the training, such as waiting for a person."""
        return Span(self, "pause", reason=reason)

    def published(
        self,
        number: SupportsInt,
        *,
        background_s: SupportsFloat | None = None,
        size_bytes: SupportsInt | None = None,
    ) -> None:
        """The checkpoint of step `number` is complete: a restart can load it. From any thread.

        Args:
            number: the step.
            background_s: how long it was written while the training went on.
            size_bytes: its size.
        """
        event: dict[str, Any] = {"event": "published", "step": int(number)}
        if background_s is not None:
            event["background_s"] = self._number("background_s", background_s)
        if size_bytes is not None:
            event["bytes"] = int(size_bytes)
        self._write(event)

    # --- Spans -----------------------------------------------------------------------------------

    def _enter_span(self, span: Span) -> None:
        if threading.get_ident() != self._thread:
            return
        self._open_spans.append(span)
        if span.kind == "step":
            WAITS.install()
            if not self._ready:
                self._ready = True
                self._write({"event": "ready"}, span.begun)
        elif span.kind != "data_wait":
            event = {"event": "begin", "what": span.kind, "step": span.number}
            self._write(
                {key: value for key, value in event.items() if value is not None}, span.begun
            )

    def _exit_span(self, span: Span, error: BaseException | None) -> None:
        event: dict[str, Any] = {"event": span.kind}
        if span.number is not None:
            event["step"] = span.number
        if span.reason is not None:
            event["reason"] = bounded_text(span.reason)
        if span.kind == "step":
            if error is not None:  # it is not completed, and nothing may count it as such
                event = {
                    "event": "pause",
                    "reason": f"step {span.number} failed: {_name_of(error)}",
                }
            else:
                self._add_values(event, span)
        now = time.monotonic()
        seconds = now - span.begun
        event["seconds"] = round(seconds, 6)
        if threading.get_ident() != self._thread:
            event["thread"] = bounded_text(threading.current_thread().name)
        else:
            self._fold(span, seconds)
            if span.kind != "step":
                WAITS.forget(span.waits)  # a step around it has not waited so long
            if span.inner_s:
                event["inner_s"] = round(min(span.inner_s, seconds), 6)
        # An exception that leaves a span may be the end of a hang: its dump stays.
        self._write(event, now, progress=error is None)

    def _fold(self, span: Span, seconds: float) -> None:
        """Take a span off those that are open; the one around it counts its time."""
        spans = self._open_spans
        while spans and spans[-1] is not span:
            if span not in spans:  # closed twice, or in the wrong order
                return
            spans.pop()
        if spans:
            spans.pop()
        if spans:
            spans[-1].inner_s += seconds

    def _add_values(self, event: dict[str, Any], span: Span) -> None:
        for name in ("tokens", "samples", "sync_s", "loss", "grad_norm", "weight_norm"):
            value = getattr(span, name)
            if value is not None:
                number = self._number(name, value)
                if number is not None:
                    event[name] = number

        if span.sync_s is None and (waits := WAITS.since(span.waits)):
            event["waits"], event["sync_s"] = waits, round(sum(waits.values()), 6)

    def _number(self, name: str, value: SupportsFloat) -> float | str | None:
        """The value for JSON; None, with one warning, if it is not a number."""
        try:
            number = float(value)
            if math.isfinite(number):
                return number
            if name in ("loss", "grad_norm"):
                return not_finite_as_text(number)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            pass
        if not self._told_odd:
            self._told_odd = True
            tell(
                f"{self._file.path}: invalid {name}, not recorded: {type(value).__name__} {value!r:.80}"
            )
        return None

    def _write(self, event: dict[str, Any], at: float | None = None, progress: bool = True) -> None:
        now = time.monotonic() if at is None else at
        self._last_line_at = self._last_event_at = now
        if progress:
            self._last_progress_at = now
            self._silences += 1  # before the look at `_record`: see `_dump`
            if self._record is not None:
                self._withdraw_record()
        self._dumped = False
        event["t"] = round(now - self._opened, 6)
        self._file.write(event)

    # --- The thread beside, and signals ----------------------------------------------------------

    def _beat(self) -> float:
        """Say that the process lives, if nothing else did; seconds until there is more to do."""
        now = time.monotonic()
        due_s = self._last_line_at + self._heartbeat_s - now
        if due_s <= 0:
            self._last_line_at = now
            self._file.write({"event": "alive", "t": round(now - self._opened, 6)})
            due_s = self._heartbeat_s
        dumping = self._dumping is not None and self._dumping.is_alive()
        if self._hang_after_s is None or not self._ready or self._dumped or dumping:
            return due_s
        hang_s = self._last_event_at + self._hang_after_s - now
        if hang_s > 0:
            return min(due_s, hang_s)
        self._dumped = True
        # In a separate thread: it takes seconds, while this one continues to write "alive".
        self._dumping = threading.Thread(target=self._dump, name="holdfast-dump", daemon=True)
        self._dumping.start()
        return due_s

    def _dump(self) -> None:
        """The flight record of torch, for `holdfast runs hang`."""
        silence = self._silences
        try:
            from holdfast.runs.flight.dumping import dump_flight_record

            record = self._records_folder() / f"rank_{self.rank}.json"
            dump_flight_record(record)
            self._record = record
            # Progress since then has found no record to delete, or will find this one.
            if silence != self._silences:
                self._withdraw_record()
        except Exception as error:  # whatever it is, the training must go on
            tell(f"no flight record of rank {self.rank}: {error}")

    def _told_to_end(self) -> None:
        """SIGTERM: say so, and keep where a rank stood that somebody ends while it hangs."""
        self._end("signal", "SIGTERM")
        silent_s = time.monotonic() - self._last_progress_at
        dumps = self._hang_after_s is not None and self._ready and not self._dumped
        if dumps and silent_s > DUMPED_AT_END_S:
            self._dump()

    def _records_folder(self) -> Path:
        """One folder per attempt: named by the start of its lowest rank, which all ranks see alike."""
        files = [path.stem.split("-") for path in self.folder.glob("rank-*-*-*.jsonl")]
        starts = [(int(rank), -int(start)) for _, rank, start, _ in files]
        return self.folder / "flight" / f"start-{-min(starts)[1]}"

    def _withdraw_record(self) -> None:
        """The run went on: a record of this silence would be taken for the state at a later hang."""
        record, self._record = self._record, None
        if record is not None:
            with suppress(OSError):
                record.unlink(missing_ok=True)


_live: list[RunRecorder] = []


def _abandon_in_child() -> None:
    for recorder in _live:
        recorder._abandon()
    _live.clear()


os.register_at_fork(after_in_child=_abandon_in_child)


def _ending_of(error: BaseException | None) -> tuple[str, str]:
    """How a program ended that this exception left, if any."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "clean", ""
    if isinstance(error, KeyboardInterrupt):
        return "signal", "SIGINT"
    return "exception", _name_of(error)


def _name_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
