"""Replicated secret sharing among three parties (mode ``replicated3``), of whom no two collude; no dealer.

x = c0 + c1 + c2; party 0 holds (c0, c1), party 1 (c1, c2), party 2 (c2, c0) (Araki et al., CCS 2016). Sums
and public factors are local. Each party computes some of the nine terms of a product; what they add up to
is replicated again by one ring element per party. Party 2 masks its element by a stream that it has in
common with party 0, and sends it at once. Parties 0 and 1 choose c0 and c2 as streams that they have in
common with party 2, and open c1 to each other; they do that when the result enters the next product, since
what is truncated or compared before needs no replication. So party 2 waits for nobody (as in ASTRA,
Chaudhari et al., CCSW 2019).

Everything else is computed by parties 0 and 1, on c0 + c1 and c2, with the protocols of the other modes:
party 2 makes the random items for these, and sees no opening.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import dealing
from holdfast.private.mpc.randomness import SEED_BYTES
from holdfast.private.mpc.ring import bilinear
from holdfast.private.mpc.rounds import Rounds, opened_sum, parallel
from holdfast.private.mpc.supply import Supply, needs_corrections

if TYPE_CHECKING:
    from holdfast.private.mpc.party import Party

THIRD = 2
"""The party that makes items."""
PAIR = (0, 1)
"""Those that compute with them."""


class Replicated(NamedTuple):
    """What a party holds of a tensor."""

    share: Tensor
    """c0 + c1 at party 0, c2 at the others; without `second`, party 2's counts for nothing."""
    second: Tensor
    """c1 at parties 0 and 1, c0 at party 2."""


def shared(party: Party, owner: int, shape: tuple[int, ...], value: Tensor | None) -> Replicated:
    """An input: a stream that the owner shares with one party, and what is left, sent to the other."""
    peer, receiver = {0: (2, 1), 1: (2, 0), 2: (0, 1)}[owner]
    mask = party.streams.common((owner, peer), shape)
    zero = torch.zeros(shape, dtype=torch.int64)
    rest = zero
    if party.rank == owner:
        rest = value - mask  # type: ignore[operator]
        party.channel.send(receiver, rest.contiguous().numpy())
    elif party.rank == receiver:
        rest = _received(party, owner, zero)
    # Who has them in common says which summands they are; the third is 0.
    known = {frozenset((owner, peer)): mask, frozenset((owner, receiver)): rest}
    c0, c1, c2 = (known.get(frozenset(pair), zero) for pair in ((0, 2), PAIR, (1, 2)))
    return _held(party, c0, c1, c2)


def _held(party: Party, c0: Any, c1: Any, c2: Any) -> Replicated:
    if party.rank == THIRD:
        return Replicated(c2, c0)
    return Replicated(c2 if party.rank else c0 + c1, c1)


def replicated(party: Party, x: Tensor | Replicated) -> Rounds[Replicated]:
    """A tensor that parties 0 and 1 share, replicated: one round, 8 bytes from each of them."""
    if isinstance(x, Replicated):
        return x
    c0, c2 = (party.streams.common(pair, tuple(x.shape)) for pair in ((0, 2), (1, 2)))
    received = yield (x - (c2 if c0 is None else c0)).contiguous().numpy()
    return _held(party, c0, torch.as_tensor(opened_sum(received)), c2)


def product(party: Party, op: str, x: Any, y: Any, options: Any) -> Rounds[Tensor]:
    """A bilinear product, shared by parties 0 and 1: 8 bytes from party 2, no round."""
    left, right = yield from parallel(replicated(party, x), replicated(party, y))
    multiply = bilinear(op, options)
    if party.rank == 0:  # (c0 + c1) (d0 + d1)
        share = multiply(left.share, right.share)
    else:  # c1 d2 + c2 d1 at party 1, c2 d2 + c2 d0 + c0 d2 at party 2
        first = left.second + (left.share if party.rank == THIRD else 0)
        share = multiply(first, right.share) + multiply(left.share, right.second)
    mask = party.streams.common((0, THIRD), tuple(share.shape))
    if party.rank == THIRD:
        party.channel.send(1, (share + mask).contiguous().numpy())
    return share - mask if mask is not None else share + _received(party, THIRD, share)


def _received(party: Party, peer: int, like: Tensor) -> Tensor:
    data = party.channel.receive(peer, like.numel() * 8)
    return torch.from_numpy(np.frombuffer(data, np.int64)).reshape(like.shape)


def item_supply(channel: Any, seeds: list[bytes]) -> Supply:
    """Preprocessing items that party 2 makes for parties 0 and 1.

    Args:
        channel: of this party.
        seeds: this party's pairwise seeds, by rank.
    """
    keys = [
        hashlib.blake2b(key=seeds[peer], digest_size=SEED_BYTES, person=b"holdfast-items").digest()
        for peer in ((0, 1) if channel.rank == THIRD else (THIRD,))
    ]
    if channel.rank == THIRD:
        return MakerSupply(channel, keys)

    def source(label: str, kind: str, parameters: dict[str, Any]) -> bytes:
        size = dealing.correction_bytes(kind, parameters)
        return bytes(channel.receive(THIRD, size)) if size else b""

    return Supply(keys[0], channel.rank, 2, source, channel.ledger)


class MakerSupply(Supply):
    """At party 2: sends the corrections, and gets zeros.

    Args:
        channel: of this party.
        seeds: those of parties 0 and 1.
    """

    def __init__(self, channel: Any, seeds: list[bytes]) -> None:
        super().__init__(b"", THIRD, 2, lambda *_: b"", channel.ledger)
        self._channel, self._seeds = channel, seeds

    def take(self, kind: str, **parameters: Any) -> dealing.Item:
        """Zeros."""
        self.count(kind, parameters)
        corrections = dealing.deal(kind, parameters, self._seeds, self.label)
        for receiver in (0, 1) if corrections else ():
            if needs_corrections(kind, receiver, 2):
                self._channel.send(receiver, corrections)
        return dealing.blank(kind, parameters)
