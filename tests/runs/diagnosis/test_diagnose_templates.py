"""What no rule knows: ranked by how it separates failed from good runs, and made into rules."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runs.diagnosis.diagnosing import diagnose
from holdfast.runs.diagnosis.rules import load
from holdfast.runs.diagnosis.templates import masked, separation, severity, suggested_rule


def runs(folder: Path, name: str, count: int, extra: str) -> list[Path]:
    paths = []
    for number in range(count):
        path = folder / f"{name}_{number}.log"
        steps = "".join(f"step {step} loss 0.{step}{number}\n" for step in range(50))
        path.write_text(f"start of run {number}\n{steps}{extra.format(n=number)}done\n")
        paths.append(path)
    return paths


def test_what_separates_failed_from_good_runs_comes_first(tmp_path: Path) -> None:
    failed = runs(
        tmp_path, "failed", 6, "cannot open cache, using none\nflux capacitor {n} is cold\n" * 2
    )
    good = runs(tmp_path, "good", 6, "cannot open cache, using none\n")
    found = diagnose(failed, good)
    assert found.cause is None
    assert "flux capacitor <*> is cold" in found.sentence
    first = found.unknown_templates[0]
    assert first.template == "flux capacitor <*> is cold"
    assert (first.failed_files, first.good_files, first.count) == (6, 0, 12)
    assert first.log_odds == pytest.approx(2 * math.log(6.5 / 0.5))
    assert all("cache" not in each.template for each in found.unknown_templates)


def test_files_count_and_not_lines(tmp_path: Path) -> None:
    failed = runs(tmp_path, "failed", 6, "rare word\n")
    failed[0].write_text("chatter\n" * 1000 + failed[0].read_text())
    good = runs(tmp_path, "good", 6, "")
    found = diagnose(failed, good)
    assert found.unknown_templates[0].template == "rare word"


def test_without_good_runs_words_of_trouble_count(tmp_path: Path) -> None:
    (path,) = runs(tmp_path, "run", 1, "coil 3: fatal overheat\nwarning: slow shard\n")
    found = diagnose(path)
    assert [each.template for each in found.unknown_templates] == [
        "coil <*> fatal overheat",
        "warning: slow shard",
    ]
    assert "--good" in found.unknown_rule


def test_a_suggested_rule_knows_its_line(tmp_path: Path) -> None:
    line = 'node-17: flux capacitor {coil "7\\8"} failed (code 0x7f3a) after 12.5 s [a|b]*'
    log = tmp_path / "run.log"
    log.write_text(f"step 1\n{line}\n")
    found = diagnose(log)
    assert found.cause is None
    mine_ = tmp_path / "rules.toml"
    mine_.write_text(found.unknown_templates[0].rule)
    again = diagnose(log, rules=mine_)
    assert again.cause == tomllib.loads(mine_.read_text())["rules"][0]["id"]
    assert again.evidence[0].line == 2


@given(st.text(min_size=3, max_size=120).filter(str.isprintable))
def test_any_line_makes_a_rule_that_can_be_read(text: str) -> None:
    from tempfile import TemporaryDirectory

    template = masked(text)
    if not template.replace("<*>", "").strip():
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rules.toml"
        path.write_text(suggested_rule(template), encoding="utf-8")
        rule_set = load(path)
    assert rule_set.match(" ".join(text.split()).encode()) == (0, {})


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_separation_is_antisymmetric(a: int, b: int, c: int, d: int) -> None:
    odds, error = separation(a, a + b, c, c + d)
    swapped, same = separation(c, c + d, a, a + b)
    assert odds == pytest.approx(-swapped)
    assert error == pytest.approx(same)
    assert error > 0


def test_severity_of_words() -> None:
    told = [severity(text) for text in ("FATAL: x", "an error", "it timed out", "slow", "step 5")]
    assert told == [4, 3, 2, 1, 0]
