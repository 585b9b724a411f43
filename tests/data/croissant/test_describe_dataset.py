"""The dataset as a whole: what files beside the data say, what is left out, where it is written."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

from described_files import refused
from round_trips import described, loaded, notes, record_sets, write_csv

from holdfast.data.croissant.describing.folders import describe
from holdfast.data.croissant.rules.checking import validate


def table(folder: Path) -> None:
    write_csv(folder / "t.csv", ["a", "b"], [["1", "x"], ["2", "y"]])


def test_nothing_is_invented(tmp_path: Path) -> None:
    table(tmp_path)
    made = described(tmp_path)
    about = set(made.metadata) - {"@context", "@type", "conformsTo", "distribution", "recordSet"}
    assert about == {"name", "description", "version"}
    assert made.metadata["name"] == tmp_path.name
    unknown = ("license", "creator", "datePublished", "url")
    for what in unknown:
        assert f"no {what}:" in notes(made, "")
    found = validate(made.metadata)
    assert not found.counts["error"]
    warned = [one.message.split()[-1] for one in found.problems if one.severity.value == "warning"]
    assert sorted(warned) == sorted(unknown)


def test_what_the_caller_says_comes_first(tmp_path: Path) -> None:
    table(tmp_path)
    made = described(
        tmp_path,
        name="n",
        description="d",
        license=["cc-by-4.0", "https://example.org/terms"],
        url="https://example.org",
        creators=["A. Person", {"@type": "Organization", "name": "O"}],
        date_published=datetime.date(2020, 1, 2),
        cite_as="cite",
        keywords=["k"],
        version="2.0.0",
    )
    about = ("name", "description", "url", "datePublished", "citeAs")
    assert {key: made.metadata[key] for key in about} == {
        "name": "n", "description": "d", "url": "https://example.org", "datePublished": "2020-01-02",
        "citeAs": "cite",
    }  # fmt: skip
    assert made.metadata["license"] == [
        "https://spdx.org/licenses/CC-BY-4.0.html",
        "https://example.org/terms",
    ]
    assert made.metadata["creator"] == [
        {"@type": "Person", "name": "A. Person"},
        {"@type": "Organization", "name": "O"},
    ]
    assert made.metadata["keywords"] == ["k"]
    assert made.metadata["version"] == "2.0.0"


def test_checksums_and_sizes(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "blob.bin").write_bytes(b"abc")
    made = described(tmp_path)
    blob = next(each for each in made.metadata["distribution"] if each["name"] == "blob.bin")
    assert blob["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert blob["contentSize"] == "3 B"
    assert blob["encodingFormat"] == "application/octet-stream"
    assert "described as a file only" in notes(made, "blob.bin")
    bare = describe(tmp_path, checksums=False)
    assert not any("sha256" in each for each in bare.metadata["distribution"])


def test_a_description_goes_beside_its_data(tmp_path: Path) -> None:
    table(tmp_path)
    made = describe(tmp_path)
    path = made.write()
    assert path == tmp_path / "croissant.json"
    assert json.loads(path.read_text()) == made.metadata
    assert made.to_dict()["metadata"] == made.metadata
    with refused("output-exists"):
        made.write()
    assert made.write(overwrite=True) == path
    assert made.write(tmp_path / "other.json").exists()
    (tmp_path / "elsewhere").mkdir()
    with refused("invalid-value"):
        made.write(tmp_path / "elsewhere" / "x.json")
    again = describe(tmp_path)
    assert again.metadata == made.metadata
    assert "a Croissant description" in notes(again, "other.json")


def test_what_is_no_data_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    table(folder)
    table(tmp_path)
    for name in (".git/config", ".hidden.csv", "__MACOSX/t.csv", "sub/.DS_Store", "sub/Thumbs.db"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a,b\n1,2\n")
    (folder / "out.csv").symlink_to(tmp_path / "t.csv")
    (folder / "broken.csv").symlink_to(folder / "gone.csv")
    (folder / "inside.csv").symlink_to(folder / "t.csv")
    os.mkfifo(folder / "pipe.csv")
    made = described(folder)
    names = {each["name"] for each in made.metadata["distribution"]}
    assert names == {"t.csv", "inside.csv"}
    for name in ("out.csv", "broken.csv", "pipe.csv"):
        assert notes(made, name)
    assert loaded(made, "inside") == loaded(made, "t")


def test_a_name_that_json_cannot_hold(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / os.fsdecode(b"bad\xff.csv")).write_text("a,b\n1,2\n")
    made = described(tmp_path)
    assert list(record_sets(made)) == ["t"]
    assert "not UTF-8" in notes(made)
