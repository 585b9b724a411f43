"""tokenizer.json of every kind, made with the `tokenizers` library and read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError, MissingExtraError
from holdfast.lm.tokenizers import splitting_patterns
from holdfast.lm.tokenizers.byte_level import stand_ins
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

tokenizers = pytest.importorskip("tokenizers")
models, trainers, decoders = tokenizers.models, tokenizers.trainers, tokenizers.decoders
normalizers, splitters = tokenizers.normalizers, tokenizers.pre_tokenizers

CORPUS = ["the cat sat on the mat", "a man and a woman", "1 2 3 and 4", "théâtre, cats"] * 5
BYTES = splitters.ByteLevel.alphabet()


def byte_level(splitter: Any = None) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = splitter or splitters.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=BYTES,
        show_progress=False,
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def split_by(pattern: str, behavior: str = "isolated", invert: bool = False) -> Any:
    split = splitters.Split(tokenizers.Regex(pattern), behavior, invert)
    return splitters.Sequence([split, splitters.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama_like(pieces: list[str], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    """Llama 2's form: a space in front, U+2581 for spaces, no splitting, bytes for unknown characters."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocabulary = {name: token for token, name in enumerate(names)}
    library = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    library.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    return library


def llama() -> tokenizers.Tokenizer:
    return llama_like(
        ["\u2581", "a", "c", "t", "h", "e", "at", "\u2581t", "\u2581th", "\u2581the", "cat"],
        [("a", "t"), ("\u2581", "t"), ("\u2581t", "h"), ("\u2581th", "e"), ("c", "at")],
    )


def metaspace_bpe() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    library.pre_tokenizer = splitters.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>"], show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    return library


def unigram() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = splitters.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def word_piece() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = splitters.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=80, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def word_level() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    library.pre_tokenizer = splitters.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    return library


def saved(
    folder: Path, library: tokenizers.Tokenizer, change: Callable[[dict], None] = bool
) -> Tokenizer:
    document = json.loads(library.to_str())
    change(document)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return load_tokenizer(f"hf:{folder}")


@pytest.mark.parametrize(
    ("make", "kind", "lead", "normalizes", "merges"),
    [
        (byte_level, "bpe", b"", False, True),
        (llama, "bpe", b" ", False, True),
        (metaspace_bpe, "bpe", b" ", True, False),
        (unigram, "unigram", b" ", True, False),
        (word_piece, "wordpiece", b" ", True, False),
        (word_level, "words", b" ", True, False),
    ],
)
def test_kinds(
    tmp_path: Path, make, kind: str, lead: bytes, normalizes: bool, merges: bool
) -> None:
    library = make()
    tokenizer = saved(tmp_path, library)
    found = (tokenizer.kind, tokenizer.lead, tokenizer.normalizes, tokenizer.merges is not None)
    assert found == (kind, lead, normalizes, merges)
    assert tokenizer.size == library.get_vocab_size()
    for text in ("the cat sat", "a man and a woman", "mat"):
        tokens = tokenizer.encode(text.encode())
        assert tokens == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.spell(tokens).decode() == library.decode(tokens) == text


@pytest.mark.parametrize("make", [byte_level, llama])
def test_any_text_goes_round(tmp_path: Path, make) -> None:
    tokenizer = saved(tmp_path, make())

    @settings(max_examples=100)
    @given(
        text=st.text(
            st.characters(exclude_categories=["Cs"]) | st.sampled_from(" acthe"), max_size=30
        )
    )
    def round_trip(text: str) -> None:
        # As in SentencePiece, U+2581 in a text is read as a space.
        expected = text if make is byte_level else text.replace("\u2581", " ")
        assert tokenizer.spell(tokenizer.encode(text.encode())).decode() == expected

    round_trip()


def test_pieces_are_what_the_library_decodes(tmp_path: Path) -> None:
    library = llama()
    tokenizer = saved(tmp_path, library)
    front = library.token_to_id("a")
    for token, piece in enumerate(tokenizer.pieces):
        if piece is not None and (token not in tokenizer.byte_fallback or piece.isascii()):
            assert library.decode([front, token]) == "a" + piece.decode()
    assert tokenizer.pieces[tokenizer.byte_fallback[0xE9]] == b"\xe9"
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)


def test_special_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, byte_level())
    tokens = tokenizer.encode(b"a<|endoftext|>")
    assert tokenizer.eos == tokenizer.bos == 0
    assert 0 not in tokens
    assert tokenizer.spell(tokens) == b"a<|endoftext|>"


def test_other_added_tokens_are_text_and_no_merges_tell_them(tmp_path: Path) -> None:
    library = byte_level()
    library.add_tokens(["cats and"])
    tokenizer = saved(tmp_path, library)
    added = library.token_to_id("cats and")
    assert tokenizer.pieces[added] == b"cats and"
    assert added in tokenizer.encode(b"the cats and dogs")
    assert tokenizer.spell(tokenizer.encode(b"the cats and dogs")) == b"the cats and dogs"
    assert tokenizer.merges is None
    assert tokenizer.splitter is None


@pytest.mark.parametrize(
    ("splitter", "expected"),
    [
        (splitters.ByteLevel(add_prefix_space=False), splitting_patterns.GPT2),
        (splitters.ByteLevel(add_prefix_space=False, use_regex=False), None),
        (split_by(splitting_patterns.LLAMA3), splitting_patterns.LLAMA3),
        (split_by(splitting_patterns.QWEN2), splitting_patterns.QWEN2),
        (split_by(splitting_patterns.TEKKEN), splitting_patterns.TEKKEN),
        (split_by(splitting_patterns.LLAMA3, "removed", True), splitting_patterns.LLAMA3),
        (split_by(r"\d+|\D+"), "unknown"),
        (
            splitters.Sequence([splitters.Digits(), splitters.ByteLevel(add_prefix_space=False)]),
            "unknown",
        ),
    ],
)
def test_splitters(tmp_path: Path, splitter: Any, expected: str | None) -> None:
    tokenizer = saved(tmp_path, byte_level(splitter))
    assert (tokenizer.merges is None) == (expected == "unknown")
    assert tokenizer.splitter == (None if expected == "unknown" else expected)
    if tokenizer.splitter:
        for text in ("the cat's 1234 hats,  and\n\n mats!", "THE Cats\r\n", "日本 théâtre "):
            words = regex.findall(tokenizer.splitter, text)
            cut = [word for word, _ in splitter.pre_tokenize_str(text)]
            assert words == [bytes(stand_ins()[letter] for letter in word).decode() for word in cut]


def test_what_changes_texts_is_said(tmp_path: Path) -> None:
    library = byte_level()
    library.normalizer = normalizers.NFC()
    tokenizer = saved(tmp_path, library)
    assert tokenizer.normalizes
    assert tokenizer.merges is None
    assert "changes some texts" in tokenizer.remarks[-1]


def test_dropout_is_off(tmp_path: Path) -> None:
    def change(document: dict) -> None:
        document["model"] |= {"dropout": 0.9, "ignore_merges": True}

    plain = byte_level()
    tokenizer = saved(tmp_path, plain, change)
    for _ in range(5):
        assert tokenizer.encode(b"the cat and the mat") == plain.encode("the cat and the mat").ids


def test_truncation_and_padding_are_off(tmp_path: Path) -> None:
    library = byte_level()
    library.enable_truncation(3)
    library.enable_padding(length=50)
    tokenizer = saved(tmp_path, library)
    assert tokenizer.spell(tokenizer.encode(b"the cat sat on the mat")) == b"the cat sat on the mat"


@pytest.mark.parametrize(
    ("file", "content", "bos", "eos"),
    [
        ("tokenizer_config.json", {"bos_token": None, "eos_token": "<|endoftext|>"}, None, 0),
        ("tokenizer_config.json", {"bos_token": {"content": "a"}, "eos_token": None}, "a", None),
        ("special_tokens_map.json", {"eos_token": {"content": "b"}}, 0, "b"),
        ("config.json", {"bos_token_id": 7, "eos_token_id": [8, 9]}, 7, 8),
    ],
)
def test_ends_of_a_text(tmp_path: Path, file: str, content: dict, bos: Any, eos: Any) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    library = byte_level()
    tokenizer = saved(tmp_path, library)
    named = [library.token_to_id(x) if isinstance(x, str) else x for x in (bos, eos)]
    assert [tokenizer.bos, tokenizer.eos] == named


def test_gaps_and_twins_are_remarked(tmp_path: Path) -> None:
    def change(document: dict) -> None:
        document["model"]["vocab"]["\u0100far"] = 400

    tokenizer = saved(tmp_path, byte_level(), change)
    assert tokenizer.size == 401
    assert "have no token" in tokenizer.remarks[0]
    tokenizer = saved(tmp_path, llama_like(["A", "\u2581"], []))
    assert "2 tokens spell the bytes of another" in tokenizer.remarks[0]


def test_tokens_whose_bytes_nobody_says_are_refused(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"))
    library.decoder = decoders.BPEDecoder()
    with pytest.raises(InputError, match="do not say which bytes"):
        saved(tmp_path, library)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = byte_level()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[hf\]"):
        saved(tmp_path, library)
