"""Products, exact truncation and openings of arithmetic shares.

Shares are int64 tensors that add up to the value modulo 2^64. Protocols are generators (see rounds.py) on
raw shares; `tensor.SharedTensor` keeps track of fractional bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import replicated
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import bilinear
from holdfast.private.mpc.rounds import Rounds, opened_sum, parallel

Options = tuple[tuple[str, Any], ...]
_tensor = torch.as_tensor


class Fixed:
    """A right operand that stays the same over many products: its masked value is opened once.

    Later products open only their left operand.
    """

    def __init__(self) -> None:
        self.label: str | None = None
        self.mask = self.delta = torch.empty(0)

    def open(self, party: Party, y: Tensor) -> Rounds[None]:
        """Open y - b, for a mask b that every later triple of this operand uses."""
        self.mask = _tensor(party.take("mask", shape=tuple(y.shape))["b"])
        self.label = party.supply.label
        self.delta = yield from opened(y - self.mask)


def opened(share: Tensor) -> Rounds[Tensor]:
    """The sum of all parties' shares: callers mask it, or are `reveal`."""
    received = yield share.contiguous().numpy()
    return torch.as_tensor(opened_sum(received))


def product(
    party: Party, op: str, x: Tensor, y: Tensor, options: Options = (), fixed: Fixed | None = None
) -> Rounds[Tensor]:
    """A bilinear product of two shared tensors, by a Beaver triple (a, b, c = B(a, b)): one round.

    Opens e = x - a and d = y - b; then B(x, y) = c + B(e, b) + B(a, d) + B(e, d).
    """
    if party.group is not None:
        return (yield from replicated.product(party, op, x, y, options))
    if fixed is not None and fixed.label is None:
        yield from fixed.open(party, y)
    names = {"op": op, "left": tuple(x.shape), "right": tuple(y.shape), "options": options}
    item = party.take("product", **names, fixed=fixed.label if fixed else None)
    a = _tensor(item["a"])
    if fixed is None:
        b = _tensor(item["b"])
        e, d = yield from parallel(opened(x - a), opened(y - b))
    else:
        b, d = fixed.mask, fixed.delta
        e = yield from opened(x - a)
    multiply = bilinear(op, options)
    return _tensor(item["c"]) + multiply(e, b + d if party.lead else b) + multiply(a, d)


def square(party: Party, x: Tensor) -> Rounds[Tensor]:
    """x^2 by a pair (a, c = a^2): opens e = x - a; x^2 = c + 2 e a + e^2. One round."""
    if party.group is not None:
        x = yield from replicated.replicated(party, x)
        return (yield from replicated.product(party, "mul", x, x, ()))
    item = party.take("square", shape=tuple(x.shape))
    a = _tensor(item["a"])
    e = yield from opened(x - a)
    return _tensor(item["c"]) + 2 * e * a + (e * e if party.lead else 0)


def truncate(party: Party, x: Tensor, bits: int) -> Rounds[Tensor]:
    """X / 2^bits rounded down, or that plus 1: exact for |x| < 2^62. One round, 8 bytes.

    Opens c = x + 2^62 + r and removes r with what the dealer made of it. Negative bits multiply: no round.
    """
    if bits <= 0:
        return x << -bits
    item = party.take("truncation", shape=tuple(x.shape), bits=bits)
    c = yield from opened(masked(party, x, item["r"]))
    return quotient(party, c, item, bits)


def masked(party: Party, x: Tensor, r: np.ndarray) -> Tensor:
    """This party's share of x + 2^62 + r."""
    share = x + torch.as_tensor(r)
    return share + (1 << 62) if party.lead else share


def quotient(party: Party, c: Tensor, item: dict[str, np.ndarray], bits: int) -> Tensor:
    """Shares of X / 2^bits - 2^(62-bits) for c = X + r.

    With c', r' modulo 2^63: X = c' - r' + 2^63 [c' < r'], and as X < 2^63, [c' < r'] = c_63 xor r_63.
    """
    low, sign = halves(c)
    high, top = torch.as_tensor(item["high"]), torch.as_tensor(item["top"])
    borrow = (1 - 2 * sign) * top  # shares of c_63 xor r_63, less the public part
    share = borrow * (1 << (63 - bits)) - high
    if party.lead:
        share += public_quotient(low, sign, bits)
    return share


def public_quotient(low: Tensor, sign: Tensor, bits: int) -> Tensor:
    """The part of `quotient` that depends on c alone."""
    return (low >> bits) + sign * (1 << (63 - bits)) - (1 << (62 - bits))


def halves(c: Tensor) -> tuple[Tensor, Tensor]:
    """C modulo 2^63, and its bit 63."""
    return c & ((1 << 63) - 1), (c < 0).to(torch.int64)
