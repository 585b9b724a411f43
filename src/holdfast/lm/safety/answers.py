"""What a server's answer says, whatever it sends: a text, a refusal, or nothing that can be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.lm.safety.systems import REFUSED, Failure, Reply, is_blank

_REFUSALS = frozenset(
    {
        "blocklist",
        "content_filter",
        "content_filtered",
        "content_policy_violation",
        "data_inspection_failed",
        "guardrail_intervened",
        "invalid_prompt",
        "moderation_blocked",
        "prohibited_content",
        "refusal",
        REFUSED,
        "responsibleaipolicyviolation",
        "safety",
        "sensitive",
    }
)
"""Reasons for an end, and codes of errors, with which servers say that something was refused."""
_MOST_TOKENS = 1 << 53


def read_json(content: bytes | str) -> Any:
    """A document.

    Raises:
        Failure: ``malformed``, if it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Failure("malformed", f"not JSON: {error}"[:300]) from error


def read_reply(content: bytes) -> Reply:
    """The first choice of an answer: of OpenAI's form, as a stream of events too, or of Anthropic's.

    A response with a text is a response, also where a filter cut it off. One without is a refusal if the
    answer says so (`finish` is ``refused``).

    Raises:
        Failure: ``malformed``, if it holds no response.
    """
    streamed = content.lstrip()[:6].startswith((b"data:", b"event:", b":"))
    answer = _joined(content) if streamed else read_json(content)
    message, finish = (_at(answer, "choices", 0, key) for key in ("message", "finish_reason"))
    if message is None and isinstance(_at(answer, "content"), list):
        message, finish = answer, _at(answer, "stop_reason")
    spoken = _spoken(_at(message, "content"), "text")
    declined = _spoken(_at(message, "content"), "refusal") or _at(message, "refusal")
    if is_filtered(answer):
        spoken, finish = "", REFUSED
    elif not isinstance(message, dict) or spoken is None:
        raise Failure("malformed", "no choice with a message in the answer")
    spoken, finish = spoken or "", _word(finish)
    if is_blank(spoken) and (declined or finish.casefold() in _REFUSALS):
        spoken, finish = declined if isinstance(declined, str) else "", REFUSED
    return Reply(
        spoken,
        finish,
        _tokens(_at(answer, "usage", "prompt_tokens")),
        _tokens(_at(answer, "usage", "completion_tokens")),
        _word(_at(answer, "system_fingerprint")),
    )


def is_filtered(answer: Any) -> bool:
    """Whether an error says that a content filter turned the prompt or the response away."""
    error = _at(answer, "error")
    said = (_at(error, "code"), _at(error, "type"), _at(error, "innererror", "code"))
    flagged = _at(error, "metadata", "flagged_input")  # as OpenRouter says it
    return flagged is not None or any(_word(each).casefold() in _REFUSALS for each in said)


def _at(value: Any, *path: str | int) -> Any:
    """What stands at a path; None where nothing does."""
    for key in path:
        if isinstance(key, str):
            value = value.get(key) if isinstance(value, dict) else None
        else:
            value = value[key] if isinstance(value, list) and len(value) > key else None
    return value


def _spoken(content: Any, key: str) -> str | None:
    """The text of a message, or those of its parts under a key together; None: of another kind."""
    if isinstance(content, list):
        parts = (_at(part, key) for part in content)
        return "".join(part for part in parts if isinstance(part, str))
    if key != "text":
        return None
    return content if isinstance(content, str) else None if content is not None else ""


def _word(value: Any) -> str:
    return value[:100] if isinstance(value, str) else ""


def _tokens(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_TOKENS else None


def _joined(content: bytes) -> dict[str, Any]:
    """A stream of server-sent events as one answer."""
    spoken, declined, finish, last = "", "", None, {}
    for chunk in _chunks(content):
        last = chunk if _at(chunk, "usage") or not last else last
        if is_filtered(chunk):
            finish = REFUSED
        choice = _at(chunk, "choices", 0)
        if not _at(choice, "index"):
            spoken += _spoken(_at(choice, "delta", "content"), "text") or ""
            declined += _word(_at(choice, "delta", "refusal"))
            finish = _at(choice, "finish_reason") or finish
    if finish is None:
        raise Failure("malformed", "a stream without its end")
    message = {"content": spoken, "refusal": declined}
    facts = {key: _at(last, key) for key in ("usage", "system_fingerprint")}
    return {"choices": [{"message": message, "finish_reason": finish}], **facts}


def _chunks(content: bytes) -> Iterator[Any]:
    for line in content.decode(errors="replace").split("\n"):
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        if line.startswith("data:") and data:
            yield read_json(data)
