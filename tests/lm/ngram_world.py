"""Models of finitely many contexts for tests, and the mass of a query by trying token sequences."""

from __future__ import annotations

import math
import re
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import regex
import toy
from random_arpa import BEGIN, END, RandomArpa, random_arpa

from holdfast.lm.models.ngram import NgramModel


class ToyTrigram(toy.ToyModel):
    """`toy.ToyModel` looks at two tokens only: this one says so."""

    start_state: tuple[int, ...] = ()

    def step(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)[-2:]

    def logprobs_of(self, state: tuple[int, ...]) -> np.ndarray:
        return self.distribution(state)


def opened(arpa: RandomArpa) -> NgramModel:
    """The model that reads the file of `arpa`; its words join without a space."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.arpa"
        path.write_text(arpa.text())
        return NgramModel(path, reading="pieces")


def ngram(seed: int, **options: object) -> tuple[RandomArpa, NgramModel]:
    """A random back-off model: its definition, and the model under test."""
    arpa = random_arpa(seed, **options)  # type: ignore[arg-type]
    return arpa, opened(arpa)


def by_text(model: toy.ToyModel, pattern: str, **rule: float) -> dict[str, float]:
    """text -> probability of all its token sequences, for texts of at most 4 characters."""
    found = re.compile(pattern)
    letters = [*"abc 12x-", chr(0xE9)]
    tried = ("".join(text) for size in range(5) for text in product(letters, repeat=size))
    texts = {text.encode() for text in tried if found.fullmatch(text)}
    starts = {text[:size] for text in texts for size in range(len(text) + 1)}
    sums: dict[str, list[float]] = {text.decode(): [] for text in texts}
    for tokens, text in toy.spellings(texts.__contains__, 8, starts.__contains__):
        sums[text.decode()].append(math.exp(toy.score(model, tokens, **rule)))
    return {text: math.fsum(parts) for text, parts in sums.items()}


def truncated_mass(arpa: RandomArpa, pattern: str, eos: bool, longest: int) -> tuple[float, float]:
    """(lower, upper) of a query's mass by trying every sequence of at most `longest` words.

    Independent of automata: the `regex` library tells whether some text goes on from a beginning.
    """
    found = regex.compile(pattern)
    lower, open_ = 0.0, 0.0
    waiting: list[tuple[tuple[str, ...], str, float]] = [((), "", 1.0)]
    while waiting:
        words, text, chance = waiting.pop()
        if eos and found.fullmatch(text):
            lower += chance * arpa.probability([BEGIN, *words], END)
        if not eos and any(found.fullmatch(text[:size]) for size in range(len(text) + 1)):
            lower += chance
        elif not found.fullmatch(text, partial=True):
            continue
        elif len(words) == longest:
            open_ += chance
        else:
            for word in arpa.words:
                step = arpa.probability([BEGIN, *words], word)
                if step:
                    waiting.append(((*words, word), text + word, chance * step))
    return lower, min(1.0, lower + open_)
