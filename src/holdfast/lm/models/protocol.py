"""What every backend is to a query: log-probabilities of the next token after given prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from holdfast.lm.tokenizers.tokenizer import Tokenizer

F64 = npt.NDArray[np.float64]
Prefix = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NextToken:
    """The distribution of the token that follows one prefix."""

    logprobs: F64
    """[V] natural logarithm of the probability of every id; -inf where the model lists none."""
    rest: float = 0.0
    """Probability that lies on ids which the model did not list; 0 when it tells them all."""
    ranked: int | None = None
    """So many of the listed ids are certainly the most probable of all; None: every listed one is more
    probable than any that is not listed. A server may list a token by a text that could be several ids: it
    stays in `rest`, and ranks below it are not certain."""


@dataclass
class Cost:
    """What a model was made to do; every backend keeps one and only adds to it."""

    calls: int = 0
    """Requests or forward passes."""
    evaluations: int = 0
    """Tokens that the model computed: what a cache spares does not count."""
    nodes: int = 0
    """Distinct prefixes whose next token was asked for; evaluations / nodes is 1 at best."""
    retries: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return dict(vars(self))


@dataclass(eq=False)
class ModelStopped(Exception):
    """A backend gave up (server gone, budget spent); answers so far stand, bounds stay valid.

    A query catches it and ends with ``stopped`` set to `reason`.
    """

    reason: str
    answered: dict[int, NextToken] = field(default_factory=dict)
    """Answers of the batch that did arrive, by place in the batch."""

    def __str__(self) -> str:
        return self.reason


class LanguageModel(Protocol):
    """A model that tells the distribution of the next token.

    Prefixes never hold BOS: a model that has one puts it in front by itself. An empty prefix asks for the
    first token of a text.
    """

    name: str
    tokenizer: Tokenizer
    context: int | None
    """The longest prefix, in tokens (BOS not counted), that it can continue; None without a limit."""
    cost: Cost

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix, in order.

        Raises:
            ModelStopped: if the model cannot continue.
        """
        ...
