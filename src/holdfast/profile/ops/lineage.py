"""Where tensors come from: which projections feed an attention, and which products are one.

Every storage has a record: the tensor it was computed from (`parent`), the inputs of the projections behind
it (`sources`), and, in attention that is written as separate operators, its role: scores or probabilities.
Views share their storage and so their record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

# Steps back to a common ancestor: projections of one tensor may have norms or pooling of their own.
_NEAR = 8
_CROSS = re.compile(r"cross|encoder_attn|encdecattention|attn2\b|(^|\.)xattn", re.IGNORECASE)
_TEMPORAL = re.compile(r"temporal|temp_|motion_mod|time_attn|frame_attn", re.IGNORECASE)
_HEADS = ("num_heads", "heads", "num_attention_heads", "n_heads", "n_head", "nhead")


@dataclass(slots=True)
class AttentionCall:
    """One attention of one forward pass.

    Attributes:
        module: Path of the innermost module.
        kind: causal, cross, temporal, spatio-temporal, spatial-self or self.
        batch: Independent attentions per head: images, or frames and pixels folded into the batch.
        causal: Whether only the lower triangle is computed.
        fused: One kernel, or separate products and softmax.
        flops: Of both products; causal: of the triangle, diagonal included.
        full_flops: The same for all pairs of queries and keys.
        ops: Indices of its operators: the kernel, or the products and what is between them.
        window: Keys that a query sees, where the module declares it and the call passes a mask; else 0.
    """

    module: str
    kind: str
    batch: int
    heads: int
    query_length: int
    key_length: int
    head_dim: int
    causal: bool
    fused: bool
    flops: int
    full_flops: int
    ops: tuple[int, ...]
    window: int = 0
    repeats: int = 1


@dataclass(slots=True)
class _Record:
    """Where a tensor comes from.

    Attributes:
        product: Index of the operator that computed the scores.
        shape: Of the softmax: [..., heads, queries, keys].
    """

    parent: StorageWeakRef | None = None
    sources: frozenset[StorageWeakRef] = frozenset()
    role: str = ""
    product: int = -1
    shape: tuple[int, ...] = ()


def key_of(tensor: Tensor) -> StorageWeakRef:
    """Identity of a tensor's storage; the weak reference keeps its address from being used again."""
    return StorageWeakRef(tensor.untyped_storage())


class Lineage:
    """Records of all storages of one forward pass.

    Args:
        fixed: storages of parameters and buffers.
    """

    def __init__(self, fixed: set[StorageWeakRef]) -> None:
        self.fixed = fixed
        self._records: dict[StorageWeakRef, _Record] = {}

    def activations(self, values: Sequence[Tensor]) -> list[StorageWeakRef]:
        """Storages of the tensors that are not parameters."""
        keys = [key_of(each) for each in values]
        return [key for key in keys if key not in self.fixed]

    def of(self, tensor: Tensor) -> _Record:
        """The record of a tensor; an empty one for inputs."""
        return self._records.get(key_of(tensor), _Record())

    def follow(self, op_class: str, index: int, inputs: Sequence[Tensor], out: Tensor) -> None:
        """Record the result of an operator.

        Args:
            op_class: of the operator.
            index: of the operator.
            inputs: its tensors.
            out: its result.
        """
        key = key_of(out)
        keys = self.activations(inputs)
        if key in keys or key in self.fixed:
            return  # a view, or in place: the record stays
        known = [self._records[each] for each in keys if each in self._records]
        result = _Record(parent=keys[0] if keys else None)
        found = [each.sources for each in known if each.sources]
        if keys and (op_class == "linear" or op_class.startswith("conv")):
            result.sources = frozenset(keys[:1])
        elif op_class == "memory":  # parts put together, such as keys of a text and of the image
            result.sources = frozenset().union(*found)
        elif found:
            result.sources = found[0]
        role = next((each for each in known if each.role), None)
        if op_class == "matmul" and len(keys) > 1 and not (role and role.role == "probabilities"):
            result.role, result.product = "scores", index
        elif role and op_class == "softmax" and role.role == "scores":
            result.role, result.product = "probabilities", role.product
            result.shape = tuple(out.shape)
        elif role and (
            op_class in ("elementwise", "memory", "activation")
            or (op_class == "linear" and any(each.shape == out.shape for each in inputs))
        ):
            # Scale, mask, cast and dropout between the products; a mixture of the heads.
            result.role, result.product, result.shape = role.role, role.product, role.shape
        self._records[key] = result

    def are_related(self, q: Tensor, k: Tensor) -> bool | None:
        """Whether queries and keys are projections of one tensor; None where neither was projected."""
        if not self.of(q).sources and not self.of(k).sources:
            return True if key_of(q) == key_of(k) else None
        return bool(self._ancestors(q) & self._ancestors(k))

    def _ancestors(self, tensor: Tensor) -> set[StorageWeakRef]:
        found = set[StorageWeakRef]()
        for source in self.of(tensor).sources or {key_of(tensor)}:
            key: StorageWeakRef | None = source
            for _ in range(_NEAR):
                if key is None:
                    break
                found.add(key)
                key = self._records.get(key, _Record()).parent
        return found


def heads_of(module: nn.Module | None, batch: int) -> int:
    """Number of heads that are folded into a batch, by the attribute of the module; 1 if it has none."""
    for name in _HEADS:
        count = getattr(module, name, None)
        if isinstance(count, int) and count > 0 and batch % count == 0:
            return count
    return 1


def window_of(module: nn.Module | None) -> int:
    """Length of the sliding window that a module or its configuration declares; 0: none."""
    config = getattr(module, "config", None)
    window = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
    types, layer = getattr(config, "layer_types", None), getattr(module, "layer_idx", None)
    if not hasattr(module, "sliding_window") and types and isinstance(layer, int):
        window = window if types[layer] == "sliding_attention" else None
    return window if type(window) is int else 0


def kind_of(
    path: str,
    module: nn.Module | None,
    related: bool | None,
    lengths: tuple[int, int],
    causal: bool,
    spatial: bool,
) -> str:
    """The kind of an attention, from its operands; names of modules decide only what these leave open.

    Args:
        path: of the module.
        module: the module itself.
        related: see `Lineage.are_related`.
        lengths: of queries and keys.
        causal: whether the call itself is causal.
        spatial: whether the model's input is an image or a video.
    """
    if related is None:
        related = lengths[0] == lengths[1] and not _CROSS.search(path)
    if not related:
        return "cross"
    if _TEMPORAL.search(path):
        return "temporal"
    if causal or getattr(module, "is_causal", False) is True:
        return "causal"
    return "spatial-self" if spatial else "self"


def classify_by_axes(
    calls: Sequence[AttentionCall],
    probes: Mapping[int, Sequence[AttentionCall]],
    shape: Sequence[int],
    complete: bool,
) -> bool:
    """Set the kind of calls by the axes of a video that their lengths follow; False where undecided.

    Args:
        calls: of the forward pass; changed in place where all are decided.
        probes: axis -> calls of the same model on a video longer along that axis, in the same order.
        shape: of the video, one of whose axes 1 to 4 is that of the frames.
        complete: whether all axes were tried; else the first two, which often suffice.
    """
    follows = [
        {axis for axis, longer in probes.items() if longer[n].query_length != call.query_length}
        for n, call in enumerate(calls)
    ]
    alone = {
        axis
        for call, axes in zip(calls, follows, strict=True)
        for axis in axes
        if len(axes) == 1 and call.query_length <= shape[axis] and call.kind != "cross"
    }
    # Frames are the axis that some attention follows alone; else the one of the first two, of which the
    # other holds the channels, whose number is fixed.
    early = [axis for axis in probes if axis <= 2]
    frames = min(alone) if len(alone) == 1 else early[0] if len(early) == 1 else 0
    mixed = any(frames in axes and 1 < len(axes) < 3 for axes in follows)
    if not complete:
        # Lengths beyond the number of frames may follow the height just as well.
        pairs = zip(calls, follows, strict=True)
        mixed = any(axes and call.query_length > shape[frames] for call, axes in pairs)
        frames = frames if len(early) == 1 else 0
    if not frames or (mixed and (frames not in alone or not complete)):
        return False
    for call, axes in zip(calls, follows, strict=True):
        if call.kind == "cross":
            continue
        if frames not in axes:
            # The frames are in the batch, whatever the module is called and however many they are.
            call.kind = "spatial-self" if call.kind == "temporal" else call.kind
        elif axes == {frames} and call.query_length <= shape[frames]:
            call.kind = "temporal"
        else:
            call.kind = "spatio-temporal"
    return True
