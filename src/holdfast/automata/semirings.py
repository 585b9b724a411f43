"""Semirings: what the weights of a transducer are, how they add along paths and between paths.

============ ======= ============================= ========= ====== =====
name         dtype   plus (between paths)          times     zero   one
============ ======= ============================= ========= ====== =====
tropical     float32 min(x, y)                     x + y     +inf   0
log          float32 -log(exp(-x) + exp(-y))       x + y     +inf   0
log64        float64 -log(exp(-x) + exp(-y))       x + y     +inf   0
probability  float64 x + y                         x * y     0      1
boolean      float32 max(x, y), of 0 and 1         x * y     0      1
============ ======= ============================= ========= ====== =====

The first three hold negated logarithms, as OpenFST's `standard`, `log` and `log64` arcs do; NaN is never
a weight, and -inf only one that a file may not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

SemiringName = Literal["tropical", "log", "log64", "probability", "boolean"]

# What compiled code knows a semiring by.
TROPICAL, LOG, PROBABILITY, BOOLEAN = 0, 1, 2, 3


@dataclass(frozen=True)
class Semiring:
    """One semiring."""

    name: SemiringName
    code: int
    """Number in compiled code (`_kernels.plus`, `_kernels.times`): TROPICAL, LOG, ..."""
    dtype: npt.DTypeLike
    """Data type of its weights."""
    zero: float
    """The weight of no path; a state whose final weight is zero is not final."""
    one: float
    """The weight of the empty path."""
    arc_type: str
    """What OpenFST calls arcs with such weights."""

    @property
    def is_negative_log(self) -> bool:
        """Weights are negated logarithms (costs): they add along a path."""
        return self.code in (TROPICAL, LOG)

    @property
    def is_idempotent(self) -> bool:
        """Whether x plus x is x, so that the best path is the sum of all."""
        return self.code in (TROPICAL, BOOLEAN)


SEMIRINGS = {
    made.name: made
    for made in (
        Semiring("tropical", TROPICAL, np.float32, np.inf, 0.0, "standard"),
        Semiring("log", LOG, np.float32, np.inf, 0.0, "log"),
        Semiring("log64", LOG, np.float64, np.inf, 0.0, "log64"),
        Semiring("probability", PROBABILITY, np.float64, 0.0, 1.0, "probability"),
        Semiring("boolean", BOOLEAN, np.float32, 0.0, 1.0, "boolean"),
    )
}


def semiring_of(name: str | Semiring) -> Semiring:
    """The semiring of a name, or of the name that OpenFST gives its arcs.

    Raises:
        InputError: if there is none.
    """
    if isinstance(name, Semiring):
        return name
    for semiring in SEMIRINGS.values():
        if name in (semiring.name, semiring.arc_type):
            return semiring
    raise InputError(
        "unknown semiring",
        code="unknown-name",
        found=repr(name),
        expected=f"one of {', '.join(SEMIRINGS)}",
    )


def converted(weights: npt.NDArray[Any], source: Semiring, target: Semiring) -> npt.NDArray[Any]:
    """Weights of one semiring as those of another, in its dtype: a cost is -log of a probability.

    To and from the boolean semiring every weight that is not zero is one.
    """
    changed: npt.NDArray[Any] = weights.astype(np.float64)
    if BOOLEAN in (source.code, target.code):
        changed = np.where(weights != source.zero, source.one, source.zero)
    if source.is_negative_log and not target.is_negative_log:
        changed = np.exp(-changed)
    elif target.is_negative_log and not source.is_negative_log:
        with np.errstate(divide="ignore"):
            changed = 0.0 - np.log(changed)  # log(1) is a cost of 0, not of -0
    return changed.astype(target.dtype)


def check_weights(weights: npt.NDArray[Any], semiring: Semiring, of: str) -> None:
    """Refuse what is not a weight.

    Args:
        weights: [N]
        semiring: whose weights they should be.
        of: what they belong to, for the message: ``"arc"``.

    Raises:
        InputError: naming the first that is NaN, -inf, or in a semiring of probabilities negative.
    """
    wrong = np.isnan(weights) | np.isneginf(weights)
    if not semiring.is_negative_log:
        wrong |= weights < 0
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            "invalid weight",
            code="invalid-value",
            place=f"{of} {at}",
            found=str(float(weights[at])),
            expected=f"a weight of the {semiring.name} semiring",
        )
