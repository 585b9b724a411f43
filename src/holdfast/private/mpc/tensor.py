"""Shared tensors: torch-like operators on numbers that no party sees.

A product has the fractional bits of both factors; it is truncated when the next operation needs room, so
that a truncation can share a round with a ReLU, and sums of products are truncated once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.private.mpc import arithmetic, comparison, ring
from holdfast.private.mpc.rounds import Rounds, opened_sum, parallel

if TYPE_CHECKING:
    from holdfast.private.mpc.party import Party

Value = Union["SharedTensor", Tensor, float, int, Any]
Gradient = Callable[["SharedTensor"], "SharedTensor"]


class SharedTensor:
    """A tensor of secrets: this party's share of it.

    Operators and methods follow torch. Every party must call the same ones in the same order.

    Args:
        party: this party.
        share: int64 tensor; the shares of all parties add up to the encoded values modulo 2^64.
        scale: fractional bits; 0 for integers and bits.
        allowed: ranks to which it may be revealed; None: all.
    """

    __array_ufunc__ = None  # arrays on the left of an operator leave it to this class

    def __init__(
        self, party: Party, share: Tensor, scale: int, allowed: frozenset[int] | None = None
    ) -> None:
        self.party, self.share, self.scale, self.allowed = party, share, scale, allowed
        self.requires_grad = False
        self.grad: SharedTensor | None = None
        self.sources: list[tuple[SharedTensor, Gradient]] = []
        """What it was computed from, with the map from its gradient to theirs: kept where one needs it."""
        self.fixed: dict[str, arithmetic.Fixed] | None = None

    def __repr__(self) -> str:
        return f"SharedTensor(shape={tuple(self.shape)}, scale={self.scale})"

    @property
    def shape(self) -> torch.Size:
        """Its shape, which is public."""
        return self.share.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.share.ndim

    def size(self, dim: int | None = None) -> Any:
        """Its shape, or the size of one dimension."""
        return self.share.size() if dim is None else self.share.size(dim)

    def numel(self) -> int:
        """Number of elements."""
        return self.share.numel()

    def __len__(self) -> int:
        return len(self.share)

    def __bool__(self) -> bool:
        raise InputError(
            "a secret cannot decide what runs next",
            code="secret-condition",
            found=repr(self),
            expected="a public value",
            remedy="use where(condition, x, y), or reveal the condition",
        )

    def __iter__(self) -> Iterator[SharedTensor]:
        return (self[number] for number in range(len(self)))

    # --- Making results --------------------------------------------------------------------------

    def like(self, share: Tensor, scale: int | None = None) -> SharedTensor:
        """A tensor with another share, under the same policy."""
        return SharedTensor(self.party, share, self.scale if scale is None else scale, self.allowed)

    def combined(
        self, other: SharedTensor, share: Tensor, scale: int | None = None
    ) -> SharedTensor:
        """A tensor computed from two: what may be revealed is what both allow."""
        result = self.like(share, scale)
        if other.allowed is not None:
            result.allowed = other.allowed if self.allowed is None else self.allowed & other.allowed
        return result

    def recorded(self, *sources: tuple[SharedTensor, Gradient]) -> SharedTensor:
        """This tensor, remembering how gradients reach what it was computed from."""
        self.sources = [(tensor, gradient) for tensor, gradient in sources if tensor.requires_grad]
        self.requires_grad = bool(self.sources)
        return self

    def detach(self) -> SharedTensor:
        """The same values without their history."""
        return self.like(self.share)

    def fix(self) -> SharedTensor:
        """Declare that this tensor is the right operand of many products: its mask is opened once."""
        self.fixed = {}
        return self

    def scope(self, op: str) -> AbstractContextManager[None]:
        """Count what runs inside as one operation."""
        return self.party.channel.scope(op)  # type: ignore[no-any-return]

    def run(self, op: str, protocol: Rounds[Any]) -> Any:
        """Run a protocol, counted as `op`."""
        with self.scope(op):
            return self.party.run(protocol)

    def lift(self, value: Value) -> SharedTensor:
        """A value of any kind as a shared tensor; numbers become public values."""
        if isinstance(value, SharedTensor):
            if value.party is not self.party:
                raise ring.invalid(
                    "operand", "a tensor of another party", "this party's", "conflict"
                )
            return value
        return self.party.public(value)

    # --- Fractional bits -------------------------------------------------------------------------

    def narrow(self) -> Rounds[Tensor]:
        """The share with at most the party's fractional bits."""
        surplus = self.scale - self.party.fraction_bits
        if surplus <= 0:
            return self.share
        return (yield from arithmetic.truncate(self.party, self.share, surplus))

    def narrowed(self) -> SharedTensor:
        """The same values with at most the party's fractional bits: one round if there are more."""
        bits = min(self.scale, self.party.fraction_bits)
        if bits == self.scale:
            return self
        share = self.run("truncate", self.narrow())
        self.share, self.scale = share, bits  # whoever holds this tensor gains from it
        return self

    def _aligned(self, other: SharedTensor) -> tuple[Tensor, Tensor, int]:
        """Both shares with the fractional bits of the finer one."""
        scale = max(self.scale, other.scale)
        return self.share << (scale - self.scale), other.share << (scale - other.scale), scale

    def fractional(self) -> SharedTensor:
        """Integers as fixed-point numbers."""
        if self.scale >= self.party.fraction_bits:
            return self
        bits = self.party.fraction_bits
        return self.like(self.share << (bits - self.scale), bits).recorded((self, lambda g: g))

    # --- Linear operations: no communication -----------------------------------------------------

    def __add__(self, other: Value) -> SharedTensor:
        right = self.lift(other)
        x, y, scale = self._aligned(right)
        out = self.combined(right, x + y, scale)
        return out.recorded((self, _summed_to(self.shape)), (right, _summed_to(right.shape)))

    def __neg__(self) -> SharedTensor:
        return self.like(-self.share).recorded((self, lambda g: -g))

    def __sub__(self, other: Value) -> SharedTensor:
        return self + -self.lift(other)

    def __rsub__(self, other: Value) -> SharedTensor:
        return -self + other

    __radd__ = __add__

    def sum(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> SharedTensor:
        """Sum over dimensions."""
        dims = _dims(dim, self.ndim)
        out = self.like(self.share.sum(dim=dims, keepdim=keepdim) if dims else self.share)

        def spread(g: SharedTensor) -> SharedTensor:
            for axis in () if keepdim else sorted(dims):
                g = g.unsqueeze(axis)
            return g.expand(*self.shape)

        return out.recorded((self, spread))

    def mean(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> SharedTensor:
        """Mean over dimensions."""
        dims = _dims(dim, self.ndim)
        count = math.prod(self.shape[axis] for axis in dims)
        return self.sum(dim, keepdim) * (1.0 / count)

    def _view(self, change: Callable[[Tensor], Tensor], back: Gradient) -> SharedTensor:
        return self.like(change(self.share)).recorded((self, back))

    def reshape(self, *shape: Any) -> SharedTensor:
        """The same elements in another shape."""
        size = _several(shape)
        return self._view(lambda t: t.reshape(size), lambda g: g.reshape(*self.shape))

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> SharedTensor:
        """Dimensions `start_dim` to `end_dim` as one."""
        return self._view(lambda t: t.flatten(start_dim, end_dim), lambda g: g.reshape(*self.shape))

    def permute(self, *dims: Any) -> SharedTensor:
        """Dimensions in another order."""
        order = _several(dims)
        back = np.argsort([axis % self.ndim for axis in order]).tolist()
        return self._view(lambda t: t.permute(order), lambda g: g.permute(*back))

    def transpose(self, first: int, second: int) -> SharedTensor:
        """Two dimensions exchanged."""
        return self._view(
            lambda t: t.transpose(first, second), lambda g: g.transpose(first, second)
        )

    @property
    def T(self) -> SharedTensor:
        """The transpose of a matrix."""
        return self.transpose(-2, -1)

    def unsqueeze(self, dim: int) -> SharedTensor:
        """A new dimension of size 1."""
        return self._view(lambda t: t.unsqueeze(dim), lambda g: g.reshape(*self.shape))

    def squeeze(self, dim: int) -> SharedTensor:
        """Without a dimension of size 1."""
        return self._view(lambda t: t.squeeze(dim), lambda g: g.reshape(*self.shape))

    def expand(self, *shape: Any) -> SharedTensor:
        """Repeated along dimensions of size 1."""
        size = _several(shape)
        return self._view(lambda t: t.expand(size), _summed_to(self.shape))

    def __getitem__(self, index: Any) -> SharedTensor:
        def scatter(g: SharedTensor) -> SharedTensor:
            share = torch.zeros(self.shape, dtype=torch.int64)
            share.index_put_(_indices(self.shape, index), g.share, accumulate=True)
            return g.like(share)

        return self._view(lambda t: t[index], scatter)

    def pad(self, widths: Sequence[int], value: float = 0.0) -> SharedTensor:
        """Padded with a public value, widths as for `torch.nn.functional.pad`."""
        encoded = int(ring.encode(value, self.scale)) if value and self.party.lead else 0

        def cut(g: SharedTensor) -> SharedTensor:
            return g.like(torch.nn.functional.pad(g.share, [-w for w in widths]))

        return self._view(lambda t: torch.nn.functional.pad(t, list(widths), value=encoded), cut)

    # --- Products --------------------------------------------------------------------------------

    def product(
        self, other: Value, op: str, options: arithmetic.Options = (), name: str | None = None
    ) -> SharedTensor:
        """A bilinear product (`ring.BILINEAR`); public operands cost nothing, shared ones one round."""
        multiply = ring.bilinear(op, options)
        if not isinstance(other, SharedTensor):
            factor, bits = _public_factor(other, self.party.fraction_bits)
            x = self.narrowed()
            out = x.like(multiply(x.share, factor), x.scale + bits)
            if not self.requires_grad:
                return out
            return out.recorded((self, gradients(op, self, other, options)[0]))
        right = self.lift(other)

        def protocol() -> Rounds[Tensor]:
            x, y = yield from parallel(self.narrow(), right.narrow())
            fixed = None
            if right.fixed is not None:
                fixed = right.fixed.setdefault(op, arithmetic.Fixed())
            return (yield from arithmetic.product(self.party, op, x, y, options, fixed))

        bits = self.party.fraction_bits
        scale = min(self.scale, bits) + min(right.scale, bits)
        if self.party.debug:
            _check_product(self, right, multiply, scale, name or op)
        out = self.combined(right, self.run(name or op, protocol()), scale)
        if not (self.requires_grad or right.requires_grad):
            return out
        to_left, to_right = gradients(op, self, right, options)
        return out.recorded((self, to_left), (right, to_right))

    def __mul__(self, other: Value) -> SharedTensor:
        if isinstance(other, int) and not isinstance(other, bool):
            return self._view(lambda t: t * other, lambda g: g * other)
        return self.product(other, "mul")

    __rmul__ = __mul__

    def __matmul__(self, other: Value) -> SharedTensor:
        return self.product(other, "matmul")

    matmul = __matmul__

    def __rmatmul__(self, other: Value) -> SharedTensor:
        factor, bits = _public_factor(other, self.party.fraction_bits)
        x = self.narrowed()
        out = x.like(ring.matmul(factor, x.share), x.scale + bits)
        return out.recorded((self, lambda g: _turned(other) @ g))

    def square(self) -> SharedTensor:
        """x^2: one round, half the bytes of a product."""

        def protocol() -> Rounds[Tensor]:
            x = yield from self.narrow()
            return (yield from arithmetic.square(self.party, x))

        scale = 2 * min(self.scale, self.party.fraction_bits)
        if self.party.debug:
            _check_product(self, self, lambda x, y: x * y, scale, "square")
        return self.like(self.run("square", protocol()), scale).recorded(
            (self, lambda g: g * (self * 2))
        )

    def __pow__(self, power: int) -> SharedTensor:
        if not isinstance(power, int) or power < 1:
            raise ring.invalid("power", power, "1, 2, 3, ...", "unsupported")
        if power == 1:
            return self
        half = (self ** (power // 2)).square() if power > 3 else self.square()
        return half * self if power % 2 else half

    def __truediv__(self, other: Value) -> SharedTensor:
        if isinstance(other, SharedTensor):
            from holdfast.private.mpc.functions import reciprocal

            return self * reciprocal(other, signed=True)
        return self * (1.0 / torch.as_tensor(other, dtype=torch.float64))

    def __rtruediv__(self, other: Value) -> SharedTensor:
        from holdfast.private.mpc.functions import reciprocal

        return reciprocal(self, signed=True) * other

    # --- Comparisons: bits as integers 0 and 1 ---------------------------------------------------

    def _compared(self, other: Value, name: str, thresholds: tuple[int, ...]) -> SharedTensor:
        right = self.lift(other)
        x, y, _ = self._aligned(right)
        if self.party.debug:
            _check_range(self - right, name, ring.LIMIT_BITS)

        def protocol() -> Rounds[Tensor]:
            bits = yield from comparison.at_least(self.party, x - y, thresholds)
            one = bits[..., 0] if len(thresholds) == 1 else bits[..., 0] ^ bits[..., 1]
            return (yield from comparison.to_arithmetic(self.party, one))

        return self.combined(right, self.run(name, protocol()), 0)

    def __ge__(self, other: Value) -> SharedTensor:
        return self._compared(other, "ge", (0,))

    def __gt__(self, other: Value) -> SharedTensor:
        return self._compared(other, "gt", (1,))

    def __lt__(self, other: Value) -> SharedTensor:
        return 1 - self._compared(other, "lt", (0,))

    def __le__(self, other: Value) -> SharedTensor:
        return 1 - self._compared(other, "le", (1,))

    def __eq__(self, other: object) -> SharedTensor:  # type: ignore[override]
        return self._compared(other, "eq", (0, 1))

    def __ne__(self, other: object) -> SharedTensor:  # type: ignore[override]
        return 1 - self._compared(other, "ne", (0, 1))

    __hash__ = object.__hash__

    # --- Functions -------------------------------------------------------------------------------

    def relu(self) -> SharedTensor:
        """max(x, 0): 4 rounds, truncation included."""

        def protocol() -> Rounds[tuple[Tensor, comparison.Bits]]:
            surplus = max(0, self.scale - self.party.fraction_bits)
            return (yield from comparison.relu(self.party, self.share, surplus))

        if self.party.debug:
            _check_range(self, "relu", ring.LIMIT_BITS)
        share, bits = self.run("relu", protocol())
        out = self.like(share, min(self.scale, self.party.fraction_bits))

        return out.recorded((self, lambda g: chosen_by(bits, g)))

    def max(self, dim: int = -1, keepdim: bool = False) -> SharedTensor:
        """Largest value along a dimension."""
        keys = self.share.movedim(dim, -1)
        best = self._largest("max", keys[..., None])
        out = self.like(best[..., 0]).recorded((self, no_gradient("max")))
        return out.unsqueeze(dim) if keepdim else out

    def argmax(self, dim: int = -1, keepdim: bool = False) -> SharedTensor:
        """Place of the largest value along a dimension, the first of equal ones; an integer."""
        keys = self.share.movedim(dim, -1)
        places = torch.arange(keys.shape[-1]) * int(self.party.lead)
        values = torch.stack([keys, places.expand(keys.shape)], dim=-1)
        out = self.like(self._largest("argmax", values)[..., 1], 0)
        return out.unsqueeze(dim) if keepdim else out

    def _largest(self, op: str, values: Tensor) -> Tensor:
        if self.party.debug:
            _check_range(self, op, ring.LIMIT_BITS - 1)
        best: Tensor = self.run(op, comparison.maximum(self.party, values))
        return best

    # --- Opening ---------------------------------------------------------------------------------

    def reveal(self, to: int | Collection[int] | None = None) -> Tensor | None:
        """Open the values to some parties: this is the only way in which a secret becomes known.

        Args:
            to: a rank, several ranks, or None for all.

        Returns:
            float64 (int64 for integers) at those parties, None at all others.

        Raises:
            InputError: ``reveal-not-allowed`` if an input's policy excludes one of them.
        """
        party = self.party
        ranks = range(party.parties) if to is None else [to] if isinstance(to, int) else sorted(to)
        excluded = [r for r in ranks if self.allowed is not None and r not in self.allowed]
        unknown = [r for r in ranks if r not in range(party.parties)]
        if excluded or unknown:
            raise InputError(
                "revealing to a party that the policy of an input excludes" if excluded
                else "revealing to an unknown party",
                code="reveal-not-allowed" if excluded else "invalid-value",
                found=f"party {(excluded or unknown)[0]}",
                expected=f"parties {sorted(self.allowed or range(party.parties))}",
                remedy="reveal to other parties, or widen reveal_to= where the input is shared",
            )  # fmt: skip
        with party.channel.scope("reveal"):
            share = self.narrowed().share
            if party.parties > 2:  # a sum of inputs must not show the inputs
                share = share + party.streams.zero(tuple(share.shape))
            total = _collect(party, share, list(ranks))
        return None if total is None else ring.decode(total, self.scale)

    def backward(self, gradient: SharedTensor | None = None) -> None:
        """Add the gradient of this tensor's sum to `grad` of every tensor it was computed from."""
        from holdfast.private.mpc.training import backward

        backward(self, gradient)


# --- Opening to some parties ---------------------------------------------------------------------


def _collect(party: Party, share: Tensor, ranks: list[int]) -> Tensor | None:
    """The sum of all shares, at the parties of these ranks."""
    mine = share.contiguous().numpy()
    if len(ranks) == party.parties:
        received = [np.frombuffer(message, np.int64) for message in party.channel.exchange(mine)]
        return torch.from_numpy(opened_sum(received)).reshape(share.shape)
    for rank in ranks:
        if rank != party.rank:
            party.channel.send(rank, mine)
    if party.rank not in ranks:
        return None
    peers = (peer for peer in range(party.parties) if peer != party.rank)
    received = [np.frombuffer(party.channel.receive(peer, mine.nbytes), np.int64) for peer in peers]
    return torch.from_numpy(opened_sum([mine.reshape(-1), *received])).reshape(share.shape)


# --- Shapes and gradients ------------------------------------------------------------------------


def _several(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes or dimensions, passed one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes


def _dims(dim: int | Sequence[int] | None, ndim: int) -> list[int]:
    dims = range(ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return [axis % ndim for axis in dims]


def _summed_to(shape: torch.Size) -> Gradient:
    """The gradient of broadcasting: summed over the dimensions that were repeated."""

    def back(g: SharedTensor) -> SharedTensor:
        extra = g.ndim - len(shape)
        if extra:
            g = g.sum(tuple(range(extra)))
        repeated = [axis for axis, size in enumerate(shape) if size == 1 and g.shape[axis] != 1]
        return g.sum(repeated, keepdim=True) if repeated else g

    return back


def _indices(shape: torch.Size, index: Any) -> tuple[Tensor, ...]:
    """The coordinates that an index expression selects."""
    places = torch.arange(math.prod(shape)).reshape(shape)[index]
    return tuple(torch.unravel_index(places, shape))


def _public_factor(value: Any, fraction_bits: int) -> tuple[Tensor, int]:
    """A public factor as integers, with more fractional bits where it is small (1/768)."""
    tensor = torch.as_tensor(value)
    if not tensor.is_floating_point():
        return ring.encode(tensor, 0, "factor"), 0
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    extra = -math.floor(math.log2(largest)) if 0 < largest < 1 else 0
    bits = fraction_bits + min(extra, 12)
    return ring.encode(tensor, bits, "factor"), bits


def chosen_by(bits: comparison.Bits, g: SharedTensor) -> SharedTensor:
    """A gradient where a bit is 1, zero elsewhere: one round."""
    g = g.narrowed()
    return g.like(g.run("backward", comparison.select(g.party, bits, g.share)))


def no_gradient(op: str) -> Gradient:
    """For operations that cannot be trained through: an error in `backward`, not a gradient of zero."""

    def refuse(g: SharedTensor) -> SharedTensor:
        raise InputError(
            f"{op} has no gradient",
            code="unsupported",
            found=op,
            remedy="train through other operations, or call detach() before it",
        )

    return refuse


def gradients(
    op: str, x: SharedTensor, y: Any, options: arithmetic.Options
) -> tuple[Gradient, Gradient]:
    """How the gradient of a product reaches its operands."""
    if op == "mul":
        x_shape, y_shape = x.shape, torch.Size(getattr(y, "shape", ()))
        return (
            lambda g: _summed_to(x_shape)(g * y),
            lambda g: _summed_to(y_shape)(g * x),
        )
    if op == "matmul":
        return (
            lambda g: _summed_to(x.shape)(g @ _turned(y)),
            lambda g: _summed_to(y.shape)(x.T @ g),
        )
    if op == "conv2d":
        size, kernel = tuple(x.shape[2:]), tuple(y.shape[2:])
        return (
            lambda g: g.product(y, "conv2d_input", (*options, ("size", size))),
            lambda g: x.product(g, "conv2d_weight", (*options, ("kernel", kernel))),
        )
    return no_gradient(op), no_gradient(op)


def _turned(y: Any) -> Any:
    return y.T if isinstance(y, SharedTensor) else torch.as_tensor(y).transpose(-2, -1)


# --- Checks of ranges (debug) --------------------------------------------------------------------


def opened_values(x: SharedTensor) -> Tensor:
    """The values, opened to all parties: only with ``debug="ranges"``, in one process."""
    with x.party.channel.scope("debug"):
        total = _collect(x.party, x.share, list(range(x.party.parties)))
    assert total is not None
    return total.to(torch.float64) / 2.0**x.scale


def check_domain(x: SharedTensor, op: str, low: float, high: float) -> None:
    """Raise `RangeError` where a value lies outside the domain of a function; only with debug."""
    if not x.party.debug or not x.numel():
        return
    values = opened_values(x)
    if bool((values < low).any()) or bool((values > high).any()):
        found = f"{float(values.min()):g} to {float(values.max()):g}"
        raise ring.RangeError(_place(x, op), found, f"{low:g} to {high:g}")


def _check_range(x: SharedTensor, op: str, bits: int) -> None:
    limit = 2.0 ** (bits - x.scale)
    check_domain(x, op, -limit, limit)


def _check_product(
    x: SharedTensor,
    y: SharedTensor,
    multiply: Callable[[Tensor, Tensor], Tensor],
    scale: int,
    op: str,
) -> None:
    result = multiply(opened_values(x), opened_values(y))
    limit = 2.0 ** (ring.LIMIT_BITS - scale)
    if bool((result.abs() > limit).any()):
        found = f"{float(result.min()):g} to {float(result.max()):g}"
        raise ring.RangeError(_place(x, op), found, f"magnitude below {limit:g}")


def _place(x: SharedTensor, op: str) -> str:
    """The module and operation, for messages."""
    return f"{x.party.channel.ledger.module} {op}".strip()
