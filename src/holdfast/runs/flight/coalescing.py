"""Operations launched together have one fate, which PyTorch records on the last entry alone.

A batch of sends and receives, or several collectives in one coalescing block, is recorded entry by
entry and closed by an entry named ``coalesced``. Seen in real NCCL dumps (2.10): the operations of
a batch of sends stay ``scheduled`` for ever; the closing entry carries the state, is not marked as
p2p, and repeats the number of the last collective, to which it does not belong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.record import Dump

CLOSING = "coalesced"
NO_GROUP = -1
"""Group of a row that belongs to nothing any more."""


def with_shared_fates(dump: Dump) -> NDArray[np.void]:
    """The rows of a dump, in which all operations of a block have the state of the block.

    A closing row takes the kind and the number of its block; one whose block the ring buffer has lost
    gets the group `NO_GROUP`.
    """
    closing = [place for place, each in enumerate(dump.operations) if each.name == CLOSING]
    if not closing:
        return dump.entries
    rows = dump.entries.copy()
    of_group = {group: np.flatnonzero(rows["group"] == group) for group in np.unique(rows["group"])}
    for end in np.flatnonzero(np.isin(rows["operation"], closing)):
        own = of_group[rows["group"][end]]
        block = _block(rows, own[: np.searchsorted(own, end)], int(rows["sequence"][end]))
        if not block:
            rows["group"][end] = NO_GROUP
            continue
        rows["p2p"][end] = rows["p2p"][block[0]]
        rows["sequence"][end] = rows["sequence"][block[0]]
        together = np.array([*block, end])
        rows["state"][together] = rows["state"][together].max()
    return rows


def _block(rows: NDArray[np.void], before: NDArray[np.intp], sequence: int) -> list[int]:
    """The rows that a closing entry closes: the newest of its group with one number, of one kind."""
    if not len(before):
        return []
    newest = rows[before[-1]]
    if not newest["p2p"] and newest["sequence"] != sequence:
        return []
    block = []
    for place in before[::-1]:
        row = rows[place]
        if row["p2p"] != newest["p2p"] or row["sequence"] != newest["sequence"]:
            break
        block.append(int(place))
    return block
