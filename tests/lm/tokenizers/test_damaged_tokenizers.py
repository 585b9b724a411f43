"""Files that are damaged, or of another kind: the error names the file, the place and what stands there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.lm.tokenizers.loading import load_tokenizer

LINES = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]


def refused(name: str) -> str:
    with pytest.raises(InputError) as caught:
        load_tokenizer(name)
    return str(caught.value)


@pytest.mark.parametrize("name", ["", "gpt2", "gpt2:", "/some/where", "words:x", "https://a.b/c"])
def test_names_that_mean_nothing(name: str) -> None:
    message = refused(name)
    assert repr(name) in message
    assert "gpt2:DIR" in message
    assert "hf:DIR" in message


@pytest.mark.parametrize("kind", ["gpt2", "tiktoken", "sentencepiece", "hf"])
def test_nothing_there(tmp_path: Path, kind: str) -> None:
    assert str(tmp_path / "absent") in refused(f"{kind}:{tmp_path / 'absent'}")


@pytest.mark.parametrize("kind", ["gpt2", "tiktoken", "sentencepiece", "hf"])
def test_an_empty_folder(tmp_path: Path, kind: str) -> None:
    assert str(tmp_path) in refused(f"{kind}:{tmp_path}")


@pytest.mark.parametrize("kind", ["tiktoken", "sentencepiece", "hf"])
@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs\noid 1\n", b"\xff\xfe\x00\x80" * 9]
)
def test_other_files(tmp_path: Path, kind: str, content: bytes) -> None:
    """Nothing, a pointer of Git LFS, and bytes of no kind."""
    (tmp_path / "cl100k_base").write_bytes(content)
    assert "cl100k_base" in refused(f"{kind}:{tmp_path / 'cl100k_base'}")


@pytest.mark.parametrize(
    ("vocabulary", "merges", "expected"),
    [
        ("{", "", ("vocab.json, line 1, column 2", "not JSON")),
        ("[1]", "", ("vocab.json", "JSON object", "list")),
        ("{}", "", ("vocab.json", "no vocabulary", "empty object")),
        ({"a": -1}, "", ("vocab.json, token 'a'", "not the id", "-1")),
        ({"a": 1.5}, "", ("token 'a'", "1.5")),
        ({"a": True}, "", ("token 'a'", "True")),
        ({"a": 10**12}, "", ("token 'a'", "whole number from 0 to")),
        ({"a": 0, "b": 0}, "", ("token 'b'", "same id", "that of 'a'")),
        ({"a": 0, "b": 1, "ab": 2}, "a b c\n", ("merges.txt, line 1", "not a merge", "a b c")),
        (
            {"a": 0, "b": 1, "ab": 2},
            "#version: 0.2\na b\n\nab a\n",
            ("line 4", "does not hold", "'aba'"),
        ),
        ({"a": 0, "b": 1, "ab": 2}, "a b\na x\n", ("line 2", "'x'", "a token of vocab.json")),
        ({"a": 0, "b": 1, "ab": 2}, "a b\na b\n", ("line 2", "duplicate merge", "line 1")),
        ({"a": 0, "\u2581": 1, "a\u2581": 2}, "a \u2581\n", ("line 1", "stand-ins", "hf:DIR")),
        ({"a": 0}, b"\n\xff", ("merges.txt, line 2", "not text in UTF-8")),
    ],
)
def test_gpt2(
    tmp_path: Path, vocabulary: Any, merges: str | bytes, expected: tuple[str, ...]
) -> None:
    text = vocabulary if isinstance(vocabulary, str) else json.dumps(vocabulary)
    (tmp_path / "vocab.json").write_text(text)
    (tmp_path / "merges.txt").write_bytes(merges if isinstance(merges, bytes) else merges.encode())
    message = refused(f"gpt2:{tmp_path}")
    for part in expected:
        assert part in message


def test_gpt2_of_several_models_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "one_encoder.json").write_text("{}")
    assert "*vocab.bpe" in refused(f"gpt2:{tmp_path}") or "vocabulary" in refused(
        f"gpt2:{tmp_path}"
    )
    (tmp_path / "two_encoder.json").write_text("{}")
    assert "several files" in refused(f"gpt2:{tmp_path}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b"YQ== 1", b"!!!! 2"], ("line 2", "not base64", "'!!!!'")),
        ([b"YQ 1"], ("line 1", "not base64", "padding")),
        ([b"YQ== 1 2"], ("line 1", "not a token and its rank")),
        ([b"YQ== x"], ("line 1", "not a token and its rank")),
        ([b"YQ== -1"], ("line 1", "not a token and its rank")),
        ([b"YQ== 99999999999"], ("line 1", "not the id of a token")),
        ([*LINES, b"YWI= 255"], ("line 257", "duplicate", "YWI=")),
        ([*LINES, b"YQ== 256"], ("line 257", "duplicate", "YQ==")),
        (LINES[:200], ("56 bytes without one", "0xC8")),
        ([*LINES, b"YWI= 100257"], ("id of a control token", "100257")),
    ],
)
def test_tiktoken(tmp_path: Path, lines: list[bytes], expected: tuple[str, ...]) -> None:
    (tmp_path / "cl100k_base.tiktoken").write_bytes(b"\n".join(lines))
    message = refused(f"tiktoken:{tmp_path / 'cl100k_base.tiktoken'}")
    for part in (*expected, "cl100k_base.tiktoken"):
        assert part in message


def test_tiktoken_patterns(tmp_path: Path) -> None:
    file = tmp_path / "mine.tiktoken"
    file.write_bytes(b"\n".join(LINES))
    assert "?pattern=" in refused(f"tiktoken:{file}")
    assert "not a regular expression" in refused(f"tiktoken:{file}?pattern=(")


def test_a_model_cut_short(tmp_path: Path, shared_data: Path) -> None:
    content = (shared_data / "tokenizers" / "mistral_v1_sentencepiece.model").read_bytes()
    for size in (1, 100, 5_000, len(content) - 7):
        (tmp_path / "m.model").write_bytes(content[:size])
        message = refused(f"sentencepiece:{tmp_path / 'm.model'}")
        assert "not a SentencePiece model" in message
        assert f"{size:,} bytes" in message


def document(**changes: Any) -> dict[str, Any]:
    model = {
        "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "dropout": None,
        "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False,
    }  # fmt: skip
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {**model, **changes.pop("model", {})}, **changes,
    }  # fmt: skip


def test_the_document_of_the_table_is_sound(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document()))
    assert load_tokenizer(f"hf:{tmp_path}").pieces == (b"a", b"b", b"ab")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"a": 1}, ("holds no tokenizer", "keys a")),
        (document(model={"type": "Magic"}), ("model.type", "'Magic'", "BPE, Unigram")),
        (document(model={"vocab": []}), ("model.vocab", "no vocabulary")),
        (document(model={"vocab": {"a": "0"}}), ("model.vocab, token 'a'", "'0'")),
        (document(model={"vocab": {"a": 0, "b": 0}}), ("same id", "that of 'a'")),
        (document(model={"merges": [["a", "z"]]}), ("tokenizer.json",)),
        (document(model={"merges": [["a", "b", "c"]]}), ("tokenizer.json",)),
        (document(model={"type": "Unigram", "vocab": {"a": 0}}), ("list of [token, score]",)),
        (document(model={"type": "Unigram", "vocab": [["a"]]}), ("model.vocab, entry 0",)),
        (document(added_tokens=[{"id": 3}]), ("added_tokens, entry 0",)),
        (document(added_tokens=[{"id": "3", "content": "x"}]), ("added_tokens, entry 0", "'3'")),
        (document(pre_tokenizer={"type": "Magic"}), ("does not accept this file",)),
        (document(pre_tokenizer=None, decoder=None), ("do not say which bytes",)),
    ],
)  # fmt: skip
def test_hugging_face(tmp_path: Path, found: dict, expected: tuple[str, ...]) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(found))
    message = refused(f"hf:{tmp_path}")
    for part in (*expected, "tokenizer.json"):
        assert part in message


def test_hugging_face_ends_that_are_not_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document()))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    message = refused(f"hf:{tmp_path}")
    assert "tokenizer_config.json, eos_token" in message
    assert "'</s>'" in message
