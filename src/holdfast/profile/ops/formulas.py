"""What one call of each operator costs: the only table of FLOP formulas.

Two counts are kept apart, as machines execute them on different units:

- ``flops``: matrix products, convolutions and attention, 2 per multiply-add, exact integers.
- ``vector_flops``: all other arithmetic (bias, norms, softmax, activations), elementary operations per
  element as listed here; exp, erf, tanh, square root and division count as one each.

Both count operations on real numbers: a multiply-add of complex ones is 8 FLOP (four products and as many
sums), a product of complex elements 6, any other operation on them 2. PyTorch runs a complex convolution as
three real ones, which are counted as such: 6 FLOP.

Bytes are what an ideal kernel moves: every input element read once, every output element written once. A
view moves nothing; an expanded dimension (stride 0) is read once; a gather reads the rows that it returns,
and one that sums rows (`EmbeddingBag`) those that it sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator

from holdfast.profile.ops.targets import choice, table

# Every class of operator, in the order of tables and legends.
CLASSES = (
    "attention",
    "linear",
    "matmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "recurrent",
    "group_norm",
    "layer_norm",
    "batch_norm",
    "softmax",
    "activation",
    "elementwise",
    "reduction",
    "embedding",
    "memory",
    "other",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one call of an operator.

    Attributes:
        flops: 2 per real multiply-add of matrix products, convolutions and attention.
        vector_flops: All other arithmetic.
        bytes: Minimum of bytes read and written.
    """

    op_class: str
    flops: int = 0
    vector_flops: int = 0
    bytes: int = 0


# ``(*args, out=result, **kwargs) -> int``, with the operator's own arguments.
Formula = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator is counted.

    Attributes:
        op_class: One of `CLASSES`; conv stands for the convolution of its number of dimensions.
        bytes: None: every tensor once.
    """

    op_class: str
    flops: Formula | None = None
    vector_flops: Formula | None = None
    bytes: Formula | None = None


def numel(tensor: Any) -> int:
    """Number of elements; 0 for what is not a tensor."""
    return tensor.numel() if isinstance(tensor, Tensor) else 0


def nbytes(tensor: Tensor) -> int:
    """Bytes of the distinct elements: a dimension of stride 0 repeats one element."""
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(n for n, stride in sides if stride or not n) * tensor.element_size()


def pairs(queries: int, keys: int, causal: bool, window: int = 0) -> int:
    """Number of (query, key) pairs of an attention.

    Args:
        queries: their number.
        keys: their number.
        causal: query i sees the keys 0..i.
        window: not 0: the queries are the last positions, and each sees its own and `window` - 1 before it.
    """
    if window:
        first, last = (max(n, 0) for n in (keys - queries, keys))
        inside = [min(n, window) * (min(n, window) + 1) // 2 for n in (first, last)]
        beyond = [max(n - window, 0) * window for n in (first, last)]
        return inside[1] + beyond[1] - inside[0] - beyond[0]
    if not causal:
        return queries * keys
    full = max(0, queries - keys)  # queries after the last key see all keys
    part = queries - full
    return part * (part + 1) // 2 + full * keys


def attention_cost(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    mask: Any,
    out: Tensor,
    window: int = 0,
    share: float = 1.0,
) -> Cost:
    """Fused attention: scores and output products, softmax between them, no score matrix in memory.

    Args:
        q: [..., heads, queries, dim].
        k: [..., heads or groups, keys, dim].
        v: [..., heads or groups, keys, value dim].
        causal: whether query i sees only the keys 0..i.
        mask: a tensor that is read, or None.
        out: [..., heads, queries, value dim].
        window: see `pairs`.
        share: of the pairs that are computed, by the blocks of a mask.
    """
    scores = prod(out.shape[:-2]) * pairs(q.shape[-2], k.shape[-2], causal, window)
    scores = round(share * scores)
    return Cost(
        "attention",
        flops=2 * scores * (q.shape[-1] + v.shape[-1]),
        vector_flops=(SOFTMAX + 1) * scores,  # and the scale
        bytes=_written(out=(q, k, v, out, mask)),
    )


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]


def _product(a: Tensor, *_: Any, out: Any, **__: Any) -> int:
    return 2 * numel(_first(out)) * a.shape[-1]


def _grouped_product(a: Tensor, b: Tensor, *_: Any, out: Any, **__: Any) -> int:
    # Each row of a [rows, k] meets one expert of b [experts, k, n]. Of two matrices [m, k] and [k, n] the
    # groups share k among them.
    shared = len(_first(out)) if a.dim() == b.dim() == 2 else 1
    return 2 * numel(_first(out)) * a.shape[-1] // max(shared, 1)


def _touched(a: Tensor, b: Tensor, *_: Any, out: Any, **__: Any) -> int:
    # Of fewer rows than experts, no more experts are read than there are rows.
    experts = min(a.shape[0], b.shape[0]) if (a.dim(), b.dim()) == (2, 3) else b.shape[0]
    return nbytes(a) + nbytes(_first(out)) + nbytes(b) * experts // max(b.shape[0], 1)


def _convolution(x: Tensor, w: Tensor, *rest: Any, out: Any, **_: Any) -> int:
    # w: [out, in / groups, kernel...]; transposed: [in, out / groups, kernel...] for each input element
    transposed = len(rest) > 4 and rest[4] is True
    return 2 * numel(x if transposed else _first(out)) * prod(w.shape[1:])


def _convolution_backward(grad: Tensor, x: Tensor, w: Tensor, *rest: Any, **_: Any) -> int:
    # Gradients of the input and of the weight take as many as the forward pass each.
    mask, transposed = rest[-1], rest[4]
    return 2 * numel(x if transposed else grad) * prod(w.shape[1:]) * sum(map(bool, mask[:2]))


def _bias(x: Tensor, w: Tensor, bias: Any = None, *_: Any, out: Any, **__: Any) -> int:
    return numel(_first(out)) if isinstance(bias, Tensor) else 0


def _recurrent(x: Tensor, *rest: Any, **_: Any) -> int:
    # Per step and sequence of the batch: gates [4 H] from the input and from the state. The two matrices
    # come first, or a list of those of all layers with their biases.
    return (
        2 * prod(x.shape[:-1]) * sum(numel(each) for each in tensors(rest[:2]) if each.dim() == 2)
    )


def _fft(x: Tensor, dims: Sequence[int], *_: Any, out: Any, **__: Any) -> int:
    # 5 n log2 n for a complex transform of n points, the usual convention; half for real input
    points = prod(x.shape[dim] for dim in dims)
    return round(5 * numel(_first(out)) * log2(max(points, 2)))


def _per_output(count: int) -> Formula:
    return lambda *_, out, **__: count * numel(_first(out))


def _per_input(count: int) -> Formula:
    return lambda x, *_, **__: count * numel(x)


def _gelu(x: Tensor, *_: Any, approximate: str = "none", **__: Any) -> int:
    return (5 if approximate == "none" else 9) * numel(x)


def _packed(x: Tensor, *_: Any, out: Any, **__: Any) -> int:
    # The weight [out, in] of 1 byte each is in a separate object.
    return nbytes(x) + nbytes(_first(out)) + _first(out).shape[-1] * x.shape[-1]


def _written(*_: Any, out: Any, **__: Any) -> int:
    return sum(map(nbytes, tensors(out)))


def _normalized(*args: Any, out: Any, **named: Any) -> int:
    # The statistics of the batch are a result in training alone; without data they seem to be one always.
    return traffic(args, named, out if any(each is True for each in args) else _first(out))


def _gathered(_: Tensor, *indices: Any, out: Any, **named: Any) -> int:
    # The rows that are returned are read and written; the indices are read.
    return nbytes(_first(out)) + traffic(indices, named, _first(out))


def _bagged(weight: Tensor, indices: Tensor, *rest: Any, out: Any, **named: Any) -> int:
    # Each row that is summed is read; of the results the sums alone are written.
    return numel(indices) * nbytes(weight[:1]) + traffic((indices, *rest), named, _first(out))


def _scattered(target: Tensor, *rest: Any, **__: Any) -> int:
    # Only the elements that are replaced are touched in place: values read and written, indices read.
    return sum(nbytes(each) * (1 + (each.dtype == target.dtype)) for each in tensors(rest))


# Maximum, subtraction, exponential, sum, division.
SOFTMAX = 5

_NAMED: dict[str, Formula | None] = {
    "": None,
    "product": _product,
    "added_product": lambda bias, *args, **named: _product(*args, **named),
    "summed_product": lambda bias, a, b, *_, **__: 2 * numel(a) * b.shape[-1],
    "grouped_product": _grouped_product,
    "touched": _touched,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "bias": _bias,
    "recurrent": _recurrent,
    "gelu": _gelu,
    "pool": lambda x, kernel, *_, out, **__: numel(_first(out)) * prod(kernel),
    "fft": _fft,
    "real_fft": lambda *args, **named: _fft(*args, **named) // 2,
    "written": _written,
    "copied": lambda target, *source, **named: traffic(source, named, target),
    "gathered": _gathered,
    "normalized": _normalized,
    "bagged": _bagged,
    "bagged_sums": lambda weight, indices, *_, **__: numel(indices) * weight.shape[1],
    "scattered": _scattered,
    "packed": _packed,
    "nothing": lambda *_, **__: 0,
}


def _formula(text: str) -> Formula | None:
    """``"4 out"``: 4 per element of the result; ``"2 in"``: 2 per element of the first input; or a name."""
    count, _, side = text.partition(" ")
    if not side:
        return _NAMED[text]
    return _per_output(int(count)) if side == "out" else _per_input(int(count))


# Operator -> how it is counted; `operators.json` has rows of class, names, flops, vector_flops, bytes.
RULES: dict[str, Rule] = {
    name if "." in name else f"aten.{name}": Rule(op_class, *map(_formula, formulas))
    for op_class, names, *formulas in table("operators.json")
    for name in names.split()
}
# It has no namespace.
RULES["flex_attention"] = Rule("attention")

# Namespaces of operators that ask for properties or mark a range: they compute nothing.
BOOKKEEPING = ("prim", "profiler")

_registered: dict[str, Rule] = {}


def register_flop_formula(
    op: str,
    flops: Formula,
    *,
    op_class: str = "other",
    vector_flops: Formula | None = None,
    bytes: Formula | None = None,
) -> None:
    """Count an operator that the table does not have, such as a custom kernel.

    Args:
        op: ``"namespace.name"`` as in `torch.ops` (or ``"namespace::name"``).
        flops: ``(*args, out=result, **kwargs) -> int`` with the operator's arguments: 2 per multiply-add.
        op_class: one of `CLASSES`.
        vector_flops: all other arithmetic; default none.
        bytes: bytes read and written; default every tensor once.

    Raises:
        InputError: ``unknown-name`` for a class that does not exist.
    """
    choice(op_class, CLASSES, "operator class", "op_class")
    _registered[op.replace("::", ".")] = Rule(op_class, flops, vector_flops, bytes)


def name_of(func: Any) -> str:
    """``"aten.mm"`` of the operator ``aten.mm.default``."""
    return str(getattr(func, "_overloadpacket", func))


def tensors(value: Any) -> list[Tensor]:
    """All tensors in arguments or results, those of nested lists and mappings too."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors(each)]
    return []


def is_attention(name: str) -> bool:
    """Whether an operator is a fused attention."""
    return name in RULES and RULES[name].op_class == "attention"


def known(func: Any) -> bool:
    """Whether an operator has a rule; views and pointwise operators have one by their kind."""
    # Those of higher order are not made of operators that could be counted.
    return isinstance(func, HigherOrderOperator) or _rule(func) is not None


def _rule(func: Any) -> Rule | None:
    """The rule of an operator; that of a fused attention has no formula."""
    name = name_of(func)
    rule = _registered.get(name) or RULES.get(name)
    if rule or isinstance(func, HigherOrderOperator):
        return rule
    if func.is_view:
        return _VIEW
    if torch.Tag.pointwise in func.tags:
        return RULES.get(name.removesuffix("_")) or _POINTWISE
    return None


def attention_arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor, Tensor, bool, Any]:
    """Queries, keys, values, whether causal, and the mask of a call of a fused attention operator."""
    if isinstance(func, HigherOrderOperator):
        return (*args[:3], False, None)
    names = [each.name for each in func._schema.arguments]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    q, k, v = (bound.get(key) for key in ("query", "key", "value"))
    return q, k, v, bool(bound.get("is_causal")), bound.get("attn_mask", bound.get("attn_bias"))  # type: ignore[return-value]


def cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Cost | None:
    """What a call costs; None for an operator without a rule.

    Args:
        func: the operator, a `torch._ops.OpOverload`.
        args: its arguments.
        kwargs: its keyword arguments.
        out: its result.
    """
    name = name_of(func)
    kwargs = {key: value for key, value in kwargs.items() if key != "out"}  # it is the result
    rule = _rule(func)
    if rule is None:
        return None
    if is_attention(name) and not rule.flops:
        share = _block_share(args) if name == "flex_attention" else 1.0
        return attention_cost(*attention_arguments(func, args, kwargs), _first(out), share=share)
    op_class = rule.op_class if rule.op_class != "conv" else f"conv{args[1].dim() - 2}d"
    product, other = 1, 1
    # Formulas of Fourier transforms, and of callers, count real operations already.
    if any(map(torch.is_complex, tensors(args))) and not (
        op_class == "other" or name in _registered
    ):
        product, other = 4, 6 if name.startswith("aten.mul") else 2
    return Cost(
        op_class,
        product * rule.flops(*args, out=out, **kwargs) if rule.flops else 0,
        other * _arithmetic(rule, args, kwargs, out),
        rule.bytes(*args, out=out, **kwargs) if rule.bytes else traffic(args, kwargs, out),
    )


def _block_share(args: Sequence[Any]) -> float:
    """Share of the pairs in the blocks that a mask of flex_attention keeps; 1 where it has no data."""
    q, k, _, _, mask = args[:5]
    partial, full, (rows, columns) = mask[2], mask[4], mask[-3:-1]
    if type(partial) is not Tensor or partial.is_meta:
        return 1.0
    blocks = int(partial.sum()) + (int(full.sum()) if full is not None else 0)
    return min(
        1.0, blocks * rows * columns / (prod(partial.shape[:-1]) * q.shape[-2] * k.shape[-2])
    )


_POINTWISE = Rule("elementwise", None, _per_output(1))
_VIEW = Rule("memory", bytes=_NAMED["nothing"])


def _arithmetic(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Vector operations; integers and truth values are not floating-point arithmetic."""
    if rule.vector_flops is None:
        return 0
    floating = any(each.is_floating_point() or each.is_complex() for each in tensors(args))
    return rule.vector_flops(*args, out=out, **kwargs) if floating else 0


def traffic(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Bytes of all inputs, each tensor once however often it is passed, and of all results."""
    given = {id(each): each for each in tensors([*args, *kwargs.values()])}
    return _written(out=[*given.values(), *tensors(out)])
