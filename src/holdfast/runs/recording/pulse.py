"""The thread beside a training: it says that the process lives, and notices what the main thread cannot."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

_LONGEST_WAIT_S = 3600.0


class Pulse(threading.Thread):
    """Calls `beat`, which says after how many seconds to call it again; hears the numbers of signals."""

    def __init__(self, beat: Callable[[], float]) -> None:
        super().__init__(name="holdfast-pulse", daemon=True)
        self._beat = beat
        self._heard: Callable[[int], None] = lambda number: None
        self._forwards_to = -1
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)

    def listen(self, heard: Callable[[int], None], forwards_to: int) -> None:
        """Call `heard` for each signal; pass numbers on to the descriptor `forwards_to`, if not -1."""
        self._heard = heard
        self._forwards_to = forwards_to

    @property
    def wakeup(self) -> int:
        """The end of the pipe into which `signal.set_wakeup_fd` shall write."""
        return self._pipe[1]

    def run(self) -> None:
        """Until `stop`."""
        ready = (
            select.poll()
        )  # `select` knows no descriptors beyond 1,023, of which trainings have many
        ready.register(self._pipe[0], select.POLLIN)
        while True:
            wait_s = min(max(self._beat(), 0.001), _LONGEST_WAIT_S)
            if not ready.poll(wait_s * 1000):
                continue
            try:
                numbers = os.read(self._pipe[0], 64)
            except OSError:  # closed by a `stop` that would not wait any longer
                return
            if 0 in numbers:  # no signal has this number: `stop` wrote it
                return
            if self._forwards_to != -1:
                with contextlib.suppress(OSError):
                    os.write(self._forwards_to, numbers)
            for number in set(numbers):
                self._heard(number)

    def stop(self) -> None:
        """End the thread, wait for it."""
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], b"\0")
        if self is not threading.current_thread():
            self.join(timeout=2)

    def abandon(self) -> None:
        """Close the pipe, when no signal writes into it: after the thread, or in a child without it."""
        for end in self._pipe:
            with contextlib.suppress(OSError):
                os.close(end)
