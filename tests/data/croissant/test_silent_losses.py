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

from holdfast.data.croissant import Dataset, validate
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
