"""Rules of decoding: which tokens a model may write next, and with what probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lm.models.protocol import NextToken
from holdfast.lm.query.queries import Query

F64 = npt.NDArray[np.float64]

FIRST_GUESS = 256
"""Tokens among which a nucleus is looked for; eight times as many until it is found."""


@dataclass(frozen=True)
class Rule:
    """Temperature, then top-k, then top-p: each makes a new distribution of what the one before it left."""

    top_k: int | None = None
    top_p: float | None = None
    temperature: float = 1.0

    @classmethod
    def of(cls, query: Query) -> Rule:
        """The rule that a query names."""
        return cls(query.top_k, query.top_p, query.temperature)

    @property
    def plain(self) -> bool:
        """Whether the model's own distribution stands."""
        return self.top_k is None and self.top_p is None and self.temperature == 1


def decode(answer: NextToken, rule: Rule) -> NextToken:
    """The distribution that a rule makes of a model's; ties go to the lower id.

    Where the model lists only its most probable tokens, the rule must be certain from those: top-k with k
    of them listed, or a nucleus (at temperature 1) that they hold.

    Args:
        answer: the distribution of the next token, not masked, end of text included.
        rule: temperature, top-k, top-p.

    Returns:
        The new distribution; nothing of it is unlisted, unless the rule is plain.

    Raises:
        InputError: if the list is too short for the rule.
    """
    if rule.plain:
        return answer
    short, listed = answer.rest > 0, len(answer.logprobs)
    if short:  # not all that are listed need be the most probable ones
        listed = int(np.count_nonzero(answer.logprobs > -np.inf))
        listed = listed if answer.ranked is None else min(listed, answer.ranked)
    if short and not (rule.top_k is not None and rule.top_k <= listed):
        if rule.top_k is not None or rule.top_p is None or rule.temperature != 1:
            raise _too_short(rule, listed)
        total = 0.0  # the logarithm of 1: what is listed is already a probability
    scaled = answer.logprobs / rule.temperature
    if rule.top_k is not None:
        kept = _largest(scaled, rule.top_k)
        if rule.top_p is not None:
            total = log_sum(scaled[kept])
            kept = kept[: _nucleus(scaled[kept], total, rule.top_p) or len(kept)]
    elif rule.top_p is not None:
        if not short:
            total = log_sum(scaled)
        guess = FIRST_GUESS
        while True:
            kept = _largest(scaled, guess)
            size = _nucleus(scaled[kept], total, rule.top_p)
            if short and size > listed:
                raise _too_short(rule, listed)
            if size or len(kept) < guess or guess >= len(scaled):
                break
            guess *= 8
        if not size and short:
            raise _too_short(rule, listed)
        kept = kept[: size or len(kept)]
    else:
        return NextToken(scaled - log_sum(scaled))
    decoded = np.full(len(scaled), -np.inf)
    decoded[kept] = scaled[kept] - log_sum(scaled[kept])
    return NextToken(decoded)


def log_sum(values: F64) -> float:
    """Log of the sum of exp of values; -inf for none."""
    top = float(values.max(initial=-np.inf))
    if top == -math.inf:
        return top
    return top + math.log(float(np.exp(values - top).sum()))


def _largest(scores: F64, number: int) -> npt.NDArray[np.intp]:
    """Places of the largest finite scores, the largest first; ties by place."""
    places = np.arange(len(scores))
    if number < len(scores):
        bar = np.partition(scores, len(scores) - number)[len(scores) - number]
        above = np.flatnonzero(scores > bar)
        places = np.append(above, np.flatnonzero(scores == bar)[: number - len(above)])
    places = places[scores[places] > -np.inf]
    order: npt.NDArray[np.intp] = places[np.lexsort((places, -scores[places]))]
    return order


def _nucleus(scores: F64, total: float, top_p: float) -> int:
    """How many of the scores (the largest first) reach `top_p`; 0 when they do not."""
    reached = np.cumsum(np.exp(scores - total)) >= top_p
    return int(np.argmax(reached)) + 1 if reached.any() else 0


def _too_short(rule: Rule, listed: int) -> InputError:
    named = ", ".join(
        f"{name} {value}"
        for name, value in vars(rule).items()
        if value is not None and (name, value) != ("temperature", 1)
    )
    return InputError(
        "the model lists too few tokens for this rule of decoding",
        code="out-of-range",
        found=f"{named}, with {listed} tokens listed",
        expected="a rule that the most probable tokens decide: top_k of at most as many as are listed, "
        "or temperature 1 and a nucleus that they hold",
        remedy=f"ask with top_k={listed} or fewer, or let the server list more tokens",
    )
