"""Tokenizers by name: which files each kind reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.errors import InputError
from holdfast.lm.tokenizers.byte_level import read_gpt2
from holdfast.lm.tokenizers.tokenizer import Tokenizer

_READERS: dict[str, tuple[str, Callable[[Path, str], Tokenizer]]] = {
    "gpt2": ("gpt2:DIR with encoder.json and vocab.bpe", read_gpt2),
}


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that a name such as ``gpt2:DIR`` means.

    Kinds: ``gpt2:DIR`` (encoder.json or vocab.json, and vocab.bpe or merges.txt).

    Raises:
        InputError: if the kind is unknown, or a file is missing or damaged.
    """
    kind, colon, path = name.partition(":")
    if not colon or not path or kind not in _READERS:
        raise InputError(
            "this does not name a tokenizer",
            found=repr(name),
            expected="one of " + ", ".join(form for form, _ in _READERS.values()),
        )
    _, read = _READERS[kind]
    return read(Path(path), name)
