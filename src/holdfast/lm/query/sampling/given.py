"""The probability of what is given, by which the weights of samples are divided."""

from __future__ import annotations

import math

import numpy as np

from holdfast.lm.models.protocol import F64, LanguageModel
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.exact import exact_log_given, has_finite_contexts
from holdfast.lm.query.searches.evaluating import Evaluator
from holdfast.lm.query.searches.given import scales

TOLERANCE = 1e-4
"""Relative gap between the bounds at which they are close enough: far below the error of any sample."""


def log_given_of(
    model: LanguageModel, compiled: CompiledQuery, batch: int
) -> tuple[F64, tuple[str, ...]]:
    """Log probability of the bytes given by each prompt, and what to know of it.

    Exact for models of finitely many contexts; otherwise the (geometric) middle of bounds that a search
    closes, to `TOLERANCE` or until its budget is spent. Samples of what is given would have more error than
    samples of what follows.

    Raises:
        InputError: if the model gives a prefix probability 0.
    """
    if not any(prompt.given_automaton for prompt in compiled.prompts):
        return np.zeros(len(compiled.prompts)), ()
    if has_finite_contexts(model):
        logs = [
            exact_log_given(model, compiled, prompt) if prompt.automaton.start >= 0 else 0.0
            for prompt in compiled.prompts
        ]
        return np.array(logs), ()
    evaluator = Evaluator(model, batch, None)
    with evaluator.interruptible():
        found = scales(evaluator, compiled, TOLERANCE)
    if evaluator.stopped == "interrupted":  # nothing was drawn yet that could be kept
        raise KeyboardInterrupt
    logs = [
        math.log(prompt.share) - scale.start
        for prompt, scale in zip(compiled.prompts, found, strict=True)
    ]
    widest = max(scale.up / scale.down for scale in found)
    if widest <= 1 + 10 * TOLERANCE:
        return np.array(logs), ()
    why = evaluator.stopped or "its search ended"
    return np.array(logs), (
        f"the prefix has a probability known within a factor of {widest:.3g} only ({why}): so has the mass",
    )
