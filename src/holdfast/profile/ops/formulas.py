"""What one call of each operator costs: the only table of FLOP formulas.

Two counts are kept apart, as machines execute them on different units:

- ``flops``: matrix products, convolutions and attention, 2 per multiply-add, exact integers.
- ``vector_flops``: all other arithmetic (bias, norms, softmax, activations), elementary operations per
  element as listed here; exp, erf, tanh, square root and division count as one each.

Bytes are what an ideal kernel moves: every input element read once, every output element written once. A view
moves nothing; an expanded dimension (stride 0) is read once; a gather reads the rows that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import torch
from torch import Tensor

from holdfast.profile.targets import choice

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
"""Every class of operator, in the order of tables and legends."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one call of an operator."""

    op_class: str
    flops: int = 0
    """2 per multiply-add of matrix products, convolutions and attention."""
    vector_flops: int = 0
    """All other arithmetic."""
    bytes: int = 0
    """Minimum of bytes read and written."""


Formula = Callable[..., int]
"""``(*args, out=result, **kwargs) -> int``, with the operator's own arguments."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator is counted."""

    op_class: str | Callable[..., str]
    flops: Formula | None = None
    vector_flops: Formula | None = None
    bytes: Formula | None = None
    """None: every tensor once."""


def numel(tensor: Any) -> int:
    """Number of elements; 0 for what is not a tensor."""
    return tensor.numel() if isinstance(tensor, Tensor) else 0


def nbytes(tensor: Tensor) -> int:
    """Bytes of the distinct elements: a dimension of stride 0 repeats one element."""
    if tensor.layout is not torch.strided:
        parts = [tensor.values()] if tensor.layout is not torch.sparse_coo else [tensor._values()]
        return sum(nbytes(part) for part in parts)
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(n for n, stride in sides if stride or not n) * tensor.element_size()


def pairs(queries: int, keys: int, causal: bool) -> int:
    """Number of (query, key) pairs of an attention; causal: query i sees the keys 0..i."""
    if not causal:
        return queries * keys
    full = max(0, queries - keys)  # queries after the last key see all keys
    part = queries - full
    return part * (part + 1) // 2 + full * keys


def attention_cost(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Any, out: Tensor) -> Cost:
    """Fused attention: scores and output products, softmax between them, no score matrix in memory.

    Args:
        q: [..., heads, queries, dim].
        k: [..., heads or groups, keys, dim].
        v: [..., heads or groups, keys, value dim].
        causal: whether query i sees only the keys 0..i.
        mask: a tensor that is read, or None.
        out: [..., heads, queries, value dim].
    """
    scores = prod(q.shape[:-2]) * pairs(q.shape[-2], k.shape[-2], causal)
    moved = sum(nbytes(each) for each in (q, k, v, out))
    return Cost(
        "attention",
        flops=2 * scores * (q.shape[-1] + v.shape[-1]),
        vector_flops=(SOFTMAX + 1) * scores,  # and the scale
        bytes=moved + (nbytes(mask) if isinstance(mask, Tensor) else 0),
    )


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]


def _product(a: Tensor, b: Tensor, *_: Any, out: Any, **__: Any) -> int:
    return 2 * numel(_first(out)) * a.shape[-1]


def _dot(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    return 2 * numel(a)


def _added_product(bias: Any, a: Tensor, b: Tensor, *_: Any, out: Any, **__: Any) -> int:
    return 2 * numel(_first(out)) * a.shape[-1]


def _quantized_product(a: Tensor, *_: Any, out: Any, **__: Any) -> int:
    return 2 * numel(_first(out)) * a.shape[-1]


def _convolution(x: Tensor, w: Tensor, *rest: Any, out: Any, **_: Any) -> int:
    # w: [out, in / groups, kernel...]; transposed: [in, out / groups, kernel...] for each input element
    transposed = len(rest) > 4 and rest[4] is True
    return 2 * numel(x if transposed else _first(out)) * prod(w.shape[1:])


def _convolution_class(x: Tensor, w: Tensor, *_: Any, **__: Any) -> str:
    return f"conv{w.dim() - 2}d"


def _bias(x: Tensor, w: Tensor, bias: Any = None, *_: Any, out: Any, **__: Any) -> int:
    return numel(_first(out)) if isinstance(bias, Tensor) else 0


def _lstm_layer(x: Tensor, w_ih: Tensor, w_hh: Tensor, *_: Any, **__: Any) -> int:
    # Per step and sequence of the batch: gates [4 H] from the input and from the state.
    return 2 * prod(x.shape[:-1]) * (numel(w_ih) + numel(w_hh))


def _cudnn_rnn(x: Tensor, weight: Sequence[Tensor], *_: Any, **__: Any) -> int:
    return 2 * prod(x.shape[:-1]) * sum(numel(each) for each in weight if each.dim() == 2)


def _distances(a: Tensor, b: Tensor, *_: Any, out: Any, **__: Any) -> int:
    return 2 * numel(_first(out)) * a.shape[-1]


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


def _pool(x: Tensor, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> int:
    return numel(_first(out)) * prod(kernel)


def _nothing(*_: Any, **__: Any) -> int:
    return 0


def _written(*_: Any, out: Any, **__: Any) -> int:
    return sum(nbytes(each) for each in tensors(out))


def _copied(target: Tensor, source: Any, *_: Any, **__: Any) -> int:
    return nbytes(target) + (nbytes(source) if isinstance(source, Tensor) else 0)


def _gathered(*args: Any, out: Any, **__: Any) -> int:
    # The rows that are returned are read and written; the indices are read.
    found = [each for each in tensors(args) if each.dtype in (torch.int64, torch.int32)]
    return 2 * nbytes(_first(out)) + sum(nbytes(each) for each in found)


def _scattered(target: Tensor, *rest: Any, **__: Any) -> int:
    # Only the elements that are replaced are touched in place: values read and written, indices read.
    values = [each for each in tensors(rest) if each.dtype == target.dtype]
    return sum(nbytes(each) for each in tensors(rest)) + sum(nbytes(each) for each in values)


SOFTMAX = 5
"""Maximum, subtraction, exponential, sum, division."""

_NORM = 8
"""Mean 1, variance 3, normalization 2, scale and shift 2."""

RULES: dict[str, Rule] = {
    "aten.mm": Rule("linear", _product),
    "aten.mv": Rule("linear", _product),
    "aten.addmm": Rule("linear", _added_product, _per_output(1)),
    "aten.addmv": Rule("linear", _added_product, _per_output(1)),
    "aten.linear": Rule("linear", _product, _bias),
    "aten.mkldnn_linear": Rule("linear", _product, _bias),
    "aten._addmm_activation": Rule("linear", _added_product, _per_output(2)),
    "aten._scaled_mm": Rule("linear", _product, _per_output(1)),
    "aten._int_mm": Rule("linear", _product),
    "aten._weight_int8pack_mm": Rule("linear", _quantized_product, _per_output(1)),
    "aten._weight_int4pack_mm": Rule("linear", _quantized_product),
    "aten._weight_int4pack_mm_for_cpu": Rule("linear", _quantized_product),
    "aten._dyn_quant_matmul_4bit": Rule("linear", _quantized_product),
    "quantized.linear_dynamic": Rule("linear", _quantized_product, _per_output(2)),
    "mkldnn._linear_pointwise": Rule("linear", _product, _bias),
    "aten.dot": Rule("matmul", _dot),
    "aten.vdot": Rule("matmul", _dot),
    "aten.bmm": Rule("matmul", _product),
    "aten.baddbmm": Rule("matmul", _added_product, _per_output(1)),
    "aten.addbmm": Rule("matmul", lambda c, a, b, *_, **__: 2 * numel(a) * b.shape[-1]),
    "aten._cdist_forward": Rule("matmul", _distances),
    "aten.convolution": Rule(_convolution_class, _convolution, _bias),
    "aten._convolution": Rule(_convolution_class, _convolution, _bias),
    "aten.mkldnn_convolution": Rule(_convolution_class, _convolution, _bias),
    "aten.cudnn_convolution": Rule(_convolution_class, _convolution),
    "aten.miopen_convolution": Rule(_convolution_class, _convolution, _bias),
    "aten._conv_depthwise2d": Rule("conv2d", _convolution),
    "aten.slow_conv3d_forward": Rule("conv3d", _convolution),
    "aten.mkldnn_rnn_layer": Rule("recurrent", _lstm_layer, _per_output(20)),
    "aten._cudnn_rnn": Rule("recurrent", _cudnn_rnn, _per_output(20)),
    "aten._thnn_fused_lstm_cell": Rule("recurrent", None, _per_output(24)),
    "aten._thnn_fused_gru_cell": Rule("recurrent", None, _per_output(16)),
    "aten.native_group_norm": Rule("group_norm", None, _per_output(_NORM)),
    "aten.native_layer_norm": Rule("layer_norm", None, _per_output(_NORM)),
    "aten._fused_rms_norm": Rule("layer_norm", None, _per_output(4)),
    "aten.rms_norm": Rule("layer_norm", None, _per_output(4)),
    "aten.native_batch_norm": Rule("batch_norm", None, _per_output(4)),
    "aten._native_batch_norm_legit": Rule("batch_norm", None, _per_output(4)),
    "aten._native_batch_norm_legit_no_training": Rule("batch_norm", None, _per_output(4)),
    "aten._batch_norm_no_update": Rule("batch_norm", None, _per_output(4)),
    "aten.cudnn_batch_norm": Rule("batch_norm", None, _per_output(4)),
    "aten._softmax": Rule("softmax", None, _per_output(SOFTMAX)),
    "aten._safe_softmax": Rule("softmax", None, _per_output(SOFTMAX)),
    "aten._log_softmax": Rule("softmax", None, _per_output(SOFTMAX)),
    "aten.gelu": Rule("activation", None, _gelu),
    "aten.glu": Rule("activation", None, _per_output(5)),
    "aten.upsample_bilinear2d": Rule("memory", None, _per_output(8)),
    "aten.upsample_bicubic2d": Rule("memory", None, _per_output(35)),
    "aten.upsample_trilinear3d": Rule("memory", None, _per_output(16)),
    "aten.upsample_linear1d": Rule("memory", None, _per_output(4)),
    "aten.grid_sampler_2d": Rule("memory", None, _per_output(12)),
    "aten.max_pool2d_with_indices": Rule("reduction", None, _pool),
    "aten.max_pool3d_with_indices": Rule("reduction", None, _pool),
    "aten.avg_pool2d": Rule("reduction", None, _pool),
    "aten.avg_pool3d": Rule("reduction", None, _pool),
    "aten.embedding": Rule("embedding", bytes=_gathered),
    "aten._embedding_bag": Rule("embedding", None, _per_output(1), _gathered),
    "aten._fft_r2c": Rule("other", None, lambda *a, out, **k: _fft(*a, out=out, **k) // 2),
    "aten._fft_c2r": Rule("other", None, lambda *a, out, **k: _fft(*a, out=out, **k) // 2),
    "aten._fft_c2c": Rule("other", None, _fft),
    "aten.copy_": Rule("memory", bytes=_copied),
    "aten.normal_": Rule("memory", None, _per_output(4), _written),
    "aten.addcmul": Rule("elementwise", None, _per_output(3)),
    "aten.addcdiv": Rule("elementwise", None, _per_output(3)),
    "aten.lerp": Rule("elementwise", None, _per_output(3)),
    "aten.native_dropout": Rule("elementwise", None, _per_output(2)),
}
"""Operator -> how it is counted. Those of one shape of rule are added below."""


def _add(op_class: str, names: str, **rule: Any) -> None:
    for name in names.split():
        RULES[f"aten.{name}"] = Rule(op_class, **rule)


for _count, _names in {
    1: "relu relu_ tanh tanh_ threshold abs",
    2: "leaky_relu leaky_relu_ hardtanh hardtanh_ prelu _prelu_kernel",
    3: "hardsigmoid hardsigmoid_ elu elu_ softplus",
    4: "sigmoid sigmoid_ log_sigmoid_forward",
    5: "silu silu_ hardswish hardswish_",
    8: "mish mish_",
}.items():
    _add("activation", _names, vector_flops=_per_output(_count))
for _count, _names in {
    1: "sum mean amax amin max min argmax argmin prod cumsum cumprod any all logcumsumexp cummax median "
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d nansum aminmax",
    2: "norm linalg_vector_norm logsumexp",
    4: "var std var_mean std_mean",
}.items():
    _add("reduction", _names, vector_flops=_per_input(_count))
_add(
    "memory",
    "clone _to_copy cat stack repeat constant_pad_nd roll flip contiguous tril triu "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d pixel_shuffle "
    "pixel_unshuffle reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d "
    "im2col col2im channel_shuffle slice_scatter select_scatter diagonal_scatter repeat_interleave unfold_copy "
    "split_with_sizes_copy split_copy view_copy permute_copy _reshape_copy as_strided_copy resize_ set_ "
    "_local_scalar_dense is_nonzero equal scalar_tensor",
)
_add(
    "memory",
    "zeros ones full arange empty_like zeros_like ones_like full_like new_zeros new_ones new_full fill_ fill zero_ "
    "eye linspace rand randn rand_like randn_like randint uniform_ bernoulli_ bernoulli random_ tril_indices "
    "triu_indices randperm _efficientzerotensor exponential_",
    bytes=_written,
)
_add("memory", "index gather index_select take take_along_dim masked_select", bytes=_gathered)
_add(
    "memory",
    "index_put index_put_ scatter scatter_ index_copy index_copy_ index_fill index_fill_ scatter_add scatter_add_ "
    "index_add index_add_ scatter_reduce _index_put_impl_",
    bytes=_scattered,
)
_add(
    "memory",
    "unsafe_split unsafe_split_with_sizes unsafe_chunk empty empty_strided new_empty new_empty_strided empty_permuted _unsafe_view _reshape_alias detach alias "
    "lift_fresh lift view_as_real view_as_complex resolve_conj _assert_async _assert_tensor_metadata "
    "_assert_scalar sym_size sym_numel sym_stride is_same_size _has_compatible_shallow_copy_type "
    "record_stream lift_fresh_copy",
    bytes=_nothing,
)
_add(
    "other",
    "sort topk nonzero unique_dim _unique2 bincount searchsorted bucketize histc multinomial kthvalue "
    "unique_consecutive nonzero_static argsort",
)

_ATTENTION = {
    "aten._scaled_dot_product_flash_attention": "attn_mask",
    "aten._scaled_dot_product_flash_attention_for_cpu": "attn_mask",
    "aten._scaled_dot_product_efficient_attention": "attn_bias",
    "aten._scaled_dot_product_cudnn_attention": "attn_bias",
    "aten._scaled_dot_product_fused_attention_overrideable": "attn_bias",
    "aten.scaled_dot_product_attention": "attn_mask",
}
"""Fused attention operators -> the argument with their mask."""

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
        flops: ``(*args, out=result, **kwargs) -> int`` with the operator's own arguments: 2 per multiply-add.
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
    """All tensors in arguments or results, those of nested lists too."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors(each)]
    return []


def known(func: Any) -> bool:
    """Whether an operator has a rule; views and pointwise operators have one by their kind."""
    name = name_of(func)
    return (
        name in _registered
        or name in RULES
        or name in _ATTENTION
        or func.is_view
        or torch.Tag.pointwise in func.tags
    )


def cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Cost | None:
    """What a call costs; None for an operator without a rule.

    Args:
        func: the operator, a `torch._ops.OpOverload`.
        args: its arguments.
        kwargs: its keyword arguments.
        out: its result.
    """
    name = name_of(func)
    rule = _registered.get(name) or RULES.get(name)
    if rule is None and name in _ATTENTION:
        bound = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
        bound.update(kwargs)
        q, k, v = (bound[key] for key in ("query", "key", "value"))
        mask = bound.get(_ATTENTION[name])
        return attention_cost(q, k, v, bool(bound.get("is_causal")), mask, _first(out))
    if rule is None and func.is_view:
        return Cost("memory")
    if rule is None and torch.Tag.pointwise in func.tags:
        rule = RULES.get(name.removesuffix("_")) or _POINTWISE
    if rule is None:
        return None
    op_class = rule.op_class if isinstance(rule.op_class, str) else rule.op_class(*args, **kwargs)
    return Cost(
        op_class,
        rule.flops(*args, out=out, **kwargs) if rule.flops else 0,
        _arithmetic(rule, args, kwargs, out),
        rule.bytes(*args, out=out, **kwargs) if rule.bytes else traffic(args, kwargs, out),
    )


_POINTWISE = Rule("elementwise", None, _per_output(1))


def _arithmetic(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Vector operations; integers and truth values are not floating-point arithmetic."""
    if rule.vector_flops is None:
        return 0
    floating = any(each.is_floating_point() or each.is_complex() for each in tensors(args))
    return rule.vector_flops(*args, out=out, **kwargs) if floating else 0


def traffic(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Bytes of all inputs, each tensor once however often it is passed, and of all results."""
    given = {id(each): each for each in tensors([*args, *kwargs.values()])}
    return sum(nbytes(each) for each in given.values()) + sum(nbytes(each) for each in tensors(out))
