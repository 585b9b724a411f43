"""The probability of what is given, by which the weights of samples are divided."""

from __future__ import annotations

import numpy as np

from holdfast.lm.models.protocol import F64, LanguageModel
from holdfast.lm.query.compiling import CompiledQuery


def log_given_of(model: LanguageModel, compiled: CompiledQuery) -> tuple[F64, tuple[str, ...]]:
    """Log probability of the bytes given by each prompt, and what to know of it."""
    return np.zeros(len(compiled.prompts)), ()
