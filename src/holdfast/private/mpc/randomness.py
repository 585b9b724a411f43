"""Keys and pseudorandom streams: every mask and every share comes from here.

A seed is a 16-byte AES key. Stream `index` of a seed is AES-128 in counter mode whose counter starts at
index * 2^64, so streams never overlap and any of them can be made again from (seed, index).
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from holdfast.private.mpc.ring import invalid

SEED_BYTES = 16


def stream(seed: bytes, index: int, size: int) -> np.ndarray:
    """`size` pseudorandom bytes: stream `index` of a seed."""
    counter = index.to_bytes(8, "big") + bytes(8)
    encryptor = Cipher(algorithms.AES128(seed), modes.CTR(counter)).encryptor()
    out = np.zeros(size, dtype=np.uint8)
    if size:
        encryptor.update_into(out.data, out.data)
    return out


def uniform(seed: bytes, index: int, shape: tuple[int, ...]) -> Tensor:
    """A uniform tensor of the ring: stream `index` of a seed."""
    return torch.from_numpy(stream(seed, index, 8 * math.prod(shape)).view(np.int64)).reshape(shape)


def agree(channel: Any) -> tuple[list[bytes], bytes]:
    """A seed shared with each peer, by rank, and the identity of the session: X25519 and HKDF, one round.

    The seed at this party's own place is empty. The identity is public, and the same at all parties.

    The channel must be authenticated: TLS with pinned certificates is.
    """
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    keys = [bytes(key) for key in channel.exchange(public)]
    seeds = [b""] * len(keys)
    for peer, key in enumerate(keys):
        if peer != channel.rank:
            secret = private.exchange(X25519PublicKey.from_public_bytes(key))
            salt = b"".join(sorted((public, key)))
            info = b"holdfast mpc pairwise seed"
            seeds[peer] = HKDF(hashes.SHA256(), SEED_BYTES, salt, info).derive(secret)
    return seeds, hashlib.sha256(b"".join(keys)).digest()


class PairwiseStreams:
    """Tensors that this party and one peer both know, and nobody else: shares of inputs and of zero.

    All parties draw in the same order; `_index` counts the draws.
    """

    def __init__(self, rank: int, seeds: list[bytes]) -> None:
        self.rank, self.parties = rank, len(seeds)
        self._seeds = seeds
        self._index = 0
        self._process = os.getpid()

    def share(self, owner: int, shape: tuple[int, ...], value: Tensor | None) -> Tensor:
        """This party's share of a value that its owner knows, without communication."""
        index = self._next()
        if self.rank != owner:
            return uniform(self._seeds[owner], index, shape)
        share = value.clone()  # type: ignore[union-attr]
        for peer in range(self.parties):
            if peer != owner:
                share -= uniform(self._seeds[peer], index, shape)
        return share

    def zero(self, shape: tuple[int, ...]) -> Tensor:
        """A fresh share of zero: each pair adds and subtracts one stream."""
        index = self._next()
        share = torch.zeros(shape, dtype=torch.int64)
        for peer in range(self.parties):
            if peer != self.rank:
                mask = uniform(self._seeds[peer], index, shape)
                share += mask if self.rank < peer else -mask
        return share

    def common(self, peers: tuple[int, int], shape: tuple[int, ...]) -> Tensor | None:
        """A tensor that two parties know; None at every other party."""
        index = self._next()
        if self.rank not in peers:
            return None
        return uniform(self._seeds[sum(peers) - self.rank], index, shape)

    def check(self) -> None:
        """Refuse to draw in a fork of the process that made it: both would use the same masks.

        Raises:
            InputError: ``conflict``.
        """
        if os.getpid() != self._process:
            raise invalid(
                "process of a party",
                os.getpid(),
                f"{self._process}: a fork would use its masks again, fork before the party starts",
                "conflict",
                place="party",
            )

    def _next(self) -> int:
        self.check()
        self._index += 1
        return self._index
