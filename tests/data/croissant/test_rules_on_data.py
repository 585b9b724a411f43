"""Rules about data: each is broken by one edit, of the description or of a file, and kept by a near one."""

from __future__ import annotations

import copy
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holdfast.data.croissant.document import reading
from holdfast.data.croissant.document.vocabulary import RECOMMENDED_CONTEXT
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules import on_data, value_tests
from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.rules.table import DATA_RULES
from holdfast.errors import InputError

PLANETS = (
    "planet,radius_km,found\nMars,3389.5,\nUranus,25362,1781-03-13\nNeptune,24622,1846-09-23\n"
)
MOONS = (
    "moon,planet,radius_km\nPhobos,Mars,11\nTitania,Uranus,788\nTriton,Neptune,1353\nMoon,,1737\n"
)
Edit = Callable[[dict[str, Any], Path], None]


def png(shade: int) -> bytes:
    made = io.BytesIO()
    Image.new("L", (3, 2), shade).save(made, "PNG")
    return made.getvalue()


def field(
    records: str, name: str, type_: str, source: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{records}/{name}",
        "dataType": type_,
        "source": source,
        **more,
    }


def column(file: str, name: str) -> dict[str, Any]:
    return {"fileObject": {"@id": file}, "extract": {"column": name}}


def of_files(property_: str, **more: Any) -> dict[str, Any]:
    return {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": property_}, **more}


def fill(folder: Path) -> Path:
    """Two tables and three pictures."""
    (folder / "planets.csv").write_text(PLANETS, encoding="utf-8")
    (folder / "moons.csv").write_text(MOONS, encoding="utf-8")
    (folder / "pictures").mkdir(exist_ok=True)
    for number, name in enumerate(("Mars", "Uranus", "Neptune")):
        (folder / "pictures" / f"{name}.png").write_bytes(png(number))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files."""
    return fill(tmp_path)


def described(folder: Path) -> dict[str, Any]:
    """What stands in the folder, rightly."""
    files = []
    for name in ("planets.csv", "moons.csv"):
        data = (folder / name).read_bytes()
        files.append(
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "contentSize": f"{len(data)} B",
                "encodingFormat": "text/csv",
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    pictures = {
        "@type": "cr:FileSet",
        "@id": "pictures",
        "name": "pictures",
        "encodingFormat": "image/png",
        "includes": "pictures/*.png",
    }
    planets = [
        field("planets", "planet", "sc:Text", column("planets.csv", "planet")),
        field("planets", "radius_km", "sc:Float", column("planets.csv", "radius_km")),
        field("planets", "found", "sc:Date", column("planets.csv", "found")),
    ]
    moons = [
        field("moons", "moon", "sc:Text", column("moons.csv", "moon")),
        field(
            "moons",
            "planet",
            "sc:Text",
            column("moons.csv", "planet"),
            references={"@id": "planets/planet"},
        ),
        field("moons", "radius_km", "sc:Integer", column("moons.csv", "radius_km")),
    ]
    looks = [
        field(
            "looks",
            "planet",
            "sc:Text",
            of_files("filename", transform={"regex": r"^(\w+)\.png$"}),
        ),
        field("looks", "picture", "sc:ImageObject", of_files("content")),
    ]
    return {
        "@context": RECOMMENDED_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "planets",
        "description": "Planets.",
        "url": "https://example.com/planets",
        "license": "https://spdx.org/licenses/CC0-1.0.html",
        "creator": {"@type": "sc:Person", "name": "Somebody"},
        "datePublished": "2026-01-01",
        "distribution": [*files, pictures],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": name, "key": {"@id": f"{name}/{key}"}, "field": fields}
            for name, key, fields in (
                ("planets", "planet", planets),
                ("moons", "moon", moons),
                ("looks", "planet", looks),
            )
        ],
    }


def found(
    folder: Path, description: dict[str, Any], how: Any = "full", **more: Any
) -> list[tuple[str, str]]:
    """(code, pointer) of what the data rules find."""
    path = folder / "metadata.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    static = validate(path)
    assert static.valid, static.text()
    checked = validate(path, data=how, cache=folder / "cache", **more)
    return [(one.code, one.pointer) for one in checked.problems if one.code in DATA_RULES]


def write_media(folder: Path, data: bytes) -> None:
    (folder / "pictures" / "Mars.png").write_bytes(data)


def rewrite(name: str, old: str, new: str) -> Edit:
    """Change a file, and its checksum and size in the description."""

    def edit(description: dict[str, Any], folder: Path) -> None:
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        fresh = described(folder)["distribution"]
        description["distribution"][:2] = fresh[:2]

    return edit


def put(pointer: str, value: Any) -> Edit:
    """Set one value of the description."""

    def edit(description: dict[str, Any], folder: Path) -> None:
        *steps, last = pointer.strip("/").split("/")
        place: Any = description
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(last) if isinstance(place, list) else last] = value

    return edit


def replace_file(name: str, data: bytes) -> Edit:
    """Change a file and leave the description as it is."""
    return lambda description, folder: (folder / name).write_bytes(data) and None


def in_latin_1(codec: str) -> Edit:
    """Let a moon's name have a letter beyond ASCII, and declare the moons to be Latin-1."""

    def edit(description: dict[str, Any], folder: Path) -> None:
        (folder / "moons.csv").write_bytes(MOONS.replace("Titania", "Títania").encode(codec))
        fresh = described(folder)["distribution"][1]
        description["distribution"][1] = fresh | {"encodingFormat": "text/csv; charset=latin-1"}

    return edit


def lists_of_planets(written: str, *steps: dict[str, str]) -> Edit:
    """Let the moons have lists of planets, Triton those that are written."""

    def edit(description: dict[str, Any], folder: Path) -> None:
        rewrite("moons.csv", "Triton,Neptune", f"Triton,{written}")(description, folder)
        planets = description["recordSet"][1]["field"][1]
        planets["isArray"] = True
        planets["source"]["transform"] = list(steps)

    return edit


PARTS, NAME = {"separator": ";"}, {"regex": "^([A-Z][a-z]+)$"}

CASES: dict[str, tuple[str, Edit, Edit]] = {
    "CR901": (
        "/distribution/0/contentUrl",
        put("/distribution/0/contentUrl", "planet.csv"),
        put("/distribution/0/contentUrl", "./planets.csv"),
    ),
    "CR902": (
        "/distribution/0/sha256",
        replace_file("planets.csv", PLANETS.replace("Mars", "Ares").encode()),
        replace_file("planets.csv", PLANETS.encode()),
    ),
    "CR904": (
        "/distribution/2/includes",
        put("/distribution/2/includes", "pictures/*.jpg"),
        put("/distribution/2/includes", "*/*.png"),
    ),
    "CR906": (
        "/distribution/1/encodingFormat",
        in_latin_1("utf-8"),
        in_latin_1("latin-1"),
    ),
    "CR911": (
        "/recordSet/0/field/1/source/extract/column",
        put("/recordSet/0/field/1/source/extract/column", "radius"),
        put("/recordSet/0/field/1/source/extract/column", "radius_km"),
    ),
    "CR912": (
        "/recordSet/1/field/2/dataType",
        rewrite("moons.csv", "1353", "large"),
        rewrite("moons.csv", "1353", "NA"),
    ),
    "CR913": (
        "/recordSet/2/field/0/source/transform/regex",
        put("/recordSet/2/field/0/source/transform/regex", r"^(Mars|Uranus)\.png$"),
        put("/recordSet/2/field/0/source/transform/regex", r"^(Mars|Uranus|Nep\w+)\.png$"),
    ),
    "CR913 in lists": (
        "/recordSet/1/field/1/source/transform/1/regex",
        lists_of_planets("Neptune;mars;Mars", PARTS, NAME),
        lists_of_planets("Neptune;Mars", PARTS, NAME),
    ),
    "CR913 before there are lists": (
        "/recordSet/1/field/1/source/transform/0/regex",
        lists_of_planets("Neptune;mars", {"regex": "^([A-Z][a-z]*(?:;[A-Z][a-z]+)*)$"}, PARTS),
        lists_of_planets("Neptune;Mars", {"regex": "^([A-Z][a-z]*(?:;[A-Z][a-z]+)*)$"}, PARTS),
    ),
    "CR914": (
        "/recordSet/1",
        rewrite("moons.csv", MOONS, "moon,planet,radius_km\n"),
        rewrite("moons.csv", MOONS, "moon,planet,radius_km\nPhobos,Mars,11\n"),
    ),
    "CR915": (
        "/recordSet/1",
        rewrite("moons.csv", MOONS, "moon,planet,radius_km,moon\nPhobos,Mars,11,x\n"),
        rewrite("moons.csv", MOONS, "moon,planet,radius_km,Moon\nPhobos,Mars,11,x\n"),
    ),
    "CR921": (
        "/recordSet/1/key",
        rewrite("moons.csv", "Titania", "Phobos"),
        rewrite("moons.csv", "Titania", "phobos"),
    ),
    "CR903": (
        "/distribution/1/contentSize",
        lambda made, folder: made["distribution"][1].update(contentSize="2 kB"),
        lambda made, folder: made["distribution"][1].update(contentSize="0.1 kB"),
    ),
    "CR941": (
        "/distribution/2/encodingFormat",
        lambda made, folder: write_media(folder, b"version https://git-lfs.github.com/spec/v1\n"),
        lambda made, folder: write_media(folder, b"<?xml version='1.0'?><svg/>"),
    ),
    "CR941 empty": (
        "/distribution/2/encodingFormat",
        lambda made, folder: write_media(folder, b""),
        lambda made, folder: write_media(folder, png(7)),
    ),
    "CR931": (
        "/recordSet/1/field/1/references",
        rewrite("moons.csv", "Neptune", "Pluto"),
        rewrite("moons.csv", "Neptune", "Mars"),
    ),
    "CR931 in lists": (
        "/recordSet/1/field/1/references",
        lists_of_planets("Neptune;Pluto", PARTS),
        lists_of_planets("Neptune;Mars", PARTS),
    ),
}


def test_a_right_description_has_nothing(folder: Path) -> None:
    assert found(folder, described(folder)) == []
    assert found(folder, described(folder), "sample") == []


@pytest.mark.quick(10)
@pytest.mark.parametrize("code", CASES)
@pytest.mark.parametrize("how", ["sample", "full"])
def test_one_edit_breaks_the_rule_and_a_near_one_keeps_it(
    folder: Path, code: str, how: str
) -> None:
    at, breaking, keeping = CASES[code]
    description = described(folder)
    if how == "full":  # what keeps the rule in all data keeps it in a sample of them
        kept = copy.deepcopy(description)
        keeping(kept, folder)
        assert found(folder, kept, how) == []
    breaking(description, fill(folder))
    if code == "CR913":  # what becomes null is no key
        del description["recordSet"][2]["key"]
    assert found(folder, description, how) == [(code[:5], at)]


def test_a_description_is_read_once_for_all_rules(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    original = reading.parse_document

    def parse(data: bytes, path: str | Path) -> reading.Document:
        parsed.append(path)
        return original(data, path)

    monkeypatch.setattr(reading, "parse_document", parse)
    assert found(folder, described(folder)) == []
    assert len(parsed) == 2  # without the data, and with them


def test_a_remote_file_is_left_alone_by_a_sample(folder: Path) -> None:
    description = described(folder)
    description["distribution"][0]["contentUrl"] = "https://example.com/planets.csv"
    assert found(folder, description, "sample") == [("CR905", "/distribution/0/contentUrl")]
    mapped = {"planets.csv": folder / "planets.csv"}
    assert found(folder, description, "sample", mapping=mapped) == []


@pytest.mark.parametrize("how", ["sample", "full"])
def test_what_cannot_be_looked_at_is_neither_valid_nor_invalid(folder: Path, how: str) -> None:
    path = folder / "metadata.json"

    def verdict(description: dict[str, Any]) -> tuple[str, list[str]]:
        path.write_text(json.dumps(description), encoding="utf-8")
        made = validate(path, data=how, offline=True, cache=folder / "cache")  # type: ignore[arg-type]
        assert made.to_dict()["verdict"] == made.verdict
        return made.verdict, [finding.pointer for finding in made.unknown]

    description = described(folder)
    assert verdict(description) == ("valid", [])
    url = "https://example.com/planets.csv"
    away = copy.deepcopy(description)
    away["distribution"][0]["contentUrl"] = url
    assert verdict(away) == ("unknown", ["/distribution/0/contentUrl"])
    # An error that was found elsewhere stays one.
    away["distribution"][1]["contentUrl"] = "nothing.csv"
    assert verdict(away) == ("invalid", ["/distribution/0/contentUrl"])


def test_every_rule_has_a_case() -> None:
    assert on_data.DATA_RULES is DATA_RULES
    assert set(DATA_RULES) == {*(code[:5] for code in CASES), "CR905"}


def told(folder: Path, description: dict[str, Any]) -> list[str]:
    """The messages of what the data rules find in all the data."""
    path = folder / "metadata.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    return [one.message for one in validate(path, data="full").problems if one.code in DATA_RULES]


def test_elements_of_lists_are_counted(folder: Path) -> None:
    description = described(folder)
    moons = "moon,planet,radius_km\nA,Mars;Pluto,1\nB,Pluto;sun;Ceres;,2\nC,,3\n"
    lists_of_planets("Neptune", PARTS, NAME)(description, folder)
    (folder / "moons.csv").write_text(moons, encoding="utf-8")
    description["distribution"][:2] = described(folder)["distribution"][:2]
    assert told(folder, description) == [
        '1 of 2 values do not match "^([A-Z][a-z]+)$", such as "Pluto;sun;Ceres;"; they become null',
        '3 elements with 2 values that "planets/planet" does not have, such as "Pluto", "Ceres"',
    ]


def test_a_value_may_stand_in_the_lists_that_are_referenced(folder: Path) -> None:
    (folder / "planets.csv").write_text(PLANETS.replace("Mars,", "Mars;Ares,"), encoding="utf-8")
    description = described(folder)
    planets = description["recordSet"][0]
    planets["field"][0] |= {"isArray": True}
    planets["field"][0]["source"]["transform"] = PARTS
    del planets["key"]
    assert told(folder, description) == []
    (folder / "planets.csv").write_text(PLANETS.replace("Mars,", "Ares;Mara,"), encoding="utf-8")
    description["distribution"][:2] = described(folder)["distribution"][:2]
    [message] = told(folder, description)
    assert message.startswith("1 record with 1 value that")


def test_a_value_that_matches_and_is_of_another_type_does_match(folder: Path) -> None:
    description = described(folder)
    rewrite("moons.csv", "1353", "~NA")(description, folder)
    description["recordSet"][1]["field"][2]["source"]["transform"] = {"regex": "^~?(.*)$"}
    assert told(folder, description) == []


def test_more_fields_than_one_query_tests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description = described(folder)
    rewrite("moons.csv", "1353", "large")(description, folder)
    at_once = told(folder, description)
    monkeypatch.setattr(value_tests, "AT_ONCE", 2)
    assert told(folder, description) == at_once
    assert at_once == ['1 of 4 values do not fit sc:Integer, such as "large"']


def test_a_sample_does_not_read_on(folder: Path) -> None:
    many = "".join(f"moon{number},Mars,{number}\n" for number in range(3000))
    rewrite("moons.csv", MOONS, f"moon,planet,radius_km\n{many}moon0,Pluto,last\n")(
        description := described(folder), folder
    )
    description["distribution"][:2] = described(folder)["distribution"][:2]
    assert found(folder, description, "sample") == []
    codes = {code for code, _ in found(folder, description, "full")}
    assert codes == {"CR912"}  # what cannot be loaded is not looked into further


def test_one_record_without_a_key_is_told(folder: Path) -> None:
    (folder / "moons.csv").write_text(MOONS.replace("Titania,", ","), encoding="utf-8")
    description = described(folder)
    moons = next(one for one in description["recordSet"] if one["@id"] == "moons")
    moons["key"] = {"@id": "moons/moon"}
    (folder / "metadata.json").write_text(json.dumps(description), encoding="utf-8")
    found = [one.message for one in validate(folder, data="full").problems if one.code == "CR921"]
    assert found == ["1 record without a whole key"]


@pytest.mark.parametrize("how", ["sample", "full"])
def test_patterns_of_paths_are_tested_beside_columns(folder: Path, how: Any) -> None:
    description = described(folder)
    for year in (2024, 2025):
        (folder / f"year={year}").mkdir()
        (folder / f"year={year}" / "a.csv").write_text("x\n1\n2\n", encoding="utf-8")
    rows = {"@type": "cr:FileSet", "@id": "years", "name": "years", "encodingFormat": "text/csv"}
    description["distribution"].append(rows | {"includes": "year=*/*.csv"})
    path = {"fileSet": {"@id": "years"}, "extract": {"fileProperty": "fullpath"}}
    x = {"fileSet": {"@id": "years"}, "extract": {"column": "x"}}
    year = field("rows", "year", "sc:Integer", path | {"transform": {"regex": r"year=(\d{4})"}})
    fields = [year, field("rows", "x", "sc:Integer", x)]
    description["recordSet"].append({"@type": "cr:RecordSet", "@id": "rows", "field": fields})
    assert found(folder, description, how) == []
    year["source"]["transform"]["regex"] = r"/year=(\d{4})"
    at = "/recordSet/3/field/0/source/transform/regex"
    assert found(folder, description, how) == [("CR913", at)]


@pytest.mark.parametrize("how", ["sample", "full"])
def test_an_empty_table_is_told_once_with_what_it_needs(folder: Path, how: Any) -> None:
    (folder / "moons.csv").write_bytes(b"")
    path = folder / "metadata.json"
    path.write_text(json.dumps(described(folder)), encoding="utf-8")
    [error] = [one for one in validate(path, data=how).problems if one.severity == "error"]
    assert (error.code, error.pointer) == ("CR911", "/recordSet/1/field/0/source")
    assert error.hint == "Put the names of the columns into its first line."


def test_a_table_without_records_has_a_hint(folder: Path) -> None:
    (folder / "moons.csv").write_text("moon,planet,radius_km\n", encoding="utf-8")
    path = folder / "metadata.json"
    path.write_text(json.dumps(described(folder)), encoding="utf-8")
    [warning] = [one for one in validate(path, data="full").problems if one.severity == "warning"]
    assert warning.code == "CR914"
    assert warning.hint


SEEN_BY = {
    "fileObject": {"@id": "moons.csv"},
    "extract": {"column": "planet"},
}
OUTER = {"field": {"@id": "planets/planet"}}


@pytest.mark.parametrize(
    ("parent", "sub", "joined"),
    [
        ({"source": SEEN_BY, "references": OUTER}, column("moons.csv", "moon"), True),
        (
            {"source": SEEN_BY, "references": column("planets.csv", "planet")},
            column("moons.csv", "moon"),
            True,
        ),
        (None, column("moons.csv", "moon"), False),
        ({"source": SEEN_BY, "references": OUTER}, column("planets.csv", "radius_km"), False),
        (
            {"source": column("planets.csv", "planet"), "references": OUTER},
            column("moons.csv", "moon"),
            False,
        ),
    ],
)
def test_lists_of_rows_are_told_as_unjoined_where_they_cannot_be_loaded(
    folder: Path, parent: dict[str, Any] | None, sub: dict[str, Any], joined: bool
) -> None:
    description = described(folder)
    name = field("planets", "moons/name", "sc:Text", sub)
    moons = {"@type": "cr:Field", "@id": "planets/moons", "isArray": True, "subField": [name]}
    description["recordSet"][0]["field"].append(moons | ({"parentField": parent} if parent else {}))
    path = folder / "metadata.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    errors = [one.code for one in validate(path).problems if one.severity == "error"]
    assert errors == ([] if joined else ["CR421"])
    with Dataset(path) as dataset:
        if not joined:
            with pytest.raises(InputError, match="nothing joins"):
                list(dataset.records("planets").rows())
            return
        rows = {
            row["planets/planet"]: row["planets/moons"] for row in dataset.records("planets").rows()
        }
    named = {planet: [one["planets/moons/name"] for one in rows[planet]] for planet in rows}
    assert named == {"Mars": ["Phobos"], "Uranus": ["Titania"], "Neptune": ["Triton"]}
