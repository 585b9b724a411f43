"""What each budget of augmentation brings on held-out points, and whether random would do as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.data.curation.augmentation import (
    AugmentationSelector,
    LabelledFeatures,
    accuracies,
)
from holdfast.data.curation.choices import bounded, within
from holdfast.data.curation.influence_scores import FloatArray
from holdfast.numbers import percent
from holdfast.report.figures import lines

FRACTIONS = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
HELD_OUT = 0.25
WANTED = 0.9
"""The share of the full gain that `enough` asks for."""

# A smaller difference of accuracy does not matter: half a point, or a tenth of the errors if that is more.
MATTERS, MATTERS_OF_ERRORS = 0.005, 0.1

Verdict = Literal["use", "random is as good", "random is better", "no gain", "too little data"]
_MEANING: dict[Verdict, str] = {
    "use": "Use this choice",
    "random is as good": "A random choice is as good",
    "random is better": "A random choice is better",
    "no gain": "Augmentation brings nothing that matters here",
    "too little data": "Too little data to tell",
}


@dataclass(frozen=True)
class AugmentationChoice(Answer):
    """The points to augment, and what the budget brings.

    Args:
        selected: indices of the chosen points, best first.
        curve: rows ``{"fraction", "policy", "accuracy", "ci95"}``: accuracy on held-out points and all
            their transforms, averaged over splits.
        verdict: of the policy against random at the asked fraction: use, random is as good, random is
            better, no gain (augmenting everything surely brings less than matters), or too little data
            (the intervals allow for differences that matter either way).
        matters: accuracy that matters: half a point, or a tenth of the errors without augmentation.
        advantage: accuracy of the policy less that of random at the asked fraction.
        advantage_ci95: its interval.
        gain: accuracy with everything augmented less that with nothing.
        gain_ci95: its interval.
        enough: the smallest fraction of the curve that surely brings 90 % of the gain; None: none does.
        suspects: points whose label is probably wrong, most suspicious first; they are not selected.
        labels_checked: whether the features predict labels well enough to suspect any.
        fraction: what was asked for.
        policy: how points are chosen from scores.
        score: what they are chosen by.
        splits: random splits that the curve averages over.
        points: number of points.
    """

    selected: list[int]
    curve: list[dict[str, Any]]
    verdict: Verdict
    matters: float
    advantage: float
    advantage_ci95: tuple[float, float]
    gain: float
    gain_ci95: tuple[float, float]
    enough: float | None
    suspects: list[int]
    labels_checked: bool
    fraction: float
    policy: str
    score: str
    splits: int
    points: int

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Points to augment"

    def values(self) -> Sequence[Value]:
        """What the choice brings."""
        return [
            Value("advantage", self.advantage, ci95=self.advantage_ci95, better="higher"),
            Value("gain", self.gain, ci95=self.gain_ci95, better="higher"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Points and splits."""
        splits = f"{self.splits}, {percent(HELD_OUT)} of the points held out"
        return [("points", f"{self.points:,}"), ("splits", splits)]

    def sections(self) -> Sequence[Section]:
        """The curve, and the labels to look at."""
        sentence = (
            f"{_MEANING[self.verdict]}: with {percent(self.fraction)} of the points augmented, choosing "
            f"by {self.score} ({self.policy}) differs from a random choice by "
            f"{_points(self.advantage, self.advantage_ci95)} points of accuracy; augmenting all brings "
            f"{_points(self.gain, self.gain_ci95)}."
        )
        if self.enough is not None and self.enough < 1:
            sentence += f" {percent(self.enough)} surely bring {percent(WANTED)} of that gain."
        elif self.gain_ci95[0] > 0:
            sentence += f" No budget short of all surely brings {percent(WANTED)} of that gain."
        rows = bounded(self.curve)
        x, y = "Share of the points augmented", "Accuracy on held-out points and their transforms"
        figure = lines(
            rows, "fraction", "accuracy", x, y, series="policy", low="low", high="high", zero=False
        )
        columns = {
            "fraction": ColumnFormat("Augmented", "%", digits=1),
            "policy": ColumnFormat("Policy"),
            "accuracy": ColumnFormat("Accuracy", "%", digits=2, interval=("low", "high")),
        }
        how = How(
            "accuracy of a logistic regression on the points and the transforms of the chosen ones",
            source="Kuchnik and Smith, Efficient augmentation via data subsampling, ICLR 2019",
            parameters={"difference that matters": f"{100 * self.matters:.2f} points of accuracy"},
            notes="Intervals are 95 % over the splits and allow for the points that splits share (Nadeau "
            "and Bengio, Inference for the generalization error, 2003). A label is probably wrong where "
            "that explains it better than the overlap of the classes does, by a model fitted without the "
            "point and calibrated together with a rate of wrong labels.",
        )
        if not self.labels_checked:
            sentence += (
                " Wrong labels: cannot tell, the features predict labels no better than chance."
            )
        tables = [Table(pa.Table.from_pylist(rows), columns)]
        if self.suspects:
            sentence += (
                f" {len(self.suspects):,} labels are probably wrong and not chosen: check them."
            )
            caption = "Points whose label is probably wrong, most suspicious first."
            tables.append(Table(pa.table({"point": self.suspects[:1000]}), caption=caption))
        return [Section("curve", "What does each budget bring?", sentence, [figure], tables, how)]


def augment(
    features: Path | LabelledFeatures,
    selector: AugmentationSelector | None = None,
    fractions: Sequence[float] = FRACTIONS,
    splits: int = 10,
    seed: int = 0,
) -> AugmentationChoice:
    """Choose the points to augment, and measure what the choice brings against random.

    Args:
        features: an ``.npz`` file with ``x`` [n, d], ``y`` [n], ``augmented`` [n, m, d], or the arrays.
        selector: what chooses; its `fraction` is the budget.
        fractions: of the curve; the budget is added.
        splits: random splits into training and test points.
        seed: of the splits and draws.

    Raises:
        InputError: arrays that do not fit, a single class, fewer than two splits.
    """
    data = features if isinstance(features, LabelledFeatures) else LabelledFeatures.read(features)
    mean = data.x.mean(axis=0)  # as `AugmentationSelector.fit` does
    data = replace(data, x=data.x - mean, augmented=data.augmented - mean)
    within("splits", splits, 2)
    chooser = AugmentationSelector(random_state=seed) if selector is None else selector
    fraction = chooser.fraction
    policies = {
        "uniform": replace(chooser, policy="uniform", updates=0),
        chooser.policy: chooser,
    }
    if chooser.policy == "dpp":  # it draws at most as many points as its vectors have dimensions
        fractions = [each for each in fractions if each * len(data.x) <= data.x.shape[1]]
    asked = sorted({0.0, 1.0, fraction, *fractions})
    found = accuracies(data, policies, asked, splits, seed)
    curve: list[dict[str, Any]] = []
    for (name, share), values in sorted(found.items()):
        mean, *ends = interval(values)
        ci95 = tuple(np.clip(ends, 0.0, 1.0).tolist())
        curve.append({"fraction": share, "policy": name, "accuracy": mean, "ci95": ci95})
    ours = {share: values for (name, share), values in found.items() if name == chooser.policy}
    # Splits that agree do not show that points yet unseen would: none of n differs in up to 3 of n.
    least = 3 / len(data.x)
    advantage = interval(ours[fraction] - found["uniform", fraction], least)
    gain = interval(ours[1.0] - ours[0.0], least)
    matters = max(MATTERS, MATTERS_OF_ERRORS * (1 - float(ours[0.0].mean())))
    sure = [
        share
        for share in asked
        if interval(ours[share] - ours[0.0] - WANTED * (ours[1.0] - ours[0.0]))[1] >= 0
    ]
    made = replace(chooser).fit(data.x, data.y, data.augmented)
    return AugmentationChoice(
        selected=made.selected_.tolist(),
        curve=curve,
        verdict=judged(gain, advantage, matters),
        matters=matters,
        advantage=advantage[0],
        advantage_ci95=advantage[1:],
        gain=gain[0],
        gain_ci95=gain[1:],
        enough=sure[0] if sure and gain[1] > 0 else None,
        suspects=made.suspects_.tolist(),
        labels_checked=made.labels_checked_,
        fraction=fraction,
        policy=chooser.policy,
        score=chooser.score,
        splits=splits,
        points=len(data.x),
    )


def judged(
    gain: tuple[float, float, float], advantage: tuple[float, float, float], matters: float
) -> Verdict:
    """The verdict of two differences of accuracy, each (mean, low, high)."""
    if gain[1] <= 0:  # where nothing is gained, a choice of points wins nothing
        return "no gain" if gain[2] <= matters else "too little data"
    if advantage[1] > 0:
        return "use"
    if advantage[2] < 0:
        return "random is better"
    alike = -matters <= advantage[1] and advantage[2] <= matters
    return "random is as good" if alike else "too little data"


def interval(values: FloatArray, least: float = 0.0) -> tuple[float, float, float]:
    """Mean over random splits and its 95 % interval, at least `least` to each side.

    Splits share points, so their differences vary less than those of new data would; the variance is
    corrected by the ratio of test to training points (Nadeau and Bengio 2003).
    """
    from scipy.special import stdtrit

    count = len(values)
    ratio = HELD_OUT / (1 - HELD_OUT)
    half = float(stdtrit(count - 1, 0.975) * np.sqrt((1 / count + ratio) * values.var(ddof=1)))
    half = max(half, least)
    mean = float(values.mean())
    return mean, mean - half, mean + half


def _points(value: float, ci95: tuple[float, float]) -> str:
    return f"{100 * value:+.2f} [{100 * ci95[0]:+.2f}, {100 * ci95[1]:+.2f}]"
