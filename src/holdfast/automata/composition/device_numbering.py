"""Numbers for the states of a composition, in the order in which they are first met; in torch.

The table is dense where the product of both machines fits the budget. Otherwise the known states stand in a
few sorted runs, each at least twice as long as the next: a search looks into each run, and a new run is
merged with those that are not twice as long (as in a log-structured merge tree).
"""

from __future__ import annotations

from holdfast.errors import LimitError, MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

MOST_STATES = 2**31 - 2


class Numbering:
    """State keys -> state numbers 0, 1, ...; the first key given becomes 0.

    Args:
        keys: how many keys there can be; a key is 0 to this.
        dtype: of the keys.
        device: of the keys.
        dense_bytes: a dense table that takes more than this is not made.
        max_states: more states than this are refused.
    """

    def __init__(
        self,
        keys: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        dense_bytes: int,
        max_states: int | None = None,
    ) -> None:
        self.count = 0
        self._most = MOST_STATES if max_states is None else min(max_states, MOST_STATES)
        self._table: Tensor | None = None  # number + 1 by key; 0 for unknown
        self._runs: list[tuple[Tensor, Tensor]] = []
        if keys * 4 <= dense_bytes:
            self._table = torch.zeros(keys, dtype=torch.int32, device=device)

    def number(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The number of each key, i32[m], and the keys that were new, in order, [n].

        Synchronises with the device twice: for the number of unknown keys and of distinct ones.

        Raises:
            LimitError: if there are more states than allowed.
        """
        numbers = self._known(keys)
        unknown = torch.nonzero(numbers < 0).squeeze(1)
        if not len(unknown):
            return numbers, keys[:0]
        new, rank = first_occurrences(keys[unknown])
        if self.count + len(new) > self._most:
            raise LimitError(
                "the composition has too many states",
                needed=f"at least {self.count + len(new)} states",
                allowed=f"{self._most} states",
                remedy="raise max_states, or compose smaller machines",
            )
        numbers[unknown] = rank.add_(self.count)
        self._remember(new)
        self.count += len(new)
        return numbers, new

    def _known(self, keys: Tensor) -> Tensor:
        if self._table is not None:
            return self._table.index_select(0, keys) - 1
        numbers = torch.full((len(keys),), -1, dtype=torch.int32, device=keys.device)
        for run, number in self._runs:
            at = torch.searchsorted(run, keys).clamp_(max=len(run) - 1)
            numbers = torch.where(run[at] == keys, number[at], numbers)
        return numbers

    def _remember(self, new: Tensor) -> None:
        number = torch.arange(
            self.count, self.count + len(new), dtype=torch.int32, device=new.device
        )
        if self._table is not None:
            self._table[new] = number + 1
            return
        while self._runs and len(self._runs[-1][0]) < 2 * len(new):
            run, known = self._runs.pop()
            new, number = torch.cat([run, new]), torch.cat([known, number])
        run, order = torch.sort(new)
        self._runs.append((run, number[order]))


def first_occurrences(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct keys in the order of their first occurrence, [n], and each key's place there, i32[m].

    A stable sort puts the first of equal keys first; no step depends on the order of work.
    """
    ordered, order = torch.sort(keys, stable=True)
    leads = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
    torch.ne(ordered[1:], ordered[:-1], out=leads[1:])
    del ordered
    # Each key's first occurrence, in sorted order: the last leader at or before its place.
    places = torch.arange(len(keys), device=keys.device)
    leader = order[torch.where(leads, places, 0).cummax(0).values]
    is_first = torch.empty_like(leads)
    is_first[order] = leads
    rank = is_first.cumsum(0, dtype=torch.int32) - 1
    place = torch.empty(len(keys), dtype=torch.int32, device=keys.device)
    place[order] = rank[leader]
    return keys[is_first], place
