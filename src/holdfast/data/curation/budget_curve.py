"""What each budget of augmentation brings on held-out points, and whether random would do as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from holdfast.data.curation.influence import FloatArray
from holdfast.errors import InputError
from holdfast.numbers import percent
from holdfast.report.figures import lines

FRACTIONS = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
HELD_OUT = 0.25
WANTED = 0.9
"""The share of the full gain that `enough` asks for."""

Verdict = Literal["use", "random is as good", "random is better", "no gain"]


@dataclass(frozen=True)
class AugmentationChoice(Answer):
    """The points to augment, and what the budget brings.

    Args:
        selected: indices of the chosen points, best first.
        curve: rows ``{"fraction", "policy", "accuracy", "ci95"}``: accuracy on held-out points and all
            their transforms, averaged over splits.
        verdict: of the policy against random at the asked fraction: use, random is as good, random is
            better, or no gain (augmenting everything brings nothing that can be measured).
        advantage: accuracy of the policy less that of random at the asked fraction.
        advantage_ci95: its interval.
        gain: accuracy with everything augmented less that with nothing.
        gain_ci95: its interval.
        enough: the smallest fraction of the curve that surely brings 90 % of the gain; None: none does.
        suspects: points whose label is probably wrong, most suspicious first; they are not selected.
        fraction: what was asked for.
        policy: how points are chosen from scores.
        score: what they are chosen by.
        splits: random splits that the curve averages over.
        points: number of points.
    """

    selected: list[int]
    curve: list[dict[str, Any]]
    verdict: Verdict
    advantage: float
    advantage_ci95: tuple[float, float]
    gain: float
    gain_ci95: tuple[float, float]
    enough: float | None
    suspects: list[int]
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
            Value(
                "advantage",
                self.advantage,
                ci95=self.advantage_ci95,
                better="higher",
                how="accuracy at the asked fraction, less that of a random choice",
            ),
            Value("gain", self.gain, ci95=self.gain_ci95, better="higher"),
            Value("suspects", len(self.suspects)),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Points and splits."""
        return [
            ("points", f"{self.points:,}"),
            ("splits", f"{self.splits}, {percent(HELD_OUT)} of the points held out"),
        ]

    def sections(self) -> Sequence[Section]:
        """The curve, and the labels to look at."""
        at = {
            row["policy"]: row["accuracy"] for row in self.curve if row["fraction"] == self.fraction
        }
        size = _interval(self.advantage, self.advantage_ci95)
        what = {
            "use": f"Choosing by {self.score} ({self.policy}) beats a random choice by {size}",
            "random is as good": (
                f"A random choice is as good: {self.score} ({self.policy}) differs from it by {size}"
            ),
            "random is better": (
                f"A random choice is better: {self.score} ({self.policy}) differs from it by {size}"
            ),
            "no gain": (
                "Augmentation brings nothing that can be measured here: with everything augmented "
                f"accuracy changes by {_interval(self.gain, self.gain_ci95)}"
            ),
        }[self.verdict]
        share = percent(self.fraction)
        sentence = f"{what} points of accuracy, with {share} of the points augmented."
        if self.verdict != "no gain":
            sentence += (
                f" {percent(self.enough)} surely bring {percent(WANTED)} of the full gain."
                if self.enough is not None and self.enough < 1
                else f" No budget short of all surely brings {percent(WANTED)} of the full gain."
            )
        rows = [
            {
                "fraction": row["fraction"],
                "policy": row["policy"],
                "accuracy": row["accuracy"],
                "low": row["ci95"][0],
                "high": row["ci95"][1],
            }
            for row in self.curve
        ]
        figure = lines(
            rows,
            "fraction",
            "accuracy",
            "Share of the points augmented",
            "Accuracy on held-out points and their transforms",
            series="policy",
            low="low",
            high="high",
            points=True,
            zero=False,
        )
        columns = {
            "fraction": ColumnFormat("Augmented", "%", digits=1),
            "policy": ColumnFormat("Policy"),
            "accuracy": ColumnFormat("Accuracy", "%", digits=2, interval=("low", "high")),
        }
        how = How(
            "accuracy of a logistic regression on the points and the transforms of the chosen ones",
            source="Kuchnik and Smith, Efficient augmentation via data subsampling, ICLR 2019",
            notes=(
                "Intervals are 95 % over the splits and allow for the points that splits share (Nadeau and "
                "Bengio, Inference for the generalization error, 2003). At the asked fraction "
                + ", ".join(f"{name}: {percent(value)}" for name, value in at.items())
                + "."
            ),
        )
        sections = [
            Section(
                "curve",
                "What does each budget bring?",
                sentence,
                [figure],
                [Table(pa.Table.from_pylist(rows), columns)],
                how,
            )
        ]
        if self.suspects:
            found = pa.table({"point": self.suspects[:1000]})
            sections.append(
                Section(
                    "suspects",
                    "Which labels should be checked?",
                    f"{len(self.suspects):,} labels are probably wrong; their points are not chosen.",
                    [],
                    [Table(found, {"point": ColumnFormat("Point")}, "Most suspicious first.")],
                    How(
                        "A model fitted without the point is confident of another class.",
                        source="Northcutt, Jiang and Chuang, Confident learning, JAIR 2021",
                    ),
                )
            )
        return sections


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
    if splits < 2:
        raise InputError(
            "an interval needs two splits",
            code="out-of-range",
            place="splits",
            found=str(splits),
            expected="2 or more",
        )
    chooser = AugmentationSelector(random_state=seed) if selector is None else selector
    settings = chooser.get_params()
    if chooser.k is not None:
        settings |= {"fraction": chooser.k / len(data.x), "k": None}
    fraction = float(settings["fraction"])
    random = AugmentationSelector(**settings | {"policy": "uniform", "updates": 0})
    if chooser.policy == "dpp":  # it draws at most as many points as its vectors have dimensions
        fractions = [each for each in fractions if each * len(data.x) <= data.x.shape[1]]
    asked = sorted({0.0, 1.0, fraction, *fractions})
    policies = [(chooser.policy, AugmentationSelector(**settings))]
    if chooser.policy != "uniform":
        policies.append(("uniform", random))
    found = accuracies(data, policies, asked, splits, seed)
    curve = [
        {"fraction": share, "policy": name, "accuracy": mean, "ci95": (low, high)}
        for (name, share), values in sorted(found.items())
        for mean, low, high in [interval(values)]
    ]
    ours = {share: values for (name, share), values in found.items() if name == chooser.policy}
    advantage = interval(ours[fraction] - found["uniform", fraction])
    gain = interval(ours[1.0] - ours[0.0])
    verdict: Verdict = "random is as good"
    if gain[1] <= 0:
        verdict = "no gain"
    elif advantage[1] > 0:
        verdict = "use"
    elif advantage[2] < 0:
        verdict = "random is better"
    sure = [
        share
        for share in asked
        if interval(ours[share] - ours[0.0] - WANTED * (ours[1.0] - ours[0.0]))[1] >= 0
    ]
    made = AugmentationSelector(**chooser.get_params()).fit(data.x, data.y, data.augmented)
    return AugmentationChoice(
        selected=made.selected_.tolist(),
        curve=curve,
        verdict=verdict,
        advantage=advantage[0],
        advantage_ci95=advantage[1:],
        gain=gain[0],
        gain_ci95=gain[1:],
        enough=sure[0] if sure and gain[1] > 0 else None,
        suspects=made.suspects_.tolist(),
        fraction=fraction,
        policy=chooser.policy,
        score=chooser.score,
        splits=splits,
        points=len(data.x),
    )


def interval(values: FloatArray) -> tuple[float, float, float]:
    """Mean over random splits and its 95 % interval.

    Splits share points, so their differences vary less than those of new data would; the variance is
    corrected by the ratio of test to training points (Nadeau and Bengio 2003).
    """
    from scipy.special import stdtrit

    count = len(values)
    ratio = HELD_OUT / (1 - HELD_OUT)
    half = float(stdtrit(count - 1, 0.975) * np.sqrt((1 / count + ratio) * values.var(ddof=1)))
    mean = float(values.mean())
    return mean, mean - half, mean + half


def _interval(value: float, ci95: tuple[float, float]) -> str:
    return f"{100 * value:+.2f} [{100 * ci95[0]:+.2f}, {100 * ci95[1]:+.2f}]"
