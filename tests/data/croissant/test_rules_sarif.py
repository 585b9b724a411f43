"""SARIF: the facts of its schema that a reader depends on, checked on a log with every kind of finding."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from good_description import DROP, edited, written

from holdfast.data.croissant.rules.checking import validate


def test_a_log_is_sarif(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "metadata.json"
    path.parent.mkdir()
    edits = {
        "/description": DROP,
        "/version": DROP,
        "/datePublished": "May",
        "/distribution/0/sha256": DROP,
    }
    path.write_text(written(edited(edits)), encoding="utf-8")
    validation = validate(path)
    log = json.loads(json.dumps(validation.sarif()))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    assert set(run) <= {"tool", "results", "columnKind", "artifacts", "invocations", "properties"}
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = run["tool"]["driver"]
    assert driver["name"] == "holdfast"
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"].endswith(".")
        assert urlsplit(rule["helpUri"]).scheme == "https"
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    assert {result["level"] for result in run["results"]} == {"error", "warning", "note"}
    assert len(run["results"]) == len(validation.problems)
    for result, finding in zip(run["results"], validation.problems, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["message"]["text"]
        (location,) = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]["uri"]
        assert artifact == path.as_uri()
        assert " " not in artifact
        region = location["physicalLocation"]["region"]
        assert region == {"startLine": finding.line, "startColumn": finding.column}
        assert min(region.values()) >= 1
        (logical,) = location["logicalLocations"]
        assert logical["fullyQualifiedName"] == finding.pointer


def test_a_relative_path_stays_relative(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mö.json").write_text(written(edited({"/description": DROP})), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (run,) = validate("mö.json").sarif()["runs"]
    location = run["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "m%C3%B6.json"}
