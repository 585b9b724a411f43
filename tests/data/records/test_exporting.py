"""Exports byte for byte, read back; interrupted, refused; and names that try to do harm."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any, Literal

import named_dataset
import pytest
import source_files
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused

from holdfast.data.records.export.exporting import extract, image_bytes, samples
from holdfast.data.records.export.names import FileNames, Keys, safe
from holdfast.data.records.format import layout
from holdfast.data.records.reading.records import Damaged, open_records
from holdfast.data.records.reading.stores import MissingFile, open_store
from holdfast.data.records.sources import open_source
from holdfast.data.records.writing.writer import write
from holdfast.errors import InputError, StoreError
from holdfast.plain import plain

Format = Literal["folder", "webdataset"]
FORMATS: tuple[Format, ...] = ("folder", "webdataset")
GROUPS = 5
PLAIN = [f"{name}/{number}.jpg" for number in range(4) for name in ("a", "b")]
ODD = [
    "../escape",
    "/etc/passwd",
    "a",
    "a.jpg",
    "a.JPEG",
    "a/b",
    "a.jpg/c",
    ".hidden/x.jpg",
    "__meta__/x",
    "dots.in.the/name.of.it",
    "back\\slash:colon",
    "%2E%2E/percent",
    "x" * 300 + "/" + "é" * 300 + ".jpg",
    "double//slash/",
    "..",
    "line\nbreak",
    "metadata.jsonl",
]


@pytest.fixture(scope="module")
def plain_ones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[bytes]]]:
    """A dataset that is only read, and its images at each fidelity."""
    folder = tmp_path_factory.mktemp("plain") / "in"
    return folder, named_dataset.write(folder, PLAIN)


@pytest.fixture(scope="module")
def odd_ones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[bytes]]]:
    """The same with ids that try to do harm."""
    folder = tmp_path_factory.mktemp("odd") / "in"
    return folder, named_dataset.write(folder, PLAIN + ODD, record_size=4)


Made = tuple[Path, list[list[bytes]]]


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def tar_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def kept(number: int) -> dict[str, Any]:
    """The columns of an image as JSON holds them."""
    row = named_dataset.columns(number)
    row["box"] = json.loads(str(row["box"]))
    row["blob"] = base64.b64encode(bytes([number, 255])).decode()
    return plain(row)  # type: ignore[no-any-return]


@pytest.mark.parametrize("fidelity", [1, 3, "full"])
def test_a_folder_holds_every_image_and_its_columns(
    tmp_path: Path, plain_ones: Made, fidelity: Any
) -> None:
    dataset, truth = plain_ones
    groups = GROUPS if fidelity == "full" else fidelity
    found = extract(dataset, tmp_path / "out", fidelity=fidelity)
    files = tree(tmp_path / "out")
    rows = [json.loads(line) for line in files.pop("metadata.jsonl").splitlines()]
    names = [name + (".png" if number == 6 else "") for number, name in enumerate(PLAIN)]
    assert files == {name: images[groups - 1] for name, images in zip(names, truth, strict=True)}
    for number, row in enumerate(rows):
        expected = kept(number)
        if expected["label"] is not None:
            expected["label"] = named_dataset.CLASSES[expected["label"]]
        own = {"file_name": names[number]} | ({"id": PLAIN[number]} if number == 6 else {})
        assert row == own | expected
    assert (found.images, found.files, found.renamed, found.fidelity) == (8, 8, 1, groups)
    assert found.bytes_written == sum(map(len, files.values()))
    with open_records(dataset) as records:
        assert found.bytes_read == sum(index.ends[groups] for index in records.indexes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("fidelity", [2, "full"])
def test_tars_hold_every_image_and_its_columns(
    tmp_path: Path, plain_ones: Made, fidelity: Any
) -> None:
    dataset, truth = plain_ones
    groups = GROUPS if fidelity == "full" else fidelity
    found = extract(
        dataset, tmp_path / "out", fidelity=fidelity, format="webdataset", shard_images=4
    )
    assert sorted(tree(tmp_path / "out")) == ["000000.tar", "000001.tar"]
    members = [tar_members(tmp_path / "out" / name) for name in ("000000.tar", "000001.tar")]
    assert [sum(name.endswith(".json") for name in tar) for tar in members] == [6, 2]
    together = members[0] | members[1]
    expected: dict[str, bytes] = {}
    for number, id_ in enumerate(PLAIN):
        key = id_.removesuffix(".jpg") if number != 6 else id_.replace(".", "%2E")
        row = kept(number)
        label = row.pop("label")
        expected[f"{key}.{'png' if number == 6 else 'jpg'}"] = truth[number][groups - 1]
        if label is not None:
            expected[f"{key}.cls"] = str(label).encode()
            row["class"] = named_dataset.CLASSES[label]
        meta = json.loads(together.pop(f"{key}.json"))
        assert meta == {"id": id_} | row
    assert together == expected
    assert (found.images, found.files) == (8, 2)
    again = extract(dataset, tmp_path / "2", fidelity=fidelity, format="webdataset", shard_images=4)
    assert tree(tmp_path / "2") == tree(tmp_path / "out")
    assert again.bytes_written == sum(map(len, tree(tmp_path / "2").values()))


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_exported_can_be_read_as_a_source(
    tmp_path: Path, odd_ones: Made, format: Format
) -> None:
    dataset, truth = odd_ones
    extract(dataset, tmp_path / "out", format=format, shard_images=5)
    label = {"folder": "label", "webdataset": "class"}[format]
    source = open_source(tmp_path / "out", label=label)
    assert len(source) == len(PLAIN + ODD)
    names = json.loads(source.schema.field("label").metadata[b"names"])
    assert names == sorted(named_dataset.CLASSES)
    found = {one.id: one for one in source.read(0, len(source))}
    for number, id_ in enumerate(PLAIN + ODD):
        row = kept(number)
        assert found[id_].data == truth[number][-1]
        columns = dict(found[id_].columns)
        assert json.loads(str(columns.pop("box"))) == row.pop("box")
        number_of_class = columns.pop("label")
        assert row.pop("label") == (
            None if number_of_class is None else named_dataset.CLASSES.index(names[number_of_class])  # type: ignore[index]
        )
        assert columns == row


def test_odd_ids_stay_in_the_folder(tmp_path: Path) -> None:
    named_dataset.write(tmp_path / "deep" / "in", ODD)
    before = tree(tmp_path)
    extract(tmp_path / "deep" / "in", tmp_path / "deep" / "out")
    new = [name for name in tree(tmp_path) if name not in before]
    assert len(new) == len(ODD) + 1
    assert all(name.startswith("deep/out/") for name in new)
    assert not any(part.startswith(".") for name in new for part in name.split("/"))


def test_a_dataset_that_says_no_more_than_its_names_has_no_metadata(tmp_path: Path) -> None:
    folder = source_files.files(tmp_path / "in", {"x.png": source_files.PNG})
    write(folder, tmp_path / "records")
    extract(tmp_path / "records", tmp_path / "out")
    assert tree(tmp_path / "out") == {"x.png": source_files.PNG}


_UNICODE = st.characters(exclude_categories=["Cs"])
_ids = st.text(st.sampled_from("a/.%2E\\:\0_ \né~"), max_size=8) | st.text(_UNICODE, max_size=20)
_ids |= _ids.map(lambda id_: id_ * 40)
_IDS_AND_KINDS = st.dictionaries(_ids, st.sampled_from(["jpg", "png", None]), max_size=6)


@given(_IDS_AND_KINDS)
@example({"a.jpg/b": "jpg", "a": "jpg", "a.jpg": "jpg"})
def test_every_id_gets_a_name_of_its_own(ids: dict[str, str | None]) -> None:
    files = FileNames()
    names = [files.name(id_, kind) for id_, kind in ids.items()]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name.encode()) <= 2300
        parts = name.split("/")
        assert all(part and not part.startswith(".") for part in parts)
        assert all(len(part.encode()) <= 255 for part in parts)
        assert not re.search(r'[\x00-\x1f\\:*?"<>|]', name)
        # A file is in no other's place.
        assert not any(other.startswith(f"{name}/") for other in names)


@given(_IDS_AND_KINDS)
def test_every_id_gets_a_key_of_its_own(ids: dict[str, str | None]) -> None:
    made = Keys()
    keys = [made.key(id_, kind) for id_, kind in ids.items()]
    assert len(set(keys)) == len(keys)
    for key in keys:
        # As the webdataset library takes names apart.
        match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", f"{key}.jpg", re.DOTALL)
        assert match is not None
        assert match.groups() == (key, "jpg")
        assert not re.match(r"__[^/]*__($|/)", key)


@given(_ids, _ids)
def test_safe_names_of_different_ids_differ(one: str, other: str) -> None:
    parts = {part for id_ in (one, other) for part in id_.split("/")}
    if not parts & {"", "\0"}:
        assert (safe(one) == safe(other)) == (one == other)


class Killed(BaseException):
    """Stands for the end of a process."""


def stop_after(calls: int) -> Any:
    seen = []

    def stop(done: int, total: int) -> None:
        assert 0 < done <= total
        seen.append(done)
        if len(seen) == calls:
            raise Killed

    return stop


@pytest.mark.parametrize("format", FORMATS)
def test_an_interrupted_export_leaves_nothing_and_is_made_anew(
    tmp_path: Path, odd_ones: Made, format: Format
) -> None:
    dataset, _ = odd_ones
    options: dict[str, Any] = {"format": format, "shard_images": 6}
    whole = extract(dataset, tmp_path / "whole", **options)
    with pytest.raises(Killed):
        extract(dataset, tmp_path / "out", **options, on_progress=stop_after(2))
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    # What a killed process leaves is not taken for a part of the next one's.
    source_files.files(tmp_path / ".out.part", {"a/0.jpg": b"half", "000000.tar": b"half"})
    found = extract(dataset, tmp_path / "out", **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert found.to_dict() == whole.to_dict() | {"path": str(found.path)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]


def test_nothing_is_overwritten(tmp_path: Path, plain_ones: Made) -> None:
    dataset, _ = plain_ones
    (tmp_path / "file").write_bytes(b"")
    source_files.files(tmp_path, {"full/x": b""})
    (tmp_path / "empty").mkdir()
    assert extract(dataset, tmp_path / "empty").images == 8
    for name in ("file", "full", "empty"):
        with pytest.raises(InputError) as caught:
            extract(dataset, tmp_path / name)
        assert caught.value.code == "output-exists"


def test_two_exports_to_one_place_do_not_mix(tmp_path: Path, plain_ones: Made) -> None:
    dataset, _ = plain_ones
    (tmp_path / ".out.part").mkdir()
    handle = os.open(tmp_path / ".out.part", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(StoreError):
        extract(dataset, tmp_path / "out")
    os.close(handle)
    assert extract(dataset, tmp_path / "out").images == 8


@pytest.mark.parametrize(
    "options",
    [
        {"fidelity": 0},
        {"fidelity": 6},
        {"fidelity": True},
        {"format": "zip"},
        {"on_fault": "hope"},
        {"shard_images": 0},
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tmp_path: Path, plain_ones: Made, options: dict[str, Any]
) -> None:
    dataset, _ = plain_ones
    with pytest.raises(InputError):
        extract(dataset, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def damage(folder: Path, record: int, image: int, group: int) -> None:
    """Flip a byte of one piece."""
    path = sorted((folder / "records-00").iterdir())[record]
    data = bytearray(path.read_bytes())
    index = layout.decode_footer(bytes(data), len(data))
    contents = layout.decode_contents(bytes(data), index)
    data[index.ends[group - 1] + contents.starts[image, group - 1]] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("format", FORMATS)
def test_damage_is_met_as_it_was_asked_for(tmp_path: Path, format: Format) -> None:
    truth = named_dataset.write(tmp_path / "in", PLAIN)
    damage(tmp_path / "in", 0, 1, 3)
    damage(tmp_path / "in", 1, 2, 1)
    with pytest.raises(Damaged, match=r"b/0\.jpg"):
        extract(tmp_path / "in", tmp_path / "out", format=format)
    assert not (tmp_path / "out").exists()
    skipped = extract(tmp_path / "in", tmp_path / "skip", format=format, on_fault="skip")
    assert [(fault.image, fault.group) for fault in skipped.faults] == [
        ("b/0.jpg", 3),
        ("b/2.jpg", 1),
    ]
    assert (skipped.images, skipped.degraded) == (6, 0)
    lower = extract(tmp_path / "in", tmp_path / "lower", format=format, on_fault="degrade")
    assert (lower.images, lower.degraded) == (7, 1)
    assert len(lower.to_dict()["faults"]) == 2
    source = open_source(tmp_path / "lower", drop=["label", "class"])
    found = {one.id: one.data for one in source.read(0, len(source))}
    assert found["b/0.jpg"] == truth[1][1]
    assert found["a/0.jpg"] == truth[0][-1]
    assert "b/2.jpg" not in found
    whole = extract(tmp_path / "in", tmp_path / "two", format=format, fidelity=2, on_fault="skip")
    assert whole.images == 7  # the fault in group 3 is not read


def test_a_record_without_metadata_can_be_passed_over_but_not_a_missing_one(tmp_path: Path) -> None:
    named_dataset.write(tmp_path / "in", PLAIN)
    record = sorted((tmp_path / "in" / "records-00").iterdir())[1]
    record.write_bytes(record.read_bytes()[:50])
    with pytest.raises(Damaged):
        extract(tmp_path / "in", tmp_path / "out")
    found = extract(tmp_path / "in", tmp_path / "out", on_fault="skip")
    assert found.images == 5
    assert [fault.image for fault in found.faults] == [None]
    record.unlink()
    for policy in ("raise", "skip", "degrade"):
        with pytest.raises(MissingFile):
            extract(tmp_path / "in", tmp_path / policy, on_fault=policy)


def test_samples_say_what_is_known_of_an_image(tmp_path: Path, plain_ones: Made) -> None:
    dataset, truth = plain_ones
    found = samples(dataset, count=None)
    assert found.images == len(found.rows) == 8
    for number, row in enumerate(found.to_dict()):
        label = kept(number)["label"]
        assert row["id"] == PLAIN[number]
        assert row["columns"] == kept(number)
        assert row["class"] == (None if label is None else named_dataset.CLASSES[label])
        assert row["bytes"] == list(map(len, truth[number]))
        assert row["opaque"] == ("PNG" if number == 6 else None)
        assert (row["record"], row["image"]) == (f"records-00/{number // 3:06d}.pcr", number % 3)
        assert (row["width"], row["height"], row["orientation"]) == (24, 16, 1)
        json.dumps(row, allow_nan=False)
    for start, count in ((0, 1), (2, 3), (7, 5), (8, 1), (0, 0)):
        part = samples(dataset, start=start, count=count)
        assert part.rows == found.rows[start : start + count]
    with refused("not-found"):
        image_bytes(dataset, "absent")


def test_one_image_is_read_by_its_pieces_alone(tmp_path: Path) -> None:
    truth = named_dataset.write(tmp_path / "in", PLAIN, record_size=8)
    for number, id_ in enumerate(PLAIN):
        for group in range(1, GROUPS + 1):
            assert image_bytes(tmp_path / "in", id_, fidelity=group) == truth[number][group - 1]
        assert image_bytes(tmp_path / "in", id_) == truth[number][-1]
    store = open_store(tmp_path / "in")
    image_bytes(tmp_path / "in", PLAIN[3], fidelity=2, store=store)
    with open_records(tmp_path / "in") as records:
        metadata = records.indexes[0].ends[0]
    manifest = (tmp_path / "in" / "manifest.parquet").stat().st_size
    assert store.bytes_read == manifest + metadata + len(truth[3][1]) - 2
    single = tmp_path / "in" / "records-00" / "000000.pcr"
    assert image_bytes(single, PLAIN[3]) == truth[3][-1]
    with pytest.raises(InputError):
        image_bytes(tmp_path / "in", PLAIN[3], fidelity=9)


def test_photos_go_out_and_in_again(tmp_path: Path) -> None:
    """Folder -> records -> both formats: ids and labels stay (coefficients are compared elsewhere)."""
    photos = Path(__file__).parents[3] / "examples" / "signs" / "photos"
    write(photos, tmp_path / "records", quality_images=0)
    before = open_source(photos)
    for format, label in (("folder", "label"), ("webdataset", "class")):
        out = tmp_path / format
        extract(tmp_path / "records", out, format=format)  # type: ignore[arg-type]
        after = open_source(out, label=label)
        assert after.schema.field("label") == before.schema.field("label")
        assert len(after) == len(before) == 40
        for one, other in zip(before.read(0, 40), after.read(0, 40), strict=True):
            assert (one.id, one.columns["label"]) == (other.id, other.columns["label"])


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, plain_ones: Made) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        extract(plain_ones[0], tmp_path / "file" / "out")
