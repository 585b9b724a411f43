"""What is repaired is, byte for byte, what was written; what cannot be is left alone and named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import made
import pytest
from range_server import RangeServer

from holdfast.data.records.checking.repairing import Repaired, repair
from holdfast.data.records.checking.verifying import verify
from holdfast.data.records.format.layout import decode_contents, decode_footer
from holdfast.data.records.format.manifest import NAME
from holdfast.data.records.writing import transcoding
from holdfast.data.records.writing.generations import only_writer
from holdfast.data.records.writing.writer import write
from holdfast.errors import InputError, StoreError

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source` and `dataset`: eight images, one of them a PNG, in three records."""
    root = tmp_path_factory.mktemp("original")
    for number in range(7):
        path = root / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.picture(number))
    made.Pillow.new("RGB", (5, 4)).save(root / "source" / "a" / "x.png")
    write(root / "source", root / "dataset", record_size=3, quality_images=2)
    return root


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original / "dataset", tmp_path / "d")
    return tmp_path / "d"


def files(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.pcr"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def swap(folder: Path) -> None:
    one, other = records(folder)[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def in_footer(folder: Path) -> None:
    flip(records(folder)[0], -50)


def in_manifest(folder: Path) -> None:
    flip(folder / NAME, 70)


def no_manifest(folder: Path) -> None:
    (folder / NAME).unlink()


FROM_ELSEWHERE: dict[str, Callable[[Path], object]] = {
    "a piece": lambda folder: flip(records(folder)[0], -300),
    "two pieces": lambda folder: [flip(records(folder)[1], at) for at in (-300, -900)],
    "metadata": lambda folder: flip(records(folder)[0], 500),
    "the header": lambda folder: flip(records(folder)[0], 12),
    "metadata and a piece": lambda folder: [flip(records(folder)[0], at) for at in (500, -300)],
    "footer and a piece": lambda folder: [flip(records(folder)[2], at) for at in (-9, -300)],
    "the end is cut": lambda folder: records(folder)[0].write_bytes(
        records(folder)[0].read_bytes()[:-1000]
    ),
    "half is cut": lambda folder: records(folder)[1].write_bytes(
        records(folder)[1].read_bytes()[:900]
    ),
    "nothing left": lambda folder: records(folder)[0].write_bytes(b""),
    "bytes too many": lambda folder: records(folder)[0].write_bytes(
        b"x" + records(folder)[0].read_bytes()
    ),
    "a record gone": lambda folder: records(folder)[1].unlink(),
    "all records gone": lambda folder: shutil.rmtree(records(folder)[0].parent),
    "two in each other's place": swap,
    "manifest": in_manifest,
    "no manifest": no_manifest,
    "no manifest, a piece": lambda folder: [no_manifest(folder), flip(records(folder)[0], -300)],
}
FROM_ITSELF: dict[str, Callable[[Path], object]] = {
    "footer": in_footer,
    "all footers": lambda folder: [flip(path, -9) for path in records(folder)],
    "bytes after the footer": lambda folder: records(folder)[0].write_bytes(
        records(folder)[0].read_bytes() + b"x"
    ),
    "nothing": lambda folder: None,
}


def check(folder: Path, original: Path, done: Repaired) -> None:
    assert done.ok, done.remaining
    assert files(folder) == files(original / "dataset")
    assert verify(folder, against=original / "source").ok
    assert done.to_dict()["ok"]


@pytest.mark.quick(14)
@pytest.mark.parametrize("damage", [*FROM_ELSEWHERE, *FROM_ITSELF])
@pytest.mark.parametrize("helper", ["source", "replica"])
def test_repaired_with_help(folder: Path, original: Path, damage: str, helper: str) -> None:
    (FROM_ELSEWHERE | FROM_ITSELF)[damage](folder)
    good, before = files(original / "dataset"), files(folder)
    changed = {name for name, data in good.items() if before.get(name) != data}
    if helper == "replica":
        done = repair(folder, replica=str(original / "dataset"))
        check(folder, original, done)
    else:
        done = repair(folder, source=original / "source")
        if NAME in changed:  # only a replica has the manifest, or the writer makes it again
            changed.remove(NAME)
            assert [(one.record, one.image) for one in done.remaining] == [(None, None)]
            write(original / "source", folder, record_size=3, quality_images=2)
            assert files(folder) == good
        else:
            check(folder, original, done)
    assert {one.file for one in done.repaired} == changed


@pytest.mark.parametrize("damage", FROM_ITSELF)
def test_repaired_from_what_is_said_twice(folder: Path, original: Path, damage: str) -> None:
    FROM_ITSELF[damage](folder)
    check(folder, original, repair(folder))


@pytest.mark.parametrize("damage", FROM_ELSEWHERE)
def test_what_cannot_be_repaired_is_left_alone(folder: Path, damage: str) -> None:
    FROM_ELSEWHERE[damage](folder)
    before, wrong = files(folder), verify(folder)
    done = repair(folder)
    after = files(folder)
    assert not done.ok
    assert not done.repaired
    assert after == before
    assert {finding.record for finding in done.remaining} == {one.record for one in wrong.errors}


# --- What is fetched, what is trusted ------------------------------------------------------------


def test_only_the_damaged_piece_is_fetched(folder: Path, original: Path) -> None:
    path = records(folder)[0]
    data = path.read_bytes()
    index = decode_footer(data, len(data))
    contents = decode_contents(data, index)
    flip(path, index.ends[1])
    with RangeServer(original / "dataset") as server:
        done = repair(folder, replica=server.url)
        requests = sum(count for name, count in server.requests_of.items() if name.endswith(".pcr"))
    check(folder, original, done)
    assert done.fetched == contents.lengths[0, 1]
    assert requests == 1


def test_a_damaged_replica_helps_as_far_as_it_is_whole(
    folder: Path, original: Path, tmp_path: Path
) -> None:
    shutil.copytree(original / "dataset", tmp_path / "copy")
    flip(records(folder)[0], -300)
    flip(records(folder)[1], -300)
    flip(records(tmp_path / "copy")[0], -301)  # the same piece
    flip(records(tmp_path / "copy")[1], -900)  # another one
    done = repair(folder, replica=str(tmp_path / "copy"))
    assert [one.file for one in done.repaired] == [
        records(folder)[1].relative_to(folder).as_posix()
    ]
    assert {one.record for one in done.remaining} == {
        records(folder)[0].relative_to(folder).as_posix()
    }
    check(folder, original, repair(folder, source=original / "source"))


def test_two_that_each_have_a_half(folder: Path, original: Path, tmp_path: Path) -> None:
    """A piece from the replica, another from the source."""
    shutil.copytree(original / "dataset", tmp_path / "copy")
    shutil.copytree(original / "source", tmp_path / "source")
    data = records(folder)[0].read_bytes()
    index = decode_footer(data, len(data))
    contents = decode_contents(data, index)
    for row in (0, 1):
        flip(records(folder)[0], index.ends[4] + int(contents.starts[row, 4]))
    flip(records(tmp_path / "copy")[0], index.ends[4])
    (tmp_path / "source" / contents.ids[1]).unlink()
    done = repair(folder, source=tmp_path / "source", replica=str(tmp_path / "copy"))
    check(folder, original, done)
    assert done.repaired[0].by == "replica and source"


def test_a_replica_of_another_generation_is_not_taken(
    folder: Path, original: Path, tmp_path: Path
) -> None:
    write(original / "source", tmp_path / "other", record_size=2, quality_images=0)
    no_manifest(folder)
    flip(records(folder)[0], -300)
    before = files(folder)
    done = repair(folder, replica=str(tmp_path / "other"))
    assert not done.repaired
    assert {finding.image for finding in done.remaining} != {None}
    assert files(folder) == before


def test_a_source_that_has_changed_is_not_taken(
    folder: Path, original: Path, tmp_path: Path
) -> None:
    shutil.copytree(original / "source", tmp_path / "changed")
    for path in (tmp_path / "changed").rglob("*.jpg"):
        path.write_bytes(made.picture(99))
    for damage in (lambda: flip(records(folder)[0], -300), lambda: records(folder)[1].unlink()):
        damage()
        before = files(folder)
        done = repair(folder, source=tmp_path / "changed")
        assert not done.ok
        assert not done.repaired
        assert files(folder) == before


def test_another_transcoder_is_not_taken(
    folder: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = transcoding.image

    def other(*arguments: object) -> object:
        image = real(*arguments)  # type: ignore[arg-type]
        return image._replace(pieces=[bytes(len(piece)) for piece in image.pieces])

    monkeypatch.setattr(transcoding, "image", other)
    records(folder)[1].unlink()
    flip(records(folder)[0], -300)
    before = files(folder)
    assert not repair(folder, source=original / "source").ok
    assert files(folder) == before


def test_a_replica_that_lacks_a_record_gives_no_manifest(original: Path, folder: Path) -> None:
    """Nor one in which a record has other sums: whose manifest is right is not known."""
    no_manifest(folder)
    shutil.copy(records(folder)[0], records(folder)[1])
    before = files(folder)
    done = repair(folder, replica=str(original / "dataset"))
    assert (done.remaining[0].record, done.repaired) == (None, ())
    assert files(folder) == before


# --- Who may -------------------------------------------------------------------------------------


def test_a_dataset_that_is_being_written_is_not_repaired(folder: Path) -> None:
    in_footer(folder)
    with only_writer(folder), pytest.raises(StoreError, match="another process"):
        repair(folder)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/d", "/no/such/folder"])
def test_only_folders_of_this_machine_are_repaired(url: str) -> None:
    with pytest.raises(InputError):
        repair(url)


def test_an_empty_folder_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        repair(tmp_path)
    assert list(tmp_path.iterdir()) == []
