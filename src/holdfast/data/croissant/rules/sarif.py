"""Findings as SARIF 2.1.0, the format in which code-scanning services and editors take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast import __version__
from holdfast.data.croissant.rules.table import DATA_RULES, RULES, Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def log(path: Path | str, findings: Sequence[Finding]) -> dict[str, Any]:
    """A log of one run over one description: every rule on descriptions, and a result for each finding."""
    # Rules on data are known only once data were checked: those that found something are listed.
    codes = sorted({*RULES, *(finding.code for finding in findings)})
    places = {code: place for place, code in enumerate(codes)}
    uri = path if isinstance(path, str) else quote(path.as_posix())
    if isinstance(path, Path) and path.is_absolute():
        uri = path.as_uri()
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "holdfast",
                        "version": __version__,
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, places[finding.code], uri) for finding in findings],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    rule = RULES.get(code) or DATA_RULES[code]
    described = {
        "id": code,
        "name": rule.check.__name__.replace("_", " ").title().replace(" ", ""),
        "shortDescription": {"text": f"{rule.title}."},
        "helpUri": rule.clause.url,
        "defaultConfiguration": {"level": rule.severity.value},
    }
    return described | ({"help": {"text": rule.hint}} if rule.hint else {})


def _result(finding: Finding, place: int, uri: str) -> dict[str, Any]:
    text = f"{finding.message}. {finding.hint}" if finding.hint else finding.message
    return {
        "ruleId": finding.code,
        "ruleIndex": place,
        "level": finding.severity.value,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri},
                    "region": {"startLine": finding.line, "startColumn": finding.column},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.pointer, "kind": "value"}],
            }
        ],
    }
