"""The answers to the questions about a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.answer import (
    Answer,
    ColumnFormat,
    Finding,
    How,
    Section,
    Table,
    Unknown,
    Value,
    measured,
)
from holdfast.lm.models.protocol import Cost
from holdfast.lm.query.queries import Event, Query
from holdfast.numbers import bounds, counted, number, probability
from holdfast.report import figures

_ENDINGS = {
    "closed": "no mass is left open",
    "tolerance": "the gap is within the tolerance",
    "exact": "summed exactly",
    "budget": "the budget is spent",
    "interrupted": "interrupted",
}
_EVENTS = {
    "exact": "the output is a text that matches, and ends",
    "prefix": "the output starts with a text that matches",
}


def readable(text: bytes) -> str:
    """A text for display and JSON; bytes that are not UTF-8 are written in hexadecimal."""
    return text.decode(errors="backslashreplace")


def about(query: Query, model: str) -> tuple[tuple[str, str], ...]:
    """Label and text of each input."""
    rows = [("Model", model), ("Regular expression", query.regex)]
    if query.prefix is not None:
        rows.append(("Prefix", query.prefix))
    if query.prompt is not None:
        rows.append(("Prompt", query.prompt))
    rows.append(("Encodings", query.encodings))
    if query.decoding():
        rows.append(("Decoding", ", ".join(f"{k}={v}" for k, v in query.decoding().items())))
    return tuple(rows)


class QueryAnswer(Answer):
    """An answer of a model, which may have stopped before it was complete."""

    def gap(self) -> str | None:
        """Why the answer is not complete; None if it is."""
        stopped: str | None = getattr(self, "stopped", None)
        return stopped

    @property
    def exit_code(self) -> int:
        """0; 130 after Ctrl-C; 1 where the answer is not complete."""
        gap = self.gap()
        return 130 if gap == "interrupted" else int(gap is not None)

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Model and query, as the answer's `query_inputs` has them."""
        inputs: Sequence[tuple[str, str]] = getattr(self, "query_inputs", ())
        return inputs

    def unknowns(self) -> Sequence[Unknown]:
        """Why it is not complete."""
        gap = self.gap()
        if gap is None:
            return ()
        text = f"The answer is not complete: {_ENDINGS.get(gap, gap)}."
        remedy = "Raise the budget, or query fewer or shorter texts."
        return (Unknown(text, remedy, doubt=True),)


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
_KINDS = {
    "place": pa.int64(),
    "text": pa.string(),
    "logprob": pa.float64(),
    "encodings_seen": pa.int64(),
    "repeats": pa.int64(),
    "proven": pa.bool_(),
}


@dataclass(frozen=True)
class Matches(QueryAnswer):
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
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def proven(self) -> int:
        """Number of matches whose place is proven; the others follow them."""
        return sum(match.proven for match in self.found)

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON of it: the matches."""
        return [match.to_dict() for match in self.found]

    def values(self) -> Sequence[Value]:
        """The most probable text, the mass and what they cost."""
        mass = (self.lower + self.upper) / 2
        return [
            *measured(self, found="texts", proven="texts, higher"),
            Value("mass", mass, ci95=(self.lower, self.upper), how="bounds that always hold"),
            *measured(self.cost, evaluations="tokens, lower"),
        ]

    def sections(self) -> Sequence[Section]:
        """The texts."""
        texts = "All texts" if self.complete else f"Of {counted(len(self.found), 'text')}"
        proven = "are proven" if self.complete else f"{self.proven} are proven"
        sentence = (
            f"{texts} {proven}; mass {bounds(self.lower, self.upper)}, "
            f"{counted(self.cost.evaluations, 'evaluation')} for "
            f"{counted(self.cost.nodes, 'prefix', 'prefixes')}."
        )
        how = How(
            "log p(text) = log of the sum over its encodings of Π p(token | tokens before it)"
        )
        return [Section("texts", "Which texts?", sentence, tables=[self.table()], how=how)]

    def table(self, repeats: Mapping[str, int] | None = None) -> Table:
        """A row per text, the most probable first, with its repeats in the training data if known."""
        columns = {
            "place": ColumnFormat(""),
            "text": ColumnFormat(),
            "logprob": ColumnFormat("log probability", digits=4),
        }
        rows = [match.to_dict() | {"place": at} for at, match in enumerate(self.found, 1)]
        if repeats is None:
            columns["encodings_seen"] = ColumnFormat("encodings seen")
        else:
            columns["repeats"] = ColumnFormat()
            rows = [row | {"repeats": repeats.get(row["text"])} for row in rows]
        if not self.complete:
            columns["proven"] = ColumnFormat()
        data = pa.Table.from_pylist(
            rows, schema=pa.schema([(name, _KINDS[name]) for name in columns])
        )
        return Table(data, columns, "Texts that are not proven follow the others.", "No text.")


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
class Mass(QueryAnswer):
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
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Probability of a regular expression"

    @property
    def exit_code(self) -> int:
        """0, as bounds always hold; 130 after Ctrl-C."""
        return 130 if self.stopped == "interrupted" else 0

    def gap(self) -> str | None:
        """Why the bounds are not as close as asked for."""
        return None if self.stopped in CLOSED else self.stopped

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

    def values(self) -> Sequence[Value]:
        """The bounds and what they cost."""
        return measured(
            self, lower="", upper="", evaluations="tokens, lower", nodes="prefixes, lower"
        )

    def findings(self) -> Sequence[Finding]:
        """The bounds, and why they are no closer."""
        return [
            Finding(f"{self._bounds()}: the probability that {_EVENTS[self.event]}.", "bounds"),
            Finding(
                f"{counted(self.evaluations, 'evaluated token')} for "
                f"{counted(self.nodes, 'distinct prefix', 'distinct prefixes')}; "
                f"stopped: {_ENDINGS.get(self.stopped, self.stopped)}.",
                "bounds",
            ),
        ]

    def _bounds(self) -> str:
        """Four significant digits; what is below 1 never reads as 1."""
        lower, upper = (
            probability(each) if 0.9995 <= each < 1 else number(each)
            for each in (self.lower, self.upper)
        )
        return f"{lower} to {upper}"

    def sections(self) -> Sequence[Section]:
        """How the bounds converged."""
        rows = [
            {"evaluations": step.evaluations, "bound": name, "mass": value}
            for step in self.steps
            for name, value in (("upper", step.upper), ("lower", step.lower))
        ]
        drawn = figures.lines(
            rows,
            "evaluations",
            "mass",
            "Evaluated tokens",
            "Probability",
            series="bound",
            meanings={"upper": "system", "lower": "user"},
            steps=True,
        )
        how = How(
            "lower = mass of the texts found;  upper = lower + mass of the prefixes left open",
            {"event": self.event, **self.decoding},
            notes="Both bounds hold at any time; what a server did not list, and what lies beyond "
            "the context, counts in the upper one.",
        )
        sentence = (
            f"After {counted(self.evaluations, 'evaluation')} the probability is between "
            f"{probability(self.lower)} and {probability(self.upper)}."
        )
        return [Section("bounds", "Convergence of the bounds", sentence, [drawn], how=how)]


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
class Samples(QueryAnswer):
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
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def exit_code(self) -> int:
        """0, as an estimate has an error; 130 after Ctrl-C."""
        return 130 if self.stopped == "interrupted" else 0

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

    def values(self) -> Sequence[Value]:
        """The mass with its interval, and how good the samples are."""
        half = 1.96 * self.mass_error
        return [
            Value("mass", self.mass, ci95=(self.mass - half, self.mass + half)),
            *measured(self, drawn="samples", effective="samples, higher", texts=""),
        ]

    def sections(self) -> Sequence[Section]:
        """The texts by share."""
        sentence = (
            f"Method {self.method}; mass {probability(self.mass)} ± {probability(self.mass_error)} "
            f"(standard error); effective sample size {number(self.effective, 0)} of "
            f"{number(len(self.drawn))} for the mass."
        )
        rows = [{"text": text, "share": share} for text, share in self.texts]
        kinds = pa.schema([("text", pa.string()), ("share", pa.float64())])
        table = Table(
            pa.Table.from_pylist(rows, schema=kinds),
            {"text": ColumnFormat(), "share": ColumnFormat(digits=4)},
            "A row per text, the largest share of the weight first.",
        )
        return [Section("texts", "Which texts does the model write?", sentence, tables=[table])]


Count = int | str
"""An exact number, or ``"infinite"``."""


@dataclass(frozen=True)
class Counts(Answer):
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

    def sections(self) -> Sequence[Section]:
        """Texts and token sequences."""
        rows = [("texts", how_many(self.strings))]
        if self.token_paths is not None:
            rows.append(("token sequences", how_many(self.token_paths)))
        rows += [(f"of {counted(size, 'token')}", number(paths)) for size, paths in self.by_length]
        sentence = ", ".join(f"{name}: {count}" for name, count in rows[:2])
        return [Section("counts", "How many?", f"{sentence}.", tables=[pairs(rows, "count")])]


def how_many(count: Count | None) -> str:
    """A count for people."""
    return count if isinstance(count, str) else number(count)


def pairs(rows: Sequence[tuple[str, str]], header: str) -> Table:
    """Names with their values as a table."""
    names, values = zip(*rows, strict=True)
    data = pa.table({"name": pa.array(names), "value": pa.array(values)})
    return Table(data, {"name": ColumnFormat(""), "value": ColumnFormat(header)})
