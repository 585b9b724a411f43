"""GPT-2's files: pieces, merges and encoder, against the `tokenizers` library reading the same files."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lm.tokenizers.byte_level import stand_ins
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.merging import results_tell_merges
from holdfast.lm.tokenizers.tokenizer import Tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    "aAé 's\n\t19.,日", max_size=30
)


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


@pytest.fixture(scope="module")
def peer(shared_data: Path):
    tokenizers = pytest.importorskip("tokenizers")
    folder = shared_data / "tokenizers"
    model = tokenizers.models.BPE.from_file(
        str(folder / "gpt2_encoder.json"), str(folder / "gpt2_vocab.bpe")
    )
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


def test_the_facts_of_the_published_files(gpt2: Tokenizer) -> None:
    spelled = [piece for piece in gpt2.pieces if piece is not None]
    assert gpt2.size == 50_257
    assert sum(map(len, spelled)) == 320_814
    assert max(map(len, spelled)) == 128
    assert gpt2.bos == gpt2.eos == 50_256
    assert gpt2.pieces[50_256] is None
    assert gpt2.merges is not None
    assert len(gpt2.merges.rank) == 50_000
    assert gpt2.remarks == ()


def test_merges_make_the_joined_bytes(gpt2: Tokenizer) -> None:
    merges, pieces = gpt2.merges, gpt2.pieces
    for left, right, merged in zip(merges.left, merges.right, merges.merged, strict=True):
        assert pieces[left] + pieces[right] == pieces[merged]


def test_stand_ins_name_every_byte_once() -> None:
    table = stand_ins()
    assert sorted(table.values()) == list(range(256))
    assert (table["A"], table["Ġ"], table["Ċ"]) == (ord("A"), ord(" "), ord("\n"))


@settings(max_examples=300)
@given(text=TEXTS)
def test_encoding_is_that_of_the_peer(gpt2: Tokenizer, peer, text: str) -> None:
    tokens = gpt2.encode(text.encode())
    assert tokens == peer.encode(text).ids
    assert gpt2.spell(tokens) == text.encode()


@settings(max_examples=200)
@given(text=TEXTS)
def test_the_splitter_cuts_where_the_encoder_does(gpt2: Tokenizer, text: str) -> None:
    words = regex.findall(gpt2.splitter, text)
    assert "".join(words) == text
    assert [token for word in words for token in gpt2.encode(word.encode())] == gpt2.encode(
        text.encode()
    )


def test_special_tokens_in_a_text_are_text(gpt2: Tokenizer) -> None:
    assert gpt2.eos not in gpt2.encode(b"<|endoftext|>")
    assert gpt2.spell([*gpt2.encode(b"<|endoftext|>"), gpt2.eos]) == b"<|endoftext|>"


def small(folder: Path, vocabulary: dict[str, int], merges: str) -> Tokenizer:
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text(merges)
    return load_tokenizer(f"gpt2:{folder}")


def test_ids_need_not_follow_the_merges(tmp_path: Path) -> None:
    """Control tokens first, as the library trains them; then ids are not ranks."""
    characters = {character: 2 + place for place, character in enumerate(stand_ins())}
    vocabulary = {"<s>": 0, "</s>": 1, **characters, "ab": 300, "bc": 299, "abc": 298}
    tokenizer = small(tmp_path, vocabulary, "#version: 0.2\nb c\na b\nab c\n")
    assert tokenizer.encode(b"abc ab") == [vocabulary[token] for token in ("a", "bc", "Ġ", "ab")]
    assert (tokenizer.bos, tokenizer.eos) == (0, 1)
    assert tokenizer.pieces[0] is tokenizer.pieces[1] is None
    assert "40 ids" in tokenizer.remarks[0]


def test_a_vocabulary_without_some_bytes_encodes_the_others(tmp_path: Path) -> None:
    tokenizer = small(tmp_path, {"a": 0, "b": 1, "ab": 2}, "a b\n")
    assert tokenizer.encode(b"aab") == [0, 2]
    assert "254 bytes have no token" in tokenizer.remarks[0]
    with pytest.raises(Exception, match="no token"):
        tokenizer.encode(b"abc")


@settings(max_examples=60)
@given(data=st.data())
def test_any_merges_encode_by_the_rule(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    """Hand-made merges too, whose results do not tell them: against the peer's classical rule."""
    tokenizers = pytest.importorskip("tokenizers")
    pool, merges = ["a", "b", "c"], []
    for _ in range(data.draw(st.integers(1, 7))):
        pair = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        if pair not in merges:
            merges.append(pair)
            pool.append("".join(pair))
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys(pool))}
    tokenizer = small(
        tmp_path_factory.mktemp("merges"), vocabulary, "".join(f"{a} {b}\n" for a, b in merges)
    )
    peer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    for text in ("".join(letters) for size in range(7) for letters in product("ab", repeat=size)):
        assert tokenizer.encode(text.encode()) == peer.encode(text).ids


def test_published_merges_are_run_by_tiktoken(gpt2: Tokenizer) -> None:
    assert results_tell_merges(gpt2.merges)
