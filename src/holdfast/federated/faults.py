"""Injected faults of clients: what a study of unreliable devices switches on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from holdfast.config import invalid_value, unknown_key
from holdfast.federated.updates import Update, Weights


def moved(update: Update, current: Weights, factor: float) -> Update:
    """The update with its step from the global weights multiplied."""
    weights = {
        name: (array + factor * (update.weights[name] - array)).astype(array.dtype)
        for name, array in current.items()
    }
    return replace(update, weights=weights)


KINDS = {
    "drop": lambda update, current: update,
    "nan": lambda update, current: moved(update, current, np.nan),
    "flip": lambda update, current: moved(update, current, -1.0),
    "huge": lambda update, current: moved(update, current, 1e6),
}
"""Kind -> what becomes of an update: ``drop`` does not answer, ``nan`` has diverged, ``flip`` lies (it
uploads the opposite step), ``huge`` uploads a million times its step."""


def check_faults(faults: Mapping[str, float]) -> None:
    """Refuse unknown kinds and impossible probabilities.

    Raises:
        InputError: ``unknown-key`` or ``invalid-value``.
    """
    for kind in faults:
        if kind not in KINDS:
            raise unknown_key(kind, KINDS, "faults")
    shares = list(faults.values())
    if not (min(shares, default=0) >= 0 and sum(shares) <= 1):
        expected = "0 or more each, at most 1 together"
        raise invalid_value("invalid probabilities", None, "faults", shares, expected)


def drawn_fault(faults: Mapping[str, float], rng: np.random.Generator) -> str | None:
    """The fault of one client in one round; None for most."""
    ends = np.cumsum(list(faults.values()))
    return [*faults, None][np.searchsorted(ends, rng.random(), side="right")]
