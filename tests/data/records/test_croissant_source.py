"""Croissant descriptions as sources: written by hand, over files whose bytes are known without them."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import made
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow
from refusals import refused
from source_files import check_consistent

from holdfast.data import croissant
from holdfast.data.records.export.exporting import extract
from holdfast.data.records.sources import Source, open_source
from holdfast.data.records.sources.croissant_images import Images
from holdfast.data.records.writing.writer import write
from holdfast.errors import InputError

CONTEXT = {
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "data": {"@id": "cr:data", "@type": "@json"},
} | {
    term: f"cr:{term}"
    for term in (
        *("recordSet", "field", "source", "extract", "transform", "references", "fileSet"),
        *("fileObject", "fileProperty", "column", "includes", "key", "regex", "jsonPath"),
    )
}
FOLDER = {"@type": "cr:FileSet", "@id": "photos", "includes": "photos/*.jpg"}
PATH = {"fileSet": {"@id": "photos"}, "extract": {"fileProperty": "fullpath"}}


def object_of(name: str, kind: str) -> dict[str, Any]:
    return {"@type": "cr:FileObject", "@id": name, "contentUrl": name, "encodingFormat": kind}


def field_of(records: str, name: str, kind: Any, **source: Any) -> dict[str, Any]:
    references = source.pop("references", None)
    made_ = {"@type": "cr:Field", "@id": f"{records}/{name}", "dataType": kind, "source": source}
    return made_ | ({"references": references} if references else {})


def column(
    records: str, file: str, name: str, kind: Any = "sc:Text", **more: Any
) -> dict[str, Any]:
    extract_ = {"extract": {"column": name}}
    return field_of(records, name, kind, fileObject={"@id": file}, **extract_, **more)


def content(records: str, files: str = "photos", name: str = "image") -> dict[str, Any]:
    where = {"fileSet": {"@id": files}, "extract": {"fileProperty": "content"}}
    return field_of(records, name, "sc:ImageObject", **where)


def records_of(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "field": list(fields), **more}


def put_description(
    folder: Path, distribution: list[Any], record_sets: list[Any], name: str = "croissant.json"
) -> Path:
    """Write a description into a folder."""
    folder.mkdir(exist_ok=True)
    text = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "photos",
        "distribution": distribution,
        "recordSet": record_sets,
    }
    (folder / name).write_text(json.dumps(text))
    return folder


def put_photos(folder: Path, count: int, size: int = 24) -> dict[str, bytes]:
    """Write JPEGs into a folder: name -> bytes."""
    photos = {f"{number:03d}.jpg": made.picture(number, size, size) for number in range(count)}
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    for name, data in photos.items():
        (folder / "photos" / name).write_bytes(data)
    return photos


def labelled(folder: Path, count: int = 5) -> dict[str, bytes]:
    """A folder of JPEGs, and a CSV that says in another order what they are."""
    photos = put_photos(folder, count)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "animal", "weight", "day"])
        for number, name in reversed(list(enumerate(photos))):
            weight = "" if number == 1 else f"{number}.5"
            writer.writerow([f"photos/{name}", ("cat", "emu")[number % 2], weight, "2024-02-29"])
    put_description(
        folder,
        [object_of("labels.csv", "text/csv"), FOLDER],
        [
            records_of("files", field_of("files", "path", "sc:Text", **PATH)),
            records_of(
                "animals",
                column(
                    "animals", "labels.csv", "file", references={"field": {"@id": "files/path"}}
                ),
                column("animals", "labels.csv", "animal", ["sc:Text", "cr:Label"]),
                column("animals", "labels.csv", "weight", "cr:Float32"),
                column("animals", "labels.csv", "day", "sc:Date"),
                content("animals"),
            ),
        ],
    )
    return photos


def rows(source: Source) -> Iterator[tuple[object, ...]]:
    for one in source.read(0, len(source)):
        yield (one.id, one.data, *one.columns.values())


def test_a_folder_of_jpegs_and_a_csv_of_labels(tmp_path: Path) -> None:
    photos = labelled(tmp_path)
    source = open_source(tmp_path)
    check_consistent(source)
    with (tmp_path / "labels.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {name: str(source.schema.field(name).type) for name in source.schema.names} == {
        "label": "int32",
        "day": "date32[day]",
        "weight": "float",
    }
    assert json.loads(source.schema.field("label").metadata[b"names"]) == ["cat", "emu"]
    assert source.ignored == []
    for row, one in zip(table, source.read(0, 5), strict=True):
        assert one.id == row["file"]  # which is no column, for it says nothing else
        assert one.data == photos[Path(row["file"]).name]
        assert one.columns["label"] == ["cat", "emu"].index(row["animal"])
        assert one.columns["weight"] == (float(row["weight"]) if row["weight"] else None)
        assert str(one.columns["day"]) == row["day"]


def test_several_threads_read_at_once(tmp_path: Path) -> None:
    photos = list(labelled(tmp_path, 60).values())
    source = open_source(tmp_path)

    def read(start: int) -> list[bytes]:
        return [one.data for one in source.read(start, start + 5)]

    starts = [start for start in range(0, 56, 5) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        for start, found in zip(starts, pool.map(read, starts), strict=True):
            assert found == photos[::-1][start : start + 5]


@pytest.mark.parametrize("name", ["id", "animals/file", "file"])
def test_fields_are_named_by_id_or_short_name(tmp_path: Path, name: str) -> None:
    labelled(tmp_path)
    given: dict[str, Any] = {"id": name} if name != "id" else {"drop": ["animals/file"]}
    source = open_source(tmp_path, label="animals/day", image="animals/image", **given)
    assert source.schema.names == ["label", "animal", "weight"]
    assert next(id_ for id_, _ in source.ids_and_sizes()) == "photos/004.jpg"


def test_a_set_of_files_without_any_table(tmp_path: Path) -> None:
    photos = put_photos(tmp_path, 3)
    put_description(tmp_path, [FOLDER], [records_of("r", content("r"))], "metadata.json")
    for where in (tmp_path, tmp_path / "metadata.json"):
        source = open_source(where)
        check_consistent(source)
        assert source.schema.names == []
        assert list(rows(source)) == [(f"photos/{name}", data) for name, data in photos.items()]


def zipped(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def in_zips(folder: Path, *names: str) -> None:
    """A description of images in zip archives, whose folders name the kind of thing."""
    kind = {
        "fileSet": {"@id": "inside"},
        "extract": {"fileProperty": "fullpath"},
        "transform": {"regex": "^([a-z]+)/"},
    }
    file = {"fileSet": {"@id": "inside"}, "extract": {"fileProperty": "filename"}}
    inside = {
        "@type": "cr:FileSet",
        "@id": "inside",
        "includes": "*/*.*",
        "containedIn": [{"@id": name} for name in names],
    }
    put_description(
        folder,
        [*(object_of(name, "application/zip") for name in names), inside],
        [
            records_of(
                "r",
                content("r", "inside"),
                field_of("r", "kind", ["sc:Text", "cr:Label"], **kind),
                field_of("r", "file", "sc:Text", **file),
            )
        ],
    )


def test_images_in_an_archive(tmp_path: Path) -> None:
    files = {
        "cat/1.jpg": made.picture(1),
        "cat/2.jpg": made.picture(2),
        "cat/notes.txt": b"about cats",
        "emu/1.jpg": made.picture(3),
        "emu/2.jpg": b"<html>not found</html>",
        "emu/3.jpg": b"",
    }
    zipped(tmp_path / "all.zip", files)
    in_zips(tmp_path, "all.zip")
    source = open_source(tmp_path)
    check_consistent(source)
    names = ["cat", "emu"]
    assert json.loads(source.schema.field("label").metadata[b"names"]) == names
    assert list(rows(source)) == [
        (name, files[name], names.index(name[:3]))
        for name in ("cat/1.jpg", "cat/2.jpg", "emu/1.jpg")
    ]
    assert source.ignored == [
        ("cat/notes.txt", "not an image by its first bytes"),
        ("emu/2.jpg", "named as an image, but its first bytes are of none"),
        ("emu/3.jpg", "empty"),
    ]
    written = write(source, tmp_path / "out", max_rejected=1)
    assert (written.images, written.rejected, written.ignored) == (3, 2, 1)
    rejected = (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in rejected] == ["emu/2.jpg", "emu/3.jpg"]


def test_archives_that_use_the_same_names(tmp_path: Path) -> None:
    for number, part in enumerate(("train", "test")):
        zipped(tmp_path / f"{part}.zip", {"a/1.jpg": made.picture(number)})
    in_zips(tmp_path, "train.zip", "test.zip")
    assert [row[:2] for row in rows(open_source(tmp_path))] == [
        ("train/a/1.jpg", made.picture(0)),
        ("test/a/1.jpg", made.picture(1)),
    ]


def test_one_damaged_member_is_set_aside_alone(tmp_path: Path) -> None:
    files = {f"cat/{number}.jpg": made.picture(number) for number in range(6)}
    zipped(tmp_path / "all.zip", files, zipfile.ZIP_STORED)
    data = (tmp_path / "all.zip").read_bytes()
    at = data.index(files["cat/2.jpg"]) + 300
    (tmp_path / "all.zip").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    in_zips(tmp_path, "all.zip")
    source = open_source(tmp_path)
    check_consistent(source)
    assert [row[:2] for row in rows(source)] == [
        (name, data) for name, data in files.items() if name != "cat/2.jpg"
    ]
    [(name, reason)] = source.ignored
    assert name == "cat/2.jpg"
    assert "CRC-32" in reason


@pytest.mark.parametrize("as_struct", [False, True])
def test_images_in_a_column_of_parquet(tmp_path: Path, as_struct: bool) -> None:
    images = [made.picture(number) for number in range(40)]
    stored = [{"bytes": data, "path": None} for data in images] if as_struct else images
    table = pa.table(
        {
            "image": pa.array(
                [*stored, None],
                pa.struct({"bytes": pa.binary(), "path": pa.string()})
                if as_struct
                else pa.binary(),
            ),
            "label": pa.array([number % 3 for number in range(41)], pa.int64()),
            "number": pa.array(range(100, 141), pa.uint16()),
            "box": [[0.5, 1.5]] * 41,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=8)
    image = column("r", "t.parquet", "image", "sc:ImageObject")
    if as_struct:
        image["source"]["transform"] = {"jsonPath": "bytes"}
    box = column("r", "t.parquet", "box", "cr:Float64") | {
        "cr:isArray": True,
        "cr:arrayShape": "2",
    }
    label = column("r", "t.parquet", "label", "sc:Integer")
    number = column("r", "t.parquet", "number", "cr:UInt16")
    records = records_of("r", image, label, number, box, key={"@id": "r/number"})
    put_description(tmp_path, [object_of("t.parquet", "application/x-parquet")], [records])
    source = open_source(tmp_path)
    check_consistent(source)
    assert list(rows(source)) == [
        (str(100 + at), data, at % 3, [0.5, 1.5]) for at, data in enumerate(images)
    ]
    assert source.ignored == [("140", "the record has no image")]


@pytest.mark.parametrize(
    ("labels", "numbers", "named"),
    [
        ([0, 1, None, 1], [1, 0], True),
        ([0, 1, -1, 1], [0, 1], False),  # -1: no class; of names it would be the last
        ([0, 1, 2, 1], [0, 1], False),
        ([1, 2, 1, 2], [1, 2], False),
    ],
)
def test_numbers_of_classes_that_the_description_names(
    tmp_path: Path, labels: list[int | None], numbers: list[int], named: bool
) -> None:
    images = [made.picture(number) for number in range(len(labels))]
    table = pa.table({"image": images, "y": pa.array(labels, pa.int64())})
    pq.write_table(table, tmp_path / "t.parquet")
    image = column("r", "t.parquet", "image", "sc:ImageObject")
    reference = {"field": {"@id": "classes/id"}}
    label = column("r", "t.parquet", "y", ["cr:Int64", "cr:Label"], references=reference)
    classes = records_of(
        "classes",
        {"@type": "cr:Field", "@id": "classes/id", "dataType": "sc:Integer"},
        {"@type": "cr:Field", "@id": "classes/name", "dataType": "sc:Text"},
        key={"@id": "classes/id"},
        data=[{"classes/id": number, "classes/name": f"kind {number}"} for number in numbers],
    )
    file = object_of("t.parquet", "application/x-parquet")
    put_description(tmp_path, [file], [classes, records_of("r", image, label)])
    source = open_source(tmp_path)
    check_consistent(source)
    assert [row[-1] for row in rows(source)] == labels
    metadata = source.schema.field("label").metadata or {}
    assert json.loads(metadata.get(b"names", b"[]")) == (["kind 0", "kind 1"] if named else [])


def test_without_a_key_records_are_numbered(tmp_path: Path) -> None:
    images = [made.picture(0), b"?", made.picture(2)]
    pq.write_table(pa.table({"image": images}), tmp_path / "t.parquet")
    records = records_of("r", column("r", "t.parquet", "image", "sc:ImageObject"))
    put_description(tmp_path, [object_of("t.parquet", "application/x-parquet")], [records])
    source = open_source(tmp_path)
    assert list(rows(source)) == [("r/000000", images[0]), ("r/000002", images[2])]
    assert source.ignored == [("r/000001", "not an image by its first bytes")]


def test_a_row_whose_file_is_missing_is_set_aside(tmp_path: Path) -> None:
    labelled(tmp_path)
    (tmp_path / "photos" / "003.jpg").unlink()
    source = open_source(tmp_path)
    assert len(source) == 4
    assert source.ignored == [("photos/003.jpg", "the record has no image")]
    with refused("too-many-rejects"):
        write(source, tmp_path / "out", max_rejected=0)


def test_a_file_that_is_not_the_one_described_is_set_aside(tmp_path: Path) -> None:
    photos = put_photos(tmp_path, 3)
    named = object_of("photos/001.jpg", "image/jpeg") | {"sha256": "0" * 64}
    put_description(tmp_path, [named, FOLDER], [records_of("r", content("r"))])
    source = open_source(tmp_path)
    assert [row[1] for row in rows(source)] == [photos["000.jpg"], photos["002.jpg"]]
    [(name, reason)] = source.ignored
    assert name == "photos/001.jpg"
    assert "sha256" in reason


def test_what_a_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    put_photos(folder, 2)
    for name, text in {
        "metadata.json": {"@context": "https://schema.org/", "@type": "Person"},
        "croissant.json": {"images": []},
    }.items():
        (folder / name).write_text(json.dumps(text))
    assert open_source(folder).ignored == [
        ("croissant.json", "no image"),
        ("metadata.json", "no image"),
    ]
    (folder / "croissant.json").unlink()
    described = labelled(tmp_path / "both")
    (tmp_path / "both" / "metadata.json").write_text("{}")  # the other file is the description
    assert len(open_source(tmp_path / "both")) == len(described)
    assert open_source(tmp_path / "both").schema.names == ["label", "day", "weight"]
    assert open_source(tmp_path / "both", format="folder").schema.names == ["label"]


def without_image(folder: Path) -> dict[str, Any]:
    put_photos(folder, 1)
    put_description(
        folder, [FOLDER], [records_of("files", field_of("files", "path", "sc:Text", **PATH))]
    )
    return {}


def with_two_record_sets(folder: Path) -> dict[str, Any]:
    put_photos(folder, 1)
    put_description(folder, [FOLDER], [records_of(name, content(name)) for name in ("one", "two")])
    return {}


def with_two_images(folder: Path) -> dict[str, Any]:
    put_photos(folder, 1)
    fields = content("r"), content("r", name="mask")
    put_description(folder, [FOLDER], [records_of("r", *fields)])
    return {}


def asked(**options: Any) -> Callable[[Path], dict[str, Any]]:
    def make(folder: Path) -> dict[str, Any]:
        labelled(folder)
        return options

    return make


def with_one_id_for_all(folder: Path) -> dict[str, Any]:
    put_photos(folder, 2)
    numbered = field_of("r", "id", "sc:Text", **PATH | {"transform": {"regex": "(photos)"}})
    put_description(folder, [FOLDER], [records_of("r", content("r"), numbered)])
    return {}


def with_lists_of_images(folder: Path) -> dict[str, Any]:
    put_photos(folder, 1)
    listed = content("r") | {"cr:isArray": True}
    put_description(folder, [FOLDER], [records_of("r", listed)])
    return {"record_set": "r"}


def without_its_table(folder: Path) -> dict[str, Any]:
    labelled(folder)
    (folder / "labels.csv").unlink()
    return {}


def without_files(folder: Path) -> dict[str, Any]:
    labelled(folder)
    shutil.rmtree(folder / "photos")
    return {}


def of_texts(folder: Path) -> dict[str, Any]:
    put_photos(folder, 2)
    for path in (folder / "photos").iterdir():
        path.write_text("no image")
    put_description(folder, [FOLDER], [records_of("r", content("r"))])
    return {}


def with_a_changed_archive(folder: Path) -> dict[str, Any]:
    zipped(folder / "all.zip", {"cat/1.jpg": made.picture(1), "cat/2.jpg": made.picture(2)})
    in_zips(folder, "all.zip")
    text = json.loads((folder / "croissant.json").read_text())
    text["distribution"][0]["sha256"] = "0" * 64
    (folder / "croissant.json").write_text(json.dumps(text))
    return {}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            without_image,
            ("no record set of this description has an image", "files: path (sc:Text)"),
        ),
        (with_two_record_sets, ("several record sets", "one, two", "--record-set")),
        (with_two_images, ("several images", "mask (sc:ImageObject)", "--image")),
        (asked(record_set="birds"), ("birds", "birds", "files, animals")),
        (asked(record_set="files"), ("the records have no image", "files: path")),
        (asked(image="picture"), ("no record set has a field 'picture'", "animals: file")),
        (asked(image="animal"), ("image bytes", "string", "--image")),
        (asked(id="number"), ("does not have this field", "number", "file, animal")),
        (asked(label="number"), ("no image has the column 'number'", "day")),
        (asked(format="folder", record_set="animals"), ("only a Croissant description",)),
        (with_one_id_for_all, ("the same id", "'photos'", "--drop id")),
        (with_lists_of_images, ("have no image", "image (list of sc:ImageObject)")),
        (without_its_table, ("labels.csv",)),
        (without_files, ("photos",)),
        (of_texts, ("no images found", "photos/000.jpg", "images in the record set r")),
        (with_a_changed_archive, ("all.zip", "sha256")),
    ],
)
def test_errors_say_what_is_there(
    tmp_path: Path, make: Callable[[Path], dict[str, Any]], said: tuple[str, ...]
) -> None:
    options = make(tmp_path)
    with pytest.raises(InputError) as caught:
        open_source(tmp_path, **options)
    for text in said:
        assert text in str(caught.value)


def test_another_label_than_was_listed_is_refused(tmp_path: Path) -> None:
    labelled(tmp_path)
    source = open_source(tmp_path)
    table = tmp_path / "labels.csv"
    table.write_text(table.read_text().replace("emu", "owl"))
    with refused("source-changed"):
        list(source.read(0, 5))


class Stops(Exception):
    """What ends a writing half-way."""


def test_a_writing_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(tmp_path / "in", 20)
    whole = tmp_path / "whole"
    write(tmp_path / "in", whole, record_size=4, quality_images=4, threads=1)
    source = open_source(tmp_path / "in")
    contents = Images.contents

    def stopping(self: Images, images: Any) -> Iterator[Any]:
        for image, data in zip(images, contents(self, images), strict=True):
            if image.filename == "005.jpg":
                raise Stops
            yield data

    with monkeypatch.context() as patch:
        patch.setattr(Images, "contents", stopping)
        with pytest.raises(Stops):
            write(source, tmp_path / "out", record_size=4, quality_images=4, threads=1)
    again = write(tmp_path / "in", tmp_path / "out", record_size=4, quality_images=4, threads=1)
    assert 0 < again.reused < again.records == 5
    assert files_of(tmp_path / "out") == files_of(whole)
    assert write(tmp_path / "in", whole, record_size=4, quality_images=4).reused == 5
    (tmp_path / "in" / "photos" / "000.jpg").write_bytes(made.picture(0, 25, 24))
    assert write(tmp_path / "in", whole, record_size=4, quality_images=4).reused < 5
    table = tmp_path / "in" / "labels.csv"
    table.write_text(table.read_text().replace("19.5", "20.5"))  # ids and sizes are what they were
    write(tmp_path / "in", whole, record_size=4, quality_images=4)
    kept = [row["columns"]["weight"] for row in samples_of(whole)]
    assert kept[:2] == [20.5, 18.5]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".pcr", ".parquet", ".jsonl")
    }


def samples_of(folder: Path) -> list[dict[str, Any]]:
    from holdfast.data.records.export.samples import samples

    return samples(folder, count=None).to_dict()


def test_memory_does_not_grow_with_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = made.picture(0, 64, 64)
    count = 3000
    images = [photo + bytes([at % 256]) * 4000 for at in range(count)]
    table = pa.table({"image": images, "label": [at % 7 for at in range(count)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    total = sum(map(len, images))
    fields = [column("r", "t.parquet", "image", "sc:ImageObject")]
    fields.append(column("r", "t.parquet", "label", "cr:Int8"))
    put_description(
        tmp_path,
        [object_of("t.parquet", "application/x-parquet")],
        [records_of("r", *fields)],
    )
    passed = [0]
    one_by_one = Images.rows

    def counted(self: Images, at_once: int) -> Iterator[Any]:
        for image in one_by_one(self, at_once):
            passed[0] += 1
            yield image

    monkeypatch.setattr(Images, "rows", counted)
    del table
    tracemalloc.start()
    try:
        source = open_source(tmp_path)
        for start in range(0, count, 64):
            stop = min(start + 64, count)
            for at, one in zip(range(start, stop), source.read(start, stop), strict=True):
                assert one.data == images[at]
                assert one.columns["label"] == at % 7
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < total / 5
    assert passed[0] == 2 * count  # once to list them, once to read them, whatever the ranges


@pytest.mark.parametrize("with_ids", [False, True])
def test_out_of_records_and_in_again_by_a_description(tmp_path: Path, with_ids: bool) -> None:
    photos = Path(__file__).parents[3] / "examples" / "signs" / "photos"
    folder = tmp_path / "in"
    shutil.copytree(photos, folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg"))
    lines = [
        {"file_name": name, "seen": number, "note": f"no. {number}", "weight": number / 4}
        | ({"id": f"sign {number}"} if with_ids else {})
        for number, name in enumerate(names)
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write(folder, tmp_path / "first", record_size=16, quality_images=0)
    extract(tmp_path / "first", tmp_path / "files")
    croissant.describe(tmp_path / "files").write()
    source = open_source(tmp_path / "files", record_set="metadata")
    write(source, tmp_path / "second", record_size=16, quality_images=0)
    first, second = samples_of(tmp_path / "first"), samples_of(tmp_path / "second")
    told = ("id", "class", "columns", "width", "height")
    assert [[row[key] for key in told] for row in second] == [
        [row[key] for key in told] for row in first
    ]
    assert [row["columns"] for row in second] == [
        {"label": int(line["file_name"][0])}
        | {key: line[key] for key in ("note", "seen", "weight")}
        for line in lines
    ]
    extract(tmp_path / "second", tmp_path / "again")
    table = "metadata.jsonl"
    assert (tmp_path / "again" / table).read_text() == (tmp_path / "files" / table).read_text()
    for number, name in enumerate(names):
        out = f"sign {number}.jpg" if with_ids else name
        data = (tmp_path / "files" / out).read_bytes()
        assert (tmp_path / "again" / out).read_bytes() == data
        assert pixels(data) == pixels((folder / name).read_bytes())


def pixels(data: bytes) -> bytes:
    with Pillow.open(io.BytesIO(data)) as image:
        return image.convert("RGB").tobytes()
