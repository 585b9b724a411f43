"""Pairs of tokens that stay apart, against merging itself, written plainly."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from published_vocabularies import PUBLISHED, published

from holdfast.lm.query.canonical.pairs import PairFilter
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer


def merged(text, table, pieces, base):
    """Merge the pair of lowest rank, the leftmost first, until none is left."""
    symbols = [base[unit] for unit in text]
    while True:
        pairs = [
            (table[pair][0], place) for place, pair in enumerate(pairwise(symbols)) if pair in table
        ]
        if not pairs:
            return symbols
        _, place = min(pairs)
        symbols[place : place + 2] = [table[symbols[place], symbols[place + 1]][1]]


def toy_merges(words, chosen, ranks):
    """A tokenizer over a, b and the words, with some of all merges that make a word."""
    pieces = list(dict.fromkeys([b"a", b"b", *words]))
    ids = {piece: token for token, piece in enumerate(pieces)}
    splits = [
        (ids[piece[:cut]], ids[piece[cut:]], ids[piece])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    rows = [
        (*split, rank)
        for split, keep, rank in zip(splits, chosen * 40, ranks * 40, strict=False)
        if keep
    ]
    columns = np.array(rows, np.int32).reshape(-1, 4).T.copy()
    table = {(left, right): (rank, made) for left, right, made, rank in rows}

    def encode(text):
        return merged([bytes([byte]) for byte in text], table, pieces, ids)

    return Tokenizer("toy", tuple(pieces), encode, merges=Merges(*columns))


WORDS = st.lists(st.text("ab", min_size=2, max_size=5).map(str.encode), max_size=14)


@settings(max_examples=150)
@given(WORDS, st.lists(st.booleans(), min_size=1), st.lists(st.integers(0, 6), min_size=1))
@example([b"aa"], [True], [0])
@example([b"aa", b"aaa", b"aaaa"], [True], [0])
@example([b"aa", b"aaa", b"aaaa", b"aaaaa"], [True], [3, 2, 1])
@example([b"ab", b"ba", b"aba", b"bab", b"abab"], [True], [1])
def test_pairs_of_any_merges(words, chosen, ranks):
    """Ranks that fall, ranks that are equal, tokens that merges never make."""
    tokenizer = toy_merges(words, chosen, ranks)
    pairs = PairFilter.of(tokenizer)
    every = np.arange(tokenizer.size, dtype=np.int32)
    for token, piece in enumerate(tokenizer.pieces):
        assert pairs.whole[token] == (tokenizer.encode(piece) == [token])
    for token, piece in enumerate(tokenizer.pieces):
        expected = [
            tokenizer.encode(piece + other) == [token, follows]
            for follows, other in enumerate(tokenizer.pieces)
        ]
        assert pairs.apart(token, every).tolist() == expected


@settings(max_examples=60)
@given(WORDS, st.lists(st.booleans(), min_size=1), st.lists(st.integers(0, 6), min_size=1))
def test_a_sequence_is_canonical_iff_its_pairs_are(words, chosen, ranks):
    tokenizer = toy_merges(words, chosen, ranks)
    pairs = PairFilter.of(tokenizer)
    every = np.arange(tokenizer.size, dtype=np.int32)
    apart = [pairs.apart(token, every) for token in every]
    for tokens in product(range(min(tokenizer.size, 7)), repeat=3):
        text = b"".join(tokenizer.pieces[token] for token in tokens)
        by_pairs = apart[tokens[0]][tokens[1]] and apart[tokens[1]][tokens[2]]
        assert by_pairs == (tokenizer.encode(text) == list(tokens))


@pytest.fixture(scope="module", params=PUBLISHED)
def vocabulary(request, shared_data):
    """A published tokenizer, and merging by its table alone."""
    tokenizer = published(request.param, shared_data)
    merges = tokenizer.merges
    columns = (merges.left, merges.right, merges.rank, merges.merged)
    table = {
        (left, right): (rank, made)
        for left, right, rank, made in zip(*(column.tolist() for column in columns), strict=True)
    }
    pairs = PairFilter.of(tokenizer)
    assert pairs.characters == (request.param == "Mistral")
    base = pairs.base or {
        piece: token for token, piece in enumerate(tokenizer.pieces) if piece and len(piece) == 1
    }

    def encode(text):
        units = text.decode() if pairs.characters else [bytes([byte]) for byte in text]
        return merged(units, table, tokenizer.pieces, base)

    return tokenizer, pairs, encode


def test_pairs_of_published_merges(vocabulary):
    """Random pairs, and both halves of tokens, which are most likely to merge."""
    tokenizer, pairs, encode = vocabulary
    draw = np.random.default_rng(5)
    tokens = [
        token
        for token in np.flatnonzero(pairs.whole).tolist()
        if 2 < len(tokenizer.pieces[token]) < 16 and tokenizer.pieces[token].isascii()
    ]
    seen = [0, 0]
    for _ in range(200):
        first, second = draw.choice(tokens, 2).tolist()
        piece = tokenizer.pieces[first]
        cut = int(draw.integers(1, len(piece)))
        halves = encode(piece[:cut])[-1], encode(piece[cut:])[0]
        for left, right in ((first, second), halves):
            expected = encode(tokenizer.pieces[left] + tokenizer.pieces[right]) == [left, right]
            assert pairs.apart(left, np.array([right], np.int32)).tolist() == [expected]
            seen[expected] += 1
    assert min(seen) > 60


def test_all_segmentations_of_a_word(vocabulary):
    """Exactly one sequence of tokens for a word has only pairs that stay apart: its encoding."""
    tokenizer, pairs, encode = vocabulary
    ids = {piece: token for token, piece in enumerate(tokenizer.pieces) if pairs.whole[token]}

    def segmentations(text):
        if not text:
            yield ()
        for size in range(1, len(text) + 1):
            token = ids.get(text[:size])
            if token is not None:
                for rest in segmentations(text[size:]):
                    yield (token, *rest)

    known: dict[tuple[int, int], bool] = {}

    def apart(left, right):
        if (left, right) not in known:
            known[left, right] = bool(pairs.apart(left, np.array([right], np.int32))[0])
        return known[left, right]

    tried = 0
    for word in (
        b"canonical",
        b"  spaces",
        b"aaaaaaaaa",
        b"1234567",
        b"Holdfast!",
        b"...'s",
        b"hahahaha",
    ):
        kept = []
        for tokens in segmentations(word):
            tried += 1
            if all(apart(*pair) for pair in pairwise(tokens)):
                kept.append(list(tokens))
        assert kept == [encode(word)]
    assert tried > 300


def test_tokens_that_merges_do_not_make_stay_out():
    """Of a word's three splits only one is a merge, so its last two tokens are never written."""
    tokenizer = toy_merges([b"ab", b"aba", b"baba"], [True, False], [1])
    pairs = PairFilter.of(tokenizer)
    assert [piece for token, piece in enumerate(tokenizer.pieces) if not pairs.whole[token]] == [
        piece for token, piece in enumerate(tokenizer.pieces) if tokenizer.encode(piece) != [token]
    ]
    every = np.arange(tokenizer.size, dtype=np.int32)
    for token in np.flatnonzero(~pairs.whole):
        assert not pairs.apart(int(token), every).any()
        assert not any(pairs.apart(int(other), every)[token] for other in every)
