"""Published tokenizers, read once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

PUBLISHED = {
    "GPT-2": "gpt2:{}",
    "cl100k": "tiktoken:{}/cl100k_base.tiktoken",
    "Mistral": "sentencepiece:{}/mistral_v1_sentencepiece.model",
}


@cache
def published(name: str, data: Path) -> Tokenizer:
    """One of `PUBLISHED`, from the folder of real input."""
    return load_tokenizer(PUBLISHED[name].format(data / "tokenizers"))
