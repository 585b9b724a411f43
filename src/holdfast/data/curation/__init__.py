"""Choosing training data: what to augment, prune or buy, and whether random would do as well.

choice = curation.augment("features.npz")     # which points, the budget curve, a verdict
selector = curation.AugmentationSelector(fraction=0.1).fit(x, y)
market = curation.Market.read("market")
curation.plan_purchase(market, budget=150).buys
curation.calibrate("code").verdict            # whether a score finds corrupted source files
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.curation.augmentation import (
        AugmentationSelector,
        LabelledFeatures,
        extract_features,
    )
    from holdfast.data.curation.budget_curve import augment
    from holdfast.data.curation.buying import evaluate_plan, plan_purchase
    from holdfast.data.curation.calibration import calibrate
    from holdfast.data.curation.corruption import corrupt
    from holdfast.data.curation.embedding import Embedder
    from holdfast.data.curation.influence_scores import influence
    from holdfast.data.curation.market import Market, Price, Seller, Summary
    from holdfast.data.curation.pruning import prune
    from holdfast.data.curation.shapley import knn_shapley
    from holdfast.data.curation.suspects import label_suspects

_HOMES = {
    "AugmentationSelector": "augmentation",
    "Embedder": "embedding",
    "LabelledFeatures": "augmentation",
    "Market": "market",
    "Price": "market",
    "Seller": "market",
    "Summary": "market",
    "augment": "budget_curve",
    "calibrate": "calibration",
    "corrupt": "corruption",
    "evaluate_plan": "buying",
    "extract_features": "augmentation",
    "influence": "influence_scores",
    "knn_shapley": "shapley",
    "label_suspects": "suspects",
    "plan_purchase": "buying",
    "prune": "pruning",
}

__all__ = [
    "AugmentationSelector",
    "Embedder",
    "LabelledFeatures",
    "Market",
    "Price",
    "Seller",
    "Summary",
    "augment",
    "calibrate",
    "corrupt",
    "evaluate_plan",
    "extract_features",
    "influence",
    "knn_shapley",
    "label_suspects",
    "plan_purchase",
    "prune",
]

__getattr__ = lazily(__name__, _HOMES)
