"""From names to what they stand for: one of several, files of this room."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


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
    raise refused(
        f"unknown {what}",
        "unknown-name",
        place or what,
        value,
        f"one of {', '.join(names)}",
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
        value = ", ".join(names[:8] + ["..."] * (len(names) > 8)) or "none"
    return None if value is None else str(value)[:300]
