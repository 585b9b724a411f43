"""Pruning source code: duplicates, then the files that a score puts last; every file with its reason."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from holdfast.answer import Answer, How, Section, Table, Unknown
from holdfast.data.curation.calibration import SAMPLE, Calibration, Corpus, Trial, calibrated
from holdfast.data.curation.choices import PruneScore, within
from holdfast.data.curation.clusters import Clusters, cluster
from holdfast.data.curation.embedding import Embedder
from holdfast.data.curation.influence_scores import FloatArray
from holdfast.data.curation.learned_score import Copies
from holdfast.errors import InputError
from holdfast.files import atomic_folder
from holdfast.numbers import counted, percent, size
from holdfast.plain import plain

STATUSES = ("kept", "pruned", "duplicate", "rejected")
_BY_STATUS = """
    SELECT status, count(*) AS files, sum(bytes)::BIGINT AS bytes FROM files GROUP BY status
"""
_BY_CLUSTER = """
    SELECT cluster, count(*) AS files, count_if(status = 'pruned')::BIGINT AS pruned,
        avg(far_from_centroid) AS distance, arg_min(path, far_from_centroid) AS example
    FROM files WHERE cluster IS NOT NULL GROUP BY cluster ORDER BY files, cluster
"""
_BY_LOSS = """
    SELECT path, status, reason, cluster FROM files WHERE status <> 'kept'
    ORDER BY array_position(['pruned', 'duplicate', 'rejected'], status), path LIMIT 1000
"""


@dataclass(frozen=True)
class Pruning(Answer):
    """What stays and what goes.

    Args:
        by: the score; None: the calibration refused, and only duplicates went.
        verdict: of the calibration; None where the score was named.
        files: number by status: kept, pruned, duplicate, rejected (cannot be used).
        bytes: by status, of kept, pruned and duplicate.
        fraction: share of the files without duplicates that may go.
        reasons: why files were rejected -> number.
        clusters: rows ``{"cluster", "files", "pruned", "distance", "example"}``, smallest first.
        output: folder with files.csv and kept.txt.
        calibration: None where none was needed.
        table: every file: path, status, reason, language, bytes, duplicate_of, cluster and scores.
    """

    by: str | None
    verdict: str | None
    files: dict[str, int]
    bytes: dict[str, int]
    fraction: float
    reasons: dict[str, int]
    clusters: list[dict[str, Any]]
    output: Path
    calibration: Calibration | None
    table: pa.Table

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Pruned source code"

    def to_dict(self) -> Any:
        """The numbers; the files are in the output folder."""
        left_out = ("table", "calibration")
        return plain({name: part for name, part in vars(self).items() if name not in left_out})

    def written(self) -> Mapping[str, Path]:
        """The output folder."""
        return {"pruning": self.output}

    def unknowns(self) -> Sequence[Unknown]:
        """Files that could not be used."""
        return [
            Unknown(f"{counted(count, 'file')} not used: {reason}.")
            for reason, count in self.reasons.items()
        ]

    def sections(self) -> Sequence[Section]:
        """What went, where it lies, and what the calibration says."""
        count = self.files
        total = sum(count[status] for status in STATUSES[:3])
        sentence = (
            f"{count['kept']:,} of {counted(total, 'source file')} stay "
            f"({size(self.bytes['kept'])} of {size(sum(self.bytes.values()))}): "
            f"{counted(count['duplicate'], 'duplicate')} "
        )
        sentence += (
            f"and {count['pruned']:,} by the score {self.by} went."
            if self.by
            else "went, nothing else: no score was shown to find corrupted files better than their length "
            "or their syntax errors do."
        )
        rows = pa.Table.from_pylist(_rows(self.table, _BY_LOSS))
        how = How(
            f"the files with the highest score go, at most {percent(self.fraction)} of those without "
            "duplicates; files with equal scores stay or go together",
            source="SCIP (arXiv 2312.02418)",
            notes="Duplicates share 80 % or more of their sequences of five tokens with a file that stays.",
        )
        clusters = Table(
            pa.Table.from_pylist(self.clusters), caption="Clusters, smallest first.", detail=True
        )
        losing = sum(row["pruned"] > 0 for row in self.clusters)
        sentence += f" Files went from {losing:,} of {counted(len(self.clusters), 'cluster')}."
        section = Section(
            "files", "What goes?", sentence, [], [Table(rows, empty="None."), clusters], how
        )
        return [section, *(self.calibration.sections() if self.calibration else ())]


def prune(
    folder: Path,
    output: Path,
    by: PruneScore = "calibrated",
    fraction: float = 0.2,
    embedder: Embedder | Path | None = None,
    copy: bool = False,
    sample: int = SAMPLE,
    seed: int = 0,
    cache: Path | None = None,
) -> Pruning:
    """Choose the source files that stay, and write every file with its status and reason.

    Args:
        folder: source files of Python, JavaScript, C, Java, Go, Rust.
        output: a new folder: files.csv (every file), kept.txt (paths that stay), and kept/ with `copy`.
        by: the score; calibrated takes the metric that `calibrate` says, and prunes by none if it refuses.
        fraction: share of the files without duplicates that goes, at most.
        embedder: texts -> vectors, or the folder of a model of sentence-transformers; None: TF-IDF and SVD.
        copy: whether the files that stay are copied.
        sample: files that are corrupted for the calibration.
        seed: of sample, draws and clusters.
        cache: folder for vectors; None: next to the output until it is complete. Rerun to resume.

    Raises:
        InputError: nothing that can be used, too few files to calibrate on, the output exists.
    """
    if output.exists():
        raise InputError("the output exists", code="output-exists", path=output)
    if output.resolve().is_relative_to(folder.resolve()):
        raise InputError("the output is inside the folder", code="conflict", path=output)
    within("fraction", fraction, 0, 1)
    plan = hashlib.sha256(repr((folder.resolve(), by, fraction, copy, sample, seed)).encode())
    corpus = Corpus.read(folder, embedder, cache)
    with atomic_folder(output, plan=plan.hexdigest()) as draft:
        vectors = draft / ".vectors"
        if cache is None:
            corpus = replace(corpus, cache=vectors)
        pruning = _pruned(corpus, output, by, fraction, sample, seed)
        paths = pruning.table.filter(pc.field("status") == "kept")["path"].to_pylist()
        csv.write_csv(pruning.table, draft / "files.csv")
        (draft / "kept.txt").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        if copy:
            for path in paths:
                (draft / "kept" / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / path, draft / "kept" / path)
        shutil.rmtree(vectors, ignore_errors=True)
    return pruning


def _pruned(
    corpus: Corpus, output: Path, by: PruneScore, fraction: float, sample: int, seed: int
) -> Pruning:
    calibration = trial = None
    score_name: str | None = by
    if by in ("calibrated", "learned"):
        calibration, trial = calibrated(corpus, sample, seed)
        score_name = "learned" if by == "learned" else calibration.metric
    copies = corpus.copies(corpus.files)
    clusters = cluster(copies.vectors, seed)
    scores = _scores(copies, clusters, trial)
    gone = np.zeros(len(corpus.files), bool)
    if score_name is not None:
        gone = highest(scores[score_name], fraction)
    table = _table(corpus, clusters, scores, gone, score_name)
    reasons = Counter(reason.split(" (")[0] for reason in corpus.source.rejected.values())
    count = {row.pop("status"): row for row in _rows(table, _BY_STATUS)}
    return Pruning(
        by=score_name,
        verdict=calibration.verdict if calibration and by == "calibrated" else None,
        files={one: count.get(one, {"files": 0})["files"] for one in STATUSES},
        bytes={one: count.get(one, {"bytes": 0})["bytes"] for one in STATUSES[:3]},
        fraction=fraction,
        reasons=dict(reasons.most_common()),
        clusters=_rows(table, _BY_CLUSTER),
        output=output,
        calibration=calibration,
        table=table,
    )


def highest(scores: FloatArray, fraction: float) -> np.ndarray:
    """The highest scores, at most this share; equal scores go or stay together ``[n]``."""
    highest_first = np.append(np.sort(scores)[::-1], -np.inf)
    return np.asarray(scores > highest_first[int(fraction * len(scores))])


def _scores(copies: Copies, clusters: Clusters, trial: Trial | None) -> dict[str, FloatArray]:
    """Every score at hand, each higher for what should go ``[n]``."""
    scores = clusters.badness()
    scores |= {"longest": copies.sizes, "parse-errors": copies.errors}
    if trial is not None:
        scores["learned"] = trial.learned.predict(copies)
        # Models of all folds saw the files of the sample; theirs are scores of models that did not.
        scores["learned"][trial.places] = trial.learned.clean
    return scores


def _table(
    corpus: Corpus,
    clusters: Clusters,
    scores: Mapping[str, FloatArray],
    gone: np.ndarray,
    score_name: str | None,
) -> pa.Table:
    rows: list[dict[str, Any]] = []
    place = {file.path: number for number, file in enumerate(corpus.files)}
    for file in corpus.source.files:
        row: dict[str, Any] = {"path": file.path, "status": "kept", "reason": ""}
        row |= {"language": file.language.name, "bytes": file.size}
        if file.path in corpus.duplicates:
            original, similarity = corpus.duplicates[file.path]
            reason = "same tokens" if similarity == 1 else f"similarity {similarity:.2f}"
            row |= {"status": "duplicate", "reason": reason, "duplicate_of": original}
        else:
            at = place[file.path]
            row["cluster"] = int(clusters.label[at])
            row |= {name.replace("-", "_"): float(values[at]) for name, values in scores.items()}
            if gone[at] and score_name is not None:
                row |= {"status": "pruned", "reason": f"{score_name} {scores[score_name][at]:.4g}"}
        rows.append(row)
    rows += [
        {"path": path, "status": "rejected", "reason": reason}
        for path, reason in corpus.source.rejected.items()
    ]
    columns: dict[str, pa.DataType] = {
        **dict.fromkeys(("path", "status", "reason", "language"), pa.string()),
        "bytes": pa.int64(),
        "duplicate_of": pa.string(),
        "cluster": pa.int64(),
        **{name.replace("-", "_"): pa.float64() for name in scores},
    }
    return pa.Table.from_pylist(
        sorted(rows, key=lambda row: row["path"]), schema=pa.schema(columns)
    )


def _rows(table: pa.Table, query: str) -> list[dict[str, Any]]:
    with duckdb.connect() as database:
        database.register("files", table)
        return list(database.sql(query).to_arrow_table().to_pylist())
