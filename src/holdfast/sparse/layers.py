"""Packed layers for inference: linear, RNN, GRU and LSTM whose sparse weights stay sparse in memory.

A packed weight is four buffers in the place of a parameter (``fc.weight.values``, ``.indices``,
``.starts``, ``.shape``), so that a packed model has a state dict like any other.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from holdfast.errors import InputError
from holdfast.sparse.benchmark import fastest
from holdfast.sparse.matrices import LAYOUTS, PARTS, SparseMatrix, side_by_side
from holdfast.sparse.schedules import kind_of

Choice = Literal["auto", "csr", "bsr16x1"]
# Exactly these classes: a subclass may use its weight differently.
RECURRENT: dict[type[nn.Module], int] = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}  # gates
REPLACED = (nn.Linear, *RECURRENT)
# Times within this share of the fastest are equal: the noise of a machine that does other work too.
EQUAL = 1.1
STEPS = 16  # of the sequence that recurrent layers are timed with


@dataclass(frozen=True)
class Decision:
    """How one weight is stored, and why.

    Args:
        weight: its name in the state dict.
        shape: rows and columns.
        sparsity: share of zeros.
        layout: "csr", "bsr16x1" or "dense".
        dense_bytes: bytes of the dense matrix.
        stored_bytes: bytes as it is stored.
        reason: why this layout.
        seconds: time of one call of its layer, of each layout that was tried.
    """

    weight: str
    shape: tuple[int, int]
    sparsity: float
    layout: str
    dense_bytes: int
    stored_bytes: int
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class _Inference(torch.autograd.Function):  # type: ignore[misc]
    """Lets results through, and refuses gradients, which would silently end here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, result: Tensor) -> Tensor:
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _refuse_unless(False, "gradients", "train the dense model, then pack it", "backward")


class PackedWeight(nn.Module):  # type: ignore[misc]
    """The buffers of a packed matrix, which multiply the last dimension of their input."""

    # Other modules ask the weights of their layers.
    dtype, device, requires_grad = torch.float32, torch.device("cpu"), False

    def __init__(self, matrix: SparseMatrix | None = None) -> None:
        super().__init__()
        tensors = packed_state(matrix) if matrix else {}
        for part in PARTS:
            self.register_buffer(part, tensors.get(part))
        self._matrix: SparseMatrix | None = None

    @classmethod
    def __torch_function__(cls, function: Any, *rest: Any) -> Any:
        """Refuse functions that would read the weight, such as `F.linear(x, layer.weight)`."""
        _refuse_unless(False, f"{function}", "call the layer, or keep the model dense", "weight")

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies come from arrays: torch writes pickles of unsigned tensors that it cannot read.
        return PackedWeight, (None if self.values is None else self.matrix,)

    @property
    def matrix(self) -> SparseMatrix:
        """The matrix over the buffers (nothing is copied)."""
        if self._matrix is None:
            self._matrix = matrix_of({part: getattr(self, part) for part in PARTS})
        return self._matrix

    def forward(self, x: Tensor) -> Tensor:
        """[..., columns] -> [..., rows]."""
        flat = x.detach().flatten(0, -2) if x.dim() > 1 else x.detach()[None]
        product = self.matrix.multiply(flat.numpy(), torch.get_num_threads())
        return torch.from_numpy(product).reshape(*x.shape[:-1], product.shape[1])

    def _apply(self, fn: Any, recurse: bool = True) -> PackedWeight:
        return self  # the kernels need these types: `half()` and `to()` do not reach them

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: Any, missing: Any, *rest: Any
    ) -> None:
        # The sizes are those of the matrix that comes, not of the one that was.
        found = {part: state_dict.get(prefix + part) for part in PARTS}
        missing += [prefix + part for part, tensor in found.items() if tensor is None]
        if all(tensor is not None for tensor in found.values()):
            matrix_of(found).check(prefix.rstrip("."))
            self._matrix = None
            assign = metadata.get("assign_to_params_buffers", False)
            for part, tensor in found.items():
                setattr(self, part, tensor.detach() if assign else tensor.detach().clone())


class _Packed(nn.Module):  # type: ignore[misc]
    """A layer whose weights are packed; the rest are plain tensors without gradients."""

    def _take(self, dense: nn.Module, matrices: Mapping[str, SparseMatrix | None]) -> None:
        """Become the packed form of a layer, with its names, options, biases and mode."""
        # Options such as `bidirectional` and `dropout` are read by the modules around a layer.
        own = {name: value for name, value in vars(dense).items() if name in dense.__constants__}
        self.__dict__.update(own)
        for name, parameter in dense._parameters.items():
            if name in matrices:
                self.add_module(name, PackedWeight(matrices[name]))
            elif parameter is None:
                self.register_parameter(name, None)
            else:
                self.register_parameter(
                    name, nn.Parameter(parameter.detach().clone(), requires_grad=False)
                )
        self.train(dense.training)


def _check(x: Any, *dimensions: int) -> None:
    _refuse_unless(isinstance(x, Tensor), type(x).__name__, "give a tensor")
    right = x.dtype == torch.float32 and x.device.type == "cpu"
    _refuse_unless(right, f"{x.dtype} on {x.device}", "move the input to the CPU as float32")
    right = not dimensions or x.dim() in dimensions
    _refuse_unless(right, f"{x.dim()} dimensions", f"give {' or '.join(map(str, dimensions))}")


def _refuse_unless(right: bool, found: str, remedy: str, place: str = "input") -> None:
    if not right:
        problem = "packed layers cannot take this"
        raise InputError(problem, code="unsupported", place=place, found=found, remedy=remedy)


class PackedLinear(_Packed):
    """`torch.nn.Linear` with a packed weight, for float32 inference on CPUs."""

    def __init__(self, dense: nn.Linear, matrices: Mapping[str, SparseMatrix | None]) -> None:
        super().__init__()
        self._take(dense, matrices)

    def forward(self, input: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        _check(input)
        with torch.no_grad():
            result = self.weight(input)
            if self.bias is not None:
                result += self.bias
        return _Inference.apply(input, result) if input.requires_grad else result


class PackedRNN(_Packed):
    """`torch.nn.RNN`, `GRU` or `LSTM` with packed weights, for float32 inference on CPUs.

    Inputs, states and outputs are those of the dense layer, `PackedSequence` included; dropout between
    layers is not applied.
    """

    def __init__(self, dense: nn.RNNBase, matrices: Mapping[str, SparseMatrix | None]) -> None:
        super().__init__()
        self._take(dense, matrices)
        self.nonlinearity = getattr(dense, "nonlinearity", "")

    def flatten_parameters(self) -> None:
        """Nothing: the weights have no order that a GPU prefers."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """[steps, batch, input_size] (or as the dense layer) -> outputs and last state."""
        ragged = isinstance(input, PackedSequence)
        x = input.data if ragged else input
        _check(x, 2, 2 if ragged else 3)
        unbatched = not ragged and x.dim() == 2
        if unbatched:
            x = x.unsqueeze(1)
        elif self.batch_first and not ragged:
            x = x.transpose(0, 1)
        # The sequences at each step; their rows lie one step after the other: [rows, input_size].
        sizes = input.batch_sizes.numpy() if ragged else np.full(x.shape[0], x.shape[1])
        _refuse_unless(len(sizes) > 0, "no steps", "give at least one step")
        first = self._first(hx, int(sizes[0]), unbatched)
        if ragged and input.sorted_indices is not None:
            first = [each.index_select(1, input.sorted_indices) for each in first]
        # The kernels turn the first states into the last ones, in place.
        states = [np.array(each.detach().numpy(), order="C") for each in first]
        rows = x.detach().flatten(0, -2).numpy()
        output = self._layers(rows, sizes, states)
        outputs = torch.from_numpy(output).reshape(*x.shape[:-1], output.shape[1])
        traced = next((each for each in (x, *first) if each.requires_grad), None)
        if traced is not None:
            outputs = _Inference.apply(traced, outputs)
        ends = [torch.from_numpy(each) for each in states]
        if ragged:
            outputs = PackedSequence(outputs, *input[1:])
            if input.unsorted_indices is not None:
                ends = [each.index_select(1, input.unsorted_indices) for each in ends]
        elif unbatched:
            outputs, ends = outputs.squeeze(1), [each.squeeze(1) for each in ends]
        elif self.batch_first:
            outputs = outputs.transpose(0, 1)
        return outputs, tuple(ends) if self.mode == "LSTM" else ends[0]

    def _first(self, hx: Any, batch: int, unbatched: bool) -> Sequence[Tensor]:
        """The states before the first step, [layers * directions, batch, hidden] each."""
        shape = (self.num_layers * (1 + self.bidirectional), batch, self.hidden_size)
        count = 2 if self.mode == "LSTM" else 1
        if hx is None:
            return [torch.zeros(shape)] * count
        given = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        _refuse_unless(len(given) == count, f"{len(given)} states", f"give {count}")
        expected = [shape[0], *shape[1 + unbatched :]]
        for each in given:
            _check(each)
            found = f"a state of {list(each.shape)}"
            _refuse_unless([*each.shape] == expected, found, f"give {expected}")
        return [each.reshape(shape) for each in given]

    def _layers(self, x: np.ndarray, sizes: np.ndarray, states: Sequence[np.ndarray]) -> np.ndarray:
        """[rows, input_size] -> [rows, directions * hidden_size]; the states become the last ones."""
        from holdfast.sparse import _kernels

        mode = getattr(_kernels, self.nonlinearity.upper() or self.mode)
        directions, width = 1 + self.bidirectional, self.hidden_size
        threads = torch.get_num_threads()
        hidden, cell = states[0], states[-1]  # only an LSTM looks at the second
        for layer in range(self.num_layers):
            outputs = np.empty((len(x), directions * width), np.float32)
            for direction in range(directions):
                suffix = f"l{layer}" + "_reverse" * direction
                matrix = getattr(self, f"weight_hh_{suffix}").matrix
                inputs = getattr(self, f"weight_ih_{suffix}").matrix.multiply(x, threads)
                bias = np.zeros(matrix.shape[0], np.float32)
                if self.bias:
                    inputs += getattr(self, f"bias_ih_{suffix}").numpy()
                    bias = getattr(self, f"bias_hh_{suffix}").numpy()
                at = layer * directions + direction
                run = partial(
                    _kernels.recurrent,
                    *(mode, *matrix.arrays, bias, np.ascontiguousarray(inputs), sizes),
                    *(direction == 1, hidden[at], cell[at], outputs, direction * width),
                )
                # Sequences do not depend on each other: threads take tiles of them.
                side_by_side(run, matrix.cuts(hidden.shape[1], len(sizes), threads))
            x = outputs
        return x


def packed_state(matrix: SparseMatrix) -> dict[str, Tensor]:
    """The tensors of a matrix, as state dicts hold them."""
    arrays = (matrix.values, matrix.indices, matrix.starts, np.array(matrix.shape, np.int64))
    return {part: torch.from_numpy(array) for part, array in zip(PARTS, arrays, strict=True)}


def matrix_of(parts: Mapping[str, Tensor]) -> SparseMatrix:
    """The matrix whose tensors these are (nothing is copied)."""
    values, indices, starts, shape = (parts[part].numpy() for part in PARTS)
    rows, columns = [int(each) for each in shape.ravel()[:2]] if shape.size == 2 else (-1, -1)
    return SparseMatrix((rows, columns), values, indices, starts)


def matrices_in(state: Mapping[str, Tensor]) -> dict[str, SparseMatrix]:
    """Name of a weight -> its matrix, for all packed weights of a state dict."""
    matrices = {}
    for name in [key.removesuffix(".values") for key in state if key.endswith(".values")]:
        parts = {part: state.get(f"{name}.{part}") for part in PARTS}
        if all(part is not None for part in parts.values()):
            matrices[name] = matrix_of(parts).check(name)
    return matrices


def why_dense(layer: nn.Module) -> str:
    """Why the weights of a layer stay dense, or nothing."""
    if type(layer) is nn.Module or getattr(layer, "proj_size", 0):
        return "cells and projections (proj_size) have no packed form"
    if type(layer) not in REPLACED:
        return f"{type(layer).__name__} has no packed form"
    if layer._forward_hooks or layer._forward_pre_hooks:
        return "the layer has hooks, such as of torch.nn.utils.prune: remove them first"
    if "forward" in vars(layer):
        return "the layer's forward was replaced, as accelerate's hooks do: put its own back first"
    return ""


def weights_of(layer: nn.Module) -> dict[str, nn.Parameter]:
    """The matrices among the parameters of a layer, by their names in it."""
    return {
        name: each
        for name, each in layer.named_parameters(recurse=False, remove_duplicate=False)
        if each.ndim == 2 and "weight" in name
    }


class _Packing:
    """Decides layer by layer, and tied layers alike."""

    def __init__(self, layout: Choice, batch: int) -> None:
        self.layout, self.batch = layout, batch
        self._known: dict[Any, tuple[dict[str, SparseMatrix], str, dict[str, float]]] = {}
        self.decisions: dict[str, Decision] = {}

    def choose(self, prefix: str, layer: nn.Module) -> dict[str, SparseMatrix]:
        """The matrices of a layer that is to be packed, else nothing; decisions are added."""
        weights = {name: each.detach() for name, each in weights_of(layer).items()}
        if not any(each.numel() for each in weights.values()):
            return {}
        reason = why_dense(layer)
        if reason:
            matrices, seconds = {}, {}
        else:
            key = tuple((each.data_ptr(), each.shape) for each in weights.values())
            if key not in self._known:
                for name, each in weights.items():
                    refuse_type(f"{prefix}{name}", each)
                self._known[key] = self._fastest(layer, weights)
            matrices, reason, seconds = self._known[key]
        for name, each in weights.items():
            stored = matrices.get(name, each)
            self.decisions[prefix + name] = decision(prefix + name, stored, reason, seconds)
        return matrices

    def _fastest(
        self, layer: nn.Module, weights: Mapping[str, Tensor]
    ) -> tuple[dict[str, SparseMatrix], str, dict[str, float]]:
        """The layout of a layer, the reason, and the time of one call of all that was tried."""
        wanted = LAYOUTS if self.layout == "auto" else (self.layout,)
        matrices: dict[str, dict[str, SparseMatrix]] = {
            each: {
                name: SparseMatrix.pack(weight.numpy(), each) for name, weight in weights.items()
            }
            for each in wanted
        }
        sizes = {each: sum(m.nbytes for m in found.values()) for each, found in matrices.items()}
        sizes["dense"] = sum(each.nbytes for each in weights.values())
        smaller = [each for each in wanted if sizes[each] < sizes["dense"]]
        if not smaller:
            return {}, "packed would be larger", {}
        if self.layout != "auto":
            return matrices[self.layout], "as requested", {}
        width = layer.in_features if isinstance(layer, nn.Linear) else layer.input_size
        steps = 1 if isinstance(layer, nn.Linear) else STEPS
        x = torch.randn(steps, self.batch, width, generator=torch.Generator().manual_seed(0))
        if getattr(layer, "batch_first", False):
            x = x.transpose(0, 1)
        layers = {each: packed_layer(layer, matrices[each]) for each in smaller} | {"dense": layer}
        with torch.no_grad():
            seconds = fastest({each: partial(made, x) for each, made in layers.items()})
        equal = [each for each in layers if seconds[each] <= EQUAL * min(seconds.values())]
        best = min(equal, key=sizes.__getitem__)
        gain = seconds["dense"] / seconds[best]
        if best == "dense":
            rival = min(smaller, key=seconds.__getitem__)
            return {}, f"dense is {seconds[rival] / seconds[best]:.1f} times as fast", seconds
        speed = f"{gain:.1f} times as fast as dense" if "dense" not in equal else "as fast as dense"
        return matrices[best], speed, seconds


def refuse_type(name: str, weight: Tensor) -> None:
    """Refuse weights that are not float32 on the CPU.

    Raises:
        InputError: with the name of the weight.
    """
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        raise InputError(
            "only float32 weights on the CPU can be packed",
            code="unsupported",
            place=name,
            found=f"{weight.dtype} on {weight.device}",
            remedy="call model.float().cpu() first; it is exact for bfloat16 and float16",
        )


def packed_layer(layer: nn.Module, matrices: Mapping[str, SparseMatrix | None]) -> _Packed:
    """The packed form of a layer; weights without a matrix are to be loaded."""
    return (PackedLinear if isinstance(layer, nn.Linear) else PackedRNN)(layer, matrices)


def pack_state(
    state: Mapping[str, Tensor], layout: Choice = "auto", batch: int = 1
) -> tuple[dict[str, Tensor], list[Decision]]:
    """Pack the linear and recurrent weights of a state dict.

    Args:
        state: with dense float32 weights.
        layout: "csr" or "bsr16x1" packs every layer so; "auto" measures each layer on this machine and
            keeps it dense where dense is faster or smaller. Where times are equal, size decides.
        batch: vectors, or sequences, of the calls that "auto" measures.

    Returns:
        The state dict with packed weights, and how each weight is stored.

    Raises:
        InputError: if a weight has another type than float32.
    """
    packing = _Packing(layout, batch)
    matrices: dict[str, SparseMatrix] = {}
    for prefix, layer in _layers_of(state).items():
        found = packing.choose(prefix, layer)
        matrices |= {prefix + name: matrix for name, matrix in found.items()}
    made: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name in matrices:
            parts = packed_state(matrices[name])
            made |= {f"{name}.{part}": each for part, each in parts.items()}
        else:
            made[name] = tensor
    return made, [packing.decisions[name] for name in state if name in packing.decisions]


def _layers_of(state: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """Prefix of the names -> the layer that a state dict has there, by names and shapes."""
    layers: dict[str, nn.Module] = {}
    for name, weight in state.items():
        start = name[: name.rfind(".") + 1]
        kind = kind_of(name, weight.ndim)
        if kind == "linear" and weight.numel():
            layers[start] = nn.Linear(*reversed(weight.shape), bias=False, device="meta")
            layers[start].weight = nn.Parameter(weight, requires_grad=False)
        elif kind == "recurrent" and start not in layers:
            layers[start] = _recurrent_layer(start, state)
    return layers


def _recurrent_layer(start: str, state: Mapping[str, Tensor]) -> nn.Module:
    """An RNN, GRU or LSTM, or a plain module with the weights of cells or projections."""
    own = {
        name.removeprefix(start): tensor
        for name, tensor in state.items()
        if re.fullmatch(rf"{re.escape(start)}(weight|bias)_(ih|hh|hr)(_l\d+(_reverse)?)?", name)
    }
    none = torch.empty(0, 1)
    inner, outer = own.get("weight_hh_l0", none), own.get("weight_ih_l0", none)
    for kind, gates in RECURRENT.items():
        if inner.numel() and inner.shape[0] == gates * inner.shape[1]:
            layers = sum(name.startswith("weight_ih") for name in own)
            both = "weight_ih_l0_reverse" in own
            with torch.device("meta"):
                layer = kind(
                    outer.shape[1],
                    inner.shape[1],
                    layers // (1 + both),
                    bias="bias_ih_l0" in own,
                    bidirectional=both,
                )
            expected = {name: each.shape for name, each in layer.state_dict().items()}
            if {name: each.shape for name, each in own.items()} == expected:
                layer.load_state_dict(own, assign=True)
                return layer.requires_grad_(False)
    other = nn.Module()
    for name, weight in own.items():
        other.register_parameter(name, nn.Parameter(weight, requires_grad=False))
    return other


def decision(
    name: str,
    stored: Tensor | SparseMatrix,
    reason: str = "",
    seconds: Mapping[str, float] | None = None,
) -> Decision:
    """What is to be said of a weight that is stored so."""
    rows, columns = stored.shape
    if isinstance(stored, SparseMatrix):
        nonzeros, layout, dense_bytes = stored.nonzeros, stored.layout, 4 * rows * columns
    else:
        nonzeros, layout, dense_bytes = int(stored.count_nonzero()), "dense", stored.nbytes
    zeros = 1 - nonzeros / max(rows * columns, 1)
    shape, times = (rows, columns), dict(seconds or {})
    return Decision(name, shape, zeros, layout, dense_bytes, stored.nbytes, reason, times)


def pack(
    model: nn.Module, layout: Choice = "auto", batch: int = 1
) -> tuple[nn.Module, list[Decision]]:
    """A copy of a model whose linear and recurrent layers are packed for inference.

    Args:
        model: float32, on the CPU; it stays as it is.
        layout: see `pack_state`.
        batch: vectors, or sequences, of the calls that "auto" measures.

    Returns:
        The packed copy, and how each weight of linear and recurrent layers is stored and why. Other
        layers (cells, attention's input projection, convolutions, subclasses of linear layers) stay dense,
        and the decisions say so.

    Raises:
        InputError: if a layer that could be packed is not float32 on the CPU.
    """
    packing = _Packing(layout, batch)
    # A deep copy looks here first: every reference to a layer becomes one to its packed form.
    copies: dict[int, Any] = {}
    for prefix, module in model.named_modules():
        # These too have matrices as weights, which are no products.
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm)):
            matrices = packing.choose(f"{prefix}." if prefix else "", module)
            if matrices:
                copies[id(module)] = packed_layer(module, matrices)
    packed = _without_fast_path(copy.deepcopy(model, copies))
    return packed, list(packing.decisions.values())


def _without_fast_path(model: nn.Module) -> nn.Module:
    """Make torch's transformer encoders call packed layers, whose weights they would read instead."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and any(
            isinstance(each, PackedLinear) for each in module.children()
        ):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder) and any(
            isinstance(each, PackedLinear) for each in module.modules()
        ):
            module.use_nested_tensor = False
    return model


def install(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Load a packed state dict into a model, whose layers are replaced by packed ones where needed.

    Args:
        model: built as for training, also on the device "meta", where its dense weights take no memory.
        state: of `pack_state`, or the state dict of a packed model.

    Returns:
        The same model. Packed weights of layers that cannot use them (embeddings) are made dense.

    Raises:
        InputError: if names or shapes do not fit the model, which then stays as it was.
    """
    state = dict(state)
    matrices = matrices_in(state)
    _check_names(model, _shapes(state, matrices))
    replaced: dict[int, nn.Module] = {}
    for prefix, module in list(model.named_modules(remove_duplicate=False)):
        start = f"{prefix}." if prefix else ""
        weights = {
            short: start + short for short in module._parameters if start + short in matrices
        }
        if weights and not why_dense(module):
            # All weights of a recurrent layer are packed, or none.
            for name in (start + short for short in weights_of(module)):
                if name not in matrices:
                    parts = packed_state(SparseMatrix.pack(state.pop(name).numpy(), "csr"))
                    state |= {f"{name}.{part}": each for part, each in parts.items()}
            if id(module) not in replaced:
                replaced[id(module)] = packed_layer(module, dict.fromkeys(weights_of(module)))
            if not prefix:
                model = replaced[id(module)]
            else:
                model.set_submodule(prefix, replaced[id(module)])
        else:
            for name in weights.values():
                for part in PARTS:
                    del state[f"{name}.{part}"]
                state[name] = torch.from_numpy(matrices[name].dense())
    on_meta = any(each.is_meta for each in model.parameters())
    model.load_state_dict(state, strict=False, assign=on_meta)
    return _without_fast_path(model)


def _shapes(
    state: Mapping[str, Tensor], matrices: Mapping[str, SparseMatrix]
) -> dict[str, tuple[int, ...]]:
    """Name -> shape, of packed weights as if they were dense."""
    parts = {f"{name}.{part}" for name in matrices for part in PARTS}
    plain = {name: tuple(each.shape) for name, each in state.items() if name not in parts}
    return plain | {name: matrix.shape for name, matrix in matrices.items()}


def _check_names(model: nn.Module, found: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a state dict with other names or shapes than those of a model."""

    def wrong(code: str, place: str, found: object, expected: str) -> InputError:
        problem = "the file is of another model"
        return InputError(problem, code=code, place=place, found=str(found), expected=expected)

    own = model.state_dict(keep_vars=True)
    expected = _shapes(own, matrices_in(own))
    # A tied weight may stand in the file under one of its names.
    loaded = {id(own[name]) for name in found if name in own}
    missing = [n for n in expected if n not in found and id(own.get(n)) not in loaded]
    for code, names in (
        ("missing-key", missing),
        ("unknown-key", [name for name in found if name not in expected]),
    ):
        if names:
            raise wrong(code, names[0], f"{len(names)} such names", "those of the model")
    for name, shape in found.items():
        if shape != expected[name]:
            raise wrong("conflict", name, shape, str(expected[name]))
