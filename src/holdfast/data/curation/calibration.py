"""Which score finds corrupted files in a corpus, with the user's embedder, and whether length does as well.

The metrics of SCIP (arXiv 2312.02418) are cluster sizes and distances from centroids. They are tried as
they would be used: in five draws every file is corrupted once, a fifth of them at a time; the mixture is
clustered, and the area under the ROC curve says how well a metric sets the corrupted files apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.data.curation.auroc import Auroc, auroc, mean
from holdfast.data.curation.choices import bounded
from holdfast.data.curation.clusters import cluster
from holdfast.data.curation.corruption import FAMILIES, corrupt
from holdfast.data.curation.duplicates import duplicates
from holdfast.data.curation.embedding import Embedder, SentenceEmbedder, TfidfEmbedder, embed
from holdfast.data.curation.influence_scores import FloatArray
from holdfast.data.curation.learned_score import FOLDS, Cell, Copies, LearnedScore
from holdfast.data.curation.policies import Indices
from holdfast.data.curation.source_files import SourceFile, SourceFolder
from holdfast.data.curation.syntax_features import SyntaxFeatures, syntax_features
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.progress import track
from holdfast.report.figures import heat_map

RATES = (0.2, 1.0)
"""Shares of the places in a file that are corrupted."""
SAMPLE = 1000
USEFUL = 0.05
"""Lead over the better baseline that makes a metric worth using; less is next to nothing, however sure."""
LEAST = 50
"""Files that an area is estimated from, at least."""
METRICS = ("small-cluster", "far-from-centroid", "combined", "learned")
BASELINES = {"longest": "file length", "parse-errors": "the number of syntax errors"}
# Of a difference's lower bound, when the best of four metrics is taken (Bonferroni).
_QUANTILE = 2.498
_FITTED = 5000

Verdict = Literal["use", "no signal", "too little data"]


@dataclass(frozen=True)
class Corpus:
    """Files that differ from each other, and what embeds them.

    Args:
        source: the folder.
        duplicates: path -> (the file that stays, similarity).
        files: the others.
        embedder: fitted to them, where it needs that.
        cache: where vectors are stored.
    """

    source: SourceFolder
    duplicates: dict[str, tuple[str, float]]
    files: Sequence[SourceFile]
    embedder: Embedder
    cache: Path | None

    @classmethod
    def read(cls, folder: Path, embedder: Embedder | Path | None, cache: Path | None) -> Corpus:
        """Scan a folder, find duplicates, and fit the built-in embedder if no other is named.

        Raises:
            InputError: nothing that can be used.
        """
        source = SourceFolder.scan(folder)
        repeated = duplicates(source)
        files = [file for file in source.files if file.path not in repeated]
        if isinstance(embedder, Path):
            embedder = SentenceEmbedder(embedder)
        if embedder is None:
            fitted = some(len(files), _FITTED, 0)
            embedder = TfidfEmbedder([source.read(files[place]).decode() for place in fitted])
        return cls(source, repeated, files, embedder, cache)

    def copies(self, files: Sequence[SourceFile], cell: Cell | None = None) -> Copies:
        """Files as they are, or corrupted copies of those that have a place for the corruption."""
        index: list[int] = []
        syntax: list[SyntaxFeatures] = []

        def texts() -> Iterator[str]:
            for place, file in enumerate(files):
                source: bytes | None = self.source.read(file)
                if cell is not None:  # the same copy, whatever the order of the files
                    seed = int(file.digest[:8], 16)
                    source = corrupt(source or b"", file.language, *cell, seed)
                if source is not None:
                    index.append(place)
                    syntax.append(syntax_features(source, file.language))
                    yield source.decode()

        vectors = embed(texts(), len(files), self.embedder, self.cache)
        return Copies(np.array(index, np.int64), vectors, syntax)


def _cell_label(corruption: str, rate: float) -> str:
    return f"{corruption} {rate:.0%}"


def some(count: int, most: int, seed: int) -> Indices:
    """A random sample of places, in order; all, if they are not too many."""
    return np.sort(np.random.default_rng(seed).choice(count, min(count, most), replace=False))


@dataclass(frozen=True)
class Calibration(Answer):
    """Which score finds corrupted files.

    Args:
        verdict: use, where the lower bound of the best metric beats the better baseline and the lead is at
            least 0.05; no signal where the interval of the lead ends below 0.05; else too little data.
        metric: the metric to use; None: none.
        lead: mean area of the best metric less that of the better baseline.
        lead_ci95: its interval, for the best of four.
        baseline: the better of file length ("longest") and the number of syntax errors ("parse-errors").
        auroc: rows ``{"metric", "corruption", "rate", "files", "auroc", "ci95"}``.
        learned: mean area of the learned score by family of corruptions: syntax, content.
        best: the best metric, used or not.
        sample: files that were corrupted.
        folder: of the corpus.
        duplicates: files that were left out as copies.
        rejected: files that cannot be used -> why.
        too_few: corruptions that too few files have a place for.
    """

    verdict: Verdict
    metric: str | None
    lead: float
    lead_ci95: tuple[float, float]
    baseline: str
    auroc: list[dict[str, Any]]
    learned: dict[str, float]
    best: str
    sample: int
    folder: Path
    duplicates: int
    rejected: dict[str, str]
    too_few: list[str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Finding corrupted code"

    def values(self) -> Sequence[Value]:
        """The lead, and the learned score."""
        learned = [
            Value(f"learned_{family}", area, better="higher")
            for family, area in self.learned.items()
        ]
        return [Value("lead", self.lead, ci95=self.lead_ci95, better="higher"), *learned]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Files used and left out."""
        return [
            ("folder", str(self.folder)),
            ("files", f"{self.sample:,} corrupted"),
            ("left out", f"{self.duplicates:,} copies, {len(self.rejected):,} that cannot be used"),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Corruptions that could not be tried."""
        return [
            Unknown(f"Fewer than {LEAST} files have a place for {cell}.", "calibrate on more files")
            for cell in self.too_few
        ]

    def sections(self) -> Sequence[Section]:
        """The verdict with the areas."""
        low, high = self.lead_ci95
        lead = f"{self.lead:+.3f} [{low:+.3f}, {high:+.3f}]"
        baseline = BASELINES[self.baseline]
        differs = (
            f"the AUROC of the best score, {self.best}, averaged over corruptions, differs from that of "
            f"{baseline} by {lead}."
        )
        sentence = {
            "use": f"Use the score {self.best}: {differs}",
            "no signal": f"No signal; {baseline} is as good: {differs}",
            "too little data": f"Too few files to tell: {differs}",
        }[self.verdict]
        learned = " and ".join(f"{area:.3f} ({name})" for name, area in self.learned.items())
        if self.metric == "learned":
            learned += (
                "; it knows the kinds of corruption that it was tried on, and may miss others"
            )
        rows = [
            {**row, "cell": _cell_label(row["corruption"], row["rate"])}
            for row in bounded(self.auroc)
        ]
        columns = {
            "metric": ColumnFormat("Score"),
            "corruption": ColumnFormat("Corruption"),
            "rate": ColumnFormat("Places", "%", digits=0),
            "files": ColumnFormat("Files"),
            "auroc": ColumnFormat("AUROC", digits=3, interval=("low", "high")),
        }
        how = How(
            "AUROC: the chance that a corrupted file scores above a clean one, mean of five draws",
            parameters={"clusters": "100, or files / 10 if less", "corrupted at a time": "20 %"},
            source="SCIP (arXiv 2312.02418); length as a confounder: arXiv 2407.00434",
            notes=(
                "Intervals are 95 % (infinitesimal jackknife over files). The verdict asks that the lower "
                "bound of the best score's lead over the better of file length and the number of syntax "
                f"errors, for the best of four, is above 0, and the lead at least {USEFUL}. "
                "The learned score is cross-validated: a file and its copies are scored by models that "
                "saw neither."
            ),
        )
        return [
            Section(
                "auroc",
                "Which score finds corrupted files?",
                f"{sentence} The learned score reaches {learned}.",
                [heat_map(rows, "metric", "cell", "auroc", "AUROC")],
                [Table(pa.Table.from_pylist(rows), columns)],
                how,
            )
        ]


def calibrate(
    folder: Path,
    embedder: Embedder | Path | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
    cache: Path | None = None,
) -> Calibration:
    """Corrupt files of a folder, and measure which score finds them.

    Args:
        folder: source files of Python, JavaScript, C, Java, Go, Rust.
        embedder: texts -> vectors, or the folder of a model of sentence-transformers; None: TF-IDF and SVD.
        sample: files that are corrupted, at most.
        seed: of the sample and the draws.
        cache: folder for vectors; an interrupted run is resumed.

    Raises:
        InputError: no folder, too few files.
    """
    return calibrated(Corpus.read(folder, embedder, cache), sample, seed)[0]


@dataclass(frozen=True)
class Trial:
    """Files of a sample (their places in the corpus), clean and corrupted."""

    places: Indices
    clean: Copies
    corrupted: Mapping[Cell, Copies]
    fold: Indices
    learned: LearnedScore


def calibrated(corpus: Corpus, sample: int = SAMPLE, seed: int = 0) -> tuple[Calibration, Trial]:
    """The calibration, and the copies that it was made with."""
    trial, too_few = _trial(corpus, sample, seed)
    areas = {cell: _areas(trial, cell, seed) for cell in trial.corrupted}
    averages = {
        metric: mean([of_cell[metric] for of_cell in areas.values()])
        for metric in (*METRICS, *BASELINES)
    }
    best = max(METRICS, key=lambda metric: averages[metric].value)
    # A baseline counts in the direction that does better.
    rivals = {name: _either_way(averages[name]) for name in BASELINES}
    baseline = max(rivals, key=lambda name: rivals[name].value)
    lead = averages[best] - rivals[baseline]
    half = _QUANTILE * lead.standard_error
    verdict = judged(lead.value, half)
    rows = [
        {
            "metric": metric,
            "corruption": cell[0],
            "rate": cell[1],
            "files": len(trial.corrupted[cell].index),
            "auroc": area.value,
            "ci95": area.ci95(),
        }
        for cell, of_cell in areas.items()
        for metric, area in of_cell.items()
    ]
    return Calibration(
        verdict=verdict,
        metric=best if verdict == "use" else None,
        lead=lead.value,
        lead_ci95=(lead.value - half, lead.value + half),
        baseline=baseline,
        auroc=rows,
        learned={
            family: float(np.mean(values))
            for family, names in FAMILIES.items()
            if (values := [of["learned"].value for cell, of in areas.items() if cell[0] in names])
        },
        best=best,
        sample=len(trial.places),
        folder=corpus.source.folder,
        duplicates=len(corpus.duplicates),
        rejected=corpus.source.rejected,
        too_few=too_few,
    ), trial


def judged(lead: float, half: float) -> Verdict:
    """The verdict of the best score's lead over the better baseline, and half its interval."""
    if lead - half > 0 and lead >= USEFUL:
        return "use"
    return "no signal" if lead + half < USEFUL else "too little data"


def _either_way(area: Auroc) -> Auroc:
    return area if area.value >= 0.5 else Auroc(1 - area.value, -area.derivatives)


def _trial(corpus: Corpus, sample: int, seed: int) -> tuple[Trial, list[str]]:
    places = some(len(corpus.files), sample, seed)
    files = [corpus.files[place] for place in places]
    clean = corpus.copies(files)
    cells: list[Cell] = [
        (name, rate) for family in FAMILIES.values() for name in family for rate in RATES
    ]
    corrupted, too_few = {}, []
    with track("Corrupting", len(cells), "corruptions") as bar:
        for cell in cells:
            copies = corpus.copies(files, cell)
            bar.advance(1)
            if len(copies.index) >= LEAST:
                corrupted[cell] = copies
            else:
                too_few.append(_cell_label(*cell))
    if not corrupted:
        raise InputError(
            "too few files to calibrate on",
            code="no-data",
            path=corpus.source.folder,
            found=f"{counted(len(files), 'file')} without copies of others",
            expected=f"{LEAST} or more with brackets, loops, conditions or indices",
        )
    # Folds of equal size among the files of every corruption would differ by corruption: one permutation.
    fold = np.random.default_rng(seed).permutation(len(files)) % FOLDS
    return Trial(places, clean, corrupted, fold, LearnedScore(clean, corrupted, fold)), too_few


def _areas(trial: Trial, cell: Cell, seed: int) -> dict[str, Auroc]:
    """The area of every score: in draw f the files of fold f are corrupted, if they can be."""
    copies = trial.corrupted[cell]
    n = len(trial.places)
    eligible = np.zeros(n, bool)
    eligible[copies.index] = True
    draws = np.arange(FOLDS)[:, None] == trial.fold
    corrupted = draws & eligible

    def drawn(clean: FloatArray, bad: FloatArray) -> FloatArray:
        spread = np.zeros(n)
        spread[copies.index] = bad
        return np.where(corrupted, spread, clean)

    scores: dict[str, list[FloatArray]] = {}
    for draw in range(FOLDS):
        vectors = trial.clean.vectors.copy()
        bad = trial.fold[copies.index] == draw
        vectors[copies.index[bad]] = copies.vectors[bad]
        for metric, values in cluster(vectors, seed + draw).badness().items():
            scores.setdefault(metric, []).append(values)
    tables = {metric: np.array(rows) for metric, rows in scores.items()}
    tables["longest"] = drawn(trial.clean.sizes, copies.sizes)
    tables["parse-errors"] = drawn(trial.clean.errors, copies.errors)
    tables["learned"] = drawn(trial.learned.clean, trial.learned.corrupted[cell])
    return {metric: auroc(table, corrupted, eligible) for metric, table in tables.items()}
