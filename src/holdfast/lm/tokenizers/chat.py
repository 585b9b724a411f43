"""Chat templates: messages written as the files of a tokenizer say, in a sandbox."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.tokenizers.reading import read_json, read_text

Messages = Sequence[Mapping[str, str]]


def read_chat_template(folder: Path) -> Callable[[Messages], str] | None:
    """The template of chat_template.jinja, else of tokenizer_config.json; None without one.

    Raises:
        InputError: if a file is damaged.
    """
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name
        template = {one.get("name"): one.get("template") for one in template}.get("default")
    if (folder / "chat_template.jinja").is_file():
        path = folder / "chat_template.jinja"
        template = read_text(path)
    if not isinstance(template, str):
        return None
    source: str = template

    def special(key: str) -> str:
        value = config.get(key)
        return str(value.get("content")) if isinstance(value, dict) else value or ""

    names = {key: special(key) for key in ("bos_token", "eos_token", "unk_token", "pad_token")}
    return lambda messages: _rendered(path, source, messages, names)


def read_messages(text: str) -> Messages:
    """The messages of a JSON text or of a file with one: a list, or an object with ``messages``.

    Raises:
        InputError: if it is not JSON of that form.
    """
    place = "--messages"
    source = text if text.lstrip()[:1] in ("[", "{") else read_text(Path(text))
    try:
        messages = json.loads(source)
    except ValueError as error:
        raise InputError(
            "the messages are not valid JSON", code="invalid-syntax", place=place, found=str(error)
        ) from error
    return checked_messages(messages.get("messages") if isinstance(messages, dict) else messages)


def checked_messages(messages: Any) -> Messages:
    """The messages, if they can be answered.

    Raises:
        InputError: if they are not a list of role and content, or end with an answer.
    """
    found = _conversation(messages)
    if found[-1]["role"] == "assistant":
        raise InputError(
            "the last message is an answer",
            code="invalid-value",
            place="messages",
            remedy="end with a user message; give the start of the answer as the prefix",
        )
    return found


def _conversation(messages: Any) -> Messages:
    """The messages, if a template can write them; one that judges answers takes an answer at the end."""
    fits = isinstance(messages, (list, tuple)) and all(
        isinstance(one, Mapping) and isinstance(one.get("role"), str) and "content" in one
        for one in messages
    )
    if not fits or not messages:
        raise InputError(
            "invalid messages",
            code="invalid-value",
            place="messages",
            found=repr(messages)[:80],
            expected='a list such as [{"role": "user", "content": "Hello"}]',
        )
    found: Messages = messages
    return found


def _rendered(path: Path, template: str, messages: Messages, names: Mapping[str, str]) -> str:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: str) -> str:
        raise TemplateError(reason)

    # The same settings as in transformers: templates are written for them. Nothing of a template can
    # reach Python beyond the values named here.
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = lambda value, **options: json.dumps(
        value, ensure_ascii=False, indent=options.get("indent")
    )
    sandbox.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.datetime.now().strftime(form),
    }
    # A marker of training; it writes nothing.
    for mark in ("generation", "endgeneration"):
        for left, right in (("{%", "%}"), ("{%-", "-%}"), ("{%-", "%}"), ("{%", "-%}")):
            template = template.replace(f"{left} {mark} {right}", "")
    try:
        return sandbox.from_string(template).render(
            messages=[dict(one) for one in _conversation(messages)],
            add_generation_prompt=True,
            **names,
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(
            "the chat template refuses the messages",
            code="invalid-value",
            path=path,
            found=str(error),
        ) from error
