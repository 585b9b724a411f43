"""The probability of what is given: what mass and matches of a prompt are divided by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.models.protocol import NextToken, Prefix
from holdfast.lm.query.compiling import CompiledQuery, Prompt
from holdfast.lm.query.decoding import Rule
from holdfast.lm.query.results import readable
from holdfast.lm.query.searches.evaluating import Evaluator, Hear
from holdfast.lm.query.searches.tree import ROUNDING, Reply, Tree
from holdfast.lm.query.tokens.automaton import I32


@dataclass(frozen=True)
class Scale:
    """How a prompt's mass becomes a share of the conditional probability."""

    start: float
    """Log of what the prompt's root weighs: its share over the (estimated) probability of what is given."""
    down: float
    """Factor, at most 1, that makes a lower bound of accepted mass."""
    up: float
    """Factor, at least 1, that makes an upper bound."""


def scales(evaluator: Evaluator, compiled: CompiledQuery, tolerance: float) -> list[Scale]:
    """The scale of every prompt, to a relative tolerance or as far as the evaluator may go.

    Raises:
        InputError: if the model gives the prefix no probability.
    """
    found = []
    for place, prompt in enumerate(compiled.prompts):
        lower, upper = 1.0, 1.0
        if prompt.remainder_automaton is not None:
            lower, upper = _given(evaluator, compiled, place, tolerance)
        if upper <= 0:
            raise InputError(
                "the model gives the prefix probability 0: nothing can be conditional on it",
                code="no-match",
                place=f"prefix {readable(prompt.text)!r}",
            )
        middle = math.sqrt(lower) * math.sqrt(upper) if lower > 0 else upper
        up = middle / lower if lower > 0 else math.inf
        found.append(Scale(math.log(prompt.share) - math.log(middle), middle / upper, up))
    return found


def total(tree: Tree, prompts: Sequence[Prompt], scales: Sequence[Scale]) -> tuple[float, float]:
    """Honest bounds of the probability of all prompts together."""
    lower = upper = 0.0
    for (accepted, possible), prompt, scale in zip(tree.bounds(), prompts, scales, strict=True):
        lower += accepted * scale.down
        upper += min(prompt.share, possible * scale.up) if possible > 0 else 0.0
    return min(1.0, lower * (1 - ROUNDING)), min(1.0, upper * (1 + ROUNDING))


def _given(
    evaluator: Evaluator, compiled: CompiledQuery, place: int, tolerance: float
) -> tuple[float, float]:
    """Bounds of the probability that what is written starts with what is given.

    The prefixes asked about here come again below the query's own automaton; what the model says of them
    is kept for it.
    """
    prompt = compiled.prompts[place]
    assert prompt.remainder_automaton is not None
    given = replace(prompt, automaton=prompt.remainder_automaton, remainder=b"", accepts=None)
    context = evaluator.model.context
    tree = Tree([given], [0.0], compiled.tokenizer, "prefix", Rule(), context=context)
    hear = _listener(evaluator, prompt, place, tree.ends)
    while True:
        (accepted, possible) = tree.bounds()[0]
        if possible - accepted <= tolerance * accepted:
            break
        nodes = evaluator.best(tree)
        if not nodes or not evaluator.expand(tree, nodes, hear):
            break
    (accepted, possible) = tree.bounds()[0]
    return accepted * (1 - ROUNDING), possible * (1 + ROUNDING)


def _listener(evaluator: Evaluator, prompt: Prompt, place: int, ends: I32) -> Hear:
    """Keep what the query's own automaton will ask about the same prefixes."""
    automaton = prompt.automaton
    states: dict[Prefix, int] = {(): automaton.start}

    def hear(path: Prefix, answer: NextToken) -> None:
        state = states.get(path, -1)
        if path and path[:-1] in states:
            tokens, following = automaton.arcs(states[path[:-1]])
            column = int(np.searchsorted(tokens, path[-1]))
            if column < len(tokens) and tokens[column] == path[-1]:
                state = states[path] = int(following[column])
        if state >= 0:
            evaluator.known[place, path] = Reply.of(answer, automaton.arcs(state)[0], ends)

    return hear
