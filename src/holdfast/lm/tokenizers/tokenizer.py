"""The tokenizer as queries see it: the bytes of every token, and the encoder that published it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Merges:
    """The merges of a byte-pair encoder: what decides whether two tokens may stand side by side.

    Encoding starts from base tokens (bytes, or characters) and applies, again and again, the adjacent pair
    of lowest rank, the leftmost first among equal ranks.
    """

    left: I32
    """[M] id of the left token of a merge."""
    right: I32
    """[M] id of the right token."""
    merged: I32
    """[M] id of the token that the pair becomes."""
    rank: I32
    """[M] order in which merges apply, the lowest first; merges may share a rank."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """What a query needs to know of a tokenizer.

    Text is bytes: a token may hold a part of a character. A token sequence spells the concatenation of its
    pieces, less `lead` when it starts with it.
    """

    name: str
    """Where it came from, such as ``gpt2:DIR``."""
    pieces: tuple[bytes | None, ...]
    """[V] the bytes of every id; None for control tokens and ids without bytes, never used by a query."""
    encode: Callable[[bytes], list[int]]
    """The published encoder: text in UTF-8 -> ids, without BOS and EOS."""
    bos: int | None = None
    eos: int | None = None
    lead: bytes = b""
    """Bytes that the decoder strips once from the start: ``b" "`` for SentencePiece's dummy prefix."""
    kind: Literal["bpe", "unigram", "wordpiece", "words"] = "bpe"
    merges: Merges | None = None
    """Merges of a byte-pair encoder; without them, canonical encodings are checked by re-encoding."""
    splitter: str | None = None
    """Pattern that cuts a text into words before merging (leftmost match, first alternative, greedy), in
    the syntax of the `regex` library; None when the text is encoded whole."""
    spaced: Tokenizer | None = None
    """The same ids with a space in front of every piece (and as `lead`): how a model of words is read when
    the regular expression writes a space. Set where the files do not say which is meant (ARPA)."""
    byte_fallback: tuple[int, ...] = ()
    """[256] id of every byte's own token where characters without a token fall back to bytes
    (SentencePiece); such a token never merges, and canonically it never spells a character that has a
    token. Empty elsewhere."""
    normalizes: bool = False
    """The encoder changes some texts before it cuts them (Unicode normal forms, lower case, spaces), so
    that what it returns may spell another text; then there are no `merges`, and canonical encodings are
    told by encoding again and comparing."""
    remarks: tuple[str, ...] = ()
    """What is unusual about the files and was accepted: gaps in the ids, bytes that several ids spell."""
    specials: Mapping[str, int] = field(default_factory=dict)
    """Special tokens by their names, such as ``<|im_start|>``."""
    parse: Callable[[str], list[int]] | None = None
    """The encoder that reads names of special tokens as those tokens; None where the files tell of none."""
    chat: Callable[[Sequence[Mapping[str, str]]], str] | None = None
    """The chat template: messages -> text for `parse`."""
    more_ends: tuple[int, ...] = ()
    """Further ids that end a text, as chat models have; its probability is the sum over all `ends`."""

    @property
    def ends(self) -> tuple[int, ...]:
        """Every id that ends a text."""
        first = () if self.eos is None else (self.eos,)
        return tuple(dict.fromkeys((*first, *self.more_ends)))

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.pieces)

    def parsed(self, text: str) -> list[int]:
        """The tokens of a text in which names of special tokens are those tokens.

        Raises:
            InputError: if the files of the tokenizer define no special tokens.
        """
        if self.parse is None:
            raise InputError(
                "this tokenizer has no special tokens",
                code="unsupported",
                path=self.name,
                expected="a Hugging Face tokenizer (hf:DIR with tokenizer.json)",
            )
        return self.parse(text)

    def chat_tokens(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The tokens of a conversation up to where the answer starts, BOS left out.

        Raises:
            InputError: if the tokenizer has no chat template, or it refuses the messages.
        """
        if self.chat is None:
            raise InputError(
                "this tokenizer has no chat template",
                code="unsupported",
                path=self.name,
                expected="chat_template.jinja, or chat_template in tokenizer_config.json",
                remedy="write the conversation as a prefix with --special-tokens",
            )
        from holdfast.lm.tokenizers.chat import checked_messages

        tokens = tuple(self.parsed(self.chat(checked_messages(messages))))
        return tokens[1:] if tokens[:1] == (self.bos,) else tokens

    def spell(self, tokens: Sequence[int]) -> bytes:
        """The text of a token sequence; control tokens spell nothing."""
        return b"".join(self.pieces[token] or b"" for token in tokens).removeprefix(self.lead)
