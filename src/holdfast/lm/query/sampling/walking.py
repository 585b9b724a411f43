"""Next tokens of a sample: what the automaton allows after a prefix, and its probability."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lm.models.protocol import F64, NextToken, Prefix
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.decoding import Rule, decode, log_sum
from holdfast.lm.query.tokens.automaton import I32

END = -1
"""The end of the text among options; it is not a token of a sample."""


class Status(IntEnum):
    """Status of a sample."""

    OPEN = 0
    ENDED = 1
    """The event occurred."""
    DEAD = 2
    """No token with a nonzero probability can follow, or the final check rejected the sequence."""
    CUT = 3
    """It reached the maximum length, or the model's context, before its end."""


@dataclass(frozen=True, slots=True)
class Node:
    """A prefix that samples share: a node of the trie of their token sequences."""

    prompt: int
    """Index of the prompt in the query."""
    tokens: tuple[int, ...]
    """Tokens drawn so far, after the prompt's tokens."""
    state: int
    """State of the prompt's automaton."""
    spelled: int
    """Bytes of `tokens`: those that start among the bytes given follow the model's own distribution."""
    logprob: float
    """Log probability of the tokens, and of the end of the text once it was drawn."""
    status: Status = Status.OPEN


@dataclass(frozen=True, eq=False)
class Options:
    """What may follow a node."""

    tokens: I32
    """[K] ascending ids, then END where the text may end."""
    following: I32
    """[K] states after them; -1 for END."""
    logprobs: F64
    """[K] under the (decoded) model, not renormalised; may be -inf."""
    unlisted: bool
    """Whether some token that may follow has a probability that the model does not tell."""

    @property
    def log_allowed(self) -> float:
        """Log of the probability that the automaton leaves: what a sample's weight is multiplied by."""
        return log_sum(self.logprobs)


class Walk:
    """The steps that samples of a query may take.

    Args:
        compiled: the query.
        context: the longest prefix that the model can continue, or None.
        max_tokens: longest token sequence after a prompt; sequences of that length may still end.
    """

    def __init__(self, compiled: CompiledQuery, context: int | None, max_tokens: int) -> None:
        self.prompts = compiled.prompts
        self.rule = Rule.of(compiled.query)
        self.event = compiled.query.event
        self.pieces, self.ends = compiled.tokenizer.pieces, list(compiled.tokenizer.ends)
        self.context, self.max_tokens = context, max_tokens
        if self.event == "exact" and not self.ends:
            raise InputError(
                "the tokenizer has no token that ends a text",
                code="unsupported",
                place=compiled.tokenizer.name,
                remedy="ask for what texts start with (--no-eos)",
            )

    def start(self, prompt: int) -> Node:
        """The empty beginning of a prompt."""
        start = self.prompts[prompt].automaton.start
        if start < 0:
            return Node(prompt, (), start, 0, 0.0, Status.DEAD)
        return self._standing(Node(prompt, (), start, 0, 0.0))

    def prefix(self, node: Node) -> Prefix:
        """What the model is asked to continue."""
        prompt = self.prompts[node.prompt]
        return prompt.context + prompt.tokens + node.tokens

    def options(self, node: Node, answer: NextToken) -> Options:
        """What may follow an open node, given the model's answer to its prefix."""
        prompt = self.prompts[node.prompt]
        if node.spelled >= len(prompt.remainder):
            answer = decode(answer, self.rule)
        logprobs, rest = answer.logprobs, answer.rest
        tokens, following = prompt.automaton.arcs(node.state)
        if len(node.tokens) >= self.max_tokens:  # only the end may follow
            tokens, following = tokens[:0], following[:0]
        values, hidden = logprobs[tokens], False
        if self.event == "exact" and prompt.automaton.is_final(node.state):
            tokens, following = np.append(tokens, np.int32(END)), np.append(following, np.int32(-1))
            ending = logprobs[self.ends]
            hidden = rest > 0 and not bool(np.isfinite(ending).all())
            values = np.append(values, log_sum(ending))
        hidden = hidden or (rest > 0 and bool((values == -math.inf).any()))
        return Options(tokens, following, values, hidden)

    def child(self, node: Node, options: Options, place: int) -> Node:
        """The node after one of the options."""
        token, state = int(options.tokens[place]), int(options.following[place])
        logprob = node.logprob + float(options.logprobs[place])
        if token == END:
            return self._ended(replace(node, logprob=logprob))
        tokens = (*node.tokens, token)
        spelled = node.spelled + len(self.pieces[token] or b"")
        return self._standing(Node(node.prompt, tokens, state, spelled, logprob))

    def lost(self, node: Node) -> Node:
        """The node where nothing that may follow has a probability."""
        return replace(node, status=Status.DEAD)

    def _standing(self, node: Node) -> Node:
        """The node with the status that its place calls for."""
        final = self.prompts[node.prompt].automaton.is_final(node.state)
        if final and self.event == "prefix":
            return self._ended(node)
        at_limit = len(node.tokens) >= self.max_tokens and not final
        beyond = self.context is not None and len(self.prefix(node)) > self.context
        return replace(node, status=Status.CUT) if at_limit or beyond else node

    def _ended(self, node: Node) -> Node:
        accepts = self.prompts[node.prompt].accepts
        accepted = accepts is None or accepts(node.tokens)
        return replace(node, status=Status.ENDED if accepted else Status.DEAD)


I64 = npt.NDArray[np.int64]


def choose(logs: F64, uniforms: F64) -> I64:
    """[n] the place that each number in [0, 1) stands for when places divide it by their weights.

    Args:
        logs: [K] logarithms of weights, not all -inf.
        uniforms: [n]
    """
    reached = np.cumsum(np.exp(logs - logs.max()))
    places: I64 = np.searchsorted(reached, uniforms * reached[-1], side="right")
    # Rounding must not choose beyond the last place that has a weight.
    last = int(np.flatnonzero(logs > -math.inf)[-1])
    return np.minimum(places, last)
