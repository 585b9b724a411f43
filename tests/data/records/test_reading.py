"""Prefixes against the images that were written, requests against the plan, damage at every byte."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import fsspec
import google_crc32c
import made
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from range_server import RangeServer, Seen
from refusals import refused

from holdfast.data.records.format import layout
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.jpeg.decoding import decode
from holdfast.data.records.jpeg.parsing import parse
from holdfast.data.records.jpeg.scans import DEFAULT_GROUPS
from holdfast.data.records.reading.prefixes import assemble
from holdfast.data.records.reading.records import Damaged, Fault, Records, open_records
from holdfast.data.records.reading.stores import MissingFile, open_store
from holdfast.errors import InputError, StoreError

G = len(DEFAULT_GROUPS)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A dataset of 10 images in records of 4, 4 and 2, and the images at full fidelity."""
    folder = tmp_path_factory.mktemp("origin") / "dataset"
    return folder, made.dataset(folder)


@pytest.fixture
def folder(origin: tuple[Path, list[bytes]], tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(origin[0], tmp_path / "dataset"))


@pytest.fixture
def full(origin: tuple[Path, list[bytes]]) -> list[bytes]:
    return origin[1]


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder.parent) as running:
        yield running


def cut_at_scan(image: bytes, last_scan: int) -> bytes:
    """The oracle: the transcoded file up to the end of a scan, and an end-of-image marker."""
    return image[: parse(image).scans[last_scan - 1].end] + b"\xff\xd9"


# --- what is read is what was written -----------------------------------------------------------------


@pytest.mark.parametrize("fidelity", range(1, G + 1))
def test_every_image_is_its_file_cut_at_the_scan(
    fidelity: int, folder: Path, full: list[bytes]
) -> None:
    with open_records(folder) as records:
        images = [image for number in range(3) for image in records.read(number, fidelity).images()]
    assert images == [cut_at_scan(image, DEFAULT_GROUPS[fidelity - 1]) for image in full]
    assert all(decode(image, strict=True).shape == (40, 48, 3) for image in images)
    if fidelity == G:
        assert images == full


@given(
    st.lists(st.integers(1, 9), unique=True, max_size=9).map(lambda ends: (*sorted(ends), 10)),
    st.integers(1, 5),
    st.sampled_from(["RGB", "L"]),
    st.data(),
)
@settings(max_examples=25)
def test_any_groups_and_record_sizes(
    ends: tuple[int, ...], images: int, mode: str, data: st.DataObject
) -> None:
    pictures = [made.image(n, made.picture(n, 24, 16, mode), ends) for n in range(images)]
    full = [b"".join(picture.pieces) + b"\xff\xd9" for picture in pictures]
    records, _ = in_memory(pictures, len(ends))
    low = data.draw(st.integers(1, len(ends)))
    high = data.draw(st.integers(low, len(ends)))
    prefix = records.read(0, low)
    more = records.read(0, high, have=prefix)
    for image, whole in enumerate(full):
        scans = parse(whole).scans
        for fidelity in range(1, high + 1):
            got = more.image(image, fidelity)
            assert got[:-2] == whole[: len(got) - 2]
            if mode == "RGB":
                assert len(got) - 2 == scans[ends[fidelity - 1] - 1].end
            assert records.image(0, image, fidelity) == got
    assert more.nbytes == records.indexes[0].ends[high]


def in_memory(
    pictures: Sequence[layout.Image], groups: int = G, **settings: str
) -> tuple[Records, bytes]:
    """One record in fsspec's memory, opened with a manifest, and its file."""
    parts, index = layout.encode(pictures, made.LABELLED, groups=groups, settings=settings)
    data = b"".join(parts)
    fsspec.filesystem("memory").pipe_file("/reading/a.pcr", data)
    manifest = Manifest(
        ("a.pcr",), (index,), tuple(range(1, groups + 1)), pa.schema([pa.field("id", pa.string())])
    )
    return Records(open_store("memory://reading"), ["a.pcr"], [index], manifest), data


def test_opaque_images_come_whole_at_every_fidelity(folder: Path) -> None:
    png = b"\x89PNG not a JPEG"
    opaque = made.image(0, made.picture(0))._replace(
        id="b.png", pieces=[png, *[b""] * (G - 1)], reason="a PNG"
    )
    records, _ = in_memory([made.image(1, made.picture(1)), opaque])
    for fidelity in range(1, G + 1):
        assert records.read(0, fidelity).image(1) == png
        assert records.image(0, 1, fidelity) == png


def test_metadata_comes_with_every_prefix(folder: Path) -> None:
    with open_records(folder) as records:
        assert len(records) == 3
        assert records.groups == G
        assert records.classes == ["even", "odd"]
        assert records.manifest.images == 10
        prefix = records.read(1, 1)
        assert len(prefix) == 4
        assert prefix.contents.ids == [f"{number:04d}.jpg" for number in range(4, 8)]
        assert prefix.contents.columns["label"].to_pylist() == [0, 1, 0, 1]
        assert prefix.path == "records-00/000001.pcr"


def test_a_prefix_holds_no_copies(folder: Path) -> None:
    with open_records(folder) as records:
        low = records.read(0, 2)
        high = records.read(0, 4, have=low)
        assert all(a is b for a, b in zip(low.buffers, high.buffers, strict=False))
        piece = high.pieces(2)[1]
        assert isinstance(piece, memoryview)
        assert piece.obj is memoryview(low.buffers[2]).obj
        assert high.contents is low.contents


# --- requests and bytes: the plan, exactly --------------------------------------------------------------


def test_one_request_a_record_of_exactly_the_bytes_of_the_fidelity(
    server: RangeServer, folder: Path
) -> None:
    manifest = Manifest.from_bytes((folder / NAME).read_bytes())
    for fidelity in range(1, G + 1):
        with open_records(f"{server.url}/dataset") as records:
            server.reset()
            for number in range(len(records)):
                records.read(number, fidelity)
        assert server.requests == 3
        assert server.bytes == manifest.bytes_at(fidelity) == manifest.ends[:, fidelity].sum()
        assert server.seen == [
            Seen("GET", f"/dataset/{path}", f"bytes=0-{index.ends[fidelity] - 1}", 206)
            for path, index in zip(manifest.paths, manifest.records, strict=True)
        ]


@pytest.mark.parametrize("low", range(1, G + 1))
@pytest.mark.parametrize("high", range(1, G + 1))
def test_an_upgrade_reads_the_difference_only(low: int, high: int, server: RangeServer) -> None:
    with open_records(f"{server.url}/dataset") as records:
        prefix = records.read(0, low)
        server.reset()
        more = records.read(0, high, have=prefix)
        ends = records.indexes[0].ends
        assert server.bytes == max(0, ends[high] - ends[low])
        assert server.requests == (high > low)
        assert (more is prefix) == (high <= low)
        assert more.image(3, min(low, high)) == prefix.image(3, min(low, high))


def test_a_record_by_itself_takes_two_requests(server: RangeServer, full: list[bytes]) -> None:
    with open_records(f"{server.url}/dataset/records-00/000001.pcr") as records:
        assert server.seen == [
            Seen("GET", "/dataset/records-00/000001.pcr", f"bytes=-{layout.MAX_FOOTER}", 206)
        ]
        prefix = records.read(0, 3)
        assert server.requests == 2
        assert server.bytes == layout.MAX_FOOTER + records.indexes[0].ends[3]
        assert prefix.image(0) == cut_at_scan(full[4], DEFAULT_GROUPS[2])
        assert (len(records), records.groups, records.classes) == (1, G, ["even", "odd"])
        assert records.manifest.scans_end == DEFAULT_GROUPS
        assert records.manifest.paths == ("000001.pcr",)
        assert server.requests == 2


def test_opening_a_dataset_takes_one_request(server: RangeServer) -> None:
    for url in (f"{server.url}/dataset", f"{server.url}/dataset/", f"{server.url}/dataset/{NAME}"):
        server.reset()
        with open_records(url) as records:
            assert len(records) == 3
        assert [seen.path for seen in server.seen] == [f"/dataset/{NAME}"]


def test_one_image_alone_takes_its_pieces_only(server: RangeServer, full: list[bytes]) -> None:
    with open_records(f"{server.url}/dataset") as records:
        contents = records.contents(1)
        server.reset()
        assert records.contents(1) is contents
        assert records.image(1, 2, 3) == cut_at_scan(full[6], DEFAULT_GROUPS[2])
        assert server.bytes == contents.lengths[2, :3].sum()
        assert server.requests == 3
        server.reset()
        assert records.image(2, 1) == full[9]  # with the metadata of a record not read yet
        assert server.requests == 1 + G
        assert server.bytes == records.indexes[2].ends[0] + len(full[9]) - 2


def test_local_reads_are_counted_alike(folder: Path) -> None:
    with open_records(folder) as records:
        records.store.requests = records.store.bytes_read = 0
        low = records.read(0, 1)
        records.read(0, 3, have=low)
        assert records.store.requests == 2
        assert records.store.bytes_read == records.indexes[0].ends[3]


def test_only_metadata_lately_read_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.records.reading.records._KEPT_CONTENTS", 2)
    with open_records(folder) as records:
        first = records.contents(0)
        records.contents(1)
        assert records.contents(0) is first
        records.contents(2)
        assert records.contents(0) is first
        requests = records.store.requests
        records.contents(1)
        assert records.store.requests == requests + 1


# --- damage ---------------------------------------------------------------------------------------------


def small_record() -> tuple[list[layout.Image], layout.Index, bytes]:
    """Three images of a few bytes a piece, one of them opaque: small enough to damage every byte."""
    rng = np.random.default_rng(5)
    images = [
        made.image(n, made.picture(n, 8, 8))._replace(
            pieces=[rng.bytes(int(rng.integers(0, 9))) for _ in range(3)]
        )
        for n in range(3)
    ]
    images[1] = images[1]._replace(pieces=[b"opaque", b"", b""], reason="a PNG")
    parts, index = layout.encode(images, made.LABELLED, groups=3, settings={})
    return images, index, b"".join(parts)


def test_any_flipped_byte_is_detected_and_named() -> None:
    images, index, data = small_record()
    memory = fsspec.filesystem("memory")
    manifest = Manifest(("a.pcr",), (index,), (1, 2, 10), pa.schema([pa.field("id", pa.string())]))
    records = Records(open_store("memory://flipped"), ["a.pcr"], [index], manifest)
    owner = {}  # of each byte behind the metadata
    at = index.ends[0]
    for group in range(3):
        for number, image in enumerate(images):
            owner |= {at + k: (number, group + 1) for k in range(len(image.pieces[group]))}
            at += len(image.pieces[group])
    assert at == index.ends[-1]
    for position in range(index.ends[-1]):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        memory.pipe_file("/flipped/a.pcr", bytes(damaged))
        if position < index.ends[0]:
            with pytest.raises(Damaged) as caught:
                records.read(0, 1)
            (fault,) = caught.value.faults
            assert (fault.record, fault.image, fault.group) == ("a.pcr", None, 0)
            continue
        number, group = owner[position]
        prefix = records.read(0, 3)
        (fault,) = prefix.faults
        assert fault == Fault("a.pcr", images[number].id, group, "its crc32c does not match")
        assert records.read(0, group).faults == prefix.faults
        assert group == 1 or not records.read(0, group - 1).faults
        for image in range(3):
            assert prefix.intact(image) == (group - 1 if image == number else 3)
            for fidelity in range(1, 4):
                hit = image == number and fidelity >= group
                for read in (prefix.image, lambda i, g: records.image(0, i, g)):
                    if hit:
                        with pytest.raises(Damaged) as caught:
                            read(image, fidelity)
                        assert caught.value.faults == (fault,)
                    else:
                        end = b"" if image == 1 else b"\xff\xd9"
                        assert (
                            read(image, fidelity) == b"".join(images[image].pieces[:fidelity]) + end
                        )
        with pytest.raises(Damaged):
            list(prefix.images())


def test_a_flipped_byte_of_the_footer_is_named_when_it_is_read() -> None:
    _, index, data = small_record()
    memory = fsspec.filesystem("memory")
    for position in range(index.ends[-1], len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        memory.pipe_file("/flipped/b.pcr", bytes(damaged))
        with pytest.raises(
            InputError, match=r"flipped/b\.pcr: the file cannot be read as a record"
        ):
            open_records("memory://flipped/b.pcr")


def test_damage_is_carried_into_upgrades_and_not_read_again(
    folder: Path, full: list[bytes]
) -> None:
    flip(folder / "records-00/000000.pcr", lambda index: index.ends[0] + 5)
    with open_records(folder) as records:
        low = records.read(0, 1)
        high = records.read(0, G, have=low)
        assert high.faults == low.faults
        assert [high.intact(image) for image in range(4)] == [0, G, G, G]
        assert high.image(1) == full[1]
        with pytest.raises(Damaged, match=r"000000\.pcr, image 0000\.jpg, group 1: its crc32c"):
            high.image(0)
        assert high.faults_of(0) == list(high.faults)
        assert high.faults_of(1) == []
        assert not records.read(1).faults


def flip(path: Path, where: object) -> None:
    data = bytearray(path.read_bytes())
    index = layout.decode_footer(bytes(data), len(data))
    data[where(index) if callable(where) else where] ^= 0x20
    path.write_bytes(data)


@pytest.mark.parametrize("cut_in", range(1, G + 1))
def test_a_record_that_is_cut_gives_what_is_there(
    cut_in: int, folder: Path, full: list[bytes], server: RangeServer
) -> None:
    path = folder / "records-00/000000.pcr"
    data = path.read_bytes()
    index = layout.decode_footer(data, len(data))
    contents = layout.decode_contents(data, index)
    cut = index.ends[cut_in - 1] + int(contents.starts[2, cut_in - 1]) + 1  # in the third image
    path.write_bytes(data[:cut])
    for url in (str(folder), f"{server.url}/dataset"):
        with open_records(url) as records:
            low = records.read(0, 1)
            prefix = records.read(0, G, have=low)
            assert [prefix.intact(image) for image in range(4)] == [
                *[cut_in] * 2,
                *[cut_in - 1] * 2,
            ]
            assert prefix.image(0, cut_in) == cut_at_scan(full[0], DEFAULT_GROUPS[cut_in - 1])
            with pytest.raises(Damaged, match="the file ends before it does"):
                prefix.image(2, cut_in)
            named = {(fault.image, fault.group) for fault in prefix.faults}
            assert {("0002.jpg", cut_in), ("0003.jpg", cut_in)} <= named
            with pytest.raises(Damaged, match="the file is shorter than it should be"):
                records.image(0, 3)


def test_a_record_that_is_cut_in_its_metadata_or_gone_cannot_be_used(folder: Path) -> None:
    path = folder / "records-00/000000.pcr"
    path.write_bytes(path.read_bytes()[:100])
    (folder / "records-00/000001.pcr").unlink()
    with open_records(folder) as records:
        for call in (lambda: records.read(0, 2), lambda: records.image(0, 0)):
            with pytest.raises(
                Damaged, match=r"000000\.pcr, metadata: the metadata block .* is cut"
            ):
                call()
        for call in (lambda: records.read(1, 2), lambda: records.image(1, 0)):
            with pytest.raises(MissingFile) as raised:
                call()
            assert raised.value.path == str(folder / "records-00/000001.pcr")
        assert not records.read(2).faults


def test_a_record_of_another_generation_is_named_as_such(folder: Path, tmp_path: Path) -> None:
    made.dataset(tmp_path / "other", images=8, record_size=4, groups=DEFAULT_GROUPS)
    other = tmp_path / "other/records-00/000001.pcr"
    shutil.copy(other, folder / "records-00/000000.pcr")
    with open_records(folder) as records:
        with pytest.raises(
            Damaged, match="a whole record, but not the one that the manifest names"
        ):
            records.read(0, 1)
        assert not records.read(1).faults
    flip(folder / "records-00/000001.pcr", 60)
    with open_records(folder) as records, pytest.raises(Damaged, match="xxh3 does not match"):
        records.read(1, 1)


def test_pieces_that_are_whole_under_a_wrong_sum_stay_usable(folder: Path) -> None:
    with open_records(folder) as records:
        index = records.indexes[0]
        wrong = dataclasses.replace(index, sums=(*index.sums[:2], 1, *index.sums[3:]))
        other = Records(records.store, [records.paths[0]], [wrong], records.manifest)
        prefix = other.read(0)
        assert [(fault.image, fault.group) for fault in prefix.faults] == [(None, 2)]
        assert list(prefix.images()) == list(records.read(0).images())


def test_a_fault_of_the_transfer_is_read_again(server: RangeServer, full: list[bytes]) -> None:
    with open_records(f"{server.url}/dataset") as records:
        path = f"/dataset/{records.paths[0]}"
        for _ in range(2):
            server.fail(path, "flip")
            prefix = records.read(0)
            assert not prefix.faults
            assert list(prefix.images()) == full[:4]
        server.fail(path, "flip")
        assert records.image(0, 1) == full[1]
        server.fail(path, "503")
        assert records.image(0, 1) == full[1]


def test_a_record_that_was_mended_is_read_anew(folder: Path, full: list[bytes]) -> None:
    path = folder / "records-00/000000.pcr"
    good = path.read_bytes()
    flip(path, lambda index: index.ends[2] - 1)
    with open_records(folder) as records:
        assert records.read(0).faults
        (folder / "mended").write_bytes(good)
        (folder / "mended").replace(path)
        assert list(records.read(0).images()) == full[:4]


def test_errors_of_the_store_are_no_damage(server: RangeServer) -> None:
    with open_records(f"{server.url}/dataset") as records:
        server.fail(None, "ignore-range", times=9)
        with pytest.raises(StoreError, match="ignores the Range header"):
            records.read(0, 1)
        with pytest.raises(StoreError, match="ignores the Range header"):
            records.image(0, 1)


def test_damage_survives_a_way_through_processes() -> None:
    fault = Fault("a.pcr", "x.jpg", 2, "its crc32c does not match")
    error = Damaged("a.pcr, image x.jpg", [fault])
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.faults) == (str(error), (fault,))
    assert fault.to_dict() == {
        "record": "a.pcr",
        "image": "x.jpg",
        "group": 2,
        "reason": "its crc32c does not match",
    }


def test_many_faults_are_not_all_printed(folder: Path) -> None:
    path = folder / "records-00/000000.pcr"
    data = path.read_bytes()
    index = layout.decode_footer(data, len(data))
    size = index.ends[G] - index.ends[0]
    path.write_bytes(data[: index.ends[0]] + bytes(size) + data[index.ends[G] :])
    with open_records(folder) as records:
        prefix = records.read(0)
        assert len(prefix.faults) == 4 * G
        with pytest.raises(Damaged) as caught:
            prefix.image(2)
        assert len(caught.value.faults) == G
        assert all(fault.image == "0002.jpg" for fault in caught.value.faults)


# --- datasets that are none -----------------------------------------------------------------------------


def test_records_without_a_manifest_can_be_repaired(folder: Path) -> None:
    (folder / NAME).unlink()
    with refused("not-found") as caught:
        open_records(folder)
    assert "repair --replica" in str(caught.value)
    assert "3 records" in str(caught.value)


def test_a_folder_without_records_is_no_dataset(tmp_path: Path, server: RangeServer) -> None:
    for url in (str(tmp_path / "nowhere"), f"{server.url}/nowhere", "memory://nowhere"):
        with refused("not-found"):
            open_records(url)


def test_a_damaged_manifest_names_the_remedy(folder: Path) -> None:
    data = bytearray((folder / NAME).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / NAME).write_bytes(data)
    with refused("damaged") as caught:
        open_records(folder)
    assert "repair --replica" in str(caught.value)


def test_a_single_record_that_is_missing_or_empty(folder: Path) -> None:
    with pytest.raises(MissingFile):
        open_records(folder / "records-00/000009.pcr")
    (folder / "empty.pcr").write_bytes(b"")
    with refused("damaged"):
        open_records(folder / "empty.pcr")


def test_names_of_every_kind(
    folder: Path, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, folder.parent / "named.pcr")
    shutil.copy(folder / "records-00/000000.pcr", folder)
    fsspec.filesystem("memory").pipe_file("/a.pcr", (folder / "000000.pcr").read_bytes())
    monkeypatch.chdir(folder)
    named = folder.parent / "named.pcr"
    for url, records in (
        (named, 3),
        (f"{server.url}/named.pcr", 3),
        (f"{named}/", 3),
        (".", 3),
        (NAME, 3),
        ("000000.pcr", 1),
        ("./000000.pcr", 1),
        (folder / "000000.pcr", 1),
        ("memory://a.pcr", 1),
    ):
        with open_records(url) as opened:
            assert len(opened) == records
            assert len(opened.read(0, 1)) == 4
    with open_store(named) as store:
        assert len(open_records(named, store)) == 3
    with open_store(folder) as store:
        assert len(open_records(folder / "000000.pcr", store)) == 1


@pytest.mark.parametrize("fidelity", [0, -1, G + 1])
def test_fidelities_that_are_not_there(fidelity: int, folder: Path) -> None:
    with open_records(folder) as records:
        for call in (records.read, lambda r, g: records.image(r, 0, g)):
            with refused("out-of-range"):
                call(0, fidelity)
        with pytest.raises(ValueError, match="fidelity"):
            records.read(0, 3).image(0, fidelity if fidelity != G + 1 else 4)


def test_a_prefix_of_another_record_is_a_mistake_of_the_caller(folder: Path) -> None:
    with open_records(folder) as records:
        with pytest.raises(ValueError, match="a prefix of record 1"):
            records.read(0, 3, have=records.read(1, 1))
        with pytest.raises(IndexError):
            records.read(3, 1)


def test_pickled_records_read_on(folder: Path, full: list[bytes]) -> None:
    with open_records(folder) as records:
        records.read(0, 1)
        with pickle.loads(pickle.dumps(records)) as copy:
            assert list(copy.read(2).images()) == full[8:]
            assert copy.classes == ["even", "odd"]


def test_the_crc_that_localises_is_the_written_one(folder: Path) -> None:
    with open_records(folder) as records:
        prefix = records.read(0)
        for image in range(4):
            pieces = [bytes(piece) for piece in prefix.pieces(image)]
            sums = [google_crc32c.value(piece) for piece in pieces]
            assert sums == prefix.contents.piece_sums[image].tolist()
            assert assemble(prefix.contents, image, pieces) == prefix.image(image)
