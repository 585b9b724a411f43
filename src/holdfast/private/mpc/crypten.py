"""CrypTen's names, for scripts that were written for it (Knott et al., arXiv 2109.00984).

from holdfast.private.mpc import crypten          # in place of: import crypten

def main(party):                                  # in place of CrypTen's launcher
    crypten.init(party)
    train(...)

Where CrypTen differs from torch (`argmax` and `max` give one-hot vectors) its meaning counts. Operands of
products are checked to be below 1,024 where that is not known: what CrypTen gets wrong is refused here.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch import nn as torch_nn

from holdfast.files import write_whole
from holdfast.private.mpc.bounds import DEFAULT
from holdfast.private.mpc.functions import cat as cat
from holdfast.private.mpc.functions import one_hot
from holdfast.private.mpc.functions import stack as stack
from holdfast.private.mpc.functions import where as where
from holdfast.private.mpc.importing import Graph, PrivateModel, Step, import_model
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import check_finite, numbers
from holdfast.private.mpc.supply import local_supplies
from holdfast.private.mpc.tensor import SharedTensor
from holdfast.private.mpc.training import SGD, cross_entropy
from holdfast.private.mpc.transport import local_channels

_local = threading.local()  # simulated parties are threads


def init(party: Party | None = None) -> None:
    """Compute as this party from now on; without one, as before, or alone in this process."""
    if party is None and not hasattr(_local, "party"):
        party = Party(*local_channels(1), *local_supplies(1), mode="insecure-local")
    if party is not None:
        party.kind, party.expected = CrypTensor, DEFAULT
        _local.party = party


def _current() -> Party:
    init()
    return _local.party  # type: ignore[no-any-return]


# --- Tensors -------------------------------------------------------------------------------------


def cryptensor(
    values: Any = None,
    src: int = 0,
    *,
    requires_grad: bool = False,
    bound: float | None = None,
    **_: Any,
) -> SharedTensor:
    """Share the values of one party.

    Args:
        values: at the source, numbers of any shape; ignored at all others.
        src: rank of the source.
        requires_grad: whether gradients reach it.
        bound: largest magnitude, which all parties learn; by default the power of two above it, at least 1.
    """
    party = _current()
    if isinstance(values, SharedTensor):
        out = values.detach()
    else:
        given = None
        if party.rank == src:
            given = numbers(values)
            check_finite(given, "input")
            if bound is None and given.is_floating_point():
                largest = float(given.abs().max()) if given.numel() else 0.0
                bound = 2.0 ** math.ceil(math.log2(max(largest, 1.0)))
        out = party.secret(given, owner=src, bound=bound)
        out.expected = None  # its bound is that of its values
    out.requires_grad = requires_grad
    return out


class CrypTensor(SharedTensor):
    """A shared tensor whose maxima, and `get_plain_text`, are those of CrypTen."""

    ptype = "arithmetic"
    """How it is shared: there is no other way, and conversions change nothing."""

    def get_plain_text(self, dst: int | None = None) -> Any:
        """The values in torch's default type: at `dst` or, by default, at all parties."""
        values = self.reveal(dst)
        return None if values is None else values.to(torch.get_default_dtype())

    def to(self, *_: Any, **__: Any) -> CrypTensor:
        """This tensor."""
        return self

    new = staticmethod(cryptensor)

    def argmax(
        self, dim: int | None = None, keepdim: bool = False, one_hot: bool = True
    ) -> SharedTensor:
        """A 1 at the largest value; its place with ``one_hot=False``."""
        if not one_hot:
            return super().argmax(dim, keepdim)
        return self._marked(super().argmax(dim, keepdim), dim, keepdim)

    def max(self, dim: int | None = None, keepdim: bool = False, one_hot: bool = True) -> Any:
        """The largest values; along a dimension, with `argmax`."""
        best = super().max(dim, keepdim)
        if dim is None or not one_hot:
            return best
        return best[0], self._marked(best[1], dim, keepdim)

    def _marked(self, place: SharedTensor, dim: int | None, keepdim: bool) -> SharedTensor:
        if dim is None:
            return one_hot(place.reshape(()), self.numel()).reshape(self.shape)  # type: ignore[no-any-return]
        place = place.squeeze(dim) if keepdim else place
        return one_hot(place, self.shape[dim]).movedim(-1, dim)  # type: ignore[no-any-return]


MPCTensor = cryptensor


def is_encrypted_tensor(value: Any) -> bool:
    """Whether it is a shared tensor."""
    return isinstance(value, SharedTensor)


def rand(*sizes: int, **_: Any) -> SharedTensor:
    """Uniform numbers from 0 to 1 that no party knows."""
    from holdfast.private.bandits.exploration import Coins

    return Coins(_current()).uniform(*sizes)


def bernoulli(probabilities: Tensor) -> SharedTensor:
    """A secret bit for each probability."""
    return rand(*probabilities.shape) < probabilities


# --- Files and messages --------------------------------------------------------------------------


def print(*values: Any, in_order: bool = False, dst: int = 0) -> None:
    """Print at one party, or at all of them in their order."""
    import builtins

    party = _current()
    for rank in range(party.parties) if in_order else [dst]:
        if rank == party.rank:
            builtins.print(*values)
        if in_order:
            party.channel.exchange(b"")


def save(value: Any, path: str | Path, src: int | None = None) -> None:
    """Write a plain tensor or model with `torch.save`: what every party has, or at `src` alone."""
    party = _current()
    if src in (None, party.rank):
        data = io.BytesIO()
        torch.save(value, data)
        write_whole(path, data.getvalue())
    party.channel.exchange(b"")


save_from_party = save


load = torch.load
"""Models need to be registered as safe classes, or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`."""


def load_from_party(
    path: str | Path = "", src: int = 0, model_class: Callable[[], Any] | None = None, **_: Any
) -> Any:
    """Share what is in a file of one party: a tensor, secret; or a model, whose architecture is public.

    Args:
        path: read at the source; for models also at the others, if it is there.
        src: rank of the source.
        model_class: gives the architecture at those that have no file; their weights do not count.
    """
    party = _current()
    value = load(path) if party.rank == src else None
    is_model = isinstance(value, torch_nn.Module)
    if not party.broadcast(bytes([is_model]), src)[0]:
        return cryptensor(value, src)
    if is_model:
        return value
    return model_class() if model_class else load(path)


# --- Models --------------------------------------------------------------------------------------


class Model:
    """What `nn.from_pytorch` gives: a PyTorch module that `encrypt` makes secret.

    Args:
        module: the architecture, the same at all parties.
        dummy_input: inputs of the shapes that it will get, in batches of any size.
    """

    def __init__(self, module: torch_nn.Module, dummy_input: Any) -> None:
        for part in module.modules():  # torch exports weights that are parameters alone
            for name, value in part._parameters.items():
                if type(value) is Tensor:
                    part._parameters[name] = torch_nn.Parameter(value)
        self._module, self._example = module, dummy_input
        self.training, self.encrypted, self._src = module.training, False, 0
        self._private: PrivateModel | None = None
        self._trainable = False

    def encrypt(self, mode: bool = True, src: int = 0) -> Model:
        """From now on the weights are secret; those of party `src` count."""
        self.encrypted, self._src = mode, src
        return self

    def train(self, mode: bool = True) -> Model:
        """Whether the weights can be trained."""
        self.training = mode
        return self

    def eval(self) -> Model:
        """As ``train(False)``."""
        return self.train(False)

    def _imported(self, trainable: bool = False) -> PrivateModel:
        if self._private is None or trainable > self._trainable:
            self._trainable = trainable
            self._private = import_model(
                _current(), self._module, self._example, owner=self._src, trainable=trainable
            )
        return self._private

    def __call__(self, *inputs: Any) -> Any:
        """The outputs: secret ones, where the weights are."""
        return (self._imported(self.training) if self.encrypted else self._module)(*inputs)

    forward = __call__

    def parameters(self) -> list[SharedTensor]:
        """The secret weights."""
        return self._imported(True).parameters()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def update_parameters(self, learning_rate: float) -> None:
        """A step against the gradients."""
        SGD(self.parameters(), learning_rate).step()

    @property
    def _modules(self) -> dict[str, Any]:
        """Weights by their names, and operations by those of `_value_names`; each has `forward`."""
        model = self._imported()
        nodes = {
            name: SimpleNamespace(forward=lambda _, weight=weight: weight)
            for name, weight in model.named_parameters().items()
        }
        for name, step in zip(_value_names(model.graph), model.graph.steps, strict=True):

            def forward(given: Any, step: Step = step) -> Any:
                several = given if isinstance(given, list) else [given]
                return model.result(step, dict(zip(step.names(), several, strict=True)))

            nodes[name] = SimpleNamespace(forward=forward)
        return nodes

    def __getattr__(self, name: str) -> Any:
        try:
            return self._imported().named_parameters()[name]
        except KeyError:
            raise AttributeError(f"the model has no {name!r}", name=name, obj=self) from None


_ONNX = {
    "linear": "Gemm",
    "conv1d": "Conv",
    "conv2d": "Conv",
    "max_pool2d": "MaxPool",
    "avg_pool2d": "AveragePool",
}
"""Operations whose names in ONNX are not ours with a capital."""


def _value_names(graph: Graph) -> list[str]:
    """The names of what the steps give, as the exporter of torch 1.12 to ONNX makes them.

    The output is ``output``; a variable of `forward` names what it holds first; everything else is named
    by the operation that takes it, and by its number among all values.
    """
    users = {name: step.op for step in reversed(graph.steps) for name in step.names()}
    names = list[str]()
    for place, step in enumerate(graph.steps, len(graph.inputs) + len(graph.parameters)):
        user = users.get(step.result, "output")
        name = user if user == "output" else graph.variables.get(step.result)
        taken = f"onnx::{_ONNX.get(user, user.capitalize())}_{place}"
        names.append(name if name and name not in names else taken)
    return names


def _loss(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda reduction="mean": lambda output, target: getattr(of(output, target), reduction)()


nn = SimpleNamespace(
    from_pytorch=Model,
    MSELoss=_loss(lambda output, target: (output - target).square()),
    CrossEntropyLoss=lambda: cross_entropy,
)


# --- Processes and settings ----------------------------------------------------------------------


def run_multiprocess(world_size: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: run a function as all parties, in threads of this process, which protects nothing.

    Where a session of so many parties is under way already, its parties run the function.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if _current().parties == world_size:
                return function(*args, **kwargs)

            return simulate(world_size, lambda party: init(party) or function(*args, **kwargs))

        return run

    return decorated


class _Encoder:
    """How numbers are represented."""

    @property
    def precision_bits(self) -> int:
        """Fractional bits of the numbers that are shared from now on."""
        return _current().fraction_bits

    @precision_bits.setter
    def precision_bits(self, bits: int) -> None:
        _current().agree("precision_bits", bits)
        _current().fraction_bits = bits


communicator = SimpleNamespace(
    get=lambda: SimpleNamespace(
        get_rank=lambda: _current().rank, get_world_size=lambda: _current().parties
    )
)
cfg = SimpleNamespace(encoder=_Encoder())
mpc = SimpleNamespace(
    run_multiprocess=run_multiprocess,
    MPCTensor=MPCTensor,
    arithmetic="arithmetic",
    binary="binary",
    ConfigManager=lambda *_: nullcontext(),
)
common = SimpleNamespace(
    serial=SimpleNamespace(
        register_safe_class=lambda kind: torch.serialization.add_safe_globals([kind])
    )
)


def set_default_backend(backend: str) -> None:
    """Accept ``mpc``, which is the only one."""
