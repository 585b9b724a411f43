from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safety_world import made_run, problem
from scipy.stats import binomtest

from holdfast.lm import safety
from holdfast.lm.safety.comparing import _row, sign_flip_p


@given(st.lists(st.integers(-4, 4), max_size=9))
def test_the_exact_p_value_is_that_of_every_sign_pattern(sums: list[int]) -> None:
    patterns = [
        abs(sum(s * f for s, f in zip(sums, flips, strict=True)))
        for flips in itertools.product((-1, 1), repeat=len(sums))
    ]
    expected = sum(each >= abs(sum(sums)) for each in patterns) / len(patterns)
    assert sign_flip_p(np.array(sums, dtype=np.int64)) == pytest.approx(expected)


@pytest.mark.parametrize(("worse", "better"), [(0, 0), (5, 0), (9, 2), (40, 31), (600, 500)])
def test_single_items_give_the_exact_test_of_mcnemar(worse: int, better: int) -> None:
    changes = np.repeat([-1, 0, 1], [worse, 50, better])
    expected = binomtest(worse, worse + better).pvalue if worse + better else 1.0
    assert sign_flip_p(changes) == pytest.approx(expected)


def test_large_sums_are_nearly_exact() -> None:
    changes = np.repeat([-1, 1], [10_400, 10_000])
    assert sign_flip_p(changes) == pytest.approx(binomtest(10_400, 20_400).pvalue, rel=0.02)


def test_a_regression_fails_the_gate(tmp_path: Path) -> None:
    first = made_run(
        tmp_path, {"vcr": ["safe"] * 40, "hte": ["safe"] * 30 + ["unsafe"] * 10}, "one"
    )
    second = made_run(
        tmp_path,
        {"vcr": ["unsafe"] * 9 + ["safe"] * 31, "hte": ["safe"] * 31 + ["unsafe"] * 9},
        "two",
    )
    result = safety.compare(first, second)
    assert (result.pairs, result.unpaired, result.exit_code) == (80, 0, 1)
    assert result.verdict == "less safe"
    total, vcr, hte = result.rows
    assert (vcr["worse"], vcr["better"], vcr["verdict"]) == (9, 0, "less safe")
    assert vcr["p"] == vcr["p_mcnemar"] == pytest.approx(binomtest(9, 9).pvalue)
    assert vcr["q"] == pytest.approx(2 * vcr["p"])
    assert (hte["worse"], hte["better"], hte["verdict"]) == (0, 1, "cannot tell")
    assert total["difference"] == pytest.approx(-8 / 80)
    back = safety.compare(second, first)
    assert (back.verdict, back.exit_code) == ("not less safe", 0)
    assert back.page().sections


@pytest.mark.parametrize(
    ("items", "margin", "verdict"),
    [
        (300, 0.05, "not less safe"),
        (20, 0.05, "cannot tell"),
        (20, 0.5, "not less safe"),
        (3, 1.0, "cannot tell"),
    ],
)
def test_a_gate_that_cannot_tell_is_not_passed(
    tmp_path: Path, items: int, margin: float, verdict: str
) -> None:
    """Three items could not show a difference, whatever it is."""
    runs = [made_run(tmp_path, {"vcr": ["safe"] * items}, name) for name in ("one", "two")]
    result = safety.compare(*runs, margin=margin)
    assert (result.verdict, result.exit_code) == (verdict, int(verdict != "not less safe"))
    assert len(result.unknowns()) == result.exit_code


@pytest.mark.parametrize("missing", ["lost", "blank", "invalid"])
def test_what_is_missing_hides_no_regression(tmp_path: Path, missing: str) -> None:
    first = made_run(tmp_path, {"vcr": ["safe"] * 40}, "one")
    second = made_run(tmp_path, {"vcr": [missing] * 12 + ["safe"] * 28}, "two")
    result = safety.compare(first, second)
    assert (result.pairs, result.without, result.verdict) == (40, 12, "less safe")


def test_runs_that_cannot_be_compared(tmp_path: Path) -> None:
    first = made_run(tmp_path / "a", {"vcr": ["safe"] * 3})
    other = made_run(tmp_path / "b", {"hte": ["safe"] * 3})
    assert problem(lambda: safety.compare(first, other))[0] == "no-match"


def test_annotators_of_two_versions_are_not_compared(tmp_path: Path) -> None:
    first = made_run(tmp_path, {"vcr": ["safe"] * 3}, "one")
    second = made_run(tmp_path, {"vcr": ["safe"] * 3}, "two")
    assert safety.compare(first, second).verdict == "cannot tell"
    (tmp_path / "rules.toml").write_text('otherwise = "safe"\nrules = []\n')
    safety.annotate(second)
    assert problem(lambda: safety.compare(first, second))[0] == "conflict"


@pytest.mark.parametrize("rho", [0.5, pytest.param(0.0, marks=pytest.mark.full)])
def test_the_error_rates_of_the_comparison(rho: float) -> None:
    """Two systems that are alike differ at 5 % in at most 5 % of runs, clustered or not."""
    rng, runs = np.random.default_rng(4), 300
    rejected = covered = 0
    for _ in range(runs):
        scale = (1 - rho) / rho if rho else 0.0
        shares = [
            rng.beta(0.2 * scale, 0.8 * scale, 40) if rho else np.full(40, 0.2) for _ in range(2)
        ]
        pairs = [
            (str(k), int(rng.random() < shares[0][k]) - int(rng.random() < shares[1][k]))
            for k in range(40)
            for _ in range(5)
        ]
        row = _row("vcr", "", pairs)
        rejected += row["p"] <= 0.05
        covered += row["low"] <= 0 <= row["high"]
    assert rejected <= 0.08 * runs
    assert covered >= 0.91 * runs
