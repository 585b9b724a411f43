"""Random back-off models in ARPA's format over toy words, and random regular expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
Gram = tuple[str, ...]


@dataclass
class RandomArpa:
    """A normalised back-off model: what its file says, and its probabilities read off the definition.

    Words concatenate without a space, and ambiguously: ``a`` + ``b`` spells what ``ab`` spells.
    """

    words: tuple[str, ...]
    """Without BEGIN, END and UNKNOWN."""
    order: int
    chances: dict[Gram, float] = field(default_factory=dict)
    """Probability of the last word of a listed n-gram after the others."""
    backoff: dict[Gram, float] = field(default_factory=dict)
    """Factor of the shorter context, for listed contexts; 1 for the others."""

    def probability(self, history: Sequence[str], word: str) -> float:
        """P(word | history), by the recursion of the definition; `history` holds BEGIN where it counts."""
        context = tuple(history)[len(history) - min(len(history), self.order - 1) :]
        while True:
            if (*context, word) in self.chances:
                return self.chances[*context, word]
            if not context:
                return 0.0
            return self.backoff.get(context, 1.0) * self.probability(context[1:], word)

    def logprob(self, words: Sequence[str], end: bool = True) -> float:
        """Log-probability of a sequence from the start of a text, its end included if asked."""
        history, total = [BEGIN], 0.0
        for word in [*words, *([END] if end else [])]:
            chance = self.probability(history, word)
            total += math.log(chance) if chance else -math.inf
            history.append(word)
        return total

    def text(self) -> str:
        """The file; all digits that a float64 has, so that it stays normalised."""
        grams = {size: [] for size in range(1, self.order + 1)}
        for gram in sorted({*self.chances, (BEGIN,)}, key=lambda gram: (len(gram), gram)):
            listed = repr(math.log10(self.chances[gram])) if gram in self.chances else "-99"
            line = f"{listed}\t{' '.join(gram)}"
            if gram in self.backoff:
                line += f"\t{math.log10(self.backoff[gram])!r}"
            grams[len(gram)].append(line)
        lines = ["", "\\data\\", *(f"ngram {size}={len(grams[size])}" for size in grams), ""]
        for size, listed in grams.items():
            lines += [f"\\{size}-grams:", *listed, ""]
        return "\n".join([*lines, "\\end\\", ""])


def random_words(rng: np.random.Generator, letters: str = "ab", count: int = 5) -> tuple[str, ...]:
    """The letters, and longer words of them in random choice."""
    longer = ["".join(word) for size in (2, 3) for word in product(letters, repeat=size)]
    picked = rng.choice(len(longer), max(0, count - len(letters)), replace=False)
    return tuple(sorted([*letters, *(longer[place] for place in picked)]))


def random_arpa(seed: int, letters: str = "ab", words: int = 5, order: int | None = None,
                unknown: bool = False) -> RandomArpa:  # fmt: skip
    """A model of order 1 to 3 (if not given) whose probabilities sum to 1 after every context.

    Contexts and suffixes of what is listed are listed too, as every toolkit writes them.
    """
    rng = np.random.default_rng([seed, 0xA59A])
    order = int(rng.integers(1, 4)) if order is None else order
    made = RandomArpa(random_words(rng, letters, words), order)
    events = [*made.words, END, *([UNKNOWN] if unknown else [])]
    # The end is neither rare nor common: infinite languages keep some mass beyond any length.
    scores = np.exp(rng.normal(0, 1, len(events)))
    scores[events.index(END)] = scores.mean() * rng.uniform(0.2, 1.5)
    for word, chance in zip(events, scores / scores.sum(), strict=True):
        made.chances[(word,)] = float(chance)
    for size in range(2, order + 1):
        contexts = [(BEGIN,)] if size == 2 else []
        contexts += [g for g in made.chances if len(g) == size - 1 and g[-1] not in (END, UNKNOWN)]
        for context in contexts:
            if rng.random() < 0.3:
                continue
            known = [word for word in events if (*context[1:], word) in made.chances]
            kept = [word for word in known if rng.random() < 0.6]
            if not kept or len(kept) == len(events):
                continue
            held_back = rng.uniform(0.05, 0.6)
            given = np.exp(rng.normal(0, 1.5, len(kept)))
            given *= (1 - held_back) / given.sum()
            below = math.fsum(made.probability(context[1:], word) for word in kept)
            for word, chance in zip(kept, given, strict=True):
                made.chances[*context, word] = float(chance)
            made.backoff[context] = held_back / (1 - below)
    return made


def random_regex(seed: int, letters: str = "ab", depth: int = 3, infinite: bool = True) -> str:
    """A pattern that Python's `re` and RE2 read alike; with `infinite`, it may hold stars."""
    rng = np.random.default_rng([seed, 0x4E6E])

    def atom() -> str:
        draw = rng.random()
        if draw < 0.15:
            return f"[{letters}]"
        if draw < 0.25:
            return "."
        return str(rng.choice(list(letters)))

    def made(depth: int) -> str:
        draw = rng.random()
        if depth == 0 or draw < 0.15:
            return atom()
        if draw < 0.5:
            return "".join(made(depth - 1) for _ in range(rng.integers(2, 4)))
        if draw < 0.7:
            return "(" + "|".join(made(depth - 1) for _ in range(rng.integers(2, 4))) + ")"
        repeats = ["?", "{1,2}", "{2}", *(["*", "+", "{1,}"] if infinite else [])]
        return f"({made(depth - 1)}){rng.choice(repeats)}"

    return made(depth)
