"""From a query to automata over tokens: one `Prompt` for each string of the prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.dfa import ByteDfa
from holdfast.lm.query.tokens.automaton import TokenAutomaton
from holdfast.lm.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Prompt:
    """What is given to the model, and the automaton of what may follow."""

    text: bytes
    """The string of the prefix; empty without one."""
    tokens: tuple[int, ...]
    """What the model is given, BOS left out."""
    given: bytes
    """Bytes of the prefix that `tokens` do not spell (healing, or a prefix given as text): what follows must
    spell them first. Probabilities are conditional on that event, and the decoding rule does not apply to a
    token that starts among them."""
    automaton: TokenAutomaton
    """What may follow `tokens`: spells `given`, then the rest of the text. For the event ``prefix``, its final
    states take everything, and are never left."""
    given_automaton: TokenAutomaton | None
    """Token sequences whose spelling starts with `given` (event ``prefix``); None when nothing is given."""
    share: float
    """Probability of this prefix string among all."""
    accepts: Callable[[tuple[int, ...]], bool] | None = None
    """A last check of a whole token sequence (after `tokens`): set where canonical is told by encoding again."""


@dataclass(frozen=True, eq=False)
class CompiledQuery:
    """A query, ready to be asked."""

    query: Query
    tokenizer: Tokenizer
    language: ByteDfa
    """The whole texts: prefix, edits and exclusion applied."""
    prompts: tuple[Prompt, ...]


def compile_query(query: Query, tokenizer: Tokenizer) -> CompiledQuery:
    """The automata of a query.

    Raises:
        InputError: if the language is empty, the prefix has no or infinitely many strings, or no token sequence
            spells a text.
    """
    raise NotImplementedError
