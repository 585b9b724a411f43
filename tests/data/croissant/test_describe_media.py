"""Images, sounds and texts in folders and archives: classes, splits, tables that list files."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from round_trips import described, fields, loaded, notes, record_sets, types, write_csv

from holdfast.data.croissant.describing.groups import (
    media_groups,
    table_candidates,
    table_group,
)
from holdfast.data.croissant.describing.places import Place
from holdfast.data.croissant.describing.splits import split_in
from holdfast.data.croissant.loading.dataset import Dataset

JPEG = b"\xff\xd8\xff\xe0"


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def images(*names: str) -> dict[str, bytes]:
    """Files of which no two are alike."""
    return {name: JPEG + name.encode() for name in names}


def packed(files: Mapping[str, bytes], ending: str) -> bytes:
    buffer = io.BytesIO()
    if ending == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz" if ending.endswith("gz") else "w") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


CLASSES = images(
    *("train/cat/1.jpg", "train/cat/2.jpg", "train/dog/3.jpg", "train/dog/4.jpg"),
    *("test/cat/5.jpg", "test/dog/6.jpg"),
)


@pytest.mark.parametrize("where", ["folder", "zip", "tar", "tar.gz"])
def test_classes_and_splits_in_folders(tmp_path: Path, where: str) -> None:
    if where == "folder":
        write(tmp_path, {**CLASSES, ".git/config": b"x", "train/.hidden.jpg": b"y"})
    else:
        write(tmp_path, {f"pets.{where}": packed(CLASSES, where)})
    made = described(tmp_path)
    name = next(
        each for each in record_sets(made) if each not in ("splits",) and "classes" not in each
    )
    assert types(made, name) == {
        "image": "sc:ImageObject",
        "filename": "sc:Text",
        "label": ["sc:Text", "cr:Label"],
        "split": "sc:Text",
    }
    rows = {row["filename"]: row for row in loaded(made, name)}
    assert len(rows) == 6
    for path, data in CLASSES.items():
        split, label, file = path.split("/")
        assert rows[file] == {"image": data, "filename": file, "label": label, "split": split}
    assert loaded(made, f"{name}_classes") == [{"name": "cat"}, {"name": "dog"}]
    assert loaded(made, "splits") == [
        {"name": "train", "url": "cr:TrainingSplit"},
        {"name": "test", "url": "cr:TestSplit"},
    ]
    references = {key: field.get("references") for key, field in fields(made, name).items()}
    assert references["label"] == {"field": {"@id": f"{name}_classes/name"}}
    assert references["split"] == {"field": {"@id": "splits/name"}}
    assert record_sets(made)[name]["key"] == {"@id": f"{name}/filename"}


def test_one_split_needs_only_its_files(tmp_path: Path) -> None:
    write(tmp_path, CLASSES)
    made = described(tmp_path)
    members = Dataset(made.path).records("images", filters={"split": "test"}).members()
    assert sorted(member.fullpath for member in members) == ["test/cat/5.jpg", "test/dog/6.jpg"]


GROUPS = {
    "masks are no class": (
        ["images/1.jpg", "images/2.jpg", "masks/1.png", "masks/2.png"],
        {"images": (None, ()), "masks": (None, ())},
    ),
    "folders of the same names are no classes": (
        ["day/1.jpg", "day/2.jpg", "night/1.jpg", "night/2.jpg"],
        {"day": (None, ()), "night": (None, ())},
    ),
    "a class called train": (
        ["car/1.jpg", "car/2.jpg", "train/3.jpg", "train/4.jpg", "bus/5.jpg", "bus/6.jpg"],
        {"images": (None, ("bus", "car", "train"))},
    ),
    "splits and something else": (
        ["train/1.jpg", "train/2.jpg", "test/3.jpg", "test/4.jpg", "extra/5.jpg", "extra/6.jpg"],
        {"images": (None, ())},
    ),
    "one file in each folder": (
        ["p1/a.jpg", "p2/b.jpg", "p3/c.jpg"],
        {"images": (None, ())},
    ),
    "digits": (
        ["0/a.png", "0/b.png", "1/c.png", "1/d.png", "2/e.png", "2/f.png"],
        {"images": (None, ("0", "1", "2"))},
    ),
    "parts": (["00/a.png", "00/b.png", "01/c.png", "01/d.png"], {"images": (None, ())}),
    "deep": (["s1/c1/a.wav", "s1/c2/b.wav", "s2/c1/c.wav", "s2/c1/d.wav"], {"audio": (None, ())}),
    "splits below the kind": (
        ["images/train/1.jpg", "images/val/2.jpg", "labels/train/1.png", "labels/val/2.png"],
        {"images": (("train", "val"), ()), "labels": (("train", "val"), ())},
    ),
    "splits in names of folders": (
        ["train_images/1.jpg", "test_images/2.jpg"],
        {"images": (("train", "test"), ())},
    ),
    "splits in names of files": (
        ["img_train_1.jpg", "img_test_2.jpg", "img_val_3.jpg"],
        {"images": (("train", "val", "test"), ())},
    ),
    "contest is no test": (["contest/a.jpg", "latest/b.jpg"], {"images": (None, ())}),
    "files beside folders": (
        ["x.jpg", "y.jpg", "a/1.jpg", "a/2.jpg"],
        {"images": (None, ()), "a": (None, ())},
    ),
    "archives": (
        [
            "train2014.zip!a/1.jpg",
            "val2014.zip!a/2.jpg",
            "PASS.0.tar!0/x.jpg",
            "PASS.1.tar!1/y.jpg",
        ],
        {"images": (None, ()), "a": (("train",), ()), "a-2": (("val",), ())},
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups(case: str) -> None:
    names, expected = GROUPS[case]
    places = [Place(*name.split("!")) if "!" in name else Place("", name) for name in names]
    found: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...]]] = {}
    for group in media_groups(places):
        name = group.name if group.name not in found else f"{group.name}-2"
        found[name] = (group.split.names if group.split else None, group.labels)
    assert found == expected
    if case in ("one file in each folder", "parts", "deep", "splits and something else"):
        assert all(group.remark for group in media_groups(places))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.csv", "test.csv", "users.csv"], {"records": 2, "users": 1}),
        (["a/train/0.csv", "a/test/0.csv", "b/train/0.csv"], {"a": 2, "b": 1}),
        (["part-0000.csv", "part-0001.csv"], {"records": 2}),
        (["part-00000-5a0f6e1e-1b1b-4d3c-9d1e-aaaaaaaaaaaa-c000.parquet"], {"records": 1}),
        (["x.csv", "x.tsv"], {"x": 2}),
        (["latest.csv", "contest.csv"], {"latest": 1, "contest": 1}),
        (["training_log.csv", "test_results.csv"], {"training_log": 1, "test_results": 1}),
        (["sales_2019.csv", "sales_2020.csv"], {"sales": 2}),
        (["2019.csv", "2020.csv"], {"records": 2}),
    ],
)
def test_names_of_tables(names: list[str], expected: dict[str, int]) -> None:
    found: dict[str, int] = {}
    for candidates in table_candidates(Place("", name) for name in names):
        group = table_group(candidates)
        found[group.name] = found.get(group.name, 0) + len(group.places)
    assert found == expected


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *(("training_log.csv", ""), ("eval-metrics.json", ""), ("Train History.csv", "")),
        *(("train_logic.csv", "train"), ("training.csv", "training"), ("a_train.csv", "train")),
    ],
)
def test_a_file_about_the_training_is_of_no_split(name: str, split: str) -> None:
    found = split_in(name)
    assert (found[0].lower() if found else "") == split


def test_one_image_beside_tables_is_no_data(tmp_path: Path) -> None:
    write(tmp_path, images("logo.jpg"))
    write_csv(tmp_path / "t.csv", ["a", "b"], [["1", "x"], ["2", "y"]])
    assert set(record_sets(described(tmp_path))) == {"t"}
    (tmp_path / "t.csv").unlink()
    assert set(record_sets(described(tmp_path))) == {"images"}


def test_tables_in_archives(tmp_path: Path) -> None:
    inside = {
        "d/users.csv": b"id,name\n1,a\n2,b\n",
        "d/orders.csv": b"id,user_id\n7,2\n8,1\n9,2\n",
        "d/notes.pdf": b"%PDF",
    }
    write(
        tmp_path,
        {
            "all.zip": packed(inside, "zip"),
            "all.tar.gz": packed({"t.csv": b"a,b\n1,2\n"}, "tar.gz"),
        },
    )
    made = described(tmp_path)
    assert loaded(made, "users") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert loaded(made, "t") == [{"a": 1, "b": 2}]
    assert fields(made, "orders")["user_id"]["references"] == {"field": {"@id": "users/id"}}
    assert "1 file in it without a record set" in notes(made, "all.zip")
    objects = {each["@id"]: each for each in made.metadata["distribution"]}
    assert objects["all.zip/d/users.csv"]["containedIn"] == {"@id": "all.zip"}
    assert "sha256" not in objects["all.zip/d/users.csv"]


def test_the_split_that_only_an_archive_tells(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "train2014.zip": packed(images("a/1.jpg", "a/2.jpg"), "zip"),
            "val2014.zip": packed(images("a/3.jpg", "a/4.jpg"), "zip"),
        },
    )
    made = described(tmp_path)
    rows = [row for name in record_sets(made) if name != "splits" for row in loaded(made, name)]
    assert {row["filename"]: row["split"] for row in rows} == {
        "1.jpg": "train", "2.jpg": "train", "3.jpg": "val", "4.jpg": "val",
    }  # fmt: skip


def test_a_file_or_an_archive_alone(tmp_path: Path) -> None:
    write_csv(tmp_path / "other.csv", ["x"], [["1"]])
    write_csv(tmp_path / "my table.csv", ["a", "b"], [["1", "x"], ["2", "y"]])
    write(tmp_path, {"pets.zip": packed(CLASSES, "zip")})
    made = described(tmp_path / "my table.csv")
    assert made.path.name == "my table.csv.croissant.json"
    assert loaded(made, "my_table") == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert len(made.metadata["distribution"]) == 1
    made = described(tmp_path / "pets.zip")
    assert len(loaded(made, "images")) == 6


def test_odd_names_of_files(tmp_path: Path) -> None:
    names = [
        "a b/[1].jpg",
        "a b/{x,y}.jpg",
        "a b/100%25.jpg",
        "a b/ünï.JPG",
        "a b/q?#.jpeg",
        "a b/'\".jpg",
    ]
    write(tmp_path, images(*names))
    write(tmp_path, {"a b/thumb.gif": b"GIF8", "~t.csv": b"a,b\n1,2\n", "c:d.csv": b"a,b\n3,4\n"})
    made = described(tmp_path)
    (name,) = (each for each in record_sets(made) if each.startswith("a_b"))
    rows = loaded(made, name)
    assert {row["image"] for row in rows} == {*images(*names).values(), b"GIF8"}
    assert loaded(made, "t") == [{"a": 1, "b": 2}]
    assert not any(set(each["@id"]) & set(" \t") for each in made.metadata["distribution"])


def test_folders_that_name_values_are_one_table_and_told(tmp_path: Path) -> None:
    for land in ("DE", "FR"):
        for year in ("2023", "2024"):
            cells = [[f"{land}{year}"]]
            write_csv(tmp_path / "sales" / f"land={land}" / f"year={year}" / "0.csv", ["v"], cells)
    made = described(tmp_path)
    assert [row["v"] for row in loaded(made, "sales")] == ["DE2023", "DE2024", "FR2023", "FR2024"]
    (told,) = (note.text for note in made.notes if note.kind == "unknown" and note.about == "sales")
    assert "land=DE" in told


def test_a_table_that_lists_images(tmp_path: Path) -> None:
    files = images("pictures/a.jpg", "pictures/b.jpg", "pictures/c.jpg")
    write(tmp_path, files)
    rows = [["a.jpg", "cat"], ["b.jpg", "dog"], ["a.jpg", "tail"]]
    write_csv(tmp_path / "labels.csv", ["file_name", "label"], rows)
    made = described(tmp_path)
    assert fields(made, "labels")["file_name"]["references"] == {
        "field": {"@id": "pictures/filename"}
    }
    assert loaded(made, "labels") == [
        {"file_name": name, "label": label, "image": files[f"pictures/{name}"]}
        for name, label in rows
    ]


@pytest.mark.parametrize(
    ("header", "values", "form"),
    [
        ("path", ["img/x/1.jpg", "img/y/2.jpg"], "fullpath"),
        ("path", ["x/1.jpg", "y/2.jpg"], "path"),
        ("image", ["1.jpg", "2.jpg"], "filename"),
    ],
)
def test_ways_to_name_a_file(tmp_path: Path, header: str, values: list[str], form: str) -> None:
    files = images("img/x/1.jpg", "img/y/2.jpg")
    write(tmp_path, files)
    write_csv(tmp_path / "table.csv", [header, "v"], [[value, "a"] for value in values])
    made = described(tmp_path)
    assert fields(made, "table")[header]["references"] == {"field": {"@id": f"img/{form}"}}
    content = "image_file" if header == "image" else "image"
    assert [row[content] for row in loaded(made, "table")] == list(files.values())


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("photo_count", ["1", "2"]),  # as many as there are files
        ("id", ["1", "2"]),
        ("rating", ["2", "1"]),
        ("comment", ["1", "2"]),
        ("file_name", ["1.jpg", "gone.jpg"]),
    ],
)
def test_columns_that_only_look_like_names_of_files(
    tmp_path: Path, header: str, values: list[str]
) -> None:
    write(tmp_path, images("img/1.jpg", "img/2.jpg"))
    write_csv(tmp_path / "table.csv", [header, "v"], [[value, "a"] for value in values])
    made = described(tmp_path)
    assert "references" not in fields(made, "table")[header]
    assert set(types(made, "table")) == {header, "v"}


def test_of_two_columns_that_name_files_of_a_set_the_first_counts(tmp_path: Path) -> None:
    files = images("img/a.jpg", "img/b.jpg")
    write(tmp_path, files)
    rows = [["a.jpg", "b.jpg"], ["b.jpg", "a.jpg"]]
    write_csv(tmp_path / "pairs.csv", ["left", "right"], rows)
    made = described(tmp_path)
    assert "references" not in fields(made, "pairs")["right"]
    assert loaded(made, "pairs") == [
        {"left": left, "right": right, "image": files[f"img/{left}"]} for left, right in rows
    ]


def test_a_file_that_a_table_names_and_the_folder_lacks_is_told(tmp_path: Path) -> None:
    write(tmp_path, images("img/1.jpg", "img/2.jpg"))
    write_csv(tmp_path / "table.csv", ["file_name"], [["1.jpg"], ["2.jpg"], ["gone.jpg"]])
    made = described(tmp_path)
    assert "references" not in fields(made, "table")["file_name"]
    assert [note for note in made.notes if note.about == "table" and "'file_name'" in note.text]
