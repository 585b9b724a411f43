"""SentencePiece models: a published one, and small ones trained here, against the library itself."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.merging import merged, pair_table
from holdfast.lm.tokenizers.tokenizer import Tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "aAé 's\n\t19.,日", max_size=30
)
CORPUS = ["the cat sat on the mat", "a man and a woman", "1 2 3 and 4", "théâtre, cats"] * 20


@pytest.fixture(scope="module")
def file(shared_data: Path) -> Path:
    return shared_data / "tokenizers" / "mistral_v1_sentencepiece.model"


@pytest.fixture(scope="module")
def mistral(file: Path) -> Tokenizer:
    return load_tokenizer(f"sentencepiece:{file}")


@pytest.fixture(scope="module")
def peer(file: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(file))


def test_the_facts_of_the_published_model(mistral: Tokenizer) -> None:
    assert mistral.size == 32_000
    assert (mistral.bos, mistral.eos, mistral.lead, mistral.kind) == (1, 2, b" ", "bpe")
    assert mistral.pieces[:3] == (None, None, None)
    assert mistral.pieces[3:259] == tuple(bytes([byte]) for byte in range(256))
    assert mistral.byte_fallback == tuple(range(3, 259))
    assert not mistral.normalizes
    assert len(mistral.merges.rank) == 58_980
    assert mistral.remarks[0].startswith(
        "125 tokens spell the bytes of another, such as 28705 and 35"
    )


def test_pieces_are_those_of_the_library(
    mistral: Tokenizer, peer: sentencepiece.SentencePieceProcessor
) -> None:
    """Behind a token that holds the dummy prefix, every piece decodes to its bytes."""
    front = peer.piece_to_id("\u2581a")
    for token, piece in enumerate(mistral.pieces):
        if piece is None:
            assert peer.is_control(token) or peer.is_unknown(token)
        elif not peer.is_byte(token):
            assert peer.decode([front, token]) == "a" + piece.decode()


@settings(max_examples=300)
@given(text=TEXTS)
def test_round_trip(
    mistral: Tokenizer, peer: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    tokens = mistral.encode(text.encode())
    assert tokens == peer.encode(text)
    # The library reads U+2581 as a space.
    assert mistral.spell(tokens) == text.replace("\u2581", " ").encode()


def test_merges_by_score_decide_the_encoding(mistral: Tokenizer) -> None:
    pairs = pair_table(mistral.merges)
    ids = {piece: token for token, piece in enumerate(mistral.pieces) if token > 258}
    generator = random.Random(0)
    for _ in range(100):
        text = "".join(generator.choices("abcdehinorst ,.1é日", k=generator.randrange(1, 30)))
        characters = [ids[character.encode()] for character in " " + text]
        assert merged(characters, pairs) == mistral.encode(text.encode())


def trained(folder: Path, **options: object) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, minloglevel=2, hard_vocab_limit=False,
        num_threads=1, **{"vocab_size": 60, **options},
    )  # fmt: skip
    file = folder / "m.model"
    file.write_bytes(model.getvalue())
    return file


@pytest.mark.parametrize(
    ("options", "kind", "lead", "normalizes", "merges"),
    [
        ({"model_type": "unigram"}, "unigram", b" ", True, False),
        ({"model_type": "bpe"}, "bpe", b" ", True, False),
        ({"model_type": "bpe", "normalization_rule_name": "identity",
          "remove_extra_whitespaces": False}, "bpe", b" ", False, True),
        ({"model_type": "bpe", "normalization_rule_name": "identity", "add_dummy_prefix": False,
          "remove_extra_whitespaces": False}, "bpe", b"", False, True),
        ({"model_type": "bpe", "normalization_rule_name": "identity", "user_defined_symbols": ["cat"],
          "remove_extra_whitespaces": False}, "bpe", b" ", False, False),
        ({"model_type": "unigram", "normalization_rule_name": "identity", "byte_fallback": True,
          "remove_extra_whitespaces": False, "vocab_size": 300, "bos_id": -1},
         "unigram", b" ", False, False),
    ],
)  # fmt: skip
def test_kinds_of_models(
    tmp_path: Path, options: dict, kind: str, lead: bytes, normalizes: bool, merges: bool
) -> None:
    file = trained(tmp_path, **options)
    library = sentencepiece.SentencePieceProcessor(model_file=str(file))
    tokenizer = load_tokenizer(f"sentencepiece:{file}")
    found = (tokenizer.kind, tokenizer.lead, tokenizer.normalizes, tokenizer.merges is not None)
    assert found == (kind, lead, normalizes, merges)
    assert bool(tokenizer.byte_fallback) == ("byte_fallback" in options)
    assert tokenizer.bos == (None if library.bos_id() < 0 else library.bos_id())
    for text in ("the cat sat", "a man, a woman", "cats and mats 1"):
        tokens = tokenizer.encode(text.encode())
        assert tokens == library.encode(text)
        assert tokenizer.spell(tokens).decode() == library.decode(tokens) == text
    for text in ("  the  cat", "a "):
        if not normalizes:
            assert tokenizer.spell(tokenizer.encode(text.encode())) == text.encode()


def test_spaces_behind_words_are_refused(tmp_path: Path) -> None:
    file = trained(tmp_path, model_type="bpe", treat_whitespace_as_suffix=True)
    with pytest.raises(InputError, match="spaces behind words"):
        load_tokenizer(f"sentencepiece:{file}")
