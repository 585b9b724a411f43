"""One edit of a what-if change, and how its value is read."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass

from holdfast.errors import InputError


@dataclass(frozen=True)
class Edit:
    """One step of a change."""

    key: str
    """As given."""
    operator: str
    """``=``, ``*``, ``+`` or ``-``."""
    value: str


def changed(old: float, edit: Edit, *, duration: bool = False) -> float:
    """A number after an edit: a duration may be written as one."""
    text = edit.value
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
    if share is not None:
        part = float(share[1]) / 100
        if edit.operator == "=" and not duration:
            return part
        if edit.operator in "+-":
            return old * (1 + part if edit.operator == "+" else 1 - part)
        raise impossible(edit, f"{edit.key}+{text} or {edit.key}-{text}")
    value = _number(edit, duration=duration and edit.operator != "*")
    return {"=": value, "*": old * value, "+": old + value, "-": old - value}[edit.operator]


def _number(edit: Edit, *, duration: bool) -> float:
    if duration:
        import typer

        from holdfast.console import duration as seconds

        try:
            return seconds(edit.value)
        except typer.BadParameter as error:
            raise impossible(edit, "a duration such as 30s, 10m, 2h or 7d") from error
    try:
        value = float(edit.value.replace("_", ""))
    except ValueError as error:
        raise impossible(edit, "a number") from error
    if not math.isfinite(value):
        raise impossible(edit, "a finite number")
    return value


def numbers(edit: Edit) -> tuple[float, ...]:
    """A list of numbers as TOML writes it."""
    try:
        values = tomllib.loads(f"list = {edit.value}")["list"]
        return tuple(float(each) for each in values)
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise impossible(edit, "a list of numbers such as [1, 2.5]") from error


def switch(edit: Edit) -> bool:
    """On or off."""
    words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
    if edit.operator != "=" or edit.value.lower() not in words:
        raise impossible(edit, "on or off")
    return words[edit.value.lower()]


def impossible(edit: Edit, expected: str) -> InputError:
    """The complaint about the value of an edit."""
    found = f"{edit.key}{edit.operator}{edit.value}"
    return InputError(
        "the value does not fit",
        code="invalid-value",
        place=edit.key,
        found=found,
        expected=expected,
    )
