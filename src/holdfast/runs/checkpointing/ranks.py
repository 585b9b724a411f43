"""The ranks that save and load together: one process, or a separate process group for the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from holdfast.errors import HoldfastError, StoreError

_Value = TypeVar("_Value")


class Ranks:
    """A group of ranks that talk over gloo, apart from the training's own groups.

    Its collectives run in a background thread beside the training's: on the same group they would mix,
    and NCCL has none for objects in host memory.
    """

    def __init__(self, process_group: Any = None) -> None:
        """Make the group; every rank of `process_group` (None: of the job) must do so."""
        self.group: Any = None
        self.rank, self.size = 0, 1
        self._members = [0]
        if dist.is_available() and dist.is_initialized():
            self._members = dist.get_process_group_ranks(process_group or dist.group.WORLD)
            self.group = dist.new_group(
                self._members,
                backend="gloo",
                use_local_synchronization=process_group is not None,
                group_desc="holdfast checkpoint",  # what a hang report calls it
            )
            self.rank, self.size = dist.get_rank(self.group), len(self._members)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that publishes."""
        return self.rank == 0

    def alone(self) -> Any:
        """A group of this rank only; None where there are no groups."""
        if self.group is None:
            return None
        return dist.new_group(
            [dist.get_rank()],
            backend="gloo",
            use_local_synchronization=True,
            group_desc="holdfast checkpoint, one rank",
        )

    def gather(self, value: _Value) -> list[_Value]:
        """The values of all ranks, on all ranks."""
        if self.group is None:
            return [value]
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def everywhere(self, act: Callable[[], _Value]) -> list[_Value]:
        """Do something on every rank; the answers of all, or the same error on all.

        Raises:
            HoldfastError: what the lowest rank that failed met.
        """
        answers = self.gather(_attempt(act, f"rank {self.rank}: " if self.size > 1 else ""))
        for answer in answers:
            if isinstance(answer, HoldfastError):
                raise answer
        return answers  # type: ignore[return-value]  # no failure is left

    def first(self, act: Callable[[], _Value]) -> _Value:
        """Do something on the first rank; its answer, or its error, on all.

        Raises:
            HoldfastError: what the first rank met.
        """
        answer: list[Any] = [_attempt(act) if self.is_first else None]
        if self.group is not None:
            dist.broadcast_object_list(answer, src=self._members[0], group=self.group)
        if isinstance(answer[0], HoldfastError):
            raise answer[0]
        found: _Value = answer[0]
        return found


def _attempt(act: Callable[[], _Value], where: str = "") -> _Value | HoldfastError:
    """An answer, or the error on its way to the other ranks: a user's as it is, any other as text."""
    try:
        return act()
    except HoldfastError as error:
        return error
    except Exception as error:
        return StoreError(f"{where}{type(error).__name__}: {error}")
