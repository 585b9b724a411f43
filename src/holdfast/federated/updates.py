"""What a client sends back, and which of it may be averaged.

An update that cannot be used is excluded with its client, a code and a reason; it is never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.federated.limits import check_limits
from holdfast.files import write_whole

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]
"""Whole state of a model: parameters and buffers, name -> array."""


@dataclass(frozen=True)
class Update:
    """The result of training on one client."""

    weights: Weights
    """State of the model after training."""
    examples: int
    """Number of training examples behind it; 1 or more, or the update is excluded."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """``loss``: mean training loss; ``loss_before``: loss of the global model on the client's data;
    ``transform`` and ``averaging``: 1 where HeteroSwitch's switches were on."""
    client: str = ""
    """Name of the client."""
    control: Array | None = None
    """Change of the client's control variate (SCAFFOLD), a vector of all trainable parameters."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        size = sum(array.nbytes for array in self.weights.values())
        return size + (0 if self.control is None else self.control.nbytes)


@dataclass(frozen=True)
class Failure:
    """A client whose update was not used."""

    client: str
    code: str
    """``no-answer``, ``error``, or what `screen` found: ``no-examples``, ``names``, ``shape``, ``dtype``,
    ``not-finite``, ``norm``."""
    reason: str


def screen(
    current: Weights, updates: Sequence[Update], largest_norm: float | None = None
) -> tuple[list[Update], list[Failure]]:
    """Separate updates that may be averaged from those that may not.

    Args:
        current: global weights, which give names and shapes.
        updates: of one round.
        largest_norm: bound of the `distance` from the global weights; None: no bound.

    Returns:
        Usable updates in their order, and the others with the reason.

    Raises:
        InputError: ``out-of-range`` if `largest_norm` is NaN or below 0.
    """
    valid = largest_norm is None or largest_norm >= 0
    check_limits({"largest_norm": largest_norm}, {"largest_norm": (valid, "0 or more")})
    usable, failures = [], []
    for update in updates:
        problem = _problem(current, update, largest_norm)
        if problem is None:
            usable.append(update)
        else:
            failures.append(Failure(update.client, *problem))
    return usable, failures


def _problem(
    current: Weights, update: Update, largest_norm: float | None
) -> tuple[str, str] | None:
    """Code and reason why an update cannot be used; None if it can."""
    if not isinstance(update.examples, (int, np.integer)) or update.examples < 1:
        return "no-examples", f"{update.examples} examples"
    if update.weights.keys() != current.keys():
        other = sorted(update.weights.keys() ^ current.keys())
        return "names", f"{other[0]} and {len(other) - 1} other names differ"
    for name, expected in current.items():
        array = update.weights[name]
        if array.shape != expected.shape:
            return "shape", f"{name} is {list(array.shape)}, not {list(expected.shape)}"
        # An integer in the place of a float would not count in distances.
        if array.dtype.kind not in ("f" if expected.dtype.kind == "f" else "iub"):
            return "dtype", f"{name} holds {array.dtype}, not {expected.dtype}"
        if not np.isfinite(array).all():
            return "not-finite", f"{name} has NaN or infinite values"
    if update.control is not None and not np.isfinite(update.control).all():
        return "not-finite", "the control variate has NaN or infinite values"
    for name, value in update.metrics.items():
        if not np.isfinite(value):
            return "not-finite", f"{name} is {value}"
    if largest_norm is not None:
        norm = distance(current, update.weights)
        if norm > largest_norm:
            return "norm", f"{norm:.4g} from the global weights, more than {largest_norm:g}"
    return None


def flat(weights: Weights) -> Array:
    """All floating-point tensors as one vector in float64, for norms and distances.

    Integers are counters, such as BatchNorm's of batches: their differences would hide those of weights.
    """
    parts = [np.ravel(weights[name]) for name in sorted(weights) if weights[name].dtype.kind == "f"]
    return np.concatenate([np.zeros(0), *parts])


def distance(current: Weights, weights: Weights) -> float:
    """Euclidean distance between the floating-point tensors that `current` has, in float64."""
    return float(np.linalg.norm(flat({name: weights[name] for name in current}) - flat(current)))


def read_update(path: Path) -> Update:
    """An update from a safetensors file, whose metadata has the number of ``examples``.

    Raises:
        InputError: ``not-found``, ``damaged``, ``missing-key`` or ``invalid-value``.
    """
    import safetensors

    try:
        with safetensors.safe_open(path, framework="np") as file:
            noted = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise InputError("update not found", code="not-found", path=path) from error
    except (safetensors.SafetensorError, OSError, TypeError, ValueError) as error:
        raise InputError(
            "damaged safetensors file, or one with numbers that NumPy lacks",
            code="damaged",
            path=path,
            found=str(error),
            remedy="save float32 weights with safetensors.numpy.save_file",
        ) from error
    if "examples" not in noted:
        raise InputError(
            "the number of examples is missing",
            code="missing-key",
            path=path,
            place="metadata: examples",
            found=", ".join(noted) or None,
            remedy='save_file(weights, path, {"examples": "600"})',
        )
    if not noted["examples"].isdecimal():
        raise InputError(
            "invalid number of examples",
            code="invalid-value",
            path=path,
            place="metadata: examples",
            found=noted["examples"],
            expected="a whole number",
        )
    return Update(weights, int(noted["examples"]), client=path.stem)


def write_weights(path: Path, weights: Weights, metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as a safetensors file that appears whole or not at all.

    Raises:
        HoldfastError: if it cannot be written.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    write_whole(path, save(arrays, dict(metadata or {})))
