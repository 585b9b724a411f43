"""ATen operations of exported models, and what computes each of them on shared tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.private.mpc import functions
from holdfast.private.mpc.tensor import SharedTensor

aten = torch.ops.aten


@dataclass(frozen=True)
class Operation:
    """One ATen operation.

    Args:
        name: as costs and messages call it.
        call: computes it from the arguments of the ATen operation.
        refuses: the arguments -> why they are not supported, or None.
    """

    name: str
    call: Callable[..., Any]
    refuses: Callable[..., str | None] | None = None


# --- Layers --------------------------------------------------------------------------------------


def _conv1d(
    x: SharedTensor,
    weight: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Any = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> SharedTensor:
    wide = functions.conv2d(
        x.unsqueeze(2),
        with_height(weight),
        bias,
        (1, stride[-1]),
        (0, padding[-1]),
        (1, dilation[-1]),
        groups,
    )
    return wide.squeeze(2)


def with_height(weight: Any) -> Any:
    """A kernel of one dimension as one of two; that of a fixed weight is made once."""
    if getattr(weight, "fixed", None) is None:
        return weight.unsqueeze(2)
    if not hasattr(weight, "fixed_height"):
        weight.fixed_height = weight.unsqueeze(2).fix()
        weight.fixed_height.row_sum = weight.row_sum
    return weight.fixed_height


def _batch_norm(x: SharedTensor, scale: Any, shift: Any) -> Any:
    """Scale and shift per channel: what the import has made of the stored statistics."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


def _pool_problem(*args: Any, **_: Any) -> str | None:
    names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
    given = dict(zip(names, args[1:], strict=False))
    return "ceil_mode" if given.get("ceil_mode") else None


def _average_problem(*args: Any, **_: Any) -> str | None:
    if len(args) > 4 and args[4]:
        return "ceil_mode"
    padded = len(args) > 3 and any(_list(args[3]))
    if padded and len(args) > 5 and not args[5]:
        return "count_include_pad=False"
    return "divisor_override" if len(args) > 6 and args[6] is not None else None


def _adaptive_average(x: SharedTensor, size: Any) -> SharedTensor:
    out = _list(size)
    kernel = [x.shape[-2] // out[0], x.shape[-1] // out[-1]]
    return functions.avg_pool2d(x, kernel, kernel)


def _adaptive_problem(x: Any, size: Any, *_: Any) -> str | None:
    shape, out = x.meta["val"].shape, _list(size)
    even = all(full % part == 0 for full, part in zip(shape[-2:], out, strict=False))
    return None if even else "windows of different sizes"


def _layer_norm(
    x: SharedTensor, shape: Any, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, _cudnn: bool = False,
) -> SharedTensor:  # fmt: skip
    return functions.layer_norm(x, shape, weight, bias, eps)


def _rms_norm(
    x: SharedTensor, shape: Any, weight: Any = None, eps: float | None = None
) -> SharedTensor:
    return functions.rms_norm(
        x, shape, weight, torch.finfo(torch.float32).eps if eps is None else eps
    )


def _attention(
    query: SharedTensor,
    key: SharedTensor,
    value: SharedTensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> SharedTensor:
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return functions.attention(query, key, value, mask, scale)


def _attention_problem(*args: Any, **kwargs: Any) -> str | None:
    return "enable_gqa" if kwargs.get("enable_gqa") else None


def _embedding(weight: Any, index: Any, *_: Any) -> Any:
    if isinstance(index, SharedTensor):
        return functions.embedding(index, weight)
    return weight[index]


# --- Elementwise and shapes ----------------------------------------------------------------------


def _add(x: Any, y: Any, *, alpha: float = 1) -> Any:
    return x + (y if alpha == 1 else y * alpha)


def _subtract(x: Any, y: Any, *, alpha: float = 1) -> Any:
    return x - (y if alpha == 1 else y * alpha)


def _where(condition: Any, x: Any, y: Any) -> Any:
    """A choice by a public or a secret condition; minus infinity stays below everything else."""
    if isinstance(condition, SharedTensor):
        return functions.where(condition, x, y)
    if not isinstance(x, SharedTensor) and not isinstance(y, SharedTensor):
        return torch.where(condition, torch.as_tensor(x), torch.as_tensor(y))
    if isinstance(x, SharedTensor) and isinstance(y, SharedTensor):
        return _chosen(x, condition) + _chosen(y, ~condition)
    secret, public, taken = (x, y, condition) if isinstance(x, SharedTensor) else (y, x, ~condition)
    public = torch.as_tensor(public, dtype=torch.float64)
    masks = torch.isneginf(public)
    numbers = torch.where(taken | masks, 0.0, public)
    chosen = _chosen(secret, taken) + numbers
    if not bool(masks.any()):
        return chosen
    return chosen + torch.where(taken, 0.0, torch.where(masks, -math.inf, 0.0))


def _chosen(x: SharedTensor, taken: Tensor) -> SharedTensor:
    return x * taken.to(torch.int64)


def _leaky_relu(x: SharedTensor, slope: float = 0.01) -> SharedTensor:
    return x * slope + x.relu() * (1 - slope)


def _hard_sigmoid(x: SharedTensor) -> SharedTensor:
    return functions.clamp(x + 3.0, 0.0, 6.0) * (1 / 6)


def _power_problem(x: Any, power: Any) -> str | None:
    return None if power in range(1, 9) else f"exponent {power}"


def _gelu(x: SharedTensor, approximate: str = "none") -> SharedTensor:
    return functions.gelu(x)  # the approximation by tanh is within 5e-4 of it


def _softmax(x: SharedTensor, dim: int, *_: Any) -> SharedTensor:
    return functions.softmax(x, dim)


def _log_softmax(x: SharedTensor, dim: int, *_: Any) -> SharedTensor:
    return functions.log_softmax(x, dim)


def _slice(
    x: SharedTensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> SharedTensor:  # fmt: skip
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _select(x: SharedTensor, dim: int, index: int) -> SharedTensor:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _split(x: SharedTensor, sizes: Any, dim: int = 0) -> tuple[SharedTensor, ...]:
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(
        _slice(x, dim, start, start + size) for start, size in zip(starts, sizes, strict=True)
    )


def _squeeze(x: SharedTensor, dims: Any) -> SharedTensor:
    for dim in sorted((each % x.ndim for each in _list(dims)), reverse=True):
        if x.shape[dim] == 1:
            x = x.squeeze(dim)
    return x


def _expand(x: SharedTensor, shape: Sequence[int], **_: Any) -> SharedTensor:
    return x.expand(*shape)


def _mean(x: SharedTensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return x.mean(dim or None, keepdim)


def _sum(x: SharedTensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return x.sum(dim or None, keepdim)


def _identity(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _kind_problem(x: Any, *_: Any, dtype: Any = None, **__: Any) -> str | None:
    return None if dtype is None or dtype.is_floating_point else f"conversion to {dtype}"


def _list(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


# --- The table -----------------------------------------------------------------------------------

_COPY = Operation("copy", _identity, _kind_problem)
_MEAN, _SUM = Operation("mean", _mean), Operation("sum", _sum)
_CLAMP = Operation("clamp", functions.clamp)
_MUL, _DIV = Operation("mul", operator.mul), Operation("div", operator.truediv)
_ADD, _SUB = Operation("add", _add), Operation("sub", _subtract)
_MATMUL = Operation("matmul", operator.matmul)

OPERATIONS: dict[Any, Operation] = {
    aten.linear.default: Operation("linear", functions.linear),
    aten.conv1d.default: Operation("conv1d", _conv1d),
    aten.conv2d.default: Operation("conv2d", functions.conv2d),
    aten._native_batch_norm_legit_no_training.default: Operation("batch_norm", _batch_norm),
    aten.max_pool2d.default: Operation("max_pool2d", functions.max_pool2d, _pool_problem),
    aten.avg_pool2d.default: Operation(
        "avg_pool2d",
        lambda x, kernel, stride=None, padding=0, *_: functions.avg_pool2d(
            x, kernel, stride, padding
        ),
        _average_problem,
    ),
    aten.adaptive_avg_pool2d.default: Operation("avg_pool2d", _adaptive_average, _adaptive_problem),
    aten.layer_norm.default: Operation("layer_norm", _layer_norm),
    aten.rms_norm.default: Operation("rms_norm", _rms_norm),
    aten.scaled_dot_product_attention.default: Operation(
        "attention", _attention, _attention_problem
    ),
    aten.embedding.default: Operation("embedding", _embedding),
    aten.relu.default: Operation("relu", SharedTensor.relu),
    aten.gelu.default: Operation("gelu", _gelu),
    aten.silu.default: Operation("silu", functions.silu),
    aten.sigmoid.default: Operation("sigmoid", functions.sigmoid),
    aten.tanh.default: Operation("tanh", functions.tanh),
    aten.erf.default: Operation("erf", functions.erf),
    aten.exp.default: Operation("exp", functions.exp),
    aten.log.default: Operation("log", functions.log),
    aten.sqrt.default: Operation("sqrt", functions.sqrt),
    aten.rsqrt.default: Operation("rsqrt", functions.rsqrt),
    aten.reciprocal.default: Operation(
        "reciprocal", lambda x: functions.reciprocal(x, signed=True)
    ),
    aten.leaky_relu.default: Operation("leaky_relu", _leaky_relu),
    aten.hardtanh.default: Operation(
        "hardtanh", lambda x, low=-1.0, high=1.0: functions.clamp(x, low, high)
    ),
    aten.relu6.default: Operation("relu6", lambda x: functions.clamp(x, 0.0, 6.0)),
    aten.hardsigmoid.default: Operation("hardsigmoid", _hard_sigmoid),
    aten.hardswish.default: Operation("hardswish", lambda x: x * _hard_sigmoid(x)),
    aten.clamp.default: _CLAMP,
    aten.clamp_min.default: _CLAMP,
    aten.softmax.int: Operation("softmax", _softmax),
    aten.log_softmax.int: Operation("log_softmax", _log_softmax),
    aten.matmul.default: _MATMUL,
    aten.mm.default: _MATMUL,
    aten.bmm.default: _MATMUL,
    aten.addmm.default: Operation("linear", lambda bias, x, weight: x @ weight + bias),
    aten.add.Tensor: _ADD,
    aten.add.Scalar: _ADD,
    aten.sub.Tensor: _SUB,
    aten.sub.Scalar: _SUB,
    aten.mul.Tensor: _MUL,
    aten.mul.Scalar: _MUL,
    aten.div.Tensor: _DIV,
    aten.div.Scalar: _DIV,
    aten.gt.Scalar: Operation("gt", operator.gt),
    aten.ge.Scalar: Operation("ge", operator.ge),
    aten.lt.Scalar: Operation("lt", operator.lt),
    aten.le.Scalar: Operation("le", operator.le),
    aten.abs.default: Operation("abs", lambda x: x.relu() * 2 - x),
    aten.neg.default: Operation("neg", operator.neg),
    aten.pow.Tensor_Scalar: Operation("pow", lambda x, power: x ** int(power), _power_problem),
    aten.where.self: Operation("where", _where),
    aten.mean.default: _MEAN,
    aten.mean.dim: _MEAN,
    aten.sum.default: _SUM,
    aten.sum.dim_IntList: _SUM,
    aten.amax.default: Operation(
        "max",
        lambda x, dims, keepdim=False: x.max(dims[0], keepdim),
        lambda x, dims=(), *_: None if len(dims) == 1 else "over several dimensions",
    ),
    aten.argmax.default: Operation(
        "argmax",
        SharedTensor.argmax,
        lambda x, dim=None, *_: "over all dimensions" if dim is None else None,
    ),
    aten.view.default: Operation("reshape", SharedTensor.reshape),
    aten.permute.default: Operation("permute", SharedTensor.permute),
    aten.unsqueeze.default: Operation("reshape", SharedTensor.unsqueeze),
    aten.squeeze.dims: Operation("reshape", _squeeze),
    aten.expand.default: Operation("expand", _expand),
    aten.slice.Tensor: Operation("slice", _slice),
    aten.select.int: Operation("slice", _select),
    aten.split_with_sizes.default: Operation("split", _split),
    aten.cat.default: Operation("cat", functions.cat),
    aten.constant_pad_nd.default: Operation("pad", SharedTensor.pad),
    aten.clone.default: _COPY,
    aten.alias.default: _COPY,
    aten.dropout.default: Operation("copy", _identity),
    aten._to_copy.default: _COPY,
}
"""ATen operation -> what computes it."""

SHAPES = {"reshape", "permute", "expand", "slice", "split", "cat", "copy", "pad"}
"""Operations that only move elements: not worth a row among the costs."""

NO_GRADIENT = {"argmax", "batch_norm", "max", "max_pool2d", "sqrt"}
"""Operations that a model can use but not be trained through."""
