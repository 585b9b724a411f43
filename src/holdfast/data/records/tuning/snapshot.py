"""What a training run holds, kept while its model is probed, and put back bit by bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from holdfast.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


class Snapshot:
    """The state of a training run at one moment; a context manager that puts it back at the end.

    Kept: parameters and buffers (BatchNorm statistics among them), which of them required gradients, the
    `.grad` fields (taken away meanwhile, so that nothing adds to them, and put back as the same tensors),
    train or eval mode of each module, random generators (Python, NumPy's global one, torch's on CPU and on
    accelerators in use, those given), and, where given, the state of optimisers and of the AMP scaler.

    Args:
        model: an `nn.Module`.
        optimizers: `torch.optim.Optimizer`s; a copy of their state is kept, which takes memory.
        scaler: a `torch.amp.GradScaler`.
        generators: further `torch.Generator`s or `numpy.random.Generator`s that the model draws from.
    """

    def __init__(
        self,
        model: Any,
        *,
        optimizers: Iterable[Any] = (),
        scaler: Any = None,
        generators: Iterable[Any] = (),
    ) -> None:
        self._modes = [(module, module.training) for module in model.modules()]
        self._parameters = [
            (parameter, parameter.detach().clone(), parameter.grad, parameter.requires_grad)
            for parameter in model.parameters()
        ]
        self._buffers = [
            (module, name, buffer, None if buffer is None else buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]
        self._optimizers = [_KeptOptimizer(optimizer) for optimizer in optimizers]
        self._scaler = scaler
        self._scaling = None if scaler is None else copy.deepcopy(scaler.state_dict())
        self._random = _random_states(generators)

    def __enter__(self) -> Self:
        for parameter, *_ in self._parameters:
            parameter.grad = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Put everything back."""
        self.restore_buffers()
        for parameter, kept, grad, required in self._parameters:
            parameter.requires_grad_(required)
            _refill(parameter, kept)
            parameter.grad = grad
        for module, training in self._modes:
            module.training = training
        for optimizer in self._optimizers:
            optimizer.restore()
        if self._scaling:
            self._scaler.load_state_dict(self._scaling)
        self.restore_random()

    def restore_buffers(self) -> None:
        """Put the buffers back: the same tensors with the same content."""
        for module, name, buffer, kept in self._buffers:
            module._buffers[name] = buffer
            if buffer is not None:
                _refill(buffer, kept)

    def restore_random(self) -> None:
        """Put the random generators back."""
        for put_back in self._random:
            put_back()


class _KeptOptimizer:
    """A copy of an optimiser's state, and the tensors that it was taken from."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._state = {
            parameter: {name: (value, _copied(value)) for name, value in held.items()}
            for parameter, held in optimizer.state.items()
        }
        self._groups = [
            {name: _copied(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]

    def restore(self) -> None:
        state = self._optimizer.state
        for parameter in [one for one in state if one not in self._state]:
            del state[parameter]
        for parameter, held in self._state.items():
            state[parameter] = {
                name: _put_back(value, kept) for name, (value, kept) in held.items()
            }
        for group, kept_group in zip(self._optimizer.param_groups, self._groups, strict=True):
            for name in [one for one in group if one != "params" and one not in kept_group]:
                del group[name]
            group.update({name: _copied(value) for name, value in kept_group.items()})


def _random_states(generators: Iterable[Any]) -> list[Callable[[], object]]:
    """For each random generator, a function that puts its present state back."""
    made: list[Callable[[], object]] = [
        partial(random.setstate, random.getstate()),
        partial(np.random.set_state, np.random.get_state()),  # noqa: NPY002
        partial(torch.set_rng_state, torch.get_rng_state()),
    ]
    # Asking a device that was not used yet would start it; until then it draws nothing.
    made += [
        partial(device.set_rng_state_all, device.get_rng_state_all())
        for device in (torch.cuda, torch.xpu)
        if device.is_initialized()
    ]
    if torch.backends.mps.is_available():
        made.append(partial(torch.mps.set_rng_state, torch.mps.get_rng_state()))
    for generator in generators:
        if isinstance(generator, torch.Generator):
            made.append(partial(generator.set_state, generator.get_state()))
        else:
            drawn_by = generator.bit_generator
            made.append(partial(setattr, drawn_by, "state", copy.deepcopy(drawn_by.state)))
    return made


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _put_back(value: Any, kept: Any) -> Any:
    if isinstance(value, torch.Tensor):
        _refill(value, kept)
        return value
    return copy.deepcopy(kept)


def _refill(tensor: Any, kept: Any) -> None:
    """Give a tensor its old content; one that has it is not touched, so that a graph stays valid."""
    with torch.no_grad():
        if not torch.equal(_bits(tensor), _bits(kept)):
            tensor.copy_(kept)


def _bits(tensor: Any) -> Any:
    """The bytes of a tensor: NaN equals NaN, and -0.0 is not 0.0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
