"""The exact probability of a query under a model that knows finitely many contexts, such as an n-gram.

Such a model is a weighted automaton: its states are contexts, its arcs carry the probability of a token.
Its product with the automaton of a query has one path for every token sequence of the event, whose weight
is the probability of the sequence. The sum over all paths, cycles included (`holdfast.automata` solves the
linear system of each strongly connected component), is the mass of the event; the sums from each state
onward make exact samples. What search bounds and sampling estimates is checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from holdfast import automata as fa
from holdfast.errors import InputError, LimitError
from holdfast.lm.models.protocol import F64, LanguageModel, NextToken
from holdfast.lm.query.compiling import CompiledQuery, Prompt
from holdfast.lm.query.decoding import Rule, decode, log_sum
from holdfast.lm.query.queries import Event
from holdfast.lm.query.results import readable
from holdfast.lm.query.tokens.automaton import TokenAutomaton

MOST_ARCS = 5_000_000
"""Arcs of a product beyond which exact sums are refused: they are built one by one."""


@runtime_checkable
class FiniteContexts(Protocol):
    """What makes a language model a finite automaton: the contexts that it tells apart."""

    start_state: Any
    """The context in front of the first token."""

    def step(self, state: Any, token: int) -> Any:
        """The context after one more token."""
        ...

    def logprobs_of(self, state: Any) -> F64:
        """[V] log-probabilities of the next token in a context."""
        ...


@dataclass(frozen=True, eq=False)
class ExactDistances:
    """All token sequences of one prompt with their probabilities, summed from every state onward."""

    lattice: fa.Fst
    """The product of the automaton and the contexts, trimmed. Labels are token ids plus 1 (0 is epsilon),
    weights negated log-probabilities; a final weight is that of the end of the text (event ``exact``), or 0
    (event ``prefix``)."""
    log_onward: F64
    """[states] log probability that the event comes true from a state on."""
    log_condition: float
    """Log probability of the bytes given, which everything is conditional on; 0 when none are."""
    share: float
    """Probability of this prompt among all."""

    @property
    def log_mass(self) -> float:
        """Log probability of the event, conditional on what is given; -inf when it cannot happen."""
        if self.lattice.start < 0:
            return -math.inf
        return float(self.log_onward[self.lattice.start]) - self.log_condition


def has_finite_contexts(model: LanguageModel) -> bool:
    """Whether exact sums can be asked of a model."""
    return isinstance(model, FiniteContexts)


def exact_mass(model: LanguageModel, compiled: CompiledQuery, most_arcs: int = MOST_ARCS) -> float:
    """The probability of a query's event, exactly (up to rounding; `max_tokens` does not cut it).

    Args:
        model: one with finitely many contexts (`FiniteContexts`), such as an n-gram.
        compiled: the query.
        most_arcs: of the product of the query and the model's contexts.

    Raises:
        InputError: if the model is not such an automaton, or encodings are checked by what no automaton
            can do.
        LimitError: if the product has more arcs.
    """
    distances = exact_distances(model, compiled, most_arcs)
    parts = (part.share * math.exp(part.log_mass) for part in distances)
    return min(1.0, math.fsum(parts))


def exact_distances(
    model: LanguageModel, compiled: CompiledQuery, most_arcs: int = MOST_ARCS
) -> tuple[ExactDistances, ...]:
    """The backward probabilities of every prompt, in the order of `compiled.prompts`.

    Raises:
        InputError: as `exact_mass`; or if the model gives a prefix, which all is conditional on,
            probability 0.
        LimitError: as `exact_mass`.
    """
    if not isinstance(model, FiniteContexts):
        raise InputError(
            "this model has no exact sums",
            code="unsupported",
            found=model.name,
            expected="a model of finitely many contexts, such as ngram:FILE.arpa",
            remedy="bound the mass by search, or estimate it by samples",
        )
    return tuple(_of_prompt(model, compiled, prompt, most_arcs) for prompt in compiled.prompts)


def exact_log_condition(model: LanguageModel, compiled: CompiledQuery, prompt: Prompt) -> float:
    """Log of the probability that what a model of finitely many contexts writes starts with what is given.

    Raises:
        InputError: if it is 0.
        LimitError: as `exact_mass`.
    """
    if prompt.remainder_automaton is None:
        return 0.0
    # By the model's own distribution: the rule of decoding starts after what is given.
    given = _Product(model, compiled, prompt, prompt.remainder_automaton, "prefix", decoded=False)
    log_given = _log_onward(given.lattice)[1]
    if log_given == -math.inf:
        raise InputError(
            "the model gives the prefix probability 0",
            code="no-match",
            place=f"prefix {readable(prompt.text)!r}",
            remedy="nothing can be said of what follows it: leave the prefix out, or choose another",
        )
    return log_given


def _of_prompt(
    model: LanguageModel, compiled: CompiledQuery, prompt: Prompt, most_arcs: int
) -> ExactDistances:
    if prompt.accepts is not None:
        raise InputError(
            "exact sums need encodings that an automaton tells",
            code="unsupported",
            found=f"{compiled.tokenizer.name}, whose canonical encodings are checked by encoding again",
            remedy="ask for all encodings, or bound the mass by search",
        )
    log_given = exact_log_condition(model, compiled, prompt) if prompt.automaton.start >= 0 else 0.0
    event = compiled.query.event
    lattice = _Product(model, compiled, prompt, prompt.automaton, event, True, most_arcs).lattice
    return ExactDistances(lattice, _log_onward(lattice)[0], log_given, prompt.share)


def _log_onward(lattice: fa.Fst) -> tuple[F64, float]:
    """The sums from every state onward, and that of the start."""
    if lattice.start < 0:
        return np.zeros(0), -math.inf
    sums = -fa.state_distances(lattice, reverse=True)
    return sums, float(sums[lattice.start])


class _Product:
    """The product of a token automaton and a model's contexts, breadth first from the start.

    A state is (state of the automaton, bytes spelled of what is given, context): the bytes decide whether
    the rule of decoding applies, and are not counted where there is none.
    """

    def __init__(
        self,
        model: Any,
        compiled: CompiledQuery,
        prompt: Prompt,
        automaton: TokenAutomaton,
        event: Event,
        decoded: bool,
        most_arcs: int = MOST_ARCS,
    ) -> None:
        self.model, self.automaton, self.event = model, automaton, event
        self.pieces, self.ends = compiled.tokenizer.pieces, list(compiled.tokenizer.ends)
        self.rule = Rule.of(compiled.query) if decoded else Rule()
        self.most_arcs = most_arcs
        self.given = 0 if self.rule.plain else len(prompt.remainder)
        self.known: dict[tuple[Hashable, bool], F64] = {}
        self.arcs: list[tuple[int, int, int, float, int]] = []
        self.finals: dict[int, float] = {}
        self.lattice = self._built(prompt)

    def _built(self, prompt: Prompt) -> fa.Fst:
        context = self.model.start_state
        for token in (*prompt.context, *prompt.tokens):
            context = self.model.step(context, token)
        if self.automaton.start < 0:
            return fa.connect(fa.Fst.build([], {}, states=1, semiring="log64"))
        numbers = {(self.automaton.start, 0, context): 0}
        waiting = list(numbers)
        for number, (state, spelled, context) in enumerate(waiting):  # grows while it is walked
            logprobs = self._distribution(context, spelled)
            if self.automaton.is_final(state):
                if self.event == "prefix":  # the first hit ends it
                    self.finals[number] = 0.0
                    continue
                if (ending := log_sum(logprobs[self.ends])) > -math.inf:
                    self.finals[number] = -ending
            tokens, following = self.automaton.arcs(state)
            likely = np.flatnonzero(logprobs[tokens] > -math.inf)
            for token, after in zip(
                tokens[likely].tolist(), following[likely].tolist(), strict=True
            ):
                at = min(self.given, spelled + len(self.pieces[token] or b""))
                key = (after, at, self.model.step(context, token))
                target = numbers.setdefault(key, len(numbers))
                if target == len(waiting):
                    waiting.append(key)
                self.arcs.append((number, token + 1, token + 1, -float(logprobs[token]), target))
            if len(self.arcs) > self.most_arcs:
                raise LimitError(
                    "exact sums over a product that is too large",
                    needed=f"more than {len(self.arcs):,} arcs",
                    allowed=f"{self.most_arcs:,} arcs",
                    remedy="bound the mass by search, or estimate it by samples",
                )
        made = fa.Fst.build(self.arcs, self.finals, states=len(numbers), semiring="log64")
        return fa.connect(made)

    def _distribution(self, context: Hashable, spelled: int) -> F64:
        decoded = not self.rule.plain and spelled >= self.given
        known = self.known.get((context, decoded))
        if known is None:
            known = self.model.logprobs_of(context)
            if decoded:
                known = decode(NextToken(known), self.rule).logprobs
            self.known[context, decoded] = known
        return known
