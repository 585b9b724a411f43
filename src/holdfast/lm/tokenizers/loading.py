"""Tokenizers by name: which files each kind reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.errors import InputError
from holdfast.lm.tokenizers.byte_level import read_gpt2
from holdfast.lm.tokenizers.rank_files import read_ranks
from holdfast.lm.tokenizers.sentence_pieces import read_sentencepiece
from holdfast.lm.tokenizers.tokenizer import Tokenizer
from holdfast.lm.tokenizers.tokenizer_json import read_tokenizer_json

_READERS: dict[str, tuple[str, Callable[[str, str], Tokenizer]]] = {
    "gpt2": (
        "gpt2:DIR with encoder.json and vocab.bpe",
        lambda path, name: read_gpt2(Path(path), name),
    ),
    "tiktoken": ("tiktoken:FILE", read_ranks),
    "sentencepiece": (
        "sentencepiece:FILE",
        lambda path, name: read_sentencepiece(Path(path), name),
    ),
    "hf": (
        "hf:DIR with tokenizer.json",
        lambda path, name: read_tokenizer_json(Path(path), name),
    ),
}


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that a name such as ``gpt2:DIR`` means.

    Kinds: ``gpt2:DIR`` (encoder.json or vocab.json, and vocab.bpe or merges.txt); ``tiktoken:FILE`` (lines
    of base64 and rank; the file's name says which encoding, or ``?pattern=...`` behind it gives the
    splitter); ``sentencepiece:FILE``; ``hf:DIR`` (tokenizer.json).

    Raises:
        InputError: if the kind is unknown, or a file is missing or damaged.
        MissingExtraError: if ``hf:DIR`` is asked for without the library `tokenizers`.
    """
    kind, colon, path = name.partition(":")
    if not colon or not path or kind not in _READERS:
        raise InputError(
            "this does not name a tokenizer",
            found=repr(name),
            expected="one of " + ", ".join(form for form, _ in _READERS.values()),
        )
    _, read = _READERS[kind]
    return read(path, name)
