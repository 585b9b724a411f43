"""Describe, check, load: every data folder of the suite, value by value against the files themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path, PurePosixPath

import pyarrow.parquet as pq
import pytest
from round_trips import check_csv, contents, copied, described, loaded, record_sets

# The folders of version 0.8 hold the same data as those of 1.0.
FOLDERS = [
    *("0.8/audio_test", "0.8/pass-mini", "0.8/recipes", "0.8/simple-join", "0.8/simple-parquet"),
    *(
        "0.8/titanic",
        "0.8/wiki-text",
        "1.0/audio_test",
        "1.0/coco2014",
        "1.0/pass-mini",
        "1.0/recipes",
    ),
    *("1.0/simple-join", "1.0/simple-parquet", "1.0/titanic", "1.0/wiki-text", "1.1/audio_test"),
    "1.1/huggingface-pollen-robotics-apple-storage",
]


def test_every_data_folder_of_the_suite_is_here(shared_data: Path) -> None:
    datasets = shared_data / "croissant" / "datasets"
    found = {str(path.parent.relative_to(datasets)) for path in datasets.glob("*/*/data")}
    assert found == set(FOLDERS)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "folder",
    [pytest.param(name, marks=[pytest.mark.full] * name.startswith("0.8")) for name in FOLDERS],
)
def test_what_was_described_loads_as_it_stands(
    shared_data: Path, tmp_path: Path, folder: str
) -> None:
    data = copied(shared_data / "croissant" / "datasets" / folder / "data", tmp_path / "data")
    files = {path.relative_to(data).as_posix(): path for path in data.rglob("*") if path.is_file()}
    made = described(data)
    by_id = {each["@id"]: each for each in made.metadata["distribution"]}
    media: Counter[tuple[str, bytes]] = Counter()
    checked = set()
    for name, records in record_sets(made).items():
        if "data" in records:
            continue
        source = records["field"][0]["source"]
        resource = by_id[(source.get("fileObject") or source["fileSet"])["@id"]]
        if resource["encodingFormat"] == "text/csv":
            inside = resource.get("containedIn")
            path = files[by_id[inside["@id"]]["contentUrl"] if inside else resource["contentUrl"]]
            check_csv(made, name, contents(path)[PurePosixPath(resource["contentUrl"]).name])
            checked.add(path)
        elif resource["encodingFormat"] == "application/x-parquet":
            path = files[resource["contentUrl"]]
            rows = [list(row.values()) for row in pq.read_table(path).to_pylist()]
            assert [list(row.values())[: len(rows[0])] for row in loaded(made, name)] == rows
            checked.add(path)
        else:
            for row in loaded(made, name):
                value = next(iter(row.values()))
                media[row["filename"], value.encode() if isinstance(value, str) else value] += 1
    rest = [path for path in files.values() if path not in checked]
    expected = Counter(
        (PurePosixPath(name).name, data) for path in rest for name, data in contents(path).items()
    )
    assert media == expected


def test_the_same_folder_gives_the_same_bytes(shared_data: Path, tmp_path: Path) -> None:
    data = copied(
        shared_data / "croissant" / "datasets" / "1.0" / "recipes" / "data", tmp_path / "one"
    )
    again = copied(data, tmp_path / "other" / "one")
    first, second = described(data), described(again)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.notes == second.notes
    assert described(data).path.read_bytes() == second.path.read_bytes(), (
        "with the description there"
    )


def test_joins_of_the_suite_are_found(shared_data: Path, tmp_path: Path) -> None:
    data = copied(
        shared_data / "croissant" / "datasets" / "1.0" / "titanic" / "data", tmp_path / "data"
    )
    made = described(data)
    references = {
        field["@id"]: field["references"]["field"]["@id"]
        for records in record_sets(made).values()
        for field in records["field"]
        if "references" in field
    }
    assert references == {
        "titanic/sex": "genders/label",
        "titanic/embarked": "embarkation_ports/key",
    }
    keys = {name: records.get("key") for name, records in record_sets(made).items()}
    assert keys == {
        "titanic": None,
        "genders": {"@id": "genders/label"},
        "embarkation_ports": {"@id": "embarkation_ports/key"},
    }
