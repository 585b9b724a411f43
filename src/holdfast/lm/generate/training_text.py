"""Text of a file or folder as tokens, split by file into training and held-out text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError

HELD_OUT = 20
"""One file of so many is held out; of a single file its last part."""
_CHUNK = 1 << 16  # characters per call of the tokenizer


@dataclass(frozen=True)
class Corpus:
    """Tokens of a text, documents separated by the end-of-text token.

    Args:
        train: tokens to train on, int32.
        held_out: tokens of files (or of the last part of one) that are not trained on, int32.
        files: number of files read.
        skipped: number of files that are not UTF-8 text.
    """

    train: np.ndarray
    held_out: np.ndarray
    files: int
    skipped: int

    @property
    def digest(self) -> str:
        """Hash of the tokens."""
        return hashlib.sha256(self.train.tobytes() + b"|" + self.held_out.tobytes()).hexdigest()


class Texts:
    """The readable documents of a file or folder (recursively, hidden files excluded).

    Raises:
        InputError: ``not-found`` or ``no-data``.
    """

    def __init__(self, data: Path) -> None:
        if not data.exists():
            raise InputError(
                "data not found", code="not-found", path=data, expected="a file or folder of text"
            )
        self.train: list[str] = []
        self.held_out: list[str] = []
        self.skipped = 0
        paths = (
            [data] if data.is_file() else sorted(path for path in data.rglob("*") if path.is_file())
        )
        for path in paths:
            name = path.relative_to(data)
            if any(part.startswith(".") for part in name.parts if part != "."):
                continue
            text = _text(path)
            if text is None:
                self.skipped += 1
            elif text.strip():
                # By name, not by position: a new file moves no other to the other side.
                digest = hashlib.sha256(name.as_posix().encode()).digest()
                out = digest[0] * 256 + digest[1] < 65536 // HELD_OUT
                (self.held_out if out else self.train).append(text)
        if not self.train:
            self.train, self.held_out = self.held_out, []
        if self.train and not self.held_out:
            first = self.train[-1]
            cut = len(first) - max(1, len(first) // HELD_OUT)
            self.train[-1], self.held_out = first[:cut], [first[cut:]]
        if not self.train:
            raise InputError(
                "no text to train on",
                code="no-data",
                path=data,
                found=f"{self.skipped} unreadable files",
                expected="files of UTF-8 text",
            )

    def encoded(self, tokenizer: Any) -> Corpus:
        """The tokens of the documents, by a tokenizer of transformers.

        Raises:
            InputError: ``not-found`` for a model without one.
        """
        if tokenizer is None:
            raise InputError("the model has no tokenizer", code="not-found", place="tokenizer")
        train, held_out = (self._tokens(side, tokenizer) for side in (self.train, self.held_out))
        return Corpus(train, held_out, len(self.train) + len(self.held_out), self.skipped)

    def _tokens(self, documents: list[str], tokenizer: Any) -> np.ndarray:
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        parts = []
        for text in documents:
            chunks = list(_chunks(text))
            encoded = tokenizer(chunks, add_special_tokens=False, verbose=False)["input_ids"]
            parts += [np.array(ids, np.int32) for ids in (*encoded, end)]
        return np.concatenate(parts)


def _text(path: Path) -> str | None:
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


def _chunks(text: str) -> Iterator[str]:
    """Pieces that end with a line where possible: tokenizers are slow on one long text."""
    start = 0
    while start < len(text):
        end = min(len(text), start + _CHUNK)
        line = text.rfind("\n", start, end) + 1
        if end < len(text) and line > start:
            end = line
        yield text[start:end]
        start = end


def windows(tokens: np.ndarray, length: int) -> np.ndarray:
    """Consecutive windows of a token sequence: [N, length]; the rest at its end is left out."""
    return tokens[: len(tokens) // length * length].reshape(-1, length)


def new_tokenizer(texts: Texts, vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of at most `vocabulary` tokens, trained on the training text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts.train, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")
