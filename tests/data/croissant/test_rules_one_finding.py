"""One mistake is told once, at its place; what the standard leaves open is no error."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from good_description import DROP, GOOD, edited, written

from holdfast.data.croissant.document.vocabulary import CONTEXTS
from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.rules.table import Finding, Severity

FIELD = "/recordSet/1/field/0"


def findings(tmp_path: Path, description: Any) -> tuple[Finding, ...]:
    path = tmp_path / "metadata.json"
    path.write_text(written(description), encoding="utf-8")
    return validate(path).problems


def codes(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.code, finding.pointer) for finding in found]


def renamed(pointer: str, name: str) -> Any:
    """The good description with another name for one property."""
    description = copy.deepcopy(GOOD)
    *ahead, last = pointer.strip("/").split("/")
    thing: Any = description
    for step in ahead:
        thing = thing[int(step)] if isinstance(thing, list) else thing[step]
    items = [(name if key == last else key, value) for key, value in thing.items()]
    thing.clear()
    thing.update(items)
    return description


@pytest.mark.parametrize(
    ("pointer", "name", "meant"),
    [
        ("/@context", "context", "@context"),
        ("/@type", "type", "@type"),
        ("/distribution", "distributions", "distribution"),
        ("/distribution/0/@id", "id", "@id"),
        ("/distribution/0/@type", "Type", "@type"),
        ("/distribution/0/@type", "@Type", "@type"),
        ("/distribution/0/sha256", "sha265", "sha256"),
        ("/recordSet/0/field", "fields", "field"),
        ("/recordSet/2/@id", "ID", "@id"),
        ("/rai:dataCollection", "rai:dataColection", "rai:dataCollection"),
    ],
)
def test_a_misspelt_property_is_told_once(
    tmp_path: Path, pointer: str, name: str, meant: str
) -> None:
    description = renamed(pointer, name)
    at = f"{pointer.rpartition('/')[0]}/{name}"
    (finding,) = findings(tmp_path, description)
    assert (finding.code, finding.pointer) == ("CR014", at)
    assert finding.hint == f'Did you mean "{meant}"?'


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"/distribution": 5}, ("CR016", "/distribution")),
        ({"/recordSet/0/field": 5}, ("CR016", "/recordSet/0/field")),
        ({"/url": ""}, ("CR018", "/url")),
        ({"/url": {}}, ("CR016", "/url")),
        ({"/license": ""}, ("CR018", "/license")),
        ({"/conformsTo": 5}, ("CR016", "/conformsTo")),
        ({"/conformsTo": ""}, ("CR018", "/conformsTo")),
        ({"/conformsTo": {"id": "x"}}, ("CR016", "/conformsTo")),
        ({"/distribution/0/@id": ""}, ("CR018", "/distribution/0/@id")),
        ({"/distribution/0/encodingFormat": ""}, ("CR018", "/distribution/0/encodingFormat")),
        ({f"{FIELD}/dataType": {"name": "sc:Text"}}, ("CR016", f"{FIELD}/dataType")),
        ({f"{FIELD}/source": ""}, ("CR018", f"{FIELD}/source")),
        ({f"{FIELD}/source/fileObject": {}}, ("CR026", f"{FIELD}/source/fileObject")),
        ({f"{FIELD}/source/fileObject": {"id": "x"}}, ("CR026", f"{FIELD}/source/fileObject")),
        ({f"{FIELD}/source/fileObject": ""}, ("CR018", f"{FIELD}/source/fileObject")),
        ({f"{FIELD}/source/fileObject": "nothing"}, ("CR402", f"{FIELD}/source/fileObject")),
        ({f"{FIELD}/source/fileObject": 5}, ("CR016", f"{FIELD}/source/fileObject")),
        ({"/recordSet/0/key": {"id": "x"}}, ("CR026", "/recordSet/0/key")),
        ({"/@context": {}}, ("CR012", "/@context")),
        ({"/@context": 5}, ("CR012", "/@context")),
        ({"/@context": "https://example.org/own.jsonld"}, ("CR013", "/@context")),
    ],
    ids=str,
)
def test_a_wrong_value_is_told_once(
    tmp_path: Path, edits: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = findings(tmp_path, edited(edits, GOOD))
    # Notes follow from what is no longer known; a prefix may be missing that is not Croissant's own.
    known = [f for f in found if f.severity is not Severity.NOTE]
    assert codes(tuple(known)) == [expected]


def test_a_missing_distribution_is_told_once(tmp_path: Path) -> None:
    found = findings(tmp_path, edited({"/distribution": DROP}, GOOD))
    dangling = [finding for finding in found if finding.code == "CR402"]
    assert len(dangling) == 1
    assert "there is no distribution" in dangling[0].message


def test_words_that_json_does_not_have_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(written(GOOD).replace('"cats"', "True", 1), encoding="utf-8")
    assert codes(validate(path).problems) == [("CR001", "/name")]


@pytest.mark.parametrize("name", ["/distribution/0/description", "/recordSet/0/description"])
def test_an_empty_description_of_a_part_is_no_error(tmp_path: Path, name: str) -> None:
    assert findings(tmp_path, edited({name: ""}, GOOD)) == ()


def test_what_the_recommended_context_forgets_is_no_error(tmp_path: Path) -> None:
    context = {**CONTEXTS["1.1"], "@vocab": "https://schema.org/", "sc": "https://schema.org/"}
    assert "replace" not in context
    transform = {"replace": "a/b"}
    description = edited(
        {"/@context": {**GOOD["@context"], **context}, f"{FIELD}/source/transform": transform}, GOOD
    )
    del description["@context"]["replace"]
    (finding,) = [f for f in findings(tmp_path, description) if f.code == "CR012"]
    assert finding.severity is Severity.WARNING
    assert finding.hint == 'Add "replace": "cr:replace" to @context.'


def test_a_source_in_the_words_of_version_0_8_is_told(tmp_path: Path) -> None:
    description = renamed(f"{FIELD}/source/fileObject", "distribution")
    (finding,) = findings(tmp_path, description)
    assert (finding.code, finding.pointer) == ("CR404", f"{FIELD}/source/distribution")
    assert finding.hint == "Write fileObject in place of distribution."


def test_a_slip_in_the_context_is_told_as_one(tmp_path: Path) -> None:
    found = findings(tmp_path, edited({"/@context/extract": "cr:extrct"}, GOOD))
    assert {finding.code for finding in found} == {"CR014"}
    assert {finding.hint for finding in found} == {'In @context, let "extract" be "cr:extract".'}


def test_a_namespace_of_ones_own_is_no_slip(tmp_path: Path) -> None:
    own = {"/@context/schema": "https://example.org/own/", "/schema:colour": "red"}
    assert findings(tmp_path, edited(own)) == ()
    context = {**GOOD["@context"], "@vocab": "https://example.org/own/"}
    keys = [key for key in GOOD if key[0] not in "@rp" and key not in context]
    context |= {key: f"sc:{key}" for key in (*keys, "publisher")}
    context |= {name: f"sc:{name}" for name in ("contentUrl", "contentSize", "encodingFormat")}
    context |= {name: f"sc:{name}" for name in ("sha256", "Person", "Organization", "CreativeWork")}
    assert findings(tmp_path, edited({"/@context": context, "/colour": "red"})) == ()


def test_references_in_full_to_relative_ids(tmp_path: Path) -> None:
    def in_full(value: Any) -> Any:
        if isinstance(value, list):
            return [in_full(item) for item in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"@id"}:
            return {"@id": f"https://example.org/cats/{value['@id']}"}
        return {key: in_full(item) for key, item in value.items()}

    description = copy.deepcopy(GOOD)
    description["@context"] = {**GOOD["@context"], "@base": "https://example.org/cats/"}
    for part in ("distribution", "recordSet"):
        description[part] = in_full(GOOD[part])
    assert description["recordSet"][0]["key"] == {"@id": "https://example.org/cats/users/id"}
    assert findings(tmp_path, description) == ()
    description["recordSet"][0]["key"] = {"@id": "https://example.org/cats/users/ident"}
    assert codes(findings(tmp_path, description)) == [("CR302", "/recordSet/0/key")]


def test_another_name_of_id_names_things_as_well(tmp_path: Path) -> None:
    context = {**GOOD["@context"], "id": "@id"}
    key, file = "/recordSet/0/key", f"{FIELD}/source/fileObject"
    edits = {"/@context": context, key: {"id": "users/id"}, file: {"id": "ratings.csv"}}
    assert findings(tmp_path, edited(edits, GOOD)) == ()
    edits[key] = {"id": "users/ident"}
    assert codes(findings(tmp_path, edited(edits, GOOD))) == [("CR302", key)]
