"""From the command line to a model and its inputs: TARGET, --input, --set."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.config import parse_config
from holdfast.errors import InputError
from holdfast.profile.ops import suite
from holdfast.profile.ops.profiling import combine, profile_workload
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.running import Workload
from holdfast.profile.targets import load

_FILES = (".toml", ".json", ".yaml", ".yml")


def read_settings(texts: Sequence[str], place: str = "--set") -> dict[str, Any]:
    """``NAME=VALUE`` -> name and value: a number, true, false or a text.

    Raises:
        InputError: ``invalid-syntax``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(
                f"invalid {place}",
                code="invalid-syntax",
                place=place,
                found=text,
                expected="NAME=VALUE, such as image_size=512",
            )
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
        raise InputError(
            "invalid --over",
            code="invalid-syntax",
            place="--over",
            found=text,
            expected="NAME=N,N,..., such as image_size=256,512,1024",
        )
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
        specs: files (TOML, JSON, YAML) with ``args`` and ``kwargs``, or texts ``[NAME=]1x3xSxS[:DTYPE]``.
        settings: name -> number, for sides that are names.

    Raises:
        InputError: ``invalid-syntax``, ``unknown-name``, ``missing-key``.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for spec in specs:
        if spec.lower().endswith(_FILES):
            content = _read(Path(spec))
            if not isinstance(content, Mapping):
                content = {"args": content}
            named = content if not {"args", "kwargs"} & content.keys() else content.get("kwargs", {})
            args += [_tensor(each, settings, spec) for each in content.get("args", [])]
            kwargs |= {key: _tensor(each, settings, f"{spec}, {key}") for key, each in named.items()}
            continue
        name, _, rest = spec.rpartition("=")
        value = _tensor(rest, settings, "--input")
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _read(path: Path) -> Any:
    if path.suffix.lower() in (".toml", ".json"):
        return parse_config(path, "the inputs")
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("the inputs cannot be read", code="not-found", path=path) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(
            "the inputs cannot be read: not valid YAML",
            code="invalid-syntax",
            path=path,
            found=" ".join(str(error).split())[:160],
        ) from error


def _tensor(spec: Any, settings: Mapping[str, Any], place: str) -> Any:
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
        raise InputError(
            "invalid input",
            code="invalid-syntax",
            place=place,
            found=str(spec)[:80],
            expected="[NAME=]1x3x224x224[:DTYPE], or a table with shape and dtype",
        )
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else None
    if not isinstance(kind, torch.dtype):
        raise InputError(
            "unknown type",
            code="unknown-name",
            place=place,
            found=str(dtype),
            expected="a type of torch such as float32, bfloat16 or int64",
        )
    shape = [_side(each, settings, place) for each in sides]
    return torch.empty(shape, dtype=kind, device="meta")


def _side(side: Any, settings: Mapping[str, Any], place: str) -> int:
    value = settings.get(side, side) if isinstance(side, str) else side
    number = int(value) if str(value).isdigit() else None
    if number is None:
        raise InputError(
            "invalid side of a shape",
            code="invalid-value",
            place=place,
            found=str(side),
            expected="a number, or a name that --set or --over gives a number",
        )
    return number


def resolve(target: str, specs: Sequence[str], settings: Mapping[str, Any]) -> Workload:
    """The model and inputs of a target that is not a pipeline.

    Args:
        target: ``package.module:factory`` or ``suite:NAME``. A factory returns a module, or a module, a tuple
            of inputs and perhaps a dictionary of named inputs; a module or its class will do.
        specs: see `read_inputs`; they replace the inputs that the factory returns.
        settings: arguments of the factory, or sides of the inputs.

    Raises:
        InputError: if the target or its inputs cannot be understood.
    """
    if target.startswith("suite:"):
        if specs:
            raise InputError(
                "models of the suite have their own inputs",
                code="conflict",
                place="--input",
                found=specs[0],
                remedy="change their shapes with --set, such as --set image_size=1024",
            )
        return suite.workload(target.removeprefix("suite:"), settings)
    factory = load(target)
    accepted = _accepted(factory, settings)
    notes: list[str] = []
    made = _call(factory, accepted, target, notes)
    module, *rest = made if isinstance(made, tuple) else (made,)
    if not isinstance(module, nn.Module):
        raise InputError(
            "the target does not give a module",
            code="invalid-value",
            place="TARGET",
            found=f"{target} gives {type(module).__name__}",
            expected="torch.nn.Module, or a tuple of a module and its inputs",
        )
    args, kwargs = read_inputs(specs, settings)
    if not specs:
        args = tuple(rest[0]) if rest else ()
        kwargs = dict(rest[1]) if len(rest) > 1 else {}
        if not rest and _needs_inputs(module):
            raise InputError(
                "no inputs",
                code="missing-key",
                place="--input",
                found=f"{target} gives a module without inputs",
                expected="--input 1x3x224x224 for each input, or a factory that returns them too",
            )
    return Workload(module.eval(), args, kwargs, target, notes)


def _accepted(factory: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a factory takes; those in upper case are sides of inputs."""
    own = {key: value for key, value in settings.items() if not key.isupper()}
    if isinstance(factory, nn.Module) or not callable(factory):
        names: set[str] | None = set()
    else:
        parameters = inspect.signature(factory).parameters
        anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        names = None if anything else set(parameters)
    for key in own:
        if names is not None and key not in names:
            raise InputError(
                "the target does not take this setting",
                code="unknown-key",
                place="--set",
                found=key,
                expected=f"one of {', '.join(sorted(names))}" if names else "no settings",
                remedy="names of sides of inputs are in upper case: --input 1x3xSxS --set S=224",
            )
    return own


def _call(factory: Any, settings: Mapping[str, Any], target: str, notes: list[str]) -> Any:
    if isinstance(factory, nn.Module) or not callable(factory):
        return factory
    try:
        with suite.building("float32", "meta"):
            return factory(**settings)
    except Exception as error:
        # Code that looks at values while it builds the model needs real tensors.
        if not re.search("meta", str(error)) and not isinstance(error, NotImplementedError):
            raise _failed(target, error) from error
    notes.append("The model was built with real weights: its code does not run on meta tensors.")
    try:
        with suite.building("float32", "cpu"):
            return factory(**settings)
    except Exception as error:
        raise _failed(target, error) from error


def _failed(target: str, error: Exception) -> InputError:
    return InputError(
        "the target failed",
        code="invalid-value",
        place=target,
        found=f"{type(error).__name__}: {str(error)[:160]}",
        remedy="call it in Python to see where",
    )


def _needs_inputs(module: nn.Module) -> bool:
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.default is each.empty and each.kind in kinds for each in parameters)


def profile_target(
    target: str,
    specs: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    *,
    steps: int = 1,
    **options: Any,
) -> OpProfile:
    """Profile what a command names; of a pipeline every component, with its number of calls.

    Args:
        target: see `resolve`, or a pipeline of the suite.
        specs: see `read_inputs`.
        settings: see `resolve`.
        steps: calls of a model, or of the parts of a pipeline that run once per step.
        options: of `profile_workload`.
    """
    given = dict(settings or {})
    parts = suite.PIPELINES.get(target.removeprefix("suite:")) if ":" in target else None
    if parts is None:
        made = profile_workload(resolve(target, specs, given), **options)
        return made if steps == 1 else combine([("step", made, steps)], target)
    profiles = []
    for label, name, calls in parts:
        own = dict(given)
        if name in suite.GUIDED:
            own["batch"] = 2 * own.get("batch", 1)
        work = suite.workload(name, own)
        profiles.append((label, profile_workload(work, **options), calls or steps))
    return combine(profiles, target)


