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
from holdfast.private.mpc.randomness import SEED_BYTES
from holdfast.private.mpc.supply import Supply, needs_corrections

if TYPE_CHECKING:
    from holdfast.private.mpc.party import Party

HELPER = 2


def helper_supply(channel: Any, seeds: list[bytes]) -> Supply:
    """Preprocessing items that party 2 makes for parties 0 and 1.

    Args:
        channel: of this party.
        seeds: this party's pairwise seeds, by rank.
    """
    keys = [
        hashlib.blake2b(key=seeds[peer], digest_size=SEED_BYTES, person=b"holdfast-items").digest()
        for peer in ((0, 1) if channel.rank == HELPER else (HELPER,))
    ]
    if channel.rank == HELPER:
        return HelperSupply(channel, keys)

    def source(label: str, kind: str, parameters: dict[str, Any]) -> bytes:
        size = dealing.correction_bytes(kind, parameters)
        return bytes(channel.receive(HELPER, size)) if size else b""

    return Supply(keys[0], channel.rank, 2, source, channel.ledger)


class HelperSupply(Supply):
    """At party 2: sends the corrections, and gets zeros.

    Args:
        channel: of this party.
        seeds: those of parties 0 and 1.
    """

    def __init__(self, channel: Any, seeds: list[bytes]) -> None:
        super().__init__(b"", HELPER, 2, lambda *_: b"", channel.ledger)
        self._channel, self._seeds = channel, seeds

    def take(self, kind: str, **parameters: Any) -> dealing.Item:
        """Zeros."""
        self.count(kind, parameters)
        corrections = dealing.deal(kind, parameters, self._seeds, self.label)
        for receiver in (0, 1) if corrections else ():
            if needs_corrections(kind, receiver, 2):
                self._channel.send(receiver, corrections)
        return dealing.blank(kind, parameters)


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
