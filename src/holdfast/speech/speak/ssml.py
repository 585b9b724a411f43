"""The prosody subset of SSML 1.1: speak, p, s, prosody (rate, pitch, volume) and break."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree

from holdfast.config import invalid_value, unknown_key
from holdfast.errors import InputError

_KNOWN = {
    "speak": {"version", "lang", "schemaLocation"},
    "p": {"lang"},
    "s": {"lang"},
    "prosody": {"rate", "pitch", "volume"},
    "break": {"time", "strength"},
}
_DEEPEST = 50


class _Quantity(NamedTuple):
    """Values of an attribute, as a factor or in seconds."""

    labels: Mapping[str, float]
    """Their meaning is left to the engine by SSML."""
    units: Mapping[str, Callable[[float], float]]
    """What a number with each unit means."""
    limits: tuple[float, float]


def _labels(rows: str) -> dict[str, float]:
    return {label: float(value) for label, value in map(str.split, rows.split(","))}


_QUANTITIES = {
    "rate": _Quantity(
        _labels("x-slow 0.5, slow 0.75, medium 1, default 1, fast 1.25, x-fast 1.5"),
        {"": lambda x: x, "%": lambda x: x / 100},
        (0.2, 5),
    ),
    "pitch": _Quantity(
        _labels("x-low 0.7, low 0.85, medium 1, default 1, high 1.2, x-high 1.4"),
        {"%": lambda x: 1 + x / 100, "st": lambda x: 2 ** min(x / 12, 9)},
        (0.25, 4),
    ),
    "volume": _Quantity(
        _labels("silent 0, x-soft 0.25, soft 0.5, medium 1, default 1, loud 1.5, x-loud 2"),
        {"dB": lambda x: 10 ** min(x / 20, 9)},
        (0, 10),
    ),
    "strength": _Quantity(
        _labels("none 0, x-weak 0.1, weak 0.2, medium 0.4, strong 0.7, x-strong 1.2"), {}, (0, 10)
    ),
    "time": _Quantity({}, {"s": lambda x: x, "ms": lambda x: x / 1000}, (0, 60)),
}


@dataclass(frozen=True)
class Manner:
    """How a part of a text is spoken."""

    rate: float = 1.0
    """Speed, relative to the voice's own."""
    pitch: float = 1.0
    """Factor of F0."""
    gain: float = 1.0
    """Factor of the amplitude."""


@dataclass(frozen=True)
class Span:
    """A part of a text, or a pause."""

    text: str
    """Empty: a pause."""
    manner: Manner = Manner()
    pause_s: float = 0.0
    """Its duration."""


def spans(text: str) -> list[Span]:
    """Parts of a text that are spoken in one manner; plain text is one.

    Args:
        text: SSML if it begins with ``<speak`` or ``<?xml``, else plain.

    Raises:
        InputError: ``invalid-syntax`` with line and column if it is not well-formed, ``unknown-element``,
            ``unknown-key``, or ``invalid-value``.
    """
    if not re.match(r"\s*<(speak|\?xml)\b", text):
        return [Span(text)]
    try:
        root = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as error:
        line, column = error.position
        raise InputError(
            "SSML that is not well-formed",
            code="invalid-syntax",
            place=f"line {line}, column {column + 1}",
            found=str(error),
            remedy="close every element; write & as &amp; and < as &lt;",
        ) from error
    return list(_walk(root, Manner(), "", 0))


def _walk(element: ElementTree.Element, manner: Manner, path: str, depth: int) -> Iterator[Span]:
    name = element.tag.rpartition("}")[2]
    path = f"{path}/{name}"
    if name not in _KNOWN or (name == "speak") != (depth == 0) or depth > _DEEPEST:
        raise InputError(
            "SSML element that cannot be spoken",
            code="unknown-element",
            place=path,
            found=name,
            expected="speak, and in it p, s, prosody or break",
        )
    values = {key.rpartition("}")[2]: value.strip() for key, value in element.attrib.items()}
    unknown = sorted(values.keys() - _KNOWN[name])
    if unknown:
        raise unknown_key(unknown[0], _KNOWN[name], path)
    if name == "break":
        key = "time" if "time" in values else "strength"
        yield Span("", manner, _value(key, values.get(key, "medium"), path))
        return
    if name == "prosody":
        # Changes multiply those of the elements around.
        rate, pitch, gain = (
            _value(key, values.get(key, "default"), path) for key in ("rate", "pitch", "volume")
        )
        manner = Manner(manner.rate * rate, manner.pitch * pitch, manner.gain * gain)
    if element.text and element.text.strip():
        yield Span(element.text, manner)
    for child in element:
        yield from _walk(child, manner, path, depth + 1)
        if child.tail and child.tail.strip():
            yield Span(child.tail, manner)
    if name in ("p", "s"):
        yield Span("", manner, _value("strength", "strong" if name == "p" else "medium", path))


def _value(key: str, written: str, path: str) -> float:
    """What a label, or a number with its unit, means."""
    labels, units, (least, most) = _QUANTITIES[key]
    matched = re.fullmatch(r"([+-]?\d{1,6}(?:\.\d{1,6})?)(\D*)", written)
    value = labels.get(written, math.nan)
    if matched and matched[2] in units:
        value = units[matched[2]](float(matched[1]))
    if not least <= value <= most:
        listed = [*labels, *(f"a number with {unit or 'no unit'}" for unit in units)]
        expected = f"{', '.join(listed)}; a factor or seconds from {least:g} to {most:g}"
        raise invalid_value(f"invalid {key}", None, f"{path}.{key}", written, expected)
    return value
