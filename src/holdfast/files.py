"""Files and folders that appear complete or not at all, locks, and append-only journals.

A reader finds the old content or the new one, never half of it, whatever happens to the writer:

- `atomic_file` and `atomic_folder` write to a hidden draft beside the target, flush it to the disk and
  rename it. A draft is named ``.NAME.….part``.
- `Lock` keeps other writers out. It dies with its process.
- `Journal` is a file of lines that only grows, for work that is resumed.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import HoldfastError, InputError

_DRAFT = re.compile(r"\.(?P<target>.+)\.\d+(-\d+)?\.part", re.DOTALL)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_SYNCS = 16  # flushes at a time: the disk merges them, 8 times as fast as one after another

# --- Files ---------------------------------------------------------------------------------------


def read_whole(path: str | Path, what: str) -> bytes:
    """The bytes of a file that should hold `what`.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            "the file cannot be read",
            code="not-found" if isinstance(error, FileNotFoundError) else "unreadable",
            path=path,
            found=error.strerror,
            expected=f"a file with {what}",
        ) from error


def write_whole(path: str | Path, *parts: bytes | memoryview) -> None:
    """Write a file as `atomic_file` does.

    Raises:
        HoldfastError: if it cannot be written.
    """
    try:
        with atomic_file(path) as file:
            file.writelines(parts)
    except OSError as error:
        raise HoldfastError(
            f"{path}: the file cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file to write to; it replaces `path` when the block ends without an error.

    Then it is on the disk under its name: a crash leaves the old file or the new one. Devices and pipes
    are written directly, and where `path` is a link, the file that it points to is replaced.

    Raises:
        OSError: if it cannot be written.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as device:
            yield device
        return
    # Not a fixed name under a lock: some file systems of clusters have no locks.
    writer = f"{os.getpid()}-{threading.get_native_id()}"
    draft = target.with_name(f".{target.name}.{writer}.part")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync(target.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def draft_target(name: str) -> str | None:
    """The name of the file that a draft of `atomic_file` was to become; None for other names.

    A writer that was killed leaves its draft behind; who owns the folder may remove it.
    """
    draft = _DRAFT.fullmatch(name)
    return draft["target"] if draft else None


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries (names made, replaced, removed), to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # network file systems that cannot flush a folder
            raise
    finally:
        os.close(handle)


# --- Folders -------------------------------------------------------------------------------------


@contextmanager
def atomic_folder(
    target: Path, *, plan: str | None = None, replace: bool = False
) -> Iterator[Path]:
    """A hidden folder to write to; it becomes `target` when the block ends without an error.

    Until then it is locked, and removed after an error, unless it has a plan. What a killed writer left
    is removed by the next one.

    Args:
        target: a folder that does not exist or is empty, unless it is replaced.
        plan: hash (hexadecimal) of what is written: an interrupted run with the same plan is resumed; the
            folder then still has its files.
        replace: whether the folder at the target is replaced.

    Raises:
        LockHeldError: if another process is writing this target.
        OSError: if the folder cannot be written, or the target is not empty.
    """
    folder = target.with_name(".".join(["", target.name, *([plan] if plan else []), "part"]))
    folder.mkdir(parents=True, exist_ok=True)
    with Lock(folder) as lock:
        if plan is None:
            for left in folder.iterdir():
                _remove(left)
        elif lock.excludes:
            pattern = f".{glob.escape(target.name)}.{'[0-9a-f]' * len(plan)}.part"
            for other in set(target.parent.glob(pattern)) - {folder}:
                with Lock(other):
                    shutil.rmtree(other)
        try:
            yield folder
            _sync_all(folder)
            _rename(folder, target, replace)
        except BaseException:
            if plan is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _rename(folder: Path, target: Path, replace: bool) -> None:
    """Rename a folder; the old one, if any, stays until the new one is in place."""
    old = target.with_name(f".{target.name}.old")
    aside = replace and target.exists()
    if aside:
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    try:
        folder.rename(target)
    except BaseException:
        if aside:
            old.rename(target)
        raise
    sync(target.parent)
    if aside:
        shutil.rmtree(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync_all(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNCS) as pool:
        for inner, _, names in os.walk(folder, topdown=False):
            list(pool.map(sync, [Path(inner, name) for name in names]))
            sync(Path(inner))


# --- Locks ---------------------------------------------------------------------------------------


class LockHeldError(HoldfastError):
    """Somebody else holds a lock."""

    code = "conflict"

    def __init__(self, path: Path, holder: str | None) -> None:
        self.path = path
        self.holder = holder
        """What the holder noted in the file; None if nothing."""
        super().__init__(
            f"{path}: another process holds the lock{f': {holder}' if holder else ''}\n"
            "  remedy: wait until it has finished, or end it"
        )


class Lock:
    """An advisory lock on a file or folder, held until `close` or the end of the process.

    The kernel releases it when the holder is killed; a forked child does not hold it. Threads exclude each
    other as processes do. Where a file system has no locks, nobody is kept out: see `excludes`.

    Args:
        path: a file, made if there is none (unless `shared`), or a folder that exists.
        shared: allow others to hold it too, if they also ask for a shared one.
        wait: wait for the others rather than raise.
        remove: remove the file when the lock is released.

    Raises:
        LockHeldError: if another one holds it.
        OSError: if the file cannot be opened.
    """

    # flock rather than a library: filelock (4.2) has neither shared locks nor locks on folders, polls while
    # it waits, and knows only one of the errors by which file systems say that they have no locks.

    def __init__(
        self, path: Path, *, shared: bool = False, wait: bool = False, remove: bool = False
    ) -> None:
        self.path = path
        self._remove = remove
        self._kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        # Over NFS an exclusive lock needs a file that is open for writing.
        reads = shared or path.is_dir()
        self._flags = os.O_RDONLY if reads else os.O_RDWR | os.O_CREAT
        self.excludes = True
        """Whether others are kept out; False where the file system has no locks."""
        self._descriptor = self._locked()
        _HELD.add(self)

    def _locked(self) -> int:
        while True:
            descriptor = os.open(self.path, self._flags, 0o666)
            try:
                self._take(descriptor)
                # The last holder may have removed or renamed what was opened: such a lock guards nothing.
                with suppress(FileNotFoundError):
                    if os.path.samestat(self.path.stat(), os.fstat(descriptor)):
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, self._kind)
        except BlockingIOError:
            holder = ""
            if not self.path.is_dir():
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            raise LockHeldError(self.path, holder or None) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self.excludes = False

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._descriptor

    def note_holder(self) -> None:
        """Write into the file which process holds it, for `LockHeldError.holder`."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            text = f"process {os.getpid()} on {os.uname().nodename}\n"
            os.pwrite(self._descriptor, text.encode(), 0)

    def close(self) -> None:
        """Release the lock; again, or in a forked child, nothing happens."""
        if self._descriptor < 0:
            return
        _HELD.discard(self)
        if self._remove:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _close_in_child() -> None:
    # A forked worker shares the open file: it would keep the lock of a parent that was killed.
    for lock in list(_HELD):
        lock._remove = False  # the file is the parent's
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


# --- Journals ------------------------------------------------------------------------------------


class Journal:
    """A file of lines that one process at a time appends to; each is on the disk when `append` returns.

    A last line without an end is what a killed writer left. It is dealt with by the first `append`: a file
    that turns out to be something else is left as it is.

    Args:
        path: the file; made if there is none.
        torn: "cut" removes such a line, "end" ends it, which leaves it to the reader.
        wait: wait for another process that writes it rather than raise.

    Raises:
        InputError: if another process is writing it, or it cannot be written.
    """

    def __init__(self, path: Path, *, torn: str = "cut", wait: bool = False) -> None:
        self.path = path
        try:
            self._lock = Lock(path, wait=wait)
        except LockHeldError:
            raise InputError(
                "another process is writing this file",
                code="conflict",
                path=path,
                remedy="wait until it has finished, or name another file",
            ) from None
        except OSError as error:
            raise InputError(
                "the file cannot be written", code="unwritable", path=path, found=error.strerror
            ) from None
        self._file = self._lock.fileno()
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        self._torn: str | None = torn

    def lines(self) -> list[bytes]:
        """The lines that have an end, without it."""
        return self.path.read_bytes().split(b"\n")[:-1]

    def append(self, line: bytes) -> None:
        """Add a line, which ends with a newline and has no other.

        Raises:
            OSError: if the disk is full or fails.
        """
        content = self.path.read_bytes() if self._torn else b""
        if content and not content.endswith(b"\n"):
            if self._torn == "cut":
                os.ftruncate(self._file, content.rfind(b"\n") + 1)
            else:
                os.write(self._file, b"\n")
        self._torn = None
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Let others write."""
        self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
