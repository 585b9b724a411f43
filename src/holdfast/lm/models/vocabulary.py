"""How the words of an n-gram model make a text: a tokenizer from a plain list of words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from holdfast.errors import InputError
from holdfast.lm.tokenizers.byte_level import stand_ins
from holdfast.lm.tokenizers.tokenizer import Tokenizer

Reading = Literal["words", "pieces"]

_BOS, _EOS = b"<s>", b"</s>"
_UNKNOWN = (b"<unk>", b"<UNK>")
_SPACE = "\u2581".encode()
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>$")


def tokenizer_of_words(
    vocabulary: Sequence[bytes], name: str, reading: Reading | None = None
) -> Tokenizer:
    """The tokenizer of a model that was trained on these words.

    ``<s>``, ``</s>`` and ``<unk>`` have no bytes. The rest is read by what the vocabulary shows:

    - a word with U+2581: SentencePiece's pieces; it stands for a space, and ``<0x0A>`` for a byte;
    - a word with ``Ġ``, all words in the alphabet of GPT-2's files: byte-level pieces;
    - otherwise words are joined as they are, and `Tokenizer.spaced` reads them with a space in front.

    The encoder takes the fewest words, and of those the longest first.

    Args:
        vocabulary: the words, in UTF-8.
        name: what the tokenizer is called.
        reading: ``words`` puts a space in front of each, ``pieces`` never does; None as above.
    """
    special = {_BOS, _EOS, *_UNKNOWN}
    places = {word: token for token, word in enumerate(vocabulary)}
    bos, eos = places.get(_BOS), places.get(_EOS)
    shown = [word for word in vocabulary if word not in special]

    def read(pieces: Mapping[bytes, bytes], lead: bytes = b"") -> Tokenizer:
        spelled = tuple(pieces.get(word) for word in vocabulary)
        return Tokenizer(name, spelled, _Encoder(name, spelled, lead), bos, eos, lead, kind="words")

    spaced = {word: b" " + word for word in shown}
    if reading == "words":
        return read(spaced, b" ")
    if any(_SPACE in word for word in shown):
        return read({word: _sentencepiece(word) for word in shown}, b" ")
    alphabet = stand_ins()
    text = [word.decode(errors="replace") for word in shown]
    if any("Ġ" in word for word in text) and all(alphabet.keys() >= set(word) for word in text):
        return read({word: bytes(map(alphabet.__getitem__, word.decode())) for word in shown})
    joined = read({word: word for word in shown})
    return joined if reading == "pieces" else replace(joined, spaced=read(spaced, b" "))


def _sentencepiece(word: bytes) -> bytes:
    byte = _BYTE.match(word)
    return bytes([int(byte[1], 16)]) if byte else word.replace(_SPACE, b" ")


class _Encoder:
    """Text -> the fewest pieces, the longest first among equals."""

    def __init__(self, name: str, pieces: Sequence[bytes | None], lead: bytes) -> None:
        self.name, self.lead = name, lead
        self.ids: dict[bytes, int] = {}
        for token, piece in enumerate(pieces):
            if piece:
                self.ids.setdefault(piece, token)
        self.longest = max(map(len, self.ids), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """Encode.

        Raises:
            InputError: if no pieces spell the text.
        """
        if not text:
            return []
        tokens = self._fewest(self.lead + text)
        if tokens is None and self.lead and not text.startswith(self.lead):
            tokens = self._fewest(text)
        if tokens is None:
            raise InputError(
                "the words of the model do not spell this text",
                code="unsupported",
                path=self.name,
                found=text.decode(errors="backslashreplace"),
                remedy="n-gram models know no other words; ?words or ?pieces after the name of the file "
                "says whether spaces stand between them",
            )
        return tokens

    def _fewest(self, text: bytes) -> list[int] | None:
        size, never = len(text), len(text) + 1
        count = [never] * size + [0]  # pieces from here to the end
        for start in range(size - 1, -1, -1):
            for end in range(start + 1, min(start + self.longest, size) + 1):
                if count[end] < count[start] - 1 and text[start:end] in self.ids:
                    count[start] = count[end] + 1
        if count[0] == never:
            return None
        tokens, start = [], 0
        while start < size:
            end = min(start + self.longest, size)
            while count[end] != count[start] - 1 or text[start:end] not in self.ids:
                end -= 1
            tokens.append(self.ids[text[start:end]])
            start = end
        return tokens
