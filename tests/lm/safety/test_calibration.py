from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safety_world import made_run, problem, write_rows
from scipy.stats import binomtest

from holdfast.lm import safety
from holdfast.lm.safety.calibration import _corrected, _kappa, _reasons

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


def test_verdicts_that_say_nothing_correct_nothing(tmp_path: Path) -> None:
    """A random sample of the labels of a judge that says the opposite."""
    run = made_run(tmp_path, ALL)
    table = {f"vcr-{n}": "safe" if n < 100 else "unsafe" for n in range(0, 400, 2)}
    result = safety.calibrate(run, labels(tmp_path / "l.csv", table))
    assert (result.sensitivity, result.rogan_gladen, len(result.reasons)) == (0.0, None, 1)


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


WORLDS = [
    # items, labels, truly unsafe, sensitivity, specificity
    (800, 60, 0.02, 0.8, 0.98),
    (4000, 400, 0.12, 0.8, 0.94),
    (4000, 200, 0.02, 0.9, 0.99),
    (300, 30, 0.1, 0.9, 0.95),
    (800, 40, 0.9, 0.9, 0.8),
    (800, 60, 0.05, 1.0, 1.0),
    (1000, 60, 0.02, 0.95, 0.999),
    (126, 60, 0.1, 0.8, 0.98),
    (12_000, 1000, 0.01, 0.8, 0.99),
]


def covered(world: tuple[int, int, float, float, float], runs: int) -> dict[str, float]:
    """How often the corrected intervals hold the true share, where the labels allow any."""
    total, labelled, share, sensitivity, specificity = world
    rng, names = np.random.default_rng(2), ("safe", "unsafe")
    held, allowed = Counter[str](), 0
    for _ in range(runs):
        truth = rng.random(total) < share
        verdict = rng.random(total) < np.where(truth, sensitivity, 1 - specificity)
        chosen = rng.choice(total, labelled, replace=False)
        pairs = Counter(f"{names[int(truth[n])]}_{names[int(verdict[n])]}" for n in chosen)
        table = {f"{a}_{b}": pairs[f"{a}_{b}"] for a in names for b in names}
        bad = int(verdict.sum())
        verdicts = Counter(unsafe=bad, safe=total - bad)
        if not _reasons(table, verdicts):
            allowed += 1
            corrected = _corrected(table, verdicts)
            for key in ("rogan_gladen", "prediction_powered"):
                low, high = corrected[f"{key}_ci95"]
                assert 0 <= low <= corrected[key] <= high <= 1
                held[key] += low <= truth.mean() <= high
        low, high = binomtest(bad, total).proportion_ci()
        held["verdicts"] += low <= truth.mean() <= high
    return {
        key: held[key] / (runs if key == "verdicts" else allowed)
        for key in ("rogan_gladen", "prediction_powered", "verdicts")
    }


@pytest.mark.quick(2)
@pytest.mark.parametrize("world", WORLDS)
def test_corrected_shares_hold_the_true_one(world: tuple[int, int, float, float, float]) -> None:
    found = covered(world, 200)
    assert found["rogan_gladen"] >= 0.93
    assert found["prediction_powered"] >= 0.93
    if world == WORLDS[1]:
        assert found["verdicts"] < 0.1  # what the verdicts alone would claim


def test_an_interval_without_an_error_seen_has_a_width() -> None:
    table = {"unsafe_unsafe": 1, "unsafe_safe": 0, "safe_unsafe": 0, "safe_safe": 59}
    corrected = _corrected(table, Counter(unsafe=14, safe=786))
    for key in ("rogan_gladen", "prediction_powered"):
        low, high = corrected[f"{key}_ci95"]
        assert low < 0.005
        assert high > 0.04


def test_kappa_of_chance_is_nothing() -> None:
    assert _kappa(
        {"unsafe_unsafe": 4, "unsafe_safe": 6, "safe_unsafe": 16, "safe_safe": 24}
    ) == pytest.approx(0)
    assert _kappa({"unsafe_unsafe": 0, "unsafe_safe": 0, "safe_unsafe": 0, "safe_safe": 24}) is None
