"""Labelled points and programs that tests share, and how they ask for a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InputError


def points(n: int, d: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Overlapping normal classes of equal size: features, labels 0, 1, ..."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(classes, d))[y] + rng.normal(size=(n, d)), y


def rotation(d: int, seed: int = 0) -> Any:
    """An orthogonal matrix: another choice of axes."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def refusal(call: Callable[..., Any], *arguments: Any, **settings: Any) -> tuple[str, str | None]:
    """Code and place of the error that a call ends with."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **settings)
    return caught.value.code, caught.value.place


WORDS = [
    f"{a}{b}" for a in ("row", "node", "edge", "path", "time") for b in ("", "s", "_id", "_of")
]


def program(rng: np.random.Generator) -> str:
    """A function or a few that loop, test and index."""
    parts = []
    for _ in range(rng.integers(2, 6)):
        f, x, y, z = (str(word) for word in rng.choice(WORDS, 4, replace=False))
        end = rng.choice([f"{y}.append({z}[0])", f"return {z}", f"print({x}, {y}[1])"])
        parts.append(
            f"def {f}_{rng.integers(999)}({x}, {y}):\n"
            f"    for {z} in {x}:\n"
            f"        if {y} is None or {z}[{rng.integers(4)}] == {rng.integers(99)}:\n"
            f"            {end}\n"
            f"    return {x}[{rng.integers(3)}] + {rng.integers(9999)}\n\n"
        )
    return "".join(parts)
