"""Training on one client: plain SGD, and what FedProx, SCAFFOLD and HeteroSwitch add to it.

All clients of a process share one module, whose trainable parameters are views of one vector: loading
weights, a step of SGD, a proximal term and an average of weights are each one operation on that vector.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.federated.limits import Above, Count, Natural, NotNegative
from holdfast.federated.updates import Array, Arrays, Update, Weights

Loss = Callable[[Tensor, Tensor], Tensor]
Data = tuple[Tensor, Tensor]
"""Inputs [n, ...] and targets [n, ...] of one client or device."""


@dataclass(frozen=True)
class Settings:
    """How long and how clients train."""

    rounds: Count = 20
    """Number of rounds."""
    per_round: Count = 10
    """Clients asked per round; all, where there are fewer."""
    epochs: Count = 1
    """Passes over a client's data per round."""
    batch: Count = 10
    """Examples per step; one example left over joins the step before, since BatchNorm needs two."""
    learning_rate: Above = 0.1
    """Of plain SGD on the clients."""
    seed: Natural = 0
    """Random seed: the same seed, the same result."""
    largest_norm: NotNegative | None = None
    """Updates farther than this from the global weights are excluded."""
    threads: Count = 1
    """Threads of torch: one is fastest for small models, and sums do not depend on the machine's cores."""
    evaluate_every: Count = 1
    """Rounds between evaluations; the last round is always evaluated."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Injected faults, kind -> probability per client and round; see `faults.KINDS`."""


@dataclass(frozen=True)
class Task:
    """What a client is asked to do in one round."""

    settings: Settings
    seed: tuple[int, ...]
    """Seed of everything random on this client in this round."""
    local: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the rule: clients use ``mu`` (FedProx), ``switch``, ``gain`` and ``gamma``
    (HeteroSwitch), and whether there is a ``q`` (q-FedAvg)."""
    loss_ema: float | None = None
    """Moving average of the training loss; None in the first round."""
    control: tuple[Array, Array] | None = None
    """Control variates of the server and of this client."""
    loss: Loss = cross_entropy
    """Mean loss of a batch, from outputs and targets."""


class FlatModel:
    """A copy of a module whose trainable parameters are views of one vector.

    Args:
        module: on one device, with trainable parameters of one type.

    Raises:
        InputError: ``unsupported``.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module)
        named = dict(self.module.named_parameters(remove_duplicate=False))
        # A tied parameter has several names, and one place in the vector.
        trained = list(dict.fromkeys(each for each in named.values() if each.requires_grad))
        if len({(each.dtype, each.device) for each in trained}) != 1:
            kinds = sorted({f"{each.dtype} on {each.device}" for each in trained})
            raise InputError(
                "unsupported model",
                code="unsupported",
                place="model",
                found=", ".join(kinds) or "no trainable parameters",
                expected="trainable parameters of one type on one device",
            )
        self.vector = torch.cat([each.detach().reshape(-1) for each in trained])
        self.gradient = torch.zeros_like(self.vector)
        sizes = [each.numel() for each in trained]
        parts = zip(trained, self.vector.split(sizes), self.gradient.split(sizes), strict=True)
        for each, values, gradient in parts:
            each.data, each.grad = values.view(each.shape), gradient.view(each.shape)
        self.state: dict[str, Tensor] = dict(self.module.state_dict())
        """Every name with its tensor, which follows the vector."""
        self.others = {
            name: tensor
            for name, tensor in self.state.items()
            if name not in named or not named[name].requires_grad
        }
        """Frozen parameters and buffers."""
        self.frozen = [name for name in self.others if name in named]
        self.start = self.vector.clone()
        self.start_others = dict(self.others)

    def load(self, weights: Weights) -> None:
        """Set the global weights, to which `reset` returns."""
        for name, tensor in self.state.items():
            tensor.copy_(torch.from_numpy(np.array(weights[name])))
        self.start.copy_(self.vector)
        self.start_others = {name: tensor.clone() for name, tensor in self.others.items()}

    def reset(self) -> None:
        """Return to the global weights."""
        self.vector.copy_(self.start)
        for name, tensor in self.others.items():
            tensor.copy_(self.start_others[name])

    def weights(self) -> Arrays:
        """The state as arrays."""
        return {name: as_array(tensor) for name, tensor in self.state.items()}


def as_array(tensor: Tensor) -> Array:
    """A copy as a NumPy array; bfloat16, which NumPy lacks, as float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy().copy()


def train_client(model: FlatModel, data: Data, task: Task) -> Update:
    """Train the global model on one client's data.

    HeteroSwitch (arXiv 2403.04207, algorithm 1): where the global model fits the client better than the
    moving average of losses says (switch 1), its devices are over-represented: train on randomly
    transformed images. Where the training loss stays below it too (switch 2), upload the mean of the
    weights after every batch (SWAD) instead of the last.
    """
    x, y = data
    if not len(x):
        return Update(model.weights(), 0)
    rng = np.random.default_rng(task.seed)
    # The model's own dropout. torch.manual_seed would format the stack for every client.
    torch.default_generator.manual_seed(int(rng.integers(2**62)))
    if x.is_cuda:
        torch.cuda.manual_seed(int(rng.integers(2**62)))
    metrics: dict[str, float] = {}
    # 1. The global model on this client's data.
    switch = task.local.get("switch")
    if switch is not None or "q" in task.local:  # the rule computes with it
        metrics["loss_before"] = mean_over(model.module, data, task.loss)
    first = switched(switch, "transform", metrics.get("loss_before"), task.loss_ema)
    # 2. Train, on transformed images where switch 1 is on.
    if first and switch != "averaging":
        x = random_processing(x, task.local["gain"], task.local["gamma"], rng)
    steps, total = 0, torch.zeros((), device=x.device)
    mean = torch.zeros_like(model.vector) if first else None
    penalty = None
    if task.control is not None:  # what SCAFFOLD adds to each gradient: c - c_k
        penalty = torch.from_numpy(task.control[0] - task.control[1]).to(model.vector)
    rate = task.settings.learning_rate
    model.module.train()
    for _ in range(task.settings.epochs):
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        inputs, targets = x[order], y[order]
        for begin, end in _batches(len(x), task.settings.batch):
            model.gradient.zero_()
            loss = task.loss(model.module(inputs[begin:end]), targets[begin:end])
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * (end - begin)
            if "mu" in task.local:
                model.gradient.add_(model.vector - model.start, alpha=task.local["mu"])
            if penalty is not None:
                model.gradient.add_(penalty)
            model.vector.add_(model.gradient, alpha=-rate)
            if mean is not None:
                mean += model.vector
            steps += 1
    metrics["loss"] = float(total) / (len(x) * task.settings.epochs)
    # 3. Upload the last weights, or their mean where switch 2 is on.
    second = first and switched(switch, "averaging", metrics["loss"], task.loss_ema)
    if switch is not None:
        metrics["transform"] = float(first and switch != "averaging")
        metrics["averaging"] = float(second and switch != "transform")
    control = None
    if task.control is not None:  # option II of SCAFFOLD: c_k+ - c_k = (w - w_k) / (steps rate) - c
        control = as_array((model.start - model.vector) / (steps * rate)) - task.control[0]
    if mean is not None and metrics.get("averaging"):
        model.vector.copy_(mean / steps)
    return Update(model.weights(), len(x), metrics, control=control)


def switched(switch: str | None, alone: str, loss: float | None, loss_ema: float | None) -> bool:
    """Whether a loss turns one of HeteroSwitch's switches on: it is below the moving average."""
    if switch is None or switch == "never":
        return False
    if switch == "always":
        return True
    return loss is not None and loss_ema is not None and loss < loss_ema


def random_processing(x: Tensor, gain: float, gamma: float, rng: np.random.Generator) -> Tensor:
    """Images as other image signal processors might have shown them: white balance and tone.

    Args:
        x: [n, 3, height, width] in [0, 1].
        gain: a channel is multiplied by U(1 - gain, 1 + gain), per image.
        gamma: values are raised to U(1 - gamma, 1 + gamma), per image.
        rng: random numbers.

    Raises:
        InputError: ``unsupported`` if `x` are not such images.
    """
    if x.ndim != 4 or x.shape[1] != 3 or x.min() < 0 or x.max() > 1:
        raise InputError(
            "HeteroSwitch transforms color images",
            code="unsupported",
            place="rule.switch",
            found=f"inputs of shape {list(x.shape)}, {float(x.min()):.3g} to {float(x.max()):.3g}",
            expected="[n, 3, height, width] in [0, 1]",
            remedy='normalize inside the model, or set switch to "averaging"',
        )
    gains = torch.from_numpy(rng.uniform(1 - gain, 1 + gain, (len(x), 3, 1, 1))).to(x)
    exponents = torch.from_numpy(rng.uniform(1 - gamma, 1 + gamma, (len(x), 1, 1, 1))).to(x)
    return (x * gains).clamp(0, 1) ** exponents


def _batches(n: int, size: int) -> list[tuple[int, int]]:
    """Begin and end of each batch; one example left over joins the last, since BatchNorm needs two."""
    ends = [*range(size, n - (size > 1), size), n]
    return list(zip([0, *ends], ends, strict=False))


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of the targets that have the largest output; NaN if an output is NaN.

    Args:
        outputs: [n, classes, ...].
        targets: [n, ...] numbers of classes.

    Raises:
        InputError: ``invalid-value`` for other shapes, which would be compared all with all, and
            for targets below 0.
    """
    found = f"outputs {list(outputs.shape)}, targets {list(targets.shape)} of {targets.dtype}"
    several = outputs.ndim > 1 and outputs.shape[1] > 1
    # Targets below 0, such as the -100 that cross-entropy ignores, are no classes.
    if (
        targets.is_floating_point()
        or not several
        or outputs[:, 0].shape != targets.shape
        or (targets < 0).any()
    ):
        expected = "outputs [n, classes] and whole targets [n], 0 or more; for others pass metric="
        raise invalid_value("no accuracy", None, "test", found, expected)
    correct = (outputs.argmax(dim=1) == targets).float()
    return correct.masked_fill(outputs.isnan().any(dim=1), torch.nan).mean()


def mean_over(module: nn.Module, data: Data, function: Loss, batch: int = 512) -> float:
    """Mean of a loss or metric over a data set."""
    x, y = data
    module.eval()
    total = 0.0
    with torch.inference_mode():
        for begin in range(0, len(x), batch):
            targets = y[begin : begin + batch]
            total += float(function(module(x[begin : begin + batch]), targets)) * len(targets)
    return total / len(x)
