"""A toy world in which everything can be enumerated: 30 tokens, a model, and brute force over sequences."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import product

import numpy as np

from holdfast.lm.models.protocol import Cost, NextToken, Prefix
from holdfast.lm.tokenizers.tokenizer import Tokenizer

# 28 pieces that overlap in many ways (é is split into its two bytes), then BOS and EOS.
PIECES: tuple[bytes | None, ...] = (
    *(b"a", b"b", b"c", b" ", b"1", b"2", b"\xc3", b"\xa9", b"x", b"-"),
    *(b"ab", b"bc", b"aa", b"ba", b"abc", b" a", b" b", b"12", b"21", b"11"),
    *(b"\xc3\xa9", b"a1", b"1a", b"ca", b"cab", b"\xa9a", b"xx", b"- "),
    *(None, None),
)  # fmt: skip
BOS, EOS = 28, 29


def greedy(text: bytes) -> list[int]:
    """An encoder: the longest piece first, from the left."""
    ids = {piece: token for token, piece in enumerate(PIECES) if piece is not None}
    tokens: list[int] = []
    while text:
        size = max(size for size in range(1, len(text) + 1) if text[:size] in ids)
        tokens.append(ids[text[:size]])
        text = text[size:]
    return tokens


TOKENIZER = Tokenizer("toy", PIECES, greedy, bos=BOS, eos=EOS, kind="wordpiece")


@cache  # brute force asks for the same ones thousands of times
def _drawn(key: tuple[int, ...], size: int) -> np.ndarray:
    scores = np.random.default_rng(key).normal(0, 1.5, size)
    scores[BOS] = -np.inf
    return scores - np.logaddexp.reduce(scores)


class ToyModel:
    """A distribution after every prefix, drawn from a generator seeded by the last two tokens."""

    def __init__(self, seed: int = 0, tokenizer: Tokenizer = TOKENIZER, context: int | None = None):
        self.name = f"toy:{seed}"
        self.tokenizer = tokenizer
        self.context = context
        self.cost = Cost()
        self.seed = seed
        self.asked: list[Prefix] = []

    def distribution(self, prefix: Sequence[int]) -> np.ndarray:
        """[V] log-probabilities; BOS has none."""
        key = (self.seed, *(token + 1 for token in prefix[-2:]))
        return _drawn(key, self.tokenizer.size).copy()

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        self.cost.calls += 1
        self.cost.evaluations += len(prefixes)
        self.cost.nodes += len(prefixes)
        self.asked += prefixes
        return [NextToken(self.distribution(prefix)) for prefix in prefixes]


def decoded(
    logprobs: np.ndarray,
    top_k: int | None = None,
    top_p: float | None = None,
    temperature: float = 1.0,
) -> np.ndarray:
    """Temperature, then top-k, then top-p, renormalised; ties go to the lower id."""
    return _decoded(logprobs.tobytes(), top_k, top_p, temperature).copy()


@lru_cache(1 << 14)
def _decoded(
    logprobs: bytes, top_k: int | None, top_p: float | None, temperature: float
) -> np.ndarray:
    scaled = np.frombuffer(logprobs) / temperature
    chances = np.exp(scaled - np.logaddexp.reduce(scaled))
    order = sorted(range(len(chances)), key=lambda token: (-chances[token], token))
    kept = order[: top_k or len(order)]
    if top_p is not None:
        total, nucleus = sum(chances[token] for token in kept), []
        reached = 0.0
        for token in kept:
            nucleus.append(token)
            reached += chances[token] / total
            if reached >= top_p:
                break
        kept = nucleus
    out = np.full(len(chances), -np.inf)
    with np.errstate(divide="ignore"):
        out[kept] = np.log(chances[kept]) - math.log(sum(chances[token] for token in kept))
    return out


def sequences(longest: int, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every token sequence up to a length."""
    for size in range(longest + 1):
        yield from product(tokens, repeat=size)


def spellings(matches: Callable[[bytes], bool], longest: int, may_go_on: Callable[[bytes], bool],
              tokenizer: Tokenizer = TOKENIZER) -> Iterator[tuple[tuple[int, ...], bytes]]:  # fmt: skip
    """(tokens, text) of every sequence up to `longest` whose text matches; by trying all tokens."""
    waiting: list[tuple[tuple[int, ...], bytes]] = [((), b"")]
    while waiting:
        tokens, text = waiting.pop()
        if matches(text):
            yield tokens, text
        if len(tokens) < longest:
            for token, piece in enumerate(tokenizer.pieces):
                if piece is not None and may_go_on(text + piece):
                    waiting.append(((*tokens, token), text + piece))


def score(model: ToyModel, tokens: Sequence[int], eos: bool = True, after: Sequence[int] = (),
          **rule: float) -> float:  # fmt: skip
    """Log-probability of a sequence after `after`, decoded by a rule, end of text included if asked."""
    total = 0.0
    for place in range(len(tokens) + eos):
        chances = decoded(model.distribution([*after, *tokens[:place]]), **rule)
        total += chances[tokens[place] if place < len(tokens) else EOS]
    return total


def by_text(
    model: ToyModel,
    regex: str,
    longest: int = 6,
    keep: Callable[[tuple[int, ...]], bool] = lambda _: True,
    **options: float,
) -> dict[str, tuple[float, int]]:
    """text -> (probability of all its sequences, their number), for a finite regex of Python's `re`."""
    pattern = re.compile(regex)

    def matches(text: bytes) -> bool:
        try:
            return pattern.fullmatch(text.decode()) is not None
        except UnicodeDecodeError:
            return False

    found: dict[str, list[float]] = defaultdict(list)
    for tokens, text in spellings(matches, longest, lambda text: len(text) <= longest):
        if keep(tokens):
            found[text.decode()].append(math.exp(score(model, tokens, **options)))
    return {text: (math.fsum(parts), len(parts)) for text, parts in found.items()}
