"""Count every operator of one forward pass: cost, module, attention, live memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.profile.ops.formulas import (
    BOOKKEEPING,
    Cost,
    attention_arguments,
    attention_cost,
    cost,
    known,
    name_of,
    nbytes,
    tensors,
    traffic,
)
from holdfast.profile.ops.lineage import (
    AttentionCall,
    Lineage,
    heads_of,
    key_of,
    kind_of,
    window_of,
)
from holdfast.profile.ops.targets import refused

# Ends of the names of modules -> the class of what they are made of, where no kernel does it at once.
_MADE_OF_PARTS = {
    "RMSNorm|LayerNorm": "layer_norm",
    "GroupNorm": "group_norm",
    "BatchNorm": "batch_norm",
    "RNN|LSTM|GRU": "recurrent",
}
_SDPA = "scaled_dot_product_attention"
_sdpa = functional.scaled_dot_product_attention
_PARTS = ("elementwise", "reduction", "memory")


@dataclass(slots=True)
class OpCall:
    """One call of one operator.

    Attributes:
        op: For example ``"aten.mm"``.
        op_class: One of `formulas.CLASSES`.
        module: Path of the innermost module; empty for the model itself.
        dtype: Of its first floating-point tensor.
        shape: Of its first result.
        inputs: Shapes of its tensors.
        known: Whether the table has a formula for it; without one, FLOPs are not counted.
        seconds: Measured; None where the model did not run.
        phase: forward, backward or optimizer.
    """

    op: str
    op_class: str
    module: str
    module_type: str
    flops: int
    vector_flops: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...] = ()
    known: bool = True
    seconds: float | None = None
    phase: str = "forward"
    repeats: int = 1


class Recorder(TorchDispatchMode):
    """Records the operators that run while it is active.

    Args:
        root: the model; its modules say where an operator runs.
        inputs: all tensors that the model is called with.
        fixed: its parameters and buffers, as they are used.
        fused: count `scaled_dot_product_attention` as one kernel, or the operators inside it.
    """

    supports_higher_order_operators = True

    def __init__(
        self, root: nn.Module, inputs: Sequence[Tensor], fixed: Sequence[Tensor], fused: bool
    ) -> None:
        super().__init__()
        self.root, self.fused = root, fused
        self.ops: list[OpCall] = []
        self.attention: list[AttentionCall] = []
        # Of each dispatched operator the index of its `OpCall`; those in a fused attention
        # share one.
        self.owners: list[int] = []
        self.lineage = Lineage({key_of(each) for each in fixed})
        self.spatial = any(each.dim() >= 4 and each.is_floating_point() for each in inputs)
        self._stack: list[tuple[str, nn.Module]] = [("", root)]
        self._calling = self._inside = self._causal = False
        self._scores: dict[int, tuple[int, bool | None]] = {}
        # Operators that handle the scores of a product, by its index.
        self._members: dict[int, list[int]] = {}
        self._live: dict[StorageWeakRef, int] = {}
        self._live_bytes = self.peak_bytes = 0
        self.phase = "forward"
        # Bytes of the gradients and of the optimizer's two moments, in training; calls while autocast was
        # active for another device than that of their tensors; calls of attention with a mask that no other
        # note explains.
        self.gradient_bytes = self.optimizer_bytes = self.uncast = self.masked = 0
        for each in inputs:
            self._allocated(each)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run and record one operator."""
        kwargs = dict(kwargs or {})
        if func.namespace in BOOKKEEPING:
            return func(*args, **kwargs)
        if not known(func) and not self._inside:
            with self:  # an operator made of others is counted by them
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = _executed(func, args, kwargs)
        self.owners.append(len(self.ops))
        if not self._inside:
            self._record(func, args, kwargs, out)
        return out

    def _record(self, func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        index, counted = len(self.ops), cost(func, args, kwargs, out)
        charged = counted or Cost("other", bytes=traffic(args, kwargs, out))
        call = self._append(name_of(func), charged, args, out)
        call.known = counted is not None
        inputs = tensors([*args, *kwargs.values()])
        if call.op_class == "matmul" and len(self.lineage.activations(inputs)) < len(inputs):
            call.op_class = "linear"  # one operand is a weight
        if call.op_class == "attention":
            q, k, v, causal, _ = attention_arguments(func, args, kwargs)
            if q is not None:
                self._note_fused(q, k, v, causal, index)
        elif call.op_class == "matmul" and len(inputs) > 1:
            self._note_separate(inputs, index)
        for each in tensors(out):
            self.lineage.follow(call.op_class, index, inputs, each)
            self._allocated(each)
            record = self.lineage.of(each)
            if record.role:
                self._members.setdefault(record.product, []).append(index)
        for suffixes, op_class in _MADE_OF_PARTS.items():
            parts = (*_PARTS, "linear", "activation") if op_class == "recurrent" else _PARTS
            named = re.search(rf"({suffixes})(\d?d|Cell)?$", call.module_type)
            if named and call.op_class in parts:
                call.op_class = op_class

    def _append(self, name: str, counted: Cost, args: Any, out: Any) -> OpCall:
        path, module = self._stack[-1]
        types = (str(each.dtype) for each in tensors([args, out]) if each.is_floating_point())
        call = OpCall(
            op=name,
            module=path,
            module_type=type(module).__name__,
            dtype=next(types, "").removeprefix("torch."),
            shape=next((tuple(each.shape) for each in tensors(out)), ()),
            inputs=tuple(tuple(each.shape) for each in tensors(args) if each.dim()),
            phase=self.phase,
            **asdict(counted),
        )
        self.ops.append(call)
        return call

    def sdpa(self, *args: Any, **kwargs: Any) -> Any:
        """Run `scaled_dot_product_attention` and count it as one kernel."""
        if self._calling:
            return _sdpa(*args, **kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        rest = {**dict(zip(names, args, strict=False)), **kwargs}
        q, k, v = (rest.pop(name) for name in names[:3])
        causal, mask = bool(rest.get("is_causal")), rest.get("attn_mask")
        # A mask with a gradient of its own, such as a learned bias, is differentiated by its operators.
        fused = self.fused and not (isinstance(mask, Tensor) and mask.requires_grad)
        call = partial(_sdpa, **rest)
        self._calling, self._causal, self._inside = True, causal, fused
        try:
            out = _Kernel.apply(self, len(self.ops), call, q, k, v) if fused else call(q, k, v)
        finally:
            self._calling = self._causal = self._inside = False
        if not fused:
            return out  # its operators were recorded
        window = window_of(self._stack[-1][1])
        window = window if mask is not None and window < k.shape[-2] else 0
        counted = attention_cost(q, k, v, causal, mask, out, window)
        index = len(self.ops)
        self._append("aten.scaled_dot_product_attention", counted, args, out)
        self._note_fused(q, k, v, causal, index, window)
        if mask is not None and not window:
            self.masked += self.attention[-1].kind != "causal"
        self.lineage.follow("attention", index, [q, k, v], out)
        self._allocated(out)
        return out

    def train(self, parameters: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Record the gradients of the outputs, and a fused step of AdamW, its moments like the weights."""
        self.phase = "backward"
        outputs = [each for each in outputs if each.requires_grad]
        if not outputs or not parameters:
            raise refused(
                "nothing to train", "unsupported", "--training", "no output with gradients"
            )
        signs = [each.detach() for each in outputs]
        found = torch.autograd.grad(outputs, parameters, signs, allow_unused=True)
        self.phase = "optimizer"
        for parameter, gradient in zip(parameters, found, strict=True):
            if gradient is None:
                continue
            # Reads weight, gradient and two moments, and writes all but the gradient.
            step = Cost("elementwise", 0, 15 * parameter.numel(), 7 * parameter.nbytes)
            self._append("aten._fused_adamw_", step, [parameter], parameter)
            self.gradient_bytes += gradient.nbytes
            self.optimizer_bytes += 2 * parameter.nbytes

    def attention_backward(
        self, index: int, inputs: Sequence[Tensor], grad: Tensor
    ) -> list[Tensor]:
        """The gradients of a fused attention: five products where the forward pass has two."""
        forward = self.ops[index]
        moved = 2 * sum(map(nbytes, (*inputs, grad)))
        counted = Cost("attention", forward.flops * 5 // 2, 2 * forward.vector_flops, moved)
        self._append(
            "aten.scaled_dot_product_attention_backward", counted, [grad, *inputs], inputs[0]
        )
        return [torch.empty_like(each) for each in inputs]

    def _note_fused(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool, index: int, window: int = 0
    ) -> None:
        shape, related = (*self.ops[index].shape[:-1], k.shape[-2]), self.lineage.are_related(q, k)
        counts = self.ops[index].flops, 2 * prod(shape) * (q.shape[-1] + v.shape[-1])
        self._note(shape, q.shape[-1], related, causal, True, counts, (index,), window)

    def _note_separate(self, inputs: Sequence[Tensor], index: int) -> None:
        """Recognize attention in separate operators: a product weighted by a softmax of another product."""
        for operand in inputs:
            record = self.lineage.of(operand)
            if record.role != "probabilities" or record.product not in self._scores:
                continue
            head_dim, related = self._scores.pop(record.product)
            first, second = self.ops[record.product], self.ops[index]
            first.op_class = second.op_class = "attention"
            flops = first.flops + second.flops
            ops = *self._members.pop(record.product), index
            self._note(record.shape, head_dim, related, self._causal, False, (flops, flops), ops)
            return
        q, k = inputs[-2:]  # perhaps scores; whether a softmax follows is known later
        self._scores[index] = (q.shape[-1], self.lineage.are_related(q, k))

    def _note(
        self,
        shape: tuple[int, ...],
        head_dim: int,
        related: bool | None,
        causal: bool,
        fused: bool,
        counts: tuple[int, int],
        ops: tuple[int, ...],
        window: int = 0,
    ) -> None:
        """Record an attention.

        Args:
            shape: of its scores, [..., heads, queries, keys].
            head_dim: of the queries.
            related: see `Lineage.are_related`.
            causal: whether the call is.
            fused: whether it is one kernel.
            counts: FLOPs, and those of all pairs.
            ops: see `AttentionCall`.
            window: see `AttentionCall`.
        """
        path, module = self._stack[-1]
        *folded, queries, keys = shape
        heads = folded[-1] if len(folded) > 1 else heads_of(module, prod(folded))
        sides = (prod(folded) // max(heads, 1), heads, queries, keys)
        kind = kind_of(path, module, related, (queries, keys), causal, self.spatial)
        self.attention.append(
            AttentionCall(path, kind, *sides, head_dim, causal, fused, *counts, ops, window)
        )

    def _allocated(self, tensor: Tensor) -> None:
        key = key_of(tensor)
        if key in self.lineage.fixed or key in self._live:
            return
        for other in [each for each in self._live if each.expired()]:
            self._live_bytes -= self._live.pop(other)
        self._live[key] = tensor.untyped_storage().nbytes()
        self._live_bytes += self._live[key]
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record what runs inside the block."""
        handles = []
        for name, module in self.root.named_modules():
            # `_orig_mod` is of torch.compile.
            path = ".".join(part for part in name.split(".") if part != "_orig_mod")
            if isinstance(module, ScriptModule):
                continue  # takes no hooks: its operators belong to what calls it
            handles.append(module.register_forward_pre_hook(partial(self._enter, path)))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            # `from ... import` keeps the function itself, which the mode catches; functions of torch that
            # the mode has passed through look it up by name.
            with self, _Attention(self), mock.patch.object(functional, _SDPA, self.sdpa):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str, module: nn.Module, _: Any) -> None:
        self._stack.append((path, module))

    def _leave(self, *_: Any) -> None:
        if len(self._stack) > 1:
            self._stack.pop()


class _Kernel(torch.autograd.Function):
    """Fused attention, whose backward pass is a kernel, too."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, index: int, call: Any, *inputs: Tensor) -> Any:
        """Run it."""
        ctx.recorder, ctx.index = recorder, index
        ctx.save_for_backward(*inputs)
        return call(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Count its gradients."""
        found = ctx.recorder.attention_backward(ctx.index, ctx.saved_tensors, grad)
        return None, None, None, *found


def _executed(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The result of an operator; of a product by experts without data only its shape."""
    if name_of(func) == "aten._grouped_mm" and (args[0].is_meta or hasattr(args[0], "fake_mode")):
        # Without data torch's own rule knows bfloat16 alone.
        a, b, offs = args[0], args[1], [*args[2:], kwargs.get("offs")][0]
        groups = a.shape[:1] if a.dim() == b.dim() == 3 else ()
        groups = offs.shape if offs is not None and a.dim() == b.dim() == 2 else groups
        return a.new_empty((*groups, a.shape[-2], b.shape[-1]))
    return func(*args, **kwargs)


class _Attention(TorchFunctionMode):
    """Catches `scaled_dot_product_attention` before it becomes the operators of a backend."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Pass every other function through; refuse those on meta where autocast would cast elsewhere."""
        if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
            devices = {each.device.type for each in tensors(args)}
            if "meta" in devices:
                raise RuntimeError("autocast does not reach them")
            # Cast nowhere: beside tensors of its device, numbers on the CPU do not count.
            self.recorder.uncast += {*map(torch.is_autocast_enabled, devices)} == {False}
        if func is _sdpa:
            return self.recorder.sdpa(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
