"""A learned corruption score: the chance that a file is corrupted, by its embedding and its syntax.

One logistic regression per family of corruptions (syntax, content) tells clean files from corrupted copies;
their odds are added. A file is scored by models that saw neither it nor its copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.data.curation.corruption import FAMILIES, Corruption
from holdfast.data.curation.embedding import Vectors
from holdfast.data.curation.influence_scores import FloatArray
from holdfast.data.curation.policies import Indices
from holdfast.data.curation.syntax_features import SyntaxFeatures, matrix

FOLDS = 5
# Inverse strength of regularization. Errors of syntax are sure signs, and their odds must outweigh those of
# content, which are guesses.
_C = {"syntax": 1000.0, "content": 1.0}
Cell = tuple[Corruption, float]
"""A corruption at a rate."""


@dataclass(frozen=True)
class Copies:
    """Files, clean or corrupted.

    Args:
        index: which file each copy is of ``[m]``.
        vectors: ``[m, d]``.
        syntax: of each.
    """

    index: Indices
    vectors: Vectors
    syntax: Sequence[SyntaxFeatures]

    @property
    def sizes(self) -> FloatArray:
        """Bytes ``[m]``."""
        return np.array([one.size for one in self.syntax], float)

    @property
    def errors(self) -> FloatArray:
        """Errors of the parse ``[m]``."""
        return np.array([one.errors for one in self.syntax], float)

    def features(self) -> Any:
        """Embedding, measures and patterns as one sparse matrix ``[m, features]``."""
        from scipy.sparse import csr_matrix, hstack

        measures, patterns = matrix(self.syntax)
        return hstack([csr_matrix(self.vectors), csr_matrix(measures), patterns]).tocsr()


class LearnedScore:
    """Scores of files by models of which none saw the file.

    Args:
        clean: one copy per file, in order.
        corrupted: copies by corruption and rate.
        fold: of each file.
    """

    def __init__(self, clean: Copies, corrupted: Mapping[Cell, Copies], fold: Indices) -> None:
        self._fold = fold
        x = clean.features()
        bad = {cell: (copies.index, copies.features()) for cell, copies in corrupted.items()}
        self._models = [list(_models(x, bad, fold, held_out)) for held_out in range(FOLDS)]
        self.clean = self._held_out(clean.index, x)
        """Scores of the clean files ``[n]``."""
        self.corrupted = {cell: self._held_out(index, rows) for cell, (index, rows) in bad.items()}
        """Scores of the corrupted copies."""

    def _held_out(self, index: Indices, x: Any) -> FloatArray:
        scores = np.empty(len(index))
        for held_out, models in enumerate(self._models):
            rows = np.flatnonzero(self._fold[index] == held_out)
            if len(rows):
                scores[rows] = _chance(models, x[rows])
        return scores

    def predict(self, unseen: Copies) -> FloatArray:
        """Scores of other files: the mean of all models ``[m]``."""
        x = unseen.features()
        return np.asarray(np.mean([_chance(models, x) for models in self._models], axis=0))


def _models(
    x: Any, bad: Mapping[Cell, tuple[Indices, Any]], fold: Indices, held_out: int
) -> Iterator[Any]:
    """One fitted model per family of corruptions that some file has."""
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    for family, corruptions in FAMILIES.items():
        copies = [
            rows[fold[index] != held_out]
            for (name, _), (index, rows) in bad.items()
            if name in corruptions
        ]
        clean = x[fold != held_out]
        count = sum(rows.shape[0] for rows in copies)
        if count:
            labels = np.repeat([0, 1], [clean.shape[0], count])
            model = LogisticRegression(C=_C[family], solver="liblinear", class_weight="balanced")
            yield make_pipeline(MaxAbsScaler(), model).fit(vstack([clean, *copies]), labels)


def _chance(models: Sequence[Any], x: Any) -> FloatArray:
    from scipy.special import expit

    odds = np.logaddexp.reduce([model.decision_function(x) for model in models])
    return np.asarray(expit(odds))
