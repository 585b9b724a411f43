"""Data of clients: other people's data sets as tensors, files, and splits over clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from holdfast.arrays import read_arrays
from holdfast.errors import InputError
from holdfast.federated.training import Data
from holdfast.federated.updates import Array

Split = Literal["even", "dirichlet"]
IMAGES = (".jpg", ".jpeg", ".png")


def as_tensors(data: Any, like: torch.Tensor, name: str) -> Data:
    """Inputs and targets of a client as tensors.

    Args:
        data: a pair (inputs, targets) of arrays or tensors, or a sequence of such pairs of single
            examples, such as a map-style torch data set.
        like: a parameter of the model, whose type and device floating-point inputs take.
        name: of the client, for errors.

    Raises:
        InputError: ``invalid-value``.
    """
    if not (isinstance(data, (tuple, list)) and len(data) == 2 and hasattr(data[0], "shape")):
        pairs = [data[place] for place in range(len(data))]
        if not pairs:
            return torch.zeros(0), torch.zeros(0)
        data = tuple(
            torch.stack([torch.as_tensor(part) for part in side])
            for side in zip(*pairs, strict=True)
        )
    x, y = (torch.as_tensor(part) for part in data)
    if len(x) != len(y):
        raise InputError(
            "inputs and targets differ in length",
            code="invalid-value",
            place=f"client {name}",
            found=f"{len(x)} inputs, {len(y)} targets",
        )
    kinds = [like.dtype if part.is_floating_point() else part.dtype for part in (x, y)]
    targets = y.to(like.device, kinds[1] if y.is_floating_point() else torch.int64)
    return x.to(like.device, kinds[0]), targets


def read_examples(path: str | Path, size: int = 32) -> tuple[Array, Array]:
    """Inputs and labels from a file or folder.

    Args:
        path: an ``.npz`` archive with ``x`` [n, ...] and ``y`` [n], or a folder with one folder of JPEG
            or PNG images per class.
        size: images of a folder are cropped to a square and resized to this many pixels.

    Returns:
        Inputs, float32: images as [n, channels, height, width] in [0, 1]; labels [n] as numbers from 0.

    Raises:
        InputError: ``not-found``, ``unknown-format``, ``missing-key``, ``no-data`` or ``invalid-value``.
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


def _read_archive(path: Path) -> tuple[Array, Array]:
    arrays = read_arrays(path, ["x", "y"], "x [n, ...], y [n]")
    x, y = arrays["x"], arrays["y"]
    if y.ndim != 1 or len(x) != len(y) or not np.isfinite(x).all():
        raise InputError(
            "inputs and labels do not fit",
            code="invalid-value",
            path=path,
            found=f"x {list(x.shape)}, y {list(y.shape)}",
            expected="x [n, ...] of finite numbers and y [n]",
        )
    return x, y


def _read_folder(path: Path, size: int) -> tuple[Array, Array]:
    from PIL import Image, ImageOps

    files = sorted(each for each in path.glob("*/*") if each.suffix.lower() in IMAGES)
    images = []
    for file in files:
        try:
            with Image.open(file) as image:
                images.append(np.asarray(ImageOps.fit(image.convert("RGB"), (size, size))))
        except OSError as error:
            raise InputError(
                "image cannot be read", code="damaged", path=file, found=str(error)
            ) from error
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
    """
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


def held_out(n: int, share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Places of training and of test examples, at random."""
    order = rng.permutation(n)
    cut = n - round(share * n)
    return order[:cut], order[cut:]


def chosen(data: tuple[Array, Array], places: Array | Sequence[int]) -> tuple[Array, Array]:
    """Examples at these places."""
    x, y = data
    return x[places], y[places]
