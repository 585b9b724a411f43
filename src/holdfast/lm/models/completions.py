"""Parse responses of ``/v1/completions`` with ``logprobs`` into distributions over token ids.

Three forms are in use:

- ``logprobs.top_logprobs[0]``, a map from the text of a token to its log-probability (OpenAI, SGLang,
  llama-cpp-python). A text may stand for several ids, and bytes that are not UTF-8 are lost.
- the same with keys such as ``token_id:123`` (vLLM, with ``return_tokens_as_token_ids``).
- ``logprobs.content[0].top_logprobs``, a list of entries with ``id`` and ``bytes`` (llama.cpp's server).

An ambiguous entry is not used: its probability stays in `NextToken.rest`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.models.protocol import NextToken
from holdfast.lm.tokenizers.tokenizer import Tokenizer

MINUS_INFINITY = -9999.0
"""What servers write for the logarithm of 0 (vLLM; llama.cpp writes the lowest float)."""

_AS_ID = re.compile(r"token_id:(\d+)")
_AS_BYTES = re.compile(r"bytes:((?:\\x[0-9a-fA-F]{2}|[^\\])+)")
_NO_LOGPROBS = "the server lists no log-probabilities"

Key = int | str | bytes


class TokenNames:
    """Finds the one id that a server means.

    Args:
        tokenizer: the ids and their bytes.
        end: the text by which the server lists the end of text; None when it gives ids.
    """

    def __init__(self, tokenizer: Tokenizer, end: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._end = end

    def find(self, key: Key) -> int | None:
        """The id of a key; None when none, or more than one, may be meant."""
        if isinstance(key, str):
            if as_id := _AS_ID.fullmatch(key):
                key = int(as_id[1])
            elif as_bytes := _AS_BYTES.fullmatch(key):
                # OpenAI's way to write a token whose bytes are no UTF-8.
                key = re.sub(
                    rb"\\x(..)", lambda pair: bytes([int(pair[1], 16)]), as_bytes[1].encode()
                )
            else:
                return self._by_text.get(key)
        if isinstance(key, bytes):
            return self._by_bytes.get(key)
        return key if 0 <= key < self._tokenizer.size else None

    @cached_property
    def _by_bytes(self) -> dict[bytes, int | None]:
        tokens: dict[bytes, int | None] = {}
        for token, piece in enumerate(self._tokenizer.pieces):
            if piece is not None:
                tokens[piece] = None if piece in tokens else token
        return tokens

    @cached_property
    def _by_text(self) -> dict[str, int | None]:
        """Text -> id, or None for an ambiguous text.

        A server decodes each token separately: it may drop or replace bytes that are not UTF-8, and
        SentencePiece drops a leading space. A text identifies a token only if no other token can be
        decoded to it in any of these ways.
        """
        tokens: dict[str, int | None] = {}
        for token, piece in enumerate(self._tokenizer.pieces):
            if piece is None:
                continue
            read = {piece.decode(errors="ignore"), piece.decode(errors="replace")}
            for text in read | {text.removeprefix(" ") for text in read}:
                tokens[text] = None if tokens.get(text, token) != token else token
        if self._end is not None:
            tokens[self._end] = None if self._end in tokens else self._tokenizer.eos
        # Control tokens, whose names are not known here, are decoded as nothing.
        return {text: token for text, token in tokens.items() if text}


def unlisted(size: int) -> NextToken:
    """A distribution of which nothing is known."""
    return NextToken(np.full(size, -np.inf), 1.0)


def read_completions(body: Any, prompts: int, size: int, names: TokenNames) -> list[NextToken]:
    """The distribution after each prompt of a request.

    Args:
        body: the answer's JSON.
        prompts: how many prompts the request held.
        size: [V], number of ids.
        names: finds ids.

    Raises:
        InputError: if the answer is of no known form, or its probabilities add up to more than 1.
    """
    return [_read_choice(choice, size, names) for choice in _choices(body, prompts)]


def _choices(body: Any, prompts: int) -> list[dict[str, Any]]:
    """The choices in the order of the prompts."""
    bodies = body if isinstance(body, list) else [body]
    choices = [
        choice
        for each in bodies
        if isinstance(each, dict) and isinstance(each.get("choices"), list)
        for choice in each["choices"]
        if isinstance(choice, dict)
    ]
    if len(choices) != prompts:
        raise InputError(
            "the server's answer is not one of /v1/completions",
            code="invalid-value",
            found=f"{len(choices)} choices",
            expected=f"{prompts}, one for each prompt",
            remedy="batch=1"
            if prompts > 1
            else "check the URL, which ends in /v1 for most servers",
        )
    if prompts == 1:
        return choices
    by_place = {choice.get("index"): choice for choice in choices}
    if set(by_place) != set(range(prompts)):
        raise InputError(
            "the server does not number the answers to several prompts",
            code="invalid-value",
            remedy="batch=1",
        )
    return [by_place[place] for place in range(prompts)]


def _read_choice(choice: dict[str, Any], size: int, names: TokenNames) -> NextToken:
    listed = dict(_entries(choice.get("logprobs")))
    if not listed:
        # Servers list nothing when the token they would write ends the text or is a part of a character.
        if choice.get("text") in (None, "") or str(choice["text"]).endswith("\ufffd"):
            return unlisted(size)
        raise InputError(
            _NO_LOGPROBS,
            code="invalid-value",
            found=f"logprobs: {str(choice.get('logprobs'))[:80]}",
            remedy="use a server whose /v1/completions answers `logprobs` (vLLM, llama.cpp, SGLang)",
        )
    logprobs = np.full(size, -np.inf)
    known: set[int] = set()
    uncertain: list[float] = []
    for key, logprob in listed.items():
        token = names.find(key)
        if token is not None:
            known.add(token)
            logprobs[token] = logprob if logprob > MINUS_INFINITY else -np.inf
        else:
            # A text keeps one of the probabilities of its ids: a higher one may be lost.
            by_text = isinstance(key, str) and not _AS_ID.fullmatch(key)
            uncertain.append(math.inf if by_text else logprob)
    ranked = int(np.sum(logprobs > max(uncertain))) if uncertain else None
    total = math.fsum(np.exp(logprobs[sorted(known)]))
    if not total < 1.01:
        raise InputError(
            "the probabilities that the server lists add up to more than 1",
            code="out-of-range",
            found=f"{total:.6g} over {len(known)} tokens",
            remedy="the server must list raw probabilities, and the tokenizer must be the model's own",
        )
    if total > 1:
        # Rounded to 32 bits by the server.
        logprobs -= math.log(total)
    rest = 0.0 if len(known) == size else max(0.0, 1 - total)
    return NextToken(logprobs, rest, ranked)


def _entries(logprobs: Any) -> Iterator[tuple[Key, float]]:
    """(key, log-probability) of the tokens listed for the first place."""
    if not isinstance(logprobs, dict):
        return
    content, top = logprobs.get("content"), logprobs.get("top_logprobs")
    if isinstance(content, list) and content and isinstance(content[0], dict):
        for entry in (content[0], *(content[0].get("top_logprobs") or ())):
            if _is_number(entry.get("logprob")):
                yield _key(entry), float(entry["logprob"])
    elif isinstance(top, list) and top and isinstance(top[0], dict):
        for text, logprob in top[0].items():
            if _is_number(logprob):
                yield text, float(logprob)


def _key(entry: dict[str, Any]) -> Key:
    if isinstance(entry.get("id"), int):
        return int(entry["id"])
    if isinstance(entry.get("bytes"), list):
        return bytes(entry["bytes"])
    return str(entry.get("token"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)
