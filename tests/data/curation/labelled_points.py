"""Labelled points that tests of scores, choices and values share, and how they ask for a refusal."""

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
