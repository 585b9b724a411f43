"""SIGTERM, noticed at once even while the main thread is stuck, and handed to whom it belongs.

A handler in Python runs when the main thread runs Python again, which one stuck in a collective never
does; without a handler the signal would have ended it. So a thread reads the signal's number from the
wakeup pipe, and where the default action stood before, the process dies of it as it would have.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None

_installed: list[Sigterm] = []
_aside: tuple[Handler, int] | None = None


class Sigterm:
    """Wraps SIGTERM's handler until `leave`; does nothing outside the main thread.

    Args:
        callback: called on SIGTERM, in the main thread or in the one that calls `heard`.
        wakeup: file descriptor to which signal numbers are written.
    """

    def __init__(self, callback: Callable[[], None], wakeup: int) -> None:
        self._told = callback
        self.wakeup = wakeup
        self.previous: Handler = None
        """The handler behind this one; None where this one is not installed."""
        self.forwards_to = -1
        """Who waited for the numbers of signals before (asyncio), and still does; -1 is nobody."""
        # A handler set outside Python (None) cannot be called; what is ignored shall stay so.
        if in_main_thread() and signal.getsignal(signal.SIGTERM) not in (None, signal.SIG_IGN):
            self.previous = signal.signal(signal.SIGTERM, self.handle)
            self.forwards_to = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            _installed.append(self)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, as soon as it runs Python."""
        self.heard(number)
        if callable(self.previous):
            self.previous(number, frame)

    def heard(self, number: int) -> None:
        """Act on a signal, in the main thread or in the one beside it."""
        if number != signal.SIGTERM or self.previous is None:
            return
        self._told()
        ours = signal.getsignal(number) == self.handle
        if self.previous == signal.SIG_DFL and (ours or in_main_thread()):
            _die_of(number)

    def leave(self) -> bool:
        """Put back what was there; whether nobody writes into `wakeup` any more."""
        if self.previous is None:
            return True
        if not in_main_thread():
            return False
        if self in _installed:
            _installed.remove(self)
        if signal.getsignal(signal.SIGTERM) == self.handle:
            signal.signal(signal.SIGTERM, self.previous)
        present = signal.set_wakeup_fd(-1)
        ours = present == self.wakeup
        signal.set_wakeup_fd(self.forwards_to if ours else present, warn_on_full_buffer=False)
        return ours


def in_main_thread() -> bool:
    """Whether handlers can be set here."""
    return threading.current_thread() is threading.main_thread()


def _die_of(number: int) -> None:
    """End this process by the signal's default action, from any thread, whatever its handler."""
    # `signal.signal` is refused outside the main thread, which is the one that is stuck.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(number, None)
    os.kill(os.getpid(), number)
    time.sleep(1)  # it arrives before this is over, unless the signal is blocked
    os._exit(128 + number)


# --- Forks ---------------------------------------------------------------------------------------


def _step_aside() -> None:
    """Before a fork: a signal that hits the child at once must act on it, not in its parent's pipe."""
    global _aside
    if not _installed or not in_main_thread():
        return
    handler = present = signal.getsignal(signal.SIGTERM)
    for each in reversed(_installed):
        if handler == each.handle:
            handler = each.previous
    if handler != present:
        signal.signal(signal.SIGTERM, handler)
    _aside = present, signal.set_wakeup_fd(-1)


def _step_back() -> None:
    """After a fork, in the parent."""
    global _aside
    if _aside is not None:
        handler, wakeup = _aside
        _aside = None
        if signal.getsignal(signal.SIGTERM) != handler:
            signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)


def _forget_in_child() -> None:
    """After a fork, in the child: handlers and pipes of the parent are not its own."""
    global _aside
    if _aside is not None and _aside[1] not in [each.wakeup for each in _installed]:
        signal.set_wakeup_fd(_aside[1], warn_on_full_buffer=False)
    _aside = None
    for each in reversed(list(_installed)):  # where another thread than the main one forked
        each.leave()
    _installed.clear()


os.register_at_fork(before=_step_aside, after_in_parent=_step_back, after_in_child=_forget_in_child)
