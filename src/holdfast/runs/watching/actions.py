"""The user's command, run once for an alarm.

What happened reaches the command through its environment and, as JSON, through its standard input, never
as a part of the command line: no text that a training wrote is ever read by a shell.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.numbers import duration
from holdfast.plain import plain
from holdfast.runs.ranks import compact
from holdfast.runs.watching.alarms import Alarm
from holdfast.runs.watching.notices import printable

GRACE_S = 5.0
"""That a command is given to end: when it took too long, and when the watcher itself must end."""


class Clock(Protocol):
    """What the watcher needs of time."""

    def now(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def wait(self, seconds: float) -> bool:
        """Wait; True: the watcher is asked to end."""


@dataclass
class _Running:
    alarm: Alarm
    process: subprocess.Popen[bytes]
    begun: float
    asked: float | None = None
    """When it was asked to end."""


@dataclass
class Actions:
    """Commands that run beside the watching.

    Args:
        command: for ``/bin/sh``; as the user wrote it.
        timeout_s: a command that takes longer is ended.
        clock: tells how long.
        tell: takes a line for the user.
    """

    command: str
    timeout_s: float
    clock: Clock
    tell: Callable[[str], object]
    _running: list[_Running] = field(default_factory=list)

    def start(self, alarm: Alarm, run_id: str, folder: Path) -> None:
        """Run the command for an alarm; if it cannot be started, this is reported, not raised."""
        try:
            with tempfile.TemporaryFile() as given:  # a pipe would block on a long list of ranks
                given.write(json.dumps(plain({"run_id": run_id, **alarm.to_dict()})).encode())
                given.seek(0)
                process = subprocess.Popen(
                    self.command,
                    shell=True,
                    stdin=given,
                    stdout=_errors(),  # ours may be read as JSON
                    env={**os.environ, **environment(alarm, run_id, folder)},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            self.tell(f"{alarm.id}: the command could not be started: {error}")
            return
        self._running.append(_Running(alarm, process, self.clock.now()))

    def look(self) -> None:
        """Tell which commands have ended, and end those that took too long."""
        now = self.clock.now()
        for one in list(self._running):
            code = one.process.poll()
            if code is not None:
                self._running.remove(one)
                if code or one.asked is not None:
                    how = f"by signal {-code}" if code < 0 else f"with code {code}"
                    self.tell(f"{one.alarm.id}: the command failed: it ended {how}")
                else:
                    self.tell(f"{one.alarm.id}: the command is done")
            elif one.asked is None and now - one.begun > self.timeout_s:
                self.tell(f"{one.alarm.id}: the command is ended after {duration(self.timeout_s)}")
                _signal(one.process, signal.SIGTERM)
                one.asked = now
            elif one.asked is not None and now - one.asked > GRACE_S:
                _signal(one.process, signal.SIGKILL)

    def finish(self) -> None:
        """Wait for the commands that still run, each until its time is over.

        Asked to end, wait no longer than a moment, and leave them running.
        """
        self.look()
        while self._running and not self.clock.wait(0.05):
            self.look()
        for one in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(GRACE_S)
        self.look()
        for one in self._running:
            self.tell(f"{one.alarm.id}: the command continues as process {one.process.pid}")


def environment(alarm: Alarm, run_id: str, folder: Path) -> dict[str, str]:
    """What a command learns of its alarm."""
    return {
        "HOLDFAST_ALARM": alarm.kind,
        "HOLDFAST_ALARM_ID": alarm.id,
        "HOLDFAST_SEVERITY": alarm.severity,
        "HOLDFAST_RUN_ID": printable(run_id),
        "HOLDFAST_RANKS": compact(alarm.ranks),
        "HOLDFAST_SENTENCE": printable(alarm.sentence),
        "HOLDFAST_FOLDER": str(folder),
    }


def _errors() -> int | None:
    """Where the command's output goes; None: where ours goes, when there is no stderr of the system."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
