"""Prompts as tokens, and tokens as text, by the tokenizer that the checkpoint ships.

A text becomes the ids of ``tokenizer(text)``: names of special tokens are those tokens, and what the
tokenizer puts around a text is there. A conversation is written by the chat template first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.generate.settings import in_range

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""A text, token ids, or the messages of a conversation."""
_BEFORE = 8
"""Tokens in front of a text that decide how its first ones are spelled (spaces, halves of characters)."""


def encode(tokenizer: Any, prompt: Prompt, chat: bool, where: str) -> list[int]:
    """The ids of a prompt.

    Args:
        tokenizer: of transformers; None if there is none.
        prompt: token ids are used as they are.
        chat: a text is what a user says.
        where: place that errors name.
    """
    if chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    text = isinstance(prompt, str)
    if not text and not any(isinstance(part, Mapping) for part in prompt):
        in_range(where, prompt, all(hasattr(token, "__index__") for token in prompt), "token ids")
        return [int(token) for token in prompt]  # type: ignore[arg-type]
    if tokenizer is None:
        raise InputError(
            "a text needs a tokenizer", code="conflict", place=where, expected="token ids"
        )
    if text:
        return list(tokenizer(prompt, verbose=False).input_ids) if prompt else []
    return _chat_ids(tokenizer, prompt, where)


def _chat_ids(tokenizer: Any, messages: Any, where: str) -> list[int]:
    from holdfast.lm.tokenizers.chat import checked_messages

    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            "this tokenizer has no chat template",
            code="unsupported",
            place=where,
            expected="chat_template.jinja, or chat_template in tokenizer_config.json",
            remedy="leave out --chat, and write the special tokens into the prompt",
        )
    messages = [dict(one) for one in checked_messages(messages)]
    try:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # whatever the template of a stranger does
        raise InputError(
            "the chat template refuses the messages",
            code="invalid-value",
            place=where,
            found=f"{type(error).__name__}: {error}"[:200],
        ) from error
    return list(ids)


def spell(tokenizer: Any, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that tokens add to those before; special tokens spell nothing."""
    if tokenizer is None:
        return ""

    def decode(ids: Sequence[int]) -> str:
        known = [token for token in ids if token < len(tokenizer)]  # heads may be wider
        text: str = tokenizer.decode(
            known, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    context = list(before[-_BEFORE:])
    head, whole = decode(context).rstrip("\ufffd"), decode([*context, *tokens])
    # Some decoders join what they wrote with what follows: only the common beginning is old.
    old = takewhile(lambda pair: pair[0] == pair[1], zip(head, whole, strict=False))
    return whole[sum(1 for _ in old) :]


def read_prompts(path: Path) -> list[Prompt]:
    """One prompt per line; in a ``.jsonl`` file JSON.

    A line of JSON is a text, a list of token ids, ``{"prompt": text}``, or ``{"messages": [...]}``.

    Raises:
        InputError: ``empty-input`` for a file or line without a prompt, ``invalid-syntax`` for other JSON.
    """
    try:
        # Not splitlines: a text of JSON may contain other separators of lines.
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        missing = isinstance(error, OSError)
        raise InputError(
            "prompts cannot be read",
            code="not-found" if missing else "invalid-encoding",
            path=path,
            place=None if missing else f"byte {error.start}",
            found=str(error),
            expected="text in UTF-8",
        ) from error
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        prompt = _json_prompt(line, path, number) if path.suffix == ".jsonl" else line
        if not prompt or (isinstance(prompt, str) and not prompt.strip()):
            raise InputError("empty prompt", code="empty-input", path=path, place=f"line {number}")
        prompts.append(prompt)
    return prompts


def _json_prompt(line: str, path: Path, number: int) -> Prompt:
    value: Any = None
    try:
        value = json.loads(line)
        if isinstance(value, dict):
            value = value.get("messages", value.get("prompt"))
    except (ValueError, RecursionError):
        pass
    kinds = {type(part) for part in value} if isinstance(value, list) else set()
    if not isinstance(value, str) and not (
        (isinstance(value, list) and kinds <= {int}) or kinds == {dict}
    ):
        raise InputError(
            "invalid prompt",
            code="invalid-syntax",
            path=path,
            place=f"line {number}",
            found=line[:60],
            expected='"text", {"prompt": "text"}, {"messages": [...]} or [1, 2, 3]',
        )
    return value
