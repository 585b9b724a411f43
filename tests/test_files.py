"""Files, folders, locks and journals, with writers that fail, are killed, or write at the same time."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import files
from holdfast.errors import HoldfastError, InputError
from holdfast.files import Journal, Lock, LockHeldError, atomic_file, atomic_folder, draft_target


def in_fork(work: Callable[[], Any]) -> int:
    """The exit status of a forked child: 0, 1 after an exception, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- Files ---------------------------------------------------------------------------------------


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with atomic_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert tree(tmp_path) == {"a": b"new"}


def test_after_an_error_the_old_file_stands(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "a") as file:  # noqa: PT012
        file.write(b"half")
        raise ZeroDivisionError
    assert tree(tmp_path) == {"a": b"old"}


def test_what_a_killed_writer_leaves_is_known_as_a_draft(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "a.json") as file:
            file.write(b"half")
            file.flush()
            die()

    assert in_fork(write) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert draft_target(left.name) == "a.json"
    assert draft_target("a.json") is None
    assert draft_target(".a.json.part") is None


def test_threads_that_write_one_file_leave_one_of_theirs(tmp_path: Path) -> None:
    contents = [bytes([64 + number]) * 100_000 for number in range(6)]
    threads = [
        threading.Thread(target=files.write_whole, args=(tmp_path / "a", content))
        for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tree(tmp_path)) == ["a"]
    assert (tmp_path / "a").read_bytes() in contents


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to("a")
    files.write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"
    files.write_whole("/dev/null", b"gone")
    with pytest.raises(HoldfastError):
        files.write_whole(tmp_path, b"a folder")


# --- Folders -------------------------------------------------------------------------------------


def test_a_folder_appears_at_the_end_of_the_block(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "new") as draft:
        (draft / "in").mkdir()
        (draft / "in" / "a").write_bytes(b"1")
        assert not (tmp_path / "new").exists()
        with pytest.raises(LockHeldError), atomic_folder(tmp_path / "new"):
            pass
    assert tree(tmp_path) == {"new/in/a": b"1"}
    with pytest.raises(OSError), atomic_folder(tmp_path / "new"):  # noqa: PT011  # it is not empty
        pass
    with atomic_folder(tmp_path / "new", replace=True) as draft:
        (draft / "b").write_bytes(b"2")
    assert tree(tmp_path) == {"new/b": b"2"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_that_could_not_be_replaced_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_bytes(b"1")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == ".a.part":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input"), atomic_folder(tmp_path / "a", replace=True):
        pass
    assert tree(tmp_path) == {"a/old": b"1"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def killed_in(target: Path, plan: str | None) -> None:
    """A writer of a folder that is killed."""

    def write() -> None:
        with atomic_folder(target, plan=plan) as draft:
            (draft / "half").write_bytes(b"1")
            die()

    assert in_fork(write) == -signal.SIGKILL


def test_what_a_killed_writer_of_a_folder_left_is_removed(tmp_path: Path) -> None:
    killed_in(tmp_path / "a", None)
    with atomic_folder(tmp_path / "a"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_a_plan_finds_its_own_files_and_removes_those_of_others(tmp_path: Path) -> None:
    killed_in(tmp_path / "a", "4567cdef")
    killed_in(tmp_path / "a", "0123abcd")
    killed_in(tmp_path / "b", "0123abcd")
    with atomic_folder(tmp_path / "a", plan="0123abcd") as draft:
        assert [path.name for path in draft.iterdir()] == ["half"]
        with pytest.raises(LockHeldError), atomic_folder(tmp_path / "a", plan="4567cdef"):
            pass  # another plan of the same target is still being written
    assert tree(tmp_path) == {".b.0123abcd.part/half": b"1", "a/half": b"1"}


# --- Locks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [False, True])
def test_one_holder_at_a_time(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "lock"
    if folder:
        path.mkdir()
    with Lock(path):
        with pytest.raises(LockHeldError) as raised:
            Lock(path)
        assert raised.value.code == "conflict"
        assert in_fork(lambda: Lock(path)) == 1
    with Lock(path, shared=True), Lock(path, shared=True), pytest.raises(LockHeldError):
        Lock(path)
    Lock(path).close()


def test_the_holder_is_named(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock") as lock:
        lock.note_holder()
        with pytest.raises(LockHeldError) as raised:
            Lock(tmp_path / "lock")
    assert raised.value.holder == f"process {os.getpid()} on {os.uname().nodename}"


def test_a_killed_holder_holds_nothing_and_neither_does_its_child(tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def hold() -> None:
        kept = Lock(tmp_path / "lock", remove=True)
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)  # lives until the test ends it
            os._exit(0)
        assert kept.fileno() >= 0
        die()

    assert in_fork(hold) == -signal.SIGKILL
    # The grandchild runs its hook for forks at some time after the kill.
    Lock(tmp_path / "lock", wait=True).close()
    assert (tmp_path / "lock").exists()
    os.close(writer)
    os.close(reader)


def test_waiting_locks_pass_from_one_to_the_next_although_the_file_is_removed(
    tmp_path: Path,
) -> None:
    path, count = tmp_path / "lock", tmp_path / "count"
    count.write_text("0")

    def add() -> None:
        for _ in range(40):
            with Lock(path, wait=True, remove=True):
                count.write_text(str(int(count.read_text()) + 1))

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add) for _ in range(2)]
    threads = [threading.Thread(target=add) for _ in range(2)]
    for worker in [*workers, *threads]:
        worker.start()
    for worker in [*workers, *threads]:
        worker.join()
    assert count.read_text() == "160"
    assert not path.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with Lock(tmp_path / "lock") as lock, Lock(tmp_path / "lock"):
        assert not lock.excludes


# --- Journals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(9))
def test_a_torn_line_is_cut_off_or_ended(tmp_path: Path, size: int) -> None:
    whole = b"one\ntwo\n"
    path = tmp_path / "j"
    for torn, expected in (
        ("cut", whole[: whole[:size].rfind(b"\n") + 1]),
        ("end", whole[:size] + b"\n" * (size not in (0, 4, 8))),
    ):
        path.write_bytes(whole[:size])
        with Journal(path, torn=torn) as journal:
            journal.append(b"more\n")
            assert path.read_bytes() == expected + b"more\n"


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(InputError) as raised:
            Journal(tmp_path / "j")
        assert raised.value.code == "conflict"
        journal.append(b"1\n")
    with pytest.raises(InputError) as raised:
        Journal(tmp_path / "none" / "j")
    assert raised.value.code == "unwritable"
    assert (tmp_path / "j").read_bytes() == b"1\n"
