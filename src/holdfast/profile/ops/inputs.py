"""Inputs of a model and its settings, from texts and files."""

from __future__ import annotations

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


def read_settings(texts: Sequence[str], place: str = "--set") -> dict[str, Any]:
    """``NAME=VALUE`` -> name and value: a number, true, false or a text.

    Raises:
        InputError: ``invalid-syntax``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            expected = "NAME=VALUE, such as image_size=512"
            raise refused(f"invalid {place}", "invalid-syntax", place, text, expected)
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
    if text in ("true", "false"):
        return text == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
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
    """A tensor of a specification; numbers, truth values and null in files are passed as they are."""
    if spec is None or isinstance(spec, (bool, int, float)):
        return spec
    if isinstance(spec, Mapping) and set(spec) <= {"shape", "dtype"} and "shape" in spec:
        sides, dtype = spec["shape"], spec.get("dtype", "float32")
    elif isinstance(spec, list) and all(isinstance(each, (int, str)) for each in spec):
        sides, dtype = spec, "float32"
    elif isinstance(spec, str) and (match := re.fullmatch(r"(\w+(?:x\w+)*)(?::(\w+))?", spec)):
        # An x separates sides; names of sides are in upper case, as in 1x3xSxS.
        sides, dtype = match[1].split("x"), match[2] or "float32"
    else:
        expected = "[NAME=]1x3x224x224[:DTYPE], or a table with shape and dtype"
        raise refused("invalid input", "invalid-syntax", place, spec, expected)
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else None
    if not isinstance(kind, torch.dtype):
        expected = "a type of torch such as float32, bfloat16 or int64"
        raise refused("unknown type", "unknown-name", place, dtype, expected)
    shape = [_side(each, settings, place) for each in sides]
    return torch.empty(shape, dtype=kind, device="meta")


def _side(side: Any, settings: Mapping[str, Any], place: str) -> int:
    value = settings.get(side, side) if isinstance(side, str) else side
    number = int(value) if str(value).isdigit() else None
    if number is None:
        expected = "a number, or a name that --set or --over gives a number"
        raise refused("invalid side of a shape", "invalid-value", place, side, expected)
    return number
