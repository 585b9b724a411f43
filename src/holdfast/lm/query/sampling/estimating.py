"""What weighted samples say: the mass and its error, the effective size, the share of each text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from holdfast.lm.models.protocol import F64
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.results import Sample, readable


def mean_and_error(log_weight: F64) -> tuple[float, float]:
    """The mean weight of independent samples, and its standard error.

    Args:
        log_weight: [n]

    Returns:
        (mean, standard error); the error is NaN for a single sample.
    """
    highest = float(log_weight.max(initial=-math.inf))
    if highest == -math.inf:
        return 0.0, 0.0 if len(log_weight) else math.nan
    weight, scale = np.exp(log_weight - highest), math.exp(highest)
    error = float(weight.std(ddof=1)) / math.sqrt(len(weight)) if len(weight) > 1 else math.nan
    return float(weight.mean()) * scale, error * scale


def effective_size(log_weight: F64) -> float:
    """(sum of weights)^2 / sum of squared weights; 0 when none weighs anything."""
    highest = log_weight.max(initial=-math.inf)
    if highest == -math.inf:
        return 0.0
    weight = np.exp(log_weight - highest)
    return float(weight.sum() ** 2 / (weight**2).sum())


def shares_of_texts(samples: Sequence[Sample]) -> tuple[tuple[str, float], ...]:
    """Each text once with its share of all weight, the encodings of a text together, the largest first."""
    by_text: dict[str, list[float]] = defaultdict(list)
    highest = max((sample.log_weight for sample in samples), default=-math.inf)
    if highest == -math.inf:
        return ()
    for sample in samples:
        if sample.log_weight > -math.inf:
            by_text[sample.text].append(math.exp(sample.log_weight - highest))
    total = math.fsum(weight for weights in by_text.values() for weight in weights)
    shares = ((text, math.fsum(weights) / total) for text, weights in by_text.items())
    return tuple(sorted(shares, key=lambda pair: (-pair[1], pair[0])))


def text_of(compiled: CompiledQuery, prompt: int, tokens: tuple[int, ...], ended: bool) -> str:
    """The text of a sample, the prefix included.

    For the event ``prefix`` the text that came first: bytes with which the last token ran over its end, and
    which belong to no text of the language, are left out.
    """
    before = compiled.prompts[prompt]
    text = before.head + compiled.tokenizer.spell(before.tokens + tokens)
    if ended and compiled.query.event == "prefix":
        language, state = compiled.language, 0
        for size in range(len(text)):
            if language.final[state] and size >= len(before.text):
                return readable(text[:size])
            state = language.step(state, text[size : size + 1])
    return readable(text)
