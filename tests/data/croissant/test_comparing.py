"""What changed between two versions of a description, and the version number that it calls for."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import good_description as good
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from respelling import Respelling

from holdfast.data.croissant.versions.changes import Difference
from holdfast.data.croissant.versions.comparison import diff
from holdfast.data.croissant.versions.migration import migrate
from holdfast.data.croissant.versions.version_numbers import is_enough, numbers, raised, stated_bump

SUITE = Path(__file__).resolve().parents[4] / "shared" / "data" / "croissant" / "datasets"
FILES = sorted(SUITE.glob("*/*/*.json"))
# Its `equivalentProperty` "id" means something else where another spelling makes "id" a keyword.
SPELT = [file for file in FILES[::5] if "data_provenance" not in str(file)]
OTHER = "0" * 64
DROP = good.DROP

ROWS = "record-set-data-changed"
FIELD = "/recordSet/0/field/1"
ADDED = {"@type": "cr:FileObject", "@id": "n", "contentUrl": "n", "sha256": OTHER}
INLINE: dict[str, Any] = {
    "@type": "cr:RecordSet",
    "@id": "more",
    "field": [{"@type": "cr:Field", "@id": "more/a", "dataType": "sc:Text"}],
}


def put(folder: Path, document: Any, name: str) -> Path:
    """Write a description."""
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def compared(old: Any, new: Any, folder: Path) -> Difference:
    """Two descriptions that are no files yet, compared."""
    return diff(put(folder, old, "old.json"), put(folder, new, "new.json"))


def at(document: Any, pointer: str) -> Any:
    """What stands at a pointer."""
    for step in pointer.split("/")[1:]:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


# One edit, the kind of change it is, and the bump that it calls for.
EDITS: list[tuple[dict[str, Any], str, str]] = [
    ({"/description": "Others."}, "description-changed", "patch"),
    ({"/name": "dogs"}, "name-changed", "patch"),
    ({"/license": "https://spdx.org/licenses/MIT.html"}, "license-changed", "patch"),
    ({"/creator/name": "B"}, "creator-changed", "patch"),
    ({"/publisher": DROP}, "publisher-removed", "patch"),
    ({"/keywords": ["cats", "pets"]}, "keywords-changed", "patch"),
    ({"/rai:dataBiases": "Few black cats were seen."}, "rai:dataBiases-added", "patch"),
    ({"/prov:wasGeneratedBy/prov:label": "drives"}, "prov:wasGeneratedBy-changed", "patch"),
    ({"/isLiveDataset": True}, "isLiveDataset-added", "patch"),
    ({"/dateModified": "2025-01-01"}, "dateModified-added", "none"),
    ({"/sdVersion": "2"}, "sdVersion-added", "none"),
    ({"/conformsTo": "http://mlcommons.org/croissant/1.0"}, "conformsTo-changed", "none"),
    ({"/version": "1.2.1"}, "version-changed", "none"),
    # resources
    ({"/distribution/0/sha256": OTHER}, "file-sha256-changed", "major"),
    ({"/distribution/0/sha256": DROP}, "file-sha256-removed", "patch"),
    ({"/distribution/0/contentSize": "2 kB"}, "file-contentSize-changed", "patch"),
    ({"/distribution/0/contentUrl": "https://example.net/u"}, "file-contentUrl-changed", "patch"),
    ({"/distribution/0/description": "Users."}, "file-description-added", "patch"),
    ({"/distribution/0/encodingFormat": "text/tsv"}, "file-encodingFormat-changed", "major"),
    ({"/distribution/3/includes": "*.png"}, "set-includes-changed", "major"),
    ({"/distribution/3/includes": ["*.jpg", "*.png"]}, "set-includes-changed", "major"),
    ({"/distribution/3/excludes": DROP}, "set-excludes-removed", "major"),
    ({"/distribution/3/excludes": ["old/*.jpg", "x"]}, "set-excludes-changed", "major"),
    ({"/distribution/3/containedIn": DROP}, "set-containedIn-removed", "major"),
    ({"/distribution/-": ADDED}, "file-added", "minor"),
    ({"/distribution/0/encodingFormat": "text/csv; charset=1252"}, "file-encodingFormat-changed", "major"),
    ({"/distribution/0/containedIn": {"@id": "pictures.zip"}}, "file-containedIn-added", "major"),
    # record sets
    ({"/recordSet/0/rai:dataBiases": "Few."}, "record-set-rai:dataBiases-added", "patch"),
    ({"/recordSet/-": INLINE}, "record-set-added", "minor"),
    ({"/recordSet/4": DROP}, "record-set-removed", "major"),
    ({"/recordSet/0/description": "People."}, "record-set-description-added", "patch"),
    ({"/recordSet/0/key": DROP}, "record-set-key-removed", "major"),
    ({"/recordSet/1/key": {"@id": "ratings/user"}}, "record-set-key-added", "patch"),
    ({"/recordSet/4/dataType": "sc:Enumeration"}, "record-set-dataType-changed", "major"),
    ({"/recordSet/4/examples": DROP}, "record-set-examples-removed", "patch"),
    # fields
    ({"/recordSet/0/field/-": INLINE["field"][0]}, "field-added", "minor"),
    ({"/recordSet/1/field/3": DROP}, "field-removed", "major"),
    ({f"{FIELD}/description": "When."}, "field-description-changed", "patch"),
    ({"/recordSet/0/field/0/dataType": "sc:Number"}, "field-dataType-changed", "major"),
    ({"/recordSet/0/field/0/dataType": "cr:Int8"}, "field-dataType-changed", "major"),
    ({"/recordSet/0/field/0/dataType": "sc:Text"}, "field-dataType-changed", "major"),
    ({f"{FIELD}/dataType": ["sc:Date", "wd:Q1"]}, "field-dataType-changed", "major"),
    ({f"{FIELD}/source/extract/column": "birthday"}, "field-source-changed", "major"),
    ({f"{FIELD}/source/format": "dd.MM.yyyy"}, "field-source-changed", "major"),
    ({"/recordSet/1/field/3/value": 6}, "field-value-changed", "major"),
    ({"/recordSet/0/field/2/arrayShape": "3"}, "field-arrayShape-changed", "major"),
    ({"/recordSet/0/field/2/arrayShape": "-1,2"}, "field-arrayShape-changed", "major"),
    ({f"{FIELD}/isArray": True}, "field-isArray-added", "major"),
    ({f"{FIELD}/equivalentProperty": "sc:birthDate"}, "field-equivalentProperty-added", "patch"),
    ({"/recordSet/1/field/0/references/field/@id": "breeds/number"}, "field-references-changed", "major"),
    ({"/recordSet/0/field/3/subField/1": DROP}, "field-removed", "major"),
    # splits and inline records
    ({"/recordSet/2/field/2/source/transform/regex": "^(test|train)/x"}, "field-source-changed", "major"),
    ({"/recordSet/3/data/-": {"splits/name": "val", "splits/url": "u"}}, ROWS, "major"),
    ({"/recordSet/3/data/1": DROP}, ROWS, "major"),
    ({"/recordSet/4/data/-": {"breeds/name": "Lykoi", "breeds/number": 3}}, ROWS, "major"),
    ({"/recordSet/4/data": DROP}, "record-set-data-removed", "major"),
]  # fmt: skip


@pytest.mark.quick(20)
@pytest.mark.parametrize(
    ("edits", "kind", "bump"), EDITS, ids=[f"{i}-{one[1]}" for i, one in enumerate(EDITS)]
)
def test_single_edits(edits: dict[str, Any], kind: str, bump: str, tmp_path: Path) -> None:
    new = good.edited(edits)
    found = compared(good.GOOD, new, tmp_path)
    assert [(one.kind, one.bump) for one in found.changes] == [(kind, bump)]
    assert found.needed == bump
    for pointer, document in ((found.changes[0].old_at, good.GOOD), (found.changes[0].new_at, new)):
        if pointer is not None:
            at(document, pointer)  # it leads somewhere
    assert found.changes[0].message == found.sections()[0].tables[0].data["change"][0].as_py()
    back = compared(new, good.GOOD, tmp_path)
    mirror = {"added": "removed", "removed": "added"}
    head, _, tail = kind.rpartition("-")
    assert [one.kind for one in back.changes] == [f"{head}-{mirror.get(tail, tail)}"]
    assert (back.changes[0].old_at, back.changes[0].new_at) == (
        found.changes[0].new_at,
        found.changes[0].old_at,
    )


def test_groups(tmp_path: Path) -> None:
    found = [compared(good.GOOD, good.edited(edits), tmp_path) for edits, _, _ in EDITS[::3]]
    groups = {change.group for one in found for change in one.changes}
    assert groups == {"metadata", "resources", "record sets", "fields"}


@pytest.mark.parametrize("file", SPELT, ids=lambda file: "/".join(file.parts[-3:]))
@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_spelling_and_order_do_not_count(
    file: Path, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    shuffled = copy.deepcopy(document)
    for key in ("distribution", "recordSet"):
        if isinstance(shuffled.get(key), list):
            shuffled[key] = data.draw(st.permutations(shuffled[key]))
    respelt = Respelling(data.draw, dict(reversed(shuffled.items()))).document()
    found = diff(file, put(tmp_path_factory.mktemp("spelt"), respelt, "new.json"))
    assert found.changes == ()
    assert found.needed == "none"
    assert found.suffices


@pytest.mark.parametrize("file", FILES[::4], ids=lambda file: "/".join(file.parts[-3:]))
def test_a_migration_changes_nothing_but_the_description(file: Path, tmp_path: Path) -> None:
    found = diff(file, migrate(file).write(tmp_path / "new.json"))
    assert {one.group for one in found.changes} <= {"metadata"}
    assert found.needed in ("none", "patch")


def test_another_id_is_another_part(tmp_path: Path) -> None:
    text = json.dumps(good.GOOD).replace('"@id": "pictures.zip"', '"@id": "all.zip"')
    found = compared(good.GOOD, json.loads(text), tmp_path)
    assert [(one.kind, one.subject, one.bump) for one in found.changes] == [
        ("file-removed", "pictures.zip", "major"),
        ("set-containedIn-changed", "pictures", "major"),
        ("file-added", "all.zip", "minor"),
    ]


def test_other_files_of_the_same_data(tmp_path: Path) -> None:
    packed = good.edited(
        {
            "/distribution/0/encodingFormat": "application/x-parquet",
            "/distribution/0/sha256": OTHER,
            "/recordSet/0/field/0/source/extract/column": "ID",
        }
    )
    found = compared(good.GOOD, packed, tmp_path)
    assert (found.needed, found.proven) == ("major", "none")  # only the data can tell
    assert found.suggested == "2.0.0"


def test_whether_the_version_suffices_is_yes_no_or_cannot_tell(tmp_path: Path) -> None:
    other_bytes = {"/distribution/0/sha256": OTHER}

    def suffices(version: str, edits: dict[str, Any]) -> bool | None:
        return compared(good.GOOD, good.edited({**edits, "/version": version}), tmp_path).suffices

    assert suffices("2.0.0", other_bytes) is True
    assert suffices("1.2.1", other_bytes) is None  # the same records may be written otherwise
    assert suffices("1.2.1", {"/recordSet/4": DROP}) is False


@pytest.mark.parametrize(
    ("edits", "unknown"),
    [
        ({}, []),
        ({"/distribution/0/sha256": DROP}, ["users.csv"]),  # nobody can tell from one side alone
        ({"/distribution/0/sha256": DROP, "/distribution/0/md5": "0" * 32}, ["users.csv"]),
        ({"/distribution/0/sha256": OTHER}, []),  # it changed: that is known
    ],
)
def test_files_without_a_checksum_on_both_sides_are_named(
    edits: dict[str, Any], unknown: list[str], tmp_path: Path
) -> None:
    found = compared(good.GOOD, good.edited(edits), tmp_path)
    assert list(found.unverified) == unknown
    assert len(found.to_dict()["unknown"]) == len(unknown)


@pytest.mark.parametrize(
    ("old", "new", "edit", "suffices", "suggested"),
    [
        ("1.2.0", "1.2.0", {}, True, None),
        ("1.2.0", "1.3.0", {"/description": "x"}, True, "1.2.1"),
        ("1.2.0", "1.2.0", {"/description": "x"}, False, "1.2.1"),
        ("1.2.0", "1.2.0", {"/description": "x", "/sdVersion": "2"}, False, "1.2.1"),
        ("1.2.0", "1.2.1", {"/recordSet/-": INLINE}, False, "1.3.0"),
        ("1.2.0", "2.0.0", {"/recordSet/0": DROP}, True, "2.0.0"),
        ("1.2.0", "1.9.0", {"/recordSet/4": DROP}, False, "2.0.0"),
        ("1.2.0", "1.1.0", {}, False, None),
        ("2024-01-01", "2024-05-01", {"/description": "x"}, None, None),
        ("1.2.0", DROP, {"/description": "x"}, False, "1.2.1"),
        (DROP, DROP, {"/description": "x"}, False, None),
        (DROP, DROP, {}, True, None),
    ],
)
def test_versions_are_held_against_changes(
    old: Any,
    new: Any,
    edit: dict[str, Any],
    suffices: bool | None,
    suggested: str | None,
    tmp_path: Path,
) -> None:
    before = good.edited({"/version": old})
    found = compared(before, good.edited({**edit, "/version": new}), tmp_path)
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["suffices"], plain["suggested"]) == (suffices, suggested)
    assert sum(plain["counts"].values()) == len(found.changes)


def test_numbers_of_versions() -> None:
    assert numbers("v1.2") == (1, 2, 0)
    assert numbers("1.2.3-rc.1+b") == (1, 2, 3)
    assert numbers("01.2.3") is None
    assert stated_bump("1.2.3", "1.3.0") == "minor"
    assert stated_bump("1.2.3", "1.2.3 ") == "none"
    assert is_enough("major", "patch")
    assert not is_enough("missing", "patch")
    assert raised("1.2.3", "major") == "2.0.0"
    assert raised("x", "major") is None


def test_the_order_of_transforms_and_records_counts(tmp_path: Path) -> None:
    steps = [{"regex": "^(.*)$"}, {"separator": ","}]
    rows = [{"splits/name": name, "splits/url": "u"} for name in ("train", "test")]
    for pointer, values in (
        ("/recordSet/2/field/2/source/transform", steps),
        ("/recordSet/3/data", rows),
    ):
        sides = [good.edited({pointer: one}) for one in (values, values[::-1])]
        assert [one.bump for one in compared(*sides, tmp_path).changes] == ["major"]
        assert not compared(sides[0], sides[0], tmp_path).changes
