"""The document ``tokenizer.json``: its parts, checked for what the rest relies on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import InputError
from holdfast.lm.tokenizers.reading import check_id, vocabulary_ids

KINDS: dict[str, Literal["bpe", "unigram", "wordpiece", "words"]] = {
    "BPE": "bpe",
    "Unigram": "unigram",
    "WordPiece": "wordpiece",
    "WordLevel": "words",
}
"""The model types that are read."""


@dataclass(frozen=True)
class Document:
    """A ``tokenizer.json``, its lists of steps flattened."""

    path: Path
    model: Mapping[str, Any]
    ids: Mapping[str, int]
    """Token -> id of the model's own vocabulary."""
    added: Mapping[int, Mapping[str, Any]]
    """Id -> added token."""
    normalizers: tuple[Mapping[str, Any], ...]
    splitters: tuple[Mapping[str, Any], ...]
    decoders: tuple[Mapping[str, Any], ...]

    @property
    def steps(self) -> Iterator[Mapping[str, Any]]:
        """All steps around the model."""
        yield from (*self.normalizers, *self.splitters, *self.decoders)

    def has(self, kind: str) -> bool:
        """Whether a step is of a kind."""
        return any(step.get("type") == kind for step in self.steps)


def parse_document(path: Path, read: Mapping[str, Any]) -> Document:
    """The parts of the file.

    Raises:
        InputError: if one is missing or damaged.
    """
    model = read.get("model")
    if not isinstance(model, dict):
        raise InputError(
            "this file holds no tokenizer",
            code="damaged",
            path=path,
            found="keys " + ", ".join(sorted(read)[:8]),
            expected="tokenizer.json of the library tokenizers, with the key model",
        )
    if model.get("type") not in KINDS:
        # Files of older releases leave the type of BPE out.
        if model.get("type") is None and "merges" in model:
            model = {**model, "type": "BPE"}
        else:
            raise InputError(
                "this kind of tokenizer is not known",
                code="unsupported",
                path=path,
                place="model.type",
                found=repr(model.get("type")),
                expected=", ".join(KINDS),
            )
    if model["type"] == "Unigram":
        ids = _unigram_ids(path, model.get("vocab"))
    else:
        ids = vocabulary_ids(model.get("vocab"), path=path, place="model.vocab")
    added: dict[int, Mapping[str, Any]] = {}
    for number, entry in enumerate(read.get("added_tokens") or []):
        place = f"added_tokens, entry {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise InputError(
                "this is not an added token",
                code="damaged",
                path=path,
                place=place,
                found=repr(entry)[:60],
                expected="an object with id and content",
            )
        added[check_id(entry.get("id"), path=path, place=place)] = entry
    return Document(
        path,
        model,
        ids,
        added,
        tuple(_steps(read.get("normalizer"), "normalizers")),
        tuple(_steps(read.get("pre_tokenizer"), "pretokenizers")),
        tuple(_steps(read.get("decoder"), "decoders")),
    )


def _steps(found: object, key: str) -> Iterator[Mapping[str, Any]]:
    """The steps of one stage, sequences unfolded."""
    if isinstance(found, dict):
        if found.get("type") == "Sequence":
            for step in found.get(key) or []:
                yield from _steps(step, key)
        else:
            yield found


def _unigram_ids(path: Path, found: object) -> dict[str, int]:
    """Token -> id of a Unigram model, whose vocabulary is a list of [token, score]."""
    if not isinstance(found, list) or not found:
        raise InputError(
            "there is no vocabulary here",
            code="damaged",
            path=path,
            place="model.vocab",
            found=type(found).__name__,
            expected="a list of [token, score]",
        )
    ids: dict[str, int] = {}
    for token, entry in enumerate(found):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise InputError(
                "this is not a token and its score",
                code="damaged",
                path=path,
                place=f"model.vocab, entry {token}",
                found=repr(entry)[:60],
                expected="[token, score]",
            )
        # A token that stands twice is two ids with the same bytes; the first is the encoder's.
        ids[entry[0] if entry[0] not in ids else f"{entry[0]}\0{token}"] = token
    return ids
