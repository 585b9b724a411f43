"""Mixed fidelity: records, or single images, are read at fidelities drawn from given weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.data.records.arguments import check_choice
from holdfast.errors import InputError

Fidelity: TypeAlias = int | Literal["full"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WORD = (1 << 64) - 1
_DOMAIN = {"record": 1, "image": 2}


@dataclass(frozen=True, slots=True)
class Mixture:
    """Which share of the data is read at which fidelity.

    The draw is a pure function of (seed, epoch, number): it depends on no order, rank or worker, so
    that a resumed epoch, or one read by other ranks, meets the same fidelities. Of two mixtures with
    the same seed and epoch, the one with more weight on high fidelities gives no image a lower one.

    Args:
        weights: fidelity (from 1, or ``"full"``) -> weight; weights are positive or zero, and only
            their ratios count.
        by: what is drawn for: each ``"record"`` (its bytes are read up to the fidelity drawn), or each
            ``"image"`` (its record is read up to the highest fidelity drawn in it, so that this mixes
            what the model sees and saves bytes only where a record holds few images).

    Raises:
        InputError: if there is no positive weight, or a fidelity or weight is out of range.
    """

    weights: Mapping[Fidelity, float]
    by: Literal["record", "image"] = "record"

    def __post_init__(self) -> None:
        check_choice("by", self.by, _DOMAIN)
        for fidelity, weight in self.weights.items():
            if fidelity != "full" and (
                isinstance(fidelity, bool)
                or not isinstance(fidelity, (int, np.integer))
                or fidelity < 1
            ):
                raise InputError(
                    "invalid fidelity in a mixture",
                    code="invalid-value",
                    place="weights",
                    found=repr(fidelity),
                    expected="a whole number from 1, or 'full'",
                )
            if not (math.isfinite(weight) and weight >= 0):
                raise InputError(
                    "invalid weight in a mixture",
                    code="invalid-value",
                    place=f"weights[{fidelity!r}]",
                    found=repr(weight),
                    expected="a finite number, zero or more",
                )
        if not 0 < sum(self.weights.values()) < math.inf:
            raise InputError(
                "the weights of a mixture are all zero, or their sum is not finite",
                code="invalid-value",
                place="weights",
                found=repr(dict(self.weights)),
                expected="at least one fidelity with a positive weight, and a finite sum",
            )

    def shares(self, groups: int) -> NDArray[np.float64]:
        """The probability of each fidelity.

        Args:
            groups: G, the number of groups of the dataset; ``"full"`` is G.

        Returns:
            [G] probabilities of fidelity 1..G; they add up to 1.

        Raises:
            InputError: if a fidelity lies above G.
        """
        shares: NDArray[np.float64] = np.zeros(groups)
        for fidelity, weight in self.weights.items():
            place = groups if fidelity == "full" else int(fidelity)
            if place > groups:
                raise InputError(
                    "the dataset does not have a fidelity of this mixture",
                    code="out-of-range",
                    place="weights",
                    found=str(fidelity),
                    expected=f"1 to {groups}, or 'full'",
                )
            shares[place - 1] += weight
        shares /= shares.sum()
        return shares

    def draw(
        self,
        numbers: Sequence[int] | NDArray[np.integer[Any]],
        *,
        seed: int,
        epoch: int,
        groups: int,
    ) -> NDArray[np.uint8]:
        """The fidelity of each record or image in one epoch.

        Args:
            numbers: [n] numbers of the records (``by="record"``) or of the images in the whole dataset
                (``by="image"``), from 0.
            seed: the dataset's seed, any integer.
            epoch: from 0.
            groups: G, the number of groups of the dataset.

        Returns:
            [n] fidelities from 1 to G.
        """
        shares = self.shares(groups)
        ends = np.cumsum(shares)
        ends[np.flatnonzero(shares)[-1] :] = math.inf  # rounding leaves the sum a little below 1
        key: NDArray[np.uint64] = np.zeros(1, np.uint64)
        for word in (_DOMAIN[self.by], seed, epoch):
            key = _scrambled(key ^ np.uint64(word & _WORD))
        with np.errstate(over="ignore"):
            counters = key + np.asarray(numbers).astype(np.uint64) * _GOLDEN
        uniform = (_scrambled(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # "right": a fidelity whose share is zero ends where the one before it ends, and is not drawn.
        return (np.searchsorted(ends, uniform, side="right") + 1).astype(np.uint8)


def _scrambled(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function (Steele, Lea, Flood 2014): a bijection that mixes all bits."""
    with np.errstate(over="ignore"):
        mixed = words + _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
