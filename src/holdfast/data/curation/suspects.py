"""Points whose label is probably wrong.

They have high losses and high influence, so a budget that follows scores would go to them first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.influence_scores import Classifier, FloatArray

FOLDS = 5
_SIGNAL = 10.8  # chi-squared with one degree of freedom: chance in 1 of 1,000
_WRONG = 5.41  # chance in 1 of 100, for the rate of wrong labels lies at the end of its range
_ALIKE = 1.35  # of the log-likelihood: chance in 1 of 10
_MOST = 0.25  # rate of wrong labels that is believed where overlap would explain them as well
_SHARPNESS = np.r_[0.0, np.geomspace(0.01, 10, 40)]  # a: 0 where the model knows nothing
_RATES = np.linspace(0, 0.45, 31)  # e

Indices = npt.NDArray[np.int64]


def label_suspects(
    x: FloatArray, y: npt.NDArray[np.generic], c: float = 10.0, seed: int = 0
) -> Indices:
    """Points whose label is more probably wrong than right, by a model that was fitted without them.

    The model's probabilities are calibrated on points held out, together with a rate of wrong labels:
    P(label i | x) = (1 - e) q_i + e (1 - q_i) / (K - 1), with q proportional to share (p / share)^a.
    Where the features say nothing, a is 0 and no label is suspect; where classes overlap, e is 0 as long
    as the overlap explains every odd label.

    Args:
        x: features ``[n, d]``.
        y: labels ``[n]``.
        c: inverse strength of the regularization.
        seed: of the folds.

    Returns:
        Their indices, the most suspicious first; none where nothing can be told: the features do not
        predict labels better than the classes' shares, or a class has too few points for two folds.
    """
    return doubtful_labels(x, y, c, seed)[0]


def doubtful_labels(
    x: FloatArray, y: npt.NDArray[np.generic], c: float, seed: int
) -> tuple[Indices, Indices, bool]:
    """The suspects; all points that a model fitted without them contradicts; whether there is a signal.

    Without one there are none of either. Some of the second are rightly labelled points near the boundary,
    but most wrong labels are among them: a choice of training points that leaves them out takes next to no
    wrong label.
    """
    from sklearn.model_selection import StratifiedKFold

    x, none = x - x.mean(axis=0), np.empty(0, np.int64)
    classes, label, counts = np.unique(y, return_inverse=True, return_counts=True)
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        return none, none, False
    p = np.zeros((len(x), len(classes)))  # [n, classes], each row by a model that did not see it
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, label):
        p[held_out] = Classifier.fit(x[train], label[train], c).probabilities(x[held_out])
    share = np.log(counts / len(x))
    ratio = np.log(np.maximum(p, 1e-300)) - share
    others = _RATES / (len(classes) - 1)
    losses = np.array(
        [
            -np.log(np.outer(q, 1 - _RATES) + np.outer(1 - q, others)).sum(axis=0)
            for q in (_right(a, share, ratio, label) for a in _SHARPNESS)
        ]
    )  # [sharpness, rate]
    calibrated, noisy = losses[:, 0].min(), losses.min()
    if 2 * (losses[0, 0] - calibrated) < _SIGNAL:
        return none, none, False
    contradicted = np.flatnonzero(p.argmax(axis=1) != label)
    # Of the fits that are about as likely as the best, the sharpest: it leaves least to overlap.
    sharpness, rate = np.argwhere(losses < noisy + _ALIKE)[-1]
    q = _right(_SHARPNESS[sharpness], share, ratio, label)
    overlap, e = np.minimum(q, 1 - q).mean(), _RATES[rate]
    if 2 * (calibrated - noisy) < _WRONG and not 2 * overlap < e <= _MOST:
        return none, contradicted, True
    found = np.flatnonzero((1 - e) * q < others[rate] * (1 - q))
    return found[np.argsort(q[found], kind="stable")], contradicted, True


def _right(a: float, share: FloatArray, ratio: FloatArray, label: Indices) -> FloatArray:
    """The probability q of each point's label, before any label was made wrong: ``[n]``."""
    from scipy.special import softmax

    q = softmax(share + a * ratio, axis=1)[np.arange(len(label)), label]
    return np.maximum(q, 1e-300)
