"""The table of rules: every rule has a breach and a twin; the good description has nothing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from good_description import DROP, GOOD, OLD, edited, written
from rule_cases import CASES, Case

from holdfast.data.croissant.rules.checking import Validation, validate
from holdfast.data.croissant.rules.table import RULES, Severity
from holdfast.data.croissant.rules.wording import did_you_mean


def check(tmp_path: Path, text: str, *, strict: bool = False) -> Validation:
    path = tmp_path / "metadata.json"
    path.write_text(text, encoding="utf-8")
    return validate(path, strict=strict)


def found(validation: Validation) -> list[tuple[str, str]]:
    return [(finding.code, finding.pointer) for finding in validation.problems]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("good", [GOOD, OLD], ids=["1.1", "0.8"])
def test_the_good_descriptions_are_clean(tmp_path: Path, good: Any, strict: bool) -> None:
    assert check(tmp_path, written(good), strict=strict).problems == ()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_edit_breaks_one_rule_and_its_twin_none(tmp_path: Path, case: Case) -> None:
    text = written(edited(case.edits, case.base))
    if case.text:
        assert case.text[0] in text
        text = text.replace(*case.text, 1)
    assert found(check(tmp_path, text)) == [(case.code, case.at)]
    twin = written(edited(case.twin, case.base))
    if case.twin_text:
        assert case.twin_text[0] in twin
        twin = twin.replace(*case.twin_text, 1)
    assert check(tmp_path, twin, strict=True).problems == ()


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == set(RULES)


def test_every_rule_says_what_it_is() -> None:
    for code, rule in RULES.items():
        assert code == rule.code
        assert len(code) == 5
        assert rule.title
        assert rule.hint or code in ("CR012", "CR016", "CR026", "CR404")
        assert len(rule.title) < 100
        assert rule.clause.url.startswith("https://")


def test_a_line_and_a_column_lead_to_the_place(tmp_path: Path) -> None:
    text = written(edited({"/recordSet/0/key/@id": "users/nobody"}))
    (finding,) = check(tmp_path, text).problems
    line = text.splitlines()[finding.line - 1]
    assert line[finding.column - 1 :] == "{"
    assert '"key"' in line


def test_strict_makes_errors_of_what_the_standard_demands(tmp_path: Path) -> None:
    text = written(edited({"/version": DROP, "/datePublished": "May"}))
    lenient, strict = check(tmp_path, text), check(tmp_path, text, strict=True)
    assert lenient.valid
    assert {finding.severity for finding in lenient.problems} == {Severity.WARNING, Severity.NOTE}
    assert [f.code for f in strict.problems if f.severity is Severity.ERROR] == ["CR110"]


def test_one_defect_in_many_places_is_one_finding(tmp_path: Path) -> None:
    rows = [{"breeds/name": f"{n}", "breeds/nr": n} for n in range(500)]
    validation = check(tmp_path, written(edited({"/recordSet/4/data": rows})))
    assert [code for code, _ in found(validation)] == ["CR305"]
    assert "499 more" in validation.problems[0].message


@pytest.mark.parametrize(
    ("word", "options", "near"),
    [
        ("users/nmae", ["users/name", "users/age"], "users/name"),
        ("USERS", ["users"], "users"),
        ("elephant", ["users"], None),
        ("users", ["users"], None),
        ("", ["users"], None),
    ],
)
def test_what_was_meant(word: str, options: list[str], near: str | None) -> None:
    assert did_you_mean(word, options) == (f'Did you mean "{near}"?' if near else "")
