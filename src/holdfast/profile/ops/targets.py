"""From names to what they stand for: objects of the caller's code, one of several, files of this room."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def load(text: str, place: str = "TARGET") -> Any:
    """Import what a text names.

    Args:
        text: ``package.module:name``; the name may be dotted. The current folder is on the path.
        place: the argument that the text was given for, for messages.

    Raises:
        InputError: ``invalid-syntax``, or ``not-found`` for a module or name that does not exist.
    """
    module_name, colon, path = text.partition(":")
    if not colon or not module_name or not path:
        expected = "package.module:factory or suite:NAME"
        raise refused("invalid target", "invalid-syntax", place, text, expected)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or " "):
            raise  # the module exists and lacks a library
        raise InputError(
            "module not found",
            code="not-found",
            place=place,
            found=module_name,
            remedy="run in the folder that contains it, or install it",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"{module_name} has no {path}", code="not-found", place=place, found=text
            )
        found = getattr(found, part)
    return found


def table(name: str) -> Any:
    """The content of a JSON file beside this one."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def choice(value: str, allowed: Iterable[str], what: str, place: str | None = None) -> str:
    """A value that must be one of several.

    Args:
        value: as given.
        allowed: names.
        what: what is chosen, for the message.
        place: the argument; default: `what`.

    Raises:
        InputError: ``unknown-name``.
    """
    names = list(allowed)
    if value in names:
        return value
    near = get_close_matches(value, names, n=1)
    raise InputError(
        f"unknown {what}",
        code="unknown-name",
        place=place or what,
        found=value,
        expected=f"one of {', '.join(names)}",
        remedy=f"did you mean {near[0]}?" if near else None,
    )


def refused(
    problem: str,
    code: str,
    place: str | None = None,
    found: object = None,
    expected: object = None,
    **more: Any,
) -> InputError:
    """The error of an argument that cannot be used.

    Args:
        problem: what is wrong.
        code: see `InputError`.
        place: the argument.
        found: what was given; of a collection the first members are listed.
        expected: what should be given.
        more: path and remedy of `InputError`.
    """
    facts = {"found": _listed(found), "expected": _listed(expected)}
    return InputError(problem, code=code, place=place, **facts, **more)


def _listed(value: object) -> str | None:
    if isinstance(value, Iterable) and not isinstance(value, (str, tuple)):
        names = [str(each) for each in value]
        value = ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])]) or "none"
    return None if value is None else str(value)[:300]
