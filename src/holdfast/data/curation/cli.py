"""`holdfast data curation`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.command import Answer, Count, Positive, Share, option, room
from holdfast.data.curation.choices import Policy, PruneScore, Score, Strategy

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
    strategy: Strategy = "single",
    seed: Count = 0,
) -> Answer:
    """Plan what to buy of each seller, from prices and summaries.

    Args:
        folder: Market: market.json, summaries/ and buyer.npz; rows/ for the strategy probe.
        budget: What may be spent at most.
        strategy: How the plan is made: single takes the seller with the best forecast, summary optimizes
            the forecast of mixtures, probe buys a few rows first and leaves sellers that do not hold
            what they claim (the only one that reads rows for sale).
        seed: Of the halves of the buyer's rows: plan on one, forecast on the other.
    """
    from holdfast.data.curation.buying import plan_purchase
    from holdfast.data.curation.market import Market

    return plan_purchase(Market.read(folder), budget, strategy, seed)


scip = room("scip", "Prune source code, after trying which score finds corrupted files.")
app.command(scip)
_Embedder = Annotated[Path | None, option("--embedder", metavar="MODEL")]
_Cache = Annotated[Path | None, option("--cache", metavar="FOLDER")]


@scip.command
def calibrate(
    folder: Annotated[Path, option(metavar="DIR")],
    /,
    *,
    embedder: _Embedder = None,
    sample: Positive = 1000,
    seed: Count = 0,
    cache: _Cache = None,
) -> Answer:
    """Corrupt files of a folder, and measure which score finds them, or that none does.

    Args:
        folder: Source files of Python, JavaScript, C, Java, Go or Rust; hidden folders are not entered.
        embedder: Folder of a sentence-transformers model (default: TF-IDF and SVD, fitted to the files).
        sample: Maximum number of files to corrupt.
        seed: Random seed.
        cache: Folder for vectors; rerun to resume.
    """
    from holdfast.data.curation.calibration import calibrate as run

    return run(folder, embedder, sample, seed, cache)


@scip.command
def prune(
    folder: Annotated[Path, option(metavar="DIR")],
    /,
    *,
    output: Annotated[Path, option("--output", "-o", metavar="OUT")],
    by: PruneScore = "calibrated",
    fraction: Share = 0.2,
    embedder: _Embedder = None,
    copy: bool = False,
    sample: Positive = 1000,
    seed: Count = 0,
    cache: _Cache = None,
) -> Answer:
    """Remove duplicates and the files that a score puts last; list every file with its reason.

    Args:
        folder: Source files of Python, JavaScript, C, Java, Go or Rust; hidden folders are not entered.
        output: New folder: files.csv (every file, with status and reason) and kept.txt.
        by: Score that decides; calibrated takes what calibrate says, and prunes nothing if it refuses.
        fraction: Maximum share of the files, without duplicates, to remove.
        embedder: Folder of a sentence-transformers model (default: TF-IDF and SVD, fitted to the files).
        copy: Copy the files that stay to OUT/kept.
        sample: Maximum number of files to corrupt for the calibration.
        seed: Random seed.
        cache: Folder for vectors (default: next to OUT until it is complete); rerun to resume.
    """
    from holdfast.data.curation.pruning import prune as run

    return run(folder, output, by, fraction, embedder, copy, sample, seed, cache)
