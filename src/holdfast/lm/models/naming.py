"""The options of a model's name: what stands after ``?`` in ``hf:DIR?device=cuda&batch=64``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from holdfast.errors import InputError


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
