"""Vectors of texts: TF-IDF by its formula, any embedder's shapes, and what is kept between runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import refusal

from holdfast.data.curation import embedding
from holdfast.data.curation.embedding import SentenceEmbedder, TfidfEmbedder, embed

TEXTS = ["a = f(b)", "a = g(c) + g(c)", "while b: a = a + 1", "return a", "return a;", "\u6f22 = 1"]


def by_formula(texts: Sequence[str]) -> Any:
    """(1 + ln tf) (1 + ln((1 + n) / (1 + df))) of tokens and pairs of them, of length 1."""
    counts = []
    for text in texts:
        tokens = re.findall(r"\w+|[^\w\s]", text.lower())
        counts.append(Counter(tokens) + Counter(" ".join(pair) for pair in pairwise(tokens)))
    terms = sorted(set().union(*counts))
    df = np.array([sum(term in count for count in counts) for term in terms])
    tf = np.array([[count[term] for term in terms] for count in counts], float)
    weights = np.where(tf > 0, 1 + np.log(np.maximum(tf, 1)), 0)
    weights *= 1 + np.log((1 + len(texts)) / (1 + df))
    return weights / np.linalg.norm(weights, axis=1, keepdims=True)


def test_products_of_vectors_are_those_of_the_formula() -> None:
    """With as many dimensions as texts the decomposition loses nothing: rotated, the same products."""
    vectors = TfidfEmbedder(TEXTS)(TEXTS)
    expected = by_formula(TEXTS)
    assert vectors @ vectors.T == pytest.approx(expected @ expected.T, abs=1e-5)
    unit = embed(TEXTS, len(TEXTS), TfidfEmbedder(TEXTS))
    assert unit @ unit.T == pytest.approx(expected @ expected.T, abs=1e-5)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_fewer_dimensions_are_the_best_of_that_rank(dimensions: int) -> None:
    """Eckart and Young: what is lost is the tail of the singular values."""
    expected = by_formula(TEXTS)
    vectors = TfidfEmbedder(TEXTS, dimensions)(TEXTS)
    assert vectors.shape == (len(TEXTS), dimensions)
    lost = (expected**2).sum() - (vectors.astype(float) ** 2).sum()
    singular = np.linalg.svd(expected, compute_uv=False)
    assert lost == pytest.approx((singular[dimensions:] ** 2).sum(), rel=1e-4)


def test_what_a_corpus_does_not_have_is_zero() -> None:
    embedder = TfidfEmbedder(TEXTS)
    assert embed(["", "?!", "zzz", "a"], 4, embedder).any(axis=1).tolist() == [False] * 3 + [True]
    [one] = embed(["x = 1"], 1, TfidfEmbedder(["x = 1"]))  # one text has nothing to decompose
    assert np.linalg.norm(one) == pytest.approx(1)


def test_an_identity_names_texts_dimensions_and_seed() -> None:
    base = TfidfEmbedder(TEXTS)
    others = [
        TfidfEmbedder(TEXTS[::-1]),
        TfidfEmbedder(TEXTS[:-1]),
        TfidfEmbedder([*TEXTS[:-2], TEXTS[-2] + TEXTS[-1], ""]),  # the same letters, cut elsewhere
        TfidfEmbedder(TEXTS, 3),
        TfidfEmbedder(TEXTS, seed=1),
    ]
    assert base.identity == TfidfEmbedder(list(TEXTS)).identity
    assert len({base.identity, *(each.identity for each in others)}) == 6


class Lengths:
    """A vector of a text's length and first letter; it counts what it is asked for."""

    identity = "lengths"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str], /) -> Any:
        self.asked += texts
        return [[len(text), sum(map(ord, text[:1])), 1e-3] for text in texts]


words = st.lists(st.text(alphabet="ab\u00e9\n", max_size=3), max_size=30)


@given(words, st.integers(1, 7))
def test_vectors_have_the_direction_of_the_embedders_whatever_the_block(
    texts: list[str], block: int
) -> None:
    before, embedding.BLOCK = embedding.BLOCK, block
    try:
        found = embed(iter(texts), len(texts), Lengths())
    finally:
        embedding.BLOCK = before
    rows = np.array(Lengths()(texts), float).reshape(len(texts), 3 if texts else 0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    assert found == pytest.approx((rows / norms).astype(np.float32), abs=1e-6)


@given(words, words)
def test_what_was_embedded_is_never_asked_for_again(first: list[str], second: list[str]) -> None:
    with TemporaryDirectory() as folder:
        one, two, other = Lengths(), Lengths(), Lengths()
        embed(first, len(first), one, Path(folder))
        found = embed(second, len(second), two, Path(folder))
        assert len(one.asked) == len(set(first))
        assert sorted(two.asked) == sorted(set(second) - set(first))
        assert found.tolist() == embed(second, len(second), Lengths()).tolist()
        other.identity = "another"
        embed(second, len(second), other, Path(folder))
        assert sorted(other.asked) == sorted(set(second))


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones(2),
        np.ones((2, 0)),
        np.ones((1, 3)),
        np.ones((2, 3, 1)),
        [[1, 2], [3, np.nan]],
        [[1, 2], [3, -np.inf]],
        [[1, 2], [3, 1e39]],  # infinite as float32
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_vectors_that_cannot_be_used(vectors: Any) -> None:
    call = lambda: embed(["a", "b"], 2, lambda texts: vectors)  # noqa: E731
    assert refusal(call) == ("invalid-value", "embedder")


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1.0, 1e18, 3e38])
def test_vectors_of_any_length_become_unit_vectors(size: float) -> None:
    found = embed(["a"], 1, lambda texts: size * np.array([[0.6, -0.8]]))
    assert found == pytest.approx(np.array([[0.6, -0.8]]), rel=1e-4)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert refusal(SentenceEmbedder, tmp_path)[0] == "not-found"
