"""Choosing training data: what to augment, what to buy, and whether random would do as well.

choice = curation.augment("features.npz")     # which points, the budget curve, a verdict
selector = curation.AugmentationSelector(fraction=0.1).fit(x, y)
market = curation.Market.read("market")
curation.plan_purchase(market, budget=150).buys
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.curation.augmentation import AugmentationSelector, LabelledFeatures
    from holdfast.data.curation.budget_curve import augment
    from holdfast.data.curation.buying import evaluate_plan, plan_purchase
    from holdfast.data.curation.influence import influence
    from holdfast.data.curation.label_suspects import label_suspects
    from holdfast.data.curation.market import Market, Price, Seller, Summary
    from holdfast.data.curation.shapley import knn_shapley

_HOMES = {
    "AugmentationSelector": "augmentation",
    "LabelledFeatures": "augmentation",
    "Market": "market",
    "Price": "market",
    "Seller": "market",
    "Summary": "market",
    "augment": "budget_curve",
    "evaluate_plan": "buying",
    "influence": "influence",
    "knn_shapley": "shapley",
    "label_suspects": "label_suspects",
    "plan_purchase": "buying",
}

__all__ = [
    "AugmentationSelector",
    "LabelledFeatures",
    "Market",
    "Price",
    "Seller",
    "Summary",
    "augment",
    "evaluate_plan",
    "influence",
    "knn_shapley",
    "label_suspects",
    "plan_purchase",
]

__getattr__ = lazily(__name__, _HOMES)
