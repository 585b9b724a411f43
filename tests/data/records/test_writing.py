"""Writing a dataset: what is in it, where it comes from, what it refuses; killed writers have their own."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import coefficients
import made
import numpy as np
import odd_jpegs
import pyarrow as pa
import pytest
import simplejpeg
from listed_source import Listed, files, of_pictures, on_disk
from PIL import Image as Pillow
from PIL import ImageOps
from refusals import refused

from holdfast.data.records.checking.verifying import verify
from holdfast.data.records.jpeg import parsing, turbojpeg
from holdfast.data.records.jpeg.decoding import upright
from holdfast.data.records.sources import Example, open_source
from holdfast.data.records.writing import writer
from holdfast.data.records.writing.generations import only_writer
from holdfast.data.records.writing.settings import Settings
from holdfast.data.records.writing.transcoding import prepare
from holdfast.errors import InputError, StoreError

JPEGTRAN = shutil.which("jpegtran")
PHOTOS = Path(__file__).resolve().parents[3] / "examples" / "signs" / "photos"
ORIENTATION = 0x0112


def listed(images: dict[str, bytes]) -> Listed:
    return Listed([Example(id_, data, {}) for id_, data in images.items()])


def png(width: int = 9, height: int = 5) -> bytes:
    file = io.BytesIO()
    Pillow.new("RGB", (width, height), "red").save(file, "PNG")
    return file.getvalue()


def write(source: Any, out: Path, **options: Any) -> writer.Written:
    return writer.write(source, out, **{"quality_images": 0, "threads": 2} | options)


# --- What is in it -------------------------------------------------------------------------------


def test_an_iterator_of_dicts_is_written_and_written_again(tmp_path: Path) -> None:
    pictures = {f"{seed}.jpg": made.picture(seed) for seed in range(5)}

    def rows() -> Iterator[dict[str, Any]]:
        for number, (id_, data) in enumerate(pictures.items()):
            yield {"id": id_, "image": data, "label": number % 2}

    written = write(rows(), tmp_path / "d", record_size=2)
    assert (written.images, written.records, written.reused) == (5, 3, 0)
    assert written.bytes_in == sum(map(len, pictures.values()))
    found = on_disk(tmp_path / "d")
    assert list(found.images) == list(pictures)
    for id_, data in pictures.items():
        coefficients.assert_same(found.images[id_], data)
    assert write(rows(), tmp_path / "d", record_size=2).reused == 3
    assert verify(tmp_path / "d", against=open_source(rows())).compared == 5


@pytest.mark.skipif(JPEGTRAN is None, reason="needs jpegtran (libjpeg-turbo-progs)")
def test_photos_are_what_jpegtran_makes_of_them(tmp_path: Path) -> None:
    written = write(PHOTOS, tmp_path / "out", record_size=16)
    found = on_disk(tmp_path / "out")
    assert written.images == len(found.images) == 40
    assert written.records == 3
    for id_, data in found.images.items():
        command = [str(JPEGTRAN), "-copy", "none", "-optimize", "-progressive", PHOTOS / id_]
        assert data == subprocess.run(command, capture_output=True, check=True).stdout
    assert found.manifest.classes() == [str(digit) for digit in range(10)]
    labels = itertools.chain(*(one.table["label"].to_pylist() for one in found.contents))
    assert list(labels) == [int(id_[0]) for id_ in found.images]


@pytest.mark.skipif(JPEGTRAN is None, reason="needs jpegtran (libjpeg-turbo-progs)")
def test_odd_images_keep_every_coefficient(tmp_path: Path) -> None:
    images = {name: make() for name, make in odd_jpegs.ODD.items()}
    written = write(listed(images), tmp_path, record_size=7)
    assert not written.opaque, written.reasons
    found = on_disk(tmp_path).images
    assert list(found) == list(images)
    for name, data in images.items():
        coefficients.assert_same(found[name], data)


def test_a_prefix_at_a_group_decodes_strictly(tmp_path: Path) -> None:
    write(of_pictures(range(3)), tmp_path, groups=(2, 3, 10))
    for pieces in on_disk(tmp_path).pieces.values():
        assert len(pieces) == 3
        for group in range(1, 4):
            simplejpeg.decode_jpeg(b"".join(pieces[:group]) + b"\xff\xd9", strict=True)


def test_what_cannot_be_transcoded_is_stored_whole_with_the_reason(tmp_path: Path) -> None:
    images = {name: make() for name, make in odd_jpegs.OPAQUE.items()}
    images |= {name: make() for name, make in odd_jpegs.BROKEN.items()}
    images |= {"png": png(), "text": b"no image at all", "fine": made.picture(1)}
    images["half its data"] = made.picture(2)[:900] + b"\xff\xd9"
    written = write(listed(images), tmp_path, record_size=5)
    found = on_disk(tmp_path)
    reasons = {}
    for contents in found.contents:
        reasons |= dict(zip(contents.ids, contents.table["pcr.reason"].to_pylist(), strict=True))
    assert found.images["fine"] == turbojpeg.transcode(images["fine"])
    assert reasons.pop("fine") is None
    for name in reasons:
        assert found.images[name] == images[name], name
        assert found.pieces[name][1:] == [b""] * 4
        assert reasons[name], name
    assert written.opaque == len(reasons)
    assert sum(written.reasons.values()) == len(reasons)
    assert reasons["png"] == "PNG image"
    assert reasons["12 bits"] == "12-bit JPEG"
    assert reasons["Adobe CMYK"] == "CMYK JPEG"
    assert reasons["text"] == "file of an unknown image format"
    for name in [*odd_jpegs.BROKEN, "half its data"]:
        assert reasons[name].startswith("damaged JPEG: "), name
    assert written.reasons["damaged JPEG"] == len(odd_jpegs.BROKEN) + 1
    rows = {row["id"]: row for one in found.contents for row in one.table.to_pylist()}
    assert (rows["png"]["pcr.width"], rows["png"]["pcr.height"]) == (9, 5)


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "truth": (pa.bool_(), [True, False, None]),
    "small": (pa.int8(), [-128, 0, None]),
    "large": (pa.uint64(), [2**64 - 1, None, 0]),
    "real": (pa.float64(), [0.1, None, -1e300]),
    "single": (pa.float32(), [0.5, None, 2.0]),
    "text": (pa.string(), ["ä\n", "", None]),
    "bytes": (pa.binary(), [b"\0\xff", b"", None]),
    "boxes": (pa.list_(pa.list_(pa.float32(), 4)), [[[0, 1, 2, 3]], [], None]),
    "parts": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None, None]),
    "at": (pa.timestamp("us", "UTC"), [0, None, 1]),
    "nothing": (pa.null(), [None, None, None]),
}


def test_columns_of_every_type_come_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field(name, kind, metadata={"unit": name}) for name, (kind, _) in COLUMNS.items()]
    )
    examples = [
        Example(str(row), made.picture(row), {name: COLUMNS[name][1][row] for name in COLUMNS})
        for row in range(3)
    ]
    write(Listed(examples, schema), tmp_path, record_size=2)
    found = on_disk(tmp_path)
    table = pa.concat_tables([one.columns.replace_schema_metadata() for one in found.contents])
    for name, (kind, values) in COLUMNS.items():
        assert table[name].to_pylist() == pa.array(values, kind).to_pylist(), name
        assert table.schema.field(name).type == kind
        assert found.manifest.schema.field(name).metadata == {b"unit": name.encode()}
    assert found.manifest.schema.names == ["id", *COLUMNS]


# --- Orientation and metadata --------------------------------------------------------------------


def oriented(value: int, width: int = 48, height: int = 32, *, seed: int = 5) -> bytes:
    """A picture without chroma subsampling, with EXIF (GPS too), an ICC profile and a comment."""
    file = io.BytesIO()
    exif = Pillow.Exif()
    exif[ORIENTATION], exif[0x010F] = value, "maker"
    exif.get_ifd(0x8825)[1] = "N"
    with Pillow.open(io.BytesIO(made.picture(seed, width, height))) as picture:
        picture.save(
            file,
            "JPEG",
            quality=95,
            subsampling=0,
            exif=exif,
            icc_profile=b"profile" * 9,
            comment=b"said",
        )
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    return simplejpeg.decode_jpeg(data).astype(np.int16)  # type: ignore[no-any-return]


@pytest.mark.parametrize("value", range(1, 9))
def test_an_orientation_is_kept_in_the_first_piece_and_in_a_column(value: int) -> None:
    source = oriented(value)
    made_of_it = prepare(source, Settings())
    assert made_of_it.orientation == value
    whole = b"".join(made_of_it.pieces) + b"\xff\xd9"
    for data in (made_of_it.pieces[0] + b"\xff\xd9", whole):
        with Pillow.open(io.BytesIO(data)) as image:
            assert image.getexif().get(ORIENTATION, 1) == value
            assert image.info.get("icc_profile") is None
            assert set(image.getexif()) <= {ORIENTATION}
    assert parsing.parse(whole).metadata_bytes == (36 if value != 1 else 0)
    assert np.array_equal(pixels(whole), pixels(source))


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("metadata", ["orientation", "all"])
def test_an_orientation_is_baked_where_that_loses_nothing(value: int, metadata: Any) -> None:
    source = oriented(value)
    baked = prepare(source, Settings(orientation="bake", metadata=metadata))
    assert baked.orientation == 1
    whole = b"".join(baked.pieces) + b"\xff\xd9"
    with Pillow.open(io.BytesIO(source)) as image:
        seen = np.asarray(ImageOps.exif_transpose(image), np.int16)
    assert pixels(whole).shape == seen.shape == (baked.height, baked.width, 3)
    assert np.abs(pixels(whole) - seen).max() <= 2  # the inverse DCT rounds rows before columns
    with Pillow.open(io.BytesIO(whole)) as image:
        assert image.getexif().get(ORIENTATION, 1) == 1
        assert (image.info.get("icc_profile") is not None) == (metadata == "all")


@pytest.mark.parametrize("value", range(2, 9))
def test_an_orientation_that_cannot_be_baked_is_kept(tmp_path: Path, value: int) -> None:
    source = oriented(value, 45, 29)
    written = write(listed({"odd": source, "even": oriented(value)}), tmp_path, orientation="bake")
    found = on_disk(tmp_path)
    (contents,) = found.contents
    assert contents.orientations.tolist()[1] == 1
    with Pillow.open(io.BytesIO(source)) as image:
        seen = np.asarray(ImageOps.exif_transpose(image), np.int16)
    left = int(contents.orientations[0])
    turned = upright(simplejpeg.decode_jpeg(found.images["odd"]), left).astype(np.int16)
    assert np.abs(turned - seen).max() <= 2
    assert written.not_upright == (left != 1)
    # An axis whose last blocks are not whole cannot be mirrored: only the transposition is possible.
    assert (left == 1) == (value == 5)


def test_all_metadata_stay_if_they_shall() -> None:
    source = oriented(6)
    index = b"\xff\xe2\x00\x08MPF\0ab"  # of pictures that follow EOI, which are not kept
    source = source[:2] + index + source[2:]
    kept = prepare(source, Settings(metadata="all"))
    whole = b"".join(kept.pieces) + b"\xff\xd9"
    before, after = parsing.parse(source), parsing.parse(whole)
    bodies = [source[one.start : one.end] for one in before.metadata]
    assert [whole[one.start : one.end] for one in after.metadata] == [
        body for body in bodies if body != index
    ]
    assert len(bodies) == 4
    assert kept.orientation == after.orientation == 6
    with Pillow.open(io.BytesIO(whole)) as image:
        assert image.getexif().get_ifd(0x8825)[1] == "N"
        assert image.info["comment"] == b"said"
    assert b"said" not in b"".join(prepare(source, Settings()).pieces)


# --- The same bytes ------------------------------------------------------------------------------


def test_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    source = of_pictures(range(20))
    for threads in (1, 4):
        write(source, tmp_path / str(threads), record_size=3, threads=threads, quality_images=5)
    assert files(tmp_path / "1") == files(tmp_path / "4")


def test_what_is_in_place_is_kept_and_what_is_not_is_made_again(tmp_path: Path) -> None:
    source = of_pictures(range(10))
    first = write(source, tmp_path, record_size=3, quality_images=4)
    whole = files(tmp_path)
    assert (first.records, first.reused) == (4, 0)
    paths = sorted(path for path in whole if path.endswith(".pcr"))
    again = write(source, tmp_path, record_size=3, quality_images=4)
    assert again.reused == 4
    assert again.to_dict() == first.to_dict() | {"reused": 4}
    for path, damage in (
        (paths[0], lambda data: data[:-30]),
        (paths[1], lambda data: data[:999] + bytes([data[999] ^ 1]) + data[1000:]),
        (paths[2], lambda data: b""),
        (paths[3], lambda data: None),
        ("manifest.parquet", lambda data: data[:50]),
        ("manifest.parquet", lambda data: None),
    ):
        damaged = damage(whole[path])
        (tmp_path / path).unlink() if damaged is None else (tmp_path / path).write_bytes(damaged)
        again = write(source, tmp_path, record_size=3, quality_images=4)
        assert files(tmp_path) == whole, path
        assert again.reused == (3 if path in paths else 4)


def test_labels_that_changed_are_not_kept(tmp_path: Path) -> None:
    source = of_pictures(range(5))
    write(source, tmp_path, record_size=3)
    before = on_disk(tmp_path)
    changed = [Example(one.id, one.data, {"label": 1}) for one in source.examples]  # type: ignore[union-attr]
    write(Listed(changed, source.schema), tmp_path, record_size=3)
    after = on_disk(tmp_path)
    assert after.images == before.images
    assert [one.table["label"].to_pylist() for one in after.contents] == [[1, 1, 1], [1, 1]]
    assert len(list(tmp_path.glob("records-*"))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"groups": (1, 10)},
        {"record_size": 4},
        {"orientation": "bake"},
        {"metadata": "all"},
        {"quality_images": 2},
    ],
)
def test_other_settings_make_another_generation(tmp_path: Path, change: dict[str, Any]) -> None:
    source = of_pictures(range(5))
    write(source, tmp_path, record_size=3)
    before = set(files(tmp_path))
    written = write(source, tmp_path, **{"record_size": 3} | change)
    assert written.reused == 0
    assert set(files(tmp_path)) & before == {"manifest.parquet"}


def test_what_became_possible_is_transcoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = of_pictures(range(4))

    def refuse(*_: object, **__: object) -> bytes:
        raise turbojpeg.TranscodeError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(turbojpeg, "transcode", refuse)
        assert write(source, tmp_path).opaque == 4
        assert write(source, tmp_path).reused == 1
    written = write(source, tmp_path)
    assert (written.opaque, written.reused) == (0, 0)
    assert on_disk(tmp_path).images == {
        one.id: turbojpeg.transcode(one.data)  # type: ignore[union-attr]
        for one in source.examples
    }


def test_an_unfaithful_transcoder_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {
        "width": made.picture(1, 40, 40),
        "height": made.picture(1, 48, 48),
        "color": made.picture(1, mode="L"),
        "components": oriented(1, 48, 40),
    }
    honest = turbojpeg.transcode
    for what, data in other.items():
        with monkeypatch.context() as patched:
            patched.setattr(turbojpeg, "transcode", lambda *_, data=data, **__: honest(data))
            found = prepare(made.picture(1), Settings())
        assert found.reason is not None
        assert found.reason.startswith("JPEG whose transcoding was not faithful: "), what
        assert what in found.reason
        assert found.pieces[0] == made.picture(1)


# --- Figures -------------------------------------------------------------------------------------


def test_totals_and_groups_are_those_of_the_files(tmp_path: Path) -> None:
    source = Listed([*of_pictures(range(9)).examples, Example("x.png", png(), {"label": 0})])
    written = write(source, tmp_path, record_size=4, quality_images=5)
    found = files(tmp_path)
    assert written.bytes_out == sum(map(len, found.values()))
    data = [one.data for one in source.examples]  # type: ignore[union-attr]
    assert written.bytes_in == sum(map(len, data))
    assert written.stripped_bytes == written.bytes_in  # these have no metadata
    on = on_disk(tmp_path)
    measured = sum(index.measured for index in on.manifest.records)
    assert 4 <= measured <= 5  # the PNG may have been drawn
    full = sum(index.ends[5] for index in on.manifest.records)
    for number, group in enumerate(written.groups, 1):
        size = sum(index.ends[number] for index in on.manifest.records)
        assert group.cumulative_fraction == size / full
        assert group.of_stripped == size / written.stripped_bytes
    scores = [group.msssim for group in written.groups]
    assert all(score is not None for score in scores)
    assert scores == sorted(scores)  # type: ignore[type-var]
    assert scores[-1] == 1
    notes = on.manifest.notes
    assert (notes["images"], notes["opaque"], notes["reasons"]) == (10, 1, {"PNG image": 1})
    assert (notes["source_bytes"], notes["stripped_bytes"]) == (written.bytes_in,) * 2
    assert json.loads(json.dumps(written.to_dict()))["groups"][4]["scans_end"] == 10


@pytest.mark.parametrize(("images", "asked"), [(1, 1), (10, 3), (10, 10), (7, 32), (100, 32)])
def test_the_sample_is_spread_evenly(images: int, asked: int) -> None:
    plan = writer.Plan.of(
        Listed([Example(str(n), b"x", {}) for n in range(images)]),
        Settings(quality_images=asked),
        {},
    )
    drawn = sorted(plan.measured())
    assert len(drawn) == min(images, asked)
    for part, number in enumerate(drawn):
        assert part * images // len(drawn) <= number < (part + 1) * images // len(drawn)


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    source = of_pictures(range(7))
    calls: list[tuple[int, int]] = []
    write(source, tmp_path, record_size=2, on_progress=lambda *call: calls.append(call))
    total = sum(size for _, size in source.ids_and_sizes())
    assert [call[1] for call in calls] == [total] * 4
    assert [call[0] for call in calls] == sorted({call[0] for call in calls})
    assert calls[-1][0] == total


def test_few_images_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of_pictures(range(30))
    total = sum(size for _, size in source.ids_and_sizes())
    ahead: list[int] = []

    def note(done: int, _: int) -> None:
        ahead.append(source.taken - round(done / total * 30))

    write(source, tmp_path / "a", record_size=2, on_progress=note)
    assert max(ahead) <= 2 * writer.MOST_RECORDS
    monkeypatch.setattr(writer, "MOST_BYTES", 1)
    ahead, source.taken = [], 0
    write(source, tmp_path / "b", record_size=2, on_progress=note)
    assert max(ahead) <= 1  # one record alone, and rounding


# --- What it refuses -----------------------------------------------------------------------------


def test_unusable_images_are_set_aside(tmp_path: Path) -> None:
    examples: list[Any] = list(of_pictures(range(10)).examples)
    examples[2] = OSError(errno.EIO, "Input/output error")
    examples[5] = Example("empty.jpg", b"", {})
    examples[6] = Example("bomb.jpg", odd_jpegs.LIMITS["65535 x 65535"](), {})
    examples[7] = InputError(
        "a shard is damaged", code="damaged", path="/secret/place", found="a wrong sum"
    )
    source = Listed(examples)
    for _ in range(2):
        written = write(source, tmp_path, record_size=4, max_rejected=0.4)
        assert (written.images, written.rejected) == (6, 4)
        lines = (tmp_path / "rejected.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == [
            {"id": "bad 2", "reason": "cannot be read: Input/output error"},
            {"id": "empty.jpg", "reason": "empty"},
            {
                "id": "bomb.jpg",
                "reason": "a JPEG is too large: 65,535 x 65,535 pixels",
            },
            {"id": "bad 7", "reason": "cannot be read: a shard is damaged: a wrong sum"},
        ]
    assert written.reused == 3
    assert len(on_disk(tmp_path).images) == 6
    with refused("too-many-rejects") as caught:
        write(source, tmp_path, record_size=4, max_rejected=0.3)
    assert "bad 2 (cannot be read" in str(caught.value)
    assert "at most 3 of 10" in str(caught.value)
    assert len(on_disk(tmp_path).images) == 6
    write(of_pictures(range(10)), tmp_path, record_size=4)
    assert not (tmp_path / "rejected.jsonl").exists()


def test_a_share_is_rounded_up_to_whole_images(tmp_path: Path) -> None:
    empty = Example("empty", b"", {})
    source = Listed([*of_pictures(range(5)).examples, empty])
    assert write(source, tmp_path / "a").rejected == 1
    with refused("too-many-rejects"):
        write(source, tmp_path / "b", max_rejected=0)
    with refused("no-data"):
        write(Listed([empty]), tmp_path / "c", max_rejected=1)
    with refused("no-data"):
        write(Listed([]), tmp_path / "d")


def test_a_source_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    class Changing(Listed):
        def ids_and_sizes(self) -> Any:
            return ((id_, size + (id_ == "003.jpg")) for id_, size in super().ids_and_sizes())

    with refused("source-changed"):
        write(Changing(of_pictures(range(5)).examples), tmp_path)
    examples = of_pictures(range(3)).examples
    with refused("duplicate"):
        write(Listed([*examples, examples[0]]), tmp_path)


def test_a_source_folder_is_not_touched(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PHOTOS / "0", source)
    before = files(source)
    stats = {path: (source / path).stat().st_mtime_ns for path in before}
    write(source, tmp_path / "out")
    write(open_source(source), source / "below")  # nested: listed before anything is written
    shutil.rmtree(source / "below")
    assert files(source) == before
    assert {path: (source / path).stat().st_mtime_ns for path in before} == stats
    with refused("output-exists"):
        write(source, source)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "somebody's file": lambda out: (out / "letter.txt").write_text("dear"),
    "somebody's folder": lambda out: (out / "records-mine").mkdir(),
    "another manifest": lambda out: (out / "manifest.parquet").write_bytes(b"PAR1 of others"),
    "another draft": lambda out: (out / ".letter.txt.12.part").write_text("dear"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_things_than_a_dataset_are_left_alone(tmp_path: Path, name: str) -> None:
    FOREIGN[name](tmp_path)
    before = files(tmp_path)
    with refused("output-exists"):
        write(of_pictures(range(2)), tmp_path)
    assert files(tmp_path) == before


def test_what_an_owner_adds_to_a_dataset_stays(tmp_path: Path) -> None:
    write(of_pictures(range(2)), tmp_path)
    (tmp_path / "croissant.json").write_text("{}")
    (records,) = tmp_path.glob("records-*")
    (records / "note.txt").write_text("mine")
    write(of_pictures(range(5, 8)), tmp_path)
    assert (tmp_path / "croissant.json").read_text() == "{}"
    assert (records / "note.txt").read_text() == "mine"
    assert not list(records.glob("*.pcr"))


def test_drafts_of_the_dead_are_swept(tmp_path: Path) -> None:
    write(of_pictures(range(2)), tmp_path)
    whole = files(tmp_path)
    (records,) = tmp_path.glob("records-*")
    (tmp_path / ".manifest.parquet.77.part").write_bytes(b"half")
    (records / ".000001.pcr.77.part").write_bytes(b"half")
    (records / "000009.pcr").write_bytes(b"of an earlier plan")
    write(of_pictures(range(2)), tmp_path)
    assert files(tmp_path) == whole


OPTIONS: dict[str, dict[str, Any]] = {
    "groups that fall": {"groups": (5, 2, 10)},
    "groups that end early": {"groups": (1, 2, 5)},
    "no groups": {"groups": ()},
    "groups past the last scan": {"groups": (1, 11)},
    "no images a record": {"record_size": 0},
    "orientation": {"orientation": "drop"},
    "metadata": {"metadata": "none"},
    "quality": {"quality_images": -1},
    "max_rejected": {"max_rejected": 1.5},
    "threads": {"threads": 0},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        write(of_pictures(range(2)), tmp_path / "out", **OPTIONS[name])
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("unwritable"):
        write(of_pictures(range(2)), tmp_path / "file")
    with pytest.raises(InputError, match="s3://bucket/out"):
        writer.write(of_pictures(range(2)), "s3://bucket/out")
    with only_writer(tmp_path / "held"), pytest.raises(StoreError, match="another process"):
        write(of_pictures(range(2)), tmp_path / "held")
    assert files(tmp_path / "held") == {}


@pytest.mark.quick(1)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_at_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    old, new = of_pictures(range(3)), of_pictures(range(10, 15))
    start, reference, out = tmp_path / "start", tmp_path / "reference", tmp_path / "out"
    write(old, start, record_size=3)
    images = on_disk(start).images
    shutil.copytree(start, reference)
    write(new, reference, record_size=3)
    failed = 0
    for call in itertools.count(1):
        shutil.copytree(start, out)
        with monkeypatch.context() as patched:
            disk = FailingDisk(patched, call, code)
            said = disk.error_of(lambda: write(new, out, record_size=3))
        assert on_disk(out).images in (images, on_disk(reference).images)
        assert not [path for path in files(out) if path.endswith((".part", ".lock"))]
        write(new, out, record_size=3)
        assert files(out) == files(reference)
        shutil.rmtree(out)
        if disk.calls < call:
            break
        if said:  # a folder that cannot be made does not matter if it is there
            assert os.strerror(code) in said
            failed += 1
    assert failed > 8


class FailingDisk:
    """The calls that change the disk, of which one fails."""

    def __init__(self, patched: pytest.MonkeyPatch, fails: int, code: int) -> None:
        self.calls = 0
        self.fails = fails
        self.code = code
        for name in ("fsync", "replace", "mkdir"):
            patched.setattr(os, name, partial(self.call, getattr(os, name)))

    def call(self, original: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        self.calls += 1
        if self.calls == self.fails:
            raise OSError(self.code, os.strerror(self.code))
        return original(*arguments, **more)

    def error_of(self, write: Callable[[], object]) -> str:
        try:
            write()
        except StoreError as error:
            return str(error)
        return ""


# --- Real sets -----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.skipif(JPEGTRAN is None, reason="needs jpegtran (libjpeg-turbo-progs)")
@pytest.mark.parametrize(
    ("where", "images"), [("dali_extra", 45), ("signdigits/signdigits_600.tar", 600)]
)
def test_real_sets_are_smaller_than_their_stripped_jpegs(
    tmp_path: Path, shared_data: Path, where: str, images: int
) -> None:
    source = open_source(shared_data / "jpeg" / where)
    written = write(source, tmp_path, quality_images=32)
    assert (written.images, written.opaque, written.rejected) == (images, 0, 0)
    found = on_disk(tmp_path).images

    def jpegtran(data: bytes, *options: str) -> bytes:
        command = [str(JPEGTRAN), "-copy", "none", *options]
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout

    stripped = 0
    for example in source.read(0, images):
        assert found[example.id] == jpegtran(example.data, "-optimize", "-progressive")
        stripped += len(jpegtran(example.data))  # sequential, without metadata
    records = sum(path.stat().st_size for path in tmp_path.rglob("*.pcr"))
    assert records <= 0.95 * stripped
    scores = [group.msssim or 0 for group in written.groups]
    assert scores == sorted(scores)
    assert scores[-1] == 1
    again = write(source, tmp_path, quality_images=32)
    assert again.reused == written.records


def test_files_named_as_images_that_are_none_are_set_aside(tmp_path: Path) -> None:
    source = tmp_path / "photos"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.jpg").write_bytes(made.picture(number))
    (source / "empty.jpg").write_bytes(b"")
    (source / "text.png").write_text("no image")
    (source / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (source / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match=r"empty\.jpg \(empty\)"):
        write(source, tmp_path / "a", quality_images=0)
    written = write(source, tmp_path / "b", quality_images=0, max_rejected=0.5)
    assert (written.images, written.rejected, written.ignored) == (3, 3, 1)
    assert written.passed_over == ("notes.txt (no image)",)
    lines = (tmp_path / "b" / "rejected.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["empty.jpg", "gone.jpg", "text.png"]
