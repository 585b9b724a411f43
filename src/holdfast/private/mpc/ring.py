"""Fixed-point numbers as integers modulo 2^64, and the bilinear maps of linear layers on them.

A number x with `bits` fractional bits is stored as round(x 2^bits) in a torch int64 tensor; int64
arithmetic wraps around, so it is the arithmetic of the ring. Products have the sum of the fractional
bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError, InputError

Pair = Sequence[int]
LIMIT_BITS = 62
"""Encoded values stay below 2^62 in magnitude: exact truncation and comparison need the two top bits."""


class RangeError(HoldfastError):
    """Values that could leave, or have left, the range in which an operation is right.

    Args:
        op: the operation, with its module and its tensor.
        found: what is known of the values.
        expected: the range.
    """

    exit_code = 2
    code = "out-of-range"

    def __init__(self, op: str, found: str, expected: str) -> None:
        self.op, self.found, self.expected = op, found, expected
        super().__init__(
            f"{op}: values may leave the range of the operation\n  found: {found}\n"
            f"  expected: {expected}\n  remedy: {REMEDY}"
        )


REMEDY = (
    "declare how large the values are, with bound= where they are shared or x.within(bound); "
    "or scale the inputs"
)


def invalid(
    name: str, found: Any, expected: str, code: str = "invalid-value", **where: Any
) -> InputError:
    """The error for an argument that does not fit; `where`: place and path, by default the argument."""
    where.setdefault("place", name)
    return InputError(f"invalid {name}", code=code, found=str(found), expected=expected, **where)


def numbers(values: Any, name: str = "input") -> Tensor:
    """Real numbers as a tensor: those of tensors, arrays, tables and lists.

    Raises:
        InputError: ``invalid-value`` for anything else.
    """
    if isinstance(values, Tensor) and not values.is_complex() and values.dtype != torch.uint64:
        return values.detach()
    array = np.asarray(values, order="C")
    if array.dtype.kind not in "biuf" or array.dtype == np.uint64:
        found = f"values of type {array.dtype}"
        raise invalid(name, found, "real numbers; whole ones of at most 64 bits with a sign")
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))


def encode(values: Any, bits: int, name: str = "input") -> Tensor:
    """Integers that represent real numbers, rounded to the nearest.

    Args:
        values: tensor, array, or number of any shape.
        bits: fractional bits.
        name: what error messages call the values.

    Raises:
        InputError: ``not-finite`` or ``overflow``, with the index of the first such value.
    """
    tensor = numbers(values, name)
    limit = math.nextafter(2.0 ** (LIMIT_BITS - bits), 0.0)
    check_finite(tensor, name)
    check_within(tensor, -limit, limit, name)
    if not tensor.is_floating_point():
        return tensor.to(torch.int64) << bits
    return torch.round(tensor.to(torch.float64) * 2.0**bits).to(torch.int64)


def check_finite(values: Tensor, name: str) -> None:
    """Refuse infinities and values that are not numbers.

    Raises:
        InputError: ``not-finite``, with the index of the first such value.
    """
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        _refuse(values, ~finite, "not-finite", name, "finite numbers")


def check_within(values: Tensor, low: float, high: float, name: str) -> None:
    """Refuse values outside the bound that is declared for them.

    Raises:
        InputError: ``overflow``, with the index of the first such value.
    """
    numbers = values.to(torch.float64)
    outside = (numbers < low) | (numbers > high)
    if bool(outside.any()):
        _refuse(
            values,
            outside,
            "overflow",
            name,
            f"{low:g} to {high:g}",
            "declare how large the values are: bound= where they are shared, the same at every party",
        )


def decode(encoded: Tensor, bits: int) -> Tensor:
    """Real numbers (float64) that integers represent; integers stay integers where `bits` is 0."""
    return encoded if bits == 0 else encoded.to(torch.float64) / 2.0**bits


def _refuse(
    values: Tensor, bad: Tensor, code: str, name: str, expected: str, remedy: str | None = None
) -> None:
    index = [int(place) for place in torch.nonzero(bad)[0]] if bad.ndim else []
    raise InputError(
        "the value cannot be represented",
        code=code,
        place=f"{name}{index}",
        found=str(values[tuple(index)].item()),
        expected=expected,
        remedy=remedy,
    )


# --- Bilinear maps -------------------------------------------------------------------------------
# Each is linear in both arguments, so B(x, y) follows from a masked pair (Beaver): see arithmetic.py.


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Matrix product modulo 2^64 with torch's broadcasting."""
    if y.ndim == 2 and x.ndim > 2:  # one large product is twice as fast as many
        return torch.mm(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[1])
    return torch.matmul(x, y)


def patches(x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Windows of images: ``[N, C, H, W] -> [N, C, kh, kw, oh, ow]``, padded with zeros (im2col)."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = kernel, stride, padding, dilation
    if min(kh, kw, sh, sw, dh, dw) < 1 or min(ph, pw) < 0:
        raise invalid("windows", (kernel, stride, padding, dilation), "positive sizes")
    if x.ndim != 4:
        raise invalid("images", f"{x.ndim} dimensions", "4: [N, C, H, W]")
    x = torch.nn.functional.pad(x, (pw, pw, ph, ph)).contiguous()
    n, c, height, width = x.shape
    oh = (height - dh * (kh - 1) - 1) // sh + 1
    ow = (width - dw * (kw - 1) - 1) // sw + 1
    if oh < 1 or ow < 1:
        size = f"{height} x {width} with dilation {dh} x {dw}"
        raise invalid("kernel", f"{kh} x {kw}", f"at most the padded input, {size}")
    a, b, rows, columns = x.stride()
    return x.as_strided(
        (n, c, kh, kw, oh, ow), (a, b, rows * dh, columns * dw, rows * sh, columns * sw)
    )


def _geometry(
    stride: Pair = (1, 1), padding: Pair = (0, 0), dilation: Pair = (1, 1), groups: int = 1
) -> tuple[Pair, Pair, Pair, int]:
    return stride, padding, dilation, groups


def conv2d(x: Tensor, w: Tensor, **options: Any) -> Tensor:
    """Convolution ``[N, C, H, W], [O, C/groups, kh, kw] -> [N, O, oh, ow]``."""
    stride, padding, dilation, groups = _geometry(**options)
    windows = patches(x, w.shape[2:], stride, padding, dilation)
    n, _, _, _, oh, ow = windows.shape
    columns = _columns(windows, groups)  # [groups, C/groups kh kw, N oh ow]
    rows = w.reshape(groups, w.shape[0] // groups, -1)
    product = rows[0] @ columns[0] if groups == 1 else rows @ columns
    return product.reshape(w.shape[0], n, oh, ow).transpose(0, 1)


def conv2d_input(grad: Tensor, w: Tensor, *, size: Pair, **options: Any) -> Tensor:
    """Gradient of a convolution for its input of `size` (H, W): also a transposed convolution."""
    *windows, groups = _geometry(**options)
    n, outputs, oh, ow = grad.shape
    channels, *kernel = w.shape[1:]
    rows = grad.transpose(0, 1).reshape(groups, outputs // groups, n * oh * ow)
    weights = w.reshape(groups, outputs // groups, -1).transpose(1, 2)
    columns = torch.matmul(weights, rows).reshape(groups * channels, *kernel, n, oh, ow)
    shape = (n, groups * channels, *size)
    images = columns.permute(3, 0, 1, 2, 4, 5)
    return moved_back(images, shape, lambda t: patches(t, kernel, *windows)[..., :oh, :ow])


def moved_back(moved: Tensor, shape: Sequence[int], move: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of moving elements: each element's sum over the places where `move` put it."""
    count = math.prod(shape)
    # Places are counted from 1: zeros that were put in came from place 0.
    places = torch.arange(1, count + 1, device=moved.device).reshape(tuple(shape))
    total = moved.new_zeros(count + 1)
    total.index_add_(0, move(places).flatten(), moved.flatten())
    return total[1:].reshape(tuple(shape))


def conv2d_weight(x: Tensor, grad: Tensor, *, kernel: Pair, **options: Any) -> Tensor:
    """Gradient of a convolution for its weight."""
    stride, padding, dilation, groups = _geometry(**options)
    n, outputs, oh, ow = grad.shape
    windows = patches(x, kernel, stride, padding, dilation)[..., :oh, :ow]
    columns = _columns(windows, groups)
    rows = grad.transpose(0, 1).reshape(groups, outputs // groups, n * oh * ow)
    product = torch.matmul(rows, columns.transpose(1, 2))
    return product.reshape(outputs, x.shape[1] // groups, *kernel)


def _columns(windows: Tensor, groups: int) -> Tensor:
    """``[N, C, kh, kw, oh, ow] -> [groups, C/groups kh kw, N oh ow]``."""
    n, channels, kh, kw, oh, ow = windows.shape
    by_channel = windows.permute(1, 2, 3, 0, 4, 5)
    return by_channel.reshape(groups, channels // groups * kh * kw, n * oh * ow)


BILINEAR: Mapping[str, Callable[..., Tensor]] = {
    "mul": lambda x, y: x * y,
    "matmul": matmul,
    "linear": lambda x, y: matmul(x, y.T),
    "conv2d": conv2d,
    "conv2d_input": conv2d_input,
    "conv2d_weight": conv2d_weight,
}
"""The products of shared tensors, by name."""


def bilinear(op: str, options: Sequence[tuple[str, Any]]) -> Callable[[Tensor, Tensor], Tensor]:
    """The map `op` with its options."""
    call = BILINEAR[op]
    return lambda x, y: call(x, y, **dict(options))


def product_shape(
    op: str, left: Sequence[int], right: Sequence[int], options: Sequence[tuple[str, Any]]
) -> tuple[int, ...]:
    """The shape of a product, from the shapes of its operands."""
    operands = (torch.empty(shape, dtype=torch.int64, device="meta") for shape in (left, right))
    return tuple(bilinear(op, options)(*operands).shape)
