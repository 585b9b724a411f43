"""Calibration and pruning: planted signals, none where there is none, every file accounted for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_points import program
from pyarrow import csv

from holdfast.data.curation import calibrate, calibration, embedding, prune
from holdfast.errors import InputError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 programs, and files that cannot be used."""
    folder = tmp_path_factory.mktemp("corpus") / "code"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(80):
        (folder / f"p{number:02}.py").write_text(program(rng))
    first = (folder / "p00.py").read_bytes()
    (folder / "q_same.py").write_bytes(first)
    (folder / "q_similar.py").write_bytes((folder / "p01.py").read_bytes() + b"# the end\n")
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    (folder / "nul.py").write_bytes(b"x = 1\0\n")
    (folder / "minified.js").write_bytes(b"f(1);" * 4_000_000)
    (folder / "empty.py").write_bytes(b"\n")
    (folder / "notes.txt").write_text("notes")
    (folder / "cpp.h").write_text("namespace a {\nint f();\n}\n")
    (folder / "link.py").symlink_to("p00.py")
    (folder / ".git").mkdir()
    (folder / ".git" / "hidden.py").write_bytes(first)
    return folder


REJECTED = {"latin.py", "nul.py", "minified.js", "empty.py", "notes.txt", "link.py", "cpp.h"}


class Planted:
    """Clean texts in one direction, others anywhere: far from every centroid."""

    def __init__(self, folder: Path) -> None:
        self.clean = {path.read_text() for path in folder.glob("p*.py")}
        self.calls = 0
        self.identity = "planted"

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += len(texts)
        rows = []
        for text in texts:
            rng = np.random.default_rng(len(text) * 1000 + sum(map(ord, text[:500])))
            noise = rng.normal(size=16)
            rows.append(np.eye(16)[0] * (20 if text in self.clean else 2) + noise)
        return np.array(rows)


def test_a_planted_signal_is_used_and_what_it_finds_goes(corpus: Path, tmp_path: Path) -> None:
    planted = Planted(corpus)
    found = calibrate(corpus, planted)
    assert (found.verdict, found.metric) == ("use", found.best)
    assert found.lead_ci95[0] > 0.2
    assert found.to_dict()["verdict"] == "use"
    assert {row["metric"] for row in found.auroc} >= {"combined", "longest", "parse-errors"}
    assert all(row["ci95"][0] <= row["auroc"] <= row["ci95"][1] for row in found.auroc)
    assert (found.duplicates, set(found.rejected)) == (2, REJECTED)
    outliers = {f"p{number:02}.py" for number in range(16)}
    planted.clean -= {(corpus / path).read_text() for path in outliers}
    pruned = prune(corpus, tmp_path / "out", fraction=0.2, embedder=planted)
    assert (pruned.by, pruned.verdict) == (found.best, "use")
    rows = {row["path"]: row for row in csv.read_csv(tmp_path / "out" / "files.csv").to_pylist()}
    gone = {path for path, row in rows.items() if row["status"] == "pruned"}
    assert len(gone) == 16
    assert len(gone & outliers) >= 10


def test_without_signal_nothing_is_pruned_and_every_file_is_listed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "METRICS", calibration.METRICS[:3])
    constant = lambda texts: np.ones((len(texts), 3))  # noqa: E731
    pruned = prune(corpus, tmp_path / "out", embedder=constant, copy=True)
    assert (pruned.by, pruned.verdict) == (None, "no signal")
    assert pruned.files == {"kept": 80, "pruned": 0, "duplicate": 2, "rejected": len(REJECTED)}
    rows = {row["path"]: row for row in csv.read_csv(tmp_path / "out" / "files.csv").to_pylist()}
    assert set(rows) == {path.name for path in corpus.iterdir()} - {".git"}
    assert {path for path, row in rows.items() if row["status"] == "rejected"} == REJECTED
    assert all(rows[path]["reason"] for path in REJECTED)
    assert rows["q_same.py"]["duplicate_of"] == "p00.py"
    assert rows["q_similar.py"]["duplicate_of"] == "p01.py"
    names = (tmp_path / "out" / "kept.txt").read_text().split()
    assert names == sorted(f"p{number:02}.py" for number in range(80))
    assert sorted(path.name for path in (tmp_path / "out" / "kept").iterdir()) == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"files.csv", "kept.txt", "kept"}
    assert "no signal" in str(pruned).lower()
    assert pruned.to_dict()["reasons"]["not UTF-8"] == 1


@pytest.mark.full
def test_the_learned_score_is_used_where_it_beats_syntax_errors_and_length(
    corpus: Path, tmp_path: Path
) -> None:
    constant = lambda texts: np.ones((len(texts), 3))  # noqa: E731
    found = calibrate(corpus, constant)
    mean: dict[str, list[float]] = {}
    for row in found.auroc:
        mean.setdefault(row["metric"], []).append(row["auroc"])
    assert (found.verdict, found.metric, found.baseline) == ("use", "learned", "parse-errors")
    assert found.lead == pytest.approx(np.mean(mean["learned"]) - np.mean(mean["parse-errors"]))
    pruned = prune(corpus, tmp_path / "out", embedder=constant)
    assert (pruned.by, pruned.verdict) == ("learned", "use")  # headline and advice agree


@pytest.mark.parametrize(
    ("lead", "half", "verdict"),
    [
        (0.2, 0.1, "use"),
        (0.2, 0.3, "too little data"),
        (0.04, 0.001, "no signal"),  # sure, and next to nothing
        (-0.1, 0.05, "no signal"),
        (-0.1, 0.3, "too little data"),
        (0.0, 0.0, "no signal"),
    ],
)
def test_the_verdict_on_a_lead(lead: float, half: float, verdict: str) -> None:
    assert calibration.judged(lead, half) == verdict


def test_the_learned_score_is_held_out(corpus: Path) -> None:
    learned = {
        (row["corruption"], row["rate"]): row["auroc"]
        for row in calibrate(corpus).auroc
        if row["metric"] == "learned"
    }
    assert len(learned) == 8
    assert min(learned["brackets", 1.0], learned["loop-variables", 1.0]) > 0.97
    assert min(learned["conditions", 1.0], learned["indices", 1.0]) > 0.7


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_targets_on_the_standard_library(tmp_path: Path) -> None:
    """Syntax 0.97 and content 0.70 on held-out files."""
    import sysconfig

    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(
        path
        for part in ("asyncio", "email", "json", "http", "xml")
        for path in (library / part).rglob("*.py")
    )
    for number, path in enumerate([*paths, *sorted(library.glob("*.py"))]):
        shutil.copyfile(path, tmp_path / f"{number:03}.py")
    result = calibrate(tmp_path)
    assert result.learned["syntax"] >= 0.97
    assert result.learned["content"] >= 0.70


def test_an_interrupted_run_resumes_with_the_same_answer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BLOCK", 32)

    class Interrupted(Planted):
        def __call__(self, texts: Sequence[str]) -> np.ndarray:
            if self.calls:
                raise KeyboardInterrupt
            return super().__call__(texts)

    with pytest.raises(KeyboardInterrupt):
        prune(corpus, tmp_path / "out", "combined", embedder=Interrupted(corpus))
    assert not (tmp_path / "out").exists()
    resumed = Planted(corpus)
    prune(corpus, tmp_path / "out", "combined", embedder=resumed)
    whole = Planted(corpus)
    prune(corpus, tmp_path / "whole", "combined", embedder=whole)
    assert resumed.calls == whole.calls - 32
    for name in ("files.csv", "kept.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_refusals(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    shutil.copyfile(corpus / "p00.py", tmp_path / "one" / "a.py")

    def code(call: Any, *arguments: Any, **settings: Any) -> str:
        with pytest.raises(InputError) as caught:
            call(*arguments, **settings)
        return caught.value.code

    assert code(calibrate, tmp_path / "nowhere") == "not-found"
    assert code(calibrate, tmp_path / "empty") == "no-data"
    assert code(calibrate, tmp_path / "one") == "no-data"
    assert code(calibrate, corpus, tmp_path / "nowhere") == "not-found"
    assert code(prune, corpus, tmp_path / "empty") == "output-exists"
    assert code(prune, corpus, corpus / "out") == "conflict"
    assert code(prune, corpus, tmp_path / "out", "longest", 1.5) == "out-of-range"
    for bad in (np.ones(3), np.ones((2, 2)), np.full((80, 2), np.nan)):
        assert code(calibrate, corpus, lambda texts, bad=bad: bad) == "invalid-value"
    assert prune(tmp_path / "one", tmp_path / "out", "longest").files["kept"] == 1
    assert prune(tmp_path / "one", tmp_path / "all", "longest", 1.0).files["pruned"] == 1
