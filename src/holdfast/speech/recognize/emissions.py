"""The outputs of CTC models as ln P: logits, log-probabilities or probabilities, recognized or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.arrays import read_arrays
from holdfast.errors import InputError

Kind = Literal["auto", "logits", "log", "probabilities"]
"""What values are: any real numbers, ln P, or P; auto recognizes it."""

Emissions = NDArray[np.float32]
"""[frames, labels] ln P."""

_SUM_TOLERANCE = 0.02
"""Rows of probabilities in half precision sum to 1 within this."""
LENGTHS = ("lengths", "length", "logit_lengths", "logits_lengths", "input_lengths", "frames")


def log_probabilities(values: Any, kind: Kind = "auto", place: str = "logits") -> Emissions:
    """One utterance's outputs as ln P.

    Args:
        values: [frames, labels].
        kind: what the values are.
        place: what the array is called, for errors.

    Raises:
        InputError: not a matrix of real numbers; NaN or +infinity; a frame without any probability; values
            between 0 and 1 that are not probabilities, which could be anything.
    """
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            "not a matrix of numbers",
            code="invalid-value",
            place=place,
            found=f"{array.dtype} of shape {array.shape}",
            expected="[frames, labels]",
        )
    if not array.size:
        return np.zeros((0, array.shape[1]), np.float32)
    array = array.astype(np.float64)
    kind = _recognized(array, place) if kind == "auto" else kind
    if kind == "probabilities":
        with np.errstate(divide="ignore", invalid="ignore"):
            array = np.log(array)
    top = array.max(1, keepdims=True)  # NaN if one is
    if not np.isfinite(top).all():
        frame = int(np.argmin(np.isfinite(top)))
        raise InputError(
            "a frame without probabilities",
            code="invalid-value",
            place=f"{place}, frame {frame}",
            found=np.array2string(np.asarray(values)[frame], threshold=8, edgeitems=3),
            expected="numbers, or -inf for labels that are impossible; of probabilities, one above 0",
            remedy="find out why the model gives it; its text would be arbitrary",
        )
    # Of ln P, this is ln P.
    array -= top
    array -= np.log(np.exp(array).sum(1, keepdims=True))
    return np.ascontiguousarray(array, np.float32)


def _recognized(array: NDArray[np.float64], place: str) -> Kind:
    """Probabilities by their sums; all else is normalized, which changes nothing in ln P.

    Raises:
        InputError: costs, which normalizing would turn upside down; values from 0 to 1 with other sums.
    """
    if array.min() < 0:
        return "logits"
    if array.max() <= 1 + _SUM_TOLERANCE:
        if np.allclose(array.sum(1), 1, atol=_SUM_TOLERANCE):
            return "probabilities"
        raise InputError(
            "outputs between 0 and 1 that are not probabilities",
            code="ambiguous",
            place=place,
            found=f"rows that sum to {array.sum(1).min():.3g} to {array.sum(1).max():.3g}",
            expected="probabilities (rows sum to 1), their logarithms, or logits",
            remedy="say what they are: values = logits or probabilities",
        )
    if np.allclose(np.exp(-array).sum(1), 1, atol=_SUM_TOLERANCE):
        raise InputError(
            "negative logarithms of probabilities",
            code="unsupported",
            place=place,
            expected="logarithms, which are at most 0",
            remedy="change their sign",
        )
    return "logits"


def utterances(
    values: Any, lengths: Sequence[int] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Name -> [frames, labels] of each utterance, and what is doubtful about them.

    Args:
        values: [frames, labels], [utterances, frames, labels], a list of the former, or name -> one of
            the former, or a single name -> batch.
        lengths: [utterances] frames of a batch that are not padding.

    Raises:
        InputError: lengths that do not fit.
    """
    if isinstance(values, (list, tuple)):
        values = {f"logits[{k}]": each for k, each in enumerate(values)}
    given = values if isinstance(values, Mapping) else {"logits": values}
    named = {name: _array(each) for name, each in given.items()}
    if lengths is None and all(each.ndim != 3 for each in named.values()):
        return named, []
    if len(named) != 1:
        raise _unfit(", ".join(named))
    ((name, batch),) = named.items()
    if batch.ndim != 3:
        batch = batch[None]
    counts = np.full(len(batch), batch.shape[1]) if lengths is None else np.ravel(lengths)
    whole = counts.size == len(batch) and counts.dtype.kind in "iu"
    if not whole or not ((counts >= 0) & (counts <= batch.shape[1])).all():
        raise _unfit(f"{counts.tolist()} for shape {batch.shape}")
    parts = {f"{name}[{k}]": batch[k, :count] for k, count in enumerate(counts)}
    doubt = "The batch has no lengths: padding, if any, was decoded as speech."
    return parts, [doubt] if lengths is None and len(batch) > 1 else []


def _array(values: Any) -> NDArray[Any]:
    """Also of torch tensors that NumPy refuses: bfloat16, with a gradient, of another device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def read_emissions(path: Path) -> tuple[dict[str, Any], Any]:
    """Arrays of an ``.npz`` file, and the lengths of its batch or None; see `utterances`.

    Raises:
        InputError: if it cannot be read, or has no outputs.
    """
    arrays = read_arrays(path)
    lengths = [name for name in arrays if name in LENGTHS and arrays[name].ndim <= 1]
    outputs = {name: array for name, array in arrays.items() if name not in lengths}
    if not outputs:
        raise InputError("no arrays", code="empty-input", path=path, expected="[frames, labels]")
    return outputs, arrays[lengths[0]] if lengths else None


def _unfit(found: str) -> InputError:
    return InputError(
        "the lengths do not fit the outputs",
        code="conflict",
        place="lengths",
        found=found,
        expected="one batch [utterances, frames, labels] and a whole number of frames for each utterance",
    )
