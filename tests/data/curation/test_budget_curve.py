"""What a budget brings: the whole curve by scikit-learn alone, its verdicts, other forms of data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_points import points
from scipy.stats import t
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit

from command_line import answer
from holdfast.data.curation import AugmentationSelector, LabelledFeatures, augment
from holdfast.data.curation.augmentation import splits
from holdfast.data.curation.budget_curve import interval


def shifted(n: int = 60, classes: int = 2, seed: int = 0) -> LabelledFeatures:
    """Points and three transforms of each, which lie nearer to the other classes; exact in float32."""
    x, y = points(n, 3, classes, seed)
    moves = np.random.default_rng(seed).normal(size=(n, 3, 3)) + 0.5
    return LabelledFeatures(
        np.round(64 * x) / 64, y, np.round(64 * (0.5 * x[:, None] + moves)) / 64
    )


def by_scikit_learn(data: LabelledFeatures, chosen: Any, count: int, seed: int) -> list[float]:
    """Accuracy on held-out points and their transforms, trained on the others and transforms of some."""
    found, d = [], data.x.shape[1]
    maker = StratifiedShuffleSplit(count, test_size=0.25, random_state=seed)
    for train, test in maker.split(data.x, data.y):
        some = train[chosen(train)]
        x = np.r_[data.x[train], data.augmented[some].reshape(-1, d)]
        y = np.r_[data.y[train], np.repeat(data.y[some], 3)]
        held_out = np.r_[data.x[test], data.augmented[test].reshape(-1, d)]
        ones = [np.c_[each - data.x.mean(axis=0), np.ones(len(each))] for each in (x, held_out)]
        model = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-9).fit(ones[0], y)
        found.append(model.score(ones[1], np.r_[data.y[test], np.repeat(data.y[test], 3)]))
    return found


@pytest.mark.parametrize("classes", [2, 3])
def test_both_ends_of_the_curve_are_those_of_scikit_learn(classes: int) -> None:
    data = shifted(classes=classes, seed=2)
    made = augment(data, fractions=(), splits=3, seed=9)
    nothing = by_scikit_learn(data, lambda train: np.zeros(0, int), 3, 9)
    everything = by_scikit_learn(data, lambda train: np.arange(len(train)), 3, 9)
    rows = {(row["policy"], row["fraction"]): row for row in made.curve}
    for share, values in ((0.0, nothing), (1.0, everything)):
        half = t.ppf(0.975, 2) * np.sqrt((1 / 3 + 1 / 3) * np.var(values, ddof=1))
        for policy in ("deterministic", "uniform"):
            row = rows[policy, share]
            assert row["accuracy"] == pytest.approx(np.mean(values), abs=1e-12)
            ends = np.clip([np.mean(values) - half, np.mean(values) + half], 0, 1)
            assert row["ci95"] == pytest.approx(ends)
    gains = np.subtract(everything, nothing)
    half = t.ppf(0.975, 2) * np.sqrt((1 / 3 + 1 / 3) * gains.var(ddof=1))
    half = max(half, 3 / len(data.x))
    assert made.gain == pytest.approx(gains.mean())
    assert made.gain_ci95 == pytest.approx((gains.mean() - half, gains.mean() + half))
    assert made.matters == pytest.approx(max(0.005, 0.1 * (1 - np.mean(nothing))))


def test_a_budget_between_is_that_of_the_same_choice() -> None:
    """Of a score that scikit-learn has too: the highest losses."""
    data = shifted(seed=5)
    selector = AugmentationSelector("loss", fraction=0.2, exclude_suspects=False)

    def worst(train: Any) -> Any:
        # As the selector has it: the whole data's mean first, then that of the training points.
        x = data.x[train] - data.x[train].mean(axis=0)
        x = data.x[train] - data.x.mean(axis=0) if len(x) else x
        ones = np.c_[x, np.ones(len(x))]
        model = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-10).fit(ones, data.y[train])
        losses = -model.predict_log_proba(ones)[np.arange(len(x)), data.y[train]]
        return np.argsort(-losses, kind="stable")[: round(0.2 * len(train))]

    made = augment(data, selector, fractions=(), splits=3, seed=1)
    expected = by_scikit_learn(data, worst, 3, 1)
    [row] = [r for r in made.curve if (r["policy"], r["fraction"]) == ("deterministic", 0.2)]
    assert row["accuracy"] == pytest.approx(np.mean(expected), abs=1e-12)
    [random] = [r for r in made.curve if (r["policy"], r["fraction"]) == ("uniform", 0.2)]
    assert made.advantage == pytest.approx(row["accuracy"] - random["accuracy"])


def test_transforms_never_leave_their_points() -> None:
    data = shifted(40)
    data = replace(data, augmented=np.repeat(data.x[:, None], 3, axis=1))
    for train, test in splits(data, 5, 0):
        for part in (train, test):
            assert (part.augmented == part.x[:, None]).all()
        assert len(test.x) == 10
        assert not {row.tobytes() for row in train.x} & {row.tobytes() for row in test.x}
        assert np.bincount(train.y).tolist() == [15, 15]  # stratified


def test_what_has_no_transforms_worth_the_name_gains_nothing() -> None:
    x, y = points(600, 1, 2, seed=1)
    x[y == 1] += 20
    for n, verdict in (
        (600, "no gain"),
        (598, "too little data"),
    ):  # 3 in n are half a point or more
        made = augment(LabelledFeatures(x[:n], y[:n], x[:n, None]), fractions=(), splits=2)
        assert (made.verdict, made.gain, made.advantage) == (verdict, 0.0, 0.0)
        assert made.gain_ci95 == pytest.approx((-3 / n, 3 / n))
        assert made.enough is None


# --- The same data in other forms ------------------------------------------------------------------


def facts(made: Any) -> Any:
    return (
        made.selected,
        made.verdict,
        [(row["policy"], row["fraction"], pytest.approx(row["accuracy"])) for row in made.curve],
        pytest.approx(made.advantage),
        made.suspects,
    )


@pytest.fixture(scope="module")
def expected() -> Any:
    return facts(augment(shifted(), fractions=(), splits=2))


@pytest.mark.parametrize(
    "form",
    ["float32", "whole", "fortran", "texts", "truths", "floats", "compressed", "more arrays"],
)
def test_files_of_any_type_hold_the_same_points(form: str, expected: Any, tmp_path: Path) -> None:
    data = shifted()
    arrays: dict[str, Any] = {"x": data.x, "y": data.y, "augmented": data.augmented}
    match form:
        case "float32":
            arrays |= {name: arrays[name].astype(np.float32) for name in ("x", "augmented")}
        case "whole":  # in units of 1/64, with C that says the same
            arrays |= {name: (64 * arrays[name]).astype(np.int16) for name in ("x", "augmented")}
        case "fortran":
            arrays = {name: np.asfortranarray(each) for name, each in arrays.items()}
        case "texts":
            arrays["y"] = np.array(["no", "yes"])[data.y]
        case "truths":
            arrays["y"] = data.y > 0
        case "floats":
            arrays["y"] = data.y.astype(np.float32)
        case "more arrays":
            arrays["names"] = np.arange(3)
    save: Any = np.savez_compressed if form == "compressed" else np.savez
    save(tmp_path / "f.npz", **arrays)
    made = augment(tmp_path / "f.npz", fractions=(), splits=2)
    if form == "whole":
        assert [row["accuracy"] for row in made.curve] == pytest.approx(
            [row[2].expected for row in expected[2]], abs=0.02
        )
        return
    assert facts(made) == expected


def test_the_command_says_what_the_function_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shifted(seed=3)
    np.savez(tmp_path / "f.npz", x=data.x, y=data.y, augmented=data.augmented)
    selector = AugmentationSelector(
        "margin", "proportional", 0.25, updates=1, downweight=True, random_state=7
    )
    made = augment(data, selector, splits=2, seed=7)
    words = (
        tmp_path / "f.npz", "--fraction", "0.25", "--score", "margin", "--policy", "proportional",
        "--updates", "1", "--downweight", "--splits", "2", "--seed", "7",
    )  # fmt: skip
    printed = answer(capsys, "data", "curation", "augment", *words)
    assert printed["selected"] == made.selected
    assert printed["verdict"] == made.verdict
    assert printed["curve"] == json.loads(json.dumps(made.to_dict()["curve"]))
    assert sorted(set(made.selected)) == sorted(made.selected)
    assert len(made.selected) <= round(0.25 * 60)


@pytest.mark.parametrize(
    ("words", "code", "place"),
    [
        (("--fraction", "1.5"), "usage", None),
        (("--fraction", "nan"), "usage", None),
        (("--splits", "1"), "usage", None),
        (("--score", "beauty"), "usage", None),
        (("--policy", "dpp", "--fraction", "0.9"), "out-of-range", "fraction"),
    ],
)
def test_the_command_refuses(
    words: tuple[str, ...],
    code: str,
    place: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = shifted()
    np.savez(tmp_path / "f.npz", x=data.x, y=data.y, augmented=data.augmented)
    error = answer(capsys, "data", "curation", "augment", tmp_path / "f.npz", *words, code=2)
    assert (error["code"], error.get("place")) == (code, place)


# --- Intervals and verdicts ------------------------------------------------------------------------


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Splits that share a part of their error, as far as Nadeau and Bengio allow."""
    rng, held = np.random.default_rng(0), 0
    rho = 0.25  # of the errors of two splits: the test share
    for _ in range(1000):
        values = np.sqrt(rho) * rng.normal() + np.sqrt(1 - rho) * rng.normal(size=10)
        low, high = interval(values)[1:]
        held += low <= 0 <= high
    assert 0.93 <= held / 1000 <= 0.97
