"""Comparison, selection and maximum.

A comparison opens c = x + 2^62 + r, which is uniform, and compares the public c with the dealer's r. The
dealer shares truth tables of "v is less than a digit of r" for all 16 hexadecimal digits, so looking up the
public digits costs nothing. Two rounds then combine 16 digits to 4 to 1, again by truth tables: each party
opens its inputs under a one-time mask and looks up a table that the dealer permuted by that mask.

Three rounds, 8 + 4 + 1 bytes per value. The result is a bit, shared by XOR (uint8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import function_sharing
from holdfast.private.mpc.arithmetic import (
    halves,
    masked,
    opened,
    public_quotient,
    quotient,
)
from holdfast.private.mpc.dealing import LOW_62, hex_digits, winner_index
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.rounds import Rounds, opened_xor, parallel

Bits = np.ndarray
"""A bit per value, shared by XOR: uint8 of 0 or 1."""


class _Opening(NamedTuple):
    """A masked value, what the dealer made for it, and the bits of its comparison."""

    c: Tensor
    item: dict[str, np.ndarray]
    bits: Bits


def at_least(party: Party, x: Tensor, thresholds: Sequence[int] = (0,)) -> Rounds[Bits]:
    """Bits of x >= t for each public threshold t: ``[...] -> [..., thresholds]``.

    Exact for |x - t| < 2^62. All thresholds share one opening of x.
    """
    return (yield from _compare(party, x, thresholds, 0, select=False)).bits


def _compare(
    party: Party, x: Tensor, thresholds: Sequence[int], bits: int, select: bool
) -> Rounds[_Opening]:
    tree = party.comparison == "tree"
    item = party.take(
        "comparison",
        shape=tuple(x.shape),
        thresholds=len(thresholds),
        bits=bits,
        select=select,
        tree=tree,
    )
    keys = (
        None if tree else party.take("comparison_keys", shape=tuple(x.shape), of=party.supply.label)
    )
    c = yield from opened(masked(party, x, item["r"]))
    moved = c.numpy()[..., None] - np.array(thresholds, dtype=np.int64)
    public = moved.view(np.uint64)  # [..., thresholds]
    if keys is None:
        borrow = yield from _tree(public & LOW_62, item)
    else:
        borrow = function_sharing.evaluate(keys, party.rank, public & LOW_62)
        borrow ^= item["flip"][..., None] & 1
    if party.lead:  # bit 62 of x + 2^62 - t is 1 where x >= t
        borrow = borrow ^ ((public >> np.uint64(62)) & np.uint64(1)).astype(np.uint8)
    return _Opening(c, item, borrow)


def _tree(public: np.ndarray, item: dict[str, np.ndarray]) -> Rounds[Bits]:
    """Bits of v < r, plus bit 62 of r, for public v: 62 bits."""
    digits = hex_digits(public)  # [..., thresholds, 16]
    tables = item["digits"][..., None, :] >> digits
    less, equal = (tables & 1).astype(np.uint8), ((tables >> 16) & 1).astype(np.uint8)
    # 16 digits to 4, then 4 to 1; the last table includes bit 62 of r.
    v = yield from _opened_bytes(_inputs(less, equal) ^ item["m2"])
    less = _look_up(item["less2"], v & 63) ^ less[..., 3::4]
    equal = _look_up(item["equal2"], (v >> 3) & 15)
    v = yield from _opened_bytes(_inputs(less, equal)[..., 0] ^ item["m3"])
    return _look_up(item["less3"], v & 63) ^ less[..., 3]


def _inputs(less: np.ndarray, equal: np.ndarray) -> np.ndarray:
    """The 7 inputs of one step of the tree for each 4 digits, as one byte: ``[..., 4 n] -> [..., n]``."""
    packed = equal[..., 0::4] << 6
    for place in (0, 1, 2):
        packed |= less[..., place::4] << place
        packed |= equal[..., place + 1 :: 4] << (place + 3)
    return packed


def _look_up(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Bit `index` of each word."""
    bits = (table >> index.astype(table.dtype)) & table.dtype.type(1)
    return np.asarray(bits.astype(np.uint8))


# --- Bits with values ----------------------------------------------------------------------------


def to_arithmetic(party: Party, bits: Bits) -> Rounds[Tensor]:
    """Arithmetic shares of bits: one round, 1 byte."""
    item = party.take("bit", shape=tuple(bits.shape))
    v = yield from _opened_bits(bits ^ item["rho"])
    share = (1 - 2 * v) * torch.as_tensor(item["bit"])
    return share + v if party.lead else share


def select(party: Party, bits: Bits, x: Tensor) -> Rounds[Tensor]:
    """Bits * x, with broadcasting: one round."""
    return (yield from select_with_bits(party, bits, x))[0]


def select_with_bits(party: Party, bits: Bits, x: Tensor) -> Rounds[tuple[Tensor, Tensor]]:
    """Bits * x, and arithmetic shares of the bits: one round.

    Opens v = bit xor rho and e = x - a; bit x = v x + (1 - 2v) (rho e + rho a).
    """
    item = party.take("selection", bits=tuple(bits.shape), values=tuple(x.shape))
    masked_x = x - torch.as_tensor(item["a"])
    v, e = yield from parallel(_opened_bits(bits ^ item["rho"]), opened(masked_x))
    rho, rho_a = torch.as_tensor(item["bit"]), torch.as_tensor(item["bit_a"])
    flipped = (1 - 2 * v) * rho
    return v * x + flipped * e + (1 - 2 * v) * rho_a, flipped + v if party.lead else flipped


def _opened_bits(share: Bits) -> Rounds[Tensor]:
    """Masked bits as integers; the other bits of their bytes stay masked."""
    opened_bytes = yield from _opened_bytes(share)
    return torch.as_tensor(opened_bytes & 1).to(torch.int64)


def _opened_bytes(share: np.ndarray) -> Rounds[np.ndarray]:
    return opened_xor((yield share))


def relu(party: Party, x: Tensor, bits: int = 0) -> Rounds[tuple[Tensor, Bits]]:
    """max(x, 0) / 2^bits, and the bits of x > 0: 4 rounds, 14 bytes.

    Truncation, comparison and product share one opening.
    """
    at = yield from _compare(party, x, (1,), bits, select=True)
    sign = at.bits[..., 0]
    v = yield from _opened_bits(sign ^ at.item["rho"])
    # bit y = v y + (1 - 2v) rho y, and y = C - high + (1 - 2s) top 2^(63-bits) with C, s public.
    y = quotient(party, at.c, at.item, bits)
    low, s = halves(at.c)
    rho, rho_high, rho_top = (
        torch.as_tensor(at.item[name]) for name in ("bit", "bit_high", "bit_top")
    )
    rho_y = public_quotient(low, s, bits) * rho - rho_high
    rho_y += (1 - 2 * s) * rho_top * (1 << (63 - bits))
    return v * y + (1 - 2 * v) * rho_y, sign


# --- Maximum -------------------------------------------------------------------------------------


_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def maximum(party: Party, values: Tensor) -> Rounds[Tensor]:
    """The entry with the largest key: ``[..., n, k] -> [..., k]``, where ``[..., 0]`` are the keys.

    Four entries at a time: all 6 comparisons at once (3 rounds), then the winner by a truth table (1). Of
    equal keys the first wins. Exact where keys differ by less than 2^62.
    """
    while values.shape[-2] > 1:
        values = yield from _winners(party, values)
    return values[..., 0, :]


def _winners(party: Party, values: Tensor) -> Rounds[Tensor]:
    """The largest entry of each group of 4; the last group may be smaller, and one entry stays alone."""
    *batch, n, k = values.shape
    groups = (n + 2) // 4
    heads, alone = values[..., : 4 * groups, :], values[..., 4 * groups :, :]
    pairs = np.array(_PAIRS) + 4 * np.arange(groups)[:, None, None]  # [groups, 6, 2]
    real = pairs[..., 1] < heads.shape[-2]
    first, second = torch.as_tensor(pairs[real]).T
    keys = values[..., 0]
    bits = yield from at_least(party, keys[..., first] - keys[..., second])
    # Missing entries of the last group are zeros, and never win: their comparisons are public.
    inputs = np.full((*batch, groups, 6), int(party.lead), dtype=np.uint8)
    inputs[..., real] = bits[..., 0]
    padding = (0, 0, 0, 4 * groups - heads.shape[-2])
    heads = torch.nn.functional.pad(heads, padding).reshape(*batch, groups, 4, k)
    best = yield from _pick(party, inputs, heads)
    return torch.cat([best, alone], dim=-2)


def _pick(party: Party, inputs: np.ndarray, values: Tensor) -> Rounds[Tensor]:
    """The winner of each 4 values by its 6 comparisons: ``[..., 6], [..., 4, k] -> [..., k]``. One round.

    Opens the comparisons under masks, and x - a; a truth table W of each value's three comparisons then
    gives the sum of W x = W (x - a) + W a.
    """
    item = party.take("winner", shape=inputs.shape[:-1], width=values.shape[-1])
    packed = (inputs * (1 << np.arange(6)).astype(np.uint8)).sum(axis=-1, dtype=np.uint8)
    masked_x = values - torch.as_tensor(item["a"])
    v, e = yield from parallel(_opened_bytes(packed ^ item["m"]), opened(masked_x))
    winners = winner_index((v[..., None] >> np.arange(6)) & 1)
    place = torch.as_tensor(winners)[..., None]  # [..., 4, 1]
    wins = torch.as_tensor(item["wins"]).gather(-1, place)
    wide = place[..., None].expand(*place.shape, values.shape[-1])
    wins_a = torch.as_tensor(item["wins_a"]).gather(-2, wide)[..., 0, :]
    return (wins * e + wins_a).sum(-2)
