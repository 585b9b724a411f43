"""The rule file: what it may say, and that no line is missed for speed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs.diagnosis.diagnosing import diagnose
from holdfast.runs.diagnosis.rules import check, groups_of, load, searcher, shipped_text

RULES = load()


def rule_file(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def one_rule(**changes: str) -> str:
    fields = {
        "id": '"x"',
        "kind": '"root"',
        "patterns": "['flux capacitor (?P<part>\\w+) failed']",
        "cause": '"the {part} failed"',
        **changes,
    }
    return "[[rules]]\n" + "\n".join(f"{name} = {value}" for name, value in fields.items() if value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rules = 3", "rules"),
        ("[[rules]]", r"rules\[0\].id"),
        ("colour = 1", "colour"),
        ("version = 2", "version"),
        ("extends = 1", "extends"),
        (one_rule(kind='"bad"'), "kind"),
        (one_rule(patterns="['(']"), r"patterns\[0\]"),
        (one_rule(patterns="['a(?=b)']"), r"patterns\[0\]"),
        (one_rule(patterns="['(?P<part>a)\\1']"), r"patterns\[0\]"),
        (one_rule(patterns="[]"), "patterns"),
        (one_rule(patterns='"x"'), "patterns"),
        (one_rule(patterns="[3]"), r"patterns\[0\]"),
        (one_rule(cause='"{nobody}"'), "cause"),
        (one_rule(cause='"{"'), "cause"),
        (one_rule(symptom='"flu"'), "symptom"),
        (one_rule(domains='["aliens"]'), "domains"),
        (one_rule(weight="101"), "weight"),
        (one_rule(weight="true"), "weight"),
        (one_rule(colour="1"), "colour"),
        (one_rule(frame="'['"), "frame"),
        (one_rule() + "\n" + one_rule(), r"rules\[1\].id"),
    ],
)
def test_a_wrong_file_names_its_key(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(InputError, match=place) as caught:
        load(rule_file(tmp_path, text))
    assert "rules.toml" in str(caught.value)


def test_files_that_are_no_rules(tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "absent.toml", "not-found"),
        (rule_file(tmp_path, "[[["), "invalid-syntax"),
    ):
        with pytest.raises(InputError) as caught:
            load(path)
        assert caught.value.code == code


def test_a_users_rule_comes_first_and_replaces(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("No space left on device\nflux capacitor coil failed\n")
    mine = rule_file(
        tmp_path,
        one_rule(weight="90") + "\n" + one_rule(id='"no_space"', patterns="['never']", cause='"x"'),
    )
    found = diagnose(log, rules=mine)
    assert (found.cause, found.sentence.split(" (")[0]) == ("x", "The coil failed")
    assert [other.cause for other in found.cascade] == []


def test_a_file_alone(tmp_path: Path) -> None:
    alone = load(rule_file(tmp_path, "extends = false\n" + one_rule()))
    assert [rule.id for rule in alone.rules] == ["x", "python_exception"]


def test_what_is_printed_can_be_read(tmp_path: Path) -> None:
    again = load(rule_file(tmp_path, "extends = false\n" + shipped_text()))
    assert [rule.id for rule in again.rules] == [rule.id for rule in RULES.rules]


def test_a_rule_about_frames(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/user/project/train.py", line 9, in main\n    step()\n'
        '  File "/home/user/project/data/reader.py", line 3, in read\n    rows[0]\n'
        "IndexError: list index out of range\n"
    )
    about = one_rule(
        patterns="['IndexError']", frame="'data/reader.py'", cause='"no rows in {frame}"'
    )
    found = diagnose(log, rules=rule_file(tmp_path, about))
    assert found.cause == "x"
    assert found.sentence.startswith("No rows in read (reader.py:3)")
    elsewhere = about.replace("data/reader.py", "model.py")
    assert diagnose(log, rules=rule_file(tmp_path, elsewhere)).cause == "python_exception"


def test_a_users_taxonomy(tmp_path: Path) -> None:
    taxonomy = tmp_path / "taxonomy.toml"
    taxonomy.write_text('[symptoms.disk_space]\nlabel = "Full"\ndomains = ["hardware"]\n')
    log = tmp_path / "run.log"
    log.write_text("No space left on device\n")
    found = diagnose(log, taxonomy=taxonomy)
    assert (found.label, found.domains) == ("Full", ("hardware",))


def test_shipped_rules_are_whole() -> None:
    check(RULES.rules, None, RULES.taxonomy)
    for rule in RULES.rules:
        assert rule.source, rule.id
        assert rule.symptom or rule.domains or rule.kind in ("restart", "info"), rule.id
        assert rule.kind not in ("root", "vague") or rule.remedy or rule.id == "interrupted"


def test_what_backtracking_cannot_search_ends(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("a" * 1900 + "\n" + "aab\n")
    found = diagnose(log, rules=rule_file(tmp_path, one_rule(patterns="['(a+)+b']", cause='"b"')))
    assert (found.cause, found.evidence[0].line) == ("x", 2)


def test_a_pattern_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(rule_file(tmp_path, one_rule(patterns="['(?:a.{1,900}){1,30}']", cause='"x"')))
    assert caught.value.code == "invalid-value"


@pytest.mark.examples(80)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_match_is_missed_by_the_search_for_all(data: st.DataObject) -> None:
    """Any text in which Python finds a shipped pattern, whatever stands around it, all at once finds."""
    patterns = tuple(pattern for _, pattern in RULES.patterns)
    place = data.draw(st.integers(0, len(patterns) - 1))
    plain = re.compile(patterns[place], re.IGNORECASE | re.ASCII)
    text = data.draw(st.from_regex(plain)).replace("\n", " ")
    text = text.replace("\v", " ")  # no blank for RE2
    line = f"{data.draw(st.text(max_size=5))}{text}{data.draw(st.text(max_size=5))}"
    raw = line.encode("utf-8", "replace")
    # As bytes: rules see those, of which any may be a character.
    if (found := re.compile(patterns[place].encode(), re.IGNORECASE).search(raw)) is None:
        return
    assert place in (searcher(patterns)(raw) or [])
    named = {name: text for name, text in found.groupdict().items() if text is not None}
    assert groups_of(patterns[place], raw).keys() == named.keys()


def test_patterns_see_a_bounded_text(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("x" * 2100 + " No space left on device\n")
    assert diagnose(log).cause is None
    assert re.search("2,000 characters", shipped_text())
