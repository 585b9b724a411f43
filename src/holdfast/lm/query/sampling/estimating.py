"""What weighted samples say: the mass and its error, the effective size, the share of each text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from holdfast.lm.models.protocol import F64
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.results import Sample, readable
from holdfast.lm.query.sampling.choosing import I64


def mean_and_error(log_weight: F64, groups: I64) -> tuple[float, float]:
    """The mean weight, and its standard error from the spread of the means of independent groups.

    Args:
        log_weight: [n]
        groups: [n] the independent group of each sample; samples that are independent are groups of one.

    Returns:
        (mean, standard error); the error is NaN where there is a single group.
    """
    highest = float(log_weight.max(initial=-math.inf))
    if highest == -math.inf:
        return 0.0, 0.0 if len(log_weight) else math.nan
    weight = np.exp(log_weight - highest)
    size = np.bincount(groups)
    mean = float(weight.mean())
    # A group's part of the mean, against what its size would have brought.
    apart = np.bincount(groups, weight) / len(weight) - mean * size / len(weight)
    number = len(size)
    error = math.sqrt(float((apart**2).sum()) * number / (number - 1)) if number > 1 else math.nan
    scale = math.exp(highest)
    return mean * scale, error * scale


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
    text = compiled.tokenizer.spell(compiled.prompts[prompt].tokens + tokens)
    if ended and compiled.query.event == "prefix":
        language, state = compiled.language, 0
        for size in range(len(text)):
            if language.final[state] and size >= len(compiled.prompts[prompt].text):
                return readable(text[:size])
            state = language.step(state, text[size : size + 1])
    return readable(text)
