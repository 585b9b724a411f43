"""The tuner: at the start of each epoch, the fidelity at which to read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.data.records.arguments import check_number
from holdfast.data.records.tuning import ranks
from holdfast.data.records.tuning.policies import Evidence, GradientCosine, Policy
from holdfast.data.records.tuning.scores import Score
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.records.tuning.gradients import Probe


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for an epoch, and why."""

    epoch: int
    fidelity: int
    reason: str
    scores: tuple[Score, ...] = ()
    """Scores of this epoch's probe; empty if none was due."""
    bound: bool | None = None
    """Whether the job waited for storage; None if not measured."""

    def to_dict(self) -> dict[str, Any]:
        """The choice as JSON."""
        return {
            "epoch": self.epoch,
            "fidelity": self.fidelity,
            "reason": self.reason,
            "storage_bound": self.bound,
            "scores": [one.to_dict() for one in self.scores],
        }


@dataclass
class Tuner:
    """Chooses the fidelity of each epoch; reading starts at full fidelity and is lowered on evidence.

    The method's steps at the start of an epoch: probe if one is due, agree with the other ranks, ask the
    policy, pass its wish through the hysteresis.

    The fidelity rises at once when the policy needs a higher one. It falls only while the job is bound by
    storage, only as far as the policy allows, and only when `patience` probes in a row allowed it (then
    to the highest fidelity that they allowed). The first choice follows one probe, which must be sure by
    itself (`GradientCosine.sure`); where it is not, full fidelity is the first choice.

    Args:
        groups: G, the number of groups of the dataset.
        epochs: how many epochs the run has.
        probe: how gradients are taken; needed by policies that probe.
        policy: what the evidence asks for.
        every: k: a probe is due in every k-th epoch after the warm-up.
        warmup: first epochs at full fidelity: gradients of a fresh model say little.
        last_full: last epochs at full fidelity.
        patience: probes in a row that must allow a lower fidelity.
        storage_bound: tells whether this rank waits for storage, for example `Dataset.storage_bound`;
            without it the job is taken to be.
        process_group: of `torch.distributed`, whose ranks choose together; by default all.

    Raises:
        InputError: if a number is out of range, or the policy probes and there is no probe.

    Source: arXiv 1911.00472, section 4 (probe, cosine, threshold); hysteresis, patience, last epochs at
    full fidelity and the condition on storage are additions.
    """

    groups: int
    epochs: int
    probe: Probe | None = None
    policy: Policy = field(default_factory=GradientCosine)
    every: int = 5
    warmup: int = 0
    last_full: int = 1
    patience: int = 2
    storage_bound: Callable[[], bool | None] | None = None
    process_group: Any = None
    history: list[Choice] = field(default_factory=list, init=False)
    """A choice for each epoch, in order."""
    _current: int | None = field(default=None, init=False, repr=False)
    _falling: list[int] = field(default_factory=list, init=False, repr=False)
    _losses: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        least = {"groups": 1, "epochs": 1, "every": 1, "warmup": 0, "last_full": 0, "patience": 1}
        for name, bound in least.items():
            check_number(name, getattr(self, name), bound)
        if self.policy.probes and self.probe is None:
            raise InputError(
                "the policy compares gradients, but there is no probe",
                code="missing-key",
                place="probe",
                remedy="give probe=Probe(model, loss, batches), or a policy such as MsSsim",
            )
        self._candidates = tuple(range(1, self.groups + 1))

    def fidelity(self, epoch: int, loss: float | None = None) -> int:
        """Choose the fidelity of an epoch; all ranks call this at its start, and get the same.

        Args:
            epoch: from 0, ascending; asked again for an epoch that was chosen, the choice stands.
            loss: the mean training loss of the epoch before, on this rank.

        Returns:
            g, from 1 to G. What it was chosen on stands in `history`.
        """
        if self.history and epoch <= self.history[-1].epoch:
            for made in self.history:
                if made.epoch == epoch:
                    return made.fidelity
            raise InputError(
                "this epoch was skipped", code="invalid-value", place="epoch", found=str(epoch)
            )
        choice = self._choose(epoch, loss)
        if self.history and choice.fidelity != self.history[-1].fidelity:
            self._losses.clear()
        self.history.append(choice)
        return choice.fidelity

    def _choose(self, epoch: int, loss: float | None) -> Choice:
        loss, bound, told = self._circumstances(loss)
        if loss is not None:
            self._losses.append(loss)
        if epoch >= self.epochs - self.last_full:
            return Choice(epoch, self.groups, "the last epochs are read in full")
        if epoch < self.warmup:
            return Choice(epoch, self.groups, "the first epochs are read in full")
        present = self._current or self.groups
        if self.policy.probes and (epoch - self.warmup) % self.every:
            return Choice(epoch, present, "no probe is due")
        if not bound and present == self.groups:
            # It could only be lowered, which must wait: the probe is spared.
            self._falling = []
            reason = "storage does not hold the job up"
            if told is None:
                reason = "whether storage holds the job up is not known yet"
            return Choice(epoch, present, reason, (), told)
        scores = self._scores() if self.policy.probes else ()
        wish = self.policy.wish(Evidence(self.groups, self._current, scores, tuple(self._losses)))
        reason = self._follow(wish.needed, wish.allowed, wish.reason, bound)
        return Choice(epoch, self._current or self.groups, reason, scores, told)

    def _circumstances(self, loss: float | None) -> tuple[float | None, bool, bool | None]:
        """The loss, whether the fidelity may fall for storage, and what was measured of that."""
        told = self.storage_bound() if self.storage_bound else None
        bound = bool(told) if self.storage_bound else True
        if ranks.together(self.process_group):
            _, loss, bound = ranks.agree((), (), loss, bound, group=self.process_group)
            told = bound if self.storage_bound else None
        return loss, bound, told

    def _scores(self) -> tuple[Score, ...]:
        """Scores of the candidates, on all ranks together."""
        if self.probe is None:
            return ()
        if not ranks.together(self.process_group):
            return self.probe.scores(self._candidates, self.groups)
        try:
            scores = self.probe.scores(self._candidates, self.groups)
        except Exception:
            # The other ranks wait for this one: they must hear that it goes.
            ranks.agree(self._candidates, None, None, False, failed=True, group=self.process_group)
            raise
        return ranks.agree(self._candidates, scores, None, False, group=self.process_group)[0]

    def _follow(self, needed: int, allowed: int, reason: str, bound: bool) -> str:
        """Hysteresis: up at once; down while storage binds, after patience."""
        if self._current is None:
            self._current = allowed
            return f"first choice: {reason}"
        if needed > self._current:
            self._current, self._falling = needed, []
            return f"raised: {reason}"
        if allowed >= self._current:
            self._falling = []
            return f"kept at {self._current}: {reason}"
        if not bound:
            self._falling = []
            return f"kept at {self._current}: {reason}; the job does not wait for storage"
        self._falling.append(allowed)
        if len(self._falling) < self.patience:
            return (
                f"kept at {self._current}: {reason}; lowering takes {self.patience} probes in a row"
            )
        self._current, self._falling = max(self._falling), []
        return f"lowered: {reason}"

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON."""
        return {
            "current": self._current,
            "falling": list(self._falling),
            "losses": list(self._losses),
            "history": [
                {
                    "epoch": one.epoch,
                    "fidelity": one.fidelity,
                    "reason": one.reason,
                    "bound": one.bound,
                    "scores": [score.state() for score in one.scores],
                }
                for one in self.history
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            InputError: if it is that of a dataset with other groups.
        """
        highest = max([state["current"] or 0, *(one["fidelity"] for one in state["history"])])
        if highest > self.groups:
            raise InputError(
                "the tuner's checkpoint belongs to another dataset",
                code="conflict",
                found=f"fidelity {highest}",
                expected=f"1 to {self.groups}",
            )
        self._current = state["current"]
        self._falling, self._losses = list(state["falling"]), list(state["losses"])
        self.history = []
        for kept in state["history"]:
            scores = tuple(Score.from_state(part) for part in kept["scores"])
            self.history.append(replace(Choice(**kept), scores=scores))
