"""From the command line to a model and its inputs: TARGET, --input, --set."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from torch import nn

from holdfast.command import Positive, option
from holdfast.profile.ops import suite, sweeps
from holdfast.profile.ops.inputs import read_inputs, read_settings, read_values
from holdfast.profile.ops.profiling import combine, profile
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.running import Workload
from holdfast.profile.ops.sweeps import Sweep
from holdfast.profile.ops.targets import refused
from holdfast.targets import load


def resolve(target: str, specs: Sequence[str], settings: Mapping[str, Any]) -> Workload:
    """The model and inputs of a target that is not a pipeline.

    Args:
        target: ``package.module:factory`` or ``suite:NAME``. A factory returns a module, or a module, a
            tuple of inputs and perhaps a dictionary of named inputs; a module or its class will do.
        specs: see `read_inputs`; they replace the inputs that the factory returns.
        settings: arguments of the factory, or sides of the inputs.

    Raises:
        InputError: if the target or its inputs cannot be understood.
    """
    if target.startswith("suite:"):
        if specs:
            raise refused(
                "the suite has its own inputs",
                "conflict",
                "--input",
                specs[0],
                "no inputs: shapes change with --set, such as --set image_size=1024",
            )
        return suite.workload(target.removeprefix("suite:"), settings)
    found, notes = load(target), list[str]()
    factory = found if callable(found) and not isinstance(found, nn.Module) else lambda: found
    result = _call(factory, _accepted(factory, settings), target, notes)
    module, *rest = result if isinstance(result, tuple) else (result,)
    if not isinstance(module, nn.Module):
        raise refused(
            "not a module",
            "invalid-value",
            "TARGET",
            f"{target} gives {type(module).__name__}",
            "torch.nn.Module, or a tuple of a module and its inputs",
        )
    args, kwargs = read_inputs(specs, settings)
    if not specs:
        args = tuple(rest[0]) if rest else ()
        kwargs = dict(rest[1]) if len(rest) > 1 else {}
        if not rest and _needs_inputs(module):
            raise refused(
                "no inputs",
                "missing-key",
                "--input",
                "none",
                "--input 1x3x224x224 for each input, or a factory that returns them too",
            )
    return Workload(module.eval(), args, kwargs, target, notes)


def _accepted(factory: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a factory takes; those in upper case are sides of inputs."""
    own = {key: value for key, value in settings.items() if not key.isupper()}
    parameters = inspect.signature(factory).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for key in own:
        if not anything and key not in parameters:
            listed = ", ".join(sorted(parameters)) or "it has none"
            expected = f"an argument of the target ({listed}), or in upper case a side of an input"
            raise refused("unknown setting", "unknown-key", "--set", key, expected)
    return own


def _call(factory: Any, settings: Mapping[str, Any], target: str, notes: list[str]) -> Any:
    for device in ("meta", "cpu"):
        try:
            with suite.building("float32", device):
                return factory(**settings)
        except Exception as error:
            # Code that looks at values while it builds the model needs real tensors.
            empty = "meta" in str(error) or isinstance(error, NotImplementedError)
            if device == "cpu" or not empty:
                found = f"{type(error).__name__}: {error}"
                expected = "a factory that works in Python"
                problem = "the target failed"
                raise refused(problem, "invalid-value", target, found, expected) from error
            notes.append(
                "The model was built with real weights: its code does not run on meta tensors."
            )
    return None


def _needs_inputs(module: nn.Module) -> bool:
    parameters = inspect.signature(module.forward).parameters.values()
    # Kinds are ordered: below *args are those that can be positional.
    return any(
        each.default is each.empty and each.kind < each.VAR_POSITIONAL for each in parameters
    )


Device = Literal["meta", "fake", "cpu"]
Several = tuple[str, ...]


def ops(
    target: str,
    /,
    *,
    input: Annotated[Several, option(metavar="SPEC")] = (),
    set: Annotated[Several, option(metavar="NAME=VALUE")] = (),
    device: Device = "meta",
    attention: Literal["fused", "math", "flash"] = "fused",
    hw: Annotated[str, option(metavar="NAME|FILE")] = "",
    steps: Positive = 1,
    runs: Positive = 5,
    trace: Annotated[str, option(metavar="FILE")] = "",
    training: bool = False,
    strict: bool = False,
) -> OpProfile:
    """Count the FLOPs, bytes and attention calls of a model; on the CPU also measure its time.

    Args:
        target: package.module:factory, or suite:NAME (an unknown name lists them).
        input: Input as [NAME=]1x3x224x224[:DTYPE], or a TOML or JSON file; repeat for several.
        set: Argument of the factory or of the suite model (image_size=1024), or a side (S=224); repeatable.
        device: meta and fake need no weights and no data; cpu runs the model.
        attention: One fused kernel, separate products (math), or the kernel of a real run.
        hw: Hardware of the roofline: a name, a TOML or JSON file of peaks, or 'this' (default: h100-sxm;
            on cpu: this).
        steps: Calls of the model, or of the parts of a pipeline that run once per step.
        runs: Measured runs on cpu.
        trace: Chrome trace of torch.profiler (record_shapes=True) of a real run of this model and input.
        training: Also count the backward pass and a step of AdamW (without data).
        strict: Exit with 1 if an operator has no formula.
    """
    settings = read_settings(set)
    options: dict[str, Any] = {
        "device": device,
        "attention": attention,
        "machine": hw,
        "runs": runs,
        "training": training,
    }
    parts = suite.PIPELINES.get(target.removeprefix("suite:")) if ":" in target else None
    if trace and (parts is not None or steps > 1):
        raise refused("a trace is of one model", "conflict", "--trace", target)
    if parts is None:
        options["trace"] = trace or None
        result = profile(resolve(target, input, settings), **options)
        if steps > 1:
            result = combine([("step", result, steps)], target)
        return replace(result, strict=strict)
    profiles = []
    for label, name, calls in parts:
        own = dict(settings)
        if name in suite.GUIDED:
            own["batch"] = 2 * own.get("batch", 1)
        profiles.append((label, profile(suite.workload(name, own), **options), calls or steps))
    return replace(combine(profiles, target), strict=strict)


def sweep(
    target: str,
    /,
    *,
    over: Annotated[str, option(metavar="NAME=N,...")],
    input: Annotated[Several, option(metavar="SPEC")] = (),
    set: Annotated[Several, option(metavar="NAME=VALUE")] = (),
    device: Device = "meta",
    attention: Annotated[str, option(metavar="NAME,...")] = "fused",
    hw: Annotated[str, option(metavar="NAME|FILE")] = "",
    runs: Positive = 3,
) -> Sweep:
    """Profile a model at several sizes: how its cost grows, and what fused attention saves.

    Args:
        target: package.module:factory, or suite:NAME.
        over: Setting or side that varies, such as image_size=256,512,1024 or S=64,128.
        input: Input as [NAME=]1x3xSxS[:DTYPE], or a TOML or JSON file; repeat for several.
        set: Argument of the factory or of the suite model, or a side of an input; repeatable.
        device: meta and fake need no weights and no data; cpu measures time and peak memory.
        attention: Implementations to compare: fused, math; on cpu also flash.
        hw: Hardware of the roofline: a name, a TOML or JSON file of peaks, or 'this' (default: h100-sxm;
            on cpu: this).
        runs: Measured runs per point on cpu.
    """
    name, values = read_values(over)
    settings = read_settings(set)
    return sweeps.sweep(
        lambda value: resolve(target, input, {**settings, name: value}),
        name,
        values,
        device=device,
        attention=tuple(dict.fromkeys(attention.split(","))),
        machine=hw,
        runs=runs,
        name=target,
    )
