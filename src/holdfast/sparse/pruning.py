"""Pruning during training: masks that hold against momentum, weight decay, mixed precision and ties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from holdfast.errors import InputError
from holdfast.sparse.schedules import Cubic, Narang, kind_of, matches

PRUNED = (nn.Linear, nn.RNNBase, nn.RNNCellBase)
FAR = 4  # times the largest magnitude at the first update


class Pruner:
    """Prunes the matrices of linear and recurrent layers while they train.

        pruner = Pruner(model, schedule).attach(optimizer)

    After every optimizer step the masks are applied again, so that what momentum and weight decay add to
    a pruned weight is gone before the next forward pass; a pruned weight never comes back.

    Args:
        model: the model that trains.
        schedule: one for all matrices, or one per layer type ("recurrent", "linear"); types without one
            are not pruned.
        exclude: patterns of parameter names to leave dense, such as ``"decoder.*"``.
        masters: name of a parameter -> its float32 master copy, where the optimizer updates copies: masks
            are computed from the copy and applied to both.

    Attributes:
        step_count: optimizer steps so far.
        history: one row per update and matrix: step, weight, sparsity.
        masks: parameter name -> bool [rows, columns], True where a weight is kept.

    Raises:
        InputError: if nothing would be pruned.
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: Narang | Cubic | Mapping[str, Narang | Cubic],
        *,
        exclude: Sequence[str] = (),
        masters: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.step_count = 0
        self.history: list[dict[str, Any]] = []
        self.masks: dict[str, torch.Tensor] = {}
        self._weights: dict[str, torch.Tensor] = {}
        self._schedules: dict[str, Narang | Cubic] = {}
        self._masters = dict(masters or {})
        for name, kind, weight in weights_with_kind(model):
            chosen = schedule.get(kind) if isinstance(schedule, Mapping) else schedule
            if isinstance(chosen, (Narang, Cubic)) and not matches(name, exclude):
                self._weights[name] = weight
                self._schedules[name] = chosen
                self.masks[name] = torch.ones_like(weight, dtype=torch.bool)
        unknown = set(self._masters) - set(self._weights)
        if unknown or not self._weights:
            raise InputError(
                "master copies of weights that are not pruned" if unknown else "nothing to prune",
                code="unknown-name" if unknown else "no-data",
                place=f"masters, {min(unknown)}" if unknown else "model",
                expected="linear or recurrent layers with a schedule for their type",
            )

    def attach(self, optimizer: torch.optim.Optimizer) -> Pruner:
        """Prune after every step of the optimizer (those that a gradient scaler skips do not count).

        Raises:
            InputError: if the optimizer does not update a weight that is to be pruned.
        """
        updated = {each.data_ptr() for group in optimizer.param_groups for each in group["params"]}
        for name, weight in self._weights.items():
            if self._masters.get(name, weight).data_ptr() not in updated:
                raise InputError(
                    "the optimizer does not update a weight that is to be pruned",
                    code="unknown-name",
                    place=name,
                    remedy="exclude it, or give its master copy in `masters`",
                )
        optimizer.register_step_post_hook(lambda *_: self.step())
        return self

    def step(self) -> None:
        """Apply the masks after an optimizer step, and update them where the schedule says so.

        Raises:
            InputError: if an update would remove every weight of a matrix, or if q is over four times its
                largest magnitude at the first one; then no mask changes.
        """
        self.step_count += 1
        kept: dict[str, torch.Tensor] = {}
        for name in self._weights:
            # First the old mask: what momentum added to a pruned weight must not pass the threshold.
            self._apply(name)
            if self.step_count in self._schedules[name].updates:
                kept[name] = self._update(name)
        for name, mask in kept.items():
            self.masks[name] = mask
            self._apply(name)
            row = {"step": self.step_count, "weight": name, "sparsity": self.sparsity(name)}
            self.history.append(row)

    def _update(self, name: str) -> torch.Tensor:
        """The mask of a matrix after an update."""
        schedule = self._schedules[name]
        source = self._masters.get(name, self._weights[name])
        magnitudes = block_maxima(source.detach().abs(), schedule.block)
        kept = schedule.keep(magnitudes, self.step_count)
        kept = kept.repeat_interleave(schedule.block, dim=0)[: len(source)] & self.masks[name]
        largest = float(magnitudes.max())
        # Weights grow while they train, but a q so far above all of them is of other layers: refuse it
        # before the first weight is gone.
        first = isinstance(schedule, Narang) and self.step_count == schedule.updates[0]
        if not kept.any() or (first and schedule.q > FAR * largest):
            raise InputError(
                "the schedule would remove every weight",
                code="empty-layer",
                place=name,
                found=f"largest magnitude {largest:.4g} at step {self.step_count}",
                remedy="lower q, end earlier, or exclude the layer",
            )
        return kept

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _apply(self, name: str) -> None:
        for tensor in (self._weights[name], self._masters.get(name)):
            if tensor is not None:
                # Not a product: a pruned weight that became infinite would turn into NaN.
                tensor.masked_fill_(~self.masks[name].to(tensor.device), 0)

    def sparsity(self, name: str | None = None) -> float:
        """The share of pruned weights, of one matrix or of all."""
        masks = [self.masks[name]] if name else list(self.masks.values())
        total = sum(each.numel() for each in masks)
        return float(sum(int((~each).sum()) for each in masks) / total)

    def state_dict(self) -> dict[str, Any]:
        """The step and the masks, to be saved with a checkpoint."""
        return {"step": self.step_count, "masks": dict(self.masks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint.

        Raises:
            InputError: if the masks are those of another model.
        """
        for name, mask in self.masks.items():
            found = state["masks"].get(name)
            if found is None or found.shape != mask.shape:
                raise InputError(
                    "masks of another model",
                    code="conflict",
                    place=name,
                    found="none" if found is None else str(tuple(found.shape)),
                    expected=str(tuple(mask.shape)),
                )
        self.step_count = int(state["step"])
        self.masks = {name: state["masks"][name].to(mask) for name, mask in self.masks.items()}


def weights_with_kind(model: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Name, layer type and weight of every matrix of a linear or recurrent layer, tied ones once."""
    seen = set()
    for prefix, module in model.named_modules():
        for name, weight in module.named_parameters(prefix, recurse=False):
            short = name.rpartition(".")[2]  # here the type of the module says what it is
            kind = kind_of(short, weight.ndim) if isinstance(module, PRUNED) else None
            storage = (weight.data_ptr(), weight.shape)
            if kind and storage not in seen:
                seen.add(storage)
                yield name, kind, weight


def block_maxima(magnitudes: torch.Tensor, block: int) -> torch.Tensor:
    """The largest magnitude in each block of rows of a column: [ceil(rows / block), columns]."""
    rows, columns = magnitudes.shape
    padded = nn.functional.pad(magnitudes, (0, 0, 0, -rows % block))
    return padded.view(-1, block, columns).amax(dim=1)
