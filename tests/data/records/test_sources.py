"""Sources against what the formats' own writers were given, and against folders and tables made by hand."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import source_files as made
from source_files import check_consistent

from holdfast.data.records.sources import Source, open_source
from holdfast.data.records.sources.joining import read_table
from holdfast.errors import InputError

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def truth() -> list[dict[str, Any]]:
    rows = json.loads((GOLDEN / "truth.json").read_text())
    return [row | {"image": base64.b64decode(row["image"])} for row in rows]


def test_webdataset_is_read_as_its_writer_was_given_it(truth: list[dict[str, Any]]) -> None:
    for where in (
        GOLDEN / "webdataset",
        GOLDEN / "webdataset" / "shard-{000..001}.tar",
        GOLDEN / "webdataset" / "shard-*.tar",
    ):
        source = open_source(where)
        check_consistent(source)
        assert source.schema == pa.schema(
            {"label": pa.int32(), "box": pa.string(), "text": pa.string(), "weight": pa.float64()}
        )
        assert source.schema.field("box").metadata == {b"encoding": b"json"}
        assert source.ignored == []
        for row, one in zip(truth, source.read(0, 5), strict=True):
            assert (one.id, one.data) == (row["key"], row["image"])
            assert json.loads(str(one.columns["box"])) == row["box"]
            assert (one.columns["label"], one.columns["text"]) == (row["label"], row["caption"])
            assert one.columns["weight"] == row["weight"]


def test_a_folder_gives_classes_and_reports_what_is_no_image(tmp_path: Path) -> None:
    root = made.files(
        tmp_path / "root",
        {
            "zebra/2.jpg": made.JPEG,
            "zebra/sub/1.PNG": made.PNG,
            "Ärger/1.jpeg": made.JPEG + b"!",
            "ant/no_suffix": made.JPEG,
            "top.jpg": made.JPEG,
            "SOURCE.txt": b"where these are from",
            "ant/fake.jpg": b"<html>",
            "ant/empty.jpg": b"",
            ".hidden/1.jpg": made.JPEG,
            "ant/._1.jpg": made.JPEG,
        },
    )
    os.mkfifo(root / "pipe")
    source = open_source(root)
    check_consistent(source)
    assert [id_ for id_, _ in source.ids_and_sizes()] == [
        "ant/no_suffix",
        "top.jpg",
        "zebra/2.jpg",
        "zebra/sub/1.PNG",
        "Ärger/1.jpeg",
    ]
    assert json.loads(source.schema.field("label").metadata[b"names"]) == ["ant", "zebra", "Ärger"]
    assert [one.columns["label"] for one in source.read(0, 5)] == [0, None, 1, 1, 2]
    assert source.ignored == [
        (".hidden", "hidden"),
        ("SOURCE.txt", "no image"),
        ("ant/._1.jpg", "hidden"),
        ("ant/empty.jpg", "empty"),
        ("ant/fake.jpg", "named as an image, but its first bytes are of none"),
        ("pipe", "no regular file"),
    ]


def test_links_are_followed_but_nothing_is_taken_twice(tmp_path: Path) -> None:
    outside = made.files(tmp_path / "outside", {"far.jpg": made.JPEG, "deep/a.jpg": made.JPEG})
    root = made.files(
        tmp_path / "root", {"a/1.jpg": made.JPEG, ".annex/x7": made.JPEG, "b/2.jpg": made.JPEG}
    )
    links = {
        "a/again.jpg": root / "a/1.jpg",
        "a/loop": root,
        "b/up": tmp_path,
        "c": root / "b",
        "d": outside,
        "e": outside / "deep",
        "annexed.jpg": root / ".annex/x7",
        "gone.jpg": tmp_path / "nowhere",
        "self.jpg": root / "self.jpg",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (outside / "back").symlink_to(root)
    source = open_source(root)
    assert [id_ for id_, _ in source.ids_and_sizes()] == [
        "a/1.jpg",
        "annexed.jpg",
        "b/2.jpg",
        "d/deep/a.jpg",
        "d/far.jpg",
    ]
    read, nowhere = "a link to what is read already", "a link that leads nowhere"
    assert source.ignored == [
        (".annex", "hidden"),
        ("a/again.jpg", read),
        ("a/loop", read),
        ("b/up", "a link to a folder around this one"),
        ("c", read),
        ("d/back", read),
        ("e", "a folder that is read already"),
        ("gone.jpg", nowhere),
        ("self.jpg", nowhere),
    ]


def classes(source: Source) -> dict[str, str | None]:
    """The class of each image."""
    names = [*json.loads(source.schema.field("label").metadata[b"names"])]
    return {
        one.id: None if one.columns["label"] is None else names[one.columns["label"]]
        for one in source.read(0, len(source))
    }


SPLITS = {
    "folders of splits": (
        ("train/cat/1.jpg", "train/dog/b/2.jpg", "test/cat/3.jpg", "4.jpg"),
        ("cat", "dog", "cat", None),
    ),
    "one split": (("Training/cat/1.jpg", "Training/dog/2.jpg"), ("cat", "dog")),
    "a split without classes": (("val/1.jpg", "train/cat/2.jpg"), (None, "cat")),
    "a class called as a split": (("car/1.jpg", "train/2.jpg"), ("car", "train")),
    "classes above the splits": (("cat/train/1.jpg", "dog/test/2.jpg"), ("cat", "dog")),
}


@pytest.mark.parametrize("case", SPLITS)
def test_folders_named_for_splits_are_no_classes(tmp_path: Path, case: str) -> None:
    names, expected = SPLITS[case]
    made.files(tmp_path / "in", dict.fromkeys(names, made.JPEG))
    assert classes(open_source(tmp_path / "in")) == dict(zip(names, expected, strict=True))


def test_folders_of_splits_have_no_label_without_classes(tmp_path: Path) -> None:
    made.files(tmp_path, dict.fromkeys(("train/1.jpg", "test/2.jpg"), made.JPEG))
    assert open_source(tmp_path).schema.names == []


TABLES_BELOW = {
    "one": ({"a": "file_name,n\n1.jpg,5\n"}, [5, None, None]),
    "several, of two types": (
        {"a": "file_name,n\n1.jpg,5\n", "b": "file_name,n\n1.jpg,6.5\nc/2.jpg,7\n"},
        [5, 6.5, 7],
    ),
    "beside one that is about something else": (
        {"a": "x,n\n1.jpg,5\n", "b": "file_name,n\n1.jpg,6\n", ".b": "file_name,n\nno.jpg,6\n"},
        [None, 6, None],
    ),
    "below one that counts": (
        {".": "file_name,n\na/1.jpg,1\n", "a": "file_name,n\n1.jpg,5\n"},
        [1, None, None],
    ),
}


@pytest.mark.parametrize("case", TABLES_BELOW)
def test_tables_in_the_folders_of_the_images_are_joined(tmp_path: Path, case: str) -> None:
    tables, expected = TABLES_BELOW[case]
    made.files(tmp_path, dict.fromkeys(("a/1.jpg", "b/1.jpg", "b/c/2.jpg"), made.JPEG))
    for folder, text in tables.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "metadata.csv").write_text(text)
    source = open_source(tmp_path)
    assert [one.columns["n"] for one in source.read(0, 3)] == expected


def test_names_that_are_not_utf8_are_reported(tmp_path: Path) -> None:
    made.files(tmp_path, {"a.jpg": made.JPEG})
    (tmp_path / os.fsdecode(b"b\xff.jpg")).write_bytes(made.JPEG)
    source = open_source(tmp_path)
    assert len(source) == 1
    assert source.ignored == [("'b\\udcff.jpg'", "its name is not UTF-8")]


CSV = "file_name,label,score,day\na.jpg,cat,1.5,2024-02-29\nb.jpg,dog,,2024-03-01\nz.jpg,emu,2,\n"
JSON_LINES = (
    '{"file_name": "a.jpg", "label": "cat", "score": 1, "extra": {"x": [1]}}\n\n'
    '{"file_name": "b.jpg", "label": "dog", "score": 2.5, "id": "bee"}\n'
)


def folder_of_three(tmp_path: Path) -> Path:
    return made.files(tmp_path / "in", {f"{name}.jpg": made.JPEG for name in "abc"})


def rows(source: Source) -> Iterator[tuple[object, ...]]:
    for one in source.read(0, len(source)):
        yield (one.id, *one.columns.values())


def test_a_csv_is_joined(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(CSV)
    source = open_source(folder_of_three(tmp_path), columns=table)
    check_consistent(source)
    assert list(rows(source)) == [
        ("a.jpg", 0, datetime.date(2024, 2, 29), 1.5),
        ("b.jpg", 1, datetime.date(2024, 3, 1), None),
        ("c.jpg", None, None, None),
    ]
    assert json.loads(source.schema.field("label").metadata[b"names"]) == ["cat", "dog", "emu"]
    assert source.ignored == [
        ("table.csv", "1 row belongs to no image, such as 'z.jpg'"),
        ("table.csv", "no row for 1 image: null there"),
    ]


def test_metadata_beside_the_images_is_joined_without_being_named(tmp_path: Path) -> None:
    folder = folder_of_three(tmp_path)
    (folder / "metadata.jsonl").write_text(JSON_LINES)
    source = open_source(folder)
    check_consistent(source)
    assert source.schema.names == ["label", "extra", "score"]
    assert list(rows(source)) == [
        ("a.jpg", 0, '{"x":[1]}', 1.0),
        ("bee", 1, None, 2.5),
        ("c.jpg", None, None, None),
    ]


def test_a_parquet_table_replaces_the_label_of_the_folders(tmp_path: Path) -> None:
    folder = made.files(tmp_path / "in", {"x/1.jpg": made.JPEG, "y/2.jpg": made.JPEG})
    pq.write_table(pa.table({"id": ["x/1.jpg", "y/2.jpg"], "cls": [7, 9]}), tmp_path / "t.parquet")
    source = open_source(folder, columns=tmp_path / "t.parquet", label="cls")
    assert list(rows(source)) == [("x/1.jpg", 7), ("y/2.jpg", 9)]
    both = open_source(folder, columns=tmp_path / "t.parquet")
    assert list(rows(both)) == [("x/1.jpg", 0, 7), ("y/2.jpg", 1, 9)]


def test_a_parquet_table_keeps_its_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "file_name": ["b.jpg", "a.jpg"],
            "box": pa.array([[1.5], None], pa.list_(pa.float32())),
            "part": pa.array([{"x": 1}, {"x": 2}]),
            "when": pa.array([None, 7], pa.timestamp("us", tz="UTC")),
            "label": pa.array(["two", "one"]).dictionary_encode(),
            "price": pa.array([decimal.Decimal("1.50"), None]),
            "none": pa.nulls(2),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    source = open_source(folder_of_three(tmp_path), columns=tmp_path / "t.parquet")
    check_consistent(source)
    types = {field.name: field.type for field in source.schema}
    assert types == {name: table.schema.field(name).type for name in types} | {
        "label": pa.int32(),
        "none": pa.string(),
    }
    when = datetime.datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=datetime.UTC)
    assert list(rows(source)) == [
        ("a.jpg", 0, None, None, {"x": 2}, None, when),
        ("b.jpg", 1, [1.5], None, {"x": 1}, decimal.Decimal("1.50"), None),
        ("c.jpg", None, None, None, None, None, None),
    ]


def test_names_in_a_csv_stay_text(tmp_path: Path) -> None:
    tar = made.tar(tmp_path / "s.tar", [("007.jpg", made.JPEG), ("008.jpg", made.JPEG)])
    (tmp_path / "t.csv").write_text("id,n\n007,1\n008,2\n")
    assert list(rows(open_source(tar, columns=tmp_path / "t.csv"))) == [("007", 1), ("008", 2)]


def test_types_are_agreed_over_the_whole_source(tmp_path: Path) -> None:
    values = [
        {"n": 1, "t": None, "j": [1], "only": True},
        {"n": 2.5, "t": "x", "j": None},
        {"n": None, "j": {"a": 1}},
    ]
    members = []
    for number, value in enumerate(values):
        members += [(f"{number}.jpg", made.JPEG), (f"{number}.json", json.dumps(value).encode())]
    source = open_source(made.tar(tmp_path / "s.tar", members))
    check_consistent(source)
    assert list(rows(source)) == [
        ("0", "[1]", 1.0, True, None),
        ("1", None, 2.5, None, "x"),
        ("2", '{"a":1}', None, None, None),
    ]


def test_what_of_a_tar_is_left_out_is_reported(tmp_path: Path) -> None:
    path = made.tar(
        tmp_path / "s.tar",
        [
            ("./a/000.jpg", made.JPEG),
            ("./a/000.npy", b"array"),
            ("./a/000.seg.png", made.PNG),
            ("./a/001.cls", b"7"),
            ("./a/002.jpg", b"<html>"),
            ("./a/no_suffix", b"?"),
            ("__meta__/x.json", b"{}"),
        ],
    )
    with tarfile.open(path, "a") as more:
        link = tarfile.TarInfo("a/003.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "000.jpg"
        more.addfile(link)
    source = open_source(path, image="jpg")
    assert [id_ for id_, _ in source.ids_and_sizes()] == ["a/000"]
    assert sorted(source.ignored) == [
        ("*.npy", "not read (1 file)"),
        ("*.seg.png", "image=jpg was chosen (1 file)"),
        ("s.tar: 'a/003.jpg'", "no plain file"),
        ("s.tar: __meta__/x.json", "no name of a sample's file"),
        ("s.tar: a/001", "a sample without an image"),
        ("s.tar: a/002.jpg", "not an image by its first bytes"),
        ("s.tar: a/no_suffix", "no name of a sample's file"),
    ]


def test_the_second_image_of_a_sample_can_be_chosen(tmp_path: Path) -> None:
    tar = made.tar(tmp_path / "s.tar", [("0.JPG", made.JPEG), ("0.seg.png", made.PNG)])
    assert next(open_source(tar, image="seg.png").read(0, 1)).data == made.PNG


def test_shards_that_use_the_same_keys_are_told_apart(tmp_path: Path) -> None:
    for part in ("train/0", "train/1", "val/0"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        made.tar(tmp_path / f"{part}.tar", [("000.jpg", made.JPEG + part.encode())])
    source = open_source(f"{tmp_path}/{{train/0,train/1,val/0}}.tar")
    check_consistent(source)
    assert [id_ for id_, _ in source.ids_and_sizes()] == [
        "train/0/000",
        "train/1/000",
        "val/0/000",
    ]


def test_a_tar_of_class_folders_is_read_as_the_folder_is(tmp_path: Path) -> None:
    contents = {"cat/1.jpg": made.JPEG, "cat/2.jpg": made.JPEG + b"2", "ant/1.jpg": made.PNG}
    tar = open_source(made.tar(tmp_path / "s.tar", sorted(contents.items())))
    folder = open_source(made.files(tmp_path / "in", contents))
    assert tar.schema.equals(folder.schema, check_metadata=True)
    for one, other in zip(tar.read(0, 3), folder.read(0, 3), strict=True):
        assert (one.id + ".jpg", one.data, one.columns) == (other.id, other.data, other.columns)


def test_a_tar_of_splits_has_the_classes_in_them(tmp_path: Path) -> None:
    names = ("train/cat/1.jpg", "test/dog/2.jpg")
    made.tar(tmp_path / "t.tar", [(name, made.JPEG) for name in names])
    assert [*classes(open_source(tmp_path / "t.tar")).values()] == ["cat", "dog"]


def test_real_photos(shared_data: Path) -> None:
    photos = open_source(shared_data / "jpeg" / "dali_extra")
    assert len(photos) == 45
    assert photos.ignored == [("SOURCE.txt", "no image")]
    signs = open_source(shared_data / "jpeg" / "signdigits" / "signdigits_600.tar")
    check_consistent(signs)
    assert len(signs) == 600
    assert json.loads(signs.schema.field("label").metadata[b"names"]) == list("0123456789")


def test_a_folder_leaves_out_its_label_or_nothing(tmp_path: Path) -> None:
    made.files(tmp_path, {"ant/1.jpg": made.JPEG, "bee/2.jpg": made.JPEG})
    assert open_source(tmp_path, drop=["label"]).schema.names == []
    with pytest.raises(InputError, match=r"labell"):
        open_source(tmp_path, drop=["labell"])


def test_dicts_are_read_once_in_their_order(truth: list[dict[str, Any]]) -> None:
    rows = (
        {"id": row["key"], "image": row["image"], "label": np.int64(row["label"])}
        | {name: row[name] for name in ("caption", "weight", "box")}
        | {"corners": np.array([1, 2]), "blob": bytes([255])}
        for row in truth
    )
    source = open_source(rows)
    check_consistent(source)
    assert {field.name: field.type for field in source.schema} == {
        "label": pa.int32(),
        "blob": pa.binary(),
        "box": pa.string(),
        "caption": pa.string(),
        "corners": pa.string(),
        "weight": pa.float64(),
    }
    for row, one in zip(truth, source.read(0, 5), strict=True):
        assert (one.id, one.data) == (row["key"], row["image"])
        assert json.loads(str(one.columns["box"])) == row["box"]
        expected = {name: row[name] for name in ("label", "caption", "weight")}
        expected |= {"corners": "[1,2]", "blob": bytes([255])}
        assert {name: one.columns[name] for name in expected} == expected


def test_dicts_are_named_by_number_or_by_a_column_and_labelled_as_files_are() -> None:
    rows = [{"jpg": made.JPEG, "what": name, "key": f"k{name}"} for name in ("swan", "crane")]
    numbered = open_source(rows, image="jpg", label="what", drop=["key"])
    assert [id_ for id_, _ in numbered.ids_and_sizes()] == ["000000", "000001"]
    assert numbered.schema.field("label").metadata == {b"names": b'["crane", "swan"]'}
    assert [one.columns for one in numbered.read(0, 2)] == [{"label": 1}, {"label": 0}]
    named = open_source(rows, image="jpg", id="key")
    assert [id_ for id_, _ in named.ids_and_sizes()] == ["kswan", "kcrane"]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], "no-data"),
        ([{"label": 1}], "missing-key"),
        ([{"image": np.zeros((2, 2, 3), np.uint8)}], "missing-key"),
        ([{"image": made.JPEG, "id": "a"}] * 2, "duplicate"),
        ([{"image": made.JPEG, "n": 1}, {"image": made.JPEG, "n": "x"}], "conflict"),
        ([{"image": made.JPEG, "when": datetime.date(2026, 1, 1)}], "invalid-value"),
        ([{"image": made.JPEG, "deep": ["\ud800"]}], "invalid-value"),
    ],
)
def test_dicts_that_cannot_be_stored_are_refused(rows: list[dict[str, Any]], code: str) -> None:
    with pytest.raises(InputError) as caught:
        open_source(rows)
    assert caught.value.code == code


def test_numbers_that_do_not_give_back_their_text_stay_texts(tmp_path: Path) -> None:
    text = "file_name,zip,id,flag,n,x,long\n"
    text += "a.jpg,01231,12345678901234567891,NA,3,0.5,1234567890123456789\n"
    text += "b.jpg,10001,12345678901234567892,,-4,1e3,5\n"
    (tmp_path / "m.csv").write_text(text)
    first, second = read_table(tmp_path / "m.csv").rows
    assert first == {
        "file_name": "a.jpg", "zip": "01231", "id": "12345678901234567891", "flag": "NA",
        "n": 3, "x": 0.5, "long": 1234567890123456789,
    }  # fmt: skip
    assert (second["zip"], second["id"][-1], second["flag"]) == ("10001", "2", None)
    assert (second["n"], second["x"], second["long"]) == (-4, 1000.0, 5)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_tables_that_are_not_utf8_are_refused(tmp_path: Path, encoding: str, suffix: str) -> None:
    made.files(tmp_path, dict.fromkeys(("a.jpg", "b.jpg"), made.JPEG))
    rows = {
        "csv": "file_name,label\na.jpg,z\nb.jpg,été\n",
        "jsonl": '{"file_name": "a.jpg"}\n{"file_name": "b.jpg", "label": "été"}\n',
    }
    table = tmp_path / f"metadata.{suffix}"
    table.write_bytes(rows[suffix].encode(encoding))
    with pytest.raises(InputError) as caught:
        open_source(tmp_path)
    assert (caught.value.code, caught.value.path) == ("invalid-value", str(table))
    assert caught.value.place in ("line 1", "line 2", "line 3")
    table.write_text(rows[suffix], encoding="utf-8")
    source = open_source(tmp_path)
    assert [field.name for field in source.schema] == ["label"]
    assert "file_name" not in str(source.ignored)
    assert (table.name, "no image") not in source.ignored
