"""One command: run with a time limit, stopped with all its children, its output kept in part."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

TAIL_CHARACTERS = 2000
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
READ_BYTES = 1 << 16
LAST_READ_S = 0.5
LOOK_S = 0.25
"""Between two looks at whether a command is to be stopped."""


@dataclass(frozen=True)
class Execution:
    """How a command ended."""

    exit_code: int | None
    """As a shell tells it: 128 + number after a signal; None when it was stopped at its time limit."""
    seconds: float
    started_at: str
    output_tail: str


def execute(
    command: str,
    timeout_s: float,
    output: Path | None = None,
    grace_s: float = GRACE_S,
    stopped: threading.Event | None = None,
) -> Execution:
    """Run a command with ``sh -c`` in a new process group.

    On timeout, or when the caller stops it, the whole group gets SIGTERM and, `grace_s` later, SIGKILL.
    No process of the group outlives the call.

    Args:
        command: shell command; its input is empty.
        timeout_s: time limit, seconds.
        output: file for its output.
        grace_s: seconds between SIGTERM and SIGKILL.
        stopped: ends the command as its time limit would, once it is set.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    start = time.monotonic()
    with subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    ) as process:
        kept = bytearray()
        # A process that left the group may hold the pipe open: its reader is waited for no longer.
        reader = threading.Thread(target=_read, args=(process, output, kept), daemon=True)
        reader.start()
        code: int | None = None
        try:
            code = _in_time(process, timeout_s, stopped or threading.Event())
        finally:
            _end(process, grace_s)
        reader.join(LAST_READ_S)
        seconds = time.monotonic() - start
    if code is not None and code < 0:
        code = 128 - code
    tail = kept.decode("utf-8", "replace")[-TAIL_CHARACTERS:]
    return Execution(code, round(seconds, 3), started_at, tail)


def _in_time(
    process: subprocess.Popen[bytes], timeout_s: float, stopped: threading.Event
) -> int | None:
    """The exit code of a process; None where its time is over before, or it is stopped."""
    until = time.monotonic() + timeout_s
    while not stopped.is_set() and (left := until - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, LOOK_S))
    return process.poll()


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End what is left of a process group, politely first."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _read(process: subprocess.Popen[bytes], path: Path | None, kept: bytearray) -> None:
    """Read what a command prints as it comes, so that it never waits; keep its end."""
    assert process.stdout is not None
    with contextlib.nullcontext() if path is None else path.open("wb") as file:
        while data := process.stdout.read(READ_BYTES):
            if file is not None:
                file.write(data)
            kept += data
            del kept[: -4 * TAIL_CHARACTERS]
