"""`holdfast data curation`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.command import Answer, Count, Share, option, room
from holdfast.data.curation.choices import Policy, Score, Strategy

app = room("curation", "Choose training data: what to augment, label, prune or buy.")


@app.command
def augment(
    features: Annotated[Path, option(metavar="FEATURES.npz")],
    /,
    *,
    fraction: Share = 0.1,
    score: Score = "influence",
    policy: Policy = "deterministic",
    updates: Count = 0,
    downweight: bool = False,
    splits: Annotated[int, option(at_least=2, metavar="N")] = 10,
    seed: Count = 0,
) -> Answer:
    """Choose the points whose transforms teach most, and measure whether random would do as well.

    Args:
        features: NumPy archive with x [points, d], y [points] and augmented [points, transforms, d]:
            features of a model that was trained without augmentation.
        fraction: Share of the points that get their transforms.
        score: What a point is worth: its influence on its own loss, its loss, or its (small) margin.
        policy: How points are chosen from scores.
        updates: How many times scores are renewed with the transforms chosen so far.
        downweight: Let a point and its m transforms weigh 1 / (m + 1) each.
        splits: Random splits into training and test points that the curve averages over.
        seed: Of splits and draws.
    """
    from holdfast.data.curation.augmentation import AugmentationSelector
    from holdfast.data.curation.budget_curve import augment as run

    selector = AugmentationSelector(
        score, policy, fraction, updates=updates, downweight=downweight, random_state=seed
    )
    return run(features, selector, splits=splits, seed=seed)


market = room("market", "Buy training data: plans from what sellers show, within a budget.")
app.command(market)


@market.command
def plan(
    folder: Annotated[Path, option(metavar="MARKET")],
    /,
    *,
    budget: Annotated[float, option(at_least=0, metavar="MONEY")],
    strategy: Strategy = "summary",
    seed: Count = 0,
) -> Answer:
    """Plan what to buy of each seller, from prices and summaries alone.

    Args:
        folder: Market: market.json, summaries/ and buyer.npz; the rows for sale are not read.
        budget: What may be spent at most.
        strategy: How the plan is made; summary forecasts the accuracy that a purchase would give.
        seed: Of the halves of the buyer's rows: plan on one, forecast on the other.
    """
    from holdfast.data.curation.buying import plan_purchase
    from holdfast.data.curation.market import Market

    return plan_purchase(Market.read(folder), budget, strategy, seed)
