"""ATen operations of exported models, and what computes each of them on shared tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.private.mpc import functions
from holdfast.private.mpc.tensor import OPERATORS, SharedTensor

aten = torch.ops.aten


@dataclass(frozen=True)
class Operation:
    """One ATen operation.

    Args:
        name: as costs and messages call it.
        call: computes it from the arguments of the ATen operation.
        refuses: the arguments -> why they are not supported, or None.
        moves: whether it only moves elements: not worth a row among the costs.
    """

    name: str
    call: Callable[..., Any]
    refuses: Callable[..., str | None] | None = None
    moves: bool = False


# --- Layers --------------------------------------------------------------------------------------


def _batch_norm(x: Any, scale: Any, shift: Any) -> Any:
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


def _adaptive_problem(x: Any, size: Any, *_: Any) -> str | None:
    shape, out = x.meta["val"].shape, _list(size)
    even = all(full % part == 0 for full, part in zip(shape[-2:], out, strict=False))
    return None if even else "windows of different sizes"


def _attention_problem(*args: Any, **kwargs: Any) -> str | None:
    return "enable_gqa" if kwargs.get("enable_gqa") else None


def _embedding(weight: Any, index: Any, *_: Any) -> Any:
    if isinstance(index, SharedTensor):
        return functions.embedding(index, weight)
    return weight[index]


# --- Elementwise ---------------------------------------------------------------------------------


def _scaled(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """An addition or subtraction of multiples."""
    return lambda x, y, *, alpha=1: operation(x, y if alpha == 1 else y * alpha)


def _power_problem(x: Any, power: Any) -> str | None:
    return None if power in range(1, 9) else f"exponent {power}"


def _kind_problem(x: Any, *_: Any, dtype: Any = None, **__: Any) -> str | None:
    return None if dtype is None or dtype.is_floating_point else f"conversion to {dtype}"


def _index_problem(x: Any, *places: Any, **_: Any) -> str | None:
    """Elements can be picked by public places alone; `holdfast_input` marks what is not public."""
    nodes = [node for each in places for node in (each if isinstance(each, list) else [each])]
    secret = any(getattr(node, "meta", {}).get("holdfast_input") for node in nodes)
    return "by secret places" if secret else None


def _list(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


# --- The table -----------------------------------------------------------------------------------


_USUAL = ("default", "Tensor", "Scalar", "int", "self", "dim", "dims", "dim_IntList", "padding")


def _forms(
    name: str,
    call: Callable[..., Any] | None = None,
    refuses: Callable[..., str | None] | None = None,
    *,
    known_as: str = "",
    moves: bool = False,
    forms: Sequence[str] = _USUAL,
) -> dict[Any, Operation]:
    """The forms of an ATen operation: for tensors, for numbers, with dimensions.

    Without a call it is computed by what has its name among the functions, or among the tensor's methods.
    """
    packet = getattr(aten, name)
    targets = [getattr(packet, form) for form in forms if form in packet.overloads()]
    computes = call or OPERATORS.get(name) or getattr(functions, name, None)
    computes = computes or getattr(SharedTensor, name)
    return dict.fromkeys(targets, Operation(known_as or name, computes, refuses, moves))


def _first(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the first arguments: the others say nothing here, such as types of numbers."""
    return lambda *args, dtype=None, **kwargs: function(*args[:count], **kwargs)


def _moving(move: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: x.moved(move, *args, **kwargs)


def _identity(x: Any, *_: Any, **__: Any) -> Any:
    return x


_PLAIN = (
    "linear conv1d conv2d relu silu sigmoid tanh erf exp log sqrt rsqrt abs sign leaky_relu hardtanh"
    " relu6 hardsigmoid hardswish clamp maximum minimum amax amin max min argmax mul div neg"
    " gt ge lt le eq ne"
)
_PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot")
_MOVES = "permute unsqueeze squeeze expand slice select split_with_sizes flip repeat roll unfold diagonal"
_PICKS = ("index", "gather", "index_select")

_TABLES: tuple[dict[Any, Operation], ...] = (
    *(_forms(name) for name in _PLAIN.split()),
    *(_forms(name, operator.matmul, known_as="matmul") for name in _PRODUCTS),
    *(_forms(name, _moving(getattr(aten, name)), moves=True) for name in _MOVES.split()),
    *(_forms(name, _moving(getattr(aten, name)), _index_problem, moves=True) for name in _PICKS),
    *(_forms(name, _identity, _kind_problem, known_as="copy", moves=True)
      for name in ("clone", "alias", "dropout", "_to_copy")),
    _forms("view", _moving(Tensor.reshape), moves=True),  # shares need not lie as values do
    _forms("cat", moves=True),
    _forms("constant_pad_nd", SharedTensor.pad, known_as="pad", moves=True),
    _forms("_native_batch_norm_legit_no_training", _batch_norm, known_as="batch_norm"),
    _forms("clamp_min", functions.clamp, known_as="clamp"),
    _forms("max_pool2d", None, _pool_problem),
    _forms("avg_pool2d", _first(4, functions.avg_pool2d), _average_problem),
    _forms("adaptive_avg_pool2d", None, _adaptive_problem, known_as="avg_pool2d"),
    _forms("rms_norm", lambda x, shape, weight=None, eps=None: functions.rms_norm(
        x, shape, weight, eps or 2.0**-23
    )),
    _forms("layer_norm", _first(5, functions.layer_norm)),
    _forms(
        "scaled_dot_product_attention", functions.attention, _attention_problem,
        known_as="attention",
    ),
    _forms("embedding", _embedding),
    _forms("gelu", lambda x, approximate="none": functions.gelu(x)),  # that by tanh is within 5e-4
    _forms("softmax", _first(2, functions.softmax)),
    _forms("log_softmax", _first(2, functions.log_softmax)),
    _forms("reciprocal", lambda x: 1 / x),
    _forms("addmm", lambda bias, x, weight: x @ weight + bias, known_as="linear"),
    _forms("add", _scaled(operator.add)),
    _forms("sub", _scaled(operator.sub)),
    _forms("pow", lambda x, power: x ** int(power), _power_problem, forms=("Tensor_Scalar",)),
    _forms("where", forms=("self",)),
    _forms("mean", _first(3, SharedTensor.mean)),
    _forms("sum", _first(3, SharedTensor.sum)),
)  # fmt: skip
OPERATIONS: dict[Any, Operation] = {
    target: operation for table in _TABLES for target, operation in table.items()
}
"""ATen operation -> what computes it."""

NO_GRADIENT = {"argmax", "batch_norm"}
"""Operations that a model can use but not be trained through."""
