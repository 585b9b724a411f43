"""Files of ranks: pieces and encoder against tiktoken's own definition of the encoding."""

from __future__ import annotations

import base64
import itertools
import random
from pathlib import Path

import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public

from holdfast.lm.tokenizers import splitting_patterns
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.rank_files import merges_of_ranks
from holdfast.lm.tokenizers.tokenizer import Tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    "aAé 'sS\n\r\t19.,日", max_size=30
)


@pytest.fixture(scope="module")
def file(shared_data: Path) -> Path:
    return shared_data / "tokenizers" / "cl100k_base.tiktoken"


@pytest.fixture(scope="module")
def cl100k(file: Path) -> Tokenizer:
    return load_tokenizer(f"tiktoken:{file}")


@pytest.fixture(scope="module")
def peer(file: Path) -> tiktoken.Encoding:
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(
        openai_public, "load_tiktoken_bpe", lambda *_, **__: load_tiktoken_bpe(str(file))
    )
    published = openai_public.cl100k_base()
    monkeypatch.undo()
    return tiktoken.Encoding(**published)


def is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_facts_of_the_published_file(cl100k: Tokenizer) -> None:
    spelled = [piece for piece in cl100k.pieces if piece is not None]
    assert len(spelled) == 100_256
    assert sum(map(len, spelled)) == 643_830
    assert sum(not is_text(piece) for piece in spelled) == 773
    assert cl100k.size == 100_277
    assert cl100k.eos == 100_257
    assert all(cl100k.pieces[token] is None for token in range(100_256, 100_277))
    assert cl100k.remarks == ("16 ids below 100277 have no token, such as 100256",)


def test_pieces_are_those_of_the_library(cl100k: Tokenizer, peer: tiktoken.Encoding) -> None:
    for token, piece in enumerate(cl100k.pieces):
        if piece is not None:
            assert peer.decode_single_token_bytes(token) == piece


@settings(max_examples=300)
@given(text=TEXTS)
def test_encoding_is_that_of_the_library(
    cl100k: Tokenizer, peer: tiktoken.Encoding, text: str
) -> None:
    tokens = cl100k.encode(text.encode())
    assert tokens == peer.encode_ordinary(text)
    assert cl100k.spell(tokens) == text.encode()
    words = regex.findall(cl100k.splitter, text)
    assert "".join(words) == text
    assert words == regex.findall(peer._pat_str, text)


@pytest.mark.parametrize(
    ("ours", "published"),
    [
        (splitting_patterns.GPT2, openai_public.r50k_pat_str),
        (splitting_patterns.O200K, None),
        (splitting_patterns.CL100K, None),
    ],
)
def test_patterns_cut_as_the_published_ones(
    ours: str, published: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if published is None:
        monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
        encoding = "o200k_base" if ours == splitting_patterns.O200K else "cl100k_base"
        published = getattr(openai_public, encoding)()["pat_str"]
    generator = random.Random(0)
    for _ in range(3_000):
        text = "".join(
            generator.choices("aZ1é日\u0301'sllRE  \n\r\t.,-/", k=generator.randrange(12))
        )
        words = regex.findall(ours, text)
        assert words == regex.findall(published, text), text
        assert "".join(words) == text


def merged_by_rank(word: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The rule of tiktoken, plainly: join the pair whose join has the lowest rank, the leftmost first."""
    parts = [word[place : place + 1] for place in range(len(word))]
    while True:
        joined = [
            (ranks[left + right], place)
            for place, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in ranks
        ]
        if not joined:
            return parts
        place = min(joined)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def test_merges_decide_the_encoding(cl100k: Tokenizer) -> None:
    """Merging by the pairs that `merges` tells gives what the encoder gives, word by word."""
    merges = cl100k.merges
    rank = {
        (left, right): (rank, merged)
        for left, right, merged, rank in zip(
            merges.left.tolist(), merges.right.tolist(), merges.merged.tolist(),
            merges.rank.tolist(), strict=True,
        )
    }  # fmt: skip
    byte = {piece: token for token, piece in enumerate(cl100k.pieces) if piece and len(piece) == 1}
    for word in (" unbelievable", "Straße", "日本語", " 1234"[:4], "...", "\n\n", " zzzqxj"):
        parts = [byte[bytes([value])] for value in word.encode()]
        while True:
            pairs = [
                (*rank[pair], place)
                for place, pair in enumerate(itertools.pairwise(parts))
                if pair in rank
            ]
            if not pairs:
                break
            _, merged, place = min(pairs, key=lambda pair: (pair[0], pair[2]))
            parts[place : place + 2] = [merged]
        if len(regex.findall(cl100k.splitter, word)) == 1:
            assert parts == cl100k.encode(word.encode()), word


def test_tokens_of_cl100k_are_reached_by_merges(cl100k: Tokenizer) -> None:
    ranks = {piece: token for token, piece in enumerate(cl100k.pieces) if piece is not None}
    for piece in list(ranks)[::97]:
        assert merged_by_rank(piece, ranks) == [piece]


def test_every_split_is_a_merge() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    merges = merges_of_ranks(ranks)
    found = zip(merges.left, merges.right, merges.merged, merges.rank, strict=True)
    assert {tuple(map(int, row)) for row in found} == {
        (1, 2, 3, 3), (0, 1, 4, 4), (0, 3, 5, 5), (4, 2, 5, 5),
    }  # fmt: skip


def test_a_pattern_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "mine.bpe"
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"  "]
    file.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % n for n, t in enumerate(tokens)))
    tokenizer = load_tokenizer(rf"tiktoken:{file}?pattern=\w+|\s")
    assert tokenizer.encode(b"ab  ab") == [256, 32, 32, 256]
    assert tokenizer.eos is None
    assert tokenizer.splitter == r"\w+|\s"
