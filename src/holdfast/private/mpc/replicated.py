"""Two parties with a helper (mode ``replicated3``): three parties, at most one of them curious, no dealer.

The shares are those of replicated secret sharing (Araki et al., CCS 2016): x = x0 + x1 + x2, party 0 holds
(x0, x1), party 1 (x1, x2), party 2 (x2, x0). Here x0 and x2 are streams that party 2 shares with party 0
and with party 1, so x1 is what a Beaver opening shows to parties 0 and 1, x0 + x2 is its mask, and the
product's part that party 2 computes is the triple's correction. Hence party 2 deals for the other two: it
knows their masks and sees no opening. A product sends 16, 16 and 8 bytes; the published protocol sends 24
together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import dealing

if TYPE_CHECKING:
    from holdfast.private.mpc.party import Party

HELPER = 2


class HelperSupply:
    """Preprocessing items that party 2 makes for parties 0 and 1.

    Args:
        channel: of this party.
        seeds: this party's pairwise seeds, by rank.
    """

    def __init__(self, channel: Any, seeds: list[bytes]) -> None:
        self._channel = channel
        peers = (0, 1) if channel.rank == HELPER else (HELPER,)
        self._seeds = [
            hashlib.blake2b(key=seeds[peer], digest_size=16, person=b"holdfast-items").digest()
            for peer in peers
        ]
        self.items: list[tuple[str, dict[str, Any]]] = []

    @property
    def peek_index(self) -> int:
        """Index of the next item."""
        return len(self.items)

    def take(self, kind: str, **parameters: Any) -> dealing.Item:
        """This party's part of the next item; party 2 sends the corrections and gets zeros."""
        index, rank = self.peek_index, self._channel.rank
        self.items.append((kind, parameters))
        receivers = (0, 1) if kind in dealing.COMMON else (1,)
        size = dealing.correction_bytes(kind, parameters)
        corrections = None
        if rank == HELPER:
            corrections = dealing.deal(kind, parameters, self._seeds, index)
            for receiver in receivers if size else ():
                self._channel.send(receiver, corrections)
            return dealing.blank(kind, parameters)
        if rank in receivers:
            corrections = self._channel.receive(HELPER, size) if size else b""
            self._channel.ledger.row.offline_bytes += size
        return dealing.expand(kind, parameters, self._seeds[0], index, corrections)


def share_in_pair(party: Party, owner: int, shape: tuple[int, ...], value: Tensor | None) -> Tensor:
    """Shares of an input at parties 0 and 1; zero at party 2, whose own inputs cost one message."""
    first, second = (0, 1) if owner != HELPER else (0, HELPER)
    mask = party.streams.common((first, second), shape)
    zero = torch.zeros(shape, dtype=torch.int64)
    if owner != HELPER:
        if party.rank == owner:
            return value - mask  # type: ignore[operator]
        return zero if mask is None else mask
    if party.rank == 0:
        return mask  # type: ignore[return-value]
    if party.rank == HELPER:
        party.channel.send(1, (value - mask).contiguous().numpy())  # type: ignore[operator]
        return zero
    received = party.channel.receive(HELPER, zero.numel() * 8)
    return torch.from_numpy(np.frombuffer(received, np.int64)).reshape(shape)
