"""What would be lost, rounded or infinite without a word: refused by loading, named by validation."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from good_description import CONTEXT

from holdfast.data.croissant import Dataset, describe, validate
from holdfast.errors import InputError

FORMATS = {"csv": "text/csv", "parquet": "application/x-parquet", "json": "application/json"}


def described(path: Path, encoding: str, fields: dict[str, tuple[str, dict[str, Any]]]) -> Path:
    """A description of one file beside it: field -> (type, the rest of its source)."""
    made = [
        {"@type": "cr:Field", "@id": f"r/{name}", "name": name, "dataType": kind}
        | {"source": {"fileObject": {"@id": "f"}, **source}}
        for name, (kind, source) in fields.items()
    ]
    file = {"@type": "cr:FileObject", "@id": "f", "name": "f"}
    file |= {"contentUrl": path.name, "encodingFormat": encoding}
    text = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "d",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "distribution": [file],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "r", "name": "r", "field": made}],
    }
    target = path.with_name("croissant.json")
    target.write_text(json.dumps(text))
    return target


def columns(**kinds: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return {name: (kind, {"extract": {"column": name}}) for name, kind in kinds.items()}


def codes(description: Path) -> set[str]:
    found = validate(description, data="full").to_dict()
    return {each["code"] for name in ("errors", "warnings") for each in found[name]}


def refused(description: Path, **asked: Any) -> str:
    with pytest.raises(InputError) as caught:
        list(Dataset(description).records("r", **asked))
    return caught.value.code


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_compressed_file_that_is_cut_off(tmp_path: Path, share: float) -> None:
    whole = gzip.compress("".join(f"{n},{n * n}\n" for n in range(9000)).encode())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(whole[: int(share * len(whole))])
    description = described(path, "text/csv", columns(**{"0": "sc:Integer"}))
    assert refused(description) == "damaged"
    assert "CR911" in codes(description)


@pytest.mark.parametrize("day", ["12345-01-01", "0000-01-01", "-0044-03-15", "infinity", "epoch1"])
@pytest.mark.parametrize("kind", ["sc:Date", "sc:DateTime"])
def test_years_that_no_calendar_has(tmp_path: Path, day: str, kind: str) -> None:
    (tmp_path / "t.csv").write_text(f"when\n2024-02-29\n{day}\n")
    description = described(tmp_path / "t.csv", "text/csv", columns(when=kind))
    assert refused(description) == "invalid-value"
    assert "CR912" in codes(description)
    lenient = [row["r/when"] for row in Dataset(description).records("r", on_misfit="null")]
    assert [None if each is None else str(each)[:10] for each in lenient] == ["2024-02-29", None]


def test_years_of_columns_that_are_dates(tmp_path: Path) -> None:
    days = [0, 9_000_000, -800_000]  # since 1970
    table = pa.table({"when": pa.array(days, pa.int32()).cast(pa.date32())})
    pq.write_table(table, tmp_path / "t.parquet")
    description = described(tmp_path / "t.parquet", FORMATS["parquet"], columns(when="sc:Date"))
    assert refused(description) == "invalid-value"
    found = [row["r/when"] for row in Dataset(description).records("r", on_misfit="null")]
    assert found == [dt.date(1970, 1, 1), None, None]


@pytest.mark.parametrize(
    ("path", "fine"),
    [
        ("$.items[*].y.z[*]", True),
        ("$.items[*].y.empty[*]", True),
        ("$.items[*].y.nope[*]", False),
        ("$.items[*].nope.z[*]", False),
        ("$.nope[*].y.z[*]", False),
        ("$.items[*].y.z[*].nope", False),
        ("$.items[*].y.deep[*].more[*].nope[*]", False),
        ("$.items[*].y.empty[*].whatever[*]", True),  # no element that could lack it
    ],
)
def test_paths_that_lead_nowhere_below_a_list(tmp_path: Path, path: str, fine: bool) -> None:
    inner = {"z": [1, 2], "empty": [], "deep": [{"more": [{"a": 1}]}]}
    (tmp_path / "t.json").write_text(json.dumps({"items": [{"x": 1, "y": inner}]}))
    source = {"extract": {"jsonPath": path}}
    description = described(tmp_path / "t.json", FORMATS["json"], {"v": ("sc:Text", source)})
    if fine:
        assert len(list(Dataset(description).records("r"))) == (2 if path.endswith("y.z[*]") else 0)
    else:
        assert refused(description) == "missing-key"


@pytest.mark.parametrize(
    ("path", "finds"), [("$.a.b", True), ("$.a.c", False), ("$.d[0]", True), ("$.d[7]", False)]
)
def test_paths_of_transforms_that_find_nothing(tmp_path: Path, path: str, finds: bool) -> None:
    value = json.dumps({"a": {"b": 5}, "d": [1]}).replace('"', '""')
    (tmp_path / "t.csv").write_text(f'o\n"{value}"\n')
    source = {"extract": {"column": "o"}, "transform": {"jsonPath": path}}
    description = described(tmp_path / "t.csv", "text/csv", {"v": ("sc:Text", source)})
    assert ("CR913" in codes(description)) is not finds


@pytest.mark.parametrize("encoding", ["csv", "parquet"])
@pytest.mark.parametrize(("value", "fits"), [(65504.0, True), (-65519.0, True), (70000.0, False)])
def test_numbers_beyond_half_precision(
    tmp_path: Path, encoding: str, value: float, fits: bool
) -> None:
    path = tmp_path / f"t.{encoding}"
    if encoding == "csv":
        path.write_text(f"x\n{value}\n")
    else:
        pq.write_table(pa.table({"x": [value]}), path)
    description = described(path, FORMATS[encoding], columns(x="cr:Float16"))
    assert ("CR912" in codes(description)) is not fits
    if fits:
        assert [abs(row["r/x"]) for row in Dataset(description).records("r")] == [65504.0]
    else:
        assert refused(description) == "invalid-value"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"id": 1.5}, None),
        ({"id": "2.4"}, None),
        ({"id": 2.0}, [2]),
        ({"id": [1, 2.5]}, None),
        ({"flag": True}, [1]),
        ({"flag": "no"}, [2]),
        ({"flag": 2}, None),
        ({"day": "2024-01-02"}, [2]),
        ({"day": dt.datetime(2024, 1, 2, 10)}, None),
        ({"day": "2024-01-02 10:00:00"}, None),
        ({"x": 0.1}, [1]),
    ],
)
def test_filters_take_a_value_as_it_is_or_not_at_all(
    tmp_path: Path, filters: dict[str, Any], found: list[int] | None
) -> None:
    text = "id,flag,day,x\n1,true,2024-01-01,0.1\n2,false,2024-01-02,2.5\n"
    (tmp_path / "t.csv").write_text(text)
    kinds = {"id": "sc:Integer", "flag": "sc:Boolean", "day": "sc:Date", "x": "cr:Float32"}
    description = described(tmp_path / "t.csv", "text/csv", columns(**kinds))
    if found is None:
        assert refused(description, filters=filters) == "invalid-value"
    else:
        rows = Dataset(description).records("r", filters=filters)
        assert [row["r/id"] for row in rows] == found


def test_a_list_of_objects_inside_an_object(tmp_path: Path) -> None:
    records = [
        {"id": 1, "doc": {"spans": [{"at": 3, "of": {"tag": "x"}}, {"w": [1, 2]}], "t": "a"}},
        {"id": 2, "doc": {"spans": [], "t": "b"}},
        {"id": 3, "doc": {"spans": None}},
        {"id": 4, "doc": {"spans": [{"at": 5, "w": [], "of": None}]}},
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    made = describe(tmp_path)
    made.write()
    assert '"spans[*].of.tag"' in made.path.read_text()
    with Dataset(made.path) as dataset:
        rows = list(dataset.records("d", columns=["doc"]).rows())
        assert dataset.records("d").remarks() == []
    at, w, tag = "d/doc/spans/at", "d/doc/spans/w", "d/doc/spans/of"
    spans = [row["d/doc"]["d/doc/spans"] for row in rows]
    empty = {f"{tag}/tag": None}
    assert spans == [
        [{at: 3, tag: {f"{tag}/tag": "x"}, w: None}, {at: None, tag: empty, w: [1, 2]}],
        [],
        None,
        [{at: 5, tag: empty, w: []}],
    ]
    assert codes(made.path) <= {"CR103"} | {"CR913"}


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_path_that_finds_nothing_in_any_record(tmp_path: Path, kind: str) -> None:
    rows = [{"o": {"a": {"b": 1}}}, {"o": {"a": {"b": None}}}]
    path = tmp_path / f"t.{kind}"
    if kind == "json":
        path.write_text(json.dumps(rows))
    else:
        pq.write_table(pa.Table.from_pylist([{"o": json.dumps(row["o"])} for row in rows]), path)
    for step, lost in (("a.b", False), ("a.c", True)):
        source = {"extract": {"column": "o"}, "transform": {"jsonPath": step}}
        for more in ({}, {"isArray": True, "arrayShape": "-1"}):
            description = described(path, FORMATS[kind], {"v": ("sc:Integer", source)})
            text = json.loads(description.read_text())
            text["recordSet"][0]["field"][0] |= more
            description.write_text(json.dumps(text))
            if more and not lost:  # one value is not a list
                continue
            remarks = Dataset(description).records("r").remarks()
            assert [step in each for each in remarks] == [True] * lost
            assert ({"CR913", "CR915"} <= codes(description)) is lost


def test_bytes_at_a_path_are_something(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": b"\xff\xd8\xff\x00", "path": "1.jpg"}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    source = {"extract": {"column": "image"}, "transform": {"jsonPath": "bytes"}}
    fields = {"image": ("sc:ImageObject", source)}
    assert "CR913" not in codes(described(tmp_path / "t.parquet", FORMATS["parquet"], fields))


def test_a_listed_file_that_is_not_there(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"split={'test' if number == 2 else 'train'}"
        folder.mkdir(exist_ok=True)
        table = pa.table({"n": [number, number]})
        pq.write_table(table, folder / f"part-{number}.parquet")
    made = describe(tmp_path)
    made.write()
    name = made.metadata["recordSet"][-1]["@id"]
    assert len(list(Dataset(made.path).records(name).rows())) == 6
    gone = next(tmp_path.glob("*/part-1.parquet"))
    gone.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError) as caught:
        list(Dataset(made.path).records(name).rows())
    assert (caught.value.code, Path(str(caught.value.path)).name) == ("unreadable", gone.name)
    assert "CR901" in codes(made.path)
    [missing] = [
        each["@id"] for each in made.metadata["distribution"] if each["@id"].endswith(gone.name)
    ]
    with Dataset(made.path, mapping={missing: tmp_path / "elsewhere"}) as dataset:
        assert len(list(dataset.records(name).rows())) == 6


def test_class_folders_whose_files_are_numbered_alike(tmp_path: Path) -> None:
    for number, name in enumerate(
        f"{split}/{label}/{n:02}.png"
        for split, count in (("training", 3), ("val", 2))
        for label in ("oak", "elm", "ash")
        for n in range(1, count + 1)
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG\x00" + bytes([number]))
    (tmp_path / "val/elm/02.png").write_bytes(b"")
    made = describe(tmp_path)
    made.write()
    rows = list(Dataset(made.path).records("images").rows())
    assert {(row["images/split"], row["images/label"]) for row in rows} == {
        (split, label) for split in ("training", "val") for label in ("oak", "elm", "ash")
    }
    assert [note.about for note in made.notes if "empty" in note.text] == ["val/elm/02.png"]
    assert "CR941" in codes(made.path)


ODD_MEMBERS = {
    "unnamed": [{"": "0", "id": "1", "v": 2.5}, {"": "1", "id": "2", "v": 3.5}],
    "unnamed, of two": [{"id": "1", "": 4}, {"id": "2", "": 5}],
    "many": [{"id": str(n), f"k{n}": n} for n in range(400)],
}


@pytest.mark.parametrize("records", ODD_MEMBERS.values(), ids=ODD_MEMBERS)
@pytest.mark.parametrize("lines", [True, False])
def test_one_member_of_objects_that_look_like_maps(
    tmp_path: Path, records: list[dict[str, Any]], lines: bool
) -> None:
    """DuckDB takes such objects for values, each of them whole."""
    path = tmp_path / ("t.jsonl" if lines else "t.json")
    texts = [json.dumps(record) for record in records]
    path.write_text("\n".join(texts) if lines else f"[{','.join(texts)}]")
    encoding = "application/jsonlines" if lines else "application/json"
    description = described(path, encoding, columns(id="sc:Text"))
    assert [row["r/id"] for row in Dataset(description).records("r")] == [r["id"] for r in records]
    made = describe(tmp_path).metadata["recordSet"][0]["field"]
    assert made[0]["dataType"] == "sc:Text"
    assert "" not in [field["name"] for field in made]


def test_a_number_among_objects(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1}\n5\n')
    description = described(tmp_path / "t.jsonl", "application/jsonlines", columns(id="sc:Text"))
    assert refused(description) == "damaged"


@pytest.mark.parametrize("bad", ['{"id" 5}', '{"id": ', "5", '{"id": 2, "id": 3}', '{"id": "no"}'])
@pytest.mark.parametrize("before", [0, 1, 3000])
def test_errors_name_the_line_of_json(tmp_path: Path, bad: str, before: int) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1}\n' * before + f'{bad}\n{{"id": 2}}\n')
    description = described(tmp_path / "t.jsonl", "application/jsonlines", columns(id="sc:Integer"))
    with pytest.raises(InputError) as caught:
        list(Dataset(description).records("r"))
    assert (caught.value.place or "").partition(",")[0] == f"line {before + 1}"


def test_an_empty_list_at_a_path_is_not_lost(tmp_path: Path) -> None:
    rows = [{"id": 1, "m": {"x": 1, "tags": ["a"]}}, {"id": 2, "m": {"x": 2, "tags": []}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    description = describe(tmp_path).write()
    assert "CR913" not in codes(description)
    loaded = [row["a/m"]["a/m/tags"] for row in Dataset(description).records("a")]
    assert loaded == [["a"], []]


@pytest.mark.parametrize("depth", [3, 30, 60])
def test_objects_in_objects_are_described_as_deep_as_a_description_can_be(
    tmp_path: Path, depth: int
) -> None:
    value: Any = 5
    for _ in range(depth):
        value = {"k": value}
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 1, "k": value}) + "\n")
    (row,) = Dataset(describe(tmp_path).write()).records("a")
    found_value: Any = row
    while isinstance(found_value, (dict, str)):  # the innermost members are one text
        members = json.loads(found_value) if isinstance(found_value, str) else found_value
        found_value = [*members.values()][-1]
    assert found_value == 5
