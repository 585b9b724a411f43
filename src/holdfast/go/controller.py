"""A GTP engine that runs as a process of its own, seen from its controller."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import time
from resource import RUSAGE_CHILDREN, getrusage

from holdfast.errors import HoldfastError, InputError

GAMES = "/usr/games"
"""Where Debian installs games, which is not on every PATH."""


class Lines:
    """Lines of a pipe or a file, as they come: one can look whether there is another one.

    Args:
        descriptor: of the file; nothing else reads it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._read, self._ended = descriptor, b"", False

    def ready(self, timeout_s: float | None = 0.0) -> bool:
        """Whether there is a line, or the end, within some seconds; None waits for it."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._read and not self._ended:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return False
            data = os.read(self._descriptor, 1 << 16)
            self._read, self._ended = self._read + data, not data
        return True

    def next(self, timeout_s: float | None = None) -> str | None:
        """The next line, without its end; None behind the last one.

        Raises:
            TimeoutError: if there is none within some seconds.
        """
        if not self.ready(timeout_s):
            raise TimeoutError
        line, end, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace") if line or end else None


class EngineFailure(HoldfastError):
    """A GTP engine that refuses a command, ends, or does not answer in time."""

    code = "engine-failure"


class GtpProcess:
    """An engine as a subprocess.

    Args:
        line: command line, such as ``gnugo --mode gtp --level 1``.
        deadline_s: seconds that an answer may take.

    Raises:
        InputError: if there is no such program.
    """

    def __init__(self, line: str, deadline_s: float = 600.0) -> None:
        self.line, self.deadline_s = line, deadline_s
        self.cpu_s = 0.0
        """CPU seconds of the process, once it is closed."""
        words = shlex.split(line)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), GAMES])
        program = shutil.which(words[0], path=path) if words else None
        if program is None:
            raise InputError(
                "player not found",
                code="not-found",
                place="player",
                found=line,
                expected="visits:N, or the command line of a GTP engine",
            )
        self._process = subprocess.Popen(
            [program, *words[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._lines = Lines(self._output.fileno())

    def send(self, command: str) -> str:
        """The text of the response to a command.

        Raises:
            EngineFailure: if the engine refuses, ends, or is late.
        """
        try:
            self._input.write(f"{command}\n".encode())
            self._input.flush()
        except OSError:
            raise EngineFailure(f"{self.line}: ended before {command!r}") from None
        lines: list[str] = []
        while True:
            try:
                line = self._lines.next(self.deadline_s)
            except TimeoutError:
                raise EngineFailure(f"{self.line}: no answer to {command!r}") from None
            if line is None:
                raise EngineFailure(f"{self.line}: ended at {command!r}")
            line = line.rstrip("\r")
            # A response begins with = or ?; anything before it is no GTP.
            if lines or line[:1] in ("=", "?"):
                if not line:
                    break
                lines.append(line)
        text = "\n".join(lines)
        if text[0] == "?":
            raise EngineFailure(f"{self.line}: {command!r} was refused: {text[1:].strip()}")
        return text[1:].strip()

    def close(self, quit_s: float = 10.0) -> None:
        """End the process, which has some seconds to quit, and count its CPU time."""
        before = getrusage(RUSAGE_CHILDREN)
        self.deadline_s = quit_s
        with contextlib.suppress(EngineFailure):
            self.send("quit")
        with contextlib.suppress(OSError):  # what was not sent is lost with the engine
            self._input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(quit_s)
        self._process.kill()
        self._process.wait()
        self._output.close()
        after = getrusage(RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
