"""Inputs of a model and its settings, from texts and files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from holdfast.config import read_config
from holdfast.profile.ops.targets import refused


@dataclass(frozen=True)
class _Inputs:
    """A file of inputs."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` -> name and value: JSON, such as a number or true, else a text.

    Raises:
        InputError: ``invalid-syntax``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            expected = "NAME=VALUE, such as image_size=512"
            raise refused("invalid --set", "invalid-syntax", "--set", text, expected)
        found[name] = _value(value)
    return found


def read_values(text: str) -> tuple[str, list[float]]:
    """``NAME=N,N,...`` -> name and numbers.

    Raises:
        InputError: ``invalid-syntax``.
    """
    name, _, rest = text.partition("=")
    values = [_value(each) for each in rest.split(",")]
    if not name.isidentifier() or not all(type(each) in (int, float) for each in values):
        expected = "NAME=N,N,..., such as image_size=256,512,1024"
        raise refused("invalid --over", "invalid-syntax", "--over", text, expected)
    return name, values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_inputs(
    specs: Sequence[str], settings: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named inputs of a model, as meta tensors.

    Args:
        specs: files (TOML, JSON) with ``args`` and ``kwargs``, or texts ``[NAME=]1x3xSxS[:DTYPE]``.
        settings: name -> number, for sides that are names.

    Raises:
        InputError: ``invalid-syntax``, ``unknown-name``, ``missing-key``.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for spec in specs:
        if spec.lower().endswith((".toml", ".json")):
            content = read_config(Path(spec), _Inputs, "the inputs")
            args += [read_tensor(each, settings, spec) for each in content.args]
            for key, each in content.kwargs.items():
                kwargs[key] = read_tensor(each, settings, f"{spec}, {key}")
            continue
        name, _, rest = spec.rpartition("=")
        value = read_tensor(rest, settings, "--input")
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def read_tensor(spec: Any, settings: Mapping[str, Any], place: str) -> Any:
    """A tensor of a text or a list of sides; numbers, truth values and null are passed as they are."""
    if spec is None or isinstance(spec, (bool, int, float)):
        return spec
    text = "x".join(map(str, spec)) if isinstance(spec, list) else str(spec)
    match = re.fullmatch(r"(\w+)(?::(\w+))?", text)
    if match is None:
        expected = "[NAME=]1x3x224x224[:DTYPE], or a list of sides"
        raise refused("invalid input", "invalid-syntax", place, text, expected)
    kind = getattr(torch, match[2] or "float32", None)
    if not isinstance(kind, torch.dtype):
        expected = "a type of torch such as float32, bfloat16 or int64"
        raise refused("unknown type", "unknown-name", place, match[2], expected)
    # An x separates sides; names of sides are in upper case, as in 1x3xSxS.
    shape = [_side(each, settings, place) for each in match[1].split("x")]
    try:
        return torch.empty(shape, dtype=kind, device="meta")
    except RuntimeError as error:
        problem, expected = "too many elements", "at most 2^63 - 1 bytes"
        raise refused(problem, "out-of-range", place, text, expected) from error


def _side(side: str, settings: Mapping[str, Any], place: str) -> int:
    value = str(settings.get(side, side))
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        expected = "a number, or a name that --set or --over gives a number"
        raise refused("invalid side of a shape", "invalid-value", place, side, expected)
    return int(value)
