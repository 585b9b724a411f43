"""Layer dropout and early-exit loss on a causal model of transformers, whatever loop trains it.

The model's forward pass is extended in place: in training mode its layers run only the samples that keep
them, and the loss that it returns for `labels` is that of the exits. In evaluation mode nothing changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.exit_recipe import ExitRecipe


class ExitTraining:
    """A model that trains by a recipe until `detach`.

        training = ExitTraining(model, ExitRecipe(), steps)
        for step in range(steps):
            training.begin(step)
            model(input_ids=ids, labels=ids).loss.backward()      # any optimizer, also under DDP

    Args:
        model: causal model of transformers, of a supported family. Wrap it by DDP afterwards.
        recipe: layer dropout, weights and curriculum.
        steps: optimizer steps of the whole run.

    Attributes:
        losses: exit -> its cross entropy in the last forward pass.
        rows_run: samples that each layer has run so far, for the compute that dropout saves.

    Raises:
        InputError: ``unsupported`` if the model has other parts than expected, or fewer than two layers.
    """

    def __init__(self, model: Any, recipe: ExitRecipe, steps: int) -> None:
        self.model, self.recipe, self.steps = model, recipe, steps
        arch = architecture(model)
        self.layers, self.norm, self.head = arch.layers, arch.norm, arch.head
        if len(self.layers) < 2:
            raise InputError(
                "a model of one layer has no early exit", code="unsupported", place="model"
            )
        self.losses: dict[int, Tensor] = {}
        self.rows_run = [0] * len(self.layers)
        self._step, self._pass = 0, -1
        self._states: dict[int, Tensor] = {}
        self._rows: list[Tensor | None] = [None] * len(self.layers)
        self._signature = inspect.signature(model.forward)
        self._use_cache = model.config.use_cache
        model.config.use_cache = False  # skipped samples would leave holes in the cache
        for place, layer in enumerate(self.layers):
            layer.forward = self._dropping(place, layer.forward)  # type: ignore[assignment]
        self._hooks = [
            model.register_forward_pre_hook(self._draw, with_kwargs=True),
            model.register_forward_hook(self._replace_loss, with_kwargs=True),
        ]

    def begin(self, step: int) -> None:
        """Start an optimizer step; call it before its first forward pass."""
        self._step, self._pass = step, -1

    def detach(self) -> None:
        """Give the model its own forward pass back."""
        for hook in self._hooks:
            hook.remove()
        for layer in self.layers:
            layer.__dict__.pop("forward", None)
        self.model.config.use_cache = self._use_cache

    # The rows are drawn once per forward pass and not where the layer runs: gradient checkpointing runs a
    # layer twice and must skip the same samples.
    def _draw(self, model: nn.Module, arguments: Any, options: Any) -> None:
        self._states = {}
        self._rows = [None] * len(self.layers)
        if not model.training:
            return
        self._pass += 1
        inputs = self._signature.bind_partial(*arguments, **options).arguments
        ids = inputs.get("input_ids")
        batch = (inputs["inputs_embeds"] if ids is None else ids).shape[0]
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        count = len(self.layers)
        for layer in range(count):
            rows = self.recipe.active_rows(
                self._step, self.steps, self._pass, layer, count, batch, rank
            )
            self.rows_run[layer] += len(rows)
            if len(rows) < batch:
                self._rows[layer] = torch.from_numpy(rows)

    def _dropping(self, place: int, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        layer = self.layers[place]

        def forward(hidden: Tensor, *arguments: Any, **options: Any) -> Tensor:
            rows = self._rows[place]
            if not layer.training or rows is None:
                output = run(hidden, *arguments, **options)
            elif len(rows) == 0:
                output = _Skip.apply(hidden, *layer.parameters())
            else:
                rows = rows.to(hidden.device)
                batch = hidden.shape[0]
                part = run(
                    hidden[rows],
                    *(_select(value, rows, batch) for value in arguments),
                    **{name: _select(value, rows, batch) for name, value in options.items()},
                )
                output = hidden.index_copy(0, rows, part.to(hidden.dtype))
            if layer.training and torch.is_grad_enabled():
                self._states[place] = output
            return output

        return forward

    def _replace_loss(self, model: nn.Module, arguments: Any, options: Any, output: Any) -> Any:
        states, self._states = self._states, {}
        inputs = self._signature.bind_partial(*arguments, **options).arguments
        inputs |= inputs.pop("kwargs", {})
        labels = inputs.get("labels")
        if not model.training or labels is None or not states:
            return output
        weights = self.recipe.exit_weights(self._step, self.steps, len(self.layers))
        last = len(self.layers) - 1
        self.losses = {last: output.loss}
        for layer, state in states.items():
            if layer < last and weights[layer] > 0:
                logits = self.head(self.norm(state))  # [B, T, vocabulary]
                self.losses[layer] = self.model.loss_function(
                    logits=logits,
                    labels=labels,
                    vocab_size=logits.shape[-1],
                    num_items_in_batch=inputs.get("num_items_in_batch"),
                )
        output.loss = sum(float(weights[exit_]) * loss for exit_, loss in self.losses.items())
        self.losses = {exit_: loss.detach() for exit_, loss in self.losses.items()}
        return output


class _Skip(torch.autograd.Function):
    """Identity whose parameters get zero gradients.

    A layer that every sample of this process skips takes part in the step all the same: DDP waits for the
    gradients of all parameters, and optimizers treat None and zero differently.
    """

    @staticmethod
    def forward(context: Any, hidden: Tensor, *parameters: Tensor) -> Tensor:
        context.parameters = parameters
        return hidden.view_as(hidden)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        zeros = (torch.zeros_like(p) if p.requires_grad else None for p in context.parameters)
        return gradient, *zeros


def _select(value: Any, rows: Tensor, batch: int) -> Any:
    """Rows of what belongs to samples: tensors [batch, ...], also in tuples (rotary cosines and sines)."""
    if isinstance(value, tuple):
        return tuple(_select(part, rows, batch) for part in value)
    # Vectors belong to positions; masks and positions that all samples share have a first dimension of 1.
    if isinstance(value, Tensor) and value.ndim > 1 and value.shape[0] == batch:
        return value[rows]
    return value
