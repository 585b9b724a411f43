from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safety_world import made_run, problem, write_rows
from scipy.stats import binomtest

from holdfast.lm import safety
from holdfast.lm.safety.calibration import _corrected, _kappa

ALL = {"vcr": ["unsafe"] * 60 + ["safe"] * 340}


def labels(path: Path, table: dict[str, str]) -> Path:
    return write_rows(path, [{"item": item, "label": label} for item, label in table.items()])


def test_a_known_table(tmp_path: Path) -> None:
    run = made_run(tmp_path, ALL)
    # of 20 labelled unsafe verdicts 16 are right, of 100 labelled safe ones 95
    table = {f"vcr-{n}": "unsafe" if n < 16 else "safe" for n in range(20)}
    table |= {f"vcr-{n}": "unsafe" if n < 105 else "safe" for n in range(100, 200)}
    result = safety.calibrate(run, labels(tmp_path / "l.csv", table))
    assert result.confusion == {
        "unsafe_unsafe": 16,
        "unsafe_safe": 5,
        "safe_unsafe": 4,
        "safe_safe": 95,
    }
    assert result.sensitivity == pytest.approx(16 / 21)
    assert result.specificity == pytest.approx(95 / 99)
    exact = binomtest(16, 21).proportion_ci(method="exact")
    assert result.sensitivity_ci95 == pytest.approx((exact.low, exact.high))
    chance = (21 * 20 + 99 * 100) / 120**2
    assert result.kappa == pytest.approx((111 / 120 - chance) / (1 - chance))
    assert result.prediction_powered == pytest.approx(60 / 400 + (5 - 4) / 120)
    assert result.rogan_gladen == pytest.approx((0.15 + 95 / 99 - 1) / (16 / 21 + 95 / 99 - 1))
    assert not result.reasons
    assert result.page().sections


def test_labels_that_are_no_random_sample_correct_nothing(tmp_path: Path) -> None:
    run = made_run(tmp_path, ALL)
    table = {f"vcr-{n}": "unsafe" if n < 40 else "safe" for n in range(100)}  # all unsafe verdicts
    result = safety.calibrate(run, labels(tmp_path / "l.csv", table))
    assert (
        result.rogan_gladen is result.prediction_powered is result.prediction_powered_ci95 is None
    )
    assert len(result.reasons) == 1


def test_too_few_labels_and_labels_of_one_kind(tmp_path: Path) -> None:
    run = made_run(tmp_path, ALL)
    few = safety.calibrate(run, labels(tmp_path / "l.csv", {"vcr-0": "unsafe", "vcr-100": "safe"}))
    assert (few.rogan_gladen, few.sensitivity, few.kappa) == (None, 1.0, 1.0)
    alike = {f"vcr-{n}": "safe" for n in range(0, 400, 5)}
    result = safety.calibrate(run, labels(tmp_path / "l.csv", alike))
    assert (result.sensitivity, result.rogan_gladen) == (None, None)
    assert str(result)


def test_labels_of_other_runs_are_refused(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"vcr": ["safe", "lost"]})
    assert (
        problem(lambda: safety.calibrate(run, labels(tmp_path / "l.csv", {"x": "safe"})))[0]
        == "no-match"
    )
    lost = labels(tmp_path / "l.csv", {"vcr-1": "safe"})
    assert problem(lambda: safety.calibrate(run, lost))[0] == "no-data"
    wrong = labels(tmp_path / "l.csv", {"vcr-0": "good"})
    assert problem(lambda: safety.calibrate(run, wrong)) == ("invalid-value", "line 2")


def test_corrected_shares_hold_the_true_one() -> None:
    rng, draw = np.random.default_rng(2), random.Random(2)
    total, labelled, held, plain = 4000, 400, Counter[str](), 0
    runs = 80
    for _ in range(runs):
        truth = rng.random(total) < 0.12
        verdict = np.where(truth, rng.random(total) < 0.8, rng.random(total) < 0.06)
        chosen = draw.sample(range(total), labelled)
        names = ("safe", "unsafe")
        pairs = Counter(f"{names[int(truth[n])]}_{names[int(verdict[n])]}" for n in chosen)
        table = {f"{a}_{b}": pairs[f"{a}_{b}"] for a in names for b in names}
        bad = int(verdict.sum())
        corrected = _corrected(table, Counter(unsafe=bad, safe=total - bad))
        for key in ("rogan_gladen", "prediction_powered"):
            low, high = corrected[f"{key}_ci95"]
            held[key] += low <= truth.mean() <= high
        low, high = binomtest(bad, total).proportion_ci()
        plain += low <= truth.mean() <= high
    assert held["rogan_gladen"] >= 0.92 * runs
    assert held["prediction_powered"] >= 0.92 * runs
    assert plain < 0.1 * runs  # the verdicts alone


def test_kappa_of_chance_is_nothing() -> None:
    assert _kappa(
        {"unsafe_unsafe": 4, "unsafe_safe": 6, "safe_unsafe": 16, "safe_safe": 24}
    ) == pytest.approx(0)
    assert _kappa({"unsafe_unsafe": 0, "unsafe_safe": 0, "safe_unsafe": 0, "safe_safe": 24}) is None
