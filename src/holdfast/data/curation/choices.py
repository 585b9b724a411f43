"""What can be asked for by name; help knows the names without loading scikit-learn."""

from __future__ import annotations

from typing import Literal

Score = Literal["influence", "loss", "margin"]
Policy = Literal["uniform", "proportional", "inverse", "softmax", "deterministic", "kmeans", "dpp"]
Strategy = Literal["summary", "align", "single", "cheapest", "uniform", "random"]
PruneScore = Literal[
    "calibrated",
    "small-cluster",
    "far-from-centroid",
    "combined",
    "learned",
    "parse-errors",
    "longest",
    "semdedup",
]
