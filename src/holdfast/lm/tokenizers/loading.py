"""Tokenizers by name: which files each kind reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.tokenizers.byte_level import read_gpt2
from holdfast.lm.tokenizers.chat import read_chat_template
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
    "hf": ("hf:DIR with tokenizer.json", lambda path, name: _read_folder(local_folder(path), name)),
}


def local_folder(place: str) -> Path:
    """A local folder as it is; else the snapshot of a hub's model in the local cache (HF_HOME).

    Raises:
        InputError: if there is neither.
    """
    path = Path(place)
    if path.exists() or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", place):
        return path
    with suppress(ImportError):
        from huggingface_hub import try_to_load_from_cache

        for file in ("config.json", "tokenizer.json"):
            cached = try_to_load_from_cache(place, file)
            if isinstance(cached, str):
                return Path(cached).parent
    raise InputError(
        "model not found",
        code="not-found",
        path=place,
        expected="a local folder, or the name of a model in the local hub cache (HF_HOME)",
        remedy=f"download it first (hf download {place}); nothing is downloaded here",
    )


def of_transformers(tokenizer: Any) -> Tokenizer:
    """A tokenizer object of transformers, fast or slow, by the files that it saves.

    Raises:
        InputError: if it saves none that can be read.
    """
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    with TemporaryDirectory() as folder:
        try:
            tokenizer.save_pretrained(folder)
        except (OSError, ValueError, AttributeError, NotImplementedError) as error:
            raise InputError(
                "this tokenizer object cannot be saved",
                code="unsupported",
                place=name,
                found=f"{type(error).__name__}: {error}",
                expected="a tokenizer of transformers, or one of load_tokenizer",
            ) from error
        return _read_folder(Path(folder), f"hf:{name}")


def _read_folder(folder: Path, name: str) -> Tokenizer:
    """The tokenizer of a folder, by the first form of files that it holds."""
    if folder.is_dir() and not (folder / "tokenizer.json").is_file():
        made: Tokenizer | None = None
        if (folder / "tokenizer.model").is_file():
            made = read_sentencepiece(folder / "tokenizer.model", name)
        elif (folder / "merges.txt").is_file():
            made = read_gpt2(folder, name)
        if made is not None:
            return replace(made, chat=read_chat_template(folder))
    return read_tokenizer_json(folder, name)


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that a name such as ``gpt2:DIR`` means.

    Kinds: ``gpt2:DIR`` (encoder.json or vocab.json, and vocab.bpe or merges.txt); ``tiktoken:FILE`` (lines
    of base64 and rank; the file's name says which encoding, or ``?pattern=...`` behind it gives the
    splitter); ``sentencepiece:FILE``; ``hf:DIR`` (tokenizer.json, else tokenizer.model or merges.txt), or
    ``hf:NAME`` of a model in the local hub cache.

    Raises:
        InputError: if the kind is unknown, or a file is missing or damaged.
        MissingExtraError: if ``hf:DIR`` is asked for without the library `tokenizers`.
    """
    kind, colon, path = name.partition(":")
    if not colon or not path or kind not in _READERS:
        raise InputError(
            "unknown kind of tokenizer",
            code="unknown-name",
            found=repr(name),
            expected="one of " + ", ".join(form for form, _ in _READERS.values()),
        )
    _, read = _READERS[kind]
    return read(path, name)
