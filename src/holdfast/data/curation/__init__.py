"""Choosing training data: what to augment, and whether random would do as well.

    choice = curation.augment("features.npz")     # which points, the budget curve, a verdict
    selector = curation.AugmentationSelector(fraction=0.1).fit(x, y)
    selector.selected_
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.curation.augmentation import AugmentationSelector, LabelledFeatures
    from holdfast.data.curation.budget_curve import augment
    from holdfast.data.curation.influence import influence
    from holdfast.data.curation.label_suspects import label_suspects

_HOMES = {
    "AugmentationSelector": "augmentation",
    "LabelledFeatures": "augmentation",
    "augment": "budget_curve",
    "influence": "influence",
    "label_suspects": "label_suspects",
}

__all__ = [
    "AugmentationSelector",
    "LabelledFeatures",
    "augment",
    "influence",
    "label_suspects",
]

__getattr__ = lazily(__name__, _HOMES)
