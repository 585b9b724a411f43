"""`watch`: follow a run as it writes, report problems, act on them. `replay`: the same over its history.

Silence is the time since a rank's file last grew, on the watcher's clock: wrong clocks of other hosts
cause no alarm. A watcher that starts on a running run first reads its history silently, by the events'
own time; then only problems that persist are reported.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.runs.recording.identity import checked_run_id
from holdfast.runs.recording.reading import RANK_FILES, run_folder
from holdfast.runs.recording.tailing import EventTail
from holdfast.runs.watching import board, saved_alarms
from holdfast.runs.watching.actions import Actions, Clock
from holdfast.runs.watching.alarms import Change, Ledger
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.metrics import Exporter
from holdfast.runs.watching.notices import Notice, RunStatus
from holdfast.runs.watching.replaying import by_process, in_order, replayed
from holdfast.runs.watching.run_clock import RunClock
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount

POLL_S = 5.0
TIMEOUT_S = 300.0


_SLICE_S = 0.2


@dataclass
class SystemClock:
    """Time as it passes. A handler of a signal may set `ended`: that ends a wait, and with it the watching.

    It is no `threading.Event`: the handler runs in the thread that waits, which may hold the event's lock.
    """

    ended: bool = False

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Wait; True if asked to end."""
        until = time.monotonic() + seconds
        while not self.ended and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
        return self.ended

    @contextmanager
    def ended_by_sigterm(self) -> Iterator[None]:
        """Let the signal end the watching in order."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            self.ended = True

        before = signal.signal(signal.SIGTERM, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _nothing(line: object) -> None:
    pass


def watch(
    folder: Path | str,
    run_id: str | None = None,
    *,
    limits: Thresholds = DEFAULTS,
    poll_s: float = POLL_S,
    once: bool = False,
    keep: bool = False,
    command: str | None = None,
    act: bool = False,
    timeout_s: float = TIMEOUT_S,
    metrics: str | None = None,
    otlp: str | None = None,
    tensorboard: Path | None = None,
    state: Path | None = None,
    on_notice: Callable[[Notice], object] = _nothing,
    remark: Callable[[str], object] = _nothing,
    clock: Clock | None = None,
) -> RunStatus:
    """Follow a run until it is over.

    Args:
        folder: the folder given to `RunRecorder`, or the run's own folder inside it; if it contains no
            events yet, waits for them.
        run_id: the run, if the folder contains several.
        limits: thresholds of the alarms.
        poll_s: seconds between two polls.
        once: check a run that has begun once, instead of following it.
        keep: continue when every rank has ended, for a run that is resumed later.
        command: shell command, run once for each alarm (see `actions.environment` for its variables);
            without `act` it is only reported.
        act: run the command.
        timeout_s: seconds after which a command is killed.
        metrics: ``HOST:PORT`` of the Prometheus endpoint; port 0 picks a free port.
        otlp: URL of an OpenTelemetry collector to which the same metrics are pushed at every poll.
        tensorboard: folder of files for TensorBoard: steps and goodput, the history of the run included.
        state: file that stores which alarms are open and were acted on; by default ``watch.json`` in the
            run's own folder.
        on_notice: called with each alarm as it opens and closes.
        remark: called with messages about the watcher itself.
        clock: clock, replaced in tests.

    Raises:
        InputError: several runs without `run_id`; an invalid state file; another watcher that acts; with
            `once`, no events.
        MissingExtraError: the library of `metrics`, `otlp` or `tensorboard` is not installed.
    """
    clock = SystemClock() if clock is None else clock
    own = _found(Path(folder), run_id, once, poll_s, clock, remark)
    if own is None:
        return RunStatus(run_id or "", "waiting", 0, None, 0.0, 0, ())
    with ExitStack() as stack:
        watcher = _Watcher(own, limits, poll_s, clock, on_notice, remark)
        watcher.remember(state or own / saved_alarms.FILE_NAME, required=state is not None or act)
        if act:
            stack.enter_context(saved_alarms.only_actor(watcher.state))
        if command is not None:
            watcher.command = command
            watcher.actions = Actions(command, timeout_s, clock, remark) if act else None
        if metrics is not None:
            watcher.exporters.append(stack.enter_context(Exporter.serving(metrics)))
        if otlp is not None:
            watcher.exporters.append(stack.enter_context(Exporter.pushing(otlp, poll_s)))
        for exporter in watcher.exporters:
            remark(f"metrics: {exporter.url}")
        if tensorboard is not None:
            stack.enter_context(board.written(tensorboard, watcher.lookout, watcher.origin_s))
        watcher.follow(once, keep)
        return watcher.result()


def replay(
    folder: Path | str,
    run_id: str | None = None,
    *,
    limits: Thresholds = DEFAULTS,
    poll_s: float = POLL_S,
    tensorboard: Path | None = None,
    on_notice: Callable[[Notice], object] = _nothing,
) -> RunStatus:
    """What `watch` would have told of a run that is recorded, by the events' own time.

    It acts on nothing and, without `tensorboard`, leaves nothing behind: it is for choosing `limits`.

    Raises:
        InputError: no run there, or several and none chosen.
        MissingExtraError: `tensorboard` without tensorboardX.
    """
    own = run_folder(Path(folder), run_id)
    tail, clock = EventTail(own), RunClock(own)
    lookout = Lookout(limits, account=_account_of(own))
    name, opened = _run_id(own), 0
    with ExitStack() as stack:
        if tensorboard is not None:
            stack.enter_context(board.written(tensorboard, lookout, clock.origin))
        for at_s, change in replayed(lookout, in_order(tail.history(), clock), poll_s):
            opened += change.event == "opened"
            on_notice(Notice(name, clock.origin() + at_s, change))
    if not lookout.run.ranks:
        raise _empty(own)
    return _result(lookout, name, lookout.run.heard_at, opened, len(tail.rejects))


class _Watcher:
    """One run, its lookout, and who must hear of it."""

    def __init__(
        self,
        own: Path,
        limits: Thresholds,
        poll_s: float,
        clock: Clock,
        on_notice: Callable[[Notice], object],
        remark: Callable[[str], object],
    ) -> None:
        self.folder = own
        self.run_id = own.name
        self.lookout = Lookout(limits, account=_account_of(own))
        self.state = own / saved_alarms.FILE_NAME
        self.command: str | None = None
        self.actions: Actions | None = None
        self.exporters: list[Exporter] = []
        self._tail = EventTail(own)
        self._run_clock = RunClock()
        self._poll_s = poll_s
        self._clock = clock
        self._on_told = on_notice
        self._remark = remark
        self._known = Ledger()
        self._remembers = False
        self._zero: float | None = None
        """Start of run time on the watcher's monotonic clock; None before the first events."""
        self._looked_at = clock.now()
        self._now_s = 0.0
        self._opened = 0
        self._rejected = 0
        self._unreadable: set[Path] = set()
        self._over = False

    def remember(self, path: Path, required: bool) -> None:
        """Take up the alarms that an earlier watcher left, and keep them there."""
        self.state = path
        self.run_id = _run_id(self.folder)
        self._known = saved_alarms.load(path, self.run_id)
        try:
            saved_alarms.save(path, self.run_id, self._known)
            self._remembers = True
        except OSError as error:
            if required:
                raise InputError(
                    "the file that remembers the alarms cannot be written",
                    code="unwritable",
                    path=path,
                    found=error.strerror,
                    remedy="name another with --state",
                ) from None
            self._remark(f"{path} cannot be written: a watcher started later tells alarms again")

    def origin_s(self) -> float:
        """Wall clock of run time 0."""
        return self._run_clock.origin()

    def follow(self, once: bool, keep: bool) -> None:
        """Look until the run is over, or the clock says to end."""
        while True:
            self.look()
            if once or (self._over and not keep):
                break
            if self._clock.wait(self._poll_s):
                break
        if self.actions is not None:
            self.actions.finish()

    def look(self) -> None:
        """Read what is new, and judge."""
        now = self._clock.now()
        passed_s, self._looked_at = now - self._looked_at, now
        try:
            if self._zero is None:
                self._catch_up(now)
            else:
                self._now_s = now - self._zero
                self._go_on(passed_s)
        except InputError as error:
            # What cannot be read says nothing about the run: its time stands still.
            self._remark(f"{error.problem} ({error.path}); looking again in {self._poll_s:g} s")
            if self._zero is not None:
                self._zero += passed_s
            return
        self._tell_rejects()
        if self._zero is None:
            return
        self._tell(self.lookout.look(self._now_s))
        if self.actions is not None:
            self.actions.look()
        self._note_over()
        for exporter in self.exporters:
            exporter.update(self.lookout, self.run_id, self._now_s)

    def result(self) -> RunStatus:
        """How it stands."""
        return _result(
            self.lookout, self.run_id, self._now_s, self._opened, len(self._tail.rejects)
        )

    def _catch_up(self, now: float) -> None:
        """The history, by its own time and without a word; then every rank is as old as its file."""
        self._run_clock = RunClock(self.folder)
        history = in_order(self._tail.history(), self._run_clock)
        for _ in replayed(self.lookout, history, self._poll_s):
            pass
        if not self.lookout.run.ranks:
            return
        ages = self._ages()
        self._now_s = self.lookout.run.heard_at + min(ages.values())
        for number, rank in self.lookout.run.ranks.items():
            rank.seen_at = self._now_s - ages[number]
            rank.progress_at = rank.seen_at - (rank.t - rank.progress_t)
        self.lookout.ledger = self._known
        self._zero = now - self._now_s
        ranks = len(self.lookout.run.ranks)
        self._remark(
            f"watching run {self.run_id}: attempt {self.lookout.run.attempt + 1}, {ranks} of "
            f"{self.lookout.run.world_size} ranks"
        )

    def _ages(self) -> dict[int, float]:
        """Seconds since each rank's file grew, by the clock of the file system."""
        try:
            now = self.state.stat().st_mtime if self._remembers else self._clock.wall()
        except OSError:
            now = self._clock.wall()
        ages = {}
        for number, rank in self.lookout.run.ranks.items():
            try:
                ages[number] = max(0.0, now - rank.process.file.stat().st_mtime)
            except OSError:
                ages[number] = 0.0
        return ages

    def _go_on(self, passed_s: float) -> None:
        """What is new since the last look; a file that cannot be read says nothing and does not age."""
        events = in_order(by_process(self._tail.poll()), self._run_clock)
        for _, process, event, opened_at in events:
            self.lookout.take(process, event, self._now_s, opened_at)
        unreadable = self._tail.unreadable
        for rank in self.lookout.run.ranks.values():
            if rank.process.file in unreadable:
                rank.seen_at += passed_s
                rank.progress_at += passed_s
        for path in unreadable.keys() - self._unreadable:
            self._remark(f"{path} cannot be read: {unreadable[path]}")
        self._unreadable = set(unreadable)

    def _tell(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        for change in changes:
            self._opened += change.event == "opened"
            self._on_told(Notice(self.run_id, self._clock.wall(), change))
        ledger = self.lookout.ledger
        to_act = [alarm for alarm in ledger.open.values() if not alarm.acted]
        if self.actions is not None:
            for alarm in to_act:
                ledger.acted(alarm.kind)
        if self._remembers and (changes or (self.actions is not None and to_act)):
            # Before the command runs: a watcher that is killed here acts once less, never twice.
            self._save()
        if self.actions is not None:
            for alarm in to_act:
                self.actions.start(alarm, self.run_id, self.folder)
        elif self.command is not None:
            for change in changes:
                if change.event == "opened":
                    self._remark(f"{change.alarm.id}: would run: {self.command}")

    def _save(self) -> None:
        try:
            saved_alarms.save(self.state, self.run_id, self.lookout.ledger)
        except OSError as error:
            self._remark(f"{self.state}: not written: {error.strerror}")

    def _tell_rejects(self) -> None:
        rejects = self._tail.rejects
        if len(rejects) > self._rejected:
            latest = rejects[-1]
            self._remark(
                f"{len(rejects) - self._rejected} lines set aside, the last at {latest.file.name}, line "
                f"{latest.line}: {latest.reason}"
            )
            self._rejected = len(rejects)

    def _note_over(self) -> None:
        over = self.lookout.run.over
        if over and not self._over:
            self._remark("every rank has ended: the run is over")
        self._over = over


def _found(
    folder: Path,
    run_id: str | None,
    once: bool,
    poll_s: float,
    clock: Clock,
    remark: Callable[[str], object],
) -> Path | None:
    """The run's own folder, waited for; None if asked to end first."""
    if run_id is not None:
        checked_run_id(run_id)
    waiting = False
    while True:
        try:
            return run_folder(folder, run_id)
        except InputError:
            if once or (run_id is None and _several(folder)):
                raise
        if not waiting:
            what = "events" if run_id is None else f"events of run {run_id}"
            remark(f"waiting for {what} in {folder}")
            waiting = True
        if clock.wait(poll_s):
            return None


def _several(folder: Path) -> bool:
    return len({path.parent for path in folder.glob(f"*/{RANK_FILES}")}) > 1


def _run_id(own: Path) -> str:
    """Run id of a folder: the name that `RunRecorder` gave it."""
    return own.resolve().name


def _result(lookout: Lookout, run_id: str, now_s: float, opened: int, rejected: int) -> RunStatus:
    run = lookout.run
    state = "over" if run.over else "going" if run.living else "down"
    return RunStatus(
        run_id,
        state,  # type: ignore[arg-type]
        run.attempt + 1,
        run.completed,
        now_s,
        opened,
        tuple(lookout.ledger.open.values()),
        rejected,
        lookout.account(run.attempt),
    )


def _account_of(own: Path) -> Callable[[int], AttemptAccount | None]:
    """How an attempt of the run ended, as its report says it."""

    def account(attempt: int) -> AttemptAccount | None:
        from holdfast.runs.goodput.accounting import breakdown

        with suppress(InputError):
            attempts = breakdown(own).attempts
            return attempts[attempt] if attempt < len(attempts) else None
        return None

    return account


def _empty(own: Path) -> InputError:
    return InputError(
        "no usable event in these files",
        code="no-data",
        path=own,
        expected="files that a RunRecorder wrote",
    )
