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
from holdfast.private.mpc import arithmetic, bounds, comparison, ring
from holdfast.private.mpc.bounds import Bound
from holdfast.private.mpc.products import public_product, shared_product
from holdfast.private.mpc.replicated import Replicated, replicated
from holdfast.private.mpc.ring import RangeError
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
        bound: where its values are; by default below 1,024, integers below 2^31.
        keep: fractional bits that it keeps when it is narrowed; the party's by default.
        name: what messages call it.

    Raises:
        RangeError: if values of that bound do not fit into the ring.
    """

    __array_ufunc__ = None  # arrays on the left of an operator leave it to this class

    def __init__(
        self,
        party: Party,
        share: Tensor,
        scale: int,
        allowed: frozenset[int] | None = None,
        *,
        bound: Bound | None = None,
        keep: int | None = None,
        name: str = "",
    ) -> None:
        self.party, self.share, self.scale, self.allowed = party, share, scale, allowed
        self.second: Tensor | None
        """What makes it a replicated share (`replicated.Replicated`), if it is one."""
        self.bound = bound or Bound.of(bounds.DEFAULT if scale else bounds.DEFAULT_INTEGER)
        self.keep = party.fraction_bits if keep is None else keep
        self.name = name
        self.requires_grad = False
        self.grad: SharedTensor | None = None
        self.sources: list[tuple[SharedTensor, Gradient]] = []
        """What it was computed from, with the map from its gradient to theirs: kept where one needs it."""
        self.fixed: dict[str, arithmetic.Fixed] | None = None
        self.row_sum: float | None = None
        """Bound of the sum of magnitudes that one output of a product takes of it; None: unknown."""
        stored = self.bound.finite()
        if not stored.fits(scale):
            raise self.refused(stored, scale)
        party.channel.ledger.note_margin(ring.LIMIT_BITS - stored.bits - scale)

    @property
    def share(self) -> Tensor:
        """This party's share."""
        return self._share

    @share.setter
    def share(self, share: Tensor) -> None:
        self._share, self.second = share, None

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

    def like(
        self,
        share: Tensor,
        scale: int | None = None,
        bound: Bound | None = None,
        keep: int | None = None,
    ) -> SharedTensor:
        """A tensor with another share, under the same policy; without a scale, of the same numbers."""
        name = ""
        if scale is None:
            scale, name = self.scale, self.name
            keep = self.keep if keep is None else keep
        bound = self.bound if bound is None else bound
        return SharedTensor(
            self.party, share, scale, self.allowed, bound=bound, keep=keep, name=name
        )

    def mapped(
        self,
        change: Callable[..., Tensor],
        *others: SharedTensor,
        **facts: Any,
    ) -> SharedTensor:
        """A linear map of shares, which leaves replicated ones replicated.

        Args:
            change: from the shares of this tensor and others.
            others: what else it takes.
            facts: `scale`, `bound` and `keep` of the result, as of `like`.
        """
        tensors = (self, *others)
        out = self.like(change(*(each.share for each in tensors)), **facts)
        seconds = [each.second for each in tensors if each.second is not None]
        if len(seconds) == len(tensors):
            out.second = change(*seconds)
        limits = [each.allowed for each in tensors if each.allowed is not None]
        out.allowed = frozenset.intersection(*limits) if limits else None
        return out

    def combined(
        self,
        other: SharedTensor,
        share: Tensor,
        scale: int | None = None,
        bound: Bound | None = None,
    ) -> SharedTensor:
        """A tensor computed from two: what may be revealed is what both allow."""
        result = self.like(share, scale, bound)
        if other.allowed is not None:
            result.allowed = other.allowed if self.allowed is None else self.allowed & other.allowed
        return result

    def refused(self, bound: Bound, scale: int, other: SharedTensor | None = None) -> RangeError:
        """The error for a result that does not fit."""
        names = " and ".join(
            f"{each.name or 'a result'} {list(each.shape)} of {each.bound.low:g} to {each.bound.high:g}"
            for each in (self, other)
            if each is not None
        )
        expected = f"below 2^{ring.LIMIT_BITS - scale} at {scale} fractional bits"
        if bound.magnitude == math.inf:
            expected = "finite numbers; minus infinity is for softmax and max alone"
        found = f"{bound.low:g} to {bound.high:g}, from {names}"
        return RangeError(self.party.channel.path(), found, expected)

    def recorded(self, *sources: tuple[SharedTensor, Gradient]) -> SharedTensor:
        """This tensor, remembering how gradients reach what it was computed from."""
        self.sources = [(tensor, gradient) for tensor, gradient in sources if tensor.requires_grad]
        self.requires_grad = bool(self.sources)
        return self

    def detach(self) -> SharedTensor:
        """The same values without their history."""
        return self.mapped(_same)

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
        """A value of any kind as a shared tensor; numbers become public values.

        Minus infinity becomes a number that, added to this tensor, is below all of its values.
        """
        if isinstance(value, SharedTensor):
            if value.party is not self.party:
                raise ring.invalid(
                    "operand", "a tensor of another party", "this party's", "conflict"
                )
            return value
        values = torch.as_tensor(value)
        masks = torch.isneginf(values)
        if not values.is_floating_point() or not bool(masks.any()):
            return self.party.public(values)
        bound = self.bound.finite()
        rest = Bound.around(values[~masks])
        below = rest.low - (bound.high - bound.low)
        out = self.party.public(torch.where(masks, below - bounds.MASKED_BELOW, values))
        out.bound = Bound(-math.inf, rest.high, out.bound.low)
        return out

    # --- Fractional bits -------------------------------------------------------------------------

    def target(self, limit: int | None = None) -> int:
        """The fractional bits that it is narrowed to."""
        bits = min(self.scale, self.keep)
        return bits if limit is None else min(bits, limit)

    def narrow(self, limit: int | None = None) -> Rounds[Tensor]:
        """The share with the fractional bits that it keeps, and at most `limit`."""
        return (
            yield from arithmetic.truncate(self.party, self.share, self.scale - self.target(limit))
        )

    def operand(self, scale: int) -> Rounds[Any]:
        """The share with so many fractional bits; replicated, as products take it, in ``replicated3``."""
        if scale != self.scale or self.party.group is None:
            return (yield from arithmetic.truncate(self.party, self.share, self.scale - scale))
        given = self.share if self.second is None else Replicated(self.share, self.second)
        # Whoever holds this tensor gains from it.
        self.share, self.second = pair = yield from replicated(self.party, given)
        return pair

    def narrowed(self, limit: int | None = None) -> SharedTensor:
        """The same values with the fractional bits that it keeps: one round if there are more.

        Raises:
            RangeError: if `limit` leaves too few.
        """
        bits = self.target(limit)
        if bits == self.scale:
            return self
        if bits < min(self.scale, self.keep, bounds.LEAST_BITS):
            raise self.refused(self.bound, self.target())
        share = self.run("truncate", self.narrow(limit))
        bound = self.bound.widened(2.0**-bits)
        if bits < self.target():
            return self.like(share, bits, bound)
        # Whoever holds this tensor gains from it.
        self.share, self.scale, self.bound = share, bits, bound
        return self

    def with_room(self, bound: Bound) -> SharedTensor:
        """The same values, narrowed as far as values of that bound need it."""
        x = self if bound.fits(self.scale) else self.narrowed()
        return x if bound.fits(x.scale) else x.narrowed(bound.room)

    def fractional(self) -> SharedTensor:
        """Integers as fixed-point numbers."""
        bits = min(self.party.fraction_bits, self.bound.finite().room)
        if self.scale >= bits:
            return self
        more = bits - self.scale
        out = self.mapped(lambda share: share << more, scale=bits, keep=bits)
        return out.recorded((self, lambda g: g))

    def argument(self) -> SharedTensor:
        """As the argument of a function: fixed-point, with at most 26 fractional bits, and room for 2 x."""
        x = self.fractional()
        return x.narrowed(min(bounds.MOST_BITS, x.bound.finite().times(2.0).room))

    def finite(self) -> SharedTensor:
        """The numbers that are stored, where masks stand in for minus infinity."""
        if self.bound.floor is None:
            return self
        return self.mapped(_same, bound=self.bound.finite()).recorded((self, lambda g: g))

    def within(self, bound: float | Sequence[float]) -> SharedTensor:
        """The same values, declared to be within a bound; checked in secret: 3 rounds, 18 bytes.

        Args:
            bound: largest magnitude, or (lowest, highest).

        Returns:
            The tensor; before anything is revealed next, `RangeError` is raised if a value is outside.
        """
        return within_together([self], bound)[0]

    # --- Linear operations: no communication, unless their sum needs room --------------------------

    def __add__(self, other: Value) -> SharedTensor:
        right = self.lift(other)
        bound = self.bound + right.bound
        if right.bound.floor is not None:
            bound = Bound(-math.inf, bound.high, self.bound.finite().low + right.bound.floor)
        stored = bound.finite()
        x, y = self, right
        if not stored.fits(max(x.scale, y.scale)):
            x, y = x.with_room(stored), y.with_room(stored)
        scale = max(x.scale, y.scale)
        steps = (scale - x.scale, scale - y.scale)
        out = x.mapped(lambda a, b: (a << steps[0]) + (b << steps[1]), y, scale=scale, bound=bound)
        return out.recorded((self, _summed_to(self.shape)), (right, _summed_to(right.shape)))

    def __neg__(self) -> SharedTensor:
        return self.mapped(torch.neg, bound=-self.bound).recorded((self, lambda g: -g))

    def __sub__(self, other: Value) -> SharedTensor:
        return self + -self.lift(other)

    def __rsub__(self, other: Value) -> SharedTensor:
        return -self + other

    __radd__ = __add__

    def sum(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> SharedTensor:
        """Sum over dimensions."""
        dims = _dims(dim, self.ndim)
        bound = self.bound.times(math.prod(self.shape[axis] for axis in dims))
        x = self.with_room(bound)
        out = x.mapped(lambda t: t.sum(dim=dims, keepdim=keepdim) if dims else t, bound=bound)

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
        return self.mapped(change).recorded((self, back))

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
            return g.like(share, bound=g.bound.union(Bound(0.0, 0.0)))

        return self._view(lambda t: t[index], scatter)

    def pad(self, widths: Sequence[int], value: float = 0.0) -> SharedTensor:
        """Padded with a public value, widths as for `torch.nn.functional.pad`."""
        self.party.agree(list(widths), value)

        def padded(t: Tensor, value: float = 0.0) -> Tensor:
            return torch.nn.functional.pad(t, list(widths), value=value)

        def cut(g: SharedTensor) -> SharedTensor:
            return g.like(torch.nn.functional.pad(g.share, [-w for w in widths]))

        bound = self.bound.union(Bound(value, value))
        out = self.mapped(padded, bound=bound)
        if value:
            edge = padded(torch.zeros(self.shape, dtype=torch.float64), value)
            out = out.mapped(torch.add, self.party.public(edge, self.scale), bound=bound)
        return out.recorded((self, cut))

    # --- Products --------------------------------------------------------------------------------

    def product(
        self,
        other: Value,
        op: str,
        options: arithmetic.Options = (),
        name: str | None = None,
        bound: Bound | float | Sequence[float] | None = None,
    ) -> SharedTensor:
        """A bilinear product (`ring.BILINEAR`); public operands cost nothing, shared ones one round.

        Args:
            other: right operand.
            op: name of the product.
            options: of it.
            name: what costs and messages call it.
            bound: of the result, where more is known than the bounds of the operands say; not checked.

        Raises:
            RangeError: if the product can leave the ring, however it is computed.
        """
        if isinstance(other, SharedTensor):
            right = self.lift(other)
            declared = None if bound is None else Bound.of(bound)
            out = shared_product(self, right, op, options, name or op, declared)
            needed = self.requires_grad or right.requires_grad
        else:
            out = public_product(self, other, op, options, name=name or op)
            right, needed = other, self.requires_grad
        if not needed:
            return out
        to_left, to_right = gradients(op, self, right, options)
        if isinstance(other, SharedTensor):
            return out.recorded((self, to_left), (other, to_right))
        return out.recorded((self, to_left))

    def __mul__(self, other: Value) -> SharedTensor:
        return self.product(other, "mul")

    __rmul__ = __mul__

    def __matmul__(self, other: Value) -> SharedTensor:
        return self.product(other, "matmul")

    matmul = __matmul__

    def __rmatmul__(self, other: Value) -> SharedTensor:
        out = public_product(self, other, "matmul", left=True)
        return out.recorded((self, lambda g: _turned(other) @ g))

    def square(self) -> SharedTensor:
        """x^2: one round, half the bytes of a product."""
        bound = self.bound.product(self.bound).clipped(0.0, self.bound.magnitude**2)
        bits = self.target()
        if not bound.fits(2 * bits):
            return self.product(self, "mul", name="square", bound=bound)

        def protocol() -> Rounds[Tensor]:
            x = yield from self.operand(bits)
            return (yield from arithmetic.square(self.party, x))

        out = self.like(self.run("square", protocol()), 2 * bits, bound)
        return out.recorded((self, lambda g: g * (self * 2)))

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

            return self * reciprocal(other, signed=other.bound.low <= 0)
        return self * (1.0 / torch.as_tensor(other, dtype=torch.float64))

    def __rtruediv__(self, other: Value) -> SharedTensor:
        from holdfast.private.mpc.functions import reciprocal

        return reciprocal(self, signed=self.bound.low <= 0) * other

    # --- Comparisons: bits as integers 0 and 1 ---------------------------------------------------

    def _compared(self, other: Value, name: str, thresholds: tuple[int, ...]) -> SharedTensor:
        right = self.lift(other)
        difference = self - right

        def protocol() -> Rounds[Tensor]:
            bits = yield from comparison.at_least(self.party, difference.share, thresholds)
            one = bits[..., 0] if len(thresholds) == 1 else bits[..., 0] ^ bits[..., 1]
            return (yield from comparison.to_arithmetic(self.party, one))

        return self.combined(right, self.run(name, protocol()), 0, Bound(0.0, 1.0))

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
        bits = self.target()
        share, signs = self.run("relu", comparison.relu(self.party, self.share, self.scale - bits))
        bound = self.bound.finite().clipped(0.0, math.inf).widened(2.0**-bits)
        out = self.like(share, bits, bound, keep=bits)
        return out.recorded((self, lambda g: chosen_by(signs, g)))

    def max(self, dim: int = -1, keepdim: bool = False) -> SharedTensor:
        """Largest value along a dimension."""
        x = self._comparable()
        best = self._largest("max", x.share.movedim(dim, -1)[..., None])
        out = x.like(best[..., 0]).recorded((self, no_gradient("max")))
        return out.unsqueeze(dim) if keepdim else out

    def argmax(self, dim: int = -1, keepdim: bool = False) -> SharedTensor:
        """Place of the largest value along a dimension, the first of equal ones; an integer."""
        keys = self._comparable().share.movedim(dim, -1)
        places = torch.arange(keys.shape[-1]) * int(self.party.lead)
        values = torch.stack([keys, places.expand(keys.shape)], dim=-1)
        bound = Bound(0.0, max(0, keys.shape[-1] - 1))
        out = self.like(self._largest("argmax", values)[..., 1], 0, bound)
        return out.unsqueeze(dim) if keepdim else out

    def _comparable(self) -> SharedTensor:
        """The same numbers, with room for the difference of any two."""
        x = self.finite()
        return x.with_room(Bound(0.0, x.bound.high - x.bound.low))

    def _largest(self, op: str, values: Tensor) -> Tensor:
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
            RangeError: if a value left the domain of an operation since the last call; nothing is opened.
        """
        party = self.party
        if self.bound.floor is not None:
            raise self.refused(self.bound, self.scale)
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
        party.settle()
        with party.channel.scope("reveal"):
            share = self.narrowed().share
        with party.channel.scope("agree"):
            party.channel.confirm()
        with party.channel.scope("reveal"):
            if party.group is not None and party.rank not in party.group:
                share = torch.zeros_like(share)
            if party.parties > 2:  # a sum of inputs must not show the inputs
                share = share + party.streams.zero(tuple(share.shape))
            total = _collect(party, share, list(ranks))
        return None if total is None else ring.decode(total, self.scale)

    def backward(self, gradient: SharedTensor | None = None) -> None:
        """Add the gradient of this tensor's sum to `grad` of every tensor it was computed from."""
        from holdfast.private.mpc.training import backward

        backward(self, gradient)


def within_together(
    tensors: Sequence[SharedTensor], bound: float | Sequence[float]
) -> list[SharedTensor]:
    """`SharedTensor.within` of several tensors, in the rounds of one."""
    declared = Bound.of(bound)
    party = tensors[0].party
    party.agree("within", declared)
    ends = Bound.around(torch.tensor([declared.low, declared.high], dtype=torch.float64))
    stored = [each.finite().narrowed() for each in tensors]
    stored = [each.with_room(each.bound + -ends) for each in stored]
    with party.channel.scope("within"):
        checks = []
        for each in stored:
            limits = (
                math.floor(declared.low * 2.0**each.scale),
                math.ceil(declared.high * 2.0**each.scale) + 1,
            )
            checks.append(comparison.at_least(party, each.share, limits))
        for bits in party.run(parallel(*checks)):
            inside = bits[..., 0] ^ bits[..., 1]
            party.require(inside, f"{declared.low:g} to {declared.high:g}")
    out = []
    for tensor, each in zip(tensors, stored, strict=True):
        kept = each.bound.clipped(declared.low, declared.high).widened(2.0**-each.scale)
        out.append(each.like(each.share, bound=kept).recorded((tensor, lambda g: g)))
    return out


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


def _same(share: Tensor) -> Tensor:
    return share


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


def chosen_by(bits: comparison.Bits, g: SharedTensor) -> SharedTensor:
    """A gradient where a bit is 1, zero elsewhere: one round."""
    g = g.narrowed()
    bound = g.bound.union(Bound(0.0, 0.0))
    return g.like(g.run("backward", comparison.select(g.party, bits, g.share)), bound=bound)


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
