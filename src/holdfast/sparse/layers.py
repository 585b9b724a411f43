"""Packed layers for inference: linear, RNN, GRU and LSTM whose sparse weights stay sparse in memory.

A packed weight is four buffers in the place of a parameter (``fc.weight.values``, ``.indices``,
``.starts``, ``.shape``), so that a packed model has a state dict like any other.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.sparse.benchmark import fastest
from holdfast.sparse.matrices import LAYOUTS, PARTS, SparseMatrix
from holdfast.sparse.schedules import kind_of

Choice = Literal["auto", "csr", "bsr16x1"]
# Exactly these classes: a subclass may use its weight differently.
REPLACED = (nn.Linear, nn.RNN, nn.GRU, nn.LSTM)


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
        seconds: time of one product, of each layout that was tried.
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
        raise InputError(
            "packed layers have no gradients",
            code="unsupported",
            place="backward",
            remedy="train the dense model, then pack it",
        )


class PackedWeight(nn.Module):  # type: ignore[misc]
    """The buffers of a packed matrix, which multiply the last dimension of their input."""

    def __init__(self) -> None:
        super().__init__()
        for part in PARTS:
            self.register_buffer(part, None)

    @property
    def matrix(self) -> SparseMatrix:
        """The matrix over the buffers (nothing is copied)."""
        return matrix_of({part: getattr(self, part) for part in PARTS})

    def forward(self, x: Tensor) -> Tensor:
        """[..., columns] -> [..., rows]."""
        flat = x.detach().reshape(-1, x.shape[-1]).numpy()
        product = self.matrix.multiply(flat, torch.get_num_threads())
        return torch.from_numpy(product).reshape(*x.shape[:-1], -1)

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
            assign = metadata.get("assign_to_params_buffers", False)
            for part, tensor in found.items():
                setattr(self, part, tensor.detach() if assign else tensor.detach().clone())


class _Packed(nn.Module):  # type: ignore[misc]
    """A layer some of whose weights are packed; the rest are plain tensors without gradients."""

    def _take(self, dense: nn.Module, packed: frozenset[str]) -> None:
        for name, parameter in dense.named_parameters(recurse=False):
            if name in packed:
                self.add_module(name, PackedWeight())
            else:
                self.register_parameter(name, nn.Parameter(parameter.detach(), requires_grad=False))

    def _affine(self, x: Tensor, weight: str, bias: str) -> Tensor:
        matrix, offset = getattr(self, weight), getattr(self, bias, None)
        if isinstance(matrix, Tensor):
            return nn.functional.linear(x, matrix, offset)
        product: Tensor = matrix(x)
        return product if offset is None else product.add_(offset)

    @staticmethod
    def _check(x: Tensor) -> None:
        plain = isinstance(x, Tensor)
        _refuse_unless(plain, type(x).__name__, "give a tensor; pad sequences of several lengths")
        right = x.dtype == torch.float32 and x.device.type == "cpu"
        _refuse_unless(right, f"{x.dtype} on {x.device}", "move the input to the CPU as float32")


def _refuse_unless(right: bool, found: str, remedy: str) -> None:
    if not right:
        problem = "packed layers cannot take this"
        raise InputError(problem, code="unsupported", place="input", found=found, remedy=remedy)


class PackedLinear(_Packed):
    """`torch.nn.Linear` with a packed weight, for float32 inference on CPUs."""

    def __init__(self, dense: nn.Linear, packed: frozenset[str]) -> None:
        super().__init__()
        self.in_features, self.out_features = dense.in_features, dense.out_features
        self._take(dense, packed)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        self._check(x)
        with torch.no_grad():
            result = self._affine(x, "weight", "bias")
        return _Inference.apply(x, result) if x.requires_grad else result


class PackedRNN(_Packed):
    """`torch.nn.RNN`, `GRU` or `LSTM` with packed weights, for float32 inference on CPUs.

    Inputs, states and outputs are those of the dense layer; dropout between layers is not applied.
    """

    def __init__(self, dense: nn.RNNBase, packed: frozenset[str]) -> None:
        super().__init__()
        self.mode, self.batch_first = dense.mode, dense.batch_first
        self.nonlinearity = getattr(dense, "nonlinearity", "")
        self.input_size, self.hidden_size = dense.input_size, dense.hidden_size
        self.num_layers, self.directions = dense.num_layers, 1 + dense.bidirectional
        self._take(dense, packed)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """[steps, batch, input_size] (or as the dense layer) -> outputs and last state."""
        self._check(x)
        with torch.no_grad():
            outputs, last = self._layers(x, state)
        return _Inference.apply(x, outputs) if x.requires_grad else outputs, last

    def _layers(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        unbatched = x.dim() == 2
        if unbatched:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        given = (state,) if isinstance(state, Tensor) else state
        if given is None:
            given = (x.new_zeros(shape),) * 2  # only an LSTM looks at the second
        elif unbatched:
            given = tuple(each.unsqueeze(1) for each in given)
        for each in given:
            _refuse_unless(
                each.shape == shape, f"a state of {list(each.shape)}", f"give {list(shape)}"
            )
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.directions):
                suffix = f"l{layer}" + "_reverse" * direction
                first = tuple(each[len(last)] for each in given)
                steps = x.flip(0) if direction else x
                output, end = self._run(steps, first, suffix)
                outputs.append(output.flip(0) if direction else output)
                last.append(end)
            x = torch.cat(outputs, dim=-1)
        ends = tuple(torch.stack(each) for each in zip(*last, strict=True))
        if unbatched:
            x, ends = x.squeeze(1), tuple(each.squeeze(1) for each in ends)
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, ends if self.mode == "LSTM" else ends[0]

    def _run(
        self, x: Tensor, state: tuple[Tensor, ...], suffix: str
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One direction of one layer: [steps, batch, features] -> [steps, batch, hidden]."""
        inputs = self._affine(x, f"weight_ih_{suffix}", f"bias_ih_{suffix}")
        outputs = []
        for step in inputs:  # [batch, gates * hidden]
            hidden = self._affine(state[0], f"weight_hh_{suffix}", f"bias_hh_{suffix}")
            state = self._gates(step, hidden, state)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def _gates(self, step: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self.mode == "GRU":
            cut = 2 * self.hidden_size
            reset, update = (step[:, :cut] + hidden[:, :cut]).sigmoid().chunk(2, 1)
            fresh = (step[:, cut:] + reset * hidden[:, cut:]).tanh()
            return (torch.lerp(fresh, state[0], update),)
        total = step + hidden
        if self.mode == "LSTM":
            take, keep, fresh, show = total.chunk(4, 1)
            cell = keep.sigmoid() * state[1] + take.sigmoid() * fresh.tanh()
            return show.sigmoid() * cell.tanh(), cell
        return (total.relu() if self.nonlinearity == "relu" else total.tanh(),)


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
    found = {}
    for name in [key.removesuffix(".values") for key in state if key.endswith(".values")]:
        parts = {part: state.get(f"{name}.{part}") for part in PARTS}
        if all(part is not None for part in parts.values()):
            found[name] = matrix_of(parts).check(name)
    return found


def pack_state(
    state: Mapping[str, Tensor], layout: Choice = "auto", batch: int = 1
) -> tuple[dict[str, Tensor], list[Decision]]:
    """Pack the linear and recurrent weights of a state dict.

    Args:
        state: with dense weights.
        layout: "csr" or "bsr16x1" packs every weight so; "auto" measures each weight on this machine and
            keeps it dense where dense is faster or smaller.
        batch: vectors per product in that measurement.

    Returns:
        The state dict with packed weights, and how each weight is stored.
    """
    made: dict[str, Tensor] = {}
    decisions = []
    known: dict[Any, tuple[Tensor | SparseMatrix, str, dict[str, float]]] = {}
    for name, tensor in state.items():
        stored: Tensor | SparseMatrix = tensor
        if kind_of(name, tensor.ndim) and tensor.numel():
            key = (tensor.data_ptr(), tensor.shape)  # tied weights are packed once
            if key not in known:
                known[key] = _choose(tensor.detach().cpu(), layout, batch)
            stored, reason, seconds = known[key]
            decisions.append(decision(name, stored, reason, seconds))
        if isinstance(stored, SparseMatrix):
            made |= {f"{name}.{part}": each for part, each in packed_state(stored).items()}
        else:
            made[name] = tensor
    return made, decisions


def _choose(
    weight: Tensor, layout: Choice, batch: int
) -> tuple[Tensor | SparseMatrix, str, dict[str, float]]:
    """A weight as it is to be stored, the reason, and the time of one product of all that was tried."""
    if weight.dtype != torch.float32:
        return weight, f"{weight.dtype}: only float32 is packed", {}
    wanted = LAYOUTS if layout == "auto" else (layout,)
    packed = {each: SparseMatrix.pack(weight.numpy(), each) for each in wanted}
    packed = {each: made for each, made in packed.items() if made.nbytes < weight.nbytes}
    if not packed:
        return weight, "packed would be larger", {}
    if layout != "auto":
        return packed[layout], "as requested", {}
    x = torch.randn(batch, weight.shape[1], generator=torch.Generator().manual_seed(0))
    calls = {"dense": partial(nn.functional.linear, x, weight)}
    for each, made in packed.items():
        calls[each] = partial(made.multiply, x.numpy(), torch.get_num_threads())
    seconds = fastest(calls)
    best = min(packed, key=seconds.__getitem__)
    gain = seconds["dense"] / seconds[best]
    if gain > 1:
        return packed[best], f"{gain:.1f} times as fast as dense", seconds
    return weight, f"dense is {1 / gain:.1f} times as fast", seconds


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
        batch: vectors per product that "auto" measures with.

    Returns:
        The packed copy, and how each weight is stored and why.
    """
    state, decisions = pack_state(model.state_dict(), layout, batch)
    return install(copy.deepcopy(model), state), decisions


def install(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Load a packed state dict into a model, whose layers are replaced by packed ones where needed.

    Args:
        model: built as for training, also on the device "meta", where its dense weights take no memory.
        state: of `pack_state`, or the state dict of a packed model.

    Returns:
        The same model. Packed weights of layers that cannot use them (embeddings) are made dense.

    Raises:
        InputError: if names or shapes do not fit the model.
    """

    def wrong(code: str, place: str, found: object, expected: str) -> InputError:
        problem = "the file is of another model"
        return InputError(problem, code=code, place=place, found=str(found), expected=expected)

    state = dict(state)
    matrices = matrices_in(state)
    for prefix, module in list(model.named_modules()):
        start = f"{prefix}." if prefix else ""
        weights = {
            short: weight
            for short, weight in module.named_parameters(recurse=False)
            if start + short in matrices
        }
        for short, weight in weights.items():
            if weight.shape != matrices[start + short].shape:
                found = matrices[start + short].shape
                raise wrong("conflict", start + short, found, str(tuple(weight.shape)))
        if weights and type(module) in REPLACED and not getattr(module, "proj_size", 0):
            kind = PackedLinear if isinstance(module, nn.Linear) else PackedRNN
            replacement = kind(module, frozenset(weights)).train(module.training)
            if prefix:
                model.set_submodule(prefix, replacement)
            else:
                model = replacement
        else:
            for name in (start + short for short in weights):
                for part in PARTS:
                    del state[f"{name}.{part}"]
                state[name] = torch.from_numpy(matrices[name].dense())
    parameters = dict(model.named_parameters(remove_duplicate=False))
    on_meta = any(each.is_meta for each in parameters.values())
    try:
        left = model.load_state_dict(state, strict=False, assign=on_meta)
    except RuntimeError as error:
        raise wrong("conflict", "shapes", error, "the shapes of the model") from error
    # A tied weight may stand in the file under one of its names.
    loaded = {id(each) for name, each in parameters.items() if name in state}
    missing = [
        n for n in left.missing_keys if n not in parameters or id(parameters[n]) not in loaded
    ]
    for code, names in (("missing-key", missing), ("unknown-key", left.unexpected_keys)):
        if names:
            raise wrong(code, names[0], f"{len(names)} such names", "those of the model")
    return model
