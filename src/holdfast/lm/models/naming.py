"""The options of a model's name: what stands after ``?`` in ``hf:DIR?device=cuda&batch=64``.

And what tells one model's files from another's of the same name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import InputError

KEY_VARIABLES = ("HOLDFAST_API_KEY", "OPENAI_API_KEY")
"""Where the key of a server is read from, first the first."""


def split_options(
    name: str, known: Mapping[str, Callable[[str], Any]]
) -> tuple[str, dict[str, Any]]:
    """What stands in front of ``?``, and the options behind it, each read by the function given for it.

    Values may be percent-encoded (``%26`` for an ampersand); a plus is a plus.

    Raises:
        InputError: for an option that is not known, without a value, or with one that cannot be read.
    """
    front, _, tail = name.partition("?")
    options: dict[str, Any] = {}
    for part in filter(None, tail.split("&")):
        option, _, value = part.partition("=")
        if option not in known:
            raise InputError(
                "an option of the model's name is not known",
                code="unknown-key",
                place=front,
                found=option,
                expected=", ".join(sorted(known)),
            )
        try:
            options[option] = known[option](unquote(value))
        except ValueError:
            raise InputError(
                f"the option {option} of the model's name cannot be read",
                code="invalid-value",
                place=front,
                found=part,
            ) from None
    return front, options


def split_endpoint(front: str) -> tuple[str, str]:
    """URL, without a slash at its end, and model of ``openai:URL#MODEL``.

    Raises:
        InputError: if it cannot be read, or the URL holds a password, which results would keep.
    """
    url, _, model = front.removeprefix("openai:").partition("#")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not model:
        raise InputError(
            "the name of a served model cannot be read",
            code="invalid-syntax",
            found=front,
            expected="openai:http://host:port/v1#MODEL",
        )
    if parts.username or parts.password:
        raise InputError(
            "the URL of a served model holds a password",
            code="invalid-value",
            remedy=f"set the key of the server in {KEY_VARIABLES[0]}",
        )
    return url.rstrip("/"), model


def server_key() -> str | None:
    """The key of a server, from the environment."""
    return next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)


def at_least(lowest: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """A reader of numbers that refuses those below `lowest`."""

    def read(text: str) -> Any:
        number = kind(text)
        if not lowest <= number < float("inf"):
            raise ValueError
        return number

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    """A reader that takes one of the words given."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return read


ENDS = 1 << 20
"""Bytes read at either end of a file: weights are too long to be read whole for this."""


def fingerprint(files: Iterable[Path]) -> str:
    """A digest of the names and sizes of files, and of what stands at their ends."""
    digest = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()
