"""SentencePiece models: pieces with scores, byte fallback, and the space that is put in front of a text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.tokenizers.reading import pieces_in_order, read_bytes
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer

_SPACE = "\u2581"

# Fields and values of sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_KINDS: dict[int, Literal["unigram", "bpe", "words"]] = {
    1: "unigram",
    2: "bpe",
    3: "words",
    4: "words",
}


@dataclass(frozen=True)
class _Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    type: int


@dataclass(frozen=True)
class _Model:
    """What a query needs of the model's file."""

    pieces: Sequence[_Piece]
    type: int
    suffixed: bool
    """Spaces stand behind words."""
    identity: bool
    """The normaliser changes no character."""
    dummy_prefix: bool
    removes_spaces: bool
    escapes_spaces: bool


def read_sentencepiece(path: Path, name: str) -> Tokenizer:
    """Read the tokenizer of a SentencePiece model file.

    Control, unknown and unused pieces are not available to queries. Decoding strips one space from the
    start if encoding adds one. The encoder reads U+2581 in a text as a space, as SentencePiece does; with
    byte fallback its three bytes still spell it.

    `merges` is set for BPE models without normalization and user-defined pieces; ranks follow the scores,
    highest first.

    Raises:
        InputError: if the file is missing, damaged, or puts spaces after words.
    """
    content = read_bytes(path)
    try:
        model = _parse(content)
    except (ValueError, struct.error, IndexError) as error:
        raise _not_a_model(path, content, str(error)) from error
    if model.suffixed:
        raise InputError(
            "this model puts spaces behind words, which queries do not support",
            code="unsupported",
            path=path,
            found="treat_whitespace_as_suffix",
            remedy="use a model trained without it",
        )
    encode, bos, eos = _library(path, content, len(model.pieces))
    normalizes = not model.identity or model.removes_spaces
    spelled = {
        token: _spelled(piece, path, token, model.escapes_spaces)
        for token, piece in enumerate(model.pieces)
    }
    pieces, remarks = pieces_in_order(spelled)
    if normalizes:
        remarks += ("the model normalises texts before it encodes them",)
    kind = _KINDS.get(model.type, "unigram")
    plain = not any(piece.type in (_USER_DEFINED, _UNUSED) for piece in model.pieces)
    merges = None
    if kind == "bpe" and plain and not normalizes and model.escapes_spaces:
        merges = merges_of_scores(
            {
                piece.text: token
                for token, piece in enumerate(model.pieces)
                if piece.type == _NORMAL
            },
            np.array([piece.score for piece in model.pieces]),
        )
    return Tokenizer(
        name,
        pieces,
        encode,
        bos=bos,
        eos=eos,
        lead=b" " if model.dummy_prefix or model.removes_spaces else b"",
        kind=kind,
        merges=merges,
        byte_fallback=_fallback(model, spelled),
        normalizes=normalizes,
        remarks=remarks,
    )


def _spelled(piece: _Piece, path: Path, token: int, escaped: bool) -> bytes | None:
    """The bytes of a piece."""
    if piece.type == _BYTE:
        return bytes([byte_of(piece.text, path, f"piece {token}")])
    if piece.type not in (_NORMAL, _USER_DEFINED):
        return None
    return (piece.text.replace(_SPACE, " ") if escaped else piece.text).encode()


def _fallback(model: _Model, spelled: Mapping[int, bytes | None]) -> tuple[int, ...]:
    """[256] the id of every byte's own piece, or none at all."""
    found = {
        spelled[token]: token for token, piece in enumerate(model.pieces) if piece.type == _BYTE
    }
    if len(found) < 256:
        return ()
    return tuple(found[bytes([byte])] for byte in range(256))


def byte_of(text: str, path: Path, place: str) -> int:
    """The byte that a piece such as ``<0x0A>`` stands for."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return int(text[3:5], 16)
        except ValueError:
            pass
    raise InputError(
        "this piece does not name a byte",
        code="damaged",
        path=path,
        place=place,
        found=repr(text),
        expected="<0x00> to <0xFF>",
    )


def merges_of_scores(ids: Mapping[str, int], scores: np.ndarray) -> Merges | None:
    """Every pair of pieces whose concatenation is a piece, ranked by that piece's score, the highest first.

    None if a character of some piece is not a piece: then the ids cannot represent every merge.

    Args:
        ids: text -> id of the ordinary pieces.
        scores: [V] the score of every id.
    """
    if not all(character in ids for text in ids for character in text):
        return None
    rows = [
        (ids[text[:cut]], ids[text[cut:]], token)
        for text, token in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    columns = np.array(rows, np.int32).reshape(-1, 3)
    merged = columns[:, 2].copy()
    _, rank = np.unique(-scores[merged], return_inverse=True)
    return Merges(
        left=columns[:, 0].copy(),
        right=columns[:, 1].copy(),
        merged=merged,
        rank=rank.astype(np.int32),
    )


def _library(
    path: Path, content: bytes, size: int
) -> tuple[Callable[[bytes], list[int]], int | None, int | None]:
    """(encoder, BOS, EOS) by the sentencepiece library, which must see the same vocabulary."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(content)
    except RuntimeError as error:
        raise _not_a_model(path, content, str(error)) from error
    if processor.vocab_size() != size:
        raise _not_a_model(
            path, content, f"{processor.vocab_size()} pieces, where {size} were read"
        )

    def encode(text: bytes) -> list[int]:
        tokens: list[int] = processor.encode(text.decode(), out_type=int)
        return tokens

    bos, eos = processor.bos_id(), processor.eos_id()
    return encode, None if bos < 0 else bos, None if eos < 0 else eos


def _not_a_model(path: Path, content: bytes, reason: str) -> InputError:
    return InputError(
        "this is not a SentencePiece model",
        code="unknown-format",
        path=path,
        found=f"{len(content):,} bytes, {content[:16]!r}... ({reason})",
        expected="a file such as tokenizer.model",
        remedy="fetch the file again; a small file may be a pointer of Git LFS",
    )


def _parse(content: bytes) -> _Model:
    """The model, from protobuf's wire format.

    Raises:
        ValueError: if the bytes are no such message.
    """
    pieces: list[_Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(content):
        if not isinstance(value, bytes):
            continue
        if number == _PIECES:
            entry = dict(_fields(value))
            text, score, type_ = entry.get(1, b""), entry.get(2, bytes(4)), entry.get(3, _NORMAL)
            if not (
                isinstance(text, bytes) and isinstance(score, bytes) and isinstance(type_, int)
            ):
                raise ValueError(f"piece {len(pieces)} has fields of other types")
            pieces.append(_Piece(text.decode(), struct.unpack("<f", score)[0], type_))
        elif number == _TRAINER:
            trainer = dict(_fields(value))
        elif number == _NORMALIZER:
            normalizer = dict(_fields(value))
    if not pieces:
        raise ValueError("it holds no pieces")
    return _Model(
        pieces,
        type=int(trainer.get(3, 1)),
        suffixed=bool(trainer.get(24, 0)),
        identity=not normalizer.get(2),
        dummy_prefix=bool(normalizer.get(3, 1)),
        removes_spaces=bool(normalizer.get(4, 1)),
        escapes_spaces=bool(normalizer.get(5, 1)),
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a protobuf message; numbers of fixed width come as their bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"byte {place}: wire type {kind}")
        if place + size > len(message):
            raise ValueError(f"byte {place}: a field of {size} bytes passes the end")
        yield key >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """(number, place behind it)."""
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError(f"byte {place}: a number without end")
