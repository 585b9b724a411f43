"""Data of clients: other people's data sets as tensors, files, and splits over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta

from holdfast.arrays import read_arrays
from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.federated.limits import Above, Count, Part, check
from holdfast.federated.training import Data
from holdfast.federated.updates import Array

Examples = tuple[Array, Array]
Split = Literal["even", "dirichlet"]
IMAGES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class DataSettings:
    """Where examples come from, and how clients share them."""

    path: str
    """An ``.npz`` file with x and y, or a folder with one folder of images per class."""
    clients: Count = 10
    """Number of clients."""
    split: Split = "even"
    """``even``, or ``dirichlet``: clients have different classes."""
    alpha: Above = 0.5
    """Of the Dirichlet distribution; smaller: clients differ more."""
    test_share: Part = 0.2
    """Share of the examples held out to measure accuracy."""
    proxy_share: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Share of the other examples that the server itself has (rule deepsa)."""
    size: Annotated[int, Meta(ge=8)] = 32
    """Pixels to which images of a folder are resized."""


def as_tensors(data: Any, like: torch.Tensor, name: str) -> Data:
    """Inputs and targets of a client as tensors.

    Args:
        data: a pair (inputs, targets) of arrays, tensors or nested lists, or a sequence of such pairs of
            single examples, such as a map-style torch data set.
        like: a parameter of the model, whose type and device floating-point inputs take.
        name: of the client, for errors.

    Raises:
        InputError: ``invalid-value``.
    """
    try:
        if not _is_pair(data):
            data = list(zip(*(data[place] for place in range(len(data))), strict=True))
        x, y = map(_tensor, data or ((), ()))
        differ = len(x) != len(y)
    except (TypeError, ValueError, RuntimeError) as error:
        problem, found = "data of a client cannot be read", f"{type(error).__name__}: {error}"
        expected = "(inputs, targets) of numbers in one shape, or a sequence of such examples"
        raise invalid_value(problem, None, f"client {name}", found, expected) from error
    if differ:
        problem, found = "inputs and targets differ in length", f"{len(x)}, {len(y)}"
        raise invalid_value(problem, None, f"client {name}", found, "one target per input")
    inputs = x.to(like.device, like.dtype if x.is_floating_point() else x.dtype)
    return inputs, y.to(like.device, like.dtype if y.is_floating_point() else torch.int64)


def _is_pair(data: Any) -> bool:
    """Whether data is (inputs, targets) rather than two examples, each an (input, target)."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    first = data[0]
    # An example in a list has an input of numbers and a target that is one: [[0.1, 0.2], 1].
    listed = isinstance(first, list) and len(first) == 2 and np.ndim(first[1]) < np.ndim(first[0])
    return not isinstance(first, tuple) and not listed


def _tensor(part: Any) -> torch.Tensor:
    if isinstance(part, torch.Tensor):
        return part
    if isinstance(part, (list, tuple)) and part and isinstance(part[0], torch.Tensor):
        return torch.stack(list(part))
    array = np.asarray(part)
    # torch takes no arrays that are backwards, read-only, or in the other order of bytes.
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def read_examples(path: str | Path, size: int = 32) -> Examples:
    """Inputs and labels from a file or folder.

    Args:
        path: an ``.npz`` archive with ``x`` [n, ...] and ``y`` [n], or a folder with one folder of JPEG
            or PNG images per class.
        size: images of a folder are turned upright, cropped to a square and resized to this many pixels.

    Returns:
        Inputs, float32: images as [n, channels, height, width] in [0, 1]; labels [n] as numbers from 0.

    Raises:
        InputError: ``not-found``, ``unknown-format``, ``missing-key``, ``no-data``, ``invalid-value``
            or ``damaged``.
    """
    path = Path(path)
    x, y = _read_folder(path, size) if path.is_dir() else _read_archive(path)
    if not len(x):
        raise InputError("no examples", code="no-data", path=path)
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / 255
        if x.ndim == 3:  # gray images
            x = x[:, None]
        elif x.ndim == 4 and x.shape[-1] in (1, 3):
            x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x, np.float32), np.unique(y, return_inverse=True)[1]


def _read_archive(path: Path) -> Examples:
    arrays = read_arrays(path, ["x", "y"], "x [n, ...], y [n]")
    x, y = arrays["x"], arrays["y"]
    broken = y.dtype.kind == "f" and (y % 1).any()
    if y.ndim != 1 or len(x) != len(y) or not np.isfinite(x).all() or broken:
        found = f"x {list(x.shape)}, y {list(y.shape)} of {y.dtype}"
        expected = "x [n, ...] of finite numbers and y [n] of classes"
        raise invalid_value("inputs and labels do not fit", path, "x, y", found, expected)
    return x, y


def _read_folder(path: Path, size: int) -> Examples:
    from PIL import Image, ImageOps

    found = path.glob("[!.]*/[!.]*")  # hidden ones are not the user's
    files = sorted(each for each in found if each.suffix.lower() in IMAGES)
    images = []
    for file in files:
        try:
            with Image.open(file) as image:
                deep = image.mode.startswith(("I", "F"))
                upright = ImageOps.exif_transpose(image).convert("RGB")
                images.append(np.asarray(ImageOps.fit(upright, (size, size))))
        except OSError as error:
            raise InputError(
                "image cannot be read", code="damaged", path=file, found=str(error)
            ) from error
        if deep:
            expected = "8 bits per color; pass others as arrays in an .npz file"
            raise invalid_value("image cannot be read", file, "mode", image.mode, expected)
    return np.array(images), np.array([file.parent.name for file in files])


def split_examples(
    labels: Array, clients: int, split: Split, alpha: float, rng: np.random.Generator
) -> list[Array]:
    """Places of the examples of each client, at random.

    Args:
        labels: [n] numbers of classes.
        clients: number of clients.
        split: even: equal numbers of any class. dirichlet: the shares of each class over the clients are
            drawn from a symmetric Dirichlet distribution (Hsu et al., arXiv 1909.06335); a client may get
            nothing.
        alpha: of the distribution; 0.1 gives most clients two or three classes.
        rng: random numbers.

    Raises:
        InputError: ``invalid-value`` or ``unknown-name``.
    """
    check(DataSettings("", clients, split, alpha))
    order = rng.permutation(len(labels))
    if split == "even":
        return np.array_split(order, clients)
    parts: list[list[Array]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        places = order[labels[order] == label]
        ends = np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(places)
        for part, chosen in zip(parts, np.split(places, np.rint(ends).astype(int)), strict=True):
            part.append(chosen)
    return [np.concatenate(part) for part in parts]


def held_out(data: Examples, share: float, rng: np.random.Generator) -> tuple[Examples, Examples]:
    """Examples to train on, and to test on, at random."""
    order = rng.permutation(len(data[0]))
    cut = len(order) - round(share * len(order))
    return chosen(data, order[:cut]), chosen(data, order[cut:])


def chosen(data: Examples, places: Array | Sequence[int]) -> Examples:
    """Examples at these places."""
    x, y = data
    return x[places], y[places]
