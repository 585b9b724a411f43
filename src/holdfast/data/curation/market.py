"""Data markets: sellers who show a summary and a price, and a buyer with labelled rows of their own.

The setting is that of DAM (Mazumder et al., "DataPerf", NeurIPS 2023): a buyer has a budget and sees of
each seller the price, the numbers of rows and columns, a histogram of 10 bins per column, each column's
correlation with the label, and five rows. A folder holds one market:

    market.json              names, rows and prices of the sellers
    summaries/NAME.npz       edges [d, 11], counts [d, 10], correlation [d], label_share,
                             sample_x [5, d], sample_y [5]
    rows/NAME.npz            x [n, d], y [n]: what is sold; planning never opens it
    buyer.npz                x, y: the buyer's labelled rows
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
import numpy.typing as npt

from holdfast.arrays import read_arrays
from holdfast.config import read_config
from holdfast.data.curation.choices import PriceKind, one_of, within
from holdfast.data.curation.influence_scores import FloatArray, check, finite
from holdfast.errors import InputError

BINS = 10
SHOWN = 5
MOST_ROWS = 10_000_000  # Costs are tabulated, a number per row for sale
_SHOWN = ("edges", "counts", "correlation", "label_share", "sample_x", "sample_y")


@dataclass(frozen=True)
class Price:
    """What q of n rows cost.

    Args:
        kind: linear (`top` q / n), convex (`top` (q / n)^`power`), setup (`fee` for the first row, then
            linear), or tiered (`tiers`: (share of the rows, price per row from there on)).
        top: price of all rows (linear, convex, setup: without the fee).
        fee: of the first row.
        power: 1 or more.
        tiers: ascending shares, the first 0, all below 1.
    """

    kind: PriceKind = "linear"
    top: float = 0.0
    fee: float = 0.0
    power: float = 2.0
    tiers: tuple[tuple[float, float], ...] = ()

    def table(self, rows: int) -> FloatArray:
        """The cost of 0, 1, ..., `rows` rows: ``[rows + 1]``.

        Raises:
            InputError: an unknown kind, a power below 1, or tiers that do not ascend from 0 to below 1.
        """
        one_of("kind of price", self.kind, get_args(PriceKind))
        q = np.arange(rows + 1)
        share = q / max(rows, 1)
        if self.kind == "convex":
            within("power", self.power, 1)
            return np.asarray(self.top * share**self.power)
        if self.kind == "tiered":
            at, per_row = np.array(self.tiers or [(np.nan, 0.0)], float).T
            if not (at[0] == 0 and (np.diff(at, append=1) > 0).all()):
                problem = "tiers are shares of the rows, and must ascend from 0 to below 1"
                raise InputError(problem, code="invalid-value", place="tiers")
            # The price of the q-th row is that of the tier that it lies in.
            tier = np.searchsorted(at, share[:-1], side="right") - 1
            return np.concatenate([[0.0], np.cumsum(per_row[tier])])
        fee = self.fee * (q > 0) if self.kind == "setup" else 0.0
        return np.asarray(self.top * share + fee)


@dataclass(frozen=True)
class Summary:
    """What a seller shows.

    Args:
        rows: how many are for sale.
        edges: of the histograms, ``[d, 11]``.
        counts: of the histograms, ``[d, 10]``.
        correlation: of each column with the label, ``[d]``.
        label_share: share of rows with the second label.
        sample_x: a few rows, ``[5, d]``.
        sample_y: their labels.

    Raises:
        InputError: what no rows can have: the place is the name of the array.
    """

    rows: int
    edges: FloatArray
    counts: FloatArray
    correlation: FloatArray
    label_share: float
    sample_x: FloatArray
    sample_y: npt.NDArray[np.generic]

    def __post_init__(self) -> None:
        columns = np.size(self.correlation)
        shown = len(np.atleast_1d(self.sample_y))
        shapes = {
            "edges": (columns, BINS + 1),
            "counts": (columns, BINS),
            "correlation": (columns,),
            "label_share": (),
            "sample_x": (shown, columns),
        }
        for name, shape in shapes.items():
            value = np.asarray(getattr(self, name))
            if value.shape != shape or value.dtype.kind not in "biuf":
                found = f"{value.dtype} of shape {list(value.shape)}"
                _refuse("invalid-value", name, found, f"numbers of shape {list(shape)}")
            finite(np.reshape(value, (1, -1)), name)
        # 1. Bounds of each statistic; a correlation or share may be off by rounding.
        bounds = {
            "rows": (1, MOST_ROWS),
            "correlation": (-1, 1),
            "label_share": (0, 1),
            "counts": (0, np.inf),
        }
        for name, (low, high) in bounds.items():
            value = np.ravel(getattr(self, name))
            outside = value[(value < low - 1e-6) | (value > high + 1e-6)]
            if len(outside):
                _refuse("out-of-range", name, f"{outside[0]:,}", f"{low:,} to {high:,}")
        # 2. Statistics that contradict each other.
        if (np.diff(self.edges, axis=1) < 0).any():
            _refuse("conflict", "edges", "edges that descend", "ascending edges per column")
        total = self.counts.sum(axis=1)
        if (abs(total - self.rows) > 0.5).any():
            found = f"histograms of {total.min():g} to {total.max():g} rows"
            _refuse("conflict", "counts", found, f"{self.rows:,}, the rows for sale")
        width = np.ptp(self.edges, axis=1)
        low, high = self.edges[:, 0] - 1e-6 * width, self.edges[:, -1] + 1e-6 * width
        if ((self.sample_x < low) | (self.sample_x > high)).any():
            _refuse("conflict", "sample_x", "rows outside the histograms", "rows that they count")

    @classmethod
    def of(cls, x: FloatArray, y: npt.NDArray[np.generic], seed: int = 0) -> Summary:
        """The summary of a seller's rows."""
        edges = np.linspace(x.min(axis=0), x.max(axis=0), BINS + 1).T  # [d, 11]
        counts = np.stack([np.histogram(x[:, j], edges[j])[0] for j in range(x.shape[1])])
        second = (y == np.unique(y)[-1]).astype(float)
        scale = x.std(axis=0) * second.std() * len(x)
        centred = (x - x.mean(axis=0)).T @ (second - second.mean())
        correlation = np.divide(centred, scale, out=np.zeros(x.shape[1]), where=scale > 0)
        shown = np.random.default_rng(seed).permutation(len(x))[:SHOWN]
        return cls(
            len(x), edges, counts.astype(float), correlation, second.mean(), x[shown], y[shown]
        )

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each column: of rows that lie evenly within their bins."""
        share = self.counts / self.counts.sum(axis=1, keepdims=True)
        middle = (self.edges[:, 1:] + self.edges[:, :-1]) / 2
        width = np.diff(self.edges, axis=1)
        mean = (share * middle).sum(axis=1)
        variance = (share * ((middle - mean[:, None]) ** 2 + width**2 / 12)).sum(axis=1)
        return mean, variance


@dataclass(frozen=True)
class Seller:
    """A name, a price, and what is shown."""

    name: str
    price: Price
    summary: Summary

    @cached_property
    def costs(self) -> FloatArray:
        """Of 0 to all rows.

        Raises:
            InputError: costs that fall with the number of rows or are not numbers.
        """
        cost = self.price.table(self.summary.rows)
        wrong = np.flatnonzero(~np.isfinite(cost) | np.r_[cost[0] != 0, ~(np.diff(cost) >= 0)])
        if len(wrong):
            raise InputError(
                "a price must begin at 0 and never fall as rows are added",
                code="invalid-value",
                place=f"price of {self.name}",
                found=f"{cost[wrong[0]]:g} for {wrong[0]} rows",
            )
        return cost


@dataclass(frozen=True)
class _Offer:
    """A seller in market.json."""

    name: str
    rows: int
    price: Price


@dataclass(frozen=True)
class _Listing:
    """The content of market.json."""

    sellers: tuple[_Offer, ...]


@dataclass(frozen=True)
class Market:
    """Sellers, and the buyer's labelled rows.

    Args:
        sellers: what they show; never their rows.
        x: the buyer's features ``[n, d]``.
        y: the buyer's labels, of two classes.
        folder: where the rows are that are sold; only `bought` reads them.
    """

    sellers: Sequence[Seller]
    x: FloatArray
    y: npt.NDArray[np.generic]
    folder: Path | None = None

    def __post_init__(self) -> None:
        check(self.x, self.y, "buyer")
        counts = np.unique(self.y, return_counts=True)[1]
        if (
            len(counts) != 2 or counts.min() < 2
        ):  # a plan needs both classes in each half of the rows
            raise InputError(
                "plans need two classes with two rows or more",
                code="unsupported",
                place="buyer",
                found=f"{len(counts)} classes, {counts.min()} rows in the smallest",
            )
        if not self.sellers:
            raise InputError("a market without sellers", code="empty-input", path=self.folder)
        for seller in self.sellers:
            if len(seller.summary.edges) != self.x.shape[1]:
                raise InputError(
                    "a seller's columns are not the buyer's",
                    code="conflict",
                    place=seller.name,
                    found=str(len(seller.summary.edges)),
                    expected=str(self.x.shape[1]),
                )

    @classmethod
    def read(cls, folder: Path) -> Market:
        """From a folder.

        Raises:
            InputError: files that are missing or damaged, summaries that contradict themselves.
        """
        offers = read_config(folder / "market.json", _Listing, "the market").sellers
        sellers = [
            Seller(offer.name, offer.price, _summary(folder, offer.name, offer.rows))
            for offer in offers
        ]
        buyer = read_arrays(folder / "buyer.npz", ("x", "y"))
        return cls(sellers, np.asarray(buyer["x"], float), buyer["y"], folder)

    @classmethod
    def build(
        cls,
        folder: Path,
        rows: Mapping[str, tuple[FloatArray, npt.NDArray[np.generic], Price]],
        buyer: tuple[FloatArray, npt.NDArray[np.generic]],
    ) -> Market:
        """Write a market: what each seller sells and for how much, and the buyer's rows.

        Args:
            folder: to be made.
            rows: name -> features, labels, price.
            buyer: features and labels.
        """
        for part in ("summaries", "rows"):
            (folder / part).mkdir(parents=True)
        listed = []
        for number, (name, (x, y, price)) in enumerate(rows.items()):
            check(x, y, name)
            shown = Summary.of(x, y, number)
            arrays = {key: getattr(shown, key) for key in _SHOWN}
            np.savez(folder / "summaries" / f"{name}.npz", **arrays)
            np.savez(folder / "rows" / f"{name}.npz", x=x, y=y)
            listed.append({"name": name, "rows": len(x), "price": asdict(price)})
        np.savez(folder / "buyer.npz", x=buyer[0], y=buyer[1])
        (folder / "market.json").write_text(json.dumps({"sellers": listed}, indent=1))
        return cls.read(folder)

    def bought(
        self, quantities: Mapping[str, int], seed: int = 0
    ) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """The rows that a purchase delivers: drawn at random from each seller's."""
        if self.folder is None:
            raise InputError("this market has no rows to deliver", code="no-data")
        parts_x, parts_y = [self.x[:0]], [self.y[:0]]
        for seller in self.sellers:
            count = quantities.get(seller.name, 0)
            if count:
                sold = read_arrays(self.folder / "rows" / f"{seller.name}.npz", ("x", "y"))
                rng = np.random.default_rng([seed, *seller.name.encode()])
                drawn = rng.permutation(len(sold["x"]))[:count]
                parts_x.append(sold["x"][drawn])
                parts_y.append(sold["y"][drawn])
        return np.concatenate(parts_x), np.concatenate(parts_y)


def _summary(folder: Path, name: str, rows: int) -> Summary:
    if Path(name).name != name:
        raise InputError(
            "the name of a seller is a file name",
            code="invalid-value",
            path=folder / "market.json",
            place="sellers.name",
            found=repr(name),
            expected="a name without folders",
        )
    path = folder / "summaries" / f"{name}.npz"
    shown = read_arrays(path, _SHOWN)
    try:
        return Summary(rows, **shown)
    except InputError as error:
        raise error.at(path) from None


def _refuse(code: str, place: str, found: str, expected: str) -> NoReturn:
    problem = "not the summary of any rows"
    raise InputError(problem, code=code, place=place, found=found, expected=expected)
