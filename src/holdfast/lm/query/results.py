"""What the questions of a query return: frozen, with `to_dict()` for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.lm.models.protocol import Cost
from holdfast.lm.query.queries import Event


def readable(text: bytes) -> str:
    """A text for display and JSON; bytes that are not UTF-8 are written in hexadecimal."""
    return text.decode(errors="backslashreplace")


@dataclass(frozen=True)
class Match:
    """One text, with the probability of all its encodings together."""

    text: str
    logprob: float
    """Natural logarithm of the probability found: a sum over `encodings_seen` token sequences."""
    encodings_seen: int
    """Token sequences of this text that the search followed: those that matter, rarely all (`count`)."""
    logprob_upper: float
    """Upper bound of the logarithm, with the encodings that were not followed."""
    tokens: tuple[int, ...]
    """The most probable encoding, without the prefix."""
    proven: bool = True
    """False: found before the search stopped, but another text may be more probable."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {name: getattr(self, name) for name in ROW}


ROW = ("text", "logprob", "encodings_seen", "proven")
"""The keys of a match in JSON, JSON lines and CSV."""


@dataclass(frozen=True)
class Matches:
    """The most probable texts of a query, in order, each once."""

    found: tuple[Match, ...]
    complete: bool
    """True when no other text belongs to the language, or `n` were found in proven order."""
    lower: float
    """Probability of the texts found so far."""
    upper: float
    """What the probability of the whole language can be at most."""
    cost: Cost
    stopped: str | None = None
    """Why the search ended before it was complete."""
    decoding: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Remarks about the query and the search, for people."""

    @property
    def proven(self) -> int:
        """Number of matches whose place is proven; the others follow them."""
        return sum(match.proven for match in self.found)

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON of it: the matches."""
        return [match.to_dict() for match in self.found]


@dataclass(frozen=True)
class Progress:
    """Where a search stands."""

    evaluations: int
    nodes: int
    lower: float
    """Probability of the texts found so far, or the lower bound of the mass."""
    upper: float
    found: tuple[Match, ...] = ()
    """Proven matches, in order."""
    notes: tuple[str, ...] = ()
    """Remarks so far."""


CLOSED = frozenset({"closed", "tolerance", "exact"})
"""What stops a mass whose bounds are as close as asked for."""


@dataclass(frozen=True)
class MassStep:
    """Bounds after so many evaluations."""

    evaluations: int
    lower: float
    upper: float


@dataclass(frozen=True)
class Mass:
    """The probability that what the model writes is (or starts with) a text of the language."""

    lower: float
    upper: float
    event: Event
    evaluations: int
    """Tokens that the model computed."""
    nodes: int
    """Distinct prefixes that were expanded."""
    steps: tuple[MassStep, ...]
    """How the bounds closed."""
    stopped: str
    """``closed`` (no mass left open), ``tolerance``, ``exact`` (summed over an n-gram model's contexts),
    ``budget``, ``interrupted``, or why the model stopped."""
    decoding: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Remarks about the query, for people."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "lower": self.lower,
            "upper": self.upper,
            "event": self.event,
            "evaluations": self.evaluations,
            "nodes": self.nodes,
            "stopped": self.stopped,
            "decoding": self.decoding,
        }


@dataclass(frozen=True)
class Sample:
    """One text drawn, and what it stands for."""

    text: str
    tokens: tuple[int, ...]
    logprob: float
    """Log probability of this token sequence under the model (given the prefix)."""
    log_weight: float
    """logprob minus the log probability with which it was drawn: the mean of exp(log_weight) over samples
    is an unbiased estimate of the mass; -inf for a sample that met a dead end."""


@dataclass(frozen=True)
class Samples:
    """Weighted samples of a query."""

    drawn: tuple[Sample, ...]
    method: str
    """``local`` (masked step by step) or ``exact`` (from the language itself)."""
    mass: float
    """Estimate of the mass, the mean weight."""
    mass_error: float
    """Its standard error."""
    effective: float
    """Effective sample size for the mass: (sum of weights)^2 / sum of squared weights. Its inverse, less
    that of the number of samples, is the squared relative error of the mass. Shares of texts are as
    accurate as from about so many samples without weights, and often more where texts decide weights."""
    texts: tuple[tuple[str, float], ...]
    """Each text once with its share of the weight, the largest first."""
    cost: Cost
    decoding: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None
    notes: tuple[str, ...] = ()
    """What to know of the estimate: dead ends, samples cut at a limit, tokens that no server listed."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "method": self.method,
            "mass": self.mass,
            "mass_error": self.mass_error,
            "effective": self.effective,
            "texts": [{"text": text, "share": share} for text, share in self.texts],
            "samples": [vars(sample) for sample in self.drawn],
            "decoding": self.decoding,
            "stopped": self.stopped,
            "notes": list(self.notes),
        }


Count = int | str
"""An exact number, or ``"infinite"``."""


@dataclass(frozen=True)
class Counts:
    """How many texts a query has, and how many token sequences spell them."""

    strings: Count
    token_paths: Count | None
    """None without a tokenizer."""
    by_length: tuple[tuple[int, int], ...] = ()
    """(tokens, token sequences of that length), up to the length asked for; empty if none was."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        told: dict[str, Any] = {"strings": self.strings, "token_paths": self.token_paths}
        if self.by_length:
            told["by_length"] = [
                {"tokens": size, "token_paths": paths} for size, paths in self.by_length
            ]
        return told
