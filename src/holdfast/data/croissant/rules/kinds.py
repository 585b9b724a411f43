"""What a data type is made of, as far as values and references can be checked without data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.data.croissant.document.vocabulary import ATOMIC_TYPES
from holdfast.data.croissant.rules import forms

_TRUTH = frozenset({"true", "false", "0", "1", "yes", "no", "t", "f", "y", "n"})


def kind(types: Iterable[str]) -> str:
    """What values of the first atomic type are made of, such as "integer"; ``""`` where none is atomic."""
    return next((ATOMIC_TYPES[name] for name in types if name in ATOMIC_TYPES), "")


def fits(value: Any, kind: str, *, many: bool) -> bool:
    """Whether a JSON value may stand for a value of a kind; null always may."""
    if value is None or kind in ("", "bytes"):
        return True
    if kind == "box":
        return isinstance(value, str) or (isinstance(value, list) and len(value) == 4)
    if isinstance(value, list):
        return many and all(fits(item, kind, many=True) for item in value)
    if isinstance(value, dict):
        return False
    return _scalar_fits(value, kind)


def _scalar_fits(value: Any, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool) or str(value).strip().casefold() in _TRUTH
    if kind == "text":
        return not isinstance(value, bool)
    if kind in ("date", "datetime"):
        return isinstance(value, str) and not forms.date(value)
    if kind == "time":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return kind == "float" or number.is_integer()
