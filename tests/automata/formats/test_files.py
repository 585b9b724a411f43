"""Files: told apart by their first bytes, written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from machines import random_fst
from same_machine import assert_same

from holdfast import files
from holdfast.automata import Fst
from holdfast.errors import HoldfastError, InputError


def test_the_suffix_says_how_and_the_first_bytes_tell(tmp_path: Path) -> None:
    f = random_fst(1)
    for name, first in (("f.fst", b"\xd6\xfd\xb2\x7e"), ("f.txt", b"0\t"), ("f", b"\xd6\xfd")):
        f.write(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(first)
        assert_same(Fst.read(tmp_path / name, "tropical"), f)
        assert_same(Fst.read(str(tmp_path / name), "tropical"), f)


def test_text_takes_the_semiring_given_and_binary_its_own(tmp_path: Path) -> None:
    f = random_fst(1)
    f.write(tmp_path / "f.fst")
    f.write(tmp_path / "f.txt")
    assert Fst.read(tmp_path / "f.txt").semiring.name == "tropical"
    assert Fst.read(tmp_path / "f.fst", "log64").semiring.name == "tropical"


@pytest.mark.parametrize(
    ("data", "place", "found"),
    [
        (b"\x89PNG\r\n\x1a\n", "byte 0", "89 50 4e 47"),
        (b"0 1 1 1\n\x00\x00", "byte 8", "00 00"),
        (b"0 1 \xc3\xa9\xff\n", "byte 6", "ff 0a"),
        (b"\xd6\xfd\xb2", "byte 0", "d6 fd b2"),
        (b"\xd6\xfd\xb2\x7e\x06", "byte 4", "1 bytes left of 5"),
    ],
)
def test_what_is_neither(tmp_path: Path, data: bytes, place: str, found: str) -> None:
    file = tmp_path / "bad"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        Fst.read(file)
    assert (caught.value.path, caught.value.place) == (str(file), place)
    assert found in str(caught.value.found)
    assert caught.value.remedy


def test_errors_in_text_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.txt"
    file.write_text("0 1 1 1\n0 1 1\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 2"):
        Fst.read(file)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            Fst.read(path)
    with pytest.raises(HoldfastError, match="cannot be written"):
        random_fst(1).write(tmp_path / "no" / "folder.fst")


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f.fst"
    random_fst(1).write(file)
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(HoldfastError, match="No space left"):
        random_fst(2).write(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "real.fst", tmp_path / "link.fst"
    target.write_bytes(b"old")
    link.symlink_to(target)
    random_fst(1).write(link)
    assert link.is_symlink()
    assert_same(Fst.read(target), random_fst(1))


def test_pipes_are_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[Fst] = []
    reader = threading.Thread(target=lambda: read.append(Fst.read(pipe)))
    reader.start()
    random_fst(1).write(pipe)
    reader.join()
    assert_same(read[0], random_fst(1))
    assert pipe.is_fifo()


def test_an_empty_file(tmp_path: Path) -> None:
    Fst.empty("tropical").write(tmp_path / "f.txt")
    assert_same(Fst.read(tmp_path / "f.txt", "tropical"), Fst.empty("tropical"))
    (tmp_path / "f.fst").write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        Fst.read(tmp_path / "f.fst")
