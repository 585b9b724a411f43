"""One forward pass on a device: without data (meta, fake tensors), or really.

The weights of the caller's module are never touched: on a device without data the module runs with empty
stand-ins of its parameters and buffers. What fails on meta tensors runs with fake tensors, and what needs
values runs on the CPU; a note says which and why.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from holdfast.errors import InputError
from holdfast.numbers import size
from holdfast.profile.ops.formulas import tensors
from holdfast.profile.ops.recording import Recorder
from holdfast.profile.ops.targets import refused

# Parameters up to this size are filled at random where a model must really run.
MOST_BYTES = 4 << 30

# Where a model can run; what fails on one is tried on the next.
DEVICES = ("meta", "fake", "cpu")
_NEXT = {
    "meta": "fake tensors were used.",
    "fake": "it ran on the CPU with random or its own weights: counts may depend on values.",
}

# Where a module keeps its parameters and buffers.
_TENSORS = ("_parameters", "_buffers")

# Names of the implementations of `scaled_dot_product_attention`.
ATTENTION = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}


@dataclass
class Workload:
    """A model and what it is called with.

    Args:
        module: the model; its parameters may be on the device meta.
        args: positional inputs.
        kwargs: named inputs.
        name: for titles.
        notes: what was assumed, for the reader.
        rebuild: makes the model on the CPU, with the weights that its own code initializes.
        training: record backward and optimizer, too.
    """

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    notes: list[str] = field(default_factory=list)
    rebuild: Callable[[], nn.Module] | None = None
    training: bool = False

    def tensors(self) -> list[Tensor]:
        """All input tensors."""
        return [x for x in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(x, Tensor)]

    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers; those with two names once."""
        return dict(self.module.named_parameters()) | dict(self.module.named_buffers())

    def mapped(self, convert: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
        """Inputs with each tensor converted once; other objects, such as caches, are copied."""
        convert = cache(convert)

        def leaf(each: Any) -> Any:
            return convert(each) if isinstance(each, Tensor) else copy.deepcopy(each)

        return pytree.tree_map(leaf, (self.args, self.kwargs))


@contextmanager
def settings(attention: str, gradients: bool = False) -> Iterator[None]:
    """No compiled code, gradients or none, and the attention that was requested."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(gradients))
        if {"torch._dynamo", "torch.nn.attention.flex_attention"} & sys.modules.keys():
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if attention in ATTENTION:
            stack.enter_context(sdpa_kernel(ATTENTION[attention]))
        torch.backends.mha.set_fastpath_enabled(False)  # one operator that hides a whole layer
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def count(work: Workload, device: str, attention: str) -> tuple[Recorder, str]:
    """Record one forward pass; returns the recorder and the device that it ran on.

    Args:
        work: what to run.
        device: of `DEVICES`.
        attention: fused, or a key of `ATTENTION`.

    Raises:
        InputError: ``invalid-value`` if the model does not accept the inputs; ``data-dependent`` if it
            needs values and is too large to run.
    """
    reasons: list[Exception] = []
    if any("_orig_mod" in name for name, _ in work.module.named_modules()):
        work.notes.append("Compiled modules were counted operator by operator, without fusion.")
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in work.module.modules())
    for place in DEVICES[DEVICES.index(device) :]:
        try:
            if place == "cpu":
                _check(work, reasons)
            return _RUNS[place](work, attention), place
        except InputError:
            raise
        except Exception as error:
            # The same error without data and with fake data is due to the model or its inputs; scripted
            # modules take no other weights than their own.
            same = any(str(error) == str(each) for each in reasons) and not scripted
            if place not in _NEXT or same:
                raise _refused(work, error) from error
            reasons.append(error)
            work.notes.append(
                f"The model does not run on {place} tensors ({_short(error)}); {_NEXT[place]}"
            )
    raise AssertionError("unreachable")


def probe(work: Workload, place: str) -> Recorder | None:
    """One more forward pass without data; None where the model does not take the inputs."""
    try:
        return _on_meta(work, "fused") if place == "meta" else _on_fake(work, "fused")
    except Exception:  # whatever the model raises on another shape
        return None


def _on_meta(work: Workload, attention: str) -> Recorder:
    stand_in = partial(_stand_in, device="meta")
    state = {name: stand_in(each) for name, each in work.state().items()}
    args, kwargs = work.mapped(stand_in)
    return _record(work.module, state, args, kwargs, attention, work.training)


def _on_fake(work: Workload, attention: str) -> Recorder:
    # Autocast casts on its own device alone: stand-ins are where the weights are. Meta is nowhere.
    home = next((each.device for each in work.state().values() if not each.is_meta), "cpu")

    def fake(each: Tensor) -> Tensor:
        return _stand_in(each, home if each.is_meta else each.device)

    with FakeTensorMode(allow_non_fake_inputs=True):
        state = {name: fake(each) for name, each in work.state().items()}
        args, kwargs = work.mapped(fake)
        return _record(work.module, state, args, kwargs, attention, work.training)


def _stand_in(each: Tensor, device: Any) -> Tensor:
    """A tensor without data, laid out alike: what is expanded is read once, products fold as they did."""
    like: Any = {"dtype": each.dtype, "layout": each.layout, "requires_grad": each.requires_grad}
    return torch.empty_strided(each.shape, each.stride(), device=device, **like)


def _on_cpu(work: Workload, attention: str) -> Recorder:
    """Run the model; what has no data is filled at random (seed 0), in the workload itself."""
    state = work.state().values()
    if any(each.is_meta for each in state):
        work.notes.append("The weights are random (seed 0).")
        if work.rebuild:
            work.module = work.rebuild()
        else:
            work.module = copy.deepcopy(work.module).to_empty(device="cpu")
            _initialize(work.state())
    elif any(each.device.type != "cpu" for each in state):
        work.module = copy.deepcopy(work.module).to("cpu")
    work.args, work.kwargs = work.mapped(_filled)
    args, kwargs = copy.deepcopy((work.args, work.kwargs))
    return _record(work.module, None, args, kwargs, attention)


_RUNS = {"meta": _on_meta, "fake": _on_fake, "cpu": _on_cpu}


def _initialize(state: Mapping[str, Tensor]) -> None:
    """Small normal numbers; scales of norms 1."""
    with torch.no_grad():
        for name, each in state.items():
            if each.is_floating_point() and each.dim() == 1 and name.endswith("weight"):
                each.fill_(1.0)
            elif each.is_floating_point():
                each.normal_(0, 0.02)
            else:
                each.zero_()


def _filled(each: Tensor) -> Tensor:
    """A tensor with data: its own, or normal numbers; integers are zeros, valid as indices of anything."""
    if not each.is_meta:
        return each.to("cpu")
    if not each.is_floating_point():
        return torch.zeros(each.shape, dtype=each.dtype)
    return torch.randn(each.shape, generator=torch.Generator().manual_seed(0)).to(each.dtype)


def _record(
    module: nn.Module,
    state: dict[str, Tensor] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attention: str,
    training: bool = False,
) -> Recorder:
    """Run and record a module, with other parameters where they are given."""
    work = Workload(module, args, kwargs)
    fixed = list((state or work.state()).values())
    recorder = Recorder(module, work.tensors(), fixed, attention != "math")
    # What a forward pass keeps in attributes, such as tables of positions, must not stay without data. Of
    # modules that are there twice, functional_call leaves its own tensors in the place of the weights.
    attributes = [
        (each, vars(each) | {name: copy.copy(vars(each)[name]) for name in _TENSORS})
        for each in module.modules()
    ]
    trained = [
        state[name].requires_grad_()
        for name, each in module.named_parameters()
        if state and training and each.requires_grad
    ]
    for each in module.modules() if training else ():
        each.training = True
    try:
        with settings(attention, training), recorder.active():
            if state is None:
                module(*args, **kwargs)
            else:
                out = torch.func.functional_call(module, state, args, kwargs, tie_weights=True)
            if training:
                recorder.train(trained, tensors(out))
    finally:
        for each, values in attributes if state is not None else ():
            each.__dict__.clear()
            each.__dict__.update(values)
    return recorder


def _check(work: Workload, reasons: Sequence[Exception]) -> None:
    """Refuse to run what needs gradients, or weights that are too large."""
    found = _short(reasons[0]) if reasons else "cpu"
    if work.training:
        problem, expected = "training needs a model that runs without data", "--trace for its time"
        raise refused(problem, "unsupported", "--training", found, expected)
    needed = sum(each.nbytes for each in work.state().values() if each.is_meta)
    if reasons and needed > MOST_BYTES:
        raise refused(
            "the model needs values to run, and is too large to be filled at random",
            "data-dependent",
            work.name or None,
            f"{found}; parameters of {size(needed)}",
            f"parameters of at most {size(MOST_BYTES)}",
            remedy="make a smaller configuration, or remove the operation that depends on values",
        )


def describe(work: Workload) -> str:
    """Shapes and types of the inputs."""
    shapes = [f"{tuple(each.shape)} {each.dtype}".replace("torch.", "") for each in work.tensors()]
    return ", ".join(shapes)


def _refused(work: Workload, error: Exception) -> InputError:
    return refused(
        "the model does not run on these inputs",
        "invalid-value",
        work.name or None,
        f"{type(error).__name__}: {_short(error)}; inputs {describe(work) or 'none'}",
        remedy="call the model on such inputs in Python; where that works, report the operator",
    )


def _short(error: Exception) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:160]
