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
    wrong = np.isnan(array) | (array == np.inf)
    if wrong.any():
        frame, label = np.argwhere(wrong)[0]
        raise InputError(
            "not a number" if np.isnan(array[frame, label]) else "an infinite output",
            code="invalid-value",
            place=f"{place}, frame {frame}, label {label}",
            found=f"{array[frame, label]} ({wrong.any(1).sum()} of {len(array)} frames)",
            expected="finite numbers, or -inf for labels that are impossible",
            remedy="find out why the model gives it; its text would be arbitrary",
        )
    kind = _recognized(array, place) if kind == "auto" else kind
    if kind == "probabilities":
        if array.min() < 0:
            raise InputError(
                "a negative probability",
                code="invalid-value",
                place=place,
                found=f"{array.min():g}",
            )
        with np.errstate(divide="ignore"):
            array = np.log(array)
    top = array.max(1, keepdims=True)
    if not np.isfinite(top).all():
        frame = int(np.argmin(top[:, 0]))
        raise InputError(
            "a frame in which no label is possible",
            code="invalid-value",
            place=f"{place}, frame {frame}",
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
    values: Any, lengths: Sequence[int] | None = None, name: str = "logits"
) -> dict[str, Any]:
    """Name -> [frames, labels] of an utterance or a padded batch.

    Args:
        values: [frames, labels], [utterances, frames, labels], or a list of the former.
        lengths: [utterances] frames of each that are not padding.
        name: of the array.

    Raises:
        InputError: other shapes, or lengths that do not fit.
    """
    if isinstance(values, (list, tuple)):
        return {f"{name}[{k}]": each for k, each in enumerate(values)}
    array = np.asarray(values)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        raise InputError(
            "not outputs of a CTC model",
            code="invalid-value",
            place=name,
            found=f"an array of shape {array.shape}",
            expected="[frames, labels] or [utterances, frames, labels]",
        )
    if lengths is None:
        lengths = [array.shape[1]] * len(array)
    counts = np.asarray(lengths).reshape(-1)
    fits = counts.size == len(array) and counts.dtype.kind in "iu"
    if not fits or (counts.size and not 0 <= counts.min() <= counts.max() <= array.shape[1]):
        raise InputError(
            "the lengths do not fit the batch",
            code="conflict",
            place="lengths",
            found=f"{counts.size} lengths up to {counts.max(initial=0)} for shape {array.shape}",
            expected="one whole number of frames per utterance of [utterances, frames, labels]",
        )
    if np.asarray(values).ndim == 2:
        return {name: array[0, : counts[0]]}
    return {
        f"{name}[{k}]": part[:count]
        for k, (part, count) in enumerate(zip(array, counts, strict=True))
    }


def padded(batch: NDArray[Any]) -> list[str]:
    """What is doubtful about a batch [utterances, frames, labels] without lengths."""
    doubt = "The batch has no lengths: padding, if any, was decoded as speech."
    return [doubt] if len(batch) > 1 else []


def read_emissions(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Name -> [frames, labels] of an ``.npz`` file, and what is doubtful about it.

    The file has matrices, one per utterance under its name, or one batch [utterances, frames, labels] with
    ``lengths``, the frames of each that are not padding.

    Raises:
        InputError: if it is something else.
    """
    arrays: Mapping[str, Any] = read_arrays(path)
    lengths = [name for name in arrays if name in LENGTHS and arrays[name].ndim <= 1]
    outputs = {name: array for name, array in arrays.items() if name not in lengths}
    if not outputs:
        raise InputError("no arrays", code="empty-input", path=path, expected="[frames, labels]")
    if len(lengths) > 1 or (lengths and len(outputs) > 1):
        raise InputError(
            "lengths of several arrays",
            code="conflict",
            path=path,
            found=", ".join(arrays),
            expected="one batch and its lengths, or one matrix per utterance",
        )
    found: dict[str, Any] = {}
    doubts: list[str] = []
    for name, array in outputs.items():
        try:
            found |= utterances(array, arrays[lengths[0]] if lengths else None, name)
        except InputError as error:
            raise error.at(path) from error
        if array.ndim == 3 and not lengths:
            doubts += padded(array)
    return found, doubts
