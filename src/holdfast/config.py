"""Settings from a TOML or JSON file, as a dataclass whose fields say what may stand there.

The names, types and defaults of the fields are the format: an unknown key, a missing one or a value of
another type is an `InputError` whose `place` is the path of the key, such as ``query[1].regex``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from holdfast.durations import parse_duration
from holdfast.errors import InputError

T = TypeVar("T")

_TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.{3})\]")


class Duration(float):
    """Seconds; a configuration file may hold a number or a string such as ``"90m"``."""


def read_config(source: str | Path | Mapping[str, Any], kind: type[T], what: str) -> T:
    """Settings of a type.

    Args:
        source: a TOML file, a JSON file (by its suffix), or its content.
        kind: a dataclass. Its fields may be of basic types, `Duration`, ``Literal``, lists, tuples,
            mappings and further dataclasses.
        what: what the file holds, with its article, for messages: ``"the lemon rule"``.

    Raises:
        InputError: ``not-found`` or ``unreadable``; ``invalid-syntax``; ``unknown-key``, ``missing-key``
            or ``invalid-value`` with the place.
    """
    path = None if isinstance(source, Mapping) else Path(source)
    content = parse_config(path, what) if path else source
    try:
        _refuse_unknown(content, kind, "")
        return _convert(content, kind)
    except InputError as error:
        raise InputError(
            f"{what}: {error.problem}",
            code=error.code,
            path=path,
            place=error.place,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def parse_config(path: str | Path, what: str) -> Any:
    """The content of a TOML or JSON file, unchecked.

    Raises:
        InputError: if it cannot be read, or is not of its syntax.
    """
    form = "JSON" if Path(path).suffix.lower() == ".json" else "TOML"
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text) if form == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"{what} cannot be read",
            code="not-found" if isinstance(error, FileNotFoundError) else "unreadable",
            path=path,
            found=error.strerror,
        ) from error
    except ValueError as error:  # TOMLDecodeError, JSONDecodeError, UnicodeDecodeError
        raise InputError(
            f"{what} cannot be read: not valid {form}",
            code="invalid-syntax",
            path=path,
            found=str(error),
        ) from error


def unknown_key(
    key: str, known: Iterable[str], place: str = "", path: str | Path | None = None
) -> InputError:
    """The error of a key that is not known, with the one that was probably meant."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1)
    return InputError(
        "unknown key",
        code="unknown-key",
        path=path,
        place=f"{place}.{key}" if place else key,
        found=key,
        expected=f"one of {', '.join(names)}",
        remedy=f"did you mean {near[0]}?" if near else None,
    )


def invalid_value(
    problem: str, path: Path | None, place: str, found: object, expected: str
) -> InputError:
    """The error of a value that a file may not have."""
    code, found = "invalid-value", str(found)
    return InputError(problem, code=code, path=path, place=place, found=found, expected=expected)


def _refuse_unknown(content: Any, kind: Any, place: str) -> None:
    """Look for keys that no field has; msgspec would pass over them."""
    if get_origin(kind) is Annotated:
        _refuse_unknown(content, get_args(kind)[0], place)
    elif isinstance(kind, UnionType):
        for each in get_args(kind):
            _refuse_unknown(content, each, place)
    elif is_dataclass(kind) and isinstance(content, Mapping):
        names = [field.name for field in fields(kind)]
        for key, value in content.items():
            if key not in names:
                raise unknown_key(str(key), names, place)
            _refuse_unknown(value, _inner(kind, key), f"{place}.{key}" if place else key)
    elif get_args(kind) and isinstance(content, list):
        for number, value in enumerate(content):
            _refuse_unknown(value, _inner(kind, number), f"{place}[{number}]")
    elif get_args(kind) and isinstance(content, Mapping):
        for key, value in content.items():
            _refuse_unknown(value, _inner(kind, key), f"{place}.{key}")


def _convert(content: Any, kind: type[T]) -> T:
    import msgspec

    try:
        return msgspec.convert(content, kind, dec_hook=_duration)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.query[1].n`"
        problem, _, at = str(error).partition(" - at `$")
        steps, found = _followed(at.rstrip("`"), content, kind)
        place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).lstrip(".")
        missing = re.search(r"missing required field `(.*)`", problem)
        if missing:
            key = f"{place}.{missing[1]}" if place else missing[1]
            raise InputError("missing key", code="missing-key", place=key) from None
        expected = re.search(r"Expected `(.*)`(?:, got| ([<>]=? \S+))", problem)
        names = [_TYPES.get(name, name) for name in expected[1].split(" | ")] if expected else []
        names = [f"{name} {expected[2]}" for name in names] if expected and expected[2] else names
        choices = (
            get_args(reduce(_inner, steps, kind)) if problem.startswith("Invalid enum") else ()
        )
        raise InputError(
            "invalid value",
            code="unknown-name" if choices else "invalid-value",
            place=place or None,
            found=repr(found)[:80],
            expected=" or ".join(names or map(repr, choices)) or problem,
        ) from None


def _followed(path: str, content: Any, kind: Any) -> tuple[list[str | int], Any]:
    """The keys and indices of a path of msgspec, and what is there."""
    steps: list[str | int] = []
    for key, index in _STEP.findall(path):
        step = int(index) if index.isdigit() else key
        if index == "...":  # some key of a mapping: the first whose value does not fit
            inner = _inner(reduce(_inner, steps, kind), "")
            step = next(name for name, value in content.items() if not _fits(value, inner))
        steps.append(step)
        content = content[step]
    return steps, content


def _fits(value: Any, kind: Any) -> bool:
    import msgspec

    try:
        msgspec.convert(value, kind, dec_hook=_duration)
    except msgspec.ValidationError:
        return False
    return True


def _inner(kind: Any, step: str | int) -> Any:
    """The type of what a key or an index of a value of some type leads to."""
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]
    if is_dataclass(kind):
        return get_type_hints(kind, include_extras=True)[str(step)]
    if get_origin(kind) is Annotated:  # the limits of a list or mapping, not those of what is in it
        return _inner(get_args(kind)[0], step)
    return get_args(kind)[0 if isinstance(step, int) else -1]


def _duration(kind: type, value: Any) -> Any:
    if kind is Duration and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        with suppress(ValueError):
            return Duration(parse_duration(value))
    raise ValueError("expected a duration such as 60m, 7d, 90s or 1h30m")
