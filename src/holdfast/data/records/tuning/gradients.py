"""Gradients of the same batches at several fidelities, taken without a trace in the training run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from holdfast.data.records.tuning.scores import Products, Score, exactly_alike, score
from holdfast.data.records.tuning.snapshot import Snapshot
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

Batches: TypeAlias = Callable[[int], Iterable[tuple[Any, Any]]]
"""Fidelity -> the fixed batches (images [B, C, H, W], labels [B]) at it, without augmentation."""
Loss: TypeAlias = Callable[[Any, Any], Any]
"""(outputs of the model, labels) -> the mean loss over the batch, a scalar tensor."""

MEMORY_BYTES = 1 << 30
"""What the gradients kept for the error of the scores may take."""
_COLUMNS = 1 << 20
"""Elements a row that are widened to float64 at once."""


@dataclass(frozen=True)
class Probe:
    """How a model's gradients are taken.

    Args:
        model: an `nn.Module`; of a `DistributedDataParallel` the module inside is used, because its own
            passes would wait for the other ranks.
        loss: gives the mean loss over a batch.
        batches: gives the fixed batches at a fidelity; the same number, sizes and order at each.
        optimizers: whose state is kept and put back, though a probe makes no step.
        scaler: an AMP scaler: its scale multiplies the loss, so that small gradients survive float16.
        autocast: makes the context in which the model runs, for example
            ``lambda: torch.autocast("cuda", torch.bfloat16)``.
        generators: random generators, besides the global ones, from which the model draws.
        memory_bytes: what may be spent on keeping the batches' gradients apart for the error of the
            scores; with less, batches are put together into blocks, and with one block there is no error.
    """

    model: Any
    loss: Loss
    batches: Batches
    optimizers: Sequence[Any] = ()
    scaler: Any = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    generators: Sequence[Any] = ()
    memory_bytes: int = MEMORY_BYTES

    def scores(self, fidelities: Iterable[int], full: int) -> tuple[Score, ...]:
        """The cosine of the gradient at each fidelity with that at full fidelity.

        Every pass sees the same batches with the same random draws (dropout): the global generators are
        seeded with the batch's number before each. Modes of modules stay as they are while the model is in
        training, so that layers frozen in eval mode stay frozen; a model in eval mode is put in training.
        Afterwards the training run is bit for bit as it was (see `Snapshot`).

        Args:
            fidelities: candidates g, from 1.
            full: G.

        Returns:
            A score for each candidate, in ascending order, and 1 for `full` itself.

        Raises:
            InputError: if the batches differ between fidelities, no parameter is trained, or the model's
                gradients cannot be asked for.
        """
        model = _inside_wrapper(self.model)
        trained = [one for one in model.parameters() if one.requires_grad]
        _check_trained(trained)
        snapshot = Snapshot(
            model, optimizers=self.optimizers, scaler=self.scaler, generators=self.generators
        )
        with snapshot, torch.enable_grad():
            if not model.training:
                model.train()
            reference, sizes = self._blocks(model, trained, full, snapshot)
            full_products = _products(reference, reference)
            scores = []
            for fidelity in sorted(set(fidelities) - {full}):
                gradients, sizes_here = self._blocks(model, trained, fidelity, snapshot)
                _check_sizes(sizes, sizes_here, fidelity)
                products = Products(
                    full_products,
                    _products(reference, gradients),
                    _products(gradients, gradients),
                )
                scores.append(score(fidelity, products))
        return (*scores, exactly_alike(full))

    def _blocks(
        self, model: Any, trained: Sequence[Any], fidelity: int, snapshot: Snapshot
    ) -> tuple[Any, list[int]]:
        """Gradients of the summed loss by block of batches [blocks, parameters], and the batches' sizes."""
        width = sum(one.numel() for one in trained)
        most = max(1, self.memory_bytes // (2 * width * trained[0].element_size()))
        rows: list[Any] = []
        sizes = []
        for number, batch in enumerate(self.batches(fidelity)):
            images, labels = _pair(batch)
            snapshot.restore_buffers()
            snapshot.restore_random()
            _seed(number)
            row = self._gradient(model, trained, images, labels)
            if number < most:
                rows.append(row)
            else:
                rows[number % most] += row
            sizes.append(len(labels))
        if not sizes:
            raise InputError(
                "the probe has no batches",
                code="no-data",
                place=f"fidelity {fidelity}",
                remedy="give at least one batch; ten are usual",
            )
        return torch.stack(rows), sizes

    def _gradient(self, model: Any, trained: Sequence[Any], images: Any, labels: Any) -> Any:
        """The flat gradient of the loss summed over a batch [parameters]."""
        with self.autocast():
            loss = self.loss(model(images), labels)
        # The sum, not the mean: the sum over batches is then the gradient of one batch of them all.
        # The scale is only read: `scaler.scale` would leave a trace in the scaler.
        scaled = loss * (len(labels) * (1.0 if self.scaler is None else self.scaler.get_scale()))
        # Not `backward`: it would add to `.grad`, and run the hooks by which gradients are shared
        # between ranks, or by which some optimisers step.
        gradients = torch.autograd.grad(scaled, trained, allow_unused=True)
        return torch.cat(
            [
                (torch.zeros_like(one) if gradient is None else gradient.detach()).reshape(-1)
                for one, gradient in zip(trained, gradients, strict=True)
            ]
        )


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        keys = f" with {', '.join(map(str, batch))}" if isinstance(batch, dict) else ""
        raise InputError(
            "a batch for the probe is not a pair of images and labels",
            code="invalid-value",
            place="batches",
            found=f"{type(batch).__name__}{keys}",
            expected="(images [B, C, H, W], labels [B])",
            remedy="let transform make a pair of an item: (item['image'], item['label'])",
        )
    return batch[0], batch[1]


def _products(left: Any, right: Any) -> Any:
    """Inner products between rows, in float64 [rows, rows]."""
    total = np.zeros((len(left), len(right)))
    for start in range(0, left.shape[1], _COLUMNS):
        parts = [side[:, start : start + _COLUMNS] for side in (left, right)]
        if left.device.type == "mps":  # it has no float64
            parts = [part.cpu() for part in parts]
        a, b = (part.to(torch.float64) for part in parts)
        total += (a @ b.T).cpu().numpy()
    return total


def _seed(number: int) -> None:
    """Seed the global generators, so that a batch meets the same draws at every fidelity."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    # Not `torch.manual_seed`: it would leave its seed to devices that are started later.
    torch.default_generator.manual_seed(number)
    for device in (torch.cuda, torch.xpu):
        if device.is_initialized():
            device.manual_seed_all(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


def _inside_wrapper(model: Any) -> Any:
    parallel = torch.nn.parallel
    if isinstance(model, (parallel.DistributedDataParallel, parallel.DataParallel)):
        return model.module
    return model


def _check_trained(trained: Sequence[Any]) -> None:
    if not trained:
        raise InputError(
            "the model has no trainable parameters",
            code="invalid-value",
            remedy="set requires_grad on the parameters that the optimiser changes",
        )
    kinds = {(one.dtype, one.device) for one in trained}
    if len(kinds) > 1 or any(type(one).__name__ == "DTensor" for one in trained):
        raise InputError(
            "the model's parameters are spread over devices, types or ranks",
            code="unsupported",
            found=", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds)),
            expected="parameters of one type on one device, whole on every rank",
            remedy="choose the fidelity by MS-SSIM or by the loss, which ask for no gradients",
        )


def _check_sizes(expected: list[int], found: list[int], fidelity: int) -> None:
    if expected != found:
        raise InputError(
            "the batches differ between this fidelity and full fidelity",
            code="conflict",
            place=f"fidelity {fidelity}",
            found=f"batches of {found} images",
            expected=f"batches of {expected} images",
        )
