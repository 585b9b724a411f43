"""The community's descriptions: the valid have no error, the broken have those that a person sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.rules.table import Severity

FIELD = "/recordSet/0/field/0"

# Read off each description and the messages that stand beside it, by hand.
BROKEN: dict[str, list[tuple[str, str]]] = {
    "0.8/distribution_bad_contained_in": [("CR213", "/distribution/0/containedIn")],
    "0.8/distribution_bad_type": [("CR201", "/distribution/0/@type")],
    "0.8/distribution_missing_encoding_format": [("CR204", "/distribution/0")],
    "0.8/distribution_missing_name": [("CR025", "/distribution/0")],
    "0.8/distribution_missing_property_content_url": [("CR203", "/distribution/0")],
    "0.8/metadata_bad_type": [("CR101", "/@type")],
    "0.8/metadata_missing_property_name": [("CR102", "")],
    "0.8/mlfield_bad_source": [("CR402", f"{FIELD}/source/distribution")],
    "0.8/mlfield_bad_type": [("CR320", f"{FIELD}/@type")],
    "0.8/mlfield_missing_property_name": [("CR025", FIELD)],
    "0.8/mlfield_missing_source": [("CR012", f"{FIELD}/source")],
    "0.8/recordset_bad_type": [("CR300", "/recordSet/0/@type")],
    "0.8/recordset_missing_context_for_datatype": [("CR012", f"{FIELD}/dataType")],
    "0.8/recordset_missing_property_name": [("CR025", "/recordSet/0")],
    "0.8/recordset_wrong_join": [("CR421", "/recordSet/0/field/1/source")],
    "1.0/distribution_bad_contained_in": [("CR213", "/distribution/0/containedIn")],
    "1.0/distribution_bad_id": [("CR021", "/distribution/0/@id")],
    "1.0/distribution_bad_type": [("CR201", "/distribution/0/@type")],
    "1.0/distribution_missing_encoding_format": [("CR204", "/distribution/0")],
    "1.0/distribution_missing_property_content_url": [("CR203", "/distribution/0")],
    "1.0/metadata_bad_type": [("CR101", "/@type")],
    "1.0/mlfield_bad_type": [("CR320", f"{FIELD}/@type")],
    "1.0/mlfield_missing_source": [("CR012", f"{FIELD}/source")],
    "1.0/recordset_bad_type": [("CR300", "/recordSet/0/@type")],
    "1.0/recordset_missing_context_for_datatype": [("CR012", f"{FIELD}/dataType")],
    "1.1/mlfield_bad_array_definition": [("CR327", f"{FIELD}/arrayShape")],
    "1.1/multilingual_fields": [
        ("CR016", "/distribution/0/description/1"),
        ("CR016", "/recordSet/0/field/2/name"),
        ("CR016", "/recordSet/0/field/2/description/de"),
    ],
}


def test_no_valid_description_has_an_error(shared_data: Path) -> None:
    paths = sorted(shared_data.glob("croissant/datasets/*/*/*.json"))
    assert len(paths) == 73
    for path in paths:
        errors = [f for f in validate(path).problems if f.severity is Severity.ERROR]
        assert errors == [], path


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_description_has_the_errors_that_a_person_sees(
    shared_data: Path, name: str
) -> None:
    path = shared_data / "croissant/graphs" / name / "metadata.json"
    validation = validate(path)
    assert not validation.valid
    errors = [f for f in validation.problems if f.severity is Severity.ERROR]
    assert [(f.code, f.pointer) for f in errors] == BROKEN[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    for finding in errors:
        key = finding.pointer.rpartition("/")[2]
        if key and not key.isdigit():
            assert f'"{key}"' in lines[finding.line - 1]
        else:
            assert lines[finding.line - 1][finding.column - 1] in '{"0123456789'


def test_every_broken_description_is_in_the_table(shared_data: Path) -> None:
    folders = shared_data.glob("croissant/graphs/*/*/metadata.json")
    assert {"/".join(path.parts[-3:-1]) for path in folders} == set(BROKEN)


def test_old_messages_name_what_ours_do(shared_data: Path) -> None:
    """Where the reference implementation quotes a name that is wrong, our message has it too."""
    folder = shared_data / "croissant/graphs/0.8/mlfield_bad_source"
    assert "THISDOESNOTEXIST" in (folder / "output.txt").read_text(encoding="utf-8")
    (error,) = [
        f for f in validate(folder / "metadata.json").problems if f.severity is Severity.ERROR
    ]
    assert '"THISDOESNOTEXIST"' in error.message
    assert json.loads(json.dumps(error.to_dict()))["pointer"] == error.pointer
