"""Locks on files that die with their process: who publishes in a folder, who reads a checkpoint.

flock, because the kernel gives such a lock back when its holder is killed, on NFS too. Where a file
system has no locks, `Unsupported` says so, and the callers do without what only a lock can tell.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path


class Held(Exception):
    """Another process (or another part of this one) holds the lock."""


class Unsupported(Exception):
    """The file system has no locks."""


class FileLock:
    """An exclusive lock on a file, held until it is closed or the process dies."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            Held: if somebody else has it.
            Unsupported: if the file system has no locks.
            OSError: if the file cannot be made.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._descriptor)
            raise
        _HELD.add(self)

    def note(self, text: str) -> None:
        """Write into the file who holds it."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)

    def close(self) -> None:
        """Give the lock back."""
        if self in _HELD:
            _HELD.discard(self)
            os.close(self._descriptor)


def shared(path: Path) -> AbstractContextManager[None]:
    """Keep a file from being locked exclusively while the block runs; no matter where unsupported.

    Raises:
        Held: if somebody has it exclusively.
        OSError: if it cannot be opened.
    """
    return _held(path, os.O_RDONLY, fcntl.LOCK_SH)


def exclusive(path: Path) -> AbstractContextManager[None]:
    """Keep everybody else out while the block runs; alone by assumption where unsupported.

    Raises:
        Held: if somebody has it.
        OSError: if it cannot be opened.
    """
    # Over NFS an exclusive lock needs a file that is open for writing.
    return _held(path, os.O_RDWR, fcntl.LOCK_EX)


@contextmanager
def _held(path: Path, opened: int, kind: int) -> Iterator[None]:
    descriptor = os.open(path, opened)
    try:
        with suppress(Unsupported):
            _lock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Held from None
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise Unsupported from error
        raise


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked worker of a data loader shares the open file and would keep the lock of a killed parent.
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_forget_in_child)
