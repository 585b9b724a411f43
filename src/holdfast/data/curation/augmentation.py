"""Which points are worth augmenting.

The method is that of Kuchnik and Smith, "Efficient augmentation via data subsampling" (ICLR 2019).

A feature extractor is trained without augmentation and frozen. A logistic regression on its features scores
each point; a policy takes k points, and only these get their transforms. `AugmentationSelector` chooses;
`budget_curve` shows on held-out points what each budget brings, and whether random would do as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from holdfast.arrays import read_arrays
from holdfast.data.curation.choices import Policy, Score, within
from holdfast.data.curation.influence_scores import (
    Classifier,
    FloatArray,
    check,
    finite,
    influence,
    influence_vectors,
)
from holdfast.data.curation.policies import Indices, choose
from holdfast.data.curation.suspects import doubtful_labels
from holdfast.errors import InputError

Labels = npt.NDArray[np.generic]


@dataclass(frozen=True)
class _FirstLook:
    suspects: Indices
    contradicted: Indices
    signal: bool
    scores: FloatArray
    model: Classifier | None


@dataclass(repr=False, eq=False)  # scikit-learn prints and compares estimators its own way
class AugmentationSelector(BaseEstimator):  # type: ignore[misc]
    """Chooses the training points whose transforms teach most; a scikit-learn estimator.

    Args:
        score: influence (what leaving a point out would add to its own loss), loss, or margin (the negative
            margin of a linear support vector machine: support vectors come first).
        policy: how scores become a choice, see `holdfast.data.curation.policies`.
        fraction: of the points that get their transforms.
        updates: how many times the scores are renewed on the way, with the transforms chosen so far.
        downweight: a point and its m transforms weigh 1 / (m + 1) each.
        exclude_suspects: leave out points that a model fitted without them puts into another class:
            wrong labels have the highest scores of all.
        c: inverse strength of the regularization of the logistic regression.
        random_state: seed of the policies that draw.

    Attributes:
        selected_: the chosen points, best first: ``[k]``.
        scores_: of all points: ``[n]``.
        suspects_: points whose label is probably wrong.
        labels_checked_: whether the features predict labels well enough to suspect any.
    """

    score: Score = "influence"
    policy: Policy = "deterministic"
    fraction: float = 0.1
    updates: int = 0
    downweight: bool = False
    exclude_suspects: bool = True
    c: float = 10.0
    random_state: int = 0

    def fit(
        self, x: FloatArray, y: Labels, augmented: FloatArray | None = None
    ) -> AugmentationSelector:
        """Score all points and choose.

        Args:
            x: features of the points ``[n, d]``.
            y: labels ``[n]``.
            augmented: features of each point's m transforms ``[n, m, d]``; needed for `updates`.

        Raises:
            InputError: arrays that do not fit, features that are not finite, a single class, a fraction
                above 1.
        """
        check(x, y)
        if self.updates and augmented is None:
            raise InputError(
                "updates need the transforms' features",
                code="missing-key",
                place="augmented",
                expected="[n, m, d]",
            )
        mean = x.mean(axis=0)  # where 0 lies says nothing, and costs digits of every product
        x, augmented = x - mean, None if augmented is None else augmented - mean
        return self._choose(x, y, augmented, self._first_look(x, y))

    def _first_look(self, x: FloatArray, y: Labels) -> _FirstLook:
        """What does not depend on the budget."""
        scores, model = self._score(x, y, None, np.empty(0, np.int64))
        doubtful = doubtful_labels(x, y, self.c, self.random_state)
        return _FirstLook(*doubtful, scores, model)

    def _choose(
        self, x: FloatArray, y: Labels, augmented: FloatArray | None, first: _FirstLook
    ) -> AugmentationSelector:
        within("fraction", self.fraction, 0, 1)
        rng = np.random.default_rng(self.random_state)
        k = round(self.fraction * len(x))
        self.suspects_, self.scores_ = first.suspects, first.scores
        self.labels_checked_ = first.signal
        allowed = np.ones(len(x), bool)
        if self.exclude_suspects:
            allowed[first.contradicted] = False
            k = min(k, int(allowed.sum()))  # a budget of everything leaves them out all the same
        self.selected_: Indices = np.empty(0, np.int64)
        scores, model = first.scores, first.model
        for goal in np.linspace(0, k, self.updates + 2).round().astype(int)[1:]:
            if len(self.selected_):
                scores, model = self._score(x, y, augmented, self.selected_)
            free = np.flatnonzero(allowed)
            vectors = self._vectors(x, y, model)
            taken = choose(
                self.policy,
                scores[free],
                int(goal) - len(self.selected_),
                rng,
                vectors[free],
            )
            self.selected_ = np.concatenate([self.selected_, free[taken]])
            allowed[free[taken]] = False
        return self

    def _score(
        self, x: FloatArray, y: Labels, augmented: FloatArray | None, chosen: Indices
    ) -> tuple[FloatArray, Classifier | None]:
        """Scores of all points by a model that is fitted to them and to the transforms chosen so far."""
        xs, ys, weight = together(x, y, augmented, chosen, self.downweight)
        if self.score == "margin":
            scores = -margins(x, y, xs, ys, weight, self.c)
            return scores - scores.min(), None
        model = Classifier.fit(xs, ys, self.c, weight)
        if self.score == "loss":
            return model.losses(x, y), model
        return influence(model, xs, ys, weight)[: len(x)], model

    def _vectors(self, x: FloatArray, y: Labels, model: Classifier | None) -> FloatArray:
        """What policies of diversity compare: for dpp the influence between points, else the features."""
        if self.policy != "dpp":
            return x
        return influence_vectors(model or Classifier.fit(x, y, self.c), x, y)


def margins(
    x: FloatArray, y: Labels, xs: FloatArray, ys: Labels, weight: FloatArray | None, c: float
) -> FloatArray:
    """Distance of each point to the side of another class, for a linear SVM fitted to (xs, ys): ``[n]``."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=c, dual="auto", max_iter=20_000, random_state=0).fit(xs, ys, weight)
    decision = model.decision_function(x)
    if decision.ndim == 1:
        return np.asarray(np.where(y == model.classes_[1], decision, -decision))
    own = np.searchsorted(model.classes_, y)
    rows = np.arange(len(x))
    mine = decision[rows, own].copy()
    decision[rows, own] = -np.inf
    return np.asarray(mine - decision.max(axis=1))


def together(
    x: FloatArray,
    y: Labels,
    augmented: FloatArray | None,
    chosen: Indices,
    downweight: bool = False,
) -> tuple[FloatArray, Labels, FloatArray | None]:
    """The points and the transforms of the chosen ones: features, labels, weights (None: equal)."""
    if augmented is None or not len(chosen):
        return x, y, None
    m = augmented.shape[1]
    xs = np.concatenate([x, augmented[chosen].reshape(-1, x.shape[1])])
    ys = np.concatenate([y, np.repeat(y[chosen], m)])
    if not downweight:
        return xs, ys, None
    weight = np.ones(len(xs))
    weight[chosen] = 1 / (m + 1)
    weight[len(x) :] = 1 / (m + 1)
    return xs, ys, weight


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of labelled points and of their transforms.

    Args:
        x: ``[n, d]``.
        y: ``[n]``.
        augmented: ``[n, m, d]``, the transforms of each point in the same order.
    """

    x: FloatArray
    y: Labels
    augmented: FloatArray

    def __post_init__(self) -> None:
        check(self.x, self.y)
        n, d = self.x.shape
        m = self.augmented.shape[1] if self.augmented.ndim == 3 else 0
        if not m or self.augmented.shape != (n, m, d):
            raise InputError(
                "the transforms do not fit the points",
                code="invalid-value",
                place="augmented",
                found=str(list(self.augmented.shape)),
                expected=f"[{n}, 1 or more transforms per point, {d}]",
            )
        finite(self.augmented.reshape(n, -1), "augmented")

    def rows(self, index: Indices) -> LabelledFeatures:
        """Some of the points."""
        return LabelledFeatures(self.x[index], self.y[index], self.augmented[index])

    @classmethod
    def read(cls, path: Path) -> LabelledFeatures:
        """From an ``.npz`` file with the arrays ``x``, ``y`` and ``augmented``.

        Raises:
            InputError: no such file, other arrays.
        """
        shapes = "x [n, d], y [n], augmented [n, transforms, d]"
        x, y, augmented = read_arrays(path, ("x", "y", "augmented"), shapes).values()
        return cls(np.asarray(x, float), y, np.asarray(augmented, float))


def extract_features(
    module: Any, inputs: npt.ArrayLike, transforms: bool = False, batch: int = 256
) -> FloatArray:
    """Features of inputs by a torch module, which is frozen: no gradients, evaluation mode.

    Args:
        module: inputs ``[batch, ...]`` -> features, which are flattened; a network without its last layer.
        inputs: ``[n, ...]``, as the module takes them.
        transforms: inputs are ``[n, m, ...]``: the m transforms of each point.
        batch: inputs at a time.

    Returns:
        ``[n, d]``, or ``[n, m, d]``.
    """
    import torch

    array = torch.as_tensor(inputs)
    lead = array.shape[: 1 + transforms]
    training = module.training
    module.eval()  # dropout and batch normalization would make features depend on chance and neighbors
    try:
        with torch.inference_mode():
            parts = [
                module(part).flatten(1) for part in array.flatten(0, len(lead) - 1).split(batch)
            ]
    finally:
        module.train(training)
    return np.asarray(torch.cat(parts).double().cpu().numpy()).reshape(*lead, -1)


def splits(
    data: LabelledFeatures, count: int, seed: int, share: float = 0.25
) -> Iterator[tuple[LabelledFeatures, LabelledFeatures]]:
    """Stratified splits into training and test points; transforms stay with their points."""
    from sklearn.model_selection import StratifiedShuffleSplit

    classes, members = np.unique(data.y, return_counts=True)
    # Both parts of a split have a point of each class.
    needed = math.ceil(len(classes) / share)
    for found, least, what in (
        (int(members.min()), 2, "points in the smallest class"),
        (len(data.y), needed, f"points of {len(classes)} classes"),
    ):
        if found < least:
            raise InputError(
                "too few points to hold some of each class out",
                code="no-data",
                place="y",
                found=f"{found:,} {what}",
                expected=f"{least:,} or more",
            )
    maker = StratifiedShuffleSplit(count, test_size=share, random_state=seed)
    for train, test in maker.split(data.x, data.y):
        yield data.rows(train), data.rows(test)


def accuracies(
    data: LabelledFeatures,
    selectors: Mapping[str, AugmentationSelector],
    fractions: Sequence[float],
    count: int,
    seed: int,
) -> dict[tuple[str, float], FloatArray]:
    """Accuracy per policy and fraction over the splits: ``[count]``.

    The test set of a split is its held-out points and all their transforms. The selectors differ in policy
    only, so that one look at the training points serves them all.
    """
    found: dict[tuple[str, float], list[float]] = {}
    any_one = next(iter(selectors.values()))
    for number, (train, test) in enumerate(splits(data, count, seed)):
        xs, ys, _ = together(test.x, test.y, test.augmented, np.arange(len(test.x)))

        def tested(chosen: Indices, downweight: bool = False) -> float:
            fitted = together(train.x, train.y, train.augmented, chosen, downweight)  # noqa: B023
            model = Classifier.fit(fitted[0], fitted[1], any_one.c, fitted[2])
            return float((model.predict(xs) == ys).mean())  # noqa: B023

        everything = np.arange(len(train.x))
        ends = {0.0: tested(everything[:0]), 1.0: tested(everything)}
        first = any_one._first_look(train.x, train.y)
        for name, selector in selectors.items():
            for fraction in fractions:
                accuracy = ends.get(fraction)
                if accuracy is None:
                    made = replace(selector, fraction=fraction, random_state=seed + number)
                    made._choose(train.x, train.y, train.augmented, first)
                    accuracy = tested(made.selected_, selector.downweight)
                found.setdefault((name, fraction), []).append(accuracy)
    return {key: np.array(values) for key, values in found.items()}
