"""Pruned folders and calibrations: every figure again by pandas, scikit-learn and the files themselves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import program
from sklearn.metrics import roc_auc_score

from command_line import answer
from holdfast.data.curation import calibrate, prune
from holdfast.data.curation.calibration import FOLDS, RATES, Calibration
from holdfast.data.curation.corruption import FAMILIES, corrupt
from holdfast.data.curation.pruning import Pruning, highest
from holdfast.data.curation.source_files import SourceFolder

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "source"


class Letters:
    """How often some letters are in a text: an embedder that is cheap, and says something."""

    identity = "letters"

    def __call__(self, texts: Sequence[str], /) -> Any:
        return [[1 + text.count(c) for c in "()[]:=rnts"] for text in texts]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scip") / "code"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number in range(60):
        (folder / f"p{number:02}.py").write_text(program(rng))
    (folder / "p60.py").write_bytes((folder / "p03.py").read_bytes())
    (folder / "bad.py").write_bytes(b"\xff")
    return folder


@pytest.fixture(scope="module")
def calibration(code: Path) -> Calibration:
    return calibrate(code, Letters())


# --- Calibration -----------------------------------------------------------------------------------


def test_areas_of_the_baselines_are_those_of_scikit_learn(
    code: Path, calibration: Calibration
) -> None:
    """In each of five draws a fifth of the files is corrupted; then the mean of the draws."""
    paths = sorted(code.glob("p[0-5]*.py"))
    fold = np.random.default_rng(0).permutation(len(paths)) % FOLDS
    rows = {(r["metric"], r["corruption"], r["rate"]): r for r in calibration.auroc}
    for corruption, rate in (("brackets", 1.0), ("indices", 0.2), ("loop-variables", 0.2)):
        clean = [path.read_bytes() for path in paths]
        scan = {file.path: file for file in SourceFolder.scan(code).files}
        copies = [
            corrupt(text, "python", corruption, rate, int(scan[path.name].digest[:8], 16))  # type: ignore[arg-type]
            for path, text in zip(paths, clean, strict=True)
        ]
        areas = []
        for draw in range(FOLDS):
            texts = [
                c or b"" if f == draw else t for t, c, f in zip(clean, copies, fold, strict=True)
            ]
            areas.append(roc_auc_score(fold == draw, [len(text) for text in texts]))
        row = rows["longest", corruption, rate]
        assert row["auroc"] == pytest.approx(np.mean(areas))
        assert row["files"] == len(paths)
        assert row["ci95"][0] <= row["auroc"] <= row["ci95"][1]


def test_the_lead_and_the_families_follow_from_the_table(calibration: Calibration) -> None:
    table = pd.DataFrame(calibration.auroc)
    assert len(table) == 6 * len(RATES) * sum(map(len, FAMILIES.values()))
    means = table.groupby("metric")["auroc"].mean()
    baselines = means[["longest", "parse-errors"]]
    baselines = np.maximum(baselines, 1 - baselines)  # in the direction that does better
    metrics = means.drop(baselines.index)
    assert calibration.best == metrics.idxmax()
    assert calibration.baseline == baselines.idxmax()
    assert calibration.lead == pytest.approx(metrics.max() - baselines.max())
    assert calibration.lead == pytest.approx(np.mean(calibration.lead_ci95))
    learned = table[table["metric"] == "learned"]
    for family, names in FAMILIES.items():
        area = learned[learned["corruption"].isin(names)]["auroc"].mean()
        assert calibration.learned[family] == pytest.approx(area)
    low = calibration.lead_ci95[0]
    assert (calibration.verdict == "use") == (low > 0 and calibration.lead >= 0.05)
    assert (calibration.metric is None) == (calibration.verdict != "use")
    errors = table[
        (table["metric"] == "parse-errors") & table["corruption"].isin(FAMILIES["syntax"])
    ]
    assert errors["auroc"].min() > 0.9  # what no longer parses has errors
    assert (calibration.sample, calibration.duplicates, len(calibration.rejected)) == (60, 1, 1)


@pytest.mark.full
def test_the_command_calibrates_as_the_function_does(
    code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for number in range(50):
        shutil.copyfile(code / f"p{number:02}.py", few / f"p{number:02}.py")
    words = ("data", "curation", "scip", "calibrate", few, "--cache", tmp_path / "cache")
    printed = answer(capsys, *words)
    assert printed["sample"] == 50
    # From vectors that are stored now, and from another place.
    moved = few.rename(tmp_path / "moved")
    made = calibrate(moved, cache=tmp_path / "cache")
    again = json.loads(json.dumps(made.to_dict(), default=str))
    assert {**printed, "folder": ""} == {**again, "folder": ""}


# --- Pruning ---------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([0.0, -1.0, 2.0, 5e-324, 1e300, -np.inf]), max_size=9), st.floats(0, 1)
)
def test_the_highest_go_with_all_their_equals_or_stay(scores: list[float], fraction: float) -> None:
    """The largest set of the highest that is no more than the share, by trying all thresholds."""
    gone = highest(np.array(scores), fraction).tolist()
    sets = [[score > least for score in scores] for least in (*scores, -np.inf, np.inf)]
    allowed = [each for each in sets if sum(each) <= int(fraction * len(scores))]
    if -np.inf not in scores:  # what has no score stays
        allowed += [[True] * len(scores)] * (int(fraction * len(scores)) >= len(scores))
    assert gone == max(allowed, key=sum)


def table_of(pruning: Pruning) -> pd.DataFrame:
    table = pd.read_csv(pruning.output / "files.csv", keep_default_na=False).set_index("path")
    assert table.index.is_monotonic_increasing
    return table


@pytest.mark.parametrize(
    ("by", "fraction"),
    [
        ("longest", 0.31),
        ("combined", 0.5),
        ("far-from-centroid", 1.0),
        pytest.param("small-cluster", 0.31, marks=pytest.mark.full),
        pytest.param("far-from-centroid", 0.0, marks=pytest.mark.full),
    ],
)
def test_a_folder_is_accounted_for(by: Any, fraction: float, code: Path, tmp_path: Path) -> None:
    made = prune(code, tmp_path / "out", by, fraction, Letters(), copy=True)
    table = table_of(made)
    assert set(table.index) == {path.name for path in code.iterdir()}
    assert table["status"].value_counts().to_dict() == {k: n for k, n in made.files.items() if n}
    sizes = {path.name: path.stat().st_size for path in code.iterdir()}
    for status, total in made.bytes.items():
        assert total == sum(sizes[name] for name in table.index[table["status"] == status])
    scored = table[table["cluster"] != ""]
    values = scored[by.replace("-", "_")].astype(float)
    gone = scored["status"] == "pruned"
    assert gone.sum() <= int(fraction * 60)
    if gone.any() and not gone.all():
        assert values[gone].min() > values[~gone].max()
        one_more = values[~gone].max()  # the next ones would be too many
        assert (values >= one_more).sum() > int(fraction * 60)
    if by == "longest":
        assert values.to_dict() == {name: sizes[name] for name in scored.index}
    kept = sorted(table.index[table["status"] == "kept"])
    assert (made.output / "kept.txt").read_text().splitlines() == kept
    copies = sorted(made.output.glob("kept/*"))
    assert [path.name for path in copies] == kept
    assert all(path.read_bytes() == (code / path.name).read_bytes() for path in copies)
    clusters = pd.DataFrame(made.clusters).set_index("cluster")
    groups = scored.groupby(scored["cluster"].astype(int))
    assert clusters["files"].to_dict() == groups.size().to_dict()
    assert (
        clusters["pruned"].to_dict()
        == groups["status"].apply(lambda s: (s == "pruned").sum()).to_dict()
    )
    for name, part in groups:
        far = part["far_from_centroid"].astype(float)
        assert clusters.loc[name, "distance"] == pytest.approx(far.mean())
        assert far[clusters.loc[name, "example"]] == far.min()


def test_the_same_corpus_elsewhere_and_in_another_order_is_the_same(
    code: Path, tmp_path: Path
) -> None:
    made = prune(code, tmp_path / "one", "combined", 0.3, Letters())
    other = tmp_path / "other"
    other.mkdir()
    for path in sorted(code.iterdir(), reverse=True):  # made in another order, with other times
        shutil.copyfile(path, other / path.name)
        os.utime(other / path.name, (0, 0))
    again = prune(other, tmp_path / "two", "combined", 0.3, Letters(), cache=tmp_path / "cache")
    assert table_of(made).equals(table_of(again))
    third = prune(other, tmp_path / "three", "combined", 0.3, Letters(), cache=tmp_path / "cache")
    assert table_of(third).equals(table_of(again))


def test_the_command_prunes_as_the_function_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--by", "parse-errors", "--fraction", "0.5", "--copy")
    command = ("data", "curation", "scip", "prune", EXAMPLES, "-o", tmp_path / "a", *words)
    printed = answer(capsys, *command)
    made = prune(EXAMPLES, tmp_path / "b", "parse-errors", 0.5, copy=True)
    for key, value in json.loads(json.dumps(made.to_dict(), default=str)).items():
        assert printed[key] == value or key == "output", key
    for name in ("files.csv", "kept.txt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert answer(capsys, *command, code=2)["code"] == "output-exists"
    inside = (*command[:6], EXAMPLES / "out", *words)
    assert answer(capsys, *inside, code=2)["code"] == "conflict"
    for share in ("-0.1", "1.1", "nan"):
        error = answer(capsys, *command[:6], tmp_path / "c", "--fraction", share, code=2)
        assert error["code"] == "usage"
    assert not (tmp_path / "c").exists()
