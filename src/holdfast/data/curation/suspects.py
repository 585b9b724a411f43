"""Points whose label is probably wrong.

They have high losses and high influence, so a budget that follows scores would go to them first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.influence_scores import Classifier, FloatArray

FOLDS = 5


def label_suspects(
    x: FloatArray, y: npt.NDArray[np.generic], c: float = 10.0, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Points that a model fitted without them puts confidently into another class.

    Confidently: it is more probable than the given label, and at least as probable as points with that
    label find it on average (Northcutt, Jiang and Chuang, "Confident learning", JAIR 2021, equation 2).

    Args:
        x: features ``[n, d]``.
        y: labels ``[n]``.
        c: inverse strength of the regularization.
        seed: of the folds.

    Returns:
        Their indices, the most suspicious first; none where a class has too few points for two folds.
    """
    return doubtful_labels(x, y, c, seed)[0]


def doubtful_labels(
    x: FloatArray, y: npt.NDArray[np.generic], c: float, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The suspects, and all points that a model fitted without them puts into another class.

    Some of the latter are rightly labelled points near the boundary, but most wrong labels are among them:
    a choice of training points that leaves them out takes next to no wrong label.
    """
    from sklearn.model_selection import StratifiedKFold

    none = np.empty(0, np.int64)
    classes, label, counts = np.unique(y, return_inverse=True, return_counts=True)
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        return none, none
    p = np.zeros((len(x), len(classes)))
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, label):
        p[held_out] = Classifier.fit(x[train], label[train], c).probabilities(x[held_out])
    rows = np.arange(len(x))
    given = p[rows, label]
    confidence = np.array([p[label == each, each].mean() for each in range(len(classes))])
    p[rows, label] = -1.0
    lead = p.max(axis=1) - given
    confident = np.where(p >= confidence, p, -1.0).max(axis=1) - given
    found = np.flatnonzero(confident > 0)
    return found[np.argsort(-confident[found], kind="stable")], np.flatnonzero(lead > 0)
