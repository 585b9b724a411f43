"""ATen operations of exported models, and what computes each of them on shared tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.private.mpc import functions
from holdfast.private.mpc.tensor import OPERATORS, SharedTensor

aten = torch.ops.aten


Problem = Callable[[Mapping[str, Any]], str | None]
"""The arguments of an ATen operation, by name -> why they are not supported, or None."""


@dataclass(frozen=True)
class Operation:
    """One ATen operation.

    Args:
        name: as costs and messages call it.
        call: computes it from the arguments of the ATen operation.
        refuses: what is not supported of it.
        moves: whether it only moves elements: not worth a row among the costs.
    """

    name: str
    call: Callable[..., Any]
    refuses: Problem | None = None
    moves: bool = False


# --- Layers --------------------------------------------------------------------------------------


def _batch_norm(x: Any, scale: Any, shift: Any) -> Any:
    """Scale and shift per channel: what the import has made of the stored statistics."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


def _only(**allowed: Any) -> Problem:
    """Refuse other values of arguments than these."""

    def problem(given: Mapping[str, Any]) -> str | None:
        return next((n for n, value in allowed.items() if given.get(n, value) != value), None)

    return problem


def _adaptive_average(x: SharedTensor, size: Sequence[int]) -> SharedTensor:
    shape = zip(x.shape[-2:], size, strict=True)
    return functions.avg_pool2d(x, [full // part for full, part in shape])


def _adaptive_problem(given: Mapping[str, Any]) -> str | None:
    shape, out = given["self"].meta["val"].shape, given["output_size"]
    even = all(full % part == 0 for full, part in zip(shape[-2:], out, strict=False))
    return None if even else "windows of different sizes"


def _embedding(weight: Any, index: Any, *_: Any) -> Any:
    if isinstance(index, SharedTensor):
        return functions.embedding(index, weight)
    return weight[index]


# --- Elementwise ---------------------------------------------------------------------------------


def _power_problem(given: Mapping[str, Any]) -> str | None:
    return None if given["exponent"] in range(1, 9) else f"exponent {given['exponent']}"


def _kind_problem(given: Mapping[str, Any]) -> str | None:
    kind = given.get("dtype")
    return None if kind is None or kind.is_floating_point else f"conversion to {kind}"


def _index_problem(given: Mapping[str, Any]) -> str | None:
    """Elements can be picked by public places alone; the import marks the nodes that are not public."""
    places = given.get("indices") or [given.get("index")]
    secret = any(getattr(node, "meta", {}).get("holdfast_input") for node in places)
    return "by secret places" if secret else None


# --- The table -----------------------------------------------------------------------------------


_USUAL = ("default", "Tensor", "Scalar", "int", "self", "dim", "dims", "dim_IntList", "padding")


def _forms(
    name: str,
    call: Callable[..., Any] | None = None,
    refuses: Problem | None = None,
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
    " relu6 hardsigmoid hardswish maximum minimum amax amin max min argmax mul div neg"
    " gt ge lt le eq ne"
)
_PRODUCTS = ("matmul", "mm", "bmm")
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
    *(_forms(name, functions.clamp, known_as="clamp", forms=("default",))
      for name in ("clamp", "clamp_min")),
    _forms("max_pool2d", None, _only(ceil_mode=False)),
    _forms("avg_pool2d", _first(4, functions.avg_pool2d),
           _only(ceil_mode=False, count_include_pad=True, divisor_override=None)),
    _forms("adaptive_avg_pool2d", _adaptive_average, _adaptive_problem, known_as="avg_pool2d"),
    _forms("rms_norm", lambda x, shape, weight=None, eps=None: functions.rms_norm(
        x, shape, weight, eps or 2.0**-23
    )),
    _forms("layer_norm", _first(5, functions.layer_norm)),
    _forms(
        "scaled_dot_product_attention", functions.attention, _only(enable_gqa=False),
        known_as="attention",
    ),
    _forms("embedding", _embedding),
    _forms("gelu", lambda x, approximate="none": functions.gelu(x)),  # that by tanh is within 5e-4
    _forms("softmax", _first(2, functions.softmax)),
    _forms("log_softmax", _first(2, functions.log_softmax)),
    _forms("reciprocal", lambda x: 1 / x),
    _forms("addmm", lambda bias, x, y: x @ y + bias, _only(alpha=1, beta=1)),
    _forms("add", None, _only(alpha=1)),
    _forms("sub", None, _only(alpha=1)),
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
