"""Scenarios from and to TOML, every key checked for its name and its kind."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.errors import InputError

DAY_S = 86_400.0


def wrong(key: str, found: object, expected: str) -> InputError:
    """The complaint about one key of a scenario."""
    return InputError(
        "invalid scenario",
        code="invalid-value",
        place=key,
        found=repr(found),
        expected=expected,
    )


def toml_key(name: str) -> str:
    """The TOML key of a field: ``grace_s`` is written as ``grace``."""
    return name.removesuffix("_s")


def read(kind: Any, data: object, place: str) -> Any:
    """A dataclass from a TOML table, every key checked."""
    if not isinstance(data, dict):
        raise wrong(place, data, "a table")
    types = get_type_hints(kind)
    names = {toml_key(each.name): each for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        where = f"{place}.{key}" if place else key
        if key not in names:
            raise wrong(where, key, "one of the keys " + ", ".join(names))
        name = names[key].name
        values[name] = _value(types[name], value, where, duration=name.endswith("_s"))
    for key, each in names.items():
        needed = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if needed and each.name not in values:
            raise wrong(f"{place}.{key}" if place else key, None, "this key")
    return kind(**values)


def _value(kind: Any, value: object, place: str, *, duration: bool) -> Any:
    if dataclasses.is_dataclass(kind):
        return read(kind, value, place)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise wrong(place, value, "a list")
        inner = get_args(kind)[0]
        return tuple(
            _value(inner, each, f"{place}[{i}]", duration=False) for i, each in enumerate(value)
        )
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise wrong(place, value, "a table of numbers")
        return {k: _value(float, v, f"{place}.{k}", duration=False) for k, v in value.items()}
    if duration and isinstance(value, str):
        return _duration(value, place)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise wrong(place, value, "a finite number")
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    raise wrong(place, value, 'a duration such as "10m"' if duration else names[kind])


def _duration(text: str, place: str) -> float:
    import typer

    from holdfast.console import duration

    try:
        return duration(text)
    except typer.BadParameter as error:
        raise wrong(place, text, 'a duration such as "10m", "2h" or "7d"') from error


def write(lines: list[str], place: str, value: Any) -> None:
    """Append the lines of a dataclass: its plain values first, then its tables."""
    tables = []
    for each in dataclasses.fields(value):
        part, key = getattr(value, each.name), toml_key(each.name)
        name = f"{place}.{key}" if place else key
        if dataclasses.is_dataclass(part):
            tables.append((f"[{name}]", name, part))
        elif isinstance(part, tuple) and part and dataclasses.is_dataclass(part[0]):
            tables.extend((f"[[{name}]]", name, item) for item in part)
        else:
            lines.append(f"{key} = {literal(part, duration=each.name.endswith('_s'))}")
    for header, name, part in tables:
        lines += ["", header]
        write(lines, name, part)


def literal(value: Any, *, duration: bool) -> str:
    """A value as TOML writes it; a `duration` is a number of seconds."""
    if duration:
        return _spoken(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, tuple):
        return "[" + ", ".join(literal(each, duration=False) for each in value) + "]"
    if isinstance(value, Mapping):
        parts = (f"{literal(k, duration=False)} = {v!r}" for k, v in value.items())
        return "{ " + ", ".join(parts) + " }" if value else "{}"
    return repr(value)


def _spoken(seconds: float) -> str:
    """The shortest TOML value that is read back as this time; odd ones as a number of seconds."""
    for unit, length in (("d", DAY_S), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)):
        if seconds < 1e9 and seconds % length == 0 and (seconds or unit == "s"):
            return f'"{seconds / length:.0f}{unit}"'
    return repr(float(seconds))
