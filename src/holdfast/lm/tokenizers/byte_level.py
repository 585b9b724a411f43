"""GPT-2's tokenizer files: tokens written in printable stand-ins for bytes, and the merges in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.tokenizers import splitting_patterns
from holdfast.lm.tokenizers.merging import merged, pair_table, results_tell_merges
from holdfast.lm.tokenizers.reading import (
    find_file,
    pieces_in_order,
    read_json,
    read_text,
    vocabulary_ids,
)
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer

_END_OF_TEXT = "<|endoftext|>"


def stand_ins() -> dict[str, int]:
    """Character -> byte: GPT-2's table, by which any bytes are written in printable characters.

    Bytes that Latin-1 prints stand for themselves; the other 68 are, in order, the characters from U+0100.
    """
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printed)]
    return {chr(byte): byte for byte in printed} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


def read_gpt2(folder: Path, name: str) -> Tokenizer:
    """The tokenizer of a folder with ``encoder.json`` (or vocab.json) and ``vocab.bpe`` (or merges.txt).

    Tokens that are neither a byte nor made by a merge are control tokens; ``<|endoftext|>`` begins and ends
    a text.

    Raises:
        InputError: if a file is missing or damaged, or if the two do not fit together.
    """
    vocabulary_file = find_file(
        folder, ("encoder.json", "vocab.json", "gpt2_encoder.json"), "*encoder.json"
    )
    merges_file = find_file(folder, ("vocab.bpe", "merges.txt", "gpt2_vocab.bpe"), "*vocab.bpe")
    ids = vocabulary_ids(read_json(vocabulary_file), path=vocabulary_file)
    merges = _read_merges(merges_file, ids, vocabulary_file)

    table = stand_ins()
    made = set(merges.merged.tolist())
    spelled: dict[int, bytes | None] = {}
    for token, number in ids.items():
        ordinary = token in table or number in made
        spelled[number] = bytes(table[character] for character in token) if ordinary else None
    pieces, remarks = pieces_in_order(spelled)
    bases = {table[token]: number for token, number in ids.items() if token in table}
    if len(bases) < 256:
        missing = next(byte for byte in range(256) if byte not in bases)
        remarks += (f"{256 - len(bases)} bytes have no token, such as 0x{missing:02X}",)
    end = ids.get(_END_OF_TEXT)
    return Tokenizer(
        name,
        pieces,
        byte_pair_encoder(pieces, bases, merges, splitting_patterns.GPT2, name),
        bos=ids.get("<s>") if end is None else end,
        eos=ids.get("</s>") if end is None else end,
        merges=merges,
        splitter=splitting_patterns.GPT2,
        remarks=remarks,
    )


def _read_merges(path: Path, ids: Mapping[str, int], vocabulary_file: Path) -> Merges:
    """The merges of a file with one ``left right`` a line, the first to apply first."""
    written = {*stand_ins(), " "}
    rows: list[tuple[int, int, int]] = []
    seen: dict[tuple[int, int], int] = {}
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        if not text.strip() or (line == 1 and text.startswith("#version")):
            continue
        place = f"line {line}"
        pair = text.rstrip("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise InputError(
                "this line is not a merge",
                code="damaged",
                path=path,
                place=place,
                found=repr(text),
                expected="two tokens with one space between them",
            )
        strange = next(
            (character for character in text.rstrip("\r") if character not in written), None
        )
        if strange is not None:
            raise InputError(
                "this merge is not written in GPT-2's stand-ins for bytes",
                code="damaged",
                path=path,
                place=place,
                found=f"{strange!r} in {text!r}",
                expected="characters such as Ġ for a space",
                remedy="if the folder holds tokenizer.json, load it as hf:DIR",
            )
        for token in (*pair, "".join(pair)):
            if token not in ids:
                raise InputError(
                    "this merge names a token that the vocabulary does not hold",
                    code="unknown-name",
                    path=path,
                    place=place,
                    found=f"{token!r} in {text!r}",
                    expected=f"a token of {vocabulary_file.name}",
                    remedy="take the vocabulary and the merges from the same model",
                )
        left, right = (ids[token] for token in pair)
        if (left, right) in seen:
            raise InputError(
                "duplicate merge",
                code="duplicate",
                path=path,
                place=place,
                found=f"{text!r}, as in line {seen[left, right]}",
                expected="every pair once",
            )
        seen[left, right] = line
        rows.append((left, right, ids["".join(pair)]))
    columns = np.array(rows, np.int32).reshape(-1, 3)
    return Merges(
        left=columns[:, 0].copy(),
        right=columns[:, 1].copy(),
        merged=columns[:, 2].copy(),
        rank=np.arange(len(rows), dtype=np.int32),
    )


def byte_pair_encoder(
    pieces: tuple[bytes | None, ...],
    bases: Mapping[int, int],
    merges: Merges,
    splitter: str,
    name: str,
) -> Callable[[bytes], list[int]]:
    """The encoder of byte-level merges, run by tiktoken where its rule is the same.

    tiktoken knows merges by what they make, in order; so the tokens get ranks of their own here (bytes,
    then merges in order), and the ids come back through a table.

    Args:
        pieces: [V] the bytes of every id.
        bases: byte -> id of the token that stands for it.
        merges: the merges, the first to apply first.
        splitter: the pattern that cuts a text into words.
        name: the tokenizer's, for errors.
    """
    if not results_tell_merges(merges):
        return _plain_encoder(bases, merges, splitter, name)
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)}
    token_of_rank = [bases.get(byte, -1) for byte in range(256)]
    for token in merges.merged.tolist():
        piece = pieces[token]
        assert piece is not None
        if piece not in ranks:
            ranks[piece] = len(token_of_rank)
            token_of_rank.append(token)
    table = np.array(token_of_rank)
    encoding = tiktoken.Encoding(name, pat_str=splitter, mergeable_ranks=ranks, special_tokens={})

    def encode(text: bytes) -> list[int]:
        tokens: list[int] = table[encoding.encode_ordinary(text.decode())].tolist()
        if -1 in tokens:
            raise _no_token(text, name)
        return tokens

    return encode


def _plain_encoder(
    bases: Mapping[int, int], merges: Merges, splitter: str, name: str
) -> Callable[[bytes], list[int]]:
    """The same for merges that their results do not tell; slower."""
    import regex

    words = regex.compile(splitter)
    pairs = pair_table(merges)

    def encode(text: bytes) -> list[int]:
        if not all(byte in bases for byte in text):
            raise _no_token(text, name)
        return [
            token
            for word in words.findall(text.decode())
            for token in merged([bases[byte] for byte in word.encode()], pairs)
        ]

    return encode


def _no_token(text: bytes, name: str) -> InputError:
    return InputError(
        "this text holds a byte for which the tokenizer has no token",
        code="damaged",
        path=name,
        found=repr(text[:60]),
        expected="bytes that are in the vocabulary",
    )
