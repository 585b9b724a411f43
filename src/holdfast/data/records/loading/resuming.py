"""Where a run is in its epoch: what is saved with a checkpoint, and what a resumed run begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.data.records.loading.ordering import Deal, Leg
from holdfast.errors import InputError

VERSION = 1


@dataclass
class Cursor:
    """The finished legs of an epoch, and the position in the current one."""

    epoch: int = 0
    legs: tuple[Leg, ...] = ()
    """Legs of `epoch` when the iteration began."""
    steps: int = 0
    """Batches delivered since then."""
    _present: tuple[tuple[Leg, ...], Deal, tuple[int, ...]] | None = field(default=None, repr=False)

    def begin(self, epoch: int, deal: Deal) -> tuple[tuple[Leg, ...], tuple[int, ...]]:
        """Start to iterate.

        If the last leg used the same deal it is resumed, batch for batch; otherwise the rest is dealt
        again.

        Returns:
            The finished legs, and [ranks] the number of batches of the deal already delivered.
        """
        if epoch != self.epoch:
            self.epoch, self.legs = epoch, ()
        before, delivered = self.legs, (0,) * deal.ranks
        if before and before[-1].deal == deal:
            before, delivered = before[:-1], before[-1].delivered
        self.steps = 0
        self._present = (before, deal, delivered)
        return before, delivered

    def finish(self) -> None:
        """End the epoch."""
        self.load(self.epoch + 1, ())

    def load(self, epoch: int, legs: Sequence[Leg]) -> None:
        """Begin the next iteration there."""
        self.epoch, self.legs, self.steps, self._present = epoch, tuple(legs), 0, None

    def now(self, epoch: int) -> tuple[int, tuple[Leg, ...]]:
        """The epoch and its legs, up to the batch that was delivered last.

        Args:
            epoch: the one that comes next, if no iteration has begun.
        """
        if self._present is None:
            return epoch, self.legs if epoch == self.epoch else ()
        before, deal, delivered = self._present
        leg = Leg(deal, tuple(done + self.steps for done in delivered))
        return self.epoch, (*before, leg) if any(leg.delivered) else before


def encode(
    order: Mapping[str, Any], seed: int, place: tuple[int, int], now: tuple[int, tuple[Leg, ...]]
) -> dict[str, Any]:
    """A state as JSON.

    Args:
        order: what else than the seed and the epoch the order depends on.
        seed: the order's.
        place: the rank whose state it is, and how many there are.
        now: the epoch and its legs.
    """
    epoch, legs = now
    return {
        "version": VERSION,
        "order": dict(order),
        "seed": seed,
        "epoch": epoch,
        "rank": place[0],
        "ranks": place[1],
        "legs": [leg.to_dict() for leg in legs],
    }


def decode(state: Mapping[str, Any], order: Mapping[str, Any]) -> tuple[int, int, tuple[Leg, ...]]:
    """Seed, epoch and legs of a state.

    Raises:
        InputError: if it is not a state, or belongs to another dataset or order.
    """
    try:
        version, found = state["version"], dict(state["order"])
        seed, epoch = int(state["seed"]), int(state["epoch"])
        legs = [Leg.from_dict(leg) for leg in state["legs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "not the state of a dataset", code="invalid-value", found=repr(state)[:200]
        ) from error
    if version != VERSION:
        raise InputError(
            "unknown version of the state",
            code="unsupported",
            found=str(version),
            expected=str(VERSION),
        )
    for name, value in order.items():
        if found.get(name) != value:
            raise InputError(
                "the state belongs to another dataset, or to another order of it",
                code="conflict",
                place=name,
                found=repr(found.get(name)),
                expected=repr(value),
                remedy="open the dataset as it was when the state was saved, or begin the epoch anew",
            )
    return seed, epoch, tuple(legs)


def _differ(states: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the states say more than one thing, besides whose they are."""
    return any({**state, "rank": 0} != {**states[0], "rank": 0} for state in states)


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One state out of those of all ranks, for ranks that are not in step.

    A rank's own state takes it that every rank has delivered as many batches as itself, as ranks do that
    take their steps together. Where they do not, gather the states and load what this makes of them.

    Args:
        states: one of each rank, in any order, saved in the same epoch after the same resumptions.

    Raises:
        InputError: if they are not the states of all ranks of one run.
    """
    by_rank = {state["rank"]: state for state in states}
    first = states[0] if states else {}
    if states and len(by_rank) == first["ranks"] and not _differ(states):
        return dict(first) | {"rank": 0}
    legs = [[Leg.from_dict(leg) for leg in by_rank[rank]["legs"]] for rank in sorted(by_rank)]
    count = max(map(len, legs), default=0)
    same = all(
        {**state, "rank": 0, "legs": 0} == {**first, "rank": 0, "legs": 0} for state in states
    )
    # A rank that has delivered nothing yet has no leg for it.
    full = [own for own in legs if len(own) == count]
    deal = full[0][-1].deal if count else Deal(ranks=max(1, len(states)))
    rest = [own[: count - 1] for own in legs]
    if (
        not same
        or sorted(by_rank) != list(range(deal.ranks))
        or any(own[-1].deal != deal for own in full if count)
        or any(own != full[0][:-1] for own in rest if count)
    ):
        raise InputError(
            "the states are not those of all ranks of one run",
            code="conflict",
            found=f"ranks {sorted(by_rank)} of {deal.ranks}, with {[len(own) for own in legs]} legs",
            expected="one state of each rank, of one epoch, saved after the same resumptions",
        )
    made = dict(first) | {"rank": 0}
    if count:
        done = tuple(
            own[-1].delivered[rank] if len(own) == count else 0 for rank, own in enumerate(legs)
        )
        made["legs"] = [leg.to_dict() for leg in (*full[0][:-1], Leg(deal, done))]
    return made
