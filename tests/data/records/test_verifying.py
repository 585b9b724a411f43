"""Damage of every kind is found, and named as closely as it can be."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import made
import pyarrow as pa
import pytest
from range_server import RangeServer
from refusals import refused

from holdfast.data.records.checking import inspecting
from holdfast.data.records.checking.inspecting import Finding, Inspected, inspect
from holdfast.data.records.checking.repairing import repair
from holdfast.data.records.checking.verifying import verify
from holdfast.data.records.format import layout
from holdfast.data.records.format import manifest as manifest_format
from holdfast.data.records.format.layout import Index, decode_contents, decode_footer
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.jpeg import turbojpeg
from holdfast.data.records.sources import Example, open_source
from holdfast.data.records.writing.writer import write
from holdfast.errors import StoreError

GROUPS = (2, 10)


@pytest.fixture(scope="module")
def small() -> tuple[bytes, Index]:
    """A record of two tiny images."""
    images = [made.image(number, made.picture(number, 16, 8), GROUPS) for number in range(2)]
    parts, index = layout.encode(
        images,
        made.LABELLED,
        groups=2,
        settings={"scans_end": "2,10"},
        msssim=(0.5, 1.0),
        measured=1,
    )
    return b"".join(parts), index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of three records of two images each."""
    made.dataset(tmp_path / "d", images=6, record_size=2)
    return tmp_path / "d"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source, dataset): seven JPEGs of two classes and a PNG."""
    root = tmp_path_factory.mktemp("written")
    for number in range(7):
        path = root / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.picture(number))
    made.Pillow.new("RGB", (5, 4)).save(root / "source" / "a" / "x.png")
    write(root / "source", root / "dataset", record_size=3, quality_images=2)
    return root / "source", root / "dataset"


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def named(found: Inspected) -> set[tuple[str | None, int | None]]:
    return {(finding.image, finding.group) for finding in found.findings}


def owner(index: Index, contents: layout.Contents, at: int) -> tuple[str | None, int | None]:
    """(image, group) of a byte, worked out piece by piece."""
    for group in range(index.groups):
        for row, name in enumerate(contents.ids):
            start = index.ends[group] + int(contents.starts[row, group])
            if start <= at < start + int(contents.lengths[row, group]):
                return name, group + 1
    return None, None


# --- Every byte ----------------------------------------------------------------------------------


def check_flips(
    data: bytes, index: Index, expected: Index | None, bits: Callable[[int], list[int]]
) -> None:
    contents = decode_contents(data, index)
    for at in range(len(data)):
        for bit in bits(at):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            found = inspect(bad, "r.pcr", expected)
            assert len(found.findings) == 1 or expected is None, (at, bit, found.findings)
            if expected is not None:
                assert named(found) == {owner(index, contents, at)}, (at, bit)
                assert any(start <= at < end for start, end in found.damaged)
            else:
                assert owner(index, contents, at) in named(found), (at, bit)


def test_every_byte_flipped_names_its_piece(small: tuple[bytes, Index]) -> None:
    data, index = small
    assert inspect(data, "r.pcr", index).findings == []
    check_flips(data, index, index, lambda at: [at % 8])


def test_flips_without_a_manifest(small: tuple[bytes, Index]) -> None:
    data, index = small
    check_flips(data, index, None, lambda at: [at % 8] if at % 3 == 0 else [])


@pytest.mark.full
def test_every_bit_flipped_names_its_piece(small: tuple[bytes, Index]) -> None:
    data, index = small
    check_flips(data, index, index, lambda at: list(range(8)))
    check_flips(data, index, None, lambda at: list(range(8)))


@pytest.mark.full
def test_every_bit_of_a_dataset(tmp_path: Path) -> None:
    made.dataset(tmp_path / "d", images=2, record_size=1, groups=GROUPS)
    paths = [path for path in sorted((tmp_path / "d").rglob("*")) if path.is_file()]
    assert len(paths) == 3
    for path in paths:
        good = path.read_bytes()
        for at in range(len(good)):
            flip(path, at, bit=at % 8)
            found = verify(tmp_path / "d", threads=1)
            record = None if path.name == NAME else path.relative_to(tmp_path / "d").as_posix()
            assert {error.record for error in found.errors} == {record}, (path, at)
            path.write_bytes(good)


def check_cuts(data: bytes, index: Index, sizes: list[int]) -> None:
    for size in sizes:
        for expected in (index, None):
            found = inspect(data[:size], "r.pcr", expected)
            assert found.findings, size
        groups = {group for _, group in named(inspect(data[:size], "r.pcr", index))}
        cut = {group for group in (1, 2) if index.ends[group] > size}
        assert cut <= groups, size
        if size >= index.ends[0]:
            assert {group for group in groups if group} == cut, size


def test_truncations_name_the_groups_that_are_cut(small: tuple[bytes, Index]) -> None:
    data, index = small
    edges = [edge + by for edge in (0, 36, *index.ends, len(data)) for by in (-1, 0, 1)]
    sizes = [*edges, *range(0, len(data), 23)]
    check_cuts(data, index, [size for size in sizes if 0 <= size < len(data)])


@pytest.mark.full
def test_every_truncation_is_found(small: tuple[bytes, Index]) -> None:
    data, index = small
    check_cuts(data, index, list(range(len(data))))


def test_bytes_too_many_are_found(small: tuple[bytes, Index]) -> None:
    data, index = small
    for more in (data + b"\0", data * 2, b"\0" + data):
        assert inspect(more, "r.pcr", index).findings
        assert inspect(more, "r.pcr", None).findings


def test_large_records_are_looked_at_in_chunks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sorted(folder.rglob("*.pcr"))[1]
    flip(path, path.stat().st_size - 300)
    flip(path, path.stat().st_size - 1500)
    whole = verify(folder)
    monkeypatch.setattr(inspecting, "WHOLE", 0)
    monkeypatch.setattr(inspecting, "CHUNK", 100)
    assert verify(folder).to_dict() == whole.to_dict()
    assert whole.error_count == 2


# --- A dataset -----------------------------------------------------------------------------------


def test_a_sound_dataset(folder: Path) -> None:
    calls: list[tuple[int, int]] = []
    found = verify(str(folder), on_progress=lambda done, total: calls.append((done, total)))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert found.ok
    assert (found.records, found.images, found.bytes) == (3, 6, size)
    assert calls[-1] == (size, size)
    assert not found.to_dict()["errors"]
    assert found.remarks == ()


def test_a_single_record(folder: Path) -> None:
    path = sorted(folder.rglob("*.pcr"))[0]
    found = verify(path)
    assert (found.ok, found.records, found.images) == (True, 1, 2)
    flip(path, path.stat().st_size - 300)
    (error,) = verify(path).errors
    assert (error.record, error.image, error.group) == (path.name, "0001.jpg", 5)


def test_one_flip_is_one_error(folder: Path) -> None:
    path = sorted(folder.rglob("*.pcr"))[1]
    index = decode_footer(path.read_bytes(), path.stat().st_size)
    flip(path, index.ends[2])
    (error,) = verify(folder).errors
    assert dataclasses.asdict(error) == {
        "record": "records-00/000001.pcr",
        "image": "0002.jpg",
        "group": 3,
        "reason": "the piece's crc32c does not match",
    }


def test_records_in_each_others_place(folder: Path) -> None:
    one, other, _ = sorted(folder.rglob("*.pcr"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    found = verify(folder)
    assert [error.record for error in found.errors] == [
        "records-00/000000.pcr",
        "records-00/000001.pcr",
    ]
    assert all("another record" in error.reason for error in found.errors)


def test_a_manifest_of_another_generation(folder: Path, tmp_path: Path) -> None:
    made.dataset(tmp_path / "other", images=6, record_size=2, groups=(1, 10))
    shutil.copy(tmp_path / "other" / NAME, folder / NAME)
    found = verify(folder)
    assert {error.record for error in found.errors} == {
        f"records-00/00000{k}.pcr" for k in range(3)
    }
    assert all(
        "generation" in error.reason or "groups end" in error.reason for error in found.errors
    )


def test_what_the_manifest_says_otherwise(folder: Path) -> None:
    good = Manifest.from_bytes((folder / NAME).read_bytes())
    classes = pa.field("label", pa.int32(), metadata={"names": '["odd", "even"]'})
    changed = dataclasses.replace(good, schema=good.schema.set(1, classes))
    (folder / NAME).write_bytes(changed.to_bytes())
    assert {error.reason for error in verify(folder).errors} == {
        "metadata: its columns are not those of the manifest"
    }
    record = dataclasses.replace(good.records[0], msssim=(0.1,) * 5, measured=1)
    changed = dataclasses.replace(good, records=(record, *good.records[1:]))
    (folder / NAME).write_bytes(changed.to_bytes())
    (error,) = verify(folder).errors
    assert "MS-SSIM" in error.reason


def test_missing_and_strange_files(folder: Path) -> None:
    sorted(folder.rglob("*.pcr"))[2].unlink()
    (folder / "records-00" / "000009.pcr").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"x")
    found = verify(folder)
    assert found.errors == (Finding("records-00/000002.pcr", None, None, "the file is missing"),)
    assert found.remarks == (
        "no manifest names notes.txt",
        "no manifest names records-00/000009.pcr",
    )


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: flip(path, 9)])
def test_without_a_manifest_the_records_are_looked_at(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder / NAME)
    flip(sorted(folder.rglob("*.pcr"))[0], -200)
    found = verify(folder)
    assert [(error.record, error.image) for error in found.errors] == [
        (None, None),
        ("records-00/000000.pcr", "0001.jpg"),
    ]
    assert found.errors[0].reason.startswith(NAME)
    assert (found.records, found.images) == (3, 6)


def test_errors_are_counted_past_the_limit(folder: Path) -> None:
    for path in folder.rglob("*.pcr"):
        path.unlink()
    found = verify(folder, limit=2)
    assert (len(found.errors), found.error_count) == (2, 3)


def test_nothing_there(tmp_path: Path) -> None:
    with refused("not-found"):
        verify(tmp_path)


def test_over_http(folder: Path) -> None:
    flip(sorted(folder.rglob("*.pcr"))[0], -200)
    with RangeServer(folder) as server:
        found = verify(server.url)
    assert [(error.record, error.image) for error in found.errors] == [
        ("records-00/000000.pcr", "0001.jpg")
    ]
    assert any("does not list" in remark for remark in found.remarks)


# --- Sums that are right, contents that are not --------------------------------------------------


def one_record(
    folder: Path, images: list[layout.Image], scans_end: tuple[int, ...] = (2, 10)
) -> Path:
    parts, index = layout.encode(
        images,
        made.LABELLED,
        groups=len(scans_end),
        settings={"scans_end": ",".join(map(str, scans_end))},
    )
    (folder / "r").mkdir(parents=True, exist_ok=True)
    (folder / "r" / "0.pcr").write_bytes(b"".join(parts))
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), *made.LABELLED])
    manifest = Manifest(("r/0.pcr",), (index,), scans_end, schema)
    (folder / NAME).write_bytes(manifest.to_bytes())
    return folder


GOOD = made.image(0, made.picture(0), GROUPS)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (GOOD._replace(width=47), "it is 48 x 40, orientation 1"),
        (GOOD._replace(orientation=6), "it is 48 x 40, orientation 1"),
        (GOOD._replace(pieces=[GOOD.pieces[0], b""]), "not an image"),
        (GOOD._replace(pieces=[GOOD.pieces[0][:-1], GOOD.pieces[1]]), None),
        (GOOD._replace(pieces=[b"".join(GOOD.pieces), b""]), "do not end where scans do"),
        (
            GOOD._replace(pieces=[GOOD.pieces[0][:-9], GOOD.pieces[0][-9:] + GOOD.pieces[1]]),
            "do not end where scans do",
        ),
        (GOOD._replace(pieces=[made.picture(0)[:-2], b""]), "not progressive"),
        (GOOD._replace(pieces=[b"GIF89a", b""]), "not an image"),
        (GOOD._replace(reason="PNG image"), "group 1 alone"),
        (GOOD._replace(reason="PNG image", pieces=[b"", b""]), "group 1 alone"),
        (GOOD._replace(reason="PNG image", pieces=[b"anything", b""]), None),
    ],
)
def test_images_that_are_not_what_they_should_be(
    tmp_path: Path, image: layout.Image, reason: str | None
) -> None:
    found = verify(one_record(tmp_path, [image]))
    if reason is None:
        # Entropy-coded data that breaks off: markers do not tell, only a decoder would.
        assert found.ok
        return
    (error,) = found.errors
    assert reason in error.reason
    assert (error.image, error.group) == ("0000.jpg", None)


def test_ids_that_stand_twice(tmp_path: Path) -> None:
    made.dataset(tmp_path, images=2, record_size=2)
    path = next(tmp_path.rglob("*.pcr"))
    good = Manifest.from_bytes((tmp_path / NAME).read_bytes())
    shutil.copy(path, path.with_name("000001.pcr"))
    twice = dataclasses.replace(
        good, paths=(*good.paths, "records-00/000001.pcr"), records=good.records * 2
    )
    (tmp_path / NAME).write_bytes(twice.to_bytes())
    errors = {(error.record, error.image, error.reason) for error in verify(tmp_path).errors}
    assert errors == {
        ("records-00/000001.pcr", id_, "records-00/000000.pcr has an image of this id too")
        for id_ in ("0000.jpg", "0001.jpg")
    }


# --- Against the source --------------------------------------------------------------------------


def test_against_its_source(written: tuple[Path, Path]) -> None:
    source, dataset = written
    found = verify(dataset, against=source)
    assert found.ok, found.errors
    assert found.compared == 8


def test_real_photos_against_their_source(shared_data: Path, tmp_path: Path) -> None:
    source = tmp_path / "photos"
    source.mkdir()
    for path in sorted((shared_data / "jpeg" / "dali_extra").rglob("*.jpg"))[:3]:
        (source / path.name).symlink_to(path)
    write(source, tmp_path / "d", quality_images=0)
    found = verify(tmp_path / "d", against=source)
    assert found.ok, found.errors
    assert found.compared == 3


class Changed:
    """A source with one image replaced."""

    def __init__(self, source: Path, change: Callable[[Example], Example | None]) -> None:
        self._source = open_source(source)
        self.schema, self.ignored = self._source.schema, self._source.ignored
        self._examples = [
            made_
            for example in self._source.read(0, len(self._source))
            if (made_ := change(example)) is not None
        ]

    def __len__(self) -> int:
        return len(self._examples)

    def ids_and_sizes(self) -> list[tuple[str, int]]:
        return [(example.id, len(example.data)) for example in self._examples]

    def read(self, start: int, stop: int) -> list[Example]:
        return self._examples[start:stop]


def replace(id_: str, **changes: object) -> Callable[[Example], Example]:
    return lambda one: dataclasses.replace(one, **changes) if one.id == id_ else one


@pytest.mark.parametrize(
    ("change", "image", "reason"),
    [
        (
            replace("a/2.jpg", data=made.picture(9)),
            "a/2.jpg",
            "its coefficients are not the source's",
        ),
        (replace("a/x.png", data=b"\x89PNG"), "a/x.png", "not the source's bytes"),
        (
            replace("b/1.jpg", columns={"label": 0}),
            "b/1.jpg",
            "column label is 1, and in the source 0",
        ),
        (replace("b/1.jpg", id="b/9.jpg"), "b/1.jpg", "the source has no such image"),
        (
            lambda one: None if one.id == "b/1.jpg" else one,
            "b/1.jpg",
            "the source has no such image",
        ),
    ],
)
def test_another_source(
    written: tuple[Path, Path], change: Callable[[Example], Example | None], image: str, reason: str
) -> None:
    source, dataset = written
    found = verify(dataset, against=Changed(source, change))
    assert (found.errors[0].image, found.errors[0].group) == (image, None)
    assert reason in found.errors[0].reason
    assert {error.image for error in found.errors} <= {image, "b/9.jpg"}


def test_images_that_the_dataset_lacks(written: tuple[Path, Path], tmp_path: Path) -> None:
    source, dataset = written
    shutil.copytree(source, tmp_path / "more")
    (tmp_path / "more" / "b" / "8.jpg").write_bytes(made.picture(8))
    (error,) = verify(dataset, against=tmp_path / "more").errors
    assert (error.record, error.image) == (None, "b/8.jpg")
    assert "lacks" in error.reason


def test_images_that_the_writer_set_aside_are_not_missed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for number in range(3):
        (tmp_path / "s" / f"{number}.jpg").write_bytes(made.picture(number))
    huge = bytearray(made.picture(0))
    at = huge.index(b"\xff\xc0")
    huge[at + 5 : at + 9] = b"\xff" * 4  # 65,535 x 65,535 pixels
    (tmp_path / "s" / "0.jpg").write_bytes(huge)
    wrote = write(tmp_path / "s", tmp_path / "d", max_rejected=0.5, quality_images=0)
    assert wrote.rejected == 1
    found = verify(tmp_path / "d", against=tmp_path / "s")
    assert found.ok, found.errors
    (tmp_path / "d" / "rejected.jsonl").unlink()
    assert [error.image for error in verify(tmp_path / "d", against=tmp_path / "s").errors] == [
        "0.jpg"
    ]


def test_a_picture_turned_upright_is_the_sources(tmp_path: Path) -> None:
    from holdfast.data.records.jpeg.exif import orientation_segment
    from holdfast.data.records.jpeg.parsing import with_segments

    (tmp_path / "s").mkdir()
    for orientation in range(1, 9):
        turned = with_segments(made.picture(orientation, 32, 16), orientation_segment(orientation))
        (tmp_path / "s" / f"{orientation}.jpg").write_bytes(turned)
    for policy in ("bake", "keep"):
        write(tmp_path / "s", tmp_path / policy, orientation=policy, quality_images=0)
        found = verify(tmp_path / policy, against=tmp_path / "s")
        assert found.ok, found.errors
        assert found.compared == 8


# --- Yes, no, cannot tell ------------------------------------------------------------------------


def of_version_2(folder: Path) -> None:
    """Make the first record one of another version, sound in itself."""
    path = sorted(folder.rglob("*.pcr"))[0]
    data = bytearray(path.read_bytes())
    fields = list(layout.HEADER.unpack_from(data))
    fields[1] = 2
    layout.HEADER.pack_into(data, 0, *fields)
    layout.CHECK.pack_into(
        data, layout.HEADER.size, google_crc32c.value(bytes(data[: layout.HEADER.size]))
    )
    path.write_bytes(data)


def manifest_of_version_2(folder: Path) -> None:
    data = (folder / NAME).read_bytes().replace(b"pcr-dataset/1 ", b"pcr-dataset/2 ")
    at, digits = manifest_format._sum(data)
    (folder / NAME).write_bytes(data[:at] + digits + data[at + 16 :])


def no_records(folder: Path) -> None:
    whole = Manifest.from_bytes((folder / NAME).read_bytes())
    (folder / NAME).write_bytes(dataclasses.replace(whole, paths=(), records=()).to_bytes())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (of_version_2, "unsupported"),
        (manifest_of_version_2, "unsupported"),
        (no_records, "no-data"),
    ],
)
def test_what_cannot_be_told_is_refused(
    folder: Path, change: Callable[[Path], None], code: str
) -> None:
    change(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with refused(code):
        verify(folder)
    if code == "unsupported":  # nor is it "repaired" into what this version knows
        with refused(code):
            repair(folder, replica=folder)
        assert {path: path.read_bytes() for path in before} == before


def test_a_digit_of_the_seal_that_flipped_is_damage(folder: Path) -> None:
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data.replace(b"pcr-dataset/1 ", b"pcr-dataset/3 "))
    (error,) = verify(folder).errors
    assert "damaged" in error.reason


def test_a_record_that_may_not_be_read_is_not_called_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = sorted(folder.rglob("*.pcr"))[1]
    really = os.open

    def refuse(path: Any, *settings: Any) -> int:
        if Path(path) == locked:
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, *settings)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="Permission denied"):
        verify(folder)


def test_a_store_that_is_away_is_an_error() -> None:
    with pytest.raises(StoreError):
        verify("http://127.0.0.1:1/d", attempts=1)


def test_a_source_that_no_longer_decodes_leaves_the_comparison_open(
    written: tuple[Path, Path],
) -> None:
    source, dataset = written
    changed = Changed(source, replace("a/2.jpg", data=b"\xff\xd8\xff"))
    found = verify(dataset, against=changed)
    assert (found.ok, found.error_count, found.compared) == (False, 0, 7)
    (one,) = found.unknown
    assert one.image == "a/2.jpg"
    assert found.to_dict()["unknown"][0]["image"] == "a/2.jpg"


def test_without_a_transcoder_nothing_is_said_of_the_images(
    written: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dataset = written
    monkeypatch.setattr(turbojpeg, "_library", lambda: None)
    monkeypatch.setattr(turbojpeg.shutil, "which", lambda _: None)
    with pytest.raises(StoreError, match="jpegtran"):
        verify(dataset, against=source)


def test_a_source_that_is_away_is_an_error(written: tuple[Path, Path], tmp_path: Path) -> None:
    source, dataset = written
    with refused("not-found"):
        verify(dataset, against=tmp_path / "away")
    shutil.copytree(source, tmp_path / "s")
    listed = open_source(tmp_path / "s")
    (tmp_path / "s" / "b" / "1.jpg").unlink()
    with refused("source-changed"):
        verify(dataset, against=listed)
