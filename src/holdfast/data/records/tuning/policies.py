"""What fidelity the evidence asks for: by gradients, by MS-SSIM, by the loss, or none at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from holdfast.data.records.arguments import check_number
from holdfast.data.records.tuning.scores import Score
from holdfast.errors import InputError


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known at the start of an epoch."""

    groups: int
    """G: full fidelity."""
    current: int | None
    """The fidelity chosen last; None before the first choice."""
    scores: tuple[Score, ...] = ()
    """Scores of this epoch's probe, ascending by fidelity; empty for policies that do not probe."""
    losses: tuple[float, ...] = ()
    """Training losses of the epochs since the fidelity changed last, oldest first."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Request of a policy; the tuner's hysteresis turns it into a choice."""

    needed: int
    """The lowest fidelity that will do: anything below is left at once."""
    allowed: int
    """The fidelity that the evidence is strong enough to go down to; at least `needed`."""
    reason: str


class Policy(Protocol):
    """Turns evidence into a wish. Policies hold no state: the tuner does."""

    probes: ClassVar[bool]
    """Whether it needs the scores of gradients, which cost a pass over the fixed batches."""

    def wish(self, evidence: Evidence) -> Wish:
        """The fidelity that the evidence asks for."""


@dataclass(frozen=True, slots=True)
class GradientCosine:
    """The lowest fidelity whose gradient is like that at full fidelity.

    Args:
        threshold: a fidelity will do while its score is above this.
        margin: the fidelity is lowered only to one whose score is above ``threshold + margin``.
        sure: lower only where the lower end of the score's 95 % interval, not the score itself, is above
            ``threshold + margin``. The first choice, which no other probe confirms, is always made so.

    Source: arXiv 1911.00472, section 4 (threshold 0.8); margin and interval are additions.
    """

    threshold: float = 0.8
    margin: float = 0.02
    sure: bool = False
    probes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not -1 <= self.threshold < 1:
            raise InputError(
                "invalid threshold of a cosine",
                code="out-of-range",
                place="threshold",
                found=repr(self.threshold),
                expected="from -1 to less than 1; 0.8 is usual",
            )
        check_number("margin", self.margin, 0)

    def wish(self, evidence: Evidence) -> Wish:
        """The lowest fidelities whose scores pass the threshold, and the threshold with the margin."""
        full, current = evidence.groups, evidence.current
        passing = {s.fidelity for s in evidence.scores if s.value > self.threshold} | {full}
        if current is not None and current not in passing:
            # Scores need not rise with fidelity: one that fails is left upwards, not to a lower one.
            passing = {g for g in passing if g > current}
        bar = self.threshold + self.margin
        # No probe came before the first choice: its batches alone must make it sure.
        sure = self.sure or current is None
        strong = {
            s.fidelity
            for s in evidence.scores
            if (s.interval[0] if sure and s.fidelity != full else s.value) > bar
        }
        needed, allowed = min(passing), min(strong, default=full)
        chosen = next((s for s in evidence.scores if s.fidelity == needed), None)
        score = "no score" if chosen is None else f"score {chosen.value:.3f}"
        reason = f"fidelity {needed} is the lowest above {self.threshold:g} ({score})"
        if needed < allowed and current != needed:
            # Hysteresis: it would do, but is so near the threshold that the next probe might reject it.
            below = "the interval's lower end" if sure else "a score"
            reason += f", but going down to it takes {below} above {bar:g}"
        return Wish(needed, max(needed, allowed), reason)


@dataclass(frozen=True, slots=True)
class MsSsim:
    """The lowest fidelity whose images look like those at full fidelity, whatever the model.

    Args:
        quality: mean MS-SSIM by fidelity [G], of the manifest's quality table.
        threshold: the least that will do.

    Source: arXiv 1911.00472, section 4.4: MSSIM predicts which fidelities train well.
    """

    quality: tuple[float, ...]
    threshold: float = 0.95
    probes: ClassVar[bool] = False

    def wish(self, evidence: Evidence) -> Wish:
        """The lowest fidelity at or above the threshold; the same in every epoch."""
        if len(self.quality) != evidence.groups:
            raise InputError(
                "the quality table belongs to another dataset",
                code="conflict",
                found=f"{len(self.quality)} fidelities",
                expected=f"{evidence.groups} fidelities",
                remedy="take it from the dataset's manifest, or run `holdfast data records quality`",
            )
        if not all(math.isfinite(value) for value in self.quality):
            raise InputError(
                "the quality of the dataset's fidelities was not measured",
                code="no-data",
                found="no MS-SSIM in the manifest",
                remedy="write it with quality_images above 0, or choose by gradients or the loss",
            )
        passing = (g for g, value in enumerate(self.quality, 1) if value >= self.threshold)
        chosen = min(passing, default=evidence.groups)
        reason = (
            f"fidelity {chosen} is the lowest with an MS-SSIM of {self.threshold:g} or more "
            f"({self.quality[chosen - 1]:.3f})"
        )
        return Wish(chosen, chosen, reason)


@dataclass(frozen=True, slots=True)
class LossPlateau:
    """Starts low, and asks for the next fidelity when the training loss stops falling.

    Args:
        start: the first fidelity.
        patience: epochs without a new best loss before the fidelity rises.
        least_gain: the share by which a loss must lie below the best one to count as better.
    """

    start: int = 1
    patience: int = 3
    least_gain: float = 0.01
    probes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("start", self.start, 1)
        check_number("patience", self.patience, 1)
        check_number("least_gain", self.least_gain, 0)

    def wish(self, evidence: Evidence) -> Wish:
        """The present fidelity, or the next after a plateau; a loss that is not finite asks for full."""
        if evidence.current is None:
            start = min(self.start, evidence.groups)
            return Wish(start, start, f"training starts at fidelity {start}")
        current = evidence.current
        if any(not math.isfinite(loss) for loss in evidence.losses):
            return Wish(evidence.groups, evidence.groups, "the loss is not finite")
        waited = self._epochs_without_gain(evidence.losses)
        if waited < self.patience:
            return Wish(current, current, f"{waited} epochs without a better loss")
        above = min(current + 1, evidence.groups)
        return Wish(above, above, f"the loss has not fallen for {waited} epochs")

    def _epochs_without_gain(self, losses: Sequence[float]) -> int:
        best, waited = math.inf, 0
        for loss in losses:
            if loss < best - self.least_gain * abs(best) or best == math.inf:
                best, waited = loss, 0
            else:
                waited += 1
        return waited


@dataclass(frozen=True, slots=True)
class Fixed:
    """One fidelity throughout: the baseline of comparisons."""

    fidelity: int
    probes: ClassVar[bool] = False

    def wish(self, evidence: Evidence) -> Wish:
        """The fidelity given."""
        check_number("fidelity", self.fidelity, 1, evidence.groups)
        return Wish(self.fidelity, self.fidelity, "it is fixed")
