"""Comparison by function secret sharing: a distributed comparison function (DCF) with keys from the dealer.

Two keys, one per party, evaluate to bits that XOR to [v < r] at any public v, for an r that neither
party knows (Boyle et al., "Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation",
2021, figure 1, with bits as outputs). Each party walks a binary tree along the bits of v. The two walks
have equal states as soon as v leaves the path of r, and correction words keep them different on it.

A key has 62 correction words of 17 bytes, and one for the place r itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

LEVELS = 62
_FIXED_KEY = bytes(range(16))
_LONG = np.uint64
_CLEAR = _LONG(2**64 - 4)  # a state's two lowest bits choose its children


def generate(r: np.ndarray, roots: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The correction words for r.

    Args:
        r: numbers below 2^62, any shape.
        roots: the states ``[..., 2]`` at which the parties start: their own randomness.
    """
    states = np.empty((LEVELS, *r.shape, 2), dtype=_LONG)
    bits = np.empty((LEVELS, *r.shape), dtype=np.uint8)
    at = [_cleared(root) for root in roots]
    control = [np.zeros(r.shape, dtype=np.uint8), np.ones(r.shape, dtype=np.uint8)]
    value = np.zeros(r.shape, dtype=np.uint8)  # what the walks along r add up to
    for level in range(LEVELS):
        bit = _bit(r, 61 - level)
        # The walk that leaves r's path at this level, and the one that stays on it.
        left, kept = ([_child(state, side) for state in at] for side in (bit ^ np.uint8(1), bit))
        states[level], left_value, left_flag = (a ^ b for a, b in zip(*left, strict=True))
        _, kept_value, kept_flag = (a ^ b for a, b in zip(*kept, strict=True))
        # Who leaves has equal states and flags at both parties, who stays has different flags.
        correction = left_value ^ value ^ bit  # leaving to the left means v < r
        kept_flag ^= 1
        bits[level] = correction | (left_flag << (2 - bit)) | (kept_flag << (1 + bit))
        value = value ^ kept_value ^ correction
        for party, (state, _, flag) in enumerate(kept):
            at[party] = state ^ states[level] * control[party][..., None].astype(_LONG)
            control[party] = flag ^ control[party] * kept_flag
    return {"states": states, "bits": bits, "leaf": _last(at[0]) ^ _last(at[1]) ^ value}


def evaluate(key: dict[str, Any], rank: int, v: np.ndarray) -> np.ndarray:
    """This party's share of [v < r].

    Args:
        key: correction words and this party's root, of shape ``[...]``.
        rank: 0 or 1.
        v: public numbers below 2^62, ``[..., k]``: one key serves any number of places.

    Returns:
        Bits ``[..., k]``.
    """
    state = np.broadcast_to(_cleared(key["root"])[..., None, :], (*v.shape, 2))
    control = np.full(v.shape, rank & 1, dtype=np.uint8)
    total = np.zeros(v.shape, dtype=np.uint8)
    for level in range(LEVELS):
        bit = _bit(v, 61 - level)
        words = key["bits"][level][..., None]
        state, value, flag = _child(state, bit)
        total ^= value ^ (control & words & 1)
        state = state ^ key["states"][level][..., None, :] * control[..., None].astype(_LONG)
        control = flag ^ (control & (words >> (bit + np.uint8(1))) & 1)
    return np.asarray(total ^ _last(state) ^ (control & key["leaf"][..., None]))


def _last(state: np.ndarray) -> np.ndarray:
    """A bit of a state at the end of its walk, which hides what the walks add up to."""
    return _bit(state[..., 0], 2)


def _child(state: np.ndarray, side: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """State, value bit and control bit of a child."""
    tweaked = state.copy()
    tweaked[..., 0] |= np.asarray(side).astype(_LONG)
    block = _hashed(tweaked)
    low = block[..., 0].astype(np.uint8)
    return _cleared(block), (low >> 1) & 1, low & 1


def _hashed(blocks: np.ndarray) -> np.ndarray:
    """AES(x) xor x with a fixed key: one call for all blocks."""
    given = np.ascontiguousarray(blocks)
    encryptor = Cipher(algorithms.AES128(_FIXED_KEY), modes.ECB()).encryptor()
    out = np.frombuffer(encryptor.update(given.data.cast("B")) if given.size else b"", dtype=_LONG)
    return out.reshape(given.shape) ^ given


def _cleared(blocks: np.ndarray) -> np.ndarray:
    out = blocks.copy()
    out[..., 0] &= _CLEAR
    return out


def _bit(numbers: np.ndarray, place: int) -> np.ndarray:
    bits = (numbers >> _LONG(place)) & _LONG(1)
    return np.asarray(bits.astype(np.uint8))
