"""The prosody subset of SSML 1.1: speak, p, s, prosody (rate, pitch, volume) and break."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from holdfast.config import invalid_value, parse_config, unknown_key
from holdfast.errors import InputError

_SSML = parse_config(Path(__file__).with_name("ssml.toml"), "the elements of SSML")
_DEEPEST = 50
_UNITS: dict[str, dict[str, Callable[[float], float]]] = {
    # A percentage with a sign is a change, as in SSML 1.0.
    "rate": {"": lambda x: x, "%": lambda x: x / 100, "+%": lambda x: 1 + x / 100},
    "pitch": {"%": lambda x: 1 + x / 100, "st": lambda x: 2 ** min(x / 12, 9)},
    "volume": {"dB": lambda x: 10 ** min(x / 20, 9)},
    "strength": {},
    "time": {"s": lambda x: x, "ms": lambda x: x / 1000},
}
"""What a number with each unit means, as a factor or in seconds."""


class Manner(NamedTuple):
    """How a part of a text is spoken."""

    rate: float = 1.0
    """Speed, relative to the voice's own."""
    pitch: float = 1.0
    """Factor of F0."""
    gain: float = 1.0
    """Factor of the amplitude."""


class Span(NamedTuple):
    """A part of a text, or a pause."""

    text: str
    """Empty: a pause."""
    manner: Manner = Manner()
    pause_s: float = 0.0
    """Its duration."""


def spans(text: str) -> list[Span]:
    """Parts of a text that are spoken in one manner; plain text is one.

    Args:
        text: SSML if it begins with ``<speak``, ``<?xml`` or ``<!DOCTYPE``, else plain.

    Raises:
        InputError: ``invalid-syntax`` with line and column if it is not well-formed, ``unknown-element``,
            ``unknown-key``, or ``invalid-value``.
    """
    text = text.removeprefix("\ufeff")
    if not re.match(r"\s*<(speak|\?xml|!doctype)\b", text, re.IGNORECASE):
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
    if name not in _SSML["elements"] or (name == "speak") != (depth == 0) or depth > _DEEPEST:
        raise InputError(
            "SSML element that cannot be spoken",
            code="unknown-element",
            place=path,
            found=name,
            expected="speak, and in it p, s, prosody or break",
        )
    values = {key.rpartition("}")[2]: value.strip() for key, value in element.attrib.items()}
    known = _SSML["elements"][name]
    unknown = sorted(values.keys() - known)
    if unknown:
        raise unknown_key(unknown[0], known, path)
    if name == "break":
        key = "time" if "time" in values else "strength"
        yield Span("", manner, _value(key, values.get(key, "medium"), path))
        return
    if name == "prosody":
        # Changes multiply those of the elements around.
        keys = zip(("rate", "pitch", "volume"), manner, strict=True)
        manner = Manner(
            *(_value(key, values.get(key, "default"), path, around) for key, around in keys)
        )
    if element.text and element.text.strip():
        yield Span(element.text, manner)
    for child in element:
        yield from _walk(child, manner, path, depth + 1)
        if child.tail and child.tail.strip():
            yield Span(child.tail, manner)
    if name in ("p", "s"):
        yield Span("", manner, _value("strength", "strong" if name == "p" else "medium", path))


def _value(key: str, written: str, path: str, around: float = 1.0) -> float:
    """What a label, or a number with its unit, means, times what is said around the element."""
    labels, units, (least, most) = _SSML["labels"][key], _UNITS[key], _SSML["limits"][key]
    matched = re.fullmatch(r"([+-]?\d{1,6}(?:\.\d{1,6})?)(\D*)", written)
    value = float(labels.get(written, math.nan))
    if matched:
        sign = "+" if key == "rate" and matched[1][0] in "+-" else ""
        value = units.get(sign + matched[2], lambda _: math.nan)(float(matched[1]))
    value *= around
    if not least <= value <= most:
        listed = [*labels, *(f"a number with {unit or 'no unit'}" for unit in units)]
        expected = (
            f"{', '.join(listed)}; a factor or seconds from {least:g} to {most:g}, nested or not"
        )
        raise invalid_value(f"invalid {key}", None, f"{path}.{key}", written, expected)
    return value
