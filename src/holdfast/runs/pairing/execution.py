"""One command: run with a time limit, stopped with all its children, its output kept in part."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

TAIL_CHARACTERS = 2000
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
_READ = 1 << 16
_LAST_READS = 64


@dataclass(frozen=True)
class Execution:
    """How a command ended."""

    exit_code: int | None
    """As a shell tells it: 128 + number after a signal; None when it was stopped at its time limit."""
    seconds: float
    started_at: str
    output_tail: str


async def execute(
    command: str, timeout_s: float, output: Path | None = None, grace_s: float = GRACE_S
) -> Execution:
    """Run a command with ``sh -c`` in a new process group.

    On timeout, or if the caller is cancelled, the whole group gets SIGTERM and, `grace_s` later, SIGKILL.
    No process of the group outlives the call.

    Args:
        command: shell command; its input is empty.
        timeout_s: time limit, seconds.
        output: file for its output.
        grace_s: seconds between SIGTERM and SIGKILL.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    start = time.monotonic()
    with _Output(output) as printed:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=printed.write_end,
            stderr=printed.write_end,
            start_new_session=True,
        )
        printed.listen()
        code: int | None = None
        try:
            code = await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            await _end(process, grace_s)
        seconds = time.monotonic() - start
    if code is not None and code < 0:
        code = 128 - code
    return Execution(code, round(seconds, 3), started_at, printed.tail())


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """End what is left of a process group, politely first."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
    finally:
        _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """What a command prints: read as it comes, so that it never waits; its end is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept = bytearray()

    def __enter__(self) -> _Output:
        self._file = None if self._path is None else self._path.open("wb")
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        return self

    def listen(self) -> None:
        os.close(self.write_end)
        self.write_end = -1
        asyncio.get_running_loop().add_reader(self._read_end, self._read)

    def _read(self) -> bool:
        """Take what is there; false at the end."""
        try:
            data = os.read(self._read_end, _READ)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._read_end)
            return False
        if self._file is not None:
            self._file.write(data)
        self._kept += data
        del self._kept[: -4 * TAIL_CHARACTERS]
        return True

    def __exit__(self, *_: object) -> None:
        # A process that left the group may hold the pipe open: take what is there, wait for no more.
        for _again in range(_LAST_READS):
            if not self._read():
                break
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)
        if self.write_end >= 0:
            os.close(self.write_end)
        if self._file is not None:
            self._file.close()

    def tail(self) -> str:
        return self._kept.decode("utf-8", "replace")[-TAIL_CHARACTERS:]
