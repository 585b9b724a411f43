"""The articles of `loaders.py` as a stage graph: threads that fetch, processes or threads that compute."""

import time

import numpy as np

from holdfast.data.pipeline import Pipeline

VOCABULARY = {word: number for number, word in enumerate(map(chr, range(97, 107)))}


def fetch(number: int) -> str:
    """An article; the store answers after 20 ms."""
    time.sleep(0.02)
    return " ".join(VOCABULARY) * (1 + number % 3)


def tokenize(text: str) -> np.ndarray:
    """Word numbers."""
    return np.array([VOCABULARY.get(word, -1) for word in text.split()], dtype=np.int32)


def mask(tokens: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Every tenth token is hidden; the generator is the sample's own."""
    return np.where(generator.random(len(tokens)) < 0.1, -2, tokens)


def pad(samples: list[np.ndarray]) -> np.ndarray:
    """A rectangle."""
    out = np.full((len(samples), max(map(len, samples))), -1, dtype=np.int32)
    for row, tokens in zip(out, samples, strict=True):
        row[: len(tokens)] = tokens
    return out


def graph() -> Pipeline:
    """Fetch, tokenize, mask, pad."""
    return (
        Pipeline(range(2000), shuffle=True, seed=7)
        .map(fetch)
        .map(tokenize)
        .map(mask, random=True)
        .batch(16, pad)
    )
