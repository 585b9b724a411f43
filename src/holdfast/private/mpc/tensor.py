"""Shared tensors: torch-like operators on numbers that no party sees.

A product has the fractional bits of both factors; it is truncated when the next operation needs room, so
that a truncation can share a round with a ReLU, and sums of products are truncated once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.private.mpc import arithmetic, bounds, comparison, ring
from holdfast.private.mpc.bounds import Bound, Limits
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.products import public_product, shared_product
from holdfast.private.mpc.replicated import Replicated, replicated
from holdfast.private.mpc.ring import RangeError
from holdfast.private.mpc.rounds import Rounds, opened_sum, parallel

Value = Union["SharedTensor", Tensor, float, int, Any]
Gradient = Callable[["SharedTensor"], "SharedTensor"]
Dims = int | Sequence[int] | None
"""One dimension, several, or all."""

FACTS = frozenset({"dim", "ndim", "nelement", "numel", "size"})
"""Public facts of a tensor's shape."""
OPERATORS = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "matmul", "neg", "pow", "eq", "ne", "lt", "le", "gt", "ge")
} | {
    "div": operator.truediv,
    "dot": lambda x, y: (x * y).sum(),
    "min": lambda x, *dims, **options: _of_negated((-x).max(*dims, **options)),
    "amin": lambda x, *dims, **options: -(-x).amax(*dims, **options),
    "argmin": lambda x, *dims, **options: (-x).argmax(*dims, **options),
}
"""Operators, by the names of their methods."""
MOVES = frozenset(
    [
        "chunk", "diagonal", "expand", "expand_as", "flatten", "flip", "gather", "index_select",
        "movedim", "narrow", "permute", "repeat", "reshape", "roll", "select", "split", "squeeze",
        "swapaxes", "t", "take", "tile", "transpose", "unbind", "unflatten", "unfold", "unsqueeze",
        "view", "view_as",
    ]
)  # fmt: skip
"""Methods of torch's tensors that only move elements: they are those of shared tensors."""
FUNCTIONS = frozenset(
    [
        "abs", "avg_pool2d", "clamp", "conv1d", "conv2d", "erf", "exp",
        "gelu", "hardtanh", "leaky_relu", "log", "log_softmax", "max_pool2d", "maximum", "minimum",
        "reciprocal", "relu6", "rsqrt", "sigmoid", "sign", "silu", "softmax",
        "sqrt", "tanh",
    ]
)  # fmt: skip
"""Functions of `functions` that are methods too."""


def _of_negated(best: Any) -> Any:
    """Smallest values, with their places, from the largest ones of the negated tensor."""
    return -best if isinstance(best, SharedTensor) else type(best)((-best[0], best[1]))


class SecretConditionError(InputError, RuntimeError):
    """A branch on a secret; torch has a RuntimeError for values that cannot be branched on."""


def _comparison(
    name: str, thresholds: tuple[int, ...], *, inverted: bool = False
) -> Callable[[SharedTensor, Value], SharedTensor]:
    """A comparison by whether the difference reaches the first threshold, and not the second."""

    def compared(x: SharedTensor, y: Value) -> SharedTensor:
        right = x.lift(y)
        difference = (x - right).finite()

        def protocol() -> Rounds[Tensor]:
            bits = yield from comparison.at_least(x.party, difference.share, thresholds)
            one = np.bitwise_xor.reduce(bits, axis=-1)
            return (yield from comparison.to_arithmetic(x.party, one))

        out = x.like(x.run(name, protocol()), 0, Bound(0.0, 1.0), others=[right])
        return 1 - out if inverted else out

    return compared


class SharedTensor:
    """A tensor of secrets: this party's share of it.

    Operators and methods follow torch. Every party must call the same ones in the same order.

    Args:
        party: this party.
        share: int64 tensor; the shares of all parties add up to the encoded values modulo 2^64.
        scale: fractional bits; 0 for integers and bits.
        allowed: ranks to which it may be revealed; None: all.
        bound: where its values are; by default below 1,024, integers below 2^31.
        keep: fractional bits that it keeps when it is narrowed; by default the party's, and more for
            small bounds.
        name: what messages call it.
        second: what makes it a replicated share (`replicated.Replicated`), if it is one.

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
        bound: Bound | None = None,
        keep: int | None = None,
        name: str = "",
        second: Tensor | None = None,
    ) -> None:
        self.party, self.share, self.scale, self.allowed = party, share, scale, allowed
        self.second = second
        self.masked: Tensor | None = None
        """Public: 1 where it is minus infinity, whatever is stored there, 0 elsewhere; None: nowhere."""
        self.bound = bound or Bound.of(bounds.DEFAULT if scale else bounds.DEFAULT_INTEGER)
        self.keep = self.bound.scale(party.fraction_bits) if keep is None else keep
        self.name = name
        self.requires_grad = False
        self.grad: SharedTensor | None = None
        self.sources: list[tuple[SharedTensor, Gradient]] = []
        """What it was computed from, with the map from its gradient to theirs: kept where one needs it."""
        self.fixed: dict[str, arithmetic.Fixed] | None = None
        self.row_sum: float | None = None
        """Bound of the sum of magnitudes that one output of a product takes of it; None: unknown."""
        self.expected = party.expected
        """Largest magnitude, checked in secret before a product where its bound does not say it.

        None: its bound is all that is wanted, also of its sums.
        """
        stored = self.bound.finite()
        if not stored.fits(scale):
            raise self.refused(stored, scale)
        party.channel.ledger.note_margin(ring.LIMIT_BITS - stored.bits - scale)

    @property
    def share(self) -> Tensor:
        """This party's share; a new one is not replicated."""
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

    def __len__(self) -> int:
        return len(self.share)

    def __bool__(self) -> bool:
        raise SecretConditionError(
            "a secret cannot decide what runs next",
            code="secret-condition",
            found=repr(self),
            expected="a public value",
            remedy="use where(condition, x, y), or reveal the condition",
        )

    def __iter__(self) -> Iterator[SharedTensor]:
        return iter(self.unbind(0))

    # --- Making results --------------------------------------------------------------------------

    def like(
        self,
        share: Tensor,
        scale: int | None = None,
        bound: Bound | None = None,
        keep: int | None = None,
        others: Sequence[SharedTensor] = (),
        second: Tensor | None = None,
        masked: Tensor | None = None,
    ) -> SharedTensor:
        """A tensor with another share; without a scale, of the same numbers.

        What may be revealed is what this tensor allows, and others that it was computed from.
        """
        name = ""
        if scale is None:
            scale, name = self.scale, self.name
            keep = self.keep if keep is None else keep
        bound = self.bound if bound is None else bound
        limits = [each.allowed for each in (self, *others) if each.allowed is not None]
        allowed = frozenset.intersection(*limits) if limits else None
        out = self.party.tensor(share, scale, allowed, bound, keep, name, second)
        out.masked = masked
        return out

    def mapped(
        self, change: Callable[..., Tensor], *others: SharedTensor, **facts: Any
    ) -> SharedTensor:
        """A linear map of shares, which leaves replicated ones replicated.

        Args:
            change: from the shares of this tensor and others.
            others: what else it takes.
            facts: `scale`, `bound` and `keep` of the result, as of `like`.
        """
        tensors = (self, *others)
        share = change(*(each.share for each in tensors))
        seconds = [each.second for each in tensors if each.second is not None]
        second = change(*seconds) if len(seconds) == len(tensors) else None
        masked = None
        if any(each.masked is not None for each in tensors):
            places = (torch.zeros_like(t.share) if t.masked is None else t.masked for t in tensors)
            masked = (change(*places) != 0).to(torch.int64)
        return self.like(share, others=others, second=second, masked=masked, **facts)

    def refused(self, bound: Bound, scale: int, other: SharedTensor | None = None) -> RangeError:
        """The error for a result that does not fit."""
        names = " and ".join(
            f"{each.name or 'a result'} {list(each.shape)} of {each.bound.low:g} to {each.bound.high:g}"
            for each in (self, other)
            if each is not None
        )
        expected = f"below 2^{ring.LIMIT_BITS - scale} at {scale} fractional bits"
        if bound.magnitude == math.inf:
            expected = (
                "finite numbers; minus infinity is for softmax and max, where it is not everywhere"
            )
        found = f"{bound.low:g} to {bound.high:g}, from {names}"
        return RangeError(self.party.channel.path(), found, expected)

    def recorded(self, *sources: tuple[SharedTensor, Gradient]) -> SharedTensor:
        """This tensor, remembering how gradients reach what it was computed from."""
        self.sources = [(tensor, gradient) for tensor, gradient in sources if tensor.requires_grad]
        self.requires_grad = bool(self.sources)
        return self

    def detach(self) -> SharedTensor:
        """The same values without their history."""
        return self.mapped(torch.positive)

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

        Minus infinity becomes a masked zero.
        """
        if isinstance(value, SharedTensor):
            if value.party is not self.party:
                raise ring.invalid(
                    "operand", "a tensor of another party", "this party's", "conflict"
                )
            return value
        values = ring.numbers(value, "operand")
        masks = torch.isneginf(values)
        scale = max(self.scale, self.party.fraction_bits)
        out = self.party.public(values.masked_fill(masks, 0), scale)
        if bool(masks.any()):
            out.masked = masks.to(torch.int64)
            out.bound = Bound(-math.inf, out.bound.high, out.bound.low)
        return out

    # --- Fractional bits -------------------------------------------------------------------------

    def target(self, limit: int | None = None) -> int:
        """The fractional bits that it is narrowed to."""
        bits = min(self.scale, self.keep)
        return bits if limit is None else min(bits, limit)

    def narrowing(self, limit: int | None = None) -> Rounds[Tensor]:
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
        if bits == self.target():
            with self.scope("truncate"):
                narrow_together([self])
            return self
        share = self.run("truncate", self.narrowing(limit))
        out = self.like(share, bits, self.bound.widened(2.0**-bits), masked=self.masked)
        return out.recorded((self, lambda g: g))

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
        x = self.checked().fractional()
        return x.narrowed(min(bounds.MOST_BITS, x.bound.finite().times(2.0).room))

    def finite(self, dims: Sequence[int] | None = None) -> SharedTensor:
        """The same values, with numbers that are below all others, and below -64, for minus infinity.

        Raises:
            RangeError: if there is nothing else along `dims`.
        """
        if self.masked is None:
            return self
        if dims is not None and bool(self.masked.all(dims).any()):
            raise self.refused(self.bound, self.scale)
        bound = self.bound.finite()
        stored = self.mapped(torch.positive, bound=bound).recorded((self, lambda g: g))
        stored.masked = None
        return stored - self.masked * (bound.high - min(bound.low, 0.0) + bounds.MASKED_BELOW)

    def unmasked(self) -> SharedTensor:
        """This tensor.

        Raises:
            RangeError: if some of it is minus infinity.
        """
        if self.masked is not None:
            raise self.refused(self.bound, self.scale)
        return self

    def within(self, bound: Limits) -> SharedTensor:
        """The same values, declared to be within a bound; checked in secret: 3 rounds, 18 bytes.

        Args:
            bound: largest magnitude, or (lowest, highest).

        Returns:
            The tensor; before anything is revealed next, `RangeError` is raised if a value is outside.
        """
        return within_together([self], bound)[0]

    def adopt(self, other: SharedTensor) -> None:
        """Take the values of another tensor: whoever holds this one has them."""
        self.share, self.scale, self.bound = other.share, other.scale, other.bound

    def checked(self) -> SharedTensor:
        """This tensor; where it could be larger than is expected of it, that is checked in secret."""
        expected, magnitude = self.expected, self.bound.magnitude
        if expected is not None and max(expected, bounds.DEFAULT) < magnitude < math.inf:
            self.adopt(self.within(expected))
        return self

    # --- Linear operations: no communication, unless their sum needs room --------------------------

    def __add__(self, other: Value) -> SharedTensor:
        right = self.lift(other)
        bound = self.bound + right.bound
        stored = bound.finite()
        x, y = self.with_room(stored), right.with_room(stored)
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

    def sum(self, dim: Dims = None, keepdim: bool = False) -> SharedTensor:
        """Sum over dimensions."""
        dims = _dims(dim, self.ndim)
        bound = self.bound.times(math.prod(self.shape[axis] for axis in dims))
        x = self.with_room(bound)
        out = x.mapped(lambda t: t.sum(dim=dims, keepdim=keepdim) if dims else t, bound=bound)
        if self.expected is None:
            out.expected = None

        kept = _kept(self.shape, dims)
        return out.recorded((self, lambda g: g.reshape(kept).expand(self.shape)))

    def mean(self, dim: Dims = None, keepdim: bool = False) -> SharedTensor:
        """Mean over dimensions."""
        dims = _dims(dim, self.ndim)
        count = math.prod(self.shape[axis] for axis in dims)
        return self.sum(dim, keepdim) / count

    # --- Elements moved: no communication ----------------------------------------------------------

    def moved(
        self, move: Callable[..., Any], *args: Any, fills: bool = False, **kwargs: Any
    ) -> Any:
        """What a function of torch makes that moves elements, repeats them, or leaves them out.

        Args:
            move: the function.
            args: what follows the tensor.
            fills: whether it also puts in zeros.
            kwargs: what follows by name.

        Returns:
            A tensor, or several where the function gives several.
        """
        # Also numbers: parties that roll by different places would add what does not belong together.
        for part in (*args, *kwargs.values()):
            for each in part if isinstance(part, (list, tuple)) else [part]:
                self.party.agree(each.numpy().tobytes() if isinstance(each, Tensor) else each)
        share = move(self.share, *args, **kwargs)
        if not isinstance(share, Tensor):
            return tuple(
                self.moved(lambda t, n=n: move(t, *args, **kwargs)[n]) for n in range(len(share))
            )

        bound = self.bound.union(bounds.ZERO) if fills else self.bound
        back = _gathered(self.shape, lambda t, _: move(t, *args, **kwargs))
        second, masked = (
            None if each is None else move(each, *args, **kwargs)
            for each in (self.second, self.masked)
        )
        out = self.like(share, bound=bound, second=second, masked=masked)
        return out.recorded((self, back))

    def __getattr__(self, name: str) -> Any:
        """What torch's tensors have too: a name that ends in an underscore changes the tensor itself."""
        if name in FACTS:
            return getattr(self.share, name)
        if name in OPERATORS:
            return partial(OPERATORS[name], self)
        if name in MOVES:  # a view of the values need not be one of their shares
            return partial(self.moved, getattr(Tensor, name.replace("view", "reshape")))
        if name in FUNCTIONS:
            from holdfast.private.mpc import functions

            return partial(getattr(functions, name), self)
        if name.endswith("_") and not name.startswith("_"):
            return partial(self._replaced, getattr(self, name[:-1]))
        raise AttributeError(f"a shared tensor has no {name!r}")

    def _replaced(self, method: Callable[..., SharedTensor], *args: Any, **kwargs: Any) -> Any:
        """This tensor, with what a method gives as its values."""
        result = method(*args, **kwargs)
        if self.requires_grad or result.requires_grad:
            raise InputError(
                "a tensor cannot be changed while gradients depend on its values",
                code="unsupported",
                found=repr(self),
                remedy="use the method without an underscore, or detach() first",
            )
        vars(self).clear()
        vars(self).update(vars(result))
        return self

    def __getitem__(self, index: Any) -> SharedTensor:
        parts = index if isinstance(index, tuple) else (index,)
        return self.moved(lambda t, *parts: t[parts], *parts)  # type: ignore[no-any-return]

    @property
    def T(self) -> SharedTensor:
        """The transpose of a matrix, of each of a batch."""
        return self.transpose(-2, -1)  # type: ignore[no-any-return]

    def pad(self, widths: Sequence[int], value: float = 0.0) -> SharedTensor:
        """Padded with a public value, widths as for `torch.nn.functional.pad`."""
        if value:
            return (self - value).pad(widths) + value
        return self.moved(torch.nn.functional.pad, list(widths), fills=True)  # type: ignore[no-any-return]

    # --- Products --------------------------------------------------------------------------------

    def product(
        self,
        other: Value,
        op: str,
        options: arithmetic.Options = (),
        name: str | None = None,
        bound: Limits | Bound | None = None,
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
        self.checked()
        if not isinstance(other, SharedTensor):
            out = public_product(self, other, op, options, name=name or op)
            return out.recorded((self, gradients(op, self, other, options)[0]))
        right = self.lift(other).checked()
        declared = None if bound is None else Bound.of(bound)
        out = shared_product(self, right, op, options, name or op, declared)
        to_left, to_right = gradients(op, self, right, options)
        return out.recorded((self, to_left), (right, to_right))

    def __mul__(self, other: Value) -> SharedTensor:
        return self.product(other, "mul")

    __rmul__ = __mul__

    def __matmul__(self, other: Value) -> SharedTensor:
        right = other if isinstance(other, SharedTensor) else ring.numbers(other, "operand")
        return _of_matrices(lambda x, y: x.product(y, "matmul"), self, right)

    def __rmatmul__(self, other: Value) -> SharedTensor:
        def product(left: Tensor, x: SharedTensor) -> SharedTensor:
            out = public_product(x, left, "matmul", left=True)
            turned = left.transpose(-2, -1)
            return out.recorded((x, lambda g: _summed_to(x.shape)(turned @ g)))

        return _of_matrices(product, ring.numbers(other, "operand"), self)

    def square(self) -> SharedTensor:
        """x^2: one round, half the bytes of a product."""
        self.checked()
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
        even = (self ** (power // 2)).square()
        return even * self if power % 2 else even

    def __truediv__(self, other: Value) -> SharedTensor:
        if not isinstance(other, SharedTensor):
            other = ring.numbers(other, "divisor").to(torch.float64)
        return self * (1 / other)

    def __rtruediv__(self, other: Value) -> SharedTensor:
        from holdfast.private.mpc.functions import reciprocal

        return reciprocal(self, signed=self.bound.low <= 0) * other

    # --- Comparisons: bits as integers 0 and 1 ---------------------------------------------------

    __ge__ = _comparison("ge", (0,))
    __gt__ = _comparison("gt", (1,))
    __lt__ = _comparison("lt", (0,), inverted=True)
    __le__ = _comparison("le", (1,), inverted=True)
    __eq__ = _comparison("eq", (0, 1))  # type: ignore[assignment]
    __ne__ = _comparison("ne", (0, 1), inverted=True)  # type: ignore[assignment]
    __hash__ = object.__hash__

    # --- Functions -------------------------------------------------------------------------------

    def relu(self) -> SharedTensor:
        """max(x, 0): 4 rounds, truncation included."""
        x = self.finite()
        bits = x.target()
        share, signs = x.run("relu", comparison.relu(x.party, x.share, x.scale - bits))
        bound = x.bound.clipped(0.0, math.inf).widened(2.0**-bits)
        out = x.like(share, bits, bound, keep=bits)
        return out.recorded((x, lambda g: chosen_by(signs, g)))

    def max(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The largest value of all; along a dimension, the largest values and their places."""
        if dim is None:
            return self.amax()
        best = self._largest("max", dim, keepdim, places=True)
        return torch.return_types.max(best)

    def amax(self, dim: Dims = None, keepdim: bool = False) -> SharedTensor:
        """Largest value along dimensions, of all by default."""
        return self._largest("max", dim, keepdim, places=self.requires_grad)[0]

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> SharedTensor:
        """Place of the largest value along a dimension, the first of equal ones; an integer."""
        return self._largest("argmax", dim, keepdim, places=True)[1]

    def _largest(
        self, op: str, dim: Dims, keepdim: bool, *, places: bool
    ) -> tuple[SharedTensor, SharedTensor]:
        """The largest values along dimensions; and their places, if those are asked for."""
        dims = _dims(dim, self.ndim)
        x = self.finite(dims)
        x = x.with_room(Bound(0.0, x.bound.high - x.bound.low))
        others = [axis for axis in range(x.ndim) if axis not in dims]
        rows = x.permute([*others, *dims]).flatten(len(others))
        n = rows.shape[-1]
        if not n:
            raise ring.invalid(
                "input", f"shape {tuple(self.shape)}", "a value to take the largest of"
            )
        columns = [rows.share]
        if places:
            columns.append((torch.arange(n) * int(x.party.lead)).expand(rows.shape))
        best = x.run(op, comparison.maximum(x.party, torch.stack(columns, dim=-1)))
        place = x.like(best[..., -1], 0, Bound(0.0, max(0, n - 1)))

        def to_winner(g: SharedTensor) -> SharedTensor:
            from holdfast.private.mpc.functions import one_hot

            return g.unsqueeze(-1) * one_hot(place, n)  # type: ignore[no-any-return]

        values = rows.like(best[..., 0]).recorded((rows, to_winner))
        if not keepdim:
            return values, place
        return values.reshape(_kept(x.shape, dims)), place.reshape(_kept(x.shape, dims))

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
        party = self.unmasked().party
        ranks = range(party.parties) if to is None else [to] if isinstance(to, int) else sorted(to)
        for rank in ranks:
            if rank not in range(party.parties):
                raise ring.invalid("to", rank, f"ranks from 0 to {party.parties - 1}")
            if self.allowed is not None and rank not in self.allowed:
                raise InputError(
                    "revealing to a party that the policy of an input excludes",
                    code="reveal-not-allowed",
                    found=f"party {rank}",
                    expected=f"parties {sorted(self.allowed)}",
                    remedy="reveal to other parties, or widen reveal_to= where the input is shared",
                )
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


def narrow_together(tensors: Sequence[SharedTensor]) -> None:
    """Several tensors with the fractional bits that they keep, in one round: whoever holds them gains."""
    wide = [tensor for tensor in tensors if tensor.target() < tensor.scale]
    protocols = [tensor.narrowing() for tensor in wide]
    shares = tensors[0].party.run(parallel(*protocols)) if wide else []
    for tensor, share in zip(wide, shares, strict=True):
        tensor.share, tensor.scale = share, tensor.target()
        tensor.bound = tensor.bound.widened(2.0**-tensor.scale)


def within_together(tensors: Sequence[SharedTensor], bound: Limits) -> list[SharedTensor]:
    """`SharedTensor.within` of several tensors, in the rounds of one; their bounds may say it already."""
    declared = Bound.of(bound)
    party = tensors[0].party
    party.agree("within", declared)
    out = list(tensors)
    far = [n for n, each in enumerate(tensors) if each.bound.union(declared) != declared]
    with party.channel.scope("within"):
        checks = []
        for n in far:
            x = tensors[n].unmasked().narrowed()
            x = x.with_room(x.bound + -declared)
            first, last = (end * 2.0**x.scale for end in (declared.low, declared.high))
            limits = math.floor(first), math.ceil(last) + 1
            checks.append(comparison.at_least(party, x.share, limits))
            kept = x.bound.clipped(declared.low, declared.high).widened(2.0**-x.scale)
            out[n] = x.like(x.share, bound=kept).recorded((tensors[n], lambda g: g))
        for bits in party.run(parallel(*checks)) if checks else []:
            party.require(bits[..., 0] ^ bits[..., 1], f"{declared.low:g} to {declared.high:g}")
    return out


# --- Opening to some parties ---------------------------------------------------------------------


def _collect(party: Party, share: Tensor, ranks: list[int]) -> Tensor | None:
    """The sum of all shares, at the parties of these ranks."""
    mine = share.contiguous().numpy()
    for rank in ranks:
        if rank != party.rank:
            party.channel.send(rank, mine)
    if party.rank not in ranks:
        return None
    peers = (peer for peer in range(party.parties) if peer != party.rank)
    received = [np.frombuffer(party.channel.receive(peer, mine.nbytes), np.int64) for peer in peers]
    return torch.from_numpy(opened_sum([mine.reshape(-1), *received])).reshape(share.shape)


# --- Shapes and gradients ------------------------------------------------------------------------


def _dims(dim: Dims, ndim: int) -> list[int]:
    dims = [dim] if isinstance(dim, int) else dim or range(ndim)
    size = max(ndim, 1)  # a scalar has dimension 0, as in torch
    for axis in dims:
        if not -size <= axis < size:
            raise ring.invalid("dimension", axis, f"{-size} to {size - 1}")
    return [axis % ndim for axis in dims] if ndim else []


def _kept(shape: torch.Size, dims: Sequence[int]) -> list[int]:
    """A shape whose dimensions `dims` are reduced to 1."""
    return [1 if axis in dims else size for axis, size in enumerate(shape)]


def _gathered(shape: torch.Size, move: Callable[[Tensor, torch.Size], Tensor]) -> Gradient:
    """The gradient of moving the elements of a tensor: each one's sum over the places it went to."""

    def back(g: SharedTensor) -> SharedTensor:
        def gathered(values: Tensor) -> Tensor:
            return ring.moved_back(values, shape, lambda t: move(t, g.shape))

        copies = gathered(torch.ones_like(g.share))
        most = float(copies.max()) if copies.numel() else 1.0
        bound = g.bound.union(bounds.ZERO).times(most)
        g = g.with_room(bound)
        return g.mapped(gathered, bound=bound)

    return back


def _summed_to(shape: torch.Size) -> Gradient:
    """The gradient of broadcasting."""
    back = _gathered(shape, lambda t, size: t.expand(size))
    return lambda g: g if g.shape == shape else back(g)


def chosen_by(bits: comparison.Bits, g: SharedTensor) -> SharedTensor:
    """A gradient where a bit is 1, zero elsewhere: one round."""
    g = g.narrowed()
    bound = g.bound.union(bounds.ZERO)
    return g.like(g.run("backward", comparison.select(g.party, bits, g.share)), bound=bound)


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
            lambda g: _summed_to(x.shape)(g @ y.transpose(-2, -1)),
            lambda g: _summed_to(y.shape)(x.T @ g),
        )
    if op == "linear":

        def rows(values: SharedTensor) -> SharedTensor:
            return values.reshape(-1, values.shape[-1])  # type: ignore[no-any-return]

        return lambda g: g.product(y, "matmul"), lambda g: rows(g).T @ rows(x)
    return (
        lambda g: g.product(y, "conv2d_input", (*options, ("size", tuple(x.shape[2:])))),
        lambda g: x.product(g, "conv2d_weight", (*options, ("kernel", tuple(y.shape[2:])))),
    )


def _of_matrices(product: Callable[[Any, Any], SharedTensor], x: Any, y: Any) -> SharedTensor:
    """A product of matrices, of which each may be a vector."""
    if y.ndim == 1:
        return _of_matrices(product, x, y.unsqueeze(-1)).squeeze(-1)  # type: ignore[no-any-return]
    if x.ndim == 1:
        return _of_matrices(product, x.unsqueeze(0), y).squeeze(-2)  # type: ignore[no-any-return]
    return product(x, y)
