"""Oracle of search and mass over lists of words: every token sequence is tried, with plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import toy

from holdfast.lm.models.protocol import NextToken, Prefix
from holdfast.lm.query.queries import Query

LETTERS = ("a", "b", "c", " ", "1", "2", "é", "x", "-")


def random_words(rng: np.random.Generator, start: str = "") -> list[str]:
    """A few short words that share beginnings, each with `start` in front."""
    words = set()
    letters = rng.choice(LETTERS, size=int(rng.integers(1, 4)), replace=False)
    for _ in range(int(rng.integers(1, 9))):
        words.add(start + "".join(rng.choice(letters, size=int(rng.integers(0, 5)))))
    return sorted(words)


def regex(words: Sequence[str]) -> str:
    """The words as a regular expression."""
    return "|".join(words)


def sequences(words: Sequence[bytes], overshoot: bool) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """(tokens, bytes): of every sequence that spells a word, or (overshoot) first passes the end of one."""
    waiting: list[tuple[tuple[int, ...], bytes]] = [((), b"")]
    while waiting:
        tokens, text = waiting.pop()
        if overshoot and any(text.startswith(word) for word in words):
            yield tokens, text
            continue
        if not overshoot and text in words:
            yield tokens, text
        for token, piece in enumerate(toy.PIECES):
            if piece is None:
                continue
            longer = text + piece
            if any(word.startswith(longer) for word in words) or (
                overshoot and any(longer.startswith(word) for word in words)
            ):
                waiting.append(((*tokens, token), longer))


def chance(model: toy.ToyModel, after: Sequence[int], tokens: Sequence[int], query: Query, given: int,
           end: bool) -> float:  # fmt: skip
    """Probability of tokens after others; the rule applies once `given` bytes are spelled."""
    total, spelled = 0.0, 0
    for place, token in enumerate([*tokens, toy.EOS] if end else tokens):
        scores = model.distribution([*after, *tokens[:place]])
        if spelled >= given:
            scores = toy.decoded(scores, query.top_k, query.top_p, query.temperature)
        total += scores[token]
        spelled += len(toy.PIECES[token] or b"")
    return math.exp(total)


def by_text(model: toy.ToyModel, query: Query, words: Sequence[str], prefixes: Sequence[str] = ("",),
            longest: int = 99) -> dict[str, tuple[float, int]]:  # fmt: skip
    """text -> (probability, encodings) of the texts of a query, by the definition."""
    parts: dict[str, list[float]] = defaultdict(list)
    for prefix in prefixes:
        after, given = settled(query, prefix)
        spelled = toy.TOKENIZER.spell(after)
        rests = [word.encode()[len(spelled) :] for word in words if word.startswith(prefix)]
        scale = len(prefixes) * condition(model, query, after, given)
        for tokens, rest in sequences(rests, overshoot=False):
            text = spelled + rest
            if query.encodings == "canonical" and [*after, *tokens] != toy.greedy(text):
                continue
            if len(tokens) <= longest:
                mass = chance(model, after, tokens, query, len(given), query.eos)
                if mass > 0:
                    parts[text.decode()].append(mass / scale)
    return {text: (math.fsum(masses), len(masses)) for text, masses in parts.items()}


def mass(model: toy.ToyModel, query: Query, words: Sequence[str],
         prefixes: Sequence[str] = ("",)) -> float:  # fmt: skip
    """Probability of a query's event, by the definition."""
    if query.eos:
        return math.fsum(mass for mass, _ in by_text(model, query, words, prefixes).values())
    parts = []
    for prefix in prefixes:
        after, given = settled(query, prefix)
        spelled = len(toy.TOKENIZER.spell(after))
        rests = [word.encode()[spelled:] for word in words if word.startswith(prefix)]
        scale = len(prefixes) * condition(model, query, after, given)
        parts += [
            chance(model, after, tokens, query, len(given), end=False) / scale
            for tokens, _ in sequences(rests, overshoot=True)
        ]
    return math.fsum(parts)


def settled(query: Query, prefix: str) -> tuple[tuple[int, ...], bytes]:
    """(tokens given to the model, bytes of the prefix left to spell)."""
    if not prefix or query.encodings == "all":
        return (), prefix.encode()
    tokens = tuple(toy.greedy(prefix.encode()))
    if not query.heal:
        return tokens, b""
    return tokens[:-1], toy.PIECES[tokens[-1]] or b""


def condition(model: toy.ToyModel, query: Query, after: Sequence[int], given: bytes) -> float:
    """Probability that what is written starts with what is given, without a rule."""
    plain = Query("", eos=True)
    if query.encodings == "canonical":
        assert not given or query.heal
    return math.fsum(
        chance(model, after, tokens, plain, 0, end=False)
        for tokens, _ in sequences([given], overshoot=True)
    )


class Listing(toy.ToyModel):
    """The toy model, as a server that lists only the most probable tokens."""

    def __init__(self, seed: int, number: int):
        super().__init__(seed)
        self.number = number

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        answers = []
        for answer in super().logprobs(prefixes):
            order = np.lexsort((np.arange(answer.logprobs.size), -answer.logprobs))[: self.number]
            short = np.full(answer.logprobs.size, -np.inf)
            short[order] = answer.logprobs[order]
            answers.append(NextToken(short, max(0.0, 1 - float(np.exp(short).sum()))))
        return answers
