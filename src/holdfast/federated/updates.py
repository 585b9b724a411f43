"""What a client sends back, and which of it may be averaged.

An update that cannot be used is excluded with its client, a code and a reason; it is never averaged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.arrays import read_tensors
from holdfast.config import invalid_value
from holdfast.files import write_whole

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Weights = Mapping[str, Array]
"""Whole state of a model: parameters and buffers, name -> array."""
Record = dict[str, Any]
"""A row of a table, an entry of a file."""


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
        arrays = [*dict(self.weights or {}).values(), self.control]
        return sum(getattr(array, "nbytes", 0) for array in arrays)


@dataclass(frozen=True)
class Failure:
    """A client whose update was not used."""

    client: str
    code: str
    """``no-answer``, ``error``, or what `screen` found: ``no-examples``, ``names``, ``shape``, ``dtype``,
    ``not-finite``, ``no-metric``, ``norm``."""
    reason: str


def screen(
    current: Weights,
    updates: Sequence[Update],
    largest_norm: float | None = None,
    buffers: Collection[str] = (),
    needs: str = "",
) -> tuple[list[Update], list[Failure]]:
    """Separate updates that may be averaged from those that may not.

    Args:
        current: global weights, which give names and shapes.
        updates: of one round.
        largest_norm: bound of the `distance` from the global weights; None: no bound.
        buffers: names that are not trained, and have no part in the distance.
        needs: the metric that every update has to have, or ``control``; empty: none.

    Returns:
        Usable updates in their order, and the others with the reason.

    Raises:
        InputError: ``invalid-value`` if `largest_norm` is NaN or below 0.
    """
    if largest_norm is not None and not largest_norm >= 0:
        raise invalid_value("invalid bound", None, "largest_norm", largest_norm, "0 or more")
    compared = trained(current, buffers)
    usable, failures = [], []
    for update in updates:
        problem = _problem(current, update, needs)
        if problem is None and largest_norm is not None:
            norm = distance(compared, update.weights)
            if norm > largest_norm:
                reason = f"a step of norm {norm:.4g}, more than {largest_norm:g}"
                problem = "norm", reason
        if problem is None:
            usable.append(update)
        else:
            failures.append(Failure(update.client, *problem))
    return usable, failures


def _problem(current: Weights, update: Update, needs: str) -> tuple[str, str] | None:
    """Code and reason why an update cannot be used; None if it can."""
    counts = isinstance(update.examples, (int, np.integer))
    if not counts or not 1 <= update.examples < 2**63:
        return "no-examples", "not a number of 1 to 2^63 examples"
    if not isinstance(update.weights, Mapping):
        return "names", f"weights are {type(update.weights).__name__}, not arrays by name"
    if update.weights.keys() != current.keys():
        other = sorted(update.weights.keys() ^ current.keys())
        return "names", f"{other[0]} and {len(other) - 1} other names differ"
    for name, expected in sorted(current.items()):
        array = update.weights[name]
        if not isinstance(array, (np.ndarray, np.generic)):
            return "dtype", f"{name} is {type(array).__name__}, not a NumPy array"
        if array.shape != expected.shape:
            return "shape", f"{name} is {list(array.shape)}, not {list(expected.shape)}"
        # An integer in the place of a float would not count in distances.
        if array.dtype.kind not in ("f" if expected.dtype.kind == "f" else "iub"):
            return "dtype", f"{name} holds {array.dtype}, not {expected.dtype}"
        with np.errstate(over="ignore"):  # what float64 holds may be too large for the model
            finite = np.isfinite(array.astype(expected.dtype, copy=False)).all()
        if not finite:
            return "not-finite", f"{name} has NaN or infinite values in {expected.dtype}"
    known = {**update.metrics, **({} if update.control is None else {"control": update.control})}
    for name, value in known.items():
        if np.asarray(value).dtype.kind not in "fiub":
            return "dtype", f"{name} is {type(value).__name__}, not a number"
        if not np.isfinite(value).all():
            return "not-finite", f"{name} has NaN or infinite values"
    # Of losses q-FedAvg takes powers.
    if needs and (needs not in known or (needs == "loss_before" and known[needs] < 0)):
        return "no-metric", f"{needs} is {known.get(needs)}, and the rule computes with it"
    return None


def trained(current: Weights, buffers: Collection[str]) -> Arrays:
    """Parameters: what norms and distances compare.

    Integers are counters, such as BatchNorm's of batches: their differences would hide those of weights.
    """
    names = [name for name, array in current.items() if array.dtype.kind == "f"]
    return {name: current[name] for name in names if name not in buffers}


def flat(weights: Weights) -> Array:
    """All tensors as one vector in float64, in the order of their names."""
    return np.concatenate([np.zeros(0), *(np.ravel(weights[name]) for name in sorted(weights))])


def unflat(vector: Array, like: Weights) -> Arrays:
    """The tensors of a vector that `flat` made of some of the same names and shapes."""
    names = sorted(like)
    parts = np.split(vector, np.cumsum([like[name].size for name in names]))
    return {name: part.reshape(like[name].shape) for name, part in zip(names, parts, strict=False)}


def distance(current: Weights, weights: Weights) -> float:
    """Euclidean distance between the tensors that `current` has, in float64."""
    return float(np.linalg.norm(flat({name: weights[name] for name in current}) - flat(current)))


def digest(arrays: Weights) -> str:
    """SHA-256 of arrays with their names, types and shapes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name}\0{array.dtype.str}{array.shape}\0".encode() + array.tobytes())
    return total.hexdigest()


def read_update(path: Path) -> Update:
    """An update from a safetensors file, whose metadata has the number of ``examples``.

    Raises:
        InputError: ``not-found`` or ``damaged``.
    """
    remedy = 'save_file(weights in float32, path, {"examples": "600"}) of safetensors.numpy'
    weights, noted = read_tensors(path, remedy=remedy)
    count = noted.get("examples", "")
    # Whatever is not a number is 0, which `screen` excludes.
    examples = int(count) if count.isdecimal() and len(count) < 19 else 0
    return Update(weights, examples, client=str(path))


def write_weights(path: Path, weights: Weights, metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as a safetensors file that appears whole or not at all.

    Raises:
        HoldfastError: if it cannot be written.
    """
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in weights.items()}
    write_whole(path, save(arrays, dict(metadata or {})))
